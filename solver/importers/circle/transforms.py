"""Fourier transforms of real signals, which audio models begin with, as products with cosines and sines.

A complex tensor is a pair of operands, its real and its imaginary part; `Network.add` moves both.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from solver.importers.circle.network import Network, Unsupported
from solver.importers.circle.read import ModelOperator

__all__ = ["complex_absolute", "imaginary_part", "real_part", "real_transform"]

#: Elements of the table of cosines; longer transforms are for a fast algorithm.
MAX_TABLE_ELEMENTS: Final = 2**24


def real_transform(net: Network, operator: ModelOperator) -> None:
    """RFFT2D along the last axis: of n values, cut or filled up with zeros, n // 2 + 1 complex ones."""
    rows, length = net.integers(1)
    shape = net.shape(0)
    if rows != 1 or shape[-2] != 1:
        raise Unsupported("transforms two axes")
    x, width, count = net.input(0), min(length, shape[-1]), length // 2 + 1
    if length < 1 or width * count > MAX_TABLE_ELEMENTS:
        raise Unsupported(f"transforms {length:,} elements, for which a table of cosines is too large")
    if width < shape[-1]:
        x = net.part("Slice", [x, *map(net.numbers, ([0], [width], [len(shape) - 1]))])
    angles = np.outer(np.arange(width), np.arange(count)) % length * (2 * math.pi / length)
    parts = [net.part("MatMul", [x, net.table(wave)]) for wave in (np.cos(angles), -np.sin(angles))]
    net.set_complex(operator.outputs[0], (parts[0], parts[1]))


def real_part(net: Network, _: ModelOperator) -> None:
    _as_output(net, net.complex(0)[0])


def imaginary_part(net: Network, _: ModelOperator) -> None:
    _as_output(net, net.complex(0)[1])


def _as_output(net: Network, part: str) -> None:
    """The operator's output, under its own name, is the operand `part`."""
    net.emit("Reshape", [part, net.numbers(net.types[part].type.shape)])


def complex_absolute(net: Network, _: ModelOperator) -> None:
    squares = [net.part("Mul", [part, part]) for part in net.complex(0)]
    net.emit("Sqrt", [net.part("Add", squares)])
