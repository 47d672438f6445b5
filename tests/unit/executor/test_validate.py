"""The executor must prove that training in the arena equals training with memory of one's own."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from solver.errors import PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.memory import in_spaces, on_their_own
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import Array, DType, TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan, PlannedBuffer, PlanOptions
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.one_operation import allocated
from tests.support.operator_graphs import attention
from tests.support.proofs import moved, offset_of, violations


def test_what_is_compared_is_loss_outputs_parameters_and_optimizer_variables() -> None:
    graph = convolutional()
    report = validate(graph, plan(graph), steps=1)
    parameters = len(graph.trainable)
    assert report.compared == parameters * 3 + len(graph.outputs) + 1


def test_states_are_compared_too() -> None:
    graph = batch_normalised(optimizer="SGD")
    assert (
        validate(graph, plan(graph), steps=1).compared == len(graph.trainable) + len(("mean", "variance")) + 1
    )


def test_progress_is_reported_step_by_step() -> None:
    seen: list[int] = []
    validate(chain(), plan(chain()), steps=3, on_step=lambda report: seen.append(report.step))
    assert seen == [1, 2, 3]


def test_an_overlapping_plan_is_named_and_not_run() -> None:
    graph = residual()
    good = plan(graph)
    report = validate(graph, moved(good, "h1", offset_of(good, "w1")))
    assert not report.identical
    assert not report.steps
    assert {"h1", "w1"} in [set(v.buffers) for v in report.violations if v.rule == "overlap"]


def test_an_overlap_that_matters_makes_the_run_differ() -> None:
    graph = residual()
    good = plan(graph)
    wrong = moved(good, "h1", offset_of(good, "w1"))
    report = validate(graph, wrong, steps=1, run_wrong_plans=True)
    assert not report.identical
    assert "w1" in report.steps[0].differing


def test_bytes_that_are_reused_too_early_are_named_and_noticed() -> None:
    """The input that fc2 reads again in the backward pass is overwritten by its own result."""
    graph = chain((6, 6, 6))
    wrong = moved(plan(graph), "h2", offset_of(plan(graph), "h1"))
    assert violations(graph, wrong)
    report = validate(graph, wrong, steps=1, run_wrong_plans=True)
    assert "w2" in report.steps[0].differing


def conflicting_moves(found: Plan, count: int, seed: int) -> list[tuple[str, int]]:
    """Random moves of one buffer to an aligned offset where it meets a live one."""
    rng = random.Random(seed)
    buffers = found.arenas[0].buffers
    moves: list[tuple[str, int]] = []
    while len(moves) < count:
        buffer = rng.choice(buffers)
        offset = rng.randrange(0, found.arenas[0].size - buffer.size + 1, buffer.alignment)
        if any(_meets(buffer, offset, other) for other in buffers):
            moves.append((buffer.id, offset))
    return moves


def _meets(buffer: PlannedBuffer, offset: int, other: PlannedBuffer) -> bool:
    return (
        other.id != buffer.id
        and buffer.lifespan.overlaps(other.lifespan)
        and offset < other.end
        and other.offset < offset + buffer.size
    )


def test_most_corruptions_also_change_the_run() -> None:
    """Not all: bytes that meet may hold dead halves or equal values. Verification misses none."""
    graph = residual()
    good = plan(graph)
    moves = conflicting_moves(good, 40, seed=3)
    differing = sum(
        not validate(graph, moved(good, *move), steps=2, run_wrong_plans=True).steps[-1].identical
        for move in moves
    )
    assert differing > len(moves) // 2


@pytest.mark.parametrize(
    "graph",
    [
        convolutional(batch=128),
        attention(DType.FLOAT32, batch=8, length=48, width=64, words=2000, optimizer="RMSProp"),
    ],
    ids=lambda g: g.name,
)
def test_a_step_allocates_nothing_of_tensor_size(graph: TrainableGraph) -> None:
    found = plan(graph, PlanOptions(scratch_budget=1 << 14))
    trainer = Trainer(graph, found)
    batches = [synthetic_batch(graph, 0, i) for i in range(3)]
    largest = max(b.nbytes for _, b in found.buffers())
    assert largest > 64 * 1024
    assert allocated(lambda: [trainer.step(batch) for batch in batches]) < 64 * 1024


def test_the_reference_run_keeps_addresses_modulo_64() -> None:
    found = plan(residual(), PlanOptions(alignment=16))
    planned = in_spaces(found)
    alone = on_their_own(found.program, [offset % 64 for offset in found.offsets])
    for value, offset in enumerate(found.offsets):
        addresses = [memory.raw(value).ctypes.data % 64 for memory in (planned, alone)]
        assert addresses[0] == addresses[1] == offset % 64


def test_the_reference_run_shares_no_bytes() -> None:
    found = plan(residual())
    count = len(found.program.values)
    memory = on_their_own(found.program, [0] * count)
    starts = [memory.raw(value).ctypes.data for value in range(count)]
    ranges = sorted((start, start + memory.raw(value).nbytes) for value, start in enumerate(starts))
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def test_the_arena_begins_as_poison() -> None:
    found = plan(chain())
    memory = in_spaces(found)
    assert all((memory.raw(value) == 0xFF).all() for value in range(len(found.offsets)))


def test_nothing_stale_survives_a_step() -> None:
    graph = chain()
    found = plan(graph)
    runner = Runner(found.program, in_spaces(found), {}, poison=True)
    feed(graph, runner, synthetic_batch(graph, 0, 1))
    runner.run()
    for name in ("x", "h1", "h2"):
        assert np.isnan(runner.value(name)).all()


def test_a_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(PlanError, match="do not belong together"):
        validate(chain((6, 5, 4)), plan(chain((6, 8, 4))))


def test_a_plan_for_another_runtime_cannot_be_run_here() -> None:
    graph = chain()
    with pytest.raises(PlanError, match="another runtime"):
        validate(graph, replace(plan(graph), options=PlanOptions(target="onert")))


class TestTrainer:
    """The trainer runs the caller's data."""

    def batch(self, graph: TrainableGraph) -> Mapping[str, Array]:
        return synthetic_batch(graph, 1, 1)

    def test_the_loss_of_a_repeated_batch_falls(self) -> None:
        graph = convolutional(learning_rate=0.01)
        trainer = Trainer(graph, plan(graph))
        losses = [trainer.step(self.batch(graph)) for _ in range(30)]
        assert losses[-1] < losses[0] / 2

    def test_parameters_and_outputs_can_be_read(self) -> None:
        graph = convolutional()
        trainer = Trainer(graph, plan(graph))
        before = trainer.read("k1")
        trainer.step(self.batch(graph))
        assert not np.array_equal(before, trainer.read("k1"))
        assert trainer.read("f").shape == (2, 5)

    def test_operands_that_do_not_outlive_the_step_cannot_be_read(self) -> None:
        graph = convolutional()
        with pytest.raises(PlanError, match="does not outlive"):
            Trainer(graph, plan(graph)).read("a")

    def test_a_wrong_plan_is_refused(self) -> None:
        graph = residual()
        good = plan(graph)
        with pytest.raises(PlanError, match="1 violation"):
            Trainer(graph, moved(good, "h1", 0))


def test_frozen_parameters_do_not_change() -> None:
    graph = chain((6, 5, 4, 3), trainable=1)
    trainer = Trainer(graph, plan(graph))
    before = {name: trainer.read(name) for name in ("w1", "b1", "w2", "b2", "w3")}
    trainer.step(synthetic_batch(graph, 0, 1))
    unchanged = {name for name, value in before.items() if np.array_equal(value, trainer.read(name))}
    assert unchanged == {"w1", "b1", "w2", "b2"}


def test_names_that_lead_elsewhere_are_refused() -> None:
    """A proof reads no names, but data are fed by name: two inputs whose names are swapped."""
    s = Sketch("difference")
    p = s.op("Mul", [s.input("x", 4, 3), s.parameter("w", 4, 3)], "p")
    s.op("MeanSquaredError", [s.op("Add", [p, s.input("y", 4, 3)], "h"), s.label("t", 4, 3)], "loss")
    graph = s.graph()
    made = plan(graph)
    swap = {"x": "y", "y": "x"}
    values = tuple(replace(value, label=swap.get(value.label, value.label)) for value in made.program.values)
    with pytest.raises(PlanError, match="The name 'x' leads to something else"):
        Trainer(graph, replace(made, program=replace(made.program, values=values)))
