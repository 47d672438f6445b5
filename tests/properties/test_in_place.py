"""Any graph planned in place trains to the same bits, in no more memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from solver.executor import validate
from solver.graph import Initializer, Operation, TensorType, TrainableGraph
from solver.pipeline import plan, reference_of
from solver.plan import PlanOptions
from solver.program import Access, Program
from solver.verify import check_labels
from tests.support.damaged import with_step_changed
from tests.support.derived import rebound
from tests.support.graphs import Sketch
from tests.support.proofs import violations

#: Of the same shape as their operand; half of them read their input in the backward step.
_UNARY: Sequence[tuple[str, dict[str, Any]]] = (
    ("Relu", {}), ("Tanh", {}), ("Sigmoid", {}), ("HardSigmoid", {}), ("Gelu", {}), ("Swish", {}),
    ("HardSwish", {}), ("Elu", {}), ("LeakyRelu", {"alpha": -0.5}), ("Neg", {}), ("Softmax", {}),
    ("Dropout", {"ratio": 0.25}), ("Abs", {}), ("Erf", {}),
)  # fmt: skip
_BINARY = ("Add", "Sub", "Mul", "Add")
_ACTIVATIONS = ("None", "None", "Relu", "Tanh")


class _Growing:
    """A sketch that grows by one random operation at a time; every value has 12 elements an example."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.batch = draw(st.integers(1, 3))
        self.s = Sketch("random")
        self.weights: list[str] = []
        self.flat = [self.gemm(self.s.input("x", self.batch, 12))]
        self.unread = [*self.flat]

    def name(self) -> str:
        return f"y{len(self.s.operations)}"

    def some(self) -> str:
        found = self.draw(st.sampled_from(self.flat))
        self.unread = [name for name in self.unread if name != found]
        return found

    def add(self, name: str) -> str:
        self.flat.append(name)
        self.unread.append(name)
        return name

    def gemm(self, x: str) -> str:
        if not self.weights or self.draw(st.booleans()):
            weight = self.s.parameter(f"w{len(self.weights)}", 12, 12)
            self.weights.append(weight)
        else:
            weight = self.draw(st.sampled_from(self.weights))
        return self.s.op("Gemm", [x, weight], self.name())

    def unary(self, x: str) -> str:
        type_, attributes = self.draw(st.sampled_from(_UNARY))
        return self.s.op(type_, [x], self.name(), **attributes)

    def binary(self, x: str) -> str:
        activation = self.draw(st.sampled_from(_ACTIVATIONS))
        type_ = self.draw(st.sampled_from(_BINARY))
        return self.s.op(type_, [x, self.some()], self.name(), activation=activation)

    def viewed(self, x: str) -> str:
        """To three axes, perhaps through something, and back."""
        shape = self.s.integers(f"shape{len(self.s.operations)}", self.batch, 3, 4)
        y = self.s.op("Reshape", [x, shape], self.name())
        if self.draw(st.booleans()):
            y = self.unary(y)
        return self.s.op("Flatten", [y], self.name())

    def pieces(self, x: str) -> str:
        """In one axis, cut into three, perhaps through something, and joined in any order."""
        at = len(self.s.operations)
        flat = self.s.op("Reshape", [x, self.s.integers(f"flat{at}", -1)], self.name())
        cut = [f"part{at}_{k}" for k in range(3)]
        self.s.operations.append(Operation(f"split{at}", "Split", (flat,), tuple(cut), {"axis": 0}))
        cut = [self.unary(part) if self.draw(st.booleans()) else part for part in cut]
        joined = self.s.op("Concat", self.draw(st.permutations(cut)), self.name(), axis=0)
        return self.s.op("Reshape", [joined, self.s.integers(f"back{at}", self.batch, 12)], self.name())

    def normalised(self, x: str) -> str:
        at = len(self.s.operations)
        scale = self.s.parameter(f"scale{at}", 12, initializer=Initializer("ones"))
        return self.s.op("LayerNormalization", [x, scale, self.s.parameter(f"shift{at}", 12)], self.name())

    def step(self) -> None:
        kinds: list[Callable[[str], str]] = [
            self.gemm, self.unary, self.unary, self.binary, self.binary, self.viewed, self.normalised,
            self.pieces,
        ]  # fmt: skip
        self.add(self.draw(st.sampled_from(kinds))(self.some()))

    def graph(self) -> TrainableGraph:
        total, *rest = self.unread
        for name in rest:
            total = self.s.op("Add", [total, name], self.name())
        outputs = self.draw(st.lists(st.sampled_from(self.flat), max_size=2, unique=True))
        self.s.op("MeanSquaredError", [total, self.s.label("t", self.batch, 12)], "loss")
        momentum = self.draw(st.sampled_from([0.0, 0.9]))
        return self.s.graph(trainable=self.trainable(), outputs=tuple(outputs), momentum=momentum)

    def trainable(self) -> Any:
        """All, or the last few: the front is then run forward only."""
        return self.draw(st.sampled_from(["all", "all", 1, 2]))


@st.composite
def graphs(draw: st.DrawFn) -> TrainableGraph:
    growing = _Growing(draw)
    for _ in range(draw(st.integers(1, 8))):
        growing.step()
    return growing.graph()


@given(graphs(), st.data())
def test_a_read_of_what_was_overwritten_is_always_found(graph: TrainableGraph, data: st.DataObject) -> None:
    """Any value that lost its bytes, read by any later step that reads one of its type.

    What is accepted finds the bits that it should find: a view of the same contents lies there. So does what
    is refused for its bound or its figures alone, as the value then lives for longer. A plan in which a value
    now has the name of another one is refused for that.
    """
    made = plan(graph, PlanOptions(in_place=True))
    assume(lost := list(_overwritten(made.program)))
    value, overwritten = data.draw(st.sampled_from(lost))
    assume(later := list(_readers(made.program, made.program.values[value].type, overwritten)))
    t, slot = data.draw(st.sampled_from(later))
    label = made.program.step_labels[t]
    wrong = with_step_changed(made, label, lambda step: rebound(step, slot, value=value))
    found = {violation.rule for violation in violations(graph, wrong)}
    if found <= {"bound", "record"}:
        if any(check_labels(reference_of(graph, wrong.options), wrong)):
            return
        report = validate(graph, wrong, steps=2, run_wrong_plans=True)
        assert [step.identical for step in report.steps] == [True, True]
    else:
        assert found <= {"undefined", "value", "overlap", "alias"}


@given(graphs(), st.sampled_from([1, 2]))
def test_parts_where_they_lie_train_to_the_same_bits_in_no_more_memory(
    graph: TrainableGraph, parallelism: int
) -> None:
    options = PlanOptions(in_place=True, alignment=16, parallelism=parallelism)
    whole, parts = plan(graph, options), plan(graph, replace(options, sub_ranges=True))
    assert parts.lower_bound <= whole.lower_bound
    assert validate(graph, parts, steps=2).identical


def _overwritten(program: Program) -> Iterator[tuple[int, int]]:
    """A value, and the step that defines another one in its bytes."""
    for alias in program.aliases:
        if not alias.view:
            yield alias.source, alias.step


def _readers(program: Program, type_: TensorType, behind: int) -> Iterator[tuple[int, str]]:
    """Step and slot of every read of a value of this type behind a step."""
    for t in range(behind + 1, len(program.steps)):
        for binding in program.steps[t].bindings:
            if binding.access is Access.READ and program.values[binding.value].type == type_:
                yield t, binding.slot


@given(graphs(), st.sampled_from([1, 1, 1, 3]), st.sampled_from(["immediate", "end"]))
def test_training_in_place_is_bit_identical_and_takes_no_more_memory(
    graph: TrainableGraph, parallelism: int, update: str
) -> None:
    made = plan(graph, PlanOptions(in_place=True, parallelism=parallelism, update=update))
    assert violations(graph, made) == ()
    assert validate(graph, made, steps=2).identical
    assert made.lower_bound <= plan(graph, PlanOptions(parallelism=parallelism, update=update)).lower_bound


@given(graphs())
def test_most_graphs_have_something_to_share(graph: TrainableGraph) -> None:
    """Otherwise the property above would hold for want of anything to go wrong."""
    kinds = {operation.type for operation in graph.operations}
    if kinds & {"Flatten", "Reshape"}:
        assert plan(graph, PlanOptions(in_place=True)).program.aliases


@given(graphs(), st.booleans())
def test_every_graph_can_be_planned_for_singa(graph: TrainableGraph, in_place: bool) -> None:
    made = plan(graph, PlanOptions(target="singa", in_place=in_place))
    assert violations(graph, made) == ()
