"""Which values are defined in the bytes of others, and which never."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import pytest

from solver.errors import OptionsError
from solver.graph import TrainableGraph, TrainingRules
from solver.graph.ops import lookup
from solver.passes import Aliases, Levels, Order
from solver.passes.aliases import define_in_place
from solver.program import Program, alias_sets, check_program, lent, loads
from solver.training import derive, explicit_program
from tests.support.derived import reads, step
from tests.support.graphs import Sketch, batch_normalised, convolutional, network, residual
from tests.support.programs import AUTO_RECYCLE
from tests.support.programs import program as explicit
from tests.support.small_plans import lending, longest_rest, paged

Pairs = dict[str, tuple[str, bool]]


def program(graph: TrainableGraph, *, parallelism: int = 1, in_place: bool = True) -> Program:
    ordered = Levels(parallelism).run(Order().run(derive(graph)))
    return Aliases(in_place).run(ordered)


def pairs(found: Program) -> Pairs:
    """By value: whose bytes it takes, and whether it is a view."""
    label = [value.label for value in found.values]
    return {label[alias.value]: (label[alias.source], alias.view) for alias in found.aliases}


def aliases(graph: TrainableGraph, parallelism: int = 1) -> Pairs:
    return pairs(program(graph, parallelism=parallelism))


def hidden(types: Sequence[str], *, trained_in_front: bool = True, readers: int = 1) -> TrainableGraph:
    """x -> Gemm (z) -> `types` one after the other (y0, y1, ...) -> Gemm -> loss. z has `readers`."""
    s = Sketch("hidden")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    h = z
    for k, type_ in enumerate(types):
        inputs = [h, s.integers(f"shape{k}", -1, 4)] if type_ == "Reshape" else [h]
        h = s.op(type_, inputs, f"y{k}")
    h = s.op("Gemm", [h, s.parameter("v", 4, 4)], "out")
    for k in range(1, readers):
        h = s.op("Add", [h, z], f"skip{k}")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph(trainable="all" if trained_in_front else ("v",))


def test_nothing_is_shared_unless_it_is_asked_for() -> None:
    assert not program(hidden(["Relu"]), in_place=False).aliases


def test_an_activation_overwrites_its_input_and_its_derivative() -> None:
    assert aliases(hidden(["Relu"])) == {"y0": ("z", False), "z@grad": ("y0@grad", False)}


def test_a_chain_stays_in_one_place() -> None:
    found = aliases(hidden(["Relu", "Reshape", "Flatten"]))
    assert [found[name] for name in ("y0", "y1", "y2")] == [("z", False), ("y0", True), ("y1", True)]
    assert found["y0@grad"] == ("y1@grad", True)
    assert found["z@grad"] == ("y0@grad", False)


def test_two_that_read_their_output_cannot_follow_each_other_in_one_place() -> None:
    """The derivative of Relu reads y0, which Tanh would have overwritten."""
    found = aliases(hidden(["Relu", "Tanh"]))
    assert found["y0"] == ("z", False)
    assert "y1" not in found


GATED = ["Gelu", "Swish", "HardSwish"]


@pytest.mark.parametrize("type_", GATED)
def test_an_activation_whose_derivative_reads_its_input_does_not_overwrite_it(type_: str) -> None:
    graph = hidden([type_])
    found = aliases(graph)
    assert "y0" not in found
    made = program(graph)
    assert "z" in reads(made, step(made, "y0.op:calc_derivative"))


@pytest.mark.parametrize("type_", GATED)
def test_it_does_where_no_derivative_is_computed(type_: str) -> None:
    assert aliases(hidden([type_], trained_in_front=False))["y0"] == ("z", False)


def test_an_operand_that_a_later_step_reads_is_kept() -> None:
    assert "y0" not in aliases(hidden(["Relu"], readers=2))


#: By name: operations behind z, of which y is compared with a label unless a loss is there; the values that
#: are defined in the bytes of others, and whether they are views; values that have bytes of their own; and
#: what the caller asks for.
ROWS: dict[str, tuple[str, Pairs, set[str], tuple[str, ...]]] = {
    "the derivative of a LeakyRelu reads its input": ("y = LeakyRelu(z, alpha=-0.5)", {}, {"y"}, ()),
    "so does that of an Elu": ("y = Elu(z, alpha=-0.5)", {}, {"y"}, ()),
    "an operand that earlier steps read may be overwritten": (
        "n = Neg(z); other = Gemm(n, v[4, 4]); r = Relu(z); y = Add(other, r)",
        {"r": ("z", False)}, {"n"}, (),
    ),
    # The sum of a block and its shortcut: z is read again, and its derivative grows only after b's was read.
    "a sum takes the memory of its operand that is not read again": (
        "b = Gemm(z, v[4, 4]); y = Add(b, z)",
        {"y": ("b", False), "b@grad": ("y@grad", True), "z@grad": ("y@grad", True)}, set(), (),
    ),
    "be it the second one": (
        "b = Gemm(z, v[4, 4]); y = Add(z, b)",
        {"y": ("b", False), "b@grad": ("y@grad", True), "z@grad": ("y@grad", True)}, set(), (),
    ),
    "a sum of operands that are not read again takes the memory of the first": (
        "b = Gemm(x, v[4, 4]); y = Add(z, b)", {"y": ("z", False)}, set(), (),
    ),
    "a sum that is broadcast does not take the smaller memory": (
        "a = Gemm(x, u[4, 1]); b = Gemm(z, v[4, 4]); y = Add(a, b)", {"y": ("b", False)}, {"a@grad"}, (),
    ),
    "the same operand twice is not overwritten": ("y = Add(z, z)", {}, {"y"}, ()),
    # dA is written before dY is read for dB, so that only dB may take dY's memory.
    "a product keeps the derivative that its second operand needs": (
        "b = Gemm(x, v[4, 4]); y = Mul(z, b)", {"b@grad": ("y@grad", False)}, {"z@grad"}, (),
    ),
    "what nobody asks for is overwritten": ("y = Relu(z)", {"y": ("z", False)}, set(), ()),
    "a result may take another one's place": ("y = Relu(z)", {"y": ("z", False)}, set(), ("y",)),
    "a result is kept": ("y = Relu(z)", {}, {"y"}, ("z",)),
    "a result that is a view keeps what it views": (
        "flat = Reshape(z, shape.integers[2, 6]); y = Tanh(z)", {"flat": ("z", True)}, {"y"}, ("flat",),
    ),
    "the loss is not overwritten": (
        "first = MeanSquaredError(z, t.label[3, 4]); loss = Neg(first); after = Neg(loss)",
        {"loss": ("first", False)}, {"after"}, ("after",),
    ),
    # The derivative of s grows twice; what Relu makes of it in place is then only reshaped.
    "behind an accumulation and an overwriting there are views again": (
        """r = Reshape(z, shape.integers[4, 3]); s = Relu(r); h = Gemm(s, u[3, 3]); g = Gemm(s, v[3, 3])
loss = MeanSquaredError(Mul(h, g), t.label[4, 3])""",
        {"r@grad": ("s@grad", False), "z@grad": ("r@grad", True)}, set(), (),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "shared", "apart", "outputs"), ROWS.values(), ids=ROWS)
def test_values_share_bytes(text: str, shared: Pairs, apart: set[str], outputs: tuple[str, ...]) -> None:
    loss = "" if "loss" in text else "; loss = MeanSquaredError(y, t.label[3, 4])"
    found = aliases(network(f"z = Gemm(x.input[3, 4], w[4, 4]); {text}{loss}", outputs=outputs))
    assert {value: found.get(value) for value in shared} == shared
    assert not apart & found.keys()


def test_inputs_labels_and_weights_are_never_overwritten() -> None:
    """A view of them overwrites nothing."""
    text = "y = Gemm(Relu(x.input[3, 4]), Relu(w[4, 4])); loss = MeanSquaredError(y, Relu(t.label[3, 4]))"
    assert aliases(network(text)).keys() == {"w@grad"}
    text = "flat = Flatten(x.input[3, 2, 2]); matrix = Reshape(w[16], square.integers[4, 4])"
    found = aliases(network(f"{text}; loss = MeanSquaredError(Gemm(flat, matrix), t.label[3, 4])"))
    assert found == {"flat": ("x", True), "matrix": ("w", True), "w@grad": ("matrix@grad", True)}


def test_derivatives_that_both_grow_do_not_share() -> None:
    """a and b are read twice each: both derivatives are accumulated into, so one of them is a copy."""
    s = Sketch("grow")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 4)], "b")
    p = s.op("MatMul", [a, s.parameter("k", 4, 4)], "p")
    q = s.op("MatMul", [b, s.parameter("l", 4, 4)], "q")
    s.op("Add", [s.op("Add", [a, b], "sum"), s.op("Add", [p, q], "other")], "total")
    s.op("MeanSquaredError", ["total", s.label("t", 3, 4)], "loss")
    found = aliases(s.graph())
    assert len({"a@grad", "b@grad"} & found.keys()) <= 1


def test_what_steps_of_one_level_read_is_not_overwritten_by_one_of_them() -> None:
    s = Sketch("level")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    other = s.op("ReduceMean", [z], "mean", axes=(1,))
    s.op("Add", [s.op("Relu", [z], "y"), other], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 4)], "loss")
    graph = s.graph()
    assert "y" in aliases(graph)
    together = program(graph, parallelism=4)
    assert step(together, "mean.op:forward").level == step(together, "y.op:forward").level
    assert "y" not in pairs(together)


def test_only_what_is_allowed_is_used() -> None:
    plain = program(hidden(["Relu", "Flatten"]), in_place=False)
    found = define_in_place(plain, lambda program, step, promise: promise.view)
    assert found.aliases
    assert all(alias.view for alias in found.aliases)
    assert not define_in_place(plain, lambda program, step, promise: False).aliases


def test_alias_sets_list_all_that_share_in_order() -> None:
    made = program(hidden(["Relu", "Reshape"]))
    sets = [
        [(made.values[v].label, offset) for v, offset in members] for members in alias_sets(made).values()
    ]
    assert sets == [
        [("z", 0), ("y0", 0), ("y1", 0)],
        [("y1@grad", 0), ("y0@grad", 0), ("z@grad", 0)],
    ]


def test_everything_else_of_the_program_stays_as_it_is() -> None:
    graph = residual()
    shared, alone = program(graph), program(graph, in_place=False)
    assert shared.steps == alone.steps
    assert shared.values == alone.values
    assert (shared.entry, shared.exit) == (alone.entry, alone.exit)


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("graph", [residual(), convolutional(), batch_normalised()], ids=lambda g: g.name)
def test_each_alias_stands_in_the_step_that_defines_it_from_its_source(
    graph: TrainableGraph, parallelism: int
) -> None:
    made = program(graph, parallelism=parallelism)
    assert made.aliases
    assert len({alias.value for alias in made.aliases}) == len(made.aliases)
    for alias in made.aliases:
        accesses = {b.value: b.access.value for b in made.steps[alias.step].bindings}
        assert (accesses[alias.source], accesses[alias.value]) == ("read", "write")
        assert alias.offset == 0


def test_a_program_without_steps_takes_no_bytes() -> None:
    empty = replace(derive(residual()), steps=(), entry=(), exit=())
    facts = Aliases(in_place=True).facts(empty, define_in_place(empty))
    assert facts == {"views": 0, "overwritten": 0, "peak_before": 0, "peak_after": 0}


def test_accumulated_gradients_have_bytes_of_their_own() -> None:
    """They carry over, so nothing may lie in their bytes before they are defined."""
    graph = residual(training=TrainingRules(accumulate=2))
    gradients = {f"{weight}@grad" for weight in graph.trainable}
    found = aliases(graph)
    assert gradients.isdisjoint(found)
    assert gradients.isdisjoint(source for source, view in found.values() if not view)


def test_steps_of_which_nothing_is_known_promise_nothing() -> None:
    made = explicit_program(explicit(AUTO_RECYCLE))
    assert not define_in_place(made).aliases


def test_the_facts_count_views_and_what_is_overwritten() -> None:
    plain = program(hidden(["Relu", "Reshape"]), in_place=False)
    found = Aliases(in_place=True).run(plain)
    check_program(found)
    assert Aliases(in_place=True).facts(plain, found) == {
        "views": 2,
        "overwritten": 2,
        "peak_before": max(loads(plain)[0]),
        "peak_after": max(loads(found)[0]),
    }


def test_what_a_step_has_overwritten_it_cannot_view_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """A difference that would write -dY over dY first, and hand dY on as the other derivative then."""

    def reversed_promises(type_: str) -> SimpleNamespace:
        return SimpleNamespace(in_place=lambda node: lookup(type_).in_place(node)[::-1])

    s = Sketch("difference")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 4)], "b")
    s.op("MeanSquaredError", [s.op("Sub", [a, b], "d"), s.label("t", 3, 4)], "loss")
    graph = s.graph()
    monkeypatch.setattr("solver.passes.aliases.lookup", reversed_promises)
    found = aliases(graph)
    assert found["b@grad"] == ("d@grad", False)
    assert "a@grad" not in found


def test_alias_sets_do_not_depend_on_the_order_in_which_aliases_stand() -> None:
    made = program(convolutional())
    assert len(made.aliases) > 1
    assert alias_sets(replace(made, aliases=made.aliases[::-1])) == alias_sets(made)


# ----------------------------------------------------------------------------------------- sub-ranges


def branches(axis: int = 0, *, skip: bool = False) -> TrainableGraph:
    """x -> two Gemms (a, b) -> Concat (c) -> Tanh (d) -> two Slices (e, later g) -> Gemms -> sum -> loss.

    With `skip` a is also read behind all that. Only what is behind the slices is trained.
    """
    s = Sketch("branches")
    x = s.input("x", 4, 16)
    a = s.op("Gemm", [x, s.parameter("u", 16, 16)], "a")
    b = s.op("Gemm", [x, s.parameter("v", 16, 16)], "b")
    d = s.op("Tanh", [s.op("Concat", [a, b], "c", axis=axis)], "d")
    outputs = []
    for name, start in (("e", 4), ("g", 0)):
        ends = [s.integers(f"{name} {end}", at) for end, at in (("from", start), ("to", start + 4))]
        cut = s.op("Slice", [d, *ends, s.integers(f"{name} axes", axis)], name)
        outputs.append(s.op("Gemm", [cut, s.parameter(f"w{name}", 4 if axis else 16, 8)], f"f{name}"))
    last = s.op("Add", outputs, "sum")
    if skip:
        last = s.op("Add", [last, s.op("Gemm", [a, s.parameter("z", 16, 8)], "side")], "more")
    s.op("MeanSquaredError", [last, s.label("t", 4, 8)], "loss")
    return s.graph(trainable=("wg",))


def parts(graph: TrainableGraph, *, sub_ranges: bool = True) -> dict[tuple[str, str], int]:
    """By value and source the offset of each view of a part, or of a whole that parts make up."""
    found = Aliases(in_place=True, sub_ranges=sub_ranges).run(Order().run(derive(graph)))
    label = [value.label for value in found.values]
    return {(label[a.value], label[a.source]): a.offset for a in found.aliases if a.view}


def test_what_is_cut_out_and_joined_lies_where_its_parts_lie() -> None:
    """g is the last to be cut out of d, and is read again backward: all of d would have to stay for it."""
    found = parts(branches())
    assert found.items() >= {("c", "a"): 0, ("c", "b"): -256, ("e", "d"): 256}.items()
    assert ("g", "d") not in found
    assert not parts(branches(), sub_ranges=False).keys() & found.keys() - {("fg@grad", "sum@grad")}


def test_what_would_have_gaps_is_copied() -> None:
    assert parts(branches(axis=1)) == parts(branches(axis=1), sub_ranges=False)


def test_where_one_part_is_read_much_later_the_result_is_a_copy() -> None:
    """The room of b would have to stay as long as a. So Tanh may overwrite c."""
    graph = branches(skip=True)
    found = Aliases(in_place=True, sub_ranges=True).run(Order().run(derive(graph)))
    assert ("c", "a") not in parts(graph)
    assert pairs(found)["d"] == ("c", False)


def test_what_lies_where_its_parts_lie_is_not_overwritten_while_a_part_is_read_later() -> None:
    """c is made of a and b, which stay: Relu, the last reader of c, may not write over it."""
    s = Sketch("joined")
    x = s.input("x", 4, 16)
    a, b = (s.op("Gemm", [x, s.parameter(f"w{name}", 16, 16)], name) for name in "ab")
    c = s.op("Concat", [a, b], "c", axis=0)
    h = s.op("Gemm", [c, s.parameter("w", 16, 16)], "h")
    e = s.op("Slice", [s.op("Relu", [c], "d"), s.integers("from", 0), s.integers("to", 4)], "e")
    f = s.op("Slice", [h, s.integers("first", 4), s.integers("last", 8)], "f")
    e = s.op("Mul", [s.op("Mul", [e, f], "ef"), s.op("Mul", [a, b], "ab")], "product")
    s.op("Gemm", [e, s.parameter("z", 16, 16)], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 16)], "loss")
    found = define_in_place(derive(s.graph(trainable=("z",))), sub_ranges=True)
    label = [value.label for value in found.values]
    assert [label[alias.source] for alias in found.aliases if label[alias.value] == "c"] == ["a", "b"]
    assert "d" not in pairs(found)


def test_a_row_is_a_view_while_the_rest_stays_anyway() -> None:
    """The last row that is cut out would keep all of the value, and is copied."""
    s = Sketch("row")
    a = s.op("Gemm", [s.input("x", 64, 16), s.parameter("u", 16, 16)], "a")
    b = s.op("Slice", [a, s.integers("from", 0), s.integers("to", 1)], "b")
    for k in range(3):
        b = s.op("Gemm", [b, s.parameter(f"w{k}", 16, 16)], f"h{k}")
    last = s.op("Slice", [a, s.integers("last from", 8), s.integers("last to", 9)], "last")
    s.op("MeanSquaredError", [s.op("Mul", [b, last], "product"), s.label("t", 1, 16)], "loss")
    found = parts(s.graph(trainable=("w2",)))
    assert found["b", "a"] == 0
    assert ("last", "a") not in found


@pytest.mark.parametrize("graph", [branches(), branches(skip=True), residual(), convolutional()])
def test_sub_ranges_never_take_more(graph: TrainableGraph) -> None:
    ordered = Order().run(derive(graph))
    sizes = [
        sum(map(max, loads(Aliases(in_place=True, sub_ranges=sub_ranges).run(ordered))))
        for sub_ranges in (False, True)
    ]
    assert sizes[1] <= sizes[0]


def test_parts_that_the_alignment_forbids_are_copied() -> None:
    s = Sketch("odd")
    a = s.op("Gemm", [s.input("x", 5, 3), s.parameter("u", 3, 3)], "a")
    b = s.op("Slice", [a, s.integers("from", 1), s.integers("to", 4)], "b")
    s.op("MeanSquaredError", [s.op("Gemm", [b, s.parameter("w", 3, 3)], "c"), s.label("t", 3, 3)], "loss")
    assert parts(s.graph()) == {}


def test_sub_ranges_alone_are_refused() -> None:
    with pytest.raises(OptionsError, match="in_place"):
        Aliases(sub_ranges=True)


def test_copies_keep_what_they_read_until_they_have_ended() -> None:
    """A source is not overwritten while it is copied, and what lends its bytes takes no part in aliases."""
    s = Sketch("views")
    w = s.parameter("w", 4, 4)
    h = s.op("Gemm", [s.input("x", 4, 4), w], "h", "first")
    for k in range(3):
        h = s.op("Relu", [h], f"r{k}", f"relu{k}")
        h = s.op("Gemm", [h, s.parameter(f"w{k}", 4, 4)], f"g{k}", f"fc{k}")
    flat = s.op("Reshape", [w, s.integers("shape", 2, 8)], "flat", "reshape")
    h = s.op("Reshape", [h, s.integers("other", 2, 8)], "last", "reshape2")
    s.op("MeanSquaredError", [s.op("Add", [h, flat], "sum", "add"), s.label("t", 2, 8)], "loss", "mse")
    before = Order().run(derive(s.graph()))
    alone = pairs(define_in_place(before))
    assert alone["flat"] == ("w", True)
    value = before.by_label["w"]
    lends = lending(before, value, *longest_rest(before, value), 1)
    assert value in lent(lends)
    found = define_in_place(lends)
    assert "flat" not in pairs(found)
    assert lent(found) == lent(lends)
    assert max(loads(found)[0]) <= max(loads(lends)[0])

    activation = before.by_label["h"]
    assert alone["r0"] == ("h", False)
    relu = step(before, "relu0:forward")
    t = before.steps.index(relu)
    copied = paged(before, activation, t - 1, t + 1, 0)
    assert pairs(define_in_place(copied))["r0"] == ("h", False)  # the copy has ended before
    slower = replace(
        copied, steps=tuple(replace(s, until=s.until + (s.reference is None)) for s in copied.steps)
    )
    assert "r0" not in pairs(define_in_place(slower))
