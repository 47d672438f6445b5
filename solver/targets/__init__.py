"""The runtimes whose memory can be planned, by name; one package each."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from solver.targets.base import Capabilities, Lowered, Target, TargetOptions, aligned

if TYPE_CHECKING:
    from solver.targets.requests import Pool, TargetBuffer, TargetPlan, TargetStep

__all__ = [
    "TARGETS",
    "Capabilities",
    "Lowered",
    "Pool",
    "Target",
    "TargetBuffer",
    "TargetOptions",
    "TargetPlan",
    "TargetStep",
    "aligned",
]

#: Package and class of each target, in the order in which they are named to people.
_WHERE = {
    "reference": ("reference", "Reference"),
    "c": ("c", "C"),
    "onert": ("onert", "Onert"),
    "nntrainer": ("nntrainer", "Nntrainer"),
    "singa": ("singa", "Singa"),
    "singa-relu": ("singa", "SingaRelu"),
}


class _Targets(Mapping[str, Target]):
    """Loads a target when it is asked for: a plan needs one of them."""

    def __init__(self) -> None:
        self._loaded: dict[str, Target] = {}

    def __getitem__(self, name: str) -> Target:
        if name not in self._loaded:
            package, kind = _WHERE[name]
            self._loaded[name] = getattr(importlib.import_module(f"{__name__}.{package}"), kind)()
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _WHERE

    def __iter__(self) -> Iterator[str]:
        return iter(_WHERE)

    def __len__(self) -> int:
        return len(_WHERE)


#: Every target by its name. Adding one is a package here and a line above.
TARGETS: Mapping[str, Target] = _Targets()


def __getattr__(name: str) -> Any:
    """The classes by which targets with programs of their own are described."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.requests"), name)
