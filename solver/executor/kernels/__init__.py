"""Kernels by operator name. The module of a family is imported when one of its operators is asked for."""

from __future__ import annotations

import importlib
from functools import cache

from solver.errors import InternalError
from solver.executor.kernels.base import Call, Kernels
from solver.graph.ops import FAMILIES, lookup

__all__ = ["Call", "Kernels", "kernels_for"]


@cache
def kernels_for(name: str) -> Kernels:
    """Kernels of the operator `name`.

    Raises UnknownOperatorError for a name that no family knows, and InternalError when the family
    in `solver.graph.ops` has an operator that its module here lacks.
    """
    operator = lookup(name).name
    family = next(family for family, names in FAMILIES.items() if operator in names)
    kernels: dict[str, Kernels] = importlib.import_module(f"{__name__}.{family}").KERNELS
    if operator not in kernels:
        raise InternalError(f"Family {family!r} has no kernels for operator {operator!r}.")
    return kernels[operator]
