"""The summary of a plan: every target has one, and it prints only measures that change something."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from examples.gallery import GALLERY
from service.cli.commands import app
from solver.documents import dump_graph, load_plan
from solver.plan import Plan
from solver.reports.arenas import sharing
from solver.targets import TARGETS

MNIST = Path(__file__).resolve().parents[4] / "examples" / "mnist.json"

#: Plans as written, in place, and within a capacity, of all targets that have them.
CASES = [
    (target, options)
    for target, each in TARGETS.items()
    for options in ("--as-written", "--only in-place", "--capacity 32MB", "--capacity 20MB")
    if (options != "--only in-place" or each.capabilities.in_place)
    and (options != "--capacity 20MB" or target != "onert")
]


@pytest.fixture(scope="module")
def lenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gallery") / "lenet5.json"
    path.write_bytes(dump_graph(GALLERY["lenet5"].model().graph))
    return path


def planned(model: Path, options: Sequence[str], output: Path) -> tuple[Plan, str]:
    """The plan, and its summary on one line."""
    result = CliRunner().invoke(app, ["plan", str(model), *options, "-o", str(output)])
    assert result.exit_code == 0, result.output
    plan = load_plan(output.read_bytes())
    assert isinstance(plan, Plan)
    return plan, " ".join(result.stdout.split())


@pytest.mark.parametrize(("target", "options"), CASES)
def test_every_target_has_a_summary(target: str, options: str, tmp_path: Path) -> None:
    plan, printed = planned(MNIST, [*options.split(), "--target", target], tmp_path / "plan.json")
    assert f"mnist: {plan.arena_bytes:,} bytes" in printed


def test_what_singa_defines_in_place_is_counted(lenet: Path, tmp_path: Path) -> None:
    plan, printed = planned(lenet, ["--target", "singa", "--only", "in-place"], tmp_path / "plan.json")
    shared = sharing(plan)
    assert shared.values
    assert (
        f"in place: {shared.values} values lie in the bytes of others, {shared.views} of them as views"
        in printed
    )
    assert "live bytes become" not in printed  # SINGA's plan is not compared with one of own bytes


def test_the_bytes_that_are_saved_in_place_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "autoencoder.json"
    path.write_bytes(dump_graph(GALLERY["autoencoder"].model().graph))
    assert "3,346,432 live bytes become 3,192,960" in planned(path, [], tmp_path / "plan.json")[1]


def test_what_lowers_no_peak_is_not_printed(tmp_path: Path) -> None:
    plan, printed = planned(MNIST, ["--capacity", "19MB"], tmp_path / "plan.json")
    assert plan.arena_bytes == 18_556_032
    assert "recomputed: 2 steps run again" in printed
    assert "in place" not in printed


@pytest.mark.parametrize(("capacity", "levels"), [("5251648", "22 levels"), ("5000000", "23 levels, 1 more")])
def test_levels_lost_to_the_capacity_are_printed(
    lenet: Path, tmp_path: Path, capacity: str, levels: str
) -> None:
    options = ["--parallelism", "2", "--capacity", capacity]
    printed = planned(lenet, options, tmp_path / "plan.json")[1]
    lost = " than without the capacity" if "more" in levels else ""
    assert f"33 steps on {levels}{lost}, at most 2 at the same time" in printed
