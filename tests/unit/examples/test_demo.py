"""Tests the output of the demonstration, and how it ends; tests/integration runs the whole of it."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.table import Table

from clients import ConnectionFailed
from examples import demo
from examples.local_service import ServiceFailed
from solver.executor import StepReport, ValidationReport
from solver.pipeline import plan
from solver.reports.validation import Violation
from solver.targets.onert import POOLS, Management
from tests.support.graphs import chain


@pytest.fixture(autouse=True)
def _signal_handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def text(table: Table) -> str:
    out = io.StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_plan_table_adds_up() -> None:
    made = plan(chain(optimizer="Adam"))
    shown = text(demo.plan_table(made, 1.234))
    without_reuse = sum(buffer.size for _, buffer in made.buffers())
    for expected in (f"{made.arena_bytes:,}", f"{made.lower_bound:,}", f"{without_reuse:,}", "1.23 s"):
        assert expected in shown
    assert "optimizer variable" in shown
    assert made.arenas[0].certificate.solver in shown


def test_onert_table_has_all_pools_and_sums() -> None:
    stages = {management: demo.onert_bytes(chain(), management) for management in Management}
    shown = text(demo.onert_table(stages))
    assert all(pool in shown for pool in POOLS)
    assert all(f"{sum(sizes):,}" in shown for sizes in stages.values())


def test_steps_table_shows_every_digit_and_what_differs() -> None:
    steps = (
        StepReport(1, 0.1 + 0.2, 0.1 + 0.2, identical=True, differing=()),
        StepReport(2, 0.5, 0.25, identical=False, differing=("w1", "b1")),
    )
    shown = text(demo.steps_table(ValidationReport(steps, (), False, 9, 4096)))
    assert shown.count(repr(0.1 + 0.2)) == 2
    assert "no: w1, b1" in shown
    assert "9 tensors" in shown


def test_training_reports_identity(capsys: pytest.CaptureFixture[str]) -> None:
    graph = chain()
    report = demo.train(Console(width=100), graph, plan(graph))
    assert report.identical
    assert [step.step for step in report.steps] == [1, 2, 3, 4, 5]
    assert "identical to training without shared memory" in capsys.readouterr().out


def test_violations_are_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    graph = chain()
    violation = Violation("overlap", ("a", "b"), "'a' and 'b' share bytes.")
    broken = ValidationReport((), (violation,), False, 0, 64)
    monkeypatch.setattr(demo, "validate", lambda *_, **__: broken)
    demo.train(Console(width=100), graph, plan(graph))
    shown = capsys.readouterr().out
    assert "overlap: 'a' and 'b' share bytes." in shown
    assert "DIFFERENT" in shown


@pytest.mark.parametrize(("pools", "words"), [(10**9, "% less than"), (1, "% more than")])
def test_comparison(pools: int, words: str) -> None:
    assert words in demo.comparison(plan(chain()), pools)


# ------------------------------------------------------------------------------------------ endings


@pytest.mark.parametrize(("identical", "code"), [(True, 0), (False, 1)])
def test_exit_code(monkeypatch: pytest.MonkeyPatch, identical: bool, code: int) -> None:
    monkeypatch.setattr(demo, "run", lambda _console: identical)
    assert demo.main() == code


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (KeyboardInterrupt(), 130, "Stopped."),
        (ServiceFailed("It ended."), 1, "demo: It ended."),
        (ConnectionFailed("refused"), 1, "demo: refused"),
        (OSError("disk full"), 1, "demo: disk full"),
    ],
)
def test_ends_with_one_message(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(_console: Console) -> bool:
        raise error

    monkeypatch.setattr(demo, "run", fail)
    assert demo.main() == code
    assert capsys.readouterr().out.strip() == words


def test_termination_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def terminated(_console: Console) -> bool:
        signal.raise_signal(signal.SIGTERM)
        return True

    monkeypatch.setattr(demo, "run", terminated)
    assert demo.main() == 130
