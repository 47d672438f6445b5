"""Each refusal of an option is the same wherever it is asked for: planning, curves, verdicts, costs.

That every door says the same of a plan is a row of `tests/contract`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.cli.console import Exit
from service.jobs.tasks import TASKS
from service.problems import Problem
from solver import documents, pipeline
from solver.errors import ArenaplanError, PlanError, json_pointer
from solver.executor import validate
from solver.options import MEASURES, requested_as
from solver.plan import PlanOptions, RequestedOptions
from solver.program import Costs
from solver.verdict import brief, explain, tradeoff
from tests.support.every import every
from tests.support.graphs import chain
from tests.support.refused_options import ANY_TARGET, PLACES, REFUSED, Refused
from tests.unit.service.jobs.test_tasks import Recorder, limits

GRAPH = chain((16,) * 7, batch=64)


def refusal(ask: Callable[[], object]) -> tuple[str, str]:
    """The place that it leads to, and its whole text."""
    try:
        ask()
    except Problem as problem:
        return (problem.pointer or "").removeprefix("/options"), f"{problem.detail} {problem.remedy}"
    except ArenaplanError as error:
        place = json_pointer((*map(requested_as, map(str, error.path[:1])), *error.path[1:]))
        return place, f"{error.message} {error.remedy}"
    raise AssertionError("it was taken")


def with_a_capacity(refused: Refused) -> dict[str, Any]:
    """Verdicts need one."""
    needed = not {"tiers", "memories"} & refused.fields.keys()
    return ({"capacity": 30_000} if needed else {}) | refused.fields


def test_every_option_stands_in_the_table() -> None:
    asked_of_targets = {name for one in REFUSED if one.fields.get("target") == "onert" for name in one.fields}
    measures = {name for one in REFUSED for name in one.fields.get("only", ())}
    assert measures == {*MEASURES}
    options = {field.name for field in fields(PlanOptions)} - measures
    assert options <= asked_of_targets | ANY_TARGET
    assert options - PLACES <= {name for one in REFUSED for name in one.fields}


def test_the_core_and_its_workers() -> None:
    graph = json.loads(documents.dump_graph(GRAPH))

    def check(refused: Refused) -> None:
        def options() -> PlanOptions:
            return documents.load_options(with_a_capacity(refused)).options

        def work(task: str) -> tuple[str, str]:
            body = json.dumps({"graph": graph, "options": with_a_capacity(refused)}).encode()
            return refusal(lambda: TASKS[task](limits(), body, Recorder()))  # type: ignore[arg-type]  # a Channel

        pointer, words = refusal(lambda: pipeline.plan(GRAPH, options()))
        assert (pointer, refused.words in words) == (refused.pointer, True)
        asks: tuple[Callable[[], object], ...] = (
            lambda: pipeline.start_of(GRAPH, options()),
            lambda: pipeline.modelled_costs(GRAPH, options()),
            lambda: explain(GRAPH, RequestedOptions(options(), automatic=False)),
            lambda: tradeoff(GRAPH, options()),
            lambda: brief(GRAPH, options()),
        )
        for ask in asks:
            assert refusal(ask) == (pointer, words)
        pointer, words = work("plan")
        assert (pointer, refused.words in words) == (refused.pointer, True)
        assert work("explain") == work("tradeoff") == (pointer, words)

    with every() as case:
        for refused in REFUSED:
            with case(refused):
                check(refused)


@pytest.mark.parametrize("command", ["plan", "explain", "tradeoff"])
@pytest.mark.parametrize("seconds", ["nan", "inf", "1e999"])
def test_an_option_is_named_as_an_option(command: str, seconds: str, tmp_path: Path) -> None:
    graph = tmp_path / "graph.json"
    graph.write_bytes(documents.dump_graph(GRAPH))
    more = ("--capacity", "1") if command == "explain" else ()
    asked = CliRunner().invoke(app, [command, str(graph), "--deadline", seconds, *more])
    assert asked.exit_code == Exit.USAGE
    assert asked.stderr.startswith("arenaplan: --deadline: ")


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"storage": "float8"}, "options/storage"),
        ({"scratch_budget": 0}, "options/scratch_budget"),
        ({"costs": Costs(())}, "options/costs/nanoseconds"),
        ({"target": "abacus"}, ""),
    ],
)
def test_options_of_a_plan_that_somebody_has_written(options: dict[str, Any], place: str) -> None:
    made = pipeline.plan(GRAPH, PlanOptions(recompute=True, capacity=33_000))
    forged = documents.with_digest(replace(made, options=replace(made.options, **options)))
    with pytest.raises(PlanError) as caught:
        validate(GRAPH, forged, steps=1)
    assert caught.value.pointer == f"/{place}".rstrip("/")
    request = {
        "graph": json.loads(documents.dump_graph(GRAPH)), "plan": json.loads(documents.dump_plan(forged))
    }  # fmt: skip
    with pytest.raises(Problem) as refused:
        TASKS["validate"](limits(), json.dumps(request).encode(), Recorder())  # type: ignore[arg-type]  # a Channel
    assert refused.value.pointer == f"/plan/{place}".rstrip("/")
