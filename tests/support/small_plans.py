"""Small plans for the proof to judge, tens of bytes a tensor, of every pass and of some that will come.

`repeated` and `paged` do by hand what passes will do: run a step again for later readers, and keep a value in
a slow space between two steps. Layouts are first fit, so that places are reused as densely as lives allow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from solver.graph import DType, Initializer, Operation, TensorType, TrainableGraph, TrainingRules
from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.ops.base import Node
from solver.layout import Certificate, Proof, Status
from solver.passes import Aliases, Levels, Order
from solver.pipeline import plan, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import (
    COPY,
    Access,
    Alias,
    Binding,
    EntryKind,
    Phase,
    Program,
    Region,
    Space,
    Step,
    Value,
    regions,
)
from solver.training import Block, BlockOperation, BlockProgram, build_program, derive, explicit_program
from tests.support.graphs import Sketch, chain, residual
from tests.support.sequence_graphs import GATES
from tests.support.term_oracle import TermOracle

__all__ = [
    "Case",
    "cases",
    "lending",
    "longest_rest",
    "mirrored",
    "paged",
    "placed",
    "prepared",
    "repeated",
    "resident",
    "with_parts",
]

#: Small, so that tensors of 8 and 16 bytes meet in part and not only as a whole.
_ALIGNMENT = 8


@dataclass(frozen=True, slots=True)
class Case:
    """A reference program and a right plan of it."""

    name: str
    reference: Program
    plan: Plan


# ------------------------------------------------------------------------------------------- graphs


def _line(dropout: bool = False, **hyper: Any) -> TrainableGraph:
    """Linear layers with an activation of its own, a view, and dropout if asked for."""
    s = Sketch("line")
    h = s.op("Gemm", [s.input("x", 2, 2), s.parameter("w1", 2, 2)], "a", "fc1")
    h = s.op("Relu", [h], "b", "relu")
    h = s.op("Dropout", [h], "c", "drop", ratio=0.5) if dropout else h
    h = s.op("Reshape", [h, s.integers("flat", 1, 4)], "d", "reshape")
    h = s.op("Gemm", [h, s.parameter("w2", 4, 2), s.parameter("c2", 2)], "e", "fc2")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    return s.graph(**hyper)


def _sums(**hyper: Any) -> TrainableGraph:
    """A sum whose derivative is a copy, one that broadcasts, and views of one value side by side."""
    s = Sketch("sums")
    a = s.op("Gemm", [s.input("x", 1, 2), s.parameter("w1", 2, 2)], "a", "fc1")
    b = s.op("Gemm", [a, s.parameter("w2", 2, 2)], "b", "fc2")
    c = s.op("Add", [a, b], "c", "join")
    d = s.op("Flatten", [c], "d", "flat")
    e = s.op("Mul", [d, d], "e", "square")
    f = s.op("Sub", [e, s.op("Flatten", [b], "g", "flat2")], "f", "minus")
    f = s.op("Add", [f, s.parameter("shift", 2)], "h", "shifted")
    s.op("MeanSquaredError", [f, s.label("t", 1, 2)], "loss", "mse")
    return s.graph(outputs=("c",), **hyper)


def _pieces(**hyper: Any) -> TrainableGraph:
    """Cut out, taken apart and put together along the first axis, with views of views."""
    s = Sketch("pieces")
    x = s.input("x", 4, 2)
    a = s.op("Gemm", [x, s.parameter("w1", 2, 2)], "a", "fc1")
    b = s.op("Slice", [a, s.integers("from", 1), s.integers("to", 3)], "b", "cut")
    s.operations.append(Operation("split", "Split", ("a",), ("c", "d"), {"axis": 0}))
    e = s.op("Tanh", ["d"], "e", "tanh")
    f = s.op("Concat", [b, "c", e], "f", "join", axis=0)
    g = s.op("Slice", [f, s.integers("g from", 1), s.integers("g to", 6)], "g", "inner")
    h = s.op("Gemm", [g, s.parameter("w2", 2, 2)], "h", "fc2")
    i = s.op("Gemm", [x, s.parameter("w3", 2, 2)], "i", "fc3")
    j = s.op("Concat", [h, i], "j", "outer", axis=0)
    s.op("MeanSquaredError", [j, s.label("t", 9, 2)], "loss", "mse")
    return s.graph(**hyper)


def _joined(**hyper: Any) -> TrainableGraph:
    """Two branches that are put together, and taken apart again."""
    s = Sketch("joined")
    x = s.input("x", 2, 2)
    a = s.op("Gemm", [x, s.parameter("w1", 2, 2)], "a", "fc1")
    b = s.op("Gemm", [x, s.parameter("w2", 2, 2)], "b", "fc2")
    c = s.op("Concat", [a, b], "c", "join", axis=0)
    d = s.op("Tanh", [c], "d", "tanh")
    s.operations.append(Operation("split", "Split", (d,), ("e", "f"), {"axis": 0}))
    g = s.op("Gemm", ["e", s.parameter("w3", 2, 2)], "g", "fc3")
    h = s.op("Add", [g, "f"], "h", "sum")
    s.op("MeanSquaredError", [h, s.label("t", 2, 2)], "loss", "mse")
    return s.graph(**hyper)


def _normalised(mode: int, **hyper: Any) -> TrainableGraph:
    s = Sketch("normalised")
    ones = Initializer("ones")
    h = s.op("Conv", [s.input("x", 2, 1, 2, 1), s.parameter("k", 2, 1, 1, 1)], "a", "conv")
    inputs = [h, s.parameter("scale", 2, initializer=ones), s.parameter("shift", 2)]
    inputs += [s.state("mean", 2), s.state("variance", 2, initializer=ones)]
    h = s.op("BatchNormalization", inputs, "b", "norm", training_mode=mode)
    h = s.op("Relu", [h], "c", "relu")
    h = s.op("ReduceMean", [h], "d", "pool", axes=(2, 3), keepdims=0)
    h = s.op("Gemm", [h, s.parameter("w", 2, 1)], "e", "fc")
    s.op("MeanSquaredError", [h, s.label("t", 2, 1)], "loss", "mse")
    return s.graph(**hyper)


def _image(**hyper: Any) -> TrainableGraph:
    s = Sketch("image")
    h = s.op("Conv", [s.input("x", 1, 1, 3, 3), s.parameter("k", 1, 1, 2, 2)], "a", "conv", activation="Relu")
    h = s.op("MaxPool", [h], "b", "pool", kernel_shape=(1, 2))
    h = s.op("Reshape", [h, s.integers("flat", 1, -1)], "c", "flatten")
    h = s.op("Gemm", [h, s.parameter("w", 2, 2)], "d", "fc")
    s.op("CategoricalCrossEntropy", [h, s.label("t", 1, 2)], "loss", "cce", from_logits=1)
    return s.graph(outputs=("d",), **hyper)


def _recurrent(type_: str, **hyper: Any) -> TrainableGraph:
    s, gates = Sketch(type_), GATES[type_]
    x = s.input("x", 2, 1, 1)
    weights = [s.parameter("w", 1, gates, 1), s.parameter("r", 1, gates, 1), s.parameter("b", 1, 2 * gates)]
    outputs = ("all",)
    s.operations.append(Operation("rnn", type_, (x, *weights), outputs, {}))
    h = s.op("Reshape", ["all", s.integers("flat", 1, 2)], "h", "flatten")
    s.op("MeanSquaredError", [h, s.label("t", 1, 2)], "loss", "mse")
    return s.graph(**hyper)


# ------------------------------------------------------------------------------------------ programs


def prepared(
    reference: Program,
    *,
    update: str = "immediate",
    parallelism: int = 1,
    in_place: bool = False,
    sub_ranges: bool = False,
) -> Program:
    """The reference program behind the passes."""
    program = Order(update=update).run(reference)
    program = Levels(parallelism=parallelism, update=update).run(program)
    return Aliases(in_place=in_place, sub_ranges=sub_ranges).run(program)


def _sequential(program: Program, steps: Sequence[Step], **changes: Any) -> Program:
    """The program with other steps, one after the other; copies keep the levels that they last."""
    timed = tuple(replace(step, level=t, until=t + step.until - step.level) for t, step in enumerate(steps))
    return replace(program, steps=timed, **changes)


def _rebound(step: Step, new: Mapping[int, int]) -> Step:
    return replace(step, bindings=tuple(replace(b, value=new.get(b.value, b.value)) for b in step.bindings))


def repeated(program: Program, t: int, before: int) -> Program:
    """Step `t` runs again in front of step `before`, which reads what it writes then, as all later steps do.

    What the step updates is scratch the second time: it must not change twice.
    """
    values, new, again = list(program.values), dict[int, int](), []
    for binding in program.steps[t].bindings:
        if binding.access is Access.READ:
            again.append(binding)
            continue
        value = values[binding.value]
        values.append(replace(value, label=f"{value.label}@again{len(values)}"))
        access = Access.SCRATCH if binding.access is Access.UPDATE else binding.access
        again.append(Binding(binding.slot, len(values) - 1, access))
        if access is Access.WRITE:
            new[binding.value] = len(values) - 1
    repeat = replace(program.steps[t], bindings=tuple(again))
    later = [_rebound(step, new) for step in program.steps[before:]]
    steps = [*program.steps[:before], repeat, *later]
    exits = tuple(replace(exit_, value=new.get(exit_.value, exit_.value)) for exit_ in program.exit)
    for exit_ in program.exit:
        _rename(values, exit_.value, new.get(exit_.value, exit_.value))
    return _sequential(program, steps, values=tuple(values), exit=exits)


def _rename(values: list[Value], one: int, other: int) -> None:
    """Exchange two labels: callers read and feed by the name of a value, wherever it lies."""
    labels = values[one].label, values[other].label
    values[other], values[one] = (
        replace(values[i], label=label) for i, label in zip((other, one), labels, strict=True)
    )


def _slow(program: Program, value: int) -> tuple[Program, int, int]:
    """The program with a slow space, with a place for the value in it, and the number of the copy kernel."""
    slow = next((k for k, space in enumerate(program.spaces) if not space.addressable), len(program.spaces))
    spaces = program.spaces
    if slow == len(spaces):
        spaces = (*spaces, Space("flash", 4, addressable=False))
    type_ = program.values[value].type
    label = f"{program.values[value].label}@flash{len(program.values)}"
    there = replace(program.values[value], label=label, space=slow)
    node = Node(
        Operation(f"copy{len(program.values)}", COPY, ("x0",), ("y0",)), (type_,), (type_,), (None,), {}
    )
    program = replace(
        program, spaces=spaces, values=(*program.values, there), operations=(*program.operations, node)
    )
    return program, len(program.values) - 1, len(program.operations) - 1


def _copy(operation: int, source: int, target: int, lasts: int = 0) -> Step:
    bindings = (Binding("x0", source, Access.READ), Binding("y0", target, Access.WRITE))
    return Step(operation, Phase.FORWARD, bindings, None, 0, lasts)


def paged(program: Program, value: int, out: int, back: int, ahead: int = 0) -> Program:
    """The value leaves for a slow space behind step `out` and is back in front of step `back`.

    It comes back in other bytes, as a value of its own. Both copies take `ahead` levels more than one.
    """
    program, there, operation = _slow(program, value)
    back_again = replace(program.values[value], label=f"{program.values[value].label}@back{there}")
    program = replace(program, values=(*program.values, back_again))
    new = {value: len(program.values) - 1}
    steps = [*program.steps[: out + 1], _copy(operation, value, there, ahead)]
    steps += program.steps[out + 1 : back - ahead]
    steps += [_copy(operation, there, new[value], ahead), *program.steps[back - ahead : back]]
    steps += [_rebound(step, new) for step in program.steps[back:]]
    return _sequential(program, steps)


def resident(program: Program, value: int) -> Program:
    """A carried or constant value stays in a slow space and comes in for the iteration.

    If it is carried, its new contents go out at the end.
    """
    program, there, operation = _slow(program, value)
    entry = tuple(replace(e, value=there) if e.value == value else e for e in program.entry)
    exits = tuple(replace(e, value=there) if e.value == value else e for e in program.exit)
    initial = {there if v == value else v: given for v, given in program.initial.items()}
    steps = [_copy(operation, there, value), *program.steps]
    if any(e.value == there for e in exits):
        steps.append(_copy(operation, value, there))
    values = list(program.values)
    _rename(values, value, there)
    return _sequential(program, steps, values=tuple(values), entry=entry, exit=exits, initial=initial)


def lending(program: Program, value: int, out: int, back: int, ahead: int = 0) -> Program:
    """A carried value leaves behind step `out` and comes back into its own bytes in front of step `back`.

    No step between the two touches it; both copies take `ahead` levels more than one.
    """
    program, there, operation = _slow(program, value)
    steps = [*program.steps[: out + 1], _copy(operation, value, there, ahead)]
    steps += program.steps[out + 1 : back - ahead]
    steps += [_copy(operation, there, value, ahead), *program.steps[back - ahead :]]
    return _sequential(program, steps)


def longest_rest(program: Program, value: int) -> tuple[int, int]:
    """The two steps, one behind the other among those that touch a value, that are furthest apart."""
    touched = [t for t, step in enumerate(program.steps) if any(b.value == value for b in step.bindings)]
    return max(pairwise(touched), key=lambda pair: pair[1] - pair[0])


def mirrored(program: Program, value: int) -> Program:
    """A carried value is in two spaces at the start, and at the end, when it has gone out again."""
    program, there, operation = _slow(program, value)
    more = tuple(replace(e, value=there) for e in program.entry if e.value == value)
    exits = tuple(replace(e, value=there) for e in program.exit if e.value == value)
    initial = {**program.initial}
    if value in initial:
        initial[there] = initial[value]
    return _sequential(
        program,
        [*program.steps, _copy(operation, value, there)],
        entry=(*program.entry, *more),
        exit=(*program.exit, *exits),
        initial=initial,
    )


def with_parts(reference: Program, program: Program) -> Program:
    """The program with every view of parts that leaves the plan right, by the word of the oracle."""
    judge = TermOracle(reference)
    for t, step in enumerate(program.steps):
        node, slots = program.operations[step.operation], {b.slot: b.value for b in step.bindings}
        if step.phase is Phase.EXPLICIT or node.operation.type not in OPERATOR_NAMES:
            continue
        parts = lookup(node.operation.type).parts(node, step.phase is Phase.FORWARD)
        for target in sorted({part.target for part in parts} & slots.keys()):
            of = [part for part in parts if part.target == target and part.source in slots]
            aliases = (
                Alias(slots[target], slots[part.source], t, view=True, offset=part.start - part.target_start)
                for part in of
            )
            more = replace(program, aliases=(*program.aliases, *aliases))
            if judge.judge(placed(more)) is None:
                program = more
    return program


# ------------------------------------------------------------------------------------------- layouts


def placed(program: Program) -> Plan:
    """A plan with a first-fit layout, the largest regions first, and the certificate that fits it.

    It is for as many steps at the same time as the program has on a level.
    """
    found = regions(program)
    offsets, sizes, certificates = [0] * len(program.values), [], []
    for space in range(len(program.spaces)):
        inside = [region for region in found if region.space == space]
        places = _first_fit(inside)
        for region, offset in zip(inside, places, strict=True):
            for member, shift in zip(region.members, region.offsets, strict=True):
                offsets[member] = offset + shift
        sizes.append(max((o + r.size for o, r in zip(places, inside, strict=True)), default=0))
        certificates.append(_certificate(inside, sizes[-1]))
    return Plan(
        graph=program.name,
        graph_digest="",
        reference_digest="",
        options=PlanOptions(parallelism=max(Counter(step.level for step in program.steps).values())),
        program=program,
        offsets=tuple(offsets),
        sizes=tuple(sizes),
        certificates=tuple(certificates),
        deterministic=True,
    )


def _first_fit(inside: Sequence[Region]) -> list[int]:
    places: dict[int, int] = {}
    for i in sorted(range(len(inside)), key=lambda i: -inside[i].size):
        region, at = inside[i], 0
        taken = sorted(
            (places[j], places[j] + inside[j].size)
            for j in places
            if any(a.overlaps(b) for a in inside[j].spans for b in region.spans)
        )
        for start, end in taken:
            if at + region.size <= start:
                break
            at = max(at, end)
        places[i] = at
    return [places[i] for i in range(len(inside))]


def _certificate(inside: Sequence[Region], size: int) -> Certificate:
    end = max((region.lifespan.end for region in inside), default=1)
    held = [(span, region.size) for region in inside for span in region.spans]
    loads = [sum(size for span, size in held if span.start <= t < span.end) for t in range(end)]
    bound = max(loads)
    if bound == size:
        return Certificate(Status.OPTIMAL, Proof.MAX_LOAD, bound, loads.index(bound), "first-fit")
    return Certificate(Status.FEASIBLE, None, bound, None, "first-fit")


# --------------------------------------------------------------------------------------------- cases

_MICRO = TrainingRules(accumulate=2)
_CAREFUL = TrainingRules(accumulate=2, clip_global_norm=0.1, loss_scale=8.0, skip_non_finite=True)
_CLIPPED = TrainingRules(clip_global_norm=0.1)

#: Graphs by name; every one is planned several ways.
_GRAPHS: Mapping[str, Callable[[], TrainableGraph]] = {
    "chain": lambda: chain((2, 2, 1), 1),
    "frozen layers": lambda: chain((2, 2, 2, 1), 1, trainable=["w3", "b3"]),
    "adam": lambda: chain((2, 1), 2, optimizer="Adam"),
    "branches and tied weights": lambda: residual(1, 2, 2, optimizer="SGD"),
    "momentum": lambda: residual(1, 1, 2, optimizer="SGD", momentum=0.9),
    "clipped": lambda: chain((2, 2, 1), 1, training=_CLIPPED),
    "micro-batches": lambda: chain((2, 2, 1), 1, training=_MICRO),
    "careful": lambda: _line(training=_CAREFUL, optimizer="SGD", momentum=0.9),
    "views": _line,
    "dropout": lambda: _line(dropout=True),
    "sums": _sums,
    "batch normalised": lambda: _normalised(1),
    "frozen norm": lambda: _normalised(0, optimizer="Adam"),
    "normalised in micro-batches": lambda: _normalised(1, training=_MICRO),
    "pieces": _pieces,
    "joined": _joined,
    "image": _image,
    "lstm": lambda: _recurrent("LSTM"),
    "gru": lambda: _recurrent("GRU"),
}

_WAYS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "in place": {"in_place": True},
    "in place, updates at the end": {"in_place": True, "update": "end"},
    "in place, sub-ranges": {"in_place": True, "sub_ranges": True},
    "in place, two at a time": {"in_place": True, "parallelism": 2},
    "three at a time": {"parallelism": 3},
}


@cache
def cases() -> tuple[Case, ...]:
    """Every graph in every way, explicit programs, and what is repeated and paged by hand; made once."""
    return tuple(_cases())


def _cases() -> Iterator[Case]:
    for name, graph in _GRAPHS.items():
        reference = _dense(derive(graph()))
        for way, options in _WAYS.items():
            yield Case(f"{name}, {way}", reference, placed(prepared(reference, **options)))
    for parallelism in (1, 2):
        reference = _dense(explicit_program(_blocks()))
        made = placed(Levels(parallelism=parallelism).run(reference))
        yield Case(f"blocks, {parallelism} at a time", reference, made)
    yield from _by_hand()
    yield from _of_targets()


def _of_targets() -> Iterator[Case]:
    """Plans as they are made, for every target; some have several spaces, and hold values for longer."""
    for target in ("reference", "onert", "nntrainer", "singa"):
        for name in ("chain", "frozen layers", "image"):
            options = PlanOptions(target=target, alignment=8, in_place=target == "reference")
            graph = _GRAPHS[name]()
            yield Case(f"{name} for {target}", reference_of(graph, options), plan(graph, options))


def _dense(program: Program) -> Program:
    return replace(program, spaces=tuple(replace(space, alignment=_ALIGNMENT) for space in program.spaces))


def _blocks() -> BlockProgram:
    def block(name: str, size: int, *, fed: bool = False, kept: bool = False) -> Block:
        return Block(name, TensorType((size,), DType.UINT8), fed, kept)

    blocks = [
        block("x", 8, fed=True),
        block("w", 6),
        block("c", 4),
        block("a", 8),
        block("b", 5),
        block("d", 8),
        block("out", 8, kept=True),
    ]
    operations = [
        BlockOperation("first", ("x", "w"), ("a",), "mul", pure=True),
        BlockOperation("second", ("x", "c"), ("b",), "mul"),
        BlockOperation("third", ("a", "b"), ("d",), "add"),
        BlockOperation("again", ("d",), ("a",), "relu"),
        BlockOperation("more", ("a", "b"), ("b",), "axpy"),
        BlockOperation("fourth", ("a", "b"), ("out",), "add"),
        BlockOperation("print", ("out", "c"), (), "print"),
        BlockOperation("update", ("w", "b"), ("w",), "axpy"),
    ]
    return build_program("blocks", blocks, operations)


def _by_hand() -> Iterator[Case]:
    """Repeated steps keep their addresses modulo 64, which an alignment of 64 sees to."""
    for name in ("views", "batch normalised", "dropout", "lstm", "careful"):
        reference = derive(_GRAPHS[name]())
        for t in range(3):
            for in_place in (False, True):
                again = repeated(reference, t, _first_backward(reference))
                if in_place:
                    again = Aliases(in_place=True).run(again)
                yield Case(f"{name}, step {t} again, in place: {in_place}", reference, placed(again))
    reference = _dense(derive(_GRAPHS["branches and tied weights"]()))
    value = next(b.value for b in reference.steps[0].bindings if b.access is Access.WRITE)
    backward = range(_first_backward(reference), len(reference.steps))
    back = next(t for t in backward if _reads(reference.steps[t], value))
    for ahead in (0, 1, 2):
        program = paged(reference, value, 2, back, ahead)
        yield Case(f"paged, {ahead} ahead", reference, placed(program))
    weights = [e.value for e in reference.entry if e.kind is EntryKind.CARRIED]
    yield Case("weight in flash", reference, placed(resident(reference, weights[0])))
    yield Case("weight in both", reference, placed(mirrored(reference, weights[0])))
    yield Case("weights in flash", reference, placed(resident(resident(reference, weights[0]), weights[1])))
    wide = derive(_GRAPHS["branches and tied weights"]())
    both = paged(repeated(wide, 1, back), value, 3, back + 1, 1)
    yield Case("paged and repeated", wide, placed(both))
    reference = _dense(derive(_GRAPHS["careful"]()))
    carried = [e.value for e in reference.entry if e.kind is EntryKind.CARRIED]
    for k in (0, 2, 4):
        yield Case(f"micro-batches, value {k} in flash", reference, placed(resident(reference, carried[k])))
    reference = explicit_program(_blocks())
    yield Case("block again", reference, placed(repeated(reference, 0, 2)))
    reference = _dense(reference)
    yield Case("block paged", reference, placed(paged(reference, 4, 1, 4, 1)))
    for name in ("pieces", "joined"):
        for micro in (False, True):
            make = {"pieces": _pieces, "joined": _joined}[name]
            graph = make(training=_MICRO) if micro else make()
            reference = _dense(derive(graph))
            for parallelism in (1, 2):
                ordered = prepared(reference, parallelism=parallelism)
                title = f"{name} where they lie, {parallelism} at a time, micro-batches: {micro}"
                yield Case(title, reference, placed(with_parts(reference, ordered)))
            value = reference.by_label["a"]
            out, back = longest_rest(reference, value)
            yield Case(
                f"{name} where they lie, paged, micro-batches: {micro}",
                reference,
                placed(with_parts(reference, paged(reference, value, out, back))),
            )
    for name in ("branches and tied weights", "micro-batches", "momentum"):
        reference = _dense(derive(_GRAPHS[name]()))
        staying = [e.value for e in reference.entry if e.kind is not EntryKind.FED]
        for value in staying[:2]:
            out, back = longest_rest(reference, value)
            for ahead in (0, 1):
                program = lending(reference, value, out, back, ahead)
                yield Case(f"{name}, value {value} lent, {ahead} ahead", reference, placed(program))


def _first_backward(program: Program) -> int:
    return next(t for t, step in enumerate(program.steps) if step.phase is not Phase.FORWARD)


def _reads(step: Step, value: int) -> bool:
    return any(b.value == value and b.access.reads for b in step.bindings)
