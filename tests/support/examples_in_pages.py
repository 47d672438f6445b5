"""Code in Markdown pages: fenced blocks, and what a test does with each.

    ```python                 run; the blocks of a page share their names
    ```text title="prints"    behind it: what it printed
    ```console                lines after "$ " are run by bash, the lines below each are what it printed
    ```sh                     run by bash as a whole; each command must succeed
    ```json title="a.json"    written to a file of that name before what follows is run

A console line may end with "# exit code N"; without it the command must succeed. In expected output a line
"..." stands for any lines, and "..." inside a line for any text. Other blocks are only shown, and so are the
few of shell that `NOT_RUN` lists with its reasons. The blocks that `PROGRAMS` lists run where their programs
are installed. The files that a reader has, as `model.onnx`, are there.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "NOT_RUN",
    "PROGRAMS",
    "Block",
    "Command",
    "blocks",
    "commands",
    "lacking_program",
    "matches",
    "why_not_run",
]

#: Why a block of shell is not run, by its page and the beginning of the block.
NOT_RUN: Final[Mapping[tuple[str, str], str]] = {
    ("README.md", "./run demo"): "It makes an environment, and runs all tests.",
    ("CONTRIBUTING.md", "./run setup"): "It lists the commands for this tree; each has its own tests.",
    ("docs/tutorials/first-plan.md", "./run setup"): "It makes an environment out of a package index.",
    ("docs/tutorials/build-pipeline.md", "./run serve"): "A service that runs until it is stopped.",
    (
        "docs/how-to/jobs.md",
        "export ARENAPLAN_DATABASE_URL",
    ): "It needs PostgreSQL, and runs until it is stopped.",
    ("docs/how-to/fine-tune.md", "python -m examples.qwen"): "It needs PyTorch; a test writes the document.",
    ("docs/how-to/fine-tune.md", "arenaplan plan qwen.json"): "PyTorch captures the document.",
    ("docs/how-to/fine-tune.md", "arenaplan plan qwen-eighth.json"): "PyTorch captures the document.",
    (
        "docs/how-to/install.md",
        ".venv/bin/python",
    ): "It writes into the tree; a test of pip builds it.",
    ("docs/how-to/observability.md", "prometheus"): "It needs Prometheus, which runs until it is stopped.",
    ("docs/how-to/observability.md", "OTEL_"): "A service that runs until it is stopped.",
    ("docs/how-to/runbook.md", "journalctl"): "It needs systemd, and a service that has failed.",
    ("docs/how-to/users.md", "journalctl"): "It needs systemd.",
    ("docs/how-to/users.md", "ARENAPLAN_AUTH=oidc"): "It needs a provider of identities.",
}

#: Programs without which a console block cannot run, by its page and its beginning.
PROGRAMS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("docs/tutorials/own-model.md", "$ make -f examples/board/Makefile NET=net run"): (
        "arm-none-eabi-gcc",
        "qemu-system-arm",
    ),
}

_FENCE = re.compile(r"^```(\w+)?(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_EXIT_CODE = re.compile(r"\s+# exit code (\d+).*$")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: its language, title and text, and the line of its page where its text begins."""

    language: str
    title: str
    text: str
    line: int


@dataclass(frozen=True, slots=True)
class Command:
    """A command of a console block, the exit code that it must end with, and the output below it."""

    text: str
    code: int
    output: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of `page` that begin in the first column, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start(3)) + 1
        yield Block(found[1] or "", found[2] or "", found[3], line)


def why_not_run(page: str, block: Block) -> str | None:
    """The reason why a block of shell is only shown; None for one that is run. `page` is from the root on."""
    return next(
        (r for (p, begins), r in NOT_RUN.items() if p == page and block.text.startswith(begins)), None
    )


def lacking_program(page: str, block: Block) -> str | None:
    """The first program that a console block needs and that is not installed."""
    needed = (
        program
        for (place, begins), programs in PROGRAMS.items()
        if place == page and block.text.startswith(begins)
        for program in programs
    )
    return next((program for program in needed if shutil.which(program) is None), None)


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block. Raises ValueError where it does not begin with one."""
    parts = re.split(r"^\$ ", text, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"A console block begins with '$ ', not with {parts[0].splitlines()[0]!r}.")
    for part in parts[1:]:
        line, _, output = part.partition("\n")
        code = _EXIT_CODE.search(line)
        yield Command(_EXIT_CODE.sub("", line), int(code[1]) if code else 0, output)


def matches(expected: str, printed: str) -> bool:
    """Whether `printed` is what a page shows; space at the ends of lines does not count."""
    lines = [re.escape(line.rstrip()).replace(r"\.\.\.", ".*") for line in expected.strip("\n").splitlines()]
    pattern = "".join("(?:.*\n)*" if line == ".*" else f"{line}\n" for line in lines)
    text = "".join(f"{line.rstrip()}\n" for line in printed.strip("\n").splitlines())
    return re.fullmatch(pattern, text) is not None
