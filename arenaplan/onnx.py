"""ONNX models, as graphs: what `solver.importers.onnx` offers. Needs the extra ``arenaplan[onnx]``."""

from __future__ import annotations

import importlib
from typing import Any

_MODULE = "solver.importers.onnx"


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(_MODULE), name)
    except ModuleNotFoundError as error:
        if error.name == _MODULE:
            raise ImportError("This version of arenaplan does not read ONNX models.", name=_MODULE) from None
        raise ImportError(
            f"arenaplan.onnx needs the package {error.name!r}: pip install 'arenaplan[onnx]'.",
            name=error.name,
        ) from None
