"""``./run mutate``: which small wrong changes of the modules that check and place do the tests notice?

A sample of the changes, the same for the same seed and of the same size in each room, is made one by one in
copies of the tree; the working tree is not touched. Each is judged by the tests that import its module,
directly or by way of one other module, in stages: the tests named after the module, the folder of its
package, the rest. A change that one stage notices does not reach the next.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

import pytest
from rich.console import Console
from rich.table import Table

from tests.reports.equivalents import EQUIVALENT
from tests.reports.mutants import Mutant, mutants

__all__ = ["ROOT", "Outcome", "Result", "Tree", "importers", "judge", "main", "sample"]

ROOT = Path(__file__).resolve().parents[2]

#: The rooms that the proof of a plan rests on, and the passes, which it judges.
MODULES = ("solver/verify", "solver/accounting", "solver/layout/check", "solver/program", "solver/passes")
#: Tests that say something about a module's behaviour, and need no server and no other package.
TESTS = ("tests/unit", "tests/properties", "tests/golden")
PACKAGES = ("arenaplan", "clients", "service", "solver")
COPIED = (*PACKAGES, "examples", "tests", "docs", "pyproject.toml", "README.md")


class Outcome(StrEnum):
    FAILED = "failed"  # a test did
    ENDLESS = "endless"  # the tests took several times as long as without the change
    SURVIVED = "survived"
    UNTESTED = "untested"  # no test imports the module
    EQUIVALENT = "equivalent"  # listed as a change of nothing that a caller can observe


@dataclass(frozen=True, slots=True)
class Result:
    path: str
    mutant: Mutant
    outcome: Outcome

    @property
    def detected(self) -> bool:
        return self.outcome in (Outcome.FAILED, Outcome.ENDLESS)


# ------------------------------------------------------------------------------- what tests a module


def _imported(path: Path, known: frozenset[str]) -> frozenset[str]:
    """Modules that a file imports, of those that are known; of a package, what its ``__init__`` is."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import(names=names):
                found.update(alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                found.add(module)
                found.update(f"{module}.{alias.name}" for alias in names)
    return frozenset(found & known)


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def importers(
    root: Path, modules: Iterable[str], *, nearest: bool = False
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Stages of test files that may notice a change of each module (a path from the root); none is empty.

    Named after the module; of the folder of unit tests that mirrors its package; the rest, unless only the
    `nearest` are asked for. A file belongs to a stage if it imports the module, directly or by way of one
    other module, or stands in the folder.
    """
    files = [path for top in (*PACKAGES, "examples", "tests") for path in sorted((root / top).rglob("*.py"))]
    names = {_dotted(path, root): path for path in files}
    known = frozenset(names)
    imports = {name: _imported(path, known) for name, path in names.items()}
    tests = [
        (names[name].relative_to(root).as_posix(), found)
        for name, found in imports.items()
        if names[name].name.startswith("test_")
    ]

    def stages(module: str) -> tuple[tuple[str, ...], ...]:
        wanted = _dotted(root / module, root)
        near = {wanted} | {name for name, found in imports.items() if wanted in found}
        _, *package = Path(module).parent.parts
        mirror = "/".join(("tests/unit", *package, "")) if package else None
        own = {f"test_{name}" for name in (Path(module).stem, Path(module).parent.name)}
        sorts: tuple[list[str], ...] = ([], [], [])
        for path, found in tests:
            beside = mirror is not None and path.startswith(mirror)
            if path.startswith(TESTS) and (found & near or beside):
                sorts[0 if Path(path).stem in own else 1 if beside else 2].append(path)
        return tuple(tuple(sorted(files)) for files in sorts[: 2 if nearest else 3] if files)

    return {module: stages(module) for module in modules}


# ------------------------------------------------------------------------------------------ running


class Tree:
    """A copy of the tree in which one module at a time is wrong."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def copy(cls, origin: Path, target: Path) -> Tree:
        """Compiled code comes along, so that nothing is compiled again: times of files are kept."""
        for name in COPIED:
            source = origin / name
            if source.is_dir():
                shutil.copytree(source, target / name)
            elif source.exists():
                shutil.copy2(source, target / name)
        return cls(target)

    def run(self, tests: Sequence[str], seconds: float | None = None) -> Outcome:
        """Of the tests with the tree as it is; stopped with all its processes after so many seconds."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=no", "-p", "no:cacheprovider", *tests]
        # A change may keep the size and the second of a file, by which Python knows its bytecode.
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(self.root)}
        self._process = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return Outcome.ENDLESS
        finally:
            self.stop()
        well = code in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
        return Outcome.SURVIVED if well else Outcome.FAILED

    def stop(self) -> None:
        """Ends the tests that run, with all processes that they have started."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def judge(self, path: str, mutant: Mutant, tests: Sequence[str], seconds: float) -> Outcome:
        """Of the tests with one module changed; it is as before afterwards."""
        module = self.root / path
        for cached in (module.parent / "__pycache__").glob(f"{module.stem}.*.pyc"):
            cached.unlink()
        module.write_text(mutant.after, encoding="utf-8")
        try:
            return self.run(tests, seconds)
        finally:
            module.write_text(mutant.before, encoding="utf-8")


def sample(root: Path, paths: Sequence[str], count: int | None, seed: int) -> list[tuple[str, Mutant]]:
    """``count`` mutants (all with None) of the modules below the paths, in the order of their places.

    Each path has the same share of them; a path with fewer mutants than its share leaves the others more.
    Raises FileNotFoundError for a path that is not there.
    """
    pools: list[list[tuple[str, Mutant]]] = []
    seen: set[Path] = set()
    for name in paths:
        path = root / name
        if not path.exists():
            raise FileNotFoundError(f"{name} is not there; paths count from {root}")
        below = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        files = [file for file in below if file not in seen]
        seen.update(files)
        pools.append(
            [
                (file.relative_to(root).as_posix(), mutant)
                for file in files
                for mutant in mutants(file.read_text(encoding="utf-8"))
            ]
        )
    shares = _shares([len(pool) for pool in pools], count)
    draw = random.Random(seed)
    return [
        pool[i]
        for pool, share in zip(pools, shares, strict=True)
        for i in sorted(draw.sample(range(len(pool)), share))
    ]


def _shares(sizes: Sequence[int], count: int | None) -> list[int]:
    """Splits ``count`` evenly, no share above its size; the sizes themselves with None."""
    if count is None:
        return list(sizes)
    shares = [0] * len(sizes)
    for k, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        shares[i] = min(sizes[i], (count - sum(shares)) // (len(sizes) - k))
    return shares


def judge(
    trees: Sequence[Tree],
    work: Sequence[tuple[str, Mutant]],
    tests: Mapping[str, Sequence[Sequence[str]]],
    record: Path | None = None,
) -> tuple[Result, ...]:
    """The outcome of each mutant, in the order of the work, with as many at a time as there are trees.

    ``tests`` has the stages of each path: a mutant that the tests of one stage detect does not reach the
    next. Each verdict goes to stderr and, as one JSON object a line, to the ``record``. Mutants that it lists
    as detected are not tried again. Raises RuntimeError where tests fail without any change.
    """
    detected = _detected(record)
    free: SimpleQueue[Tree] = SimpleQueue()
    for tree in trees:
        free.put(tree)
    #: Files that pass without a change, with the seconds that they take together.
    runs: list[tuple[frozenset[str], float]] = []

    def limit(tree: Tree, files: Sequence[str]) -> float:
        """Seconds after which tests pass for endless. Each file runs once without a change."""
        if new := frozenset(files).difference(*(run for run, _ in runs)):
            started = time.monotonic()
            if tree.run(sorted(new)) is not Outcome.SURVIVED:
                raise RuntimeError(f"These tests fail without a change: {' '.join(sorted(new))}")
            runs.append((new, time.monotonic() - started))
        return 30 + 4 * sum(seconds for run, seconds in runs if not run.isdisjoint(files))

    def outcome(one: tuple[str, Mutant]) -> Outcome:
        path, mutant = one
        if mutant.change in EQUIVALENT.get(path, {}):
            return Outcome.EQUIVALENT
        if (known := detected.get((path, mutant.diff(path)))) is not None:
            return known
        tree = free.get()
        verdict, stage = Outcome.UNTESTED, 0
        try:
            for files in tests[path]:
                stage += 1
                verdict = tree.judge(path, mutant, files, limit(tree, files))
                if verdict is not Outcome.SURVIVED:
                    break
        finally:
            free.put(tree)
        sys.stderr.write(f"{path}:{mutant.line} {verdict} at stage {stage}\n")
        if record is not None:
            line = {"path": path, "line": mutant.line, "outcome": verdict, "stage": stage}
            with record.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line | {"diff": mutant.diff(path)}) + "\n")
        return verdict

    pool = ThreadPoolExecutor(len(trees))
    try:
        outcomes = list(pool.map(outcome, work))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for tree in trees:
            tree.stop()
        raise
    finally:
        pool.shutdown()
    return tuple(Result(*one, outcome) for one, outcome in zip(work, outcomes, strict=True))


def _detected(record: Path | None) -> dict[tuple[str, str], Outcome]:
    """Outcomes of the mutants that a record lists as detected, by path and diff."""
    if record is None or not record.exists():
        return {}
    lines = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    return {
        (line["path"], line["diff"]): Outcome(line["outcome"])
        for line in lines
        if line["outcome"] in (Outcome.FAILED, Outcome.ENDLESS)
    }


def _print(console: Console, results: Sequence[Result]) -> None:
    table = Table(title="Small wrong changes that the tests notice")
    for title in ("module", "tried", "failed", "endless", "survived", "untested", "equivalent", "noticed"):
        table.add_column(title, justify="left" if title == "module" else "right")
    for name in [*dict.fromkeys(result.path for result in results), "all"]:
        own = [result for result in results if name in (result.path, "all")]
        counts = [str(sum(result.outcome is outcome for result in own)) for outcome in Outcome]
        wrong = sum(result.outcome is not Outcome.EQUIVALENT for result in own)
        share = sum(result.detected for result in own) / max(wrong, 1)
        table.add_row(name, str(len(own)), *counts, f"{share:.1%}")
    console.print(table)
    for result in results:
        if not (result.detected or result.outcome is Outcome.EQUIVALENT):
            console.print(f"\n{result.path}:{result.mutant.line} {result.outcome}", highlight=False)
            console.print(result.mutant.diff(result.path).partition("\n")[2], markup=False, highlight=False)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> None:
    parser = argparse.ArgumentParser(
        prog="./run mutate", description="Print which small wrong changes of modules the tests notice."
    )
    parser.add_argument("paths", nargs="*", help=f"modules or folders (default: {' '.join(MODULES)})")
    parser.add_argument(
        "--sample", type=int, default=200, help="how many changes are tried (default 200; 0: all)"
    )
    parser.add_argument("--seed", type=int, default=1, help="which ones (default 1)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time")
    parser.add_argument(
        "--nearest", action="store_true", help="leave out the tests outside the folder of a module's package"
    )
    parser.add_argument(
        "--record",
        type=Path,
        help="file to append verdicts to; what it lists as noticed is not tried again",
    )
    asked = parser.parse_args(arguments)
    paths = asked.paths or MODULES
    try:
        work = sample(root, paths, asked.sample or None, asked.seed)
    except FileNotFoundError as error:
        parser.error(str(error))
    tests = importers(root, dict.fromkeys(path for path, _ in work), nearest=asked.nearest)
    console, started = Console(width=120), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="arenaplan-mutants-") as place:
        trees = [Tree.copy(root, Path(place) / str(k)) for k in range(max(1, asked.jobs))]
        results = judge(trees, work, tests, asked.record)
    _print(console, results)
    console.print(
        f"\n{len(work)} changes, seed {asked.seed}, {(time.monotonic() - started) / 60:.1f} minutes"
    )


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: no process goes on
    main()
