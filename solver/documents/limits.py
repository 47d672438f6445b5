"""How large what documents hold may be."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_INTEGER", "MAX_NAME", "MAX_RANK"]

#: What signed 64-bit integers of runtimes hold; also the range of sizes and offsets.
MAX_INTEGER: Final = 2**63 - 1

#: NumPy's arrays have at most 64 axes; half of that leaves room for what operators add.
MAX_RANK: Final = 32

#: Characters of a name, and numbers in an attribute: what is repeated in errors stays readable.
MAX_NAME: Final = 1024
