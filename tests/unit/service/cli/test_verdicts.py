"""`arenaplan tradeoff` and `arenaplan explain`: what they print, write and refuse."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from service.cli.console import Exit
from solver.documents import load_costs, load_plan
from tests.support.commands import run
from tests.support.onnx_models import perceptron

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"


# -------------------------------------------------------------------------------------------- curves


@pytest.mark.parametrize(("name", "begins"), [("c.png", b"\x89PNG"), ("c.json", b"{")])
def test_other_files(tmp_path: Path, name: str, begins: bytes) -> None:
    assert run("tradeoff", MNIST, "--points", "2", "-o", tmp_path / name).exit_code == Exit.OK
    assert (tmp_path / name).read_bytes().startswith(begins)


# ------------------------------------------------------------------------------------------ verdicts


def remedies(shown: str) -> dict[str, list[str]]:
    """The words of the command that stands below each remedy, by what the remedy is."""
    lines = shown.splitlines()
    return {
        line.partition(". ")[2].partition(": ")[0]: shlex.split(below)[1:]
        for line, below in pairwise(lines)
        if below.startswith("   arenaplan ")
    }


def test_every_command_works_when_it_is_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each plans within the capacity, whatever it changes; those that change the training come last."""
    monkeypatch.chdir(tmp_path)
    result = run("explain", MNIST, "--capacity", "17.2MB", "--batch", "24")
    assert result.exit_code == Exit.OK, result.output
    commands = remedies(result.stdout)
    names = " ".join(commands)
    kinds = ("recompute", "rewrite", "scratch", "micro-batches", "a batch of", "train the last", "SGD")
    assert all(words in names for words in kinds)
    for name, words in commands.items():
        planned = run(*words)
        assert planned.exit_code == Exit.OK, (name, planned.output)
        plan = load_plan((tmp_path / "plan.json").read_bytes())
        size = plan.sizes[0] if plan.options.tiers else plan.arena_bytes
        assert size <= 17_200_000
        assert f"{name}: {size:,} bytes" in result.stdout
        again = run("validate", MNIST, "plan.json", "--steps", "1", *trained_as(words))
        assert again.exit_code == Exit.OK, (name, again.output)


def trained_as(words: list[str]) -> list[str]:
    """The choices among the words of a command that say how the graph is trained."""
    flags = ("--micro-batches", "--optimizer", "--trainable")
    return [word for pair in pairwise(words) if pair[0] in flags for word in pair]


def test_a_model_with_an_open_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is the one that the user has chosen, by either spelling."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my model.onnx").write_bytes(perceptron().SerializeToString())
    given = ("my model.onnx", "--loss", "mse")
    for spelling in (("--batch", "64"), ("--dim", "n=64")):
        whole = run("plan", *given, *spelling, "-o", "whole.json", "--json")
        capacity = json.loads(whole.stdout)["arena_bytes"] * 2 // 3
        result = run("explain", *given, *spelling, "--capacity", str(capacity))
        assert result.exit_code == Exit.CHANGE, result.output
        commands = remedies(result.stdout).items()
        words = next(words for name, words in commands if name.startswith("a batch of"))
        assert spelling[0] in words
        assert words.count("--dim") + words.count("--batch") == 1
        planned = run(*words)
        assert planned.exit_code == Exit.OK, planned.output
        assert load_plan((tmp_path / "plan.json").read_bytes()).arena_bytes <= capacity


def test_recomputation_that_costs_nothing_is_recomputation(tmp_path: Path) -> None:
    made = json.loads(run("costs", MNIST).stdout)
    free = {name: 0 for name in made["nanoseconds"] if name.endswith(":forward")}
    made["nanoseconds"] |= free
    (tmp_path / "free.json").write_text(json.dumps(made))
    given = (MNIST, "--costs", tmp_path / "free.json")
    result = run("explain", *given, "--capacity", "20MiB", "--keep-training")
    assert result.exit_code == Exit.OK
    said = " ".join(result.stdout.split())
    assert "it fits with recomputation, for +0.00 % of the time as it is (proved to be the least" in said
    first, second = run("tradeoff", *given, "--points", "3").stdout.split("21,613,184")[1].splitlines()[:2]
    assert "as it is" in first
    assert "+0.00 %" in second


def test_the_command_plans_a_model_with_its_choices_and_costs(tmp_path: Path) -> None:
    model, costs, made = (tmp_path / name for name in ("model.onnx", "costs.json", "plan.json"))
    model.write_bytes(perceptron().SerializeToString())
    given = (model, "--loss", "mse", "--optimizer", "adam,beta1=0.8", "--dim", "n=64")
    assert run("costs", *given, "--roofline", "-o", costs).exit_code == Exit.OK
    result = run("explain", *given, "--as-written", "--costs", costs, "--capacity", "40kB")
    words = next(iter(remedies(result.stdout).values()))
    assert words[words.index("--costs") + 1] == str(costs)
    planned = run(*words[:-1], made)
    assert planned.exit_code == Exit.OK, planned.output
    assert load_plan(made.read_bytes()).options.costs == load_costs(costs.read_bytes())
