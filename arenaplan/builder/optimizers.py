"""Optimizers as graph documents name them."""

from __future__ import annotations

from typing import Any

from solver.arguments import checks_arguments

__all__ = ["adam", "sgd"]


@checks_arguments
def adam(learning_rate: float = 0.001) -> dict[str, Any]:
    return {"type": "Adam", "learning_rate": learning_rate}


@checks_arguments
def sgd(learning_rate: float = 0.01, *, momentum: float = 0.0) -> dict[str, Any]:
    return {"type": "SGD", "learning_rate": learning_rate, "momentum": momentum}
