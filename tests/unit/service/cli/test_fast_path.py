"""The fast path reads usual forms of `solve`, `plan` and `show` as the whole command line does."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.main import get_command
from typer.testing import CliRunner

from service.cli import layouts, planning, show
from service.cli.commands import app
from service.cli.fast_path import FastPlan, FastShow, FastSolve, read_fast, usual_size
from service.cli.main import main
from solver.documents import load_options, read_size
from solver.errors import ArenaplanError
from solver.layout import LayoutOptions
from solver.plan import PlanOptions

ROOT = Path(__file__).resolve().parents[4]
PATIENCE = 120

WORDS = st.sampled_from([
    "-", "--", "a.csv", "b.csv", "-o", "--output", "out.csv", "out.json", "", "--capacity", "--deadline",
    "--seed", "--work", "--threads", "--alignment", "0", "7", "1048576", "1MiB", "2kB", "1.5KiB",
    "1k", "1mib", "0.5", "1.", "-1", "--json",
    "--race", "-h", "--solver", "greedy", "--capacity=5", "--without", "fill", "٣",
])  # fmt: skip


PLAN_WORDS = st.sampled_from([
    "-", "--", "a.json", "b.json", "-o", "--output", "plan.json", "", "--capacity", "--deadline", "--batch",
    "--scratch-budget", "--alignment", "--target", "--solver", "--update", "--parallelism", "--in-place",
    "--rewrite", "--order", "--recompute", "--sub-ranges", "--tier", "ram=1MiB",
    "0", "7", "64", "1MiB", "2kB", "1.5KiB", "1k", "0.5", "1.", "-1", "--json", "singa",
    "singa-relu", "greedy", "end", "immediate", "-h", "--target=onert", "--workers", "fill", "٣", "Onert",
])  # fmt: skip


def slowly(arguments: list[str], module: ModuleType = layouts) -> list[tuple[Any, ...]]:
    """How `service.cli.commands` calls the `run` of a module."""
    calls: list[tuple[Any, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "run", lambda *a, **k: calls.append((*a, k)))
        CliRunner().invoke(app, arguments)
    return calls


@given(st.lists(WORDS, max_size=7))
def test_what_the_fast_path_takes_the_whole_command_line_reads_alike(words: list[str]) -> None:
    arguments = ["solve", *words]
    fast = read_fast(arguments)
    if fast is not None:
        assert isinstance(fast, FastSolve)
        options = LayoutOptions(**fast.given)
        rest = {"as_json": fast.as_json, "server": None}
        assert slowly(arguments) == [(fast.problem, options, fast.output, None, rest)]


def options_of(given: Mapping[str, Any]) -> PlanOptions | str:
    try:
        return load_options(given)
    except ArenaplanError as error:
        return str(error)


@given(st.lists(PLAN_WORDS, max_size=7))
def test_plans_are_read_alike(words: list[str]) -> None:
    arguments = ["plan", *words]
    fast = read_fast(arguments)
    if fast is not None:
        assert isinstance(fast, FastPlan)
        ((model, given, output, choices, rest),) = slowly(arguments, planning)
        assert (model, output, rest) == (fast.model, fast.output, {"as_json": fast.as_json, "server": None})
        assert choices == {}
        assert options_of(given) == options_of(fast.given)


@given(st.lists(PLAN_WORDS, max_size=2))
def test_what_is_shown_is_read_alike(words: list[str]) -> None:
    arguments = ["show", *words]
    fast = read_fast(arguments)
    if fast is not None:
        assert isinstance(fast, FastShow)
        assert slowly(arguments, show) == [(fast.plan, None, {"as_json": False, "server": None})]


@given(st.from_regex(r"[0-9]{1,13}(\.[0-9])?[kKMG]?i?B?", fullmatch=True))
def test_usual_sizes_are_read_as_in_documents(text: str) -> None:
    size = usual_size(text)
    assert size is None or size == read_size(text)


def test_units_that_need_no_closer_look() -> None:
    texts = ("0", "65536", "24MiB", "3kB", "2MB", "1GB", "4KiB", "1GiB")
    assert [usual_size(text) for text in texts] == [read_size(text) for text in texts]


def test_the_usual_form() -> None:
    arguments = ["solve", "a.csv", "--capacity", "1048576", "-o", "b.csv", "--deadline", "0.5", "--seed", "3"]
    numbers = {"capacity": 1048576, "deadline_seconds": 0.5, "seed": 3}
    assert read_fast(arguments) == FastSolve(Path("a.csv"), Path("b.csv"), numbers)
    assert read_fast(["solve", "-"]) == FastSolve(Path("-"), Path("-"), {})


def test_the_usual_form_of_plans() -> None:
    words = "plan g.json -o p.json --batch 32 --capacity 24MiB --target singa --in-place --deadline 2"
    given: dict[str, Any] = {"batch": 32, "capacity": 24 * 2**20, "target": "singa", "in_place": True}
    given["deadline_seconds"] = 2.0
    assert read_fast(words.split()) == FastPlan(Path("g.json"), Path("p.json"), given)
    assert read_fast(["show", "p.json"]) == FastShow(Path("p.json"))


def test_json_and_lists() -> None:
    words = "plan g.json --json --order --tier ram=1MiB --tier flash=1GiB"
    given: dict[str, Any] = {"order": True, "tiers": ["ram=1MiB", "flash=1GiB"]}
    assert read_fast(words.split()) == FastPlan(Path("g.json"), Path("-"), given, as_json=True)
    solve = FastSolve(Path("a.csv"), Path("-"), {"solver": "greedy", "race": True}, as_json=True)
    assert read_fast(["solve", "a.csv", "--solver", "greedy", "--race", "--json"]) == solve


#: How models of other tools, which are slower to read than options, are trained.
OF_MODELS = {
    *("--loss", "--output-name", "--class-axis", "--optimizer", "--learning-rate", "--trainable", "--dim"),
    *("--batch-norm", "--weights", "--freeze-before", "--keep-outputs", "--input", "--frozen"),
}

#: Options of the whole command line that scripts give seldom, or whose values need a closer look.
SELDOM = {
    "plan": {"--costs", "--server", "--workers", *OF_MODELS},
    "solve": {"--server", "--target-gap", "--without", "--plot"},
}

#: A value that each option takes which is not a flag.
VALUES = {
    "--deadline": "2",
    "--tier": "ram=1MiB",
    "--target": "singa",
    "--solver": "greedy",
    "--update": "end",
    "--storage": "float16",
}


@pytest.mark.parametrize("name", ["plan", "solve"])
def test_no_option_was_forgotten(name: str) -> None:
    """An option that commands learn is either read here or said to be seldom given."""
    command = get_command(app).commands[name]  # type: ignore[attr-defined]  # a group
    left = set()
    for option in command.params:
        word = option.opts[-1]
        if word.startswith("--") and word not in ("--help", "--output"):
            value = [] if option.is_flag else [VALUES.get(word, "1")]
            if read_fast([name, "a.json", word, *value]) is None:
                left.add(word)
    assert left == SELDOM[name]


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "validate a.json b.json",
        "plan",
        "plan a.json --batch 1 --batch 2",
        "plan a.json --target",
        "plan a.json --target -o",
        "plan --help",
        "show",
        "show --help",
        "show a.json --width 80",
        "show a.json b.json",
        "solve",
        "solve a.csv b.csv",
        "solve a.csv -o",
        "solve a.csv -o b.csv -o c.csv",
        "solve a.csv --capacity",
        "solve a.csv --capacity 1.5MiB",
        "solve a.csv --capacity 1 --capacity 2",
        "solve a.csv --capacity=1",
        "solve a.csv --plot map.svg",
        "solve --help",
        "--version",
    ],
)
def test_all_else_is_left_to_the_whole_command_line(arguments: str) -> None:
    assert read_fast(arguments.split()) is None


def test_other_commands_reach_the_whole_command_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["arenaplan", "--version"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("arenaplan ")


@pytest.mark.parametrize(
    ("arguments", "threads"),
    [
        ("plan model.json -o plan.json", "1"),
        ("plan - --batch 4", "1"),
        ("plan model.onnx -o plan.json", None),  # its constants are computed as by the other commands
        ("solve a.csv -o b.csv", "1"),
        ("show plan.json", "1"),
    ],
)
def test_what_multiplies_no_matrices_starts_no_threads_for_it(
    arguments: str, threads: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Set and then deleted, so that what main() sets is taken back.
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")
    found: list[str | None] = []
    for module in (planning, layouts, show):
        monkeypatch.setattr(
            module, "run", lambda *_, **__: found.append(os.environ.get("OPENBLAS_NUM_THREADS"))
        )
    monkeypatch.setattr(sys, "argv", ["arenaplan", *arguments.split()])
    main()
    assert found == [threads]


def run(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = "import sys\nfrom service.cli.main import main\ntry: main()\nfinally: print(*sys.modules)"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE,
    )


def test_the_fast_path_loads_what_it_needs(tmp_path: Path) -> None:
    """Where greedy placement meets the bound, nothing compiled; never a graph, a document or a terminal."""
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,4\nb,1,3,4\n", encoding="utf-8")
    ran = run(tmp_path, "solve", "p.csv", "-o", "q.csv")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "q.csv").read_text(encoding="utf-8").startswith("id,lower,upper,size,offset\n")
    said, _, loaded = ran.stdout.partition("\n")
    assert said == "p.csv: 2 buffers in 8 bytes, optimal (max-load), solver portfolio/greedy"
    unwanted = {
        "typer",
        "pydantic",
        "rich",
        "numba",
        "ortools",
        "solver.graph",
        "solver.training",
        "service.cli.commands",
    }
    assert unwanted & set(loaded.split()) == set()


def test_planning_and_showing_load_what_they_need(tmp_path: Path) -> None:
    """One target, no rules of rewriting, no kernel, nothing compiled, and no parser of the command line.

    Models of documents are for mistakes and for reading plans; explicit programs, curves, verdicts and the
    metadata of distributions are for others.
    """
    unwanted = {
        "clients",
        "httpx",
        "typer",
        "solver.training.explicit",
        "solver.plan.tradeoff",
        "solver.plan.verdict",
        "numba",
        "ortools",
        "solver.executor",
        "solver.importers",
        "solver.preparations.rewriting",
        "solver.targets.onert",
        "solver.targets.nntrainer",
        "solver.documents.buffers",
        "service.cli.commands",
    }
    model, written = str(ROOT / "examples/mnist.json"), str(tmp_path / "plan.json")
    for arguments in (["plan", model, "-o", written], ["show", written]):
        ran = run(tmp_path, *arguments)
        assert ran.returncode == 0, ran.stderr
        assert "21,613,184 bytes" in ran.stdout
        loaded = set(ran.stdout.splitlines()[-1].split())
        assert unwanted & loaded == set()
        assert loaded.isdisjoint({"pydantic", "importlib.metadata"}) == (arguments[0] == "plan")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ("plan missing.json", 2, "missing.json: No such file or directory."),
        ("plan p.csv --target none", 2, "p.csv: The document is not JSON"),
        ("plan p.csv --batch 0", 2, "--batch: "),
        ("show p.csv", 2, "p.csv: The document is not JSON"),
        ("solve p.csv --capacity 3", 3, "the capacity is 3"),
        ("solve missing.csv", 2, "missing.csv: No such file or directory."),
        ("solve bad.csv", 2, "Line 2: "),
        ("solve p.csv --alignment 3", 2, "--alignment: Alignment 3 is not a power of two."),
    ],
)
def test_errors_have_their_exit_codes_and_one_line(
    tmp_path: Path, arguments: str, code: int, words: str
) -> None:
    (tmp_path / "p.csv").write_text("id,lower,upper,size\na,0,2,4\n", encoding="utf-8")
    (tmp_path / "bad.csv").write_text("id,lower,upper,size\na,0,0,4\n", encoding="utf-8")
    ran = run(tmp_path, *arguments.split())
    assert (ran.returncode, ran.stderr.count("\n")) == (code, 1), ran.stderr
    assert words in ran.stderr
