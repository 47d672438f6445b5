"""Gates for builds: what grew, what keeps its budget, in every form, with the exit code for a build."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from service.cli import gates
from service.cli.console import Exit
from solver import pipeline
from solver.errors import OptionsError
from solver.plan import Deployment, PlanOptions, PlanView
from solver.reports.budget import Allowance
from solver.reports.comparison import deployment_difference
from tests.support.entry_points import requested, small_deployment, trained_and_used
from tests.support.graphs import chain
from tests.unit.reports.test_arenas import A, arena, buffer, plan

OLD = plan(2, arena(100, buffer("a", A, 0, 100, 0, 2)))
NEW = plan(2, arena(150, buffer("a", A, 0, 110, 0, 2), buffer("b|`*", A, 110, 40, 1, 2)))


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
