"""C that trains: the same bits however it is compiled, and NumPy's results but for last bits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from examples.gallery import GALLERY
from solver.c_training import c_training_files
from solver.errors import OptionsError
from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan, plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import EntryKind, Tier
from tests.support.c_programs import CProgram, written
from tests.support.graphs import Sketch
from tests.support.random_graphs import random_graphs

compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

#: How the same files are compiled: bits must not depend on it.
FLAGS = (("-O0",), ("-O2", "-march=native"), ("-Os", "-DAP_PLAIN", "-DAP_SOFT_ROOT"))


def planned(graph: TrainableGraph, **options: object) -> Plan:
    asked = PlanOptions(target="c", **options)  # type: ignore[arg-type]  # options by name
    return plan_requested(graph, RequestedOptions(asked))


@compiles
@pytest.mark.parametrize("name", ["lenet5", "transfer", "multi_loss", "autoencoder", "lstm_classifier"])
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
