"""`arenaplan costs` and `--costs`: files that are written, edited and planned with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from solver.documents import dump_costs, dump_graph, load_costs, load_plan
from solver.pipeline import modelled_costs
from solver.plan import PlanOptions
from solver.training import derive
from tests.support import commands
from tests.support.graphs import chain
from tests.support.onnx_models import perceptron

GRAPH = chain((16,) * 7, batch=64)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "graph.json"
    path.write_bytes(dump_graph(GRAPH))
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(perceptron().SerializeToString())
    return path


def dump_modelled() -> bytes:
    return dump_costs(modelled_costs(GRAPH, PlanOptions()))


def run(*words: object) -> tuple[int, str]:
    done = commands.run(*words)
    return done.exit_code, done.output


def test_measured_costs_name_every_step(graph: Path, tmp_path: Path) -> None:
    code, printed = run("costs", graph, "--repeats", 1, "-o", tmp_path / "costs.json")
    assert code == 0
    found = load_costs((tmp_path / "costs.json").read_bytes())
    assert [label for label, _ in found.nanoseconds] == list(derive(GRAPH).step_labels)
    assert f"{len(found.nanoseconds)} steps" in printed
    assert "median of 1" in printed


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--rewrite", "--parallelism", "3"),
        ("--storage", "bfloat16", "--update", "end"),
        ("--only", "in-place,fit-scratch", "--capacity", "20kB", "--rewrite"),
        ("--trainable", "last:1", "--weights", "none"),
        ("--only", "recompute,order", "--capacity", "20kB"),
        ("--tier", "fast=20kB", "--tier", "slow=1MiB,bandwidth=1GB/s", "--alignment", "128"),
    ],
)
@pytest.mark.parametrize("more", [(), ("--roofline",)])
def test_costs_of_a_model_plan_it_under_the_same_options(
    model: Path, tmp_path: Path, options: tuple[str, ...], more: tuple[str, ...]
) -> None:
    words = (model, "--loss", "mse", "--optimizer", "adam,beta1=0.8", "--dim", "n=8", *options)
    costs, made = tmp_path / "costs.json", tmp_path / "plan.json"
    code, printed = run("costs", *words, "--repeats", 1, *more, "-o", costs)
    assert code == 0, printed
    code, printed = run("plan", *words, "--costs", costs, "-o", made)
    assert code == 0, printed
    assert load_plan(made.read_bytes()).options.costs == load_costs(costs.read_bytes())


def test_the_roofline_as_a_file_plans_as_no_file_does(graph: Path, tmp_path: Path) -> None:
    costs = tmp_path / "costs.json"
    assert run("costs", graph, "--roofline", "-o", costs)[0] == 0
    assert load_costs(costs.read_bytes()) == modelled_costs(GRAPH, PlanOptions())
    words = ("plan", graph, "--capacity", "35kB", "--only", "recompute", "-o", tmp_path / "plan.json")
    assert run(*words)[0] == 0
    plain = load_plan((tmp_path / "plan.json").read_bytes())
    assert run(*words, "--costs", costs)[0] == 0
    given = load_plan((tmp_path / "plan.json").read_bytes())
    assert given.program == plain.program
    assert given.records == plain.records
    assert run(*words, "--costs", "roofline")[0] == 0
    assert load_plan((tmp_path / "plan.json").read_bytes()) == plain


def test_costs_decide_what_runs_again(graph: Path, tmp_path: Path) -> None:
    costs, made = tmp_path / "costs.json", tmp_path / "plan.json"
    run("costs", graph, "--roofline", "-o", costs)
    again = {}
    for dear in ("fc2", "fc3"):
        document = json.loads(costs.read_bytes())
        document["nanoseconds"][f"{dear}:forward"] = 10**9
        (tmp_path / "dear.json").write_text(json.dumps(document))
        words = ("--capacity", "35kB", "--only", "recompute", "--costs", tmp_path / "dear.json")
        assert run("plan", graph, *words, "-o", made)[0] == 0
        plan = load_plan(made.read_bytes())
        again[dear] = {s.id.split(":")[0] for s in plan.steps if s.again}
    assert again
    assert all(dear not in repeated for dear, repeated in again.items())


def test_measuring_while_planning_keeps_the_figures(graph: Path, tmp_path: Path) -> None:
    made = tmp_path / "plan.json"
    words = ("plan", graph, "--capacity", "35kB", "--only", "recompute", "-o", made)
    assert run(*words, "--costs", "measured")[0] == 0
    costs = load_plan(made.read_bytes()).options.costs
    assert costs is not None
    assert "measured" in costs.about


@pytest.mark.parametrize("command", ["tradeoff", "explain"])
def test_curves_and_verdicts_take_costs(graph: Path, tmp_path: Path, command: str) -> None:
    costs = tmp_path / "costs.json"
    document = json.loads(dump_modelled())
    document["nanoseconds"] = dict.fromkeys(document["nanoseconds"], 1_000_000)
    costs.write_text(json.dumps(document))
    more = ("--capacity", "30kB") if command == "explain" else ("--points", "2")
    code, printed = run(command, graph, *more, "--costs", costs, "--json")
    assert code == 0
    found = json.loads(printed)
    total = found["update_nanoseconds"] if command == "explain" else found["step_nanoseconds"]
    assert total == 1_000_000 * len(document["nanoseconds"])
