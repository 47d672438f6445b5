"""`explain --choose-trainable`: which layers to train, as people read it and as scripts do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.cli.commands import app
from service.cli.console import Exit
from solver.documents import dump_graph, load_plan
from tests.support.graphs import chain

GRAPH = chain((16, 64, 64, 8), 4)


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    path = tmp_path / "net.json"
    path.write_bytes(dump_graph(GRAPH))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    return done.exit_code, done.stdout, done.stderr


def test_the_choice_is_printed_and_its_plan_is_written(graph: Path, tmp_path: Path) -> None:
    scores, plan = tmp_path / "scores.json", tmp_path / "plan.json"
    names = [operation.id for operation in GRAPH.operations if operation.type == "Gemm"]
    scores.write_text(json.dumps({name: 2**k for k, name in enumerate(names)}))
    words = ["explain", graph, "--capacity", 36_000, "--choose-trainable", scores]
    code, printed, _ = run(*words, "-o", plan)
    assert code == Exit.OK
    assert "a score of 5 of 7, in " in printed
    assert 'In the document: "trainable": ["' in printed
    assert "No set with a larger score fits" in printed
    assert load_plan(plan.read_bytes()).arena_bytes <= 36_000
    facts = json.loads(run(*words, "--json")[1])
    assert facts["layers"] == [names[0], names[2]]
    assert (facts["score"], facts["all_scores"], facts["exact"], facts["open"]) == (5.0, 7.0, True, 0)
    code, printed, _ = run("explain", graph, "--capacity", 10**6, "--choose-trainable", "bytes")
    assert (code, printed.count("  fc")) == (Exit.OK, 3)


def test_nothing_fits(graph: Path) -> None:
    code, printed, _ = run("explain", graph, "--capacity", 64, "--choose-trainable", "bytes")
    assert (code, "not even the forward pass with its loss fits" in printed) == (Exit.TOO_LARGE, True)


@pytest.mark.parametrize(
    ("content", "more", "words"),
    [
        ("[1]", (), "'scores.json' is no JSON object of numbers"),
        ('{"fc1": "much"}', (), "'scores.json' is no JSON object of numbers"),
        ("{", (), "'scores.json': The document is not JSON"),
        ('{"fc1": -2}', (), "The score of 'fc1' is -2"),
        ('{"fc1": true}', (), "'scores.json' is no JSON object of numbers"),
        (
            '{"fc77": 2}',
            (),
            "'fc77', which reads no parameter that the graph trains. The nearest names are fc",
        ),
        ('{"fc1": 2}', ("--largest", "batch"), "Both the largest size and what to train"),
        ('{"fc1": 2}', ("--server", "http://127.0.0.1:9"), "The command looks for what to train here"),
    ],
)
def test_mistakes(graph: Path, tmp_path: Path, content: str, more: tuple[str, ...], words: str) -> None:
    scores = tmp_path / "scores.json"
    scores.write_text(content)
    code, _, printed = run("explain", graph, "--capacity", 10**6, "--choose-trainable", scores, *more)
    assert code == Exit.USAGE
    assert words in " ".join(printed.split())
