"""Statements at each size of a range as one text: numbers that grow with the size become expressions.

    size 1      ap_softmax_forward(&t0, ..., 10u)        size <= 1u
    size 2      ap_softmax_forward(&t0, ..., 120u)   \\
    size 3      ap_softmax_forward(&t0, ..., 180u)   /   else: ap_softmax_forward(&t0, ..., 60u * size)

Every expression is checked at every size. Where none fits, sizes get statements of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["merged"]

#: Numbers that may depend on the size: whole ones, and those that are written as floats. Not those in names.
_NUMBER: Final = re.compile(r"(?<![\w.])(\d+)(u|\.0f)?(?![\w.])")


@dataclass(frozen=True, slots=True)
class _Piece:
    """Sizes up to `most`, and their statements."""

    most: int
    texts: tuple[str, ...]


def merged(texts: Mapping[int, Sequence[str]]) -> str:
    """Statements that do at `size` what these do which are given for it: definitions of constants, which end
    with ``;`` and begin with ``const``, and behind them a statement.

    Linear in the texts.
    """
    pieces = list(_pieces(texts))
    *branches, last = [f"{{ {' '.join(piece.texts)} }}" for piece in pieces]
    if not branches:
        only = pieces[0].texts
        return only[0] if len(only) == 1 else last
    conditions = [
        f"if (size <= {piece.most}u) {branch}" for piece, branch in zip(pieces, branches, strict=False)
    ]
    return " else ".join((*conditions, last))


def _pieces(texts: Mapping[int, Sequence[str]]) -> Iterator[_Piece]:
    """Runs of sizes, the smallest first, each as long as expressions fit. The last one is extended down."""
    sizes = sorted(texts, reverse=True)
    pieces, start = list[_Piece](), 0
    while start < len(sizes):
        end = start + 1
        run = _Run(sizes[start], texts[sizes[start]])
        while end < len(sizes) and run.takes(sizes[end], texts[sizes[end]]):
            end += 1
        pieces.append(_Piece(sizes[start], run.texts()))
        start = end
    yield from reversed(pieces)


class _Run:
    """Texts that differ in numbers alone, which are linear in the size."""

    def __init__(self, size: int, texts: Sequence[str]) -> None:
        self._size = size
        self._skeletons = [_NUMBER.sub(_gap, text) for text in texts]
        self._numbers = [[int(match[1]) for match in _NUMBER.finditer(text)] for text in texts]
        self._suffixes = [[match[2] or "" for match in _NUMBER.finditer(text)] for text in texts]
        self._slopes: list[list[int]] | None = None

    def takes(self, size: int, texts: Sequence[str]) -> bool:
        """Whether the texts at this size have the form of the others; if so they are among them."""
        if [_NUMBER.sub(_gap, text) for text in texts] != self._skeletons:
            return False
        numbers = [[int(match[1]) for match in _NUMBER.finditer(text)] for text in texts]
        less = self._size - size
        slopes = self._slopes
        if slopes is None:
            differences = [
                [most - here for most, here in zip(row, there, strict=True)]
                for row, there in zip(self._numbers, numbers, strict=True)
            ]
            if any(difference % less for row in differences for difference in row):
                return False
            slopes = [[difference // less for difference in row] for row in differences]
        at_size = [
            [most - slope * less for most, slope in zip(row, steps, strict=True)]
            for row, steps in zip(self._numbers, slopes, strict=True)
        ]
        if at_size != numbers:
            return False
        self._slopes = slopes
        return True

    def texts(self) -> tuple[str, ...]:
        return tuple(self._text(k) for k in range(len(self._skeletons)))

    def _text(self, k: int) -> str:
        slopes = self._slopes[k] if self._slopes else [0] * len(self._numbers[k])
        rows = zip(self._numbers[k], slopes, self._suffixes[k], strict=True)
        written = iter(
            [_expression(most - slope * self._size, slope, most, suffix) for most, slope, suffix in rows]
        )
        text = re.sub("\0[^\0]*\0", lambda _: next(written), self._skeletons[k])
        return text if any(slopes) or not text.startswith("const ") else f"static {text}"


def _gap(match: re.Match[str]) -> str:
    return f"\0{match[2] or ''}\0"


def _expression(constant: int, slope: int, number: int, suffix: str) -> str:
    if not slope:
        return f"{number}{suffix}"
    product = "size" if slope == 1 else f"{abs(slope)}u * size" if abs(slope) != 1 else "size"
    if slope < 0:
        text = f"{constant}u - {product}"
    elif constant:
        text = f"{product} {'+' if constant > 0 else '-'} {abs(constant)}u"
    else:
        text = product
    return f"(float)({text})" if suffix == ".0f" else f"({text})"
