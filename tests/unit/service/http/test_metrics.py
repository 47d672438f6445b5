"""The page says how many series there are at most."""

from __future__ import annotations

import re
from pathlib import Path

from fastapi import FastAPI
from starlette.routing import Route

from service.jobs.requests import KINDS
from service.problems import CATALOGUE

PAGE = Path(__file__).parents[4] / "docs/how-to/observability.md"


def test_there_are_fewer_series_than_the_page_says(app: FastAPI) -> None:
    """After every route was answered with six statuses, and every task has ended in four ways."""
    metrics = app.state.arenaplan.metrics
    for route in app.routes:
        if isinstance(route, Route):
            for status in (200, 304, 404, 413, 422, 503):
                metrics.answered(route.path, "GET", status, 0.1)
    for task in KINDS:
        for outcome in ("result", "known", "fallback", "invalid-document"):
            metrics.worked(task, outcome, 1.0)
        for state in ("succeeded", "failed", "cancelled"):
            metrics.job_ended(task, state, 1.0)
    for task in ("plan", "layout"):
        for claim in ("optimal", "feasible"):
            facts = {"solver": "portfolio", "status": claim, "lower_bound": 1, "arena_bytes": 1}
            metrics.made(task, facts, 1.0)
    for stage in ("read", "prepare", "derive", "passes", "layout", "prove", "digest"):
        metrics.stage(stage, 1.0)
    for code in CATALOGUE:
        metrics.problem(code)
    series = [line for line in metrics.text().decode().splitlines() if not line.startswith("#")]
    stated = re.search(r"fewer than ([\d,]+)\.", PAGE.read_text(encoding="utf-8"))
    assert stated is not None
    limit = int(stated[1].replace(",", ""))
    assert limit / 2 < len(series) < limit, len(series)
