"""An operation family is one word in three places: operators, kernels, tests."""

from __future__ import annotations

from pathlib import Path

import pytest


def families(folder: Path) -> set[str]:
    """Public modules of a package of families; `base` is the contract they share."""
    return {path.stem for path in folder.glob("[!_]*.py")} - {"base"}


@pytest.fixture(scope="module")
def operators(root: Path) -> set[str]:
    return families(root / "solver/graph/ops")


def test_every_family_has_kernels(root: Path, operators: set[str]) -> None:
    assert operators
    assert operators == families(root / "solver/executor/kernels")


@pytest.mark.parametrize("side", ["graph/ops", "executor/kernels"])
def test_every_family_has_tests(root: Path, operators: set[str], side: str) -> None:
    tested = {path.stem.removeprefix("test_") for path in (root / "tests/unit" / side).glob("test_*.py")}
    assert operators - tested == set()
