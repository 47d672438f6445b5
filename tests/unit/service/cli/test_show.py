"""What `arenaplan show` prints fits the terminal and says what the plan says."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.cli.show import LETTERS, curve_line, facts, map_lines, render
from solver import pipeline
from solver.graph import TrainingRules
from solver.plan import PlanOptions
from solver.program import Kind, Replacement, Tier
from solver.reports.arenas import MemoryMap, memory_map
from tests.support.graphs import chain, convolutional
from tests.support.plan_views import HandMadePlan
from tests.support.programs import program
from tests.unit.reports.test_arenas import SMALL, A, W, arena, buffer, plan


def test_every_kind_has_a_letter_of_its_own() -> None:
    assert set(LETTERS) == {kind.value for kind in Kind}
    assert len(set(LETTERS.values())) == len(LETTERS)


def test_map() -> None:
    grid = memory_map(SMALL.arenas[0], 4, columns=8, rows=3)
    assert map_lines(grid) == [
        "offset 12",
        "+----+",
        "|.AA.|",
        "|AADD|",
        "|WWWW|",
        "+----+",
        "step 0 4",
    ]


def test_map_of_nothing() -> None:
    assert map_lines(MemoryMap(0, 0, ())) == ["offset 0", "++", "++", "step 0 0"]


def test_curve() -> None:
    assert curve_line((0, 1, 4, 8), 4) == "  ▁▄█"
    assert curve_line((0, 8, 0, 0), 2) == " █ "
    assert curve_line((), 10) == ""
    assert curve_line((0, 0), 10) == ""


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300), st.integers(1, 200))
def test_curve_shows_the_peak_in_any_width(curve: list[int], columns: int) -> None:
    line = curve_line(tuple(curve), columns)
    assert len(line) <= columns + 1
    assert ("█" in line) == (max(curve) > 0)


@pytest.mark.parametrize("width", [40, 60, 80, 132, 200])
def test_everything_fits(capsys: pytest.CaptureFixture[str], width: int) -> None:
    long = plan(
        300,
        arena(
            1 << 30,
            buffer("a_very_long_operand_name." * 6, W, 0, 1 << 29, 0, 300),
            *(buffer(f"operand{n}", A, 1 << 29, 1 << 28, n * 10, n * 10 + 10) for n in range(30)),
        ),
    )
    render(long, width)
    lines = capsys.readouterr().out.splitlines()
    assert max(len(line) for line in lines) <= width
    assert any(set(line) == {"+", "-"} and len(line) == width for line in lines)


@pytest.mark.parametrize(
    ("options", "stage"),
    [
        (PlanOptions(), "greedy"),
        (PlanOptions(), "capacity-search"),
        (PlanOptions(tiers=(Tier("sram", 2**20), Tier("flash", 2**20, 10**6, 10**6))), "greedy"),
    ],
)
def test_no_word_of_the_certificates_is_broken_in_80_columns(
    capsys: pytest.CaptureFixture[str], options: PlanOptions, stage: str
) -> None:
    made = HandMadePlan.of(pipeline.plan(convolutional(1), options))
    arenas = tuple(
        replace(arena, certificate=replace(arena.certificate, solver=f"portfolio/{stage}"))
        for arena in made.arenas
    )
    render(replace(made, arenas=arenas), 80)
    head = capsys.readouterr().out.partition("By kind")[0]
    assert head.count("portfolio/") == head.count(stage) == len(arenas)


def test_few_steps_fill_the_width() -> None:
    grid = memory_map(SMALL.arenas[0], 4, columns=80, rows=3)
    assert map_lines(grid, 3)[2] == "|...AAAAAA...|"
    assert curve_line((0, 8), 80, wide=3) == "    ███"


def test_render(capsys: pytest.CaptureFixture[str]) -> None:
    render(SMALL, 100)
    out = capsys.readouterr().out
    for text in (
        "max-load",
        "14",
        "10 bytes live at step 1 (s1)",
        "deterministic",
        "W parameter",
        "14.3% saved",
    ):
        assert text in out
    assert "not deterministic" not in out


def test_several_arenas(capsys: pytest.CaptureFixture[str]) -> None:
    both = plan(2, arena(4, buffer("w", W, 0, 4, 0, 2)), arena(0, name="empty"))
    render(both, 80)
    assert capsys.readouterr().out.count("live at the peak") == 1


def test_facts() -> None:
    found = facts(SMALL)
    assert found["bytes_without_reuse"] == 14
    assert found["kinds"][0] == {"kind": "parameter", "buffers": 1, "bytes": 4, "peak": 4}
    (one,) = found["arenas"]
    assert one["live_curve"] == [8, 10, 10, 8]
    assert one["live_at_peak"][0] == {"operand": "a", "kind": "activation", "bytes": 4}
    assert (one["bytes"], one["lower_bound"], one["proof"]) == (12, 12, "max-load")


def test_facts_say_when_memory_is_taken_and_given_back() -> None:
    found = facts(SMALL)["recycling"]
    assert [step["live_bytes"] for step in found["steps"]] == [8, 10, 10, 8]
    assert set(found) == {"before", "kept", "steps"}
    assert set(found["steps"][0]) == {"id", "allocated", "freed", "live_bytes"}


@pytest.mark.parametrize("width", [40, 80, 132])
def test_levels_are_shown(capsys: pytest.CaptureFixture[str], width: int) -> None:
    made = pipeline.plan(chain(), PlanOptions(parallelism=2))
    render(made, width)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    text = " ".join(out.split())
    assert "parallelism 2: 12 steps on 7 levels, at most 2 at the same time" in text
    assert "level 0" in text
    found = facts(made)
    assert found["levels"]["sequential_bytes"] <= found["lower_bound"]
    assert len(found["arenas"][0]["live_curve"]) == 7
    assert facts(SMALL)["levels"] is None


def test_wrong_plans_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    made = HandMadePlan.of(pipeline.plan(chain(), PlanOptions(parallelism=2)))
    far = tuple(replace(step, level=10**18) for step in made.steps)
    for steps in ((), made.steps[:3], far):
        wrong = replace(made, steps=steps)
        facts(wrong)
        render(wrong, 80)
    assert "1,088 bytes" in capsys.readouterr().out


@pytest.mark.parametrize("operations", [3, 60])
def test_what_a_program_takes_and_gives_back(capsys: pytest.CaptureFixture[str], operations: int) -> None:
    """All operations of a short program, the first of a long one."""
    made = pipeline.plan_program(program([(f"a{t}", f"a{t + 1}") for t in range(operations)]))
    render(made, 100)
    out = capsys.readouterr().out
    assert "Allocation and recycling" in out
    assert len(re.findall(r"│ op\d", out)) == min(operations, 40)
    assert ("20 more" in out) == (operations == 60)


def test_what_keeps_gradients_alive_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    made = pipeline.plan(chain(training=TrainingRules(clip_global_norm=1.0)))
    render(made, 100)
    assert "All gradients live until ClipByGlobalNorm" in capsys.readouterr().out
    assert len(facts(made)["gradients"]) == 1


@pytest.mark.parametrize("target", pipeline.TARGETS)
def test_plans_of_other_runtimes_say_what_is_proved(capsys: pytest.CaptureFixture[str], target: str) -> None:
    made = pipeline.plan(chain(), PlanOptions(target=target))
    render(made, 132)
    text = " ".join(capsys.readouterr().out.split())
    said = f"proved under {target}'s own model of steps and lifespans; its kernels are not run here."
    foreign = not pipeline.TARGETS[target].capabilities.trains
    assert (said in text) == foreign
    assert (facts(made)["target_note"] is not None) == foreign


def test_programs_of_the_caller_are_not_of_another_runtime() -> None:
    assert facts(pipeline.plan_program(program([("", "a"), ("a", "")])))["target_note"] is None


@pytest.mark.parametrize("width", [40, 80, 132])
def test_what_was_rewritten(capsys: pytest.CaptureFixture[str], width: int) -> None:
    one = Replacement("drop-dead-code", tuple(f"[red]operation{n}" for n in range(20)), (), 0, 9000, 8000)
    rest = [
        replace(one, rule="fuse-bias", into=("product",), group=n, bytes_after=7000) for n in range(1, 60)
    ]
    made = replace(SMALL, replacements=(one, *rest))
    render(made, width)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    assert "Rewritten: bound 9,000 -> 7,000" in " ".join(out.split())
    assert len(facts(made)["replacements"]) == 60
    if width == 132:
        assert "[red]operation0" in out
        assert "12 more" in out
        assert "20 more" in out


def test_what_is_in_place_is_a_fact_for_scripts() -> None:
    graph = convolutional()
    assert facts(pipeline.plan(graph))["in_place"] == {"values": 0, "views": 0, "size": 0}
    found = facts(pipeline.plan(graph, PlanOptions(in_place=True)))["in_place"]
    assert (found["values"], found["views"]) == (2, 2)
    assert found["size"] == 2 * 128
