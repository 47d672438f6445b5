"""`arenaplan tradeoff` and `arenaplan explain`: what they print, write and refuse."""

from __future__ import annotations

import json
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from service.cli.console import Exit
from solver.documents import dump_graph, load_costs, load_plan, load_tradeoff, load_verdict
from tests.support import graphs
from tests.support.commands import run
from tests.support.onnx_models import perceptron
from tests.support.programs import CHAIN_DOCUMENT

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
MNIST = EXAMPLES / "mnist.json"


# -------------------------------------------------------------------------------------------- curves


def test_a_table_and_a_picture(tmp_path: Path) -> None:
    result = run("tradeoff", MNIST, "--points", "4", "-o", tmp_path / "curve.svg")
    assert result.exit_code == Exit.OK, result.output
    assert "21,613,184" in result.stdout
    assert "floor: 17,035,072 bytes, proved" in result.stdout
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<svg")


@pytest.mark.parametrize(("name", "begins"), [("c.png", b"\x89PNG"), ("c.json", b"{")])
def test_other_files(tmp_path: Path, name: str, begins: bytes) -> None:
    assert run("tradeoff", MNIST, "--points", "2", "-o", tmp_path / name).exit_code == Exit.OK
    assert (tmp_path / name).read_bytes().startswith(begins)


def test_a_curve_for_scripts(tmp_path: Path) -> None:
    result = run("tradeoff", MNIST, "--points", "3", "--json", "-o", tmp_path / "c.json")
    made = load_tradeoff(result.stdout.encode())
    assert made == load_tradeoff((tmp_path / "c.json").read_bytes())
    assert made.present.peak == 21_613_184


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--target", "onert"), "--target: Target 'onert' runs each step once"),
        (("--points", "1"), "--points: A curve of 1 points"),
        (("-o", "curve.gif"), "--output: A curve cannot be written as 'curve.gif'"),
        (("--only", "in-plaice"), "--only: only is 'in_plaice'. Did you mean 'in-place'?"),
    ],
)
def test_what_a_curve_refuses(arguments: tuple[str, ...], words: str) -> None:
    result = run("tradeoff", MNIST, *arguments)
    assert result.exit_code == Exit.USAGE
    assert words in result.stderr


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.json"
    path.write_text(json.dumps(CHAIN_DOCUMENT), encoding="utf-8")
    return path


def test_a_curve_of_a_program(chain: Path) -> None:
    curve = load_tradeoff(run("tradeoff", chain, "--json").stdout.encode())
    assert [(point.peak, point.extra, point.bound) for point in curve.points] == [
        (19_200, 0, 0),
        (13_440, 1000, 1000),
    ]
    assert (curve.floor, curve.floor_step) == (13_440, "i")


def test_a_verdict_on_a_program(chain: Path) -> None:
    """Its remedy is a command that works; where nothing fits, the values at the floor are named."""
    result = run("explain", chain, "--capacity", "14KiB", "--as-written")
    assert result.exit_code == Exit.CHANGE, result.output
    commands = [line for line in result.stdout.splitlines() if line.startswith("   arenaplan plan")]
    for command in commands:
        plan = load_plan(run(*shlex.split(command)[1:-2]).stdout.encode())
        assert plan.sizes[0] == 13_440
    assert commands
    result = run("explain", chain, "--capacity", "12KiB")
    assert result.exit_code == Exit.TOO_LARGE
    shown = " ".join(result.stdout.split())
    assert "step i needs" in shown
    assert "(a 6,400, c 6,400, y 640)" in shown
    refused = run("plan", chain, "--capacity", "12KiB")
    assert f"arenaplan explain {chain} --capacity 12KiB" in refused.stderr


def test_a_program_without_pure_operations() -> None:
    momentum = EXAMPLES / "programs" / "momentum.json"
    result = run("tradeoff", momentum)
    assert result.exit_code == Exit.USAGE
    assert "No operation of 'linear with momentum' may run again" in result.stderr
    result = run("explain", momentum, "--capacity", "400MB")
    assert "No operation of the program may run again: none says that it is pure." in result.stdout
    assert "arenaplan plan" in result.stdout  # with paging


@pytest.mark.parametrize("more", [("--largest", "batch"), ("--choose-trainable", "bytes")])
def test_a_program_has_no_sizes_and_no_layers(chain: Path, more: tuple[str, str]) -> None:
    result = run("explain", chain, "--capacity", "14KiB", *more)
    assert result.exit_code == Exit.USAGE
    assert "'chain' is a program of explicit operations, which has neither dimensions" in result.stderr


@pytest.mark.parametrize("command", [("tradeoff",), ("explain", "--capacity", "1MB")])
def test_what_is_not_a_model(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "model.json").write_text("{}", encoding="utf-8")
    result = run(*command, tmp_path / "model.json")
    assert result.exit_code == Exit.USAGE
    assert "model.json" in result.stderr


# ------------------------------------------------------------------------------------------ verdicts


def remedies(shown: str) -> dict[str, list[str]]:
    """The words of the command that stands below each remedy, by what the remedy is."""
    lines = shown.splitlines()
    return {
        line.partition(". ")[2].partition(": ")[0]: shlex.split(below)[1:]
        for line, below in pairwise(lines)
        if below.startswith("   arenaplan ")
    }


def test_an_impossible_capacity_says_why_and_what_helps() -> None:
    result = run("explain", MNIST, "--capacity", "16.6MB", "--keep-training")
    assert result.exit_code == Exit.CHANGE, result.output
    said = " ".join(result.stdout.split())
    assert "mnist in 16,600,000 bytes: impossible as it is" in said
    assert (
        "17,035,072 bytes at least are proved, 435,072 more than there are: step conv2:calc_gradient" in said
    )
    assert "conv1.out 3,211,264" in said
    assert "The smallest found is 17,135,488" in said
    assert "1. rewrite + 1 MiB of scratch: 16,429,184 bytes" in said
    first = next(iter(remedies(result.stdout).values()))
    assert first == [
        *("plan", str(MNIST), "--rewrite", "--capacity", "16600000"),
        *("--scratch-budget", "1MiB", "-o", "plan.json"),
    ]
    assert "learned" not in said


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


def test_what_is_open() -> None:
    said = " ".join(run("explain", MNIST, "--capacity", "17.1MB", "--keep-training").stdout.split())
    assert "open. No plan was found" in said
    assert "proved to be too few" in said


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


def test_a_plan_with_recomputation() -> None:
    result = run("explain", MNIST, "--capacity", "20MiB", "--keep-training")
    assert result.exit_code == Exit.OK
    assert "it fits with recomputation, for +0.47 % of the time as it is (" in " ".join(result.stdout.split())
    assert remedies(result.stdout)["recompute"] == [
        *("plan", str(MNIST), "--capacity", "20MiB", "-o", "plan.json")
    ]


def test_what_fits_says_no_more() -> None:
    result = run("explain", MNIST, "--capacity", "24MiB")
    assert result.exit_code == Exit.OK
    said = " ".join(result.stdout.split())
    assert said == "mnist in 25,165,824 bytes: it fits as it is, in 21,613,184."


def test_what_nothing_helps(tmp_path: Path) -> None:
    graph = tmp_path / "perceptron.json"
    graph.write_bytes(dump_graph(graphs.chain((2048, 1024, 1024, 8), 2048)))
    result = run("explain", graph, "--capacity", "1MB")
    assert result.exit_code == Exit.TOO_LARGE
    said = " ".join(result.stdout.split())
    assert "None of the measures that were tried makes it fit; the nearest first" in said
    verdict = load_verdict(run("explain", graph, "--capacity", "1MB", "--json").stdout.encode())
    for attempt in verdict.attempts[:5]:
        assert f"{attempt.arena_bytes:,}" in said
        assert f"{attempt.arena_bytes - 1_000_000:,}" in said


def test_the_command_repeats_the_other_options() -> None:
    given = ("--capacity", "16.6MB", "--only", "in-place", "--batch", "32", "--keep-training")
    commands = remedies(run("explain", MNIST, *given).stdout)
    assert commands["rewrite + 1 MiB of scratch"] == [
        *("plan", str(MNIST), "--batch", "32", "--rewrite", "--capacity", "16600000"),
        *("--only", "in-place", "--scratch-budget", "1MiB", "-o", "plan.json"),
    ]


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


def test_a_capacity_has_to_be_given() -> None:
    result = run("explain", MNIST)
    assert result.exit_code == Exit.USAGE
    assert "--capacity" in result.stderr
