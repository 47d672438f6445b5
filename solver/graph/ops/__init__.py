"""The operators, found by looking: every module of this package that ends with ``OPERATORS``.

Adding a family means adding a file here and one of the same name in `solver.executor.kernels`;
nothing else changes. The package `helpers` holds what families share, `base` the interface.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping, Sequence

from solver.errors import InternalError, UnknownOperatorError
from solver.graph.ops.base import OperationType, Signature
from solver.graph.ops.helpers.sequence import SEQUENCES

__all__ = ["FAMILIES", "OPERATOR_NAMES", "SEQUENCES", "lookup", "signature"]


def _families() -> dict[str, tuple[OperationType, ...]]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.ispkg)
    return {
        name: tuple(importlib.import_module(f"{__name__}.{name}").OPERATORS)
        for name in names
        if name != "base"
    }


def by_name(families: Mapping[str, tuple[OperationType, ...]]) -> dict[str, OperationType]:
    """Operators by their names. Raises InternalError where two are of one name."""
    table: dict[str, OperationType] = {}
    for family, operators in families.items():
        for operator in operators:
            if operator.name in table:
                raise InternalError(f"Family {family!r} defines operator {operator.name!r} a second time.")
            table[operator.name] = operator
    return table


_FOUND = _families()
_OPERATORS = by_name(_FOUND)
_SIGNATURES: Mapping[str, Signature] = {**SEQUENCES, **_OPERATORS}

#: Family word -> names of its operators, both in a fixed order.
FAMILIES: Mapping[str, tuple[str, ...]] = {
    family: tuple(operator.name for operator in operators) for family, operators in _FOUND.items()
}

#: Every known operator, sorted.
OPERATOR_NAMES: tuple[str, ...] = tuple(sorted(_OPERATORS))


def lookup(name: str) -> OperationType:
    """The operator called `name`. Raises UnknownOperatorError with close matches and all names."""
    kind = _OPERATORS.get(name)
    if kind is None:
        raise _unknown(name, OPERATOR_NAMES)
    return kind


def signature(name: str) -> Signature:
    """The operator called `name`, or the sequence that a graph unrolls. Raises like `lookup`."""
    checks = _SIGNATURES.get(name)
    if checks is None:
        raise _unknown(name, sorted(_SIGNATURES))
    return checks


def _unknown(name: str, names: Sequence[str]) -> UnknownOperatorError:
    lowered = {known.lower(): known for known in names}
    close = [lowered[match] for match in difflib.get_close_matches(name.lower(), lowered, n=3)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    return UnknownOperatorError(
        f"There is no operator {name!r}.",
        remedy=f"{hint}`arenaplan operators` lists all operators.",
    )
