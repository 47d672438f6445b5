"""Functions and files stay short: median and 95th percentile, in lines, docstrings included."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

import pytest

PACKAGES = ("clients", "service", "solver")


@pytest.fixture(scope="module")
def sources(root: Path) -> dict[Path, str]:
    found = (path for package in PACKAGES for path in sorted((root / package).rglob("*.py")))
    return {path.relative_to(root): path.read_text() for path in found}


def function_lengths(sources: dict[Path, str]) -> dict[str, int]:
    return {
        f"{path}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def percentile_95(lengths: list[int]) -> int:
    """Smallest length that at least 95 % of the values do not exceed."""
    return sorted(lengths)[-(-len(lengths) * 95 // 100) - 1]


def longest(lengths: dict[str, int]) -> str:
    ranking = sorted(lengths, key=lambda name: lengths[name], reverse=True)
    return "; ".join(f"{name} {lengths[name]}" for name in ranking[:20])


def test_functions(sources: dict[Path, str]) -> None:
    lengths = function_lengths(sources)
    assert statistics.median(lengths.values()) <= 8, longest(lengths)
    assert percentile_95(list(lengths.values())) <= 35, longest(lengths)


def test_files(sources: dict[Path, str]) -> None:
    lengths = {str(path): len(text.splitlines()) for path, text in sources.items()}
    assert percentile_95(list(lengths.values())) <= 350, longest(lengths)


def test_percentile() -> None:
    assert percentile_95(list(range(1, 101))) == 95
    assert percentile_95([7]) == 7
