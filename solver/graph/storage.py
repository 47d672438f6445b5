"""Storage of frozen operands: how the elements of a weight that is not trained lie in memory.

An operand has a shape and an element type, in which operators compute. Its storage says what its bytes are:

    float16, bfloat16     each element rounded, 2 bytes
    int8, int4            integers q in groups with a scale s:  element = q s,  or (q - z) s with zero points
    q4_k                  integers q of 4 bits in groups of 256 with two scales d and e, and in groups of 32
                          with two integers a and b of 6 bits:  element = (d a) q - (e b)

A stored operand is a matrix of rows. `axis` counts the rows; the other axes, flattened in C order, are those
that products sum over. Rows follow each other without gaps, each as a row of blocks, one for each group:

    scale | zero point, uint8, if there are any | integers of the group

An int8 takes a byte. Of int4s, byte k has element k in its low half and element k + group/2 in its high half.
Without zero points an int8 is signed, and an int4 has the zero point 8. A range of rows is a range of bytes,
so a kernel can unpack a few rows at a time, into scratch named `tile`. Groups of 32 with float16 scales are
the blocks Q8_0 and Q4_0 of GGUF.

A block of q4_k is GGUF's Q4_K, 144 bytes: d, e, 12 bytes of a and b, the integers. Weights of files have
this storage; nothing here packs floats to it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = [
    "DEFAULT_GROUP",
    "PACKED",
    "Q4_K_GROUP",
    "SCALES",
    "STORAGES",
    "Storage",
    "default_group",
    "storage_of_word",
]

#: Bits of an element by the word of its storage.
STORAGES: Final[Mapping[str, int]] = {"float16": 16, "bfloat16": 16, "int8": 8, "int4": 4, "q4_k": 4}

#: Storages to which floats are packed.
PACKED: Final = tuple(word for word in STORAGES if word != "q4_k")

#: Bytes of a scale by its type.
SCALES: Final[Mapping[str, int]] = {"float16": 2, "bfloat16": 2, "float32": 4}

#: Elements that share a scale, where the group is left out.
DEFAULT_GROUP: Final = 32

#: Elements and bytes of a block of q4_k.
Q4_K_GROUP: Final = 256
_Q4_K_BYTES: Final = 144

#: In a smaller group the scale would take more bytes than the integers save.
_LEAST_GROUP: Final = 8


@dataclass(frozen=True, slots=True)
class Storage:
    """How the elements of an operand are kept. `group` is 0 for floats, which have no scales."""

    kind: str
    group: int = 0
    zero_points: bool = False
    scales: str = "float16"
    axis: int = 0

    def __str__(self) -> str:
        if not self.group:
            return self.kind
        zero_points = " with zero points" if self.zero_points else ""
        return f"{self.kind} in groups of {self.group}{zero_points}"

    @property
    def block_bytes(self) -> int:
        """Bytes of a group with its scale and its zero point; of one element where there are no groups."""
        bits = STORAGES[self.kind]
        if not self.group:
            return bits // 8
        if self.kind == "q4_k":
            return _Q4_K_BYTES
        return SCALES[self.scales] + self.zero_points + self.group * bits // 8

    def matrix(self, shape: Sequence[int]) -> tuple[int, int]:
        """Rows, and elements of a row, of an operand of this shape."""
        rows = shape[self.axis]
        return rows, math.prod(shape[: self.axis]) * math.prod(shape[self.axis + 1 :])

    def row_bytes(self, shape: Sequence[int]) -> int:
        return -(-self.matrix(shape)[1] // (self.group or 1)) * self.block_bytes

    def nbytes(self, shape: Sequence[int]) -> int:
        return self.matrix(shape)[0] * self.row_bytes(shape)

    def fault(self, shape: Sequence[int]) -> str | None:
        """A clause that says why an operand of this shape cannot have this storage; None where it can."""
        if self.kind not in STORAGES:
            return f"{self.kind!r:.40} is no kind of storage; those are {', '.join(STORAGES)}"
        if self.scales not in SCALES:
            return f"{self.scales!r:.40} is no type of scales; those are {', '.join(SCALES)}"
        if not 0 <= self.axis < len(shape) or len(shape) < 2:
            return f"it has no axis {self.axis} of rows beside another axis"
        if not math.prod(shape):
            return "it has no elements"
        if STORAGES[self.kind] == 16:
            return f"{self.kind} has no groups" if self.group or self.zero_points else None
        if self.kind == "q4_k" and self != Storage("q4_k", Q4_K_GROUP, axis=self.axis):
            return f"q4_k has groups of {Q4_K_GROUP} with float16 scales, and no zero points"
        if self.group < _LEAST_GROUP or self.group % 2:
            return f"a group has an even number of elements, at least {_LEAST_GROUP}, not {self.group}"
        inner = self.matrix(shape)[1]
        if inner % self.group:
            return f"its rows have {inner:,} elements, which groups of {self.group} do not divide"
        return None


def default_group(kind: str) -> int:
    """The elements of a group where a document has no `group`; 0 for floats."""
    if STORAGES[kind] == 16:
        return 0
    return Q4_K_GROUP if kind == "q4_k" else DEFAULT_GROUP


def storage_of_word(word: str) -> Storage | None:
    """The storage of a word as ``int4``, ``int4:64`` or ``int4:64:zero-points``, to which floats are packed.

    None for another word.
    """
    kind, *rest = word.split(":")
    bits = STORAGES.get(kind)
    if kind not in PACKED or len(rest) > 2 or (bits == 16 and rest):
        return None
    if bits == 16:
        return Storage(kind)
    zero_points = rest[-1:] == ["zero-points"]
    sizes = rest[:-1] if zero_points else rest
    if len(sizes) > 1 or not all(size.isascii() and size.isdigit() and len(size) < 9 for size in sizes):
        return None
    return Storage(kind, int(sizes[0]) if sizes else DEFAULT_GROUP, zero_points)
