"""Training in place is bit-identical to training in which every operand has memory of its own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.errors import InternalError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.memory import in_arenas, on_their_own
from solver.executor.run import Runner
from solver.executor.trainer import feed, program_of
from solver.graph import DType, Graph, Initializer, TrainingRules
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions, verify
from solver.schedule import in_place
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.one_operation import allocated
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent

IN_PLACE = PlanOptions(in_place=True)

GRAPHS = {
    "chain": chain((7, 6, 5), optimizer="SGD", momentum=0.9),
    "residual": residual(),
    "convolutional": convolutional(),
    "convolutional-nchw": convolutional(layout="NCHW"),
    "elementwise": elementwise(DType.FLOAT32),
    "attention": attention(DType.FLOAT32),
    "recurrent": recurrent(DType.FLOAT32),
    "normalised": convolved("NCHW", DType.FLOAT32),
    "batch-normalised": batch_normalised(),
    "batch-frozen": batch_normalised(mode=0),
}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def test_training_in_place_is_bit_identical(name: str, workers: int) -> None:
    graph = GRAPHS[name]
    made = plan(graph, PlanOptions(in_place=True, parallelism=workers))
    report = validate(graph, made, steps=4)
    assert report.identical
    assert len({step.loss for step in report.steps}) > 1


@pytest.mark.parametrize("name", ["residual", "batch-normalised"])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clip", [None, 1.0])
def test_clipping_and_micro_batches(name: str, accumulate: int, clip: float | None) -> None:
    """Gradients that wait for the norm, or carry over, are in nobody's way."""
    rules = TrainingRules(clip_global_norm=clip, accumulate=accumulate, loss_scale=64.0)
    graph = replace(GRAPHS[name], training=rules)
    made = plan(graph, IN_PLACE)
    assert validate(graph, made, steps=4).identical
    assert made.lower_bound <= plan(graph).lower_bound
    assert not verify(plan(graph, PlanOptions(target="singa", in_place=True)))


@pytest.mark.parametrize("name", GRAPHS)
def test_the_bound_never_rises(name: str) -> None:
    graph = GRAPHS[name]
    assert plan(graph, IN_PLACE).lower_bound <= plan(graph).lower_bound


@pytest.mark.parametrize("name", GRAPHS)
def test_the_losses_are_those_of_a_plan_that_is_not_in_place(name: str) -> None:
    graph = GRAPHS[name]
    trainers = [Trainer(graph, plan(graph, options)) for options in (PlanOptions(), IN_PLACE)]
    for step in range(3):
        batch = synthetic_batch(graph, 5, step)
        first, second = (trainer.step(batch) for trainer in trainers)
        assert first == second


def test_operands_that_share_are_bound_to_the_same_bytes() -> None:
    made = plan(convolutional(), IN_PLACE)
    memory, alone = in_arenas(made.arenas), on_their_own(buffer for _, buffer in made.buffers())
    shared = [buffer.tenants for _, buffer in made.buffers() if buffer.tenants]
    assert shared
    for first, *others in shared:
        for other in others:
            assert np.shares_memory(memory.raw(first.id), memory.raw(other.id))
            assert not np.shares_memory(alone.raw(first.id), alone.raw(other.id))


def test_poison_comes_when_the_last_operand_of_a_buffer_is_dead() -> None:
    graph = convolutional()
    made = plan(graph, IN_PLACE)
    runner = Runner(
        graph, program_of(graph, made), in_arenas(made.arenas), scratch_budget=1 << 21, poison=True
    )
    expiring = {id(raw): t for t, group in runner._expired.items() for raw in group}
    for _, buffer in made.buffers():
        if not buffer.lifetime.outlives_iteration:
            assert expiring[id(runner._memory.raw(buffer.id))] == buffer.lifespan.end - 1
    assert len(expiring) == sum(not b.lifetime.outlives_iteration for _, b in made.buffers())


def test_a_plan_in_place_does_not_pass_for_one_that_is_not() -> None:
    graph = residual()
    made = plan(graph, IN_PLACE)
    arena = made.arenas[0]
    forged = Plan(made.graph, made.graph_digest, PlanOptions(), made.steps, (arena,), made.deterministic)
    with pytest.raises(PlanError, match="defines other operands in place"):
        program_of(graph, forged)


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
    assert sum(len(buffer.tenants) for _, buffer in made.buffers()) >= 8
    trainer, batch = Trainer(graph, made), synthetic_batch(graph, 0, 1)
    assert allocated(lambda: trainer.step(batch)) < 64 * 1024 < 1024 * 64 * 4


def gated() -> Graph:
    s = Sketch("gated")
    z = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "z")
    s.op("Gelu", [z], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 6)], "loss")
    return s.graph()


def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Overwrite whatever a kernel can overwrite, whoever reads it later."""
    monkeypatch.setattr(in_place._Sharing, "_may_overwrite", lambda *arguments: True)


def test_the_trap_is_closed_by_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gelu's derivative reads X. A planner that forgets it does not get its plan past the verifier."""
    careless(monkeypatch)
    with pytest.raises(InternalError, match=r"in-place: Step 'y.op:calc_derivative' reads 'z'"):
        plan(gated(), IN_PLACE)


def test_the_trap_is_seen_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    careless(monkeypatch)
    monkeypatch.setattr("solver.pipeline.verify", lambda made: ())
    graph = gated()
    made = plan(graph, IN_PLACE)
    assert "in-place" in {violation.rule for violation in verify(made)}
    assert not validate(graph, made, steps=1).steps
    report = validate(graph, made, steps=1, run_wrong_plans=True)
    assert report.steps[0].differing == ("w",)


def test_the_same_graph_is_right_without_carelessness() -> None:
    graph = gated()
    assert validate(graph, plan(graph, IN_PLACE), steps=3).identical


def test_feeding_a_view_of_the_input() -> None:
    """The caller writes the input; what views it needs no copy and is not poisoned while it is read."""
    s = Sketch("view")
    x = s.op("Flatten", [s.input("x", 3, 2, 2)], "flat")
    s.op("MeanSquaredError", [s.op("Gemm", [x, s.parameter("w", 4, 4)], "y"), s.label("t", 3, 4)], "loss")
    graph = s.graph()
    made = plan(graph, IN_PLACE)
    runner = Runner(graph, program_of(graph, made), in_arenas(made.arenas), scratch_budget=1 << 21)
    batch = synthetic_batch(graph, 0, 1)
    feed(runner, batch)
    assert (runner.value("flat") == batch["x"].reshape(3, 4)).all()
    assert validate(graph, made, steps=3).identical
