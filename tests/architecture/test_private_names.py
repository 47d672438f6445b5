"""Tests touch public names only, so that what is private may change as long as behaviour does not."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

OURS = ("arenaplan", "solver", "service", "clients", "examples")

#: Public in spite of their look: of named tuples, of the standard library, and for notebooks.
KNOWN = frozenset({"_asdict", "_fields", "_make", "_replace", "_exit", "_repr_html_"})

#: Functions that take the name of an attribute as their second argument.
BY_NAME = frozenset({"delattr", "getattr", "hasattr", "object", "setattr"})

_IN_TEXT = re.compile(rf"\b(?:{'|'.join(OURS)})(?:\.\w+)*\.(_[a-z]\w*)\b")
_IMPORTED_IN_TEXT = re.compile(rf"\bfrom (?:{'|'.join(OURS)})[\w.]* import [^\n;]*\b(_[a-z]\w*)")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_" and name not in KNOWN


def ours(module: str) -> bool:
    return module.partition(".")[0] in OURS


def offences(source: str) -> list[str]:
    """``line: name`` of each use of a private name of ours, as far as it can be seen without running."""
    tree = ast.parse(source)
    foreign = {
        (alias.asname or alias.name).partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if not ours(alias.name)
    }
    return sorted(f"{line}: {name}" for line, name in _touched(tree, foreign))


def _touched(tree: ast.AST, foreign: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import() | ast.ImportFrom():
                names = [name for name in imported(node) if ours(name) and any(map(private, name.split(".")))]
            case ast.Attribute(value=ast.Name(id=owner), attr=name):
                names = [name] if owner not in {"self", "cls", *foreign} and private(name) else []
            case ast.Attribute(attr=name):
                names = [name] if private(name) else []
            case ast.Call(args=[_, ast.Constant(value=str(name)), *_]) if called(node) in BY_NAME:
                names = [name] if private(name) else []
            case ast.Constant(value=str(text)):
                names = [*_IN_TEXT.findall(text), *_IMPORTED_IN_TEXT.findall(text)]
            case _:
                continue
        yield from ((node.lineno, name) for name in names)


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
    return [prefix + alias.name for alias in node.names]


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from solver.graph.ops._shared import X", ["1: solver.graph.ops._shared.X"]),
        ("from solver.layout.load import _exact", ["1: solver.layout.load._exact"]),
        ("import service._x", ["1: service._x"]),
        ("import os\nos._exit(1)\nos._other", []),
        ("from solver import pipeline\npipeline._plan()", ["2: _plan"]),
        ("outcome.layout._seal", ["1: _seal"]),
        ("self._a = cls._b", []),
        ("monkeypatch.setattr(cp_sat, '_solver', 1)", ["1: _solver"]),
        ("monkeypatch.setattr('solver.layout.cp_sat._solver', 1)", ["1: _solver"]),
        ("getattr(x, '_y')", ["1: _y"]),
        ("run('-c', 'import sys; from solver.layout.jit import a, _stamp')", ["1: _stamp"]),
        ("point._replace(x=1).__class__", []),
        ("from tests.support import _own\nfrom numpy import _core", []),
    ],
)
def test_what_counts(source: str, found: list[str]) -> None:
    assert offences(source) == found


def test_tests_touch_public_names_only(root: Path) -> None:
    found = {
        path.relative_to(root).as_posix(): offences(path.read_text(encoding="utf-8"))
        for path in sorted((root / "tests").rglob("*.py"))
        if path != Path(__file__)
    }
    assert {name: lines for name, lines in found.items() if lines} == {}
