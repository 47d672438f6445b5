"""The preparation that cuts frozen weights into tiles: what it cuts, and that training stays the same."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver import pipeline
from solver.documents import dump_graph, dump_plan, load_graph, load_plan
from solver.errors import OptionsError, PlanError
from solver.executor import Trainer, validate
from solver.executor.initial import initial_value
from solver.graph import TrainableGraph, inference
from solver.graph.types import Array
from solver.layout import Pin
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.preparations import with_frozen_storage, with_tiles
from solver.program import Kind, Tier
from solver.reports.arenas import frozen_storage_note
from solver.verdict import tradeoff
from tests.support.graphs import network

_WORDS = 100


def _model(
    *, ignored: int | None = None, words: int = _WORDS, table: str = "table.frozen", activation: str = "None"
) -> TrainableGraph:
    """A language model of one frozen layer: embedding, trained shift, two products, tied head."""
    ignore = "" if ignored is None else f", ignore_index={ignored}"
    text = f"""
x = Add(Gather({table}[{words}, 64], ids.input.int32[3, 4]), shift[64])
f = Flatten(MatMul(x, up.frozen[64, 96], activation={activation!r}), axis=2)
z = Gemm(Gemm(f, down.frozen[64, 96], bias[64], transB=1), table, transB=1)
loss = CategoricalCrossEntropy(z, next.label.int32[12], sparse=1, from_logits=1{ignore})
"""
    return network(text, learning_rate=0.1)


def _batch(*, ignored: int | None = None) -> dict[str, Array]:
    random = np.random.default_rng(3)
    ids = random.integers(-_WORDS, _WORDS, (3, 4)).astype(np.int32)
    labels = random.integers(0, _WORDS, 12).astype(np.int32)
    if ignored is not None:
        labels[[2, 7]] = ignored
    return {"ids": ids, "next": labels}


def _losses(graph: TrainableGraph, plan: Plan, batch: dict[str, Array]) -> list[float]:
    with Trainer(graph, plan) as trainer:
        return [trainer.step(batch) for _ in range(4)]


def _plan(graph: TrainableGraph, **options: Any) -> Plan:
    plan = pipeline.plan(graph, PlanOptions(**options))
    report = validate(graph, plan, steps=2)
    assert report.identical
    assert not report.violations
    assert load_plan(dump_plan(plan)) == plan
    return plan


@pytest.mark.parametrize("storage", [None, "int4", "float16"])
@pytest.mark.parametrize("ignored", [None, -100])
def test_training_is_that_of_whole_weights(storage: str | None, ignored: int | None) -> None:
    graph, batch = _model(ignored=ignored), _batch(ignored=ignored)
    for head in (False, True):
        options: dict[str, Any] = {"frozen_storage": storage, "chunked_head": head}
        whole = _losses(graph, _plan(graph, **options), batch)
        for size in (700, 3000):
            plan = _plan(graph, **options, tile_bytes=size)
            assert not {"table", "up", "down"} & set(plan.program.by_label)
            tiles = [v for v in plan.program.values if ".tile" in v.label and "@" not in v.label]
            assert all(v.type.nbytes <= size for v in tiles if v.type.shape[-1] == 64)
            np.testing.assert_allclose(_losses(graph, plan, batch), whole, rtol=1e-5)
    assert whole[-1] < whole[0]


def test_forward_pass_of_tiles_is_bit_for_bit_that_of_the_whole() -> None:
    """Rows of an embedding are copied, and columns of a product are products of their own."""
    graph, batch = _model(), _batch()
    whole, cut = _plan(graph), _plan(graph, tile_bytes=2000)
    assert _losses(graph, cut, batch)[0] == _losses(graph, whole, batch)[0]


def test_tiles_begin_with_the_rows_of_the_whole(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values = random.standard_normal((_WORDS, 64), np.float32)
    path = tmp_path / "weights.bin"
    path.write_bytes(b"head" + values.tobytes())
    digest = hashlib.sha256(values.tobytes()).hexdigest()
    schemes: list[dict[str, Any]] = [
        {},
        {"initializer": {"kind": "normal", "scale": 2.0, "seed": 5}},
        {"initializer": {"kind": "values", "values": values.ravel().tolist()}},
        {"initializer": {"kind": "file", "file": path.name, "offset": 4, "sha256": digest}},
    ]
    for scheme in schemes:
        document = json.loads(dump_graph(_model()))
        next(operand for operand in document["operands"] if operand["name"] == "table").update(scheme)
        graph = load_graph(document, folder=tmp_path)
        for storage in (None, "int8"):
            stored = with_frozen_storage(graph, storage)
            cut = with_tiles(stored, 3000)
            assert with_tiles(cut, 3000) is cut
            for name, axis in (("table", 0), ("up", 1), ("down", 0)):
                tiles = [o for o in cut.operands.values() if o.id.startswith(f"{name}.tile")]
                whole = initial_value(stored.operands[name])
                parts = [initial_value(tile) for tile in tiles]
                joined = np.concatenate(parts, axis=0 if storage else axis)
                assert np.array_equal(joined, whole)
            plan = _plan(graph, frozen_storage=storage, tile_bytes=3000)
            plain = _plan(graph, frozen_storage=storage)
            np.testing.assert_allclose(
                _losses(graph, plan, _batch()), _losses(graph, plain, _batch()), rtol=1e-5
            )


def test_tiles_are_paged_in_and_never_written_back() -> None:
    graph = _model()
    options: dict[str, Any] = {
        "frozen_storage": "int4",
        "chunked_head": True,
        "tile_bytes": 600,
        "scratch_budget": 4096,
    }
    fast = pipeline.plan(graph, PlanOptions(**options)).arena_bytes * 3 // 5
    tiers = (Tier("ram", fast), Tier("flash", 1 << 20, read=10**8, write=10**7))
    plan = _plan(graph, **options, tiers=tiers)
    assert plan.sizes[0] <= fast
    report = validate(graph, plan, steps=2)
    assert report.paged_in == 0  # the slow memory is no file here
    facts = next(record.facts for record in plan.records if record.name == "paging")
    assert int(facts["moved_in"]) > 0
    written = {
        plan.program.values[b.value].origin
        for step in plan.program.steps
        for b in step.bindings
        if b.access.writes and not plan.program.spaces[plan.program.values[b.value].space].addressable
    }
    assert not [name for name in written if ".tile" in name]


def test_a_table_of_one_axis_begins_as_the_whole_does() -> None:
    graph = network(
        f"""
y = Add(Gather(table.frozen[{_WORDS}], ids.input.int32[3, 4]), scale[4])
loss = MeanSquaredError(y, next.label[3, 4])
"""
    )
    batch = {"ids": _batch()["ids"], "next": np.ones((3, 4), np.float32)}
    plan = _plan(graph, tile_bytes=100)
    assert "table.tile1" in plan.program.by_label
    assert _losses(graph, plan, batch) == _losses(graph, _plan(graph), batch)


def test_a_tile_is_pinned_where_the_head_is_in_chunks() -> None:
    graph = _model()
    pins = (Pin("down.tile0", 1024),)
    plan = _plan(graph, tile_bytes=3000, chunked_head=True, in_place=True, pins=pins)
    assert plan.offsets[plan.program.by_label["down.tile0"]] == 1024


def test_a_curve_has_tiles_as_a_plan_has_them() -> None:
    options = PlanOptions(frozen_storage="int4", tile_bytes=600)
    curve = tradeoff(_model(), options, points=3)
    assert curve.points[0].peak == pipeline.plan(_model(), options).arena_bytes


@pytest.mark.parametrize("storage", [None, "int4"])
def test_a_weight_that_was_cut_is_read_whole(storage: str | None) -> None:
    graph = _model()
    plans = [_plan(graph, frozen_storage=storage, tile_bytes=size) for size in (None, 3000)]
    whole, cut = ([_read(graph, plan, name) for name in ("table", "up", "down")] for plan in plans)
    for one, other in zip(whole, cut, strict=True):
        assert np.array_equal(one, other)


def _read(graph: TrainableGraph, plan: Plan, name: str) -> Array:
    with Trainer(graph, plan) as trainer:
        return trainer.read(name)


@pytest.mark.parametrize("options", [{}, {"tile_bytes": 600}])
def test_entry_points_have_each_weight_in_one_form(options: dict[str, Any]) -> None:
    """What training changes is frozen in an inference, and stays as training needs it."""
    graph = _model()
    requested = RequestedOptions(PlanOptions(frozen_storage="int4", **options))
    graphs = {"train": graph, "infer": inference(graph)}
    deployment = pipeline.plan_deployment(
        "device",
        [
            pipeline.EntryRequest("train", "model", "train", graph, requested),
            pipeline.EntryRequest("infer", "model", "infer", graphs["infer"], requested),
        ],
    )
    types = [
        {v.origin: v.type for v in point.plan.program.values if v.kind is Kind.PARAMETER}
        for point in deployment.entry_points
    ]
    assert types[0] == types[1]
    assert types[0]["bias"].storage is None
    assert validate(graphs, deployment, steps=3).identical
    batch = _batch()
    with (
        Trainer(graphs, deployment) as trainer,
        Trainer(graph, _plan(graph, frozen_storage="int4", **options)) as one,
    ):
        assert [trainer.step(batch) for _ in range(3)] == [one.step(batch) for _ in range(3)]
        assert np.array_equal(trainer.read("table"), one.read("table"))


def test_weights_and_copies_are_counted_once() -> None:
    graph = _model()
    plan = _plan(graph, frozen_storage="int4", tile_bytes=600)
    fast = plan.arena_bytes * 4 // 5
    tiers = (Tier("ram", fast), Tier("flash", 1 << 20, read=10**8, write=10**7))
    paged = _plan(graph, frozen_storage="int4", tile_bytes=600, tiers=tiers)
    assert any("@" in label for label in paged.program.by_label)
    size, whole = (_WORDS * 2 + 64 * 3 + 96 * 2) * 18, (_WORDS + 96 + 96) * 64 * 4
    note = frozen_storage_note(plan)
    assert frozen_storage_note(paged) == note
    assert f" take {size:,} bytes instead of {whole:,}" in str(note)


def test_weights_that_are_not_cut() -> None:
    graph = _model()
    assert with_tiles(graph, None) is graph
    assert with_tiles(graph, 10**6) is graph
    assert "table" in with_tiles(_model(table="table"), 2000).operands
    assert "up" in with_tiles(_model(activation="Relu"), 2000).operands


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tile_bytes": 0}, "has no row"),
        ({"tile_bytes": 4096, "capacity": 4000}, "does not fit into fast memory"),
        ({"tile_bytes": 4096, "tiers": (Tier("a", 4000), Tier("b", 10**6))}, "does not fit into fast memory"),
    ],
)
def test_sizes_that_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionsError, match=message) as caught:
        pipeline.plan(_model(), PlanOptions(**options))
    assert caught.value.path == ("tile_bytes",)


def test_too_many_tiles() -> None:
    with pytest.raises(OptionsError, match="20,160") as caught:
        pipeline.plan(_model(words=20_000), PlanOptions(tile_bytes=1))
    assert "Give at least 5 bytes" in caught.value.remedy


def test_plan_that_lies_about_rows_is_refused() -> None:
    graph = _model()
    plan = pipeline.plan(graph, PlanOptions(tile_bytes=3000))
    program = plan.program
    number, first = next((n, i) for n, i in program.initial.items() if i.rows is not None)
    assert first.rows is not None
    other = replace(first, rows=replace(first.rows, start=first.rows.start + 1))
    initial = {**program.initial, number: other}
    with pytest.raises(PlanError):
        Trainer(graph, replace(plan, program=replace(program, initial=initial)))
