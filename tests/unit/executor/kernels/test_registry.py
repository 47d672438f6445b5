"""Kernels are found by operator name, family by family."""

from __future__ import annotations

import importlib

import pytest

from solver.errors import InternalError, UnknownOperatorError
from solver.executor.kernels import kernels_for
from solver.graph.ops import FAMILIES, OPERATOR_NAMES
from tests.support.every import grid


@grid("name", OPERATOR_NAMES)
def test_every_operator_has_kernels(name: str) -> None:
    assert kernels_for(name) is kernels_for(name)


@grid("family", FAMILIES)
def test_a_family_has_the_kernels_of_its_operators_and_no_others(family: str) -> None:
    module = importlib.import_module(f"solver.executor.kernels.{family}")
    assert sorted(module.KERNELS) == sorted(FAMILIES[family])


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UnknownOperatorError, match="no operator 'Einsum42'"):
        kernels_for("Einsum42")


def test_an_operator_without_kernels_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("solver.executor.kernels.reduction")
    monkeypatch.setattr(module, "KERNELS", {})
    kernels_for.cache_clear()
    with pytest.raises(InternalError, match="'reduction' has no kernels for operator 'ReduceMean'"):
        kernels_for("ReduceMean")
    kernels_for.cache_clear()
