"""Gates for builds: what grew, what keeps its budget, in every form, with the exit code for a build."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from service.cli import gates
from service.cli.console import Exit
from solver import documents, pipeline
from solver.errors import OptionsError
from solver.plan import Deployment, Plan, PlanOptions, PlanView
from solver.reports.budget import Allowance
from solver.reports.comparison import deployment_difference
from tests.support.entry_points import requested, small_deployment, trained_and_used
from tests.support.graphs import chain, convolutional
from tests.support.onnx_models import perceptron
from tests.unit.reports.test_arenas import A, arena, buffer, plan

OLD = plan(2, arena(100, buffer("a", A, 0, 100, 0, 2)))
NEW = plan(2, arena(150, buffer("a", A, 0, 110, 0, 2), buffer("b|`*", A, 110, 40, 1, 2)))


@pytest.fixture(scope="module")
def made() -> Plan:
    return pipeline.plan(convolutional(1))


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        (None, Exit.OK),
        (Allowance(share=0.5), Exit.OK),
        (Allowance(share=0.49), Exit.TOO_LARGE),
        (Allowance(bytes=50), Exit.OK),
        (Allowance(bytes=49), Exit.TOO_LARGE),
    ],
)
def test_growth_is_allowed_or_not(tmp_path: Path, allowed: Allowance | None, code: Exit) -> None:
    assert gates.diff(OLD, NEW, allowed, "text", tmp_path / "out") is code
    assert gates.diff(NEW, OLD, Allowance(bytes=0), "text", tmp_path / "out") is Exit.OK


def written(tmp_path: Path, form: str, old: PlanView = OLD, new: PlanView = NEW) -> str:
    gates.diff(old, new, Allowance(bytes=10), form, tmp_path / "out")
    return (tmp_path / "out").read_text(encoding="utf-8")


def test_text(tmp_path: Path) -> None:
    lines = written(tmp_path, "text").splitlines()
    assert lines[0] == "test: 100 -> 150 bytes (+50, +50.00 %); more than the 10 bytes that it may grow"
    assert "operand  at the peak before  after  growth" in lines
    assert "b|`*                      0     40     +40" in lines
    assert "activation                 100    150     +50" in lines
    assert written(tmp_path, "text", OLD, OLD).startswith("test: 100 bytes, as before; within")


def test_json(tmp_path: Path) -> None:
    found = json.loads(written(tmp_path, "json"))
    assert (found["growth"], found["share"], found["limit"], found["passed"]) == (50, 0.5, 110, False)
    assert found["operands"] == [
        {"name": "b|`*", "before": 0, "after": 40},
        {"name": "a", "before": 100, "after": 110},
    ]
    assert json.loads(written(tmp_path, "json", plan(0), OLD))["share"] is None


def test_markdown(tmp_path: Path) -> None:
    """Names that look like Markdown stay names."""
    text = written(tmp_path, "markdown")
    assert "### ❌ Memory of test" in text
    assert "| arena | 100 | 150 | +50 | s1 |" in text
    assert "| b\\|\\`\\* | 0 | 40 | +40 |" in text
    assert text.count("<details>") == text.count("</details>") == 3


def test_junit(tmp_path: Path) -> None:
    suite = ElementTree.fromstring(written(tmp_path, "junit")).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert "more than the 10 bytes" in str(failure.get("message"))
    odd = replace(NEW, graph="a\x00<b>\ud800")
    name = ElementTree.fromstring(written(tmp_path, "junit", OLD, odd)).find("testsuite/testcase")
    assert name is not None
    assert name.get("name") == "test -> a�<b>�"  # the networks of both plans


def test_an_unknown_format() -> None:
    with pytest.raises(OptionsError, match=r"no format 'xml'.*text, json, markdown, junit"):
        gates.format_of("xml", as_json=False)
    assert gates.format_of(None, as_json=True) == "json"


# ------------------------------------------------------------------------------------------- budgets


@pytest.fixture
def folder(tmp_path: Path, made: Plan) -> Path:
    (tmp_path / "net.json").write_bytes(documents.dump_graph(convolutional(1)))
    (tmp_path / "plan.json").write_bytes(documents.dump_plan(made))
    return tmp_path


def judged(folder: Path, budgets: str, form: str = "json") -> tuple[Exit, str]:
    file = folder / "budgets.toml"
    file.write_text(budgets, encoding="utf-8")
    code = gates.check_budgets(file, form, folder / "out")
    return code, (folder / "out").read_text(encoding="utf-8")


def test_a_model_and_a_plan(folder: Path, made: Plan) -> None:
    size = made.arena_bytes
    code, text = judged(
        folder,
        f"""
        [[budget]]
        model = "net.json"
        max_arena = {size}
        max_recompute = "0%"
        baseline = "plan.json"
        max_growth = 0
        [[budget]]
        name = "as planned"
        plan = "plan.json"
        max_spaces = {{ arena = {size - 1}, flash = 0 }}
        """,
    )
    first, second = json.loads(text)["budgets"]
    assert code is Exit.TOO_LARGE
    assert (first["name"], first["passed"], len(first["checks"])) == ("net", True, 3)
    assert (second["name"], second["passed"]) == ("as planned", False)
    assert [check["passed"] for check in second["checks"]] == [False, True]


def test_options_of_all_and_of_one(folder: Path, made: Plan) -> None:
    budgets = """
        options = { alignment = 1024 }
        [[budget]]
        model = "net.json"
        max_arena = "1GiB"
        [[budget]]
        model = "net.json"
        options = { alignment = 64 }
        max_arena = "1GiB"
        """
    code, text = judged(folder, budgets)
    first, second = (one["arena_bytes"] for one in json.loads(text)["budgets"])
    assert code is Exit.OK
    assert first > second == made.arena_bytes


def test_a_capacity_that_is_too_small_breaks_the_budget(folder: Path) -> None:
    budgets = '[[budget]]\nmodel = "net.json"\nmax_arena = 99999\noptions = { capacity = 100 }'
    code, text = judged(folder, budgets, "junit")
    assert code is Exit.TOO_LARGE
    assert 'failures="1" errors="0"' in text


def test_what_cannot_be_planned_is_an_error_and_the_others_are_judged(folder: Path) -> None:
    budgets = """
        [[budget]]
        model = "nothing.json"
        max_arena = 1
        [[budget]]
        plan = "net.json"
        max_arena = 1
        [[budget]]
        plan = "plan.json"
        max_arena = "1GB"
        """
    code, text = judged(folder, budgets, "text")
    assert code is Exit.USAGE
    lines = text.splitlines()
    assert lines[0].startswith("FAIL nothing  ")
    assert lines[0].endswith("No such file or directory.")
    assert "not 'arenaplan.plan'" in lines[1]
    assert lines[2].startswith("ok   plan ")
    assert lines[3] == "1 of 3 keep their budgets"


def test_budgets_for_a_pull_request(folder: Path) -> None:
    budgets = '[[budget]]\nplan = "plan.json"\nname = "a|b"\nmax_arena = "{}"'
    _, kept = judged(folder, budgets.format("1MiB"), "markdown")
    assert kept.startswith("### Memory budgets: all are kept\n")
    assert "| ✅ | a\\|b |" in kept
    _, broken = judged(folder, budgets.format("1kB"), "markdown")
    assert broken.startswith("### Memory budgets: 1 of 1 broken\n")


@pytest.mark.parametrize(
    ("training", "code"),
    [
        ('{ loss = "mse", optimizer = "adam", dim = ["n=4"] }', Exit.OK),
        ('{ loss = "mse", dim = "n=4", learning_rate = 0.1, class_axis = 1 }', Exit.OK),
        ("{}", Exit.USAGE),
        ('{ loss = "mse", dim = 4 }', Exit.USAGE),
        ('{ loss = "mse", dim = ["n=4"], optimiser = "adam" }', Exit.USAGE),
    ],
)
def test_models_of_other_tools(tmp_path: Path, training: str, code: Exit) -> None:
    (tmp_path / "model.onnx").write_bytes(perceptron().SerializeToString())
    budgets = tmp_path / "budgets.toml"
    budgets.write_text(f'[[budget]]\nmodel = "model.onnx"\ntraining = {training}\nmax_arena = "1MB"\n')
    assert gates.check_budgets(budgets, "json", tmp_path / "out") is code
    found = json.loads((tmp_path / "out").read_text())["budgets"][0]
    assert found["passed"] is (code is Exit.OK)
    assert bool(found["error"]) is (code is not Exit.OK)


# -------------------------------------------------------------------------------------- entry points


@pytest.fixture(scope="module")
def several() -> Deployment:
    return small_deployment()


def grown() -> Deployment:
    """Another batch for training, and no evaluation."""
    trained = requested("train", chain((8, 6, 4), 9, optimizer="Adam"), options=PlanOptions(batch=9))
    used = requested("infer", chain((8, 6, 4), 1, optimizer="Adam"), "infer", options=PlanOptions(batch=1))
    return pipeline.plan_deployment("net", [trained, used])


def test_growth_of_the_arena_and_of_one_entry_point(tmp_path: Path, several: Deployment) -> None:
    new, out = grown(), tmp_path / "out"
    growth = new.arena_bytes - several.arena_bytes
    assert growth > 0
    assert gates.diff(several, new, Allowance(bytes=growth), "text", out) is Exit.OK
    assert gates.diff(several, new, Allowance(bytes=growth - 1), "text", out) is Exit.TOO_LARGE
    assert gates.diff(several, new, Allowance(bytes=0), "text", out, "infer") is Exit.OK
    assert gates.diff(several, new, Allowance(bytes=0), "text", out, "train") is Exit.TOO_LARGE
    with pytest.raises(OptionsError, match="no entry point 'evaluate'"):
        gates.diff(several, new, None, "text", out, "evaluate")


def test_entry_points_that_came_went_and_grew(tmp_path: Path, several: Deployment) -> None:
    out = tmp_path / "out"
    new = grown()
    gates.diff(several, new, None, "text", out)
    text = out.read_text(encoding="utf-8")
    before, after = (f"{one['train'].plan.arena_bytes:,}" for one in (several, new))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert f"train {before} {after} +{new.arena_bytes - several.arena_bytes:,}" in lines
    assert f"evaluate {several['evaluate'].plan.arena_bytes:,} - gone" in lines
    assert f"entry point train: {before} -> {after} bytes" in text
    assert "entry point infer:" not in text, "nothing of it has changed"
    gates.diff(new, several, None, "text", out)
    assert f"evaluate - {several['evaluate'].plan.arena_bytes:,} new" in " ".join(out.read_text().split())
    gates.diff(several, new, None, "json", out)
    facts = json.loads(out.read_text())
    assert [one["name"] for one in facts["entry_points"]] == ["train", "infer", "evaluate"]
    assert facts["persistent_moves"] == []
    gates.diff(several, new, Allowance(bytes=0), "markdown", out)
    page = out.read_text(encoding="utf-8")
    assert page.startswith("### ❌ Memory of net\n")
    assert f"| train | {before} | {after} |" in page
    assert "#### Entry point train" in page
    gates.diff(several, new, Allowance(bytes=0), "junit", out)
    assert out.read_text().count("<testcase") == 1


def test_persistent_values_that_moved(tmp_path: Path, several: Deployment) -> None:
    out = tmp_path / "out"
    other = trained_and_used(chain((8, 3, 4), 6, optimizer="Adam"), "train", "infer")
    moves = deployment_difference(several, other).moves
    gates.diff(several, other, None, "text", out)
    lines = [" ".join(line.split()) for line in out.read_text().splitlines()]
    for move in moves[:12]:
        assert move.before is not None
        assert move.after is not None
        assert f"{move.name} {move.before[1]:,} in arena {move.after[1]:,} in arena {move.nbytes:,}" in lines
    gates.diff(several, several, None, "text", out)
    assert "Every persistent value lies where it was." in out.read_text()
    gates.diff(several, other, None, "markdown", out)
    assert f"<summary>{len(moves)} persistent values have another place</summary>" in out.read_text()


def test_plans_of_other_networks_are_both_named(tmp_path: Path, several: Deployment) -> None:
    out = tmp_path / "out"
    graph = chain((8, 3, 4), 6, optimizer="Adam")
    other = pipeline.plan_deployment("other", [requested("train", graph, model="other")])
    gates.diff(several, other, None, "text", out)
    assert out.read_text().startswith(f"net -> other: {several.arena_bytes:,} -> {other.arena_bytes:,} bytes")
    gates.diff(several, other, None, "markdown", out)
    assert out.read_text(encoding="utf-8").startswith("### Memory of net -\\> other\n")
    gates.diff(several, other, None, "json", out)
    assert json.loads(out.read_text())["graph"] == "other"


def test_one_plan_has_entry_points_and_the_other_none(tmp_path: Path, several: Deployment) -> None:
    with pytest.raises(OptionsError, match="Add --entry-point train to compare"):
        gates.diff(several["train"].plan, several, None, "text", tmp_path / "out")
    assert (
        gates.diff(several["train"].plan, several, Allowance(bytes=0), "text", tmp_path / "out", "train")
        is Exit.OK
    )


def test_limits_of_entry_points(tmp_path: Path) -> None:
    """A model that is planned with entries, and a plan that is there, are judged alike."""
    graph = chain((8, 6, 4), 6, optimizer="Adam")
    several = trained_and_used(graph, "train", "infer")
    (tmp_path / "net.json").write_bytes(documents.dump_graph(graph))
    (tmp_path / "plan.json").write_bytes(documents.dump_deployment(several))
    train, infer = (several[name].plan.arena_bytes for name in ("train", "infer"))
    limits = f"""
        max_arena = {several.arena_bytes}
        max_recompute = "0%"
        max_growth = 0
        baseline = "plan.json"
        [budget.entry_points.train]
        max_arena = {train}
        max_spaces = {{ arena = {train - 1} }}
        [budget.entry_points.infer]
        max_arena = {infer - 1}
        max_growth = "0%"
        """
    entries = 'entries = ["train", "infer"]'
    budgets = f'[[budget]]\nmodel = "net.json"\n{entries}\n{limits}[[budget]]\nplan = "plan.json"\n{limits}'
    code, text = judged(tmp_path, budgets)
    planned, read = json.loads(text)["budgets"]
    assert code is Exit.TOO_LARGE
    assert planned["error"] == read["error"] == ""
    assert planned["checks"] == read["checks"]
    assert [(check["subject"], check["passed"]) for check in read["checks"]] == [
        ("arena", True),
        ("recomputation", True),
        ("arena (growth of at most 0 bytes)", True),
        ("train: arena", True),
        ("train: memory arena", False),
        ("infer: arena", False),
        ("infer: arena (growth of at most 0 %)", True),
    ]
    assert read["arena_bytes"] == several.arena_bytes


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        (
            'plan = "plan.json"\n[budget.entry_points.predict]\nmax_arena = 1',
            "Choose from train, infer, evaluate.",
        ),
        ('plan = "one.json"\n[budget.entry_points.train]\nmax_arena = 1', "its plan is for one program"),
        (
            'plan = "plan.json"\nbaseline = "one.json"\n[budget.entry_points.train]\nmax_growth = 0',
            "its baseline is a plan of one program",
        ),
        ('model = "net.json"\nentries = ["fit"]\nmax_arena = 1', "'fit' is no entry point."),
    ],
)
def test_limits_of_entry_points_that_are_not_there(
    tmp_path: Path, several: Deployment, budget: str, error: str
) -> None:
    (tmp_path / "net.json").write_bytes(documents.dump_graph(chain((8, 6, 4), 6)))
    (tmp_path / "plan.json").write_bytes(documents.dump_deployment(several))
    (tmp_path / "one.json").write_bytes(documents.dump_plan(several["train"].plan))
    code, text = judged(tmp_path, f"[[budget]]\n{budget}")
    assert code is Exit.USAGE
    assert error in json.loads(text)["budgets"][0]["error"]
