"""The preparation `storage`: what waits from the forward to the backward pass is kept in 16 bits.

The backward pass then reads rounded activations, so that results are others than in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from solver.errors import OptionsError
from solver.preparations.base import Planner, Preparation, Prepared
from solver.training import STORAGE_TYPES

__all__ = ["Storage"]


@dataclass(frozen=True, slots=True)
class Storage(Preparation):
    """`storage` names one of `STORAGE_TYPES`, None keeps everything as it is. Raises OptionsError else."""

    name: ClassVar[str] = "storage"

    storage: str | None = None

    def __post_init__(self) -> None:
        known = [dtype.value for dtype in STORAGE_TYPES]
        if self.storage is not None and self.storage not in known:
            raise OptionsError(
                f"Unknown storage {self.storage!r}.",
                remedy=f"Choose one of {', '.join(known)}, or leave it out.",
                path=("storage",),
            )

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        if prepared.storage == self.storage:
            return prepared
        return replace(prepared, storage=self.storage)
