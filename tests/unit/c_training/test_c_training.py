"""C that trains: the same bits however it is compiled, and NumPy's results but for last bits."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from examples.gallery import GALLERY
from solver.c_training import c_training_files
from solver.documents import dump_plan, load_plan
from solver.errors import GraphError, OptionsError, PlanError
from solver.executor import Trainer, c_files, synthetic_batch
from solver.graph import Array, DType, Initializer, Role, TrainableGraph
from solver.pipeline import plan, plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import EntryKind, Tier
from tests.support.c_programs import CProgram, written
from tests.support.every import some
from tests.support.graphs import Sketch, chain
from tests.support.one_operation import normal
from tests.support.random_graphs import random_graphs

compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

#: How the same files are compiled: bits must not depend on it.
FLAGS = (("-O0",), ("-O2", "-march=native"), ("-Os", "-DAP_PLAIN", "-DAP_SOFT_ROOT"))


def planned(graph: TrainableGraph, **options: object) -> Plan:
    asked = PlanOptions(target="c", **options)  # type: ignore[arg-type]  # options by name
    return plan_requested(graph, RequestedOptions(asked))


@compiles
@pytest.mark.parametrize(
    "name", some(["lenet5", "multi_loss", "lstm_classifier"], beside=["transfer", "autoencoder"])
)
def test_gallery_networks_train(name: str, tmp_path: Path) -> None:
    graph = GALLERY[name].model().graph
    made = planned(graph)
    folder = written(graph, made, tmp_path)
    batches = [synthetic_batch(graph, 0, step) for step in range(2)]
    programs = [CProgram(folder, *flags) for flags in FLAGS]
    losses = [[program.step(graph, batch) for batch in batches] for program in programs]
    assert losses[1:] == losses[:-1]
    assert len({program.hash() for program in programs}) == 1
    with Trainer(graph, plan_requested(graph)) as trainer:
        expected = [trainer.step(batch) for batch in batches]
        np.testing.assert_allclose(losses[0], expected, rtol=2e-5)
        for weight in graph.trainable:
            read = programs[0].read(made, weight)
            np.testing.assert_allclose(read, trainer.read(weight), rtol=1e-3, atol=1e-4)


@compiles
@pytest.mark.parametrize(
    "options",
    [
        {"update": "end"},
        {"capacity": 2_100_000},
    ],
)
def test_plans_of_one_graph_leave_the_same_bits(options: dict[str, object], tmp_path: Path) -> None:
    graph = GALLERY["lenet5"].model().graph
    usual, other = planned(graph), planned(graph, **options)
    assert usual.program != other.program
    hashes = []
    for k, made in enumerate((usual, other)):
        program = CProgram(written(graph, made, tmp_path / str(k)), "-O2")
        for step in range(2):
            program.step(graph, synthetic_batch(graph, 0, step))
        hashes.append([program.read(made, weight).tobytes() for weight in graph.trainable])
    assert hashes[0] == hashes[1]


@compiles
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(random_graphs())
def test_random_graphs_train(tmp_path_factory: pytest.TempPathFactory, graph: TrainableGraph) -> None:
    try:
        made = planned(graph)
    except OptionsError:
        return  # accumulation and clipping with rules that C has no kernel for
    program = CProgram(written(graph, made, tmp_path_factory.mktemp("net")), "-O1")
    with Trainer(graph, plan_requested(graph)) as trainer:
        for step in range(3):
            batch = synthetic_batch(graph, 0, step)
            np.testing.assert_allclose(program.step(graph, batch), trainer.step(batch), rtol=1e-3, atol=1e-5)


@compiles
def test_training_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    graph = GALLERY["transfer"].model().graph
    made = planned(graph)
    program = CProgram(written(graph, made, tmp_path), "-O2").having(made)
    program.step(graph, synthetic_batch(graph, 0, 0))
    state = program.saved()
    program.step(graph, synthetic_batch(graph, 0, 1))
    expected = program.hash()
    program.restart()
    assert program.load(state) == 0
    program.step(graph, synthetic_batch(graph, 0, 1))
    assert program.hash() == expected
    assert program.load(state[:-1]) == 2
    assert program.load(b"X" + state[1:]) == 6
    other = bytearray(state)
    other[20] ^= 1
    assert program.load(bytes(other)) == 3


@compiles
def test_a_flipped_bit_of_a_saved_state_is_refused_wherever_it_is(tmp_path: Path) -> None:
    """Also one that is cut short, or longer; nothing has changed then."""
    graph = chain((3, 2, 2), 1, optimizer="Adam")
    made = planned(graph)
    files = c_files(made, "blob", graph)
    program = CProgram(written(graph, made, tmp_path), "-O2").having(made)
    assert program.load(files["net_weights.bin"]) == 0
    assert program.saved() == files["net_weights.bin"]
    program.step(graph, synthetic_batch(graph, 0, 0))
    state = program.saved()
    program.step(graph, synthetic_batch(graph, 0, 1))
    expected, whole, count = program.saved(), int.from_bytes(state, "little"), len(state)
    codes = {program.load((whole ^ 1 << bit).to_bytes(count, "little")) for bit in range(8 * count)}
    assert codes == {3, 6, 10}
    assert all(program.load(state[:size]) for size in range(count))
    assert program.load(state + b"\0")
    assert program.saved() == expected
    assert program.load(state) == 0
    assert program.saved() == state


def literals() -> TrainableGraph:
    """Tokens by number; numbers, a mask and a table that are constants; a normalisation with statistics."""
    s = Sketch("literals")

    def numbers(name: str, values: Array) -> str:
        first = Initializer("values", data=values.astype(np.float32).tobytes())
        return s.add(name, Role.CONSTANT, values.shape, initializer=first)

    def weight(name: str, *shape: int) -> str:
        return s.parameter(
            name, *shape, initializer=Initializer("values", data=normal(*shape, dtype="float32").tobytes())
        )

    tokens = s.add("tokens", Role.INPUT, (2, 4), dtype=DType.INT64)
    table = s.op("Gather", [weight("table", 5, 6), tokens], "embedded")
    h = s.op("Add", [table, numbers("positions", np.sin(np.arange(24.0)).reshape(4, 6))], "placed")
    scores = s.op("MatMul", [h, s.op("Transpose", [h], "turned", perm=(0, 2, 1))], "scores")
    scores = s.op("Mul", [scores, numbers("scale", np.array(0.4))], "scaled")
    scores = s.op("Add", [scores, numbers("mask", np.triu(np.full((4, 4), -1e9), 1))], "masked")
    h = s.op("MatMul", [s.op("Softmax", [scores], "attention"), h], "seen")
    h = s.op("Gemm", [s.op("Reshape", [h, s.integers("rows", 8, 6)], "flat"), weight("w", 6, 6)], "wide")
    ones = Initializer("values", data=np.ones(6, np.float32).tobytes())
    normalised = [
        h, s.parameter("gain", 6, initializer=ones), s.parameter("shift", 6),
        s.state("mean", 6), s.state("variance", 6, initializer=ones),
    ]  # fmt: skip
    h = s.op("BatchNormalization", normalised, "normal", training_mode=1)
    h = s.op(
        "Mul", [h, s.add("two", Role.CONSTANT, (), initializer=Initializer("constant", value=2.0))], "doubled"
    )
    labels = s.op("Reshape", [s.label("labels", 2, 4, dtype=DType.INT32), s.integers("all", 8)], "row")
    s.op("CategoricalCrossEntropy", [h, labels], "loss", from_logits=1, sparse=1, ignore_index=-100)
    return s.graph(optimizer="Adam")


_FLASH = """#include "kernels/ap.h"
#include "net.h"
static unsigned char flash[1 << 20];
void net_page_in(int k, uint32_t at, void *to, uint32_t bytes) { (void)k, ap_copy(to, flash + at, bytes); }
void net_page_out(int k, uint32_t at, const void *from, uint32_t bytes)
{
    (void)k, ap_copy(flash + at, from, bytes);
}
"""


@compiles
@pytest.mark.parametrize("tiers", [(), (Tier("sram", 3200), Tier("flash", 2**20, 10**8, 10**8))])
def test_without_first_values_constants_are_in_the_code(tiers: tuple[Tier, ...], tmp_path: Path) -> None:
    """Of a plan document alone. What is no weight needs no writing: statistics and scales."""
    graph = literals()
    made = load_plan(dump_plan(planned(graph, tiers=tiers)))
    folder = written(None, made, tmp_path, "none")
    (folder / "net_flash.c").write_text(_FLASH if tiers else "", encoding="ascii")
    program = CProgram(folder, "-O2")
    with Trainer(graph, plan_requested(graph)) as trainer:
        for name in ("table", "w"):
            assert program.write(name, trainer.read(name)) == 0
        for name in ("scale", "mask", "positions", "two"):
            assert program.write(name, trainer.read(name)) == 1
        for step in range(4):
            batch = synthetic_batch(graph, 0, step)
            assert program.step(graph, batch) == pytest.approx(trainer.step(batch), rel=1e-5)
    header = c_files(made, "none")["net.h"].decode()
    for line in ('"gain" float [6], 1', '"variance" float [6], 1', '"mean" float [6]\n'):
        assert line in header


def test_a_constant_that_the_plan_does_not_list_is_asked_for() -> None:
    """As in plans of earlier versions."""
    graph = literals()
    document = json.loads(dump_plan(planned(graph)))
    del document["constants"]
    old = load_plan(json.dumps(document).encode())
    assert old == planned(graph)
    with pytest.raises(OptionsError, match=r"constant '.*' is in the graph, not in the plan") as caught:
        c_files(old, "none")
    assert "--model" in caught.value.remedy
    assert c_files(old, "none", graph) == c_files(planned(graph), "none")


@compiles
def test_integers_out_of_range_are_not_fed(tmp_path: Path) -> None:
    """Indices count from the end, too; labels may be ignored. A macro takes the check out."""
    graph = literals()
    folder = written(graph, planned(graph), tmp_path)
    program, unchecked = CProgram(folder, "-O2"), CProgram(folder, "-O2", "-DNET_UNCHECKED")
    loss = program.step(graph, synthetic_batch(graph, 0, 0))
    hash_ = program.hash()
    for name, dtype, right, wrong in (
        ("tokens", np.int64, (-5, 4), (-6, 5, 2**32)),
        ("labels", np.int32, (0, 5, -100), (-1, 6, -101)),
    ):
        for value in (*right, *wrong):
            values = np.full((2, 4), right[0], dtype)
            values[1, 3] = value
            assert program.feed(name, values) == (0 if value in right else 9)
            assert unchecked.feed(name, values) == 0
    assert program.hash() == hash_
    program.restart()
    assert program.step(graph, synthetic_batch(graph, 0, 0)) == loss


@compiles
def test_an_index_that_the_network_computes_ends_the_step(tmp_path: Path) -> None:
    s = Sketch("computed")
    index = s.op("Cast", [s.input("x", 3)], "index", to=7)
    h = s.op("Gather", [s.parameter("w", 5, 2), index], "h")
    s.op("MeanSquaredError", [h, s.label("t", 3, 2)], "loss")
    graph = s.graph()
    program = CProgram(written(graph, planned(graph), tmp_path), "-O2")
    batch = {"x": np.array([0, -5, 4]), "t": np.zeros((3, 2))}
    assert program.step(graph, batch) > 0
    hash_ = program.hash()
    assert np.isnan(program.step(graph, batch | {"x": np.array([0, 1, 5])}))
    assert program.hash() == hash_
    with Trainer(graph, planned(graph), kernels="c") as trainer:
        trainer.step(batch)
        with pytest.raises(GraphError, match=r"An index of operation 'h\.op' is out of range"):
            trainer.step(batch | {"x": np.array([0, -6, 4])})
        with pytest.raises(PlanError, match="cut short"):
            trainer.step(batch)


@compiles
def test_contracted_arithmetic_is_found_out(tmp_path: Path) -> None:
    graph = GALLERY["lenet5"].model().graph
    folder = written(graph, planned(graph), tmp_path)
    hashes = {CProgram(folder, *flags).self_hash() for flags in FLAGS}
    assert len(hashes) == 1
    if "fma" in Path("/proc/cpuinfo").read_text(encoding="ascii"):
        contracted = CProgram(folder, "-O2", "-mfma", "-ffp-contract=fast")
        assert contracted.self_hash() not in hashes


def test_the_same_plan_gives_the_same_bytes() -> None:
    graph = GALLERY["transfer"].model().graph
    assert c_training_files(planned(graph)) == c_training_files(planned(graph))


def test_a_plan_of_another_target_is_refused() -> None:
    made = plan(GALLERY["transfer"].model().graph)
    with pytest.raises(OptionsError, match="is for target 'reference'") as caught:
        c_training_files(made)
    assert "--target c" in caught.value.remedy


def test_operators_without_a_kernel_are_named_at_once() -> None:
    s = Sketch("odd")
    h = s.op("Sin", [s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 3, 3)], "h")], "e")
    s.op("MeanSquaredError", [s.op("Cos", [h], "f"), s.label("t", 2, 3)], "loss")
    with pytest.raises(OptionsError, match=r"no kernel for 4 steps: .*Sin.*Cos"):
        planned(s.graph(trainable=["w"]))


def test_work_areas_take_the_place_of_scratch() -> None:
    graph = GALLERY["lenet5"].model().graph
    assert planned(graph).arena_bytes < plan_requested(graph).arena_bytes
    program = planned(graph).program
    names = {b.slot for step in program.steps for b in step.bindings if b.access.word == "scratch"}
    assert names == {"work"}


def test_paged_weights_go_through_two_functions() -> None:
    graph = GALLERY["lenet5"].model().graph
    tiers = (Tier("sram", 2_100_000), Tier("flash", 2**30, 45_000_000, 20_000_000))
    made = plan_requested(graph, RequestedOptions(PlanOptions(target="c", tiers=tiers), automatic=False))
    source = c_training_files(made)["net.c"].decode()
    assert "net_page_out(1, " in source
    assert "net_page_in(1, " in source
    kept = [e for e in made.program.entry if e.kind is EntryKind.CARRIED]
    assert source.count('{"') >= len({e.reference for e in kept})
    assert replace(made, digest="").digest == ""
