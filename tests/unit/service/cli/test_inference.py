"""Inferences on the command line: documents and models without a loss, by every command that takes plans."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from service.cli.console import Exit
from solver import documents
from solver.graph import TrainableGraph, build_graph, inference
from solver.plan import purpose_of_plan
from tests.support.commands import run
from tests.support.graphs import Sketch, convolutional
from tests.support.onnx_models import perceptron


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """The document of a small convolutional network without a loss."""
    path = tmp_path / "graph.json"
    path.write_bytes(documents.dump_graph(inference(convolutional(4))))
    return path


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--as-written",),
        ("--parallelism", "3"),
        ("--only", "in-place,order"),
        ("--tier", "sram=42KiB", "--tier", "flash=1MiB,bandwidth=100MB/s"),
        ("--storage", "bfloat16"),
    ],
)
def test_plans_are_proved_and_run_beside_separate_memory(
    graph: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    made = run("plan", graph, *options, "-o", tmp_path / "plan.json")
    assert made.exit_code == Exit.OK, made.output
    assert purpose_of_plan(documents.load_plan((tmp_path / "plan.json").read_bytes())) == "infer"
    done = run("validate", graph, tmp_path / "plan.json", "--steps", "2")
    assert done.exit_code == Exit.OK, done.output
    assert "tensors agree bit for bit after each of 2 inferences" in done.output
    assert "loss" not in done.output
    once = run("validate", graph, tmp_path / "plan.json", "--steps", "1")
    assert "bit for bit after 1 inference in" in once.output
    report = run("validate", graph, tmp_path / "plan.json", "--steps", "2", "--json")
    assert [step["loss"] for step in json.loads(report.stdout)["steps"]] == [None, None]


def test_every_command_takes_a_plan_of_an_inference(graph: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    assert run("plan", graph, "-o", plan).exit_code == Exit.OK
    for command, words in (
        (("show", plan), "A activation"),
        (("report", plan, "-o", tmp_path / "page.html"), ""),
        (("export", plan, "-o", tmp_path / "plan.h"), ""),
        (("export", plan, "-o", tmp_path / "plan.trace.json"), ""),
        (("offsets", plan), "activation,float32"),
        (("diff", plan, plan), ""),
        (("costs", graph, "-o", tmp_path / "costs.json"), ""),
        (("tradeoff", graph), "proved for every order"),
        (("explain", graph, "--capacity", "1MB"), "fits"),
    ):
        done = run(*command)
        assert done.exit_code == Exit.OK, done.output
        assert words in done.stdout
    assert "the memory of one inference." in (tmp_path / "plan.h").read_text(encoding="utf-8")


def skipping() -> TrainableGraph:
    """A value of a narrow input is added to what wider layers make of it."""
    s = Sketch("skipping")
    widths = (256, 512, 512, 512, 256)
    h = early = s.op("MatMul", [s.input("x", 32, 4), s.parameter("w", 4, 256)], "early")
    for k, (a, b) in enumerate(pairwise(widths)):
        h = s.op("Tanh", [s.op("MatMul", [h, s.parameter(f"w{k}", a, b)], f"h{k}")], f"a{k}")
    s.op("Add", [h, early], "y")
    return build_graph(s.name, s.operands, s.operations, loss=None, optimizer=None, outputs=["y"])


def test_steps_run_again_for_a_capacity(tmp_path: Path) -> None:
    path, plan = tmp_path / "graph.json", tmp_path / "plan.json"
    path.write_bytes(documents.dump_graph(skipping()))
    assert run("plan", path, "-o", plan).exit_code == Exit.OK
    whole = documents.load_plan(plan.read_bytes()).arena_bytes
    assert run("plan", path, "--capacity", str(whole - 28 * 1024), "-o", plan).exit_code == Exit.OK
    assert any(documents.load_plan(plan.read_bytes()).program.runs)
    assert run("validate", path, plan).exit_code == Exit.OK


def test_run_writes_the_outputs(tmp_path: Path) -> None:
    model, plan = tmp_path / "model.onnx", tmp_path / "plan.json"
    onnx.save(perceptron(), model)
    assert run("plan", model, "--dim", "n=3", "-o", plan).exit_code == Exit.OK
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    np.savez(tmp_path / "batch.npz", x=x)
    choices = ("--graph", model, "--dim", "n=3", "--input", tmp_path / "batch.npz")
    done = run("run", plan, *choices, "-o", tmp_path / "out.npz")
    assert done.exit_code == Exit.OK, done.output
    (expected,) = ReferenceEvaluator(perceptron()).run(["y"], {"x": x})
    with np.load(tmp_path / "out.npz") as written:
        np.testing.assert_allclose(written["y"], np.asarray(expected), rtol=1e-5)
