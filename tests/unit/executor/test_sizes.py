"""Steps of several sizes in one arena: each computes the bits of a plan that was made for its size."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from arenaplan.builder import Model
from examples.gallery import GALLERY, resnet
from solver.documents import load_graph
from solver.errors import PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Array, TrainableGraph, inference
from solver.pipeline import plan_at, plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions, SizeRange
from solver.program import Tier
from tests.support.every import ALL, grid, some
from tests.support.graphs import convolutional
from tests.support.sizes import SEQUENCES, hand_over, planned_over, state_of, with_symbolic_batch

#: The largest batch that a network of the gallery is trained with here; others have 4.
_LARGEST = {"mobilenet_v2_bn": 2, "transformer": 3}

#: Networks whose layers another one has.
ALIKE = ("resnet18", "last_layers", "bias_only")

#: Networks with fewer filters and smaller images than those of the gallery: all their layers.
_SMALLER: dict[str, Callable[[int], Model]] = {
    "resnet18": partial(resnet.build, depth=18, side=32, width=16),
    "resnet50": partial(resnet.build, depth=50, side=32, width=16),
}


def network(name: str, batch: int) -> TrainableGraph:
    model = _SMALLER[name](batch) if name in _SMALLER else GALLERY[name].model()
    return load_graph(model.document, batch=batch)


#: A memory that is too small for the transformer, and a slow one.
TWO_MEMORIES = (Tier("fast", 1_900_000), Tier("slow", 2**30, 10**8, 10**8))


@cache
def network_over(name: str, *options: tuple[str, Any]) -> tuple[TrainableGraph, Plan]:
    """The network and its plan for batches from 1 to 4."""
    graph = network(name, 4)
    return graph, planned_over(graph, 1, 4, **dict(options))


def check_steps(graph: TrainableGraph, plan: Plan, sizes: Sequence[int], folder: Path) -> None:
    """One trainer takes steps of all sizes; beside each stands a trainer with a plan of that size alone."""
    with Trainer(graph, plan) as trainer:
        for k, size in enumerate(sizes):
            alone = graph.at(batch=size)
            own_plan = plan_requested(alone)
            batch = synthetic_batch(alone, seed=3, step=k)
            with Trainer(alone, own_plan) as own:
                hand_over(trainer, plan, own, own_plan, folder)
                assert trainer.step(batch) == own.step(batch), size
                assert state_of(trainer, folder) == state_of(own, folder), size
                for name in graph.outputs:
                    assert np.array_equal(trainer.read(name), own.read(name)), (size, name)


@grid("name", some([name for name in GALLERY if name not in ALIKE], beside=ALIKE))
def test_a_step_on_fewer_examples_has_the_bits_of_a_plan_for_that_size(name: str, tmp_path: Path) -> None:
    """Shuffled sizes, one after the other in one arena; by default the least and the largest but one."""
    largest = _LARGEST.get(name, 4)
    graph = network(name, largest)
    sizes = [size for size in range(1, largest + 1) if ALL or size in (1, largest - 1)]
    random.Random(name).shuffle(sizes)
    plan = planned_over(graph, 1, largest)
    assert plan.planned_sizes is not None
    assert plan.planned_sizes.refused == ()
    check_steps(graph, plan, sizes, tmp_path)


def test_sizes_whose_kernels_take_more_scratch_than_at_the_largest(tmp_path: Path) -> None:
    """From 18 to 20 examples a convolution unrolls all of them at once; of 32 it unrolls some at a time."""
    graph = network("lenet5", 32)
    plan = planned_over(graph, 1, 32)
    assert plan.planned_sizes is not None
    assert plan.planned_sizes.refused == ()
    largest = {v.label: v.type.nbytes for v in plan.program.values}
    more = plan_at(plan, graph.at(batch=20)).program.values
    assert any(v.type.nbytes > largest.get(v.label, 0) for v in more)
    check_steps(graph, plan, [32, 19, 20, 18, 7], tmp_path)


@grid(
    ("name", "options"),
    [
        ("lenet5", {"parallelism": 2}),
        ("lenet5", {"rewrite": True}),
        ("lenet5", {"storage": "bfloat16"}),
        ("transformer", {"capacity": 1_900_000}),
        ("transformer", {"tiers": TWO_MEMORIES}),
    ],
)
def test_plans_with_levels_repetitions_copies_and_preparations(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """A step computes what the ordinary plan of that size computes, and that is right."""
    graph, plan = network_over(name, *options.items())
    for size in some([3], beside=[1]):
        alone = graph.at(batch=size)
        own = plan_at(plan, alone)
        assert validate(alone, own, steps=2).identical
        with Trainer(graph, plan) as trainer, Trainer(alone, own) as other:
            for k in range(2):
                batch = synthetic_batch(alone, seed=1, step=k)
                assert trainer.step(batch) == other.step(batch)
            assert state_of(trainer, tmp_path) == state_of(other, tmp_path)


def test_parts_of_values_that_would_not_be_aligned_get_places_of_their_own(tmp_path: Path) -> None:
    graph = network("lstm_classifier", 8)
    plan = planned_over(graph, 1, 8, capacity=236_000)
    assert plan.options.sub_ranges
    assert any(alias.offset for alias in plan.program.aliases)
    assert plan.planned_sizes is not None
    assert plan.planned_sizes.refused == ()
    check_steps(graph, plan, [8, 3, 1, 5], tmp_path)


def test_a_paging_file(tmp_path: Path) -> None:
    graph, plan = network_over("transformer", ("tiers", TWO_MEMORIES))
    with Trainer(graph, plan) as inside, Trainer(graph, plan, paging_file=tmp_path / "paged") as filed:
        for k, size in enumerate((4, 3, 1, 4, 2)):
            batch = synthetic_batch(graph.at(batch=size), seed=0, step=k)
            assert inside.step(batch) == filed.step(batch)


def test_a_checkpoint_of_one_size_goes_on_with_another(tmp_path: Path) -> None:
    graph = network("mobilenet_v2_bn", 3)
    plan = planned_over(graph, 1, 3)
    batches = [synthetic_batch(graph.at(batch=size), seed=0, step=size) for size in (3, 2, 1, 3)]
    with Trainer(graph, plan) as first:
        losses = [first.step(batch) for batch in batches[:2]]
        first.save(tmp_path / "checkpoint.safetensors")
        losses += [first.step(batch) for batch in batches[2:]]
        end = state_of(first, tmp_path)
    with Trainer(graph, plan) as second:
        second.step(batches[2])
        second.restore(tmp_path / "checkpoint.safetensors")
        assert [second.step(batch) for batch in batches[2:]] == losses[2:]
        assert second.iteration == 4
        assert state_of(second, tmp_path) == end


def test_micro_batches_of_several_sizes_make_one_update(tmp_path: Path) -> None:
    document = GALLERY["autoencoder"].model().document | {"training": {"accumulate": 3}}
    graph = load_graph(document, batch=5)
    check_steps(graph, planned_over(graph, 1, 5), [5, 5, 2, 1, 4, 5], tmp_path)


def test_the_graph_may_be_of_any_size_in_the_range() -> None:
    graph = network("transfer", 4)
    plan = planned_over(graph, 1, 4)
    batch = synthetic_batch(graph, seed=0, step=0)
    with Trainer(graph, plan) as one, Trainer(graph.at(batch=2), plan) as other:
        assert one.step(batch) == other.step(batch)


# ------------------------------------------------------------------------------------------- refusals


def short(batch: dict[str, Array], size: int) -> dict[str, Array]:
    return {name: array[:size] for name, array in batch.items()}


BAD: list[tuple[Callable[[dict[str, Array]], Any], str, str]] = [
    (
        lambda b: short(b, 1),
        r"The batch is 1; the plan serves batch 2\.\.4\.",
        "plan with a range that has it",
    ),
    (lambda b: {n: np.concatenate([a, a]) for n, a in b.items()}, "The batch is 8;", "inside the range"),
    (lambda b: short(b, 0), "The batch is 0;", "inside the range"),
    (
        lambda b: b | {"label": b["label"][:3]},
        "'label' is 3, that of 'image' is 4",
        "same number of examples",
    ),
    (lambda b: short(b, 3) | {"image": b["image"][:3, :5]}, r"of shape \[3, 5", "exactly this shape"),
    (lambda b: {"image": b["image"][:3]}, "'label' is missing", "every input"),
    (lambda b: b["image"], "mapping from names", "'image'"),
]


@pytest.mark.parametrize(("damage", "message", "remedy"), BAD)
def test_a_wrong_batch_changes_nothing(
    damage: Callable[[dict[str, Array]], Any], message: str, remedy: str, tmp_path: Path
) -> None:
    graph = network("transfer", 4)
    plan = planned_over(graph, 2, 4)
    batch = synthetic_batch(graph, seed=0, step=0)
    with Trainer(graph, plan) as trainer, Trainer(graph, plan) as other:
        assert trainer.step(short(batch, 3)) == other.step(short(batch, 3))
        before = state_of(trainer, tmp_path)
        with pytest.raises(PlanError, match=message) as caught:
            trainer.step(damage(batch))
        assert remedy in caught.value.remedy
        assert state_of(trainer, tmp_path) == before
        assert trainer.iteration == 1
        assert trainer.step(batch) == other.step(batch)


def test_a_plan_of_one_size_takes_no_other() -> None:
    graph = network("transfer", 4)
    with Trainer(graph, plan_requested(graph)) as trainer, pytest.raises(PlanError, match="of shape"):
        trainer.step(short(synthetic_batch(graph, seed=0, step=0), 3))


def test_a_graph_without_a_symbolic_batch_trains_at_the_largest_size() -> None:
    graph = convolutional()
    symbolic = with_symbolic_batch(graph, 2)
    plan = planned_over(symbolic, 1, 2)
    batch = synthetic_batch(graph, seed=0, step=0)
    with Trainer(graph, plan) as trainer:
        trainer.step(batch)
        with pytest.raises(PlanError, match="of shape"):
            trainer.step(short(batch, 1))


def test_the_exact_options_of_a_range_plan_are_those_of_its_largest_size() -> None:
    graph = network("lenet5", 32)
    plan, own = planned_over(graph, 1, 32), plan_requested(graph)
    assert plan.options == own.options
    assert isinstance(plan.options, PlanOptions)
    assert (plan.program, plan.offsets, plan.sizes) == (own.program, own.offsets, own.sizes)


def test_an_inference_takes_any_batch_of_its_range() -> None:
    graph = inference(network("lenet5", 6))
    plan = planned_over(graph, 1, 6)
    assert plan.planned_sizes is not None
    assert plan.planned_sizes.refused == ()
    with Trainer(graph, plan) as trainer:
        for size in (6, 1, 4):
            alone = graph.at(batch=size)
            inputs = synthetic_batch(alone, seed=2, step=size)
            outputs = trainer.infer(inputs)
            with Trainer(alone, plan_requested(alone)) as own:
                expected = own.infer(inputs)
            assert outputs.keys() == expected.keys()
            assert all(np.array_equal(outputs[name], expected[name]) for name in expected)


def test_constants_that_depend_on_the_size_are_written_when_it_changes() -> None:
    """A causal mask, whose rows are as long as the sequence: its bytes are others at every size."""
    document = copy.deepcopy(SEQUENCES)
    document["operands"].append(
        {
            "name": "mask",
            "role": "constant",
            "shape": ["seq", "seq"],
            "dtype": "float32",
            "initializer": {"kind": "band", "value": 1, "other": 0, "upper": 0},
        }
    )
    document["operations"] = [
        {"name": "s", "type": "MatMul", "inputs": ["mask", "x"], "outputs": ["sums"]},
        {"name": "m", "type": "MatMul", "inputs": ["sums", "w"], "outputs": ["y"]},
        {"name": "l", "type": "MeanSquaredError", "inputs": ["y", "t"], "outputs": ["loss"]},
    ]
    graph = load_graph(document)
    ranges = (SizeRange("seq", 2, 6),)
    plan = plan_requested(graph, RequestedOptions(ranges=ranges))
    assert plan.planned_sizes is not None
    assert plan.planned_sizes.refused == ()
    assert validate(graph, plan, steps=5).identical
