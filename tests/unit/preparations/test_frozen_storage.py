"""The preparation that stores frozen weights: which ones, and that training runs on the rounded ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from examples.gallery import GALLERY
from solver import pipeline
from solver.errors import OptionsError
from solver.executor import Trainer, validate
from solver.executor.initial import initial_value
from solver.graph import Initializer, TrainableGraph
from solver.graph.packing import pack, unpack
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.preparations import with_frozen_storage
from solver.reports.arenas import frozen_storage_note
from tests.support.graphs import network

#: An embedding, a trained shift, products with frozen weights, and the embedding again as the head.
_ADAPTER = """
shifted = Add(Gather(table.frozen[96, 64], ids.input.int32[6]), bias[64])
low = MatMul(MatMul(shifted, base.frozen[64, 64]), wide.frozen[64, 40])
y = Mul(MatMul(low, narrow.frozen[40, 64]), scale.frozen[6, 64])
loss = MeanSquaredError(Gemm(y, table, transB=1), target.label[6, 96])
"""


@pytest.fixture(name="graph")
def _graph() -> TrainableGraph:
    return network(_ADAPTER)


def test_weights_that_products_and_embeddings_read_are_stored(graph: TrainableGraph) -> None:
    stored = with_frozen_storage(graph, "int4")
    axes = {o.id: o.type.storage.axis for o in stored.operands.values() if o.type.storage is not None}
    # "narrow" has rows of 40 elements, which groups of 32 do not divide; "scale" is read by a Mul.
    assert axes == {"table": 0, "base": 1, "wide": 1}
    assert with_frozen_storage(stored, "int4") is stored
    assert with_frozen_storage(graph, None) is graph
    assert with_frozen_storage(graph, "int4:8").operands["narrow"].type.storage is not None


def test_plan_is_proved_and_trains_bit_for_bit(graph: TrainableGraph) -> None:
    plain = pipeline.plan(graph)
    for word in ("int4", "int8:16", "int4:64:zero-points", "bfloat16"):
        plan = pipeline.plan(graph, PlanOptions(frozen_storage=word))
        report = validate(graph, plan, steps=3)
        assert report.identical
        assert not report.violations
        assert plan.arena_bytes < plain.arena_bytes
        note = frozen_storage_note(plan)
        assert note is not None
        assert note.startswith(f"In {word}: ")
        assert "frozen weights take" in note
        assert "had before" not in note
    assert frozen_storage_note(plain) is None


def test_a_note_tells_weights_that_the_option_stores_from_those_that_were_stored_before(
    graph: TrainableGraph,
) -> None:
    before = with_frozen_storage(graph, "bfloat16")
    note = frozen_storage_note(pipeline.plan(before, PlanOptions(frozen_storage="int4")))
    assert note is not None
    assert note.startswith("In int4: no weight is stored.")
    assert " In bfloat16, which they had before and keep: " in note
    mixed = replace(before.operands["table"], type=graph.operands["table"].type)
    mixture = before.with_graph(operands={**before.operands, "table": mixed})
    note = frozen_storage_note(pipeline.plan(mixture, PlanOptions(frozen_storage="int4")))
    assert note is not None
    assert note.startswith("In int4: 1 frozen weight takes ")
    assert " In bfloat16, which they had before and keep: " in note


def test_training_is_that_of_the_rounded_weights(graph: TrainableGraph) -> None:
    """The same losses, up to the order of sums, as float weights that were packed and unpacked before."""
    stored = with_frozen_storage(graph, "int4")
    rounded = dict(graph.operands)
    for name, operand in stored.operands.items():
        if operand.type.storage is not None:
            values = unpack(initial_value(operand), operand.type)
            assert np.array_equal(unpack(pack(values, operand.type), operand.type), values)
            rounded[name] = replace(
                graph.operands[name], initializer=Initializer("values", data=values.tobytes())
            )
    plain = graph.with_graph(operands=rounded)
    random = np.random.default_rng(7)
    feed = {
        "ids": random.integers(0, 96, 6).astype(np.int32),
        "target": random.standard_normal((6, 96), np.float32),
    }
    with (
        Trainer(graph, pipeline.plan(graph, PlanOptions(frozen_storage="int4"))) as ours,
        Trainer(plain, pipeline.plan(plain)) as theirs,
    ):
        losses = [ours.step(feed) for _ in range(5)]
        np.testing.assert_allclose(losses, [theirs.step(feed) for _ in range(5)], rtol=1e-5)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("word", ["int3", "int4:7", "int4:6", "float16:32", "int4:64:points", "", "int4:"])
def test_unknown_word(graph: TrainableGraph, word: str) -> None:
    with pytest.raises(OptionsError, match="Unknown storage") as caught:
        pipeline.plan(graph, PlanOptions(frozen_storage=word))
    assert caught.value.path == ("frozen_storage",)


def test_nothing_to_store(graph: TrainableGraph) -> None:
    trained = network(_ADAPTER.replace(".frozen", ""))
    plan = pipeline.plan(trained, PlanOptions(frozen_storage="int4"))
    note = frozen_storage_note(plan)
    assert note is not None
    assert "no weight is stored" in note


# --------- The scratch budget is made as small as it must be for scratch not to make the peak, and no smaller


def facts(made: object) -> dict[str, int]:
    records = {record.name: record.facts for record in made.records}  # type: ignore[attr-defined]  # a plan
    return dict(records["fit_scratch"])


@pytest.mark.parametrize("name", ["lenet5", "transfer", "multi_loss"])
def test_scratch_makes_the_peak(name: str) -> None:
    graph = GALLERY[name].model().graph
    before, made = plan(graph), plan(graph, PlanOptions(fit_scratch=True))
    least = plan(graph, PlanOptions(scratch_budget=1)).sizes[0]
    budget = made.options.scratch_budget
    assert made.sizes[0] <= least + least // 16 < before.sizes[0]
    assert facts(made)["budget_after"] == budget < before.options.scratch_budget
    # Twice the budget would be more than a sixteenth above the least.
    assert plan(graph, PlanOptions(scratch_budget=2 * budget)).sizes[0] > least + least // 16


def test_what_was_chosen_repeats_the_plan() -> None:
    graph = GALLERY["multi_loss"].model().graph
    made = plan(graph, PlanOptions(fit_scratch=True))
    assert plan(graph, PlanOptions(scratch_budget=made.options.scratch_budget)).program == made.program
    assert validate(graph, made, steps=2).identical


def test_scratch_that_makes_no_peak_stays() -> None:
    graph = GALLERY["transformer"].model().graph
    made = plan(graph, PlanOptions(fit_scratch=True))
    assert made.options.scratch_budget == PlanOptions().scratch_budget
    assert made.sizes == plan(graph).sizes


def test_what_rewriting_leaves_is_fitted_again() -> None:
    """LeNet with its activations apart: fused, they take less, and so may scratch."""
    graph = GALLERY["lenet5"].model().graph
    rewritten = plan(graph, PlanOptions(rewrite=True, fit_scratch=True))
    least = plan(graph, PlanOptions(rewrite=True, scratch_budget=1)).sizes[0]
    assert rewritten.sizes[0] <= least + least // 16
    assert len([record for record in rewritten.records if record.name == "fit_scratch"]) == 1


def test_a_capacity_leaves_as_much_scratch_as_it_has_room_for() -> None:
    graph = GALLERY["lenet5"].model().graph
    free = plan(graph, PlanOptions(fit_scratch=True))
    roomy = plan(graph, PlanOptions(fit_scratch=True, capacity=3_000_000))
    tight = plan(graph, PlanOptions(fit_scratch=True, capacity=2_200_000))
    assert tight.sizes[0] <= 2_200_000
    budgets = [p.options.scratch_budget for p in (tight, free, roomy)]
    assert budgets == sorted(set(budgets))


def test_targets_that_say_themselves_what_kernels_need() -> None:
    graph = GALLERY["lenet5"].model().graph
    with pytest.raises(OptionsError, match="says itself what its kernels need"):
        plan(graph, PlanOptions(target="onert", fit_scratch=True))
