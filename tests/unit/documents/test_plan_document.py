"""Plan documents: lossless, canonical, with a digest, and refused after any change."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from solver import pipeline
from solver.canonical import canonical_json
from solver.documents import (
    dump_plan,
    graph_digest,
    load_graph,
    load_plan,
    parse_json,
    with_digest,
)
from solver.errors import ArenaplanError, DocumentError, PlanError
from solver.graph import DType, Operation, TensorType, TrainableGraph
from solver.graph.ops.base import Node
from solver.layout import Certificate, Lifespan, Proof, Status
from solver.plan import Plan, PlanOptions
from solver.program import (
    COPY,
    Access,
    Alias,
    Binding,
    Builder,
    EntryKind,
    Initial,
    Kind,
    Phase,
    Program,
    Record,
    Replacement,
    Space,
    Value,
    reference_digest,
)
from tests.support.graphs import Sketch, chain, convolutional
from tests.support.programs import AUTO_RECYCLE, program
from tests.support.rewritable import mobile_block

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture(scope="module")
def made() -> Plan:
    return pipeline.plan(chain(learning_rate=0.1), PlanOptions(alignment=32))


@pytest.fixture
def document(made: Plan) -> dict[str, Any]:
    found: dict[str, Any] = parse_json(dump_plan(made))
    return found


def by_hand() -> Plan:
    """A program with all that a document can hold: nothing in it means anything to a kernel."""
    build = Builder("by hand", [Space("fast", 64), Space("far", 16, addressable=False)])
    matrix, bytes_ = TensorType((4, 4), DType.FLOAT32), TensorType((64,), DType.UINT8)
    x = build.value("x", matrix, Kind.INPUT, "x")
    w = build.value("w", matrix, Kind.PARAMETER, "w")
    away = build.value("w@far", matrix, Kind.PARAMETER, "w", space=1)
    y = build.value("again: y", matrix, Kind.ACTIVATION, "y")  # does not begin with its origin
    flat = build.value("z", bytes_, Kind.ACTIVATION, "z")
    scratch = build.value("op@forward.rows", bytes_, Kind.SCRATCH, "op")
    nameless = build.value("", bytes_, Kind.RESULT, "r")
    build.entries |= {x: EntryKind.FED, w: EntryKind.CONSTANT, away: EntryKind.CARRIED}
    build.exits |= {away: None, nameless: None}
    build.initial |= {
        w: Initial("values", source="w", sha256="0" * 64),
        away: Initial("normal", scale=0.5, seed=2**40),
    }
    attributes = {"alpha": 0.5, "axes": (0, -1), "mode": "same", "pads": None, "skips": True, "none": ()}
    op = build.operation(
        Node(
            Operation("op", "Resize", ("x0", "", "x2"), ("y0",)),
            (matrix, None, bytes_),
            (matrix,),
            (None, None, (2**62, -1)),
            attributes,
            0,
            {2: (0.1, math.inf, -math.inf), 1: ()},
        )
    )
    copy_ = build.operation(Node(Operation("w", COPY, ("x0",), ("y0",)), (matrix,), (matrix,), (), {}))
    read, write = Access.READ, Access.WRITE
    build.step(op, Phase.FORWARD, [Binding("x0", x, read), Binding("x1", w, read), Binding("y0", y, write)])
    build.step(
        op,
        Phase.CALC_GRADIENT,
        [Binding("x0", y, read), Binding("y0", flat, write), Binding("rows", scratch, Access.SCRATCH)],
        part="again",
        due=True,
    )
    build.step(copy_, Phase.EXPLICIT, [Binding("x0", w, read), Binding("y0", away, write)], part="out")
    build.step(op, Phase.APPLY_GRADIENT, [Binding("x0", flat, Access.UPDATE), Binding("y0", nameless, write)])
    made = build.finish(period=4, aliases=[Alias(flat, y, 1, view=False, offset=0)])
    # The copy takes two levels, and repeats nothing.
    steps = (*made.steps[:2], dataclasses.replace(made.steps[2], reference=None, until=3), made.steps[3])
    made = dataclasses.replace(made, steps=steps)
    return with_digest(
        Plan(
            graph='a "name" with ☃',
            graph_digest="1" * 64,
            reference_digest=reference_digest(made),
            options=PlanOptions(deadline_seconds=5, parallelism=2, in_place=True),
            program=made,
            offsets=(0, 64, 0, 128, 128, 192, 192 + 2**40),
            sizes=(2**41, 64),
            certificates=(
                Certificate(Status.FEASIBLE, None, 320, None, "greedy"),
                Certificate(Status.OPTIMAL, Proof.SOLVER, 64, 2, "cp-sat"),
            ),
            deterministic=False,
            holds={5: Lifespan(0, 4), 0: Lifespan(0, 2)},
            replacements=(Replacement("fuse", ("a", "b"), ("c",), 0, 10, 9),),
            records=(Record("order", {"peak": 3, "done": True, "by": "work"}), Record("levels", {})),
            producer="arenaplan 9",
        )
    )


@pytest.mark.parametrize(
    "make",
    [
        by_hand,
        lambda: pipeline.plan(convolutional()),
        lambda: pipeline.plan(convolutional(), PlanOptions(parallelism=2, in_place=True)),
        lambda: pipeline.plan(convolutional(), PlanOptions(target="onert")),
        lambda: pipeline.plan(chain(), PlanOptions(target="nntrainer")),
        lambda: pipeline.plan(mobile_block(), PlanOptions(rewrite=True)),
        lambda: pipeline.plan_program(program(AUTO_RECYCLE, fed=("in",), kept=("dx",))),
    ],
    ids=["by hand", "plain", "levels", "onert", "nntrainer", "rewritten", "explicit"],
)
def test_round_trip(make: Callable[[], Plan]) -> None:
    made = make()
    data = dump_plan(made)
    again = load_plan(data)
    assert again == made
    assert dump_plan(again) == data
    assert load_plan(parse_json(data)) == made


def test_indented_documents_have_a_row_a_line(made: Plan, document: dict[str, Any]) -> None:
    text = dump_plan(made, indent=2)
    assert load_plan(text) == made
    assert json.loads(text) == document
    assert list(json.loads(text)) == list(document)
    rows = sum(len(value) for value in document.values() if isinstance(value, list))
    assert rows < len(text.splitlines()) < rows + 3 * len(document)


def test_every_row_says_what_it_is(document: dict[str, Any]) -> None:
    """The first step, read by hand from the tables alone."""
    operation, form, reference, level, until, values = document["steps"][0]
    name, kernel, inputs, outputs = document["operations"][operation]
    assert (name, document["kernels"][kernel][0]) == ("fc1", "Gemm")
    assert [document["types"][k] for k in inputs] == [
        [[3, 6], "float32"],
        [[5, 6], "float32"],
        [[5], "float32"],
    ]
    assert [document["types"][k] for k in outputs] == [[[3, 5], "float32"]]
    phase, part, due, slots = document["forms"][form]
    assert (phase, part, due) == ("forward", "", False)
    assert (reference, level, until) == (0, 0, 0)
    bound = {}
    for (slot, access), value in zip(slots, values, strict=True):
        suffix, _, kind, origin, space, offset = document["values"][value]
        bound[slot] = (access, document["origins"][origin] + suffix, document["kinds"][kind])
        assert (space, offset % 32) == (0, 0)
    assert bound["x0"] == ("read", "x", "input")
    assert bound["x1"] == ("read", "w1", "parameter")
    assert bound["y0"][0] == "write"


def test_what_follows_from_the_program_is_not_written(document: dict[str, Any]) -> None:
    words = {"start", "lifespan", "peak", "arena_bytes", "gap_bytes", "nbytes", "lifetime"}
    assert not words & set(document)


def test_tables_are_numbered_by_first_use(document: dict[str, Any]) -> None:
    def first_use(numbers: list[int]) -> None:
        assert list(dict.fromkeys(numbers)) == list(range(max(numbers) + 1))

    operations, values = document["operations"], document["values"]
    first_use([*itertools.chain.from_iterable([*o[2], *o[3]] for o in operations), *(v[1] for v in values)])
    first_use([operation[1] for operation in operations])
    first_use([step[1] for step in document["steps"]])
    for column in (2, 3):
        first_use([value[column] for value in values])


def test_equal_plans_give_equal_bytes() -> None:
    one, other = by_hand(), by_hand()
    attributes = dict(list(one.program.operations[0].attributes.items())[::-1])
    first = dataclasses.replace(one.program.operations[0], attributes=attributes)
    shuffled = dataclasses.replace(
        one.program,
        operations=(first, *one.program.operations[1:]),
        initial=dict(list(one.program.initial.items())[::-1]),
    )
    again = dataclasses.replace(one, program=shuffled, holds=dict(list(one.holds.items())[::-1]))
    assert again == other
    assert dump_plan(again) == dump_plan(other)
    assert with_digest(again).digest == other.digest


def test_document_names_what_it_belongs_to(made: Plan, document: dict[str, Any]) -> None:
    assert document["version"] == 2
    assert document["graph_digest"] == graph_digest(chain(learning_rate=0.1))
    assert document["reference_digest"] == made.reference_digest
    assert document["producer"].startswith("arenaplan ")


def test_digest_can_be_checked_by_anyone(document: dict[str, Any]) -> None:
    digest = document.pop("digest")
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert hashlib.sha256(text.encode()).hexdigest() == digest
    assert canonical_json(document) == text.encode()


def test_digest_does_not_depend_on_an_earlier_one(made: Plan) -> None:
    assert with_digest(with_digest(dataclasses.replace(made, digest="x"))) == made


# ------------------------------------------------------------------------------- reference programs


def test_reference_digest_sees_everything_but_places() -> None:
    given = by_hand().program
    digest = reference_digest(given)
    assert digest == reference_digest(by_hand().program)

    def changed(**fields: Any) -> Program:
        return dataclasses.replace(given, **fields)

    label = dataclasses.replace(given.values[0], label="other")
    shape = dataclasses.replace(given.values[0], type=TensorType((16,), DType.FLOAT32))
    budget = dataclasses.replace(given.operations[0], scratch_budget=1)
    late = dataclasses.replace(given.steps[0], due=True)
    others = [
        changed(name="other"),
        changed(period=1),
        changed(spaces=(Space("fast", 128), given.spaces[1])),
        changed(values=(label, *given.values[1:])),
        changed(values=(shape, *given.values[1:])),
        changed(operations=(budget, *given.operations[1:])),
        changed(steps=(late, *given.steps[1:])),
        changed(entry=given.entry[:-1]),
        changed(exit=given.exit[:-1]),
        changed(aliases=()),
        changed(initial={}),
    ]
    assert len({digest, *map(reference_digest, others)}) == len(others) + 1


def test_attributes_that_only_python_finds_equal_are_told_apart() -> None:
    """1, 1.0 and true are three attributes, and two kernels with them are two kernels."""
    type_ = TensorType((2,), DType.FLOAT32)
    build = Builder("words", [Space("arena", 64)])
    for i, given in enumerate((1, 1.0, True)):
        node = Node(Operation(f"op{i}", "Scale", (), ("y0",)), (), (type_,), (), {"by": given})
        value = build.value(f"v{i}", type_, Kind.RESULT, f"v{i}")
        build.exits[value] = None
        build.step(build.operation(node), Phase.FORWARD, [Binding("y0", value, Access.WRITE)])
    made = dataclasses.replace(
        by_hand(), program=build.finish(), offsets=(0, 64, 128), sizes=(192,), holds={},
        certificates=(Certificate(Status.FEASIBLE, None, 192, None, "greedy"),),
    )  # fmt: skip
    again = load_plan(dump_plan(with_digest(made)))
    found = [node.attributes["by"] for node in again.program.operations]
    assert [(type(value), value) for value in found] == [(int, 1), (float, 1.0), (bool, True)]


# ---------------------------------------------------------------------------------------- refusals


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict | list) and value:
        for key, child in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(child, (*path, key))
    else:
        yield path


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return value + "x" if isinstance(value, str) else 1


def resealed(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the digest that it would have."""
    content = {key: value for key, value in document.items() if key != "digest"}
    return {**document, "digest": hashlib.sha256(canonical_json(content)).hexdigest()}


def test_every_change_of_content_is_refused(document: dict[str, Any]) -> None:
    for path in leaves(document):
        other = copy.deepcopy(document)
        target: Any = other
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = changed(target[path[-1]])
        with pytest.raises((PlanError, DocumentError)) as caught:
            load_plan(other)
        assert caught.value.remedy


def test_views_of_whatever_is_taken_never_break(document: dict[str, Any]) -> None:
    """A change with a digest of its own is taken or refused; what is taken can be shown."""
    taken = 0
    for path in leaves({key: document[key] for key in ("steps", "values", "spaces", "entry", "exit")}):
        other = copy.deepcopy(document)
        target: Any = other
        for part in path[:-1]:
            target = target[part]
        target[path[-1]] = changed(target[path[-1]])
        try:
            plan = load_plan(resealed(other))
        except ArenaplanError:
            continue
        taken += 1
        assert len(plan.level_ids()) == plan.duration
        assert sum(1 for _ in plan.buffers()) == len(plan.regions)
    assert taken


def test_words_of_a_wrong_digest(document: dict[str, Any]) -> None:
    document["values"][0][5] += 32
    with pytest.raises(PlanError, match="does not match its digest") as caught:
        load_plan(document)
    assert caught.value.pointer == "/digest"


def test_numbering_that_is_not_by_first_use_is_refused(document: dict[str, Any]) -> None:
    """The same plan has one document, whatever digest another one has."""
    document["kinds"][:2] = document["kinds"][1::-1]
    for value in document["values"]:
        value[2] = {0: 1, 1: 0}.get(value[2], value[2])
    with pytest.raises(PlanError, match="does not match its digest"):
        load_plan(resealed(document))


@pytest.mark.parametrize(
    ("table", "row", "column", "value", "error", "words"),
    [
        ("values", 1, 1, 10**6, PlanError, "values[1][1] names number 1000000 of types"),
        ("values", 1, 3, 10**6, PlanError, "of origins"),
        ("values", 1, 4, 1, PlanError, "number 1 of spaces, which has 1 rows"),
        ("steps", 2, 0, 99, PlanError, "of operations"),
        ("steps", 2, 1, 99, PlanError, "of forms"),
        ("steps", 0, 5, [0, 1, 999, 3], PlanError, "steps[0][5] names number 999 of values"),
        ("steps", 0, 5, [0], PlanError, "steps[0] has 1 values; its form has"),
        ("steps", 3, 3, 1, PlanError, "Levels never fall"),
        ("steps", 3, 4, 2, PlanError, "Levels never fall"),
        ("steps", -1, 3, 10**15, PlanError, "Levels never fall"),
        ("steps", 2, 2, -1, PlanError, "at least 0"),
        ("steps", 2, 2, True, DocumentError, "an integer"),
        ("operations", 0, 2, [None, 10**6], PlanError, "of types"),
        ("operations", 0, 1, 10**6, PlanError, "of kernels"),
        ("entry", 0, 0, 10**6, PlanError, "of values"),
        ("entry", 0, 1, "given", DocumentError, "'carried'"),
        ("forms", 0, 0, "fordward", DocumentError, "Did you mean 'forward'"),
        ("kernels", 0, 1, {"a": {"b": 1}}, DocumentError, "a number, a string"),
        ("kernels", 0, 1, {"a": [1, "b"]}, DocumentError, "a list of numbers"),
        ("kernels", 0, 1, {"a": 2**64}, DocumentError, "64 bits"),
        ("types", 0, 0, [-1], PlanError, "at least 0"),
        ("types", 0, 1, "float8", DocumentError, "'float32'"),
        ("values", 0, 0, "a\u001b[2J", DocumentError, "control characters"),
        ("values", 0, 5, 2**63, PlanError, "at most"),
        ("values", 0, 5, 1.0, DocumentError, "an integer"),
        ("spaces", 0, 4, {"status": "optimal"}, DocumentError, "is missing"),
    ],
)
def test_bad_rows(
    document: dict[str, Any],
    table: str,
    row: int,
    column: int,
    value: Any,
    error: type[Exception],
    words: str,
) -> None:
    document[table][row][column] = value
    with pytest.raises((DocumentError, PlanError)) as caught:
        load_plan(resealed(document))
    assert type(caught.value) is error
    assert words in str(caught.value)
    assert caught.value.remedy
    assert caught.value.pointer.startswith(f"/{table}/{row % len(document[table])}")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ([], "steps[1][0] is missing"),
        ([0, 0, 0, 0, 0, [], 0], "at most 6"),
        ({"operation": 0}, "a list"),
        ("row", "a list"),
        (None, "a list"),
    ],
)
def test_rows_of_another_form(document: dict[str, Any], row: Any, words: str) -> None:
    document["steps"][1] = row
    with pytest.raises(DocumentError) as caught:
        load_plan(document)
    assert words in str(caught.value)
    assert caught.value.pointer.startswith("/steps/1")


def test_a_second_value_of_one_label(made: Plan) -> None:
    second = dataclasses.replace(made.program.values[1], label=made.program.values[0].label)
    values: tuple[Value, ...] = (made.program.values[0], second, *made.program.values[2:])
    wrong = dataclasses.replace(made, program=dataclasses.replace(made.program, values=values))
    with pytest.raises(PlanError, match="is a second value"):
        load_plan(dump_plan(with_digest(wrong)))


@pytest.mark.parametrize(
    "aliases",
    [
        [Alias(4, 4, 1, view=True)],
        [Alias(4, 3, 0, view=True)],
        [Alias(3, 4, 1, view=True), Alias(4, 3, 1, view=True)],
        [Alias(4, 3, 1, view=True), Alias(4, 3, 1, view=True)],
        [Alias(4, 3, 1, view=True), Alias(4, 0, 1, view=False, offset=-64)],
        [Alias(2, 1, 2, view=True)],
    ],
    ids=["itself", "not bound there", "in a circle", "twice", "not views", "in another space"],
)
def test_aliases_that_mean_nothing(aliases: list[Alias]) -> None:
    made = by_hand()
    wrong = dataclasses.replace(made, program=dataclasses.replace(made.program, aliases=tuple(aliases)))
    with pytest.raises(PlanError, match="order of definition") as caught:
        load_plan(dump_plan(with_digest(wrong)))
    assert caught.value.pointer == f"/aliases/{len(aliases) - 1}"


def test_a_view_of_several_values_has_an_alias_for_each() -> None:
    graph = joined()
    made = pipeline.plan(graph, PlanOptions(in_place=True, sub_ranges=True))
    offsets = {alias.offset for alias in made.program.aliases}
    assert min(offsets) < 0
    assert load_plan(dump_plan(made)) == made
    buffers = {buffer.id: buffer for _, buffer in made.buffers()}
    assert [alias.source for alias in buffers["a"].aliases if alias.id == "c"] == ["a"]
    places = {value.id: value.offset for buffer in buffers.values() for value in buffer.values}
    assert (places["c"], places["b"]) == (places["a"], places["a"] + 1024)


def joined() -> TrainableGraph:
    s = Sketch("joined")
    x = s.input("x", 4, 64)
    parts = [s.op("Gemm", [x, s.parameter(f"w{name}", 64, 64)], name) for name in "ab"]
    h = s.op("Gemm", [s.op("Concat", parts, "c", axis=0), s.parameter("v", 64, 1)], "h")
    s.op("MeanSquaredError", [h, s.label("t", 8, 1)], "loss")
    return s.graph()


def test_empty_holds() -> None:
    wrong = dataclasses.replace(by_hand(), holds={0: Lifespan(0, 2)})
    document = parse_json(dump_plan(with_digest(wrong)))
    document["holds"][0] = [0, 3, 3]
    with pytest.raises(PlanError, match="not a lifespan") as caught:
        load_plan(resealed(document))
    assert caught.value.pointer == "/holds/0/2"


def test_missing_and_unknown_fields(document: dict[str, Any]) -> None:
    document["recrods"] = document.pop("records")
    with pytest.raises(DocumentError, match="Did you mean 'records'"):
        load_plan(document)
    del document["recrods"]
    with pytest.raises(DocumentError, match="records is missing") as caught:
        load_plan(document)
    assert caught.value.pointer == "/records"


def test_a_graph_is_not_a_plan() -> None:
    with pytest.raises(DocumentError, match=r"'arenaplan\.graph', not 'arenaplan\.plan'"):
        load_plan(b'{"format": "arenaplan.graph", "version": 1}')
    with pytest.raises(DocumentError, match=r"Version 4 .* not known.*: 2\."):
        load_plan(b'{"format": "arenaplan.plan", "version": 4}')


def test_a_plan_with_entry_points_is_no_plan_of_one_program() -> None:
    with pytest.raises(PlanError, match="has entry points") as caught:
        load_plan(b'{"format": "arenaplan.plan", "version": 3}')
    assert caught.value.path == ("entry_points",)


def test_a_plan_of_version_1_is_refused_with_the_command_that_plans_again() -> None:
    with pytest.raises(PlanError, match="does not hold the program") as caught:
        load_plan(b'{"format": "arenaplan.plan", "version": 1, "arenas": []}')
    assert "arenaplan plan graph.json -o plan.json" in caught.value.remedy
    assert caught.value.path == ("version",)


# -------------------------------------------------------------------------------------------- size


@pytest.mark.parametrize("name", ["mnist", "mobilenet_v2"])
def test_size(name: str) -> None:
    graph = load_graph((EXAMPLES / f"{name}.json").read_bytes())
    made = pipeline.plan(graph, PlanOptions(solver="greedy"))
    assert len(dump_plan(made)) <= 1500 * len(graph.operations)
