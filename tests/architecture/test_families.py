"""An operation family is one word in two places: operators and kernels. Tests hold for every operator."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from solver.graph.ops import FAMILIES

#: Kernels of the training program's own steps, which are no operations of a graph.
PROGRAM_KERNELS = {"optimizer"}


def modules(folder: Path) -> set[str]:
    """Public modules of a package of families; `base` is the contract they share."""
    return {path.stem for path in folder.glob("[!_]*.py")} - {"base"}


def test_every_family_has_kernels(root: Path) -> None:
    assert modules(root / "solver/graph/ops") == set(FAMILIES)
    assert modules(root / "solver/executor/kernels") - PROGRAM_KERNELS == set(FAMILIES)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_operator_has_kernels(family: str) -> None:
    kernels = importlib.import_module(f"solver.executor.kernels.{family}").KERNELS
    assert set(FAMILIES[family]) == set(kernels)
