"""The kinds of files that commands take: a file of another kind is answered with the command for it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from solver.errors import ArenaplanError, NotJsonError, OtherFormatError, ProblemError

__all__ = ["command_for"]

_PLAN_IT: Final = "arenaplan plan {file} -o plan.json"
_NETWORK: Final = ("a graph", _PLAN_IT)
_MODEL: Final = ("a model", "arenaplan plan {file} --loss cross-entropy -o plan.json")

#: By the format of a document: what it is, and the command that takes it.
_DOCUMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "arenaplan.graph": _NETWORK,
    "arenaplan.program": ("a program", _PLAN_IT),
    "arenaplan.plan": ("a plan", "arenaplan show {file}"),
    "arenaplan.buffers": ("a problem of buffers", "arenaplan solve {file} -o layout.json"),
    "arenaplan.layout": ("a layout of buffers", "arenaplan solve buffers.json -o {file} makes it"),
    "arenaplan.costs": ("a list of costs", "arenaplan plan graph.json --costs {file} -o plan.json"),
    "arenaplan.tradeoff": ("a trade-off curve", "arenaplan tradeoff graph.json -o {file} makes it"),
    "arenaplan.verdict": ("a verdict", "arenaplan explain graph.json --capacity SIZE --json makes it"),
    "arenaplan.report": ("a validation report", "arenaplan validate graph.json plan.json --json makes it"),
    "arenaplan.budgets": ("a list of budgets", "arenaplan budget check {file}"),
}

#: By the suffix of a file that is not JSON: the same.
_FILES: Final[Mapping[str, tuple[str, str]]] = {
    ".onnx": _MODEL,
    ".circle": _MODEL,
    ".tflite": _MODEL,
    ".ini": ("a model of nntrainer", "arenaplan plan {file} --target nntrainer -o plan.json"),
    ".csv": ("a problem of buffers", "arenaplan solve {file} -o layout.csv"),
    ".toml": ("a list of budgets", "arenaplan budget check {file}"),
}


def command_for(error: ArenaplanError, file: str) -> str | None:
    """``this is a plan: arenaplan show plan.json``, where `error` says that `file` is of another kind.

    None for all other errors, and for kinds that are not known here.
    """
    suffix = Path(file).suffix.lower()
    if isinstance(error, OtherFormatError):
        kind = _DOCUMENTS.get(error.format)
    elif isinstance(error, NotJsonError) or (isinstance(error, ProblemError) and suffix != ".csv"):
        kind = _FILES.get(suffix)
    else:
        return None
    if kind is None:
        return None
    noun, command = kind
    return f"this is {noun}: {command.format(file=shlex.quote(file))}"
