"""Training in place is bit-identical to training in which every operand has memory of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.errors import InternalError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.memory import in_spaces, on_their_own
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import Initializer, TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Alias, Program
from tests.support.graphs import Sketch, convolutional, residual
from tests.support.one_operation import allocated
from tests.support.proofs import violations

IN_PLACE = PlanOptions(in_place=True)


def test_values_that_share_are_bound_to_the_same_bytes() -> None:
    made = plan(convolutional(), IN_PLACE)
    memory, alone = in_spaces(made), on_their_own(made.program, [0] * len(made.program.values))
    assert made.program.aliases
    for alias in made.program.aliases:
        assert np.shares_memory(memory.raw(alias.source), memory.raw(alias.value))
        assert not np.shares_memory(alone.raw(alias.source), alone.raw(alias.value))


def test_poison_comes_when_the_last_value_of_a_region_is_dead() -> None:
    """After an iteration whatever is not kept is poison, unless something else was put there later."""
    graph = convolutional()
    made = plan(graph, IN_PLACE)
    memory = in_spaces(made)
    runner = Runner(made.program, memory, {}, poison=True)
    feed(graph, runner, synthetic_batch(graph, 0, 1))
    runner.run()
    buffers = [buffer for _, buffer in made.buffers()]
    for buffer in buffers:
        later = [o for o in buffers if o.lifespan.start >= buffer.lifespan.end]
        covered = any(o.offset < buffer.end and buffer.offset < o.end for o in later)
        if not buffer.lifetime.outlives_iteration and not covered:
            assert (memory.raw(made.program.by_label[buffer.id]) == 0xFF).all()


def test_aliases_that_are_left_out_are_overlaps() -> None:
    graph = residual()
    made = plan(graph, IN_PLACE)
    forged = replace(made, program=replace(made.program, aliases=()))
    assert "overlap" in {violation.rule for violation in violations(graph, forged)}
    with pytest.raises(PlanError, match="The plan is wrong"):
        Trainer(graph, forged)


def test_a_step_in_place_allocates_nothing_of_tensor_size() -> None:
    """NumPy copies operands that overlap unless they are the same memory, element by element."""
    s = Sketch("large")
    h = s.op("Gemm", [s.input("x", 1024, 64), s.parameter("w", 64, 64)], "h")
    ones = Initializer("ones")
    h = s.op("LayerNormalization", [h, s.parameter("scale", 64, initializer=ones), s.parameter("b", 64)], "n")
    h = s.op("Softmax", [s.op("Relu", [h], "r")], "p", axis=0)
    h = s.op("Tanh", [s.op("Sub", [h, s.op("Gemm", ["x", s.parameter("v", 64, 64)], "g")], "d")], "a")
    h = s.op("Flatten", [s.op("Reshape", [h, s.integers("shape", 1024, 8, 8)], "q")], "f")
    s.op("MeanSquaredError", [h, s.label("t", 1024, 64)], "loss")
    graph = s.graph()
    made = plan(graph, IN_PLACE)
    assert sum(len(buffer.aliases) for _, buffer in made.buffers()) >= 8
    trainer, batch = Trainer(graph, made), synthetic_batch(graph, 0, 1)
    assert allocated(lambda: trainer.step(batch)) < 64 * 1024 < 1024 * 64 * 4


def gated() -> TrainableGraph:
    s = Sketch("gated")
    z = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "z")
    s.op("Gelu", [z], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 6)], "loss")
    return s.graph()


def careless(made: Plan) -> Plan:
    """The plan with Gelu's result over its input, which the kernel of the forward step could do."""
    program = made.program
    y, z = program.by_label["y"], program.by_label["z"]
    t = program.step_labels.index("y.op:forward")
    offsets = list(made.offsets)
    offsets[y] = offsets[z]
    return replace(
        made,
        program=replace(program, aliases=(*program.aliases, Alias(y, z, t, view=False))),
        offsets=tuple(offsets),
    )


def test_the_trap_is_closed_by_the_proof() -> None:
    """Gelu's derivative reads X. A planner that forgets it does not get its plan past the proof."""
    graph = gated()
    wrong = careless(plan(graph, IN_PLACE))
    assert wrong.program.aliases
    (violation, *_) = violations(graph, wrong)
    assert violation.rule in ("undefined", "value")


def test_the_trap_is_seen_in_training() -> None:
    graph = gated()
    wrong = careless(plan(graph, IN_PLACE))
    assert not validate(graph, wrong, steps=1).steps
    report = validate(graph, wrong, steps=1, run_wrong_plans=True)
    assert report.steps[0].differing == ("w",)


def test_a_pass_that_breaks_a_plan_is_a_bug_of_the_planner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every result of a pass goes through the proof before it leaves the planner."""

    def last_first(self: object, program: Program) -> Program:
        order = list(range(len(program.steps)))
        return program.reordered([order[-1], *order[:-1]])

    monkeypatch.setattr("solver.passes.Order.run", last_first)
    with pytest.raises(InternalError, match="The plan breaks rule"):
        plan(gated())


def test_feeding_a_view_of_the_input() -> None:
    """The caller writes the input; what views it needs no copy and is not poisoned while it is read."""
    s = Sketch("view")
    x = s.op("Flatten", [s.input("x", 3, 2, 2)], "flat")
    s.op("MeanSquaredError", [s.op("Gemm", [x, s.parameter("w", 4, 4)], "y"), s.label("t", 3, 4)], "loss")
    graph = s.graph()
    made = plan(graph, IN_PLACE)
    runner = Runner(made.program, in_spaces(made), {})
    batch = synthetic_batch(graph, 0, 1)
    feed(graph, runner, batch)
    assert (runner.value("flat") == batch["x"].reshape(3, 4)).all()
    assert validate(graph, made, steps=3).identical
