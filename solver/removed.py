"""Names that earlier versions had, each with one sentence that says what replaces it.

Every door asks `removed` before it says that it does not know a name, so an old command, option, field or
route answers with the same sentence everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__all__ = ["REMOVED", "removed"]

#: Sentences by name, as users wrote it: a command, `--option`, field, route, setting, exporter or operator.
REMOVED: Final[Mapping[str, str]] = {
    "tflm": "Offsets for TensorFlow Lite Micro are no longer written: --to c-training trains and infers on"
    " microcontrollers, and `arenaplan solve --solver tflm-greedy` shows what TFLM's planner needs.",
}


def removed(name: str) -> str | None:
    """The sentence for a name that earlier versions had; None for any other."""
    return REMOVED.get(name)
