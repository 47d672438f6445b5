"""The runtimes whose memory can be planned, by name; one package each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from solver.targets.base import Capabilities, Lowered, Target, TargetOptions, aligned
from solver.targets.nntrainer import Nntrainer
from solver.targets.onert import Onert
from solver.targets.reference import Reference
from solver.targets.requests import Pool, TargetBuffer, TargetPlan, TargetStep
from solver.targets.singa import Singa, SingaRelu

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

_ALL: tuple[Target, ...] = (Reference(), Onert(), Nntrainer(), Singa(), SingaRelu())

#: Every target by its name. Adding one is a package here and a line above.
TARGETS: Mapping[str, Target] = MappingProxyType({target.name: target for target in _ALL})
