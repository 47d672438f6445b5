"""Networks with stored weights: planned in every way, proved, and trained with the bits of the reference."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.errors import CapacityError
from solver.executor import Trainer, rewritten, synthetic_batch, validate
from solver.executor.initial import initial_value
from solver.executor.proved import check_plan, reference_program
from solver.graph import Role, TrainableGraph, TrainingRules, graph_digest
from solver.graph.packing import unpack
from solver.importers.weights import read_arrays
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier
from tests.support.deployments import deployed, entries
from tests.support.sizes import planned_over, with_symbolic_batch
from tests.support.stored_graphs import adapted, random_stored_graphs

#: What plans may do, alone and together.
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"in_place": True, "sub_ranges": True},
    {"order": True},
    {"rewrite": True, "in_place": True},
    {"parallelism": 2, "update": "end"},
    {"storage": "bfloat16"},
    {"alignment": 1},
)

FLASH = Tier("flash", 2**24, 50_000_000, 50_000_000, 100)


def floats(graph: TrainableGraph) -> int:
    """Bytes that the stored weights would take as floats."""
    return sum(o.type.elements * 4 for o in graph.operands.values() if o.type.storage is not None)


@given(random_stored_graphs(), st.sampled_from(OPTIONS), st.sampled_from([1, 100, 2**21]))
def test_any_network_trains_bit_for_bit(graph: TrainableGraph, more: dict[str, Any], budget: int) -> None:
    graph = load_graph(dump_graph(graph))
    found = load_plan(dump_plan(plan(graph, PlanOptions(scratch_budget=budget, **more))))
    changed = rewritten(graph, found)
    assert not check_plan(reference_program(changed, found), found, graph_digest(graph))
    assert validate(graph, found, steps=2).identical


@given(random_stored_graphs(), st.sampled_from([0.95, 0.8]), st.booleans())
def test_with_less_memory_too(graph: TrainableGraph, share: float, pages: bool) -> None:
    arena = plan(graph).arena_bytes
    capacity = int(arena * share) // 64 * 64
    options = PlanOptions(tiers=(Tier("fast", capacity), FLASH), in_place=True)
    if not pages:
        options = PlanOptions(capacity=capacity, recompute=True, order=True, in_place=True)
    try:
        found = plan(graph, options)
    except CapacityError:
        return
    assert found.sizes[0] <= capacity
    assert validate(graph, found, steps=2).identical


@given(random_stored_graphs())
def test_training_is_that_of_the_elements(graph: TrainableGraph) -> None:
    """Beside the same network with the elements as float32: one tile holds each weight, so the bits agree."""
    values = {
        name: unpack(initial_value(operand), operand.type)
        for name, operand in graph.operands.items()
        if operand.type.storage is not None
    }
    whole = _with_elements(graph, values)
    with Trainer(graph, plan(graph)) as ours, Trainer(whole, plan(whole)) as theirs:
        for step in (1, 2):
            batch = synthetic_batch(graph, 0, step)
            assert ours.step(batch) == theirs.step(batch)
        for name, operand in graph.operands.items():
            if operand.role is Role.PARAMETER:
                found, expected = ours.read(name), theirs.read(name)
                is_turned = operand.type.storage is not None and operand.type.storage.axis == 1
                np.testing.assert_array_equal(found, expected.T if is_turned else expected)


def _with_elements(graph: TrainableGraph, values: dict[str, Any]) -> TrainableGraph:
    """The network with these values for its stored weights, as floats.

    A product whose rows are those of axis 1 becomes one with the transposed matrix, as the kernels take it.
    """
    document = json.loads(dump_graph(graph))
    turned = {name for name in values if getattr(graph.operands[name].type.storage, "axis", 0) == 1}
    for operand in document["operands"]:
        if operand["name"] not in values:
            continue
        array = values[operand["name"]].T if operand["name"] in turned else values[operand["name"]]
        data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
        operand |= {"initializer": {"kind": "values", "base64": data}, "trainable": False}
        operand |= {"shape": list(array.shape)}
        del operand["storage"]
    for operation in document["operations"]:
        if turned & {*operation["inputs"]}:
            operation["type"] = "Gemm"
            operation["attributes"] = {**operation.get("attributes", {}), "transB": 1}
    return load_graph(document)


# ------------------------------------------------------------------------- entry points, sizes, micro-batches


@pytest.mark.parametrize("more", [{}, {"in_place": True, "scratch_budget": 1}])
def test_entry_points_share_the_stored_bytes(more: dict[str, Any]) -> None:
    graphs, deployment = deployed(entries(adapted), **more)
    program = deployment.entry_points[0].plan.program
    types = {each.name: program.values[each.values[0]].type for each in deployment.persistent}
    stored = {name: type_.nbytes for name, type_ in types.items() if type_.storage is not None}
    assert stored.keys() == {"base", "filters", "table"}
    assert sum(stored.values()) < floats(graphs["train"]) / 2
    assert validate(graphs, deployment, steps=3).identical


def test_batches_of_a_range() -> None:
    graph = with_symbolic_batch(adapted(4), 4)
    found = planned_over(graph, 1, 4, in_place=True)
    assert validate(graph, found, steps=3).identical


def test_micro_batches() -> None:
    graph = adapted(training=TrainingRules(accumulate=3), optimizer="Adam")
    assert validate(graph, plan(graph, PlanOptions(in_place=True)), steps=6).identical


def test_what_is_read_are_elements_and_checkpoints_have_none(tmp_path: Path) -> None:
    graph = adapted(optimizer="Adam")
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step(synthetic_batch(graph, 0, 1))
        for name in ("table", "base", "filters"):
            operand = graph.operands[name]
            read = trainer.read(name)
            assert read.shape == operand.shape
            assert read.dtype == np.float32
            np.testing.assert_array_equal(read, unpack(initial_value(operand), operand.type))
        trainer.save(tmp_path / "after one.safetensors")
        assert not read_arrays(tmp_path / "after one.safetensors").keys() & {"table", "base", "filters"}
        expected = [trainer.step(synthetic_batch(graph, 0, step)) for step in (2, 3)]
    with Trainer(graph, plan(graph)) as trainer:
        trainer.restore(tmp_path / "after one.safetensors")
        assert [trainer.step(synthetic_batch(graph, 0, step)) for step in (2, 3)] == expected
