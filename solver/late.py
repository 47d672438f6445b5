"""Faces of packages whose modules are loaded when something of them is first asked for."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["loaded_late"]


def loaded_late(package: str, where: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package: each module, and the names that it has, with spaces between.

    A name must not be that of a module of the package: loading the module would take its place.
    """
    module_of = {name: module for module, names in where.items() for name in names.split()}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{package}.{module_of[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return find
