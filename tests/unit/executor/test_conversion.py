"""Conversions to 16 bits and back: every bit pattern of bfloat16, ties, and what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from solver.executor.conversion import prepare_conversion
from solver.graph import Array, DType, Operation, TensorType
from solver.graph.ops.base import Node
from tests.support.every import grid
from tests.support.one_operation import allocated

ml_dtypes = pytest.importorskip("ml_dtypes", reason="a second opinion on bfloat16; onnx brings it along")

BITS = np.arange(2**16, dtype=np.uint16)


def converted(values: Array, source: DType, target: DType, block: int = 1000) -> Array:
    types = [TensorType(values.shape, dtype) for dtype in (source, target)]
    node = Node(Operation("x", "Convert", ("x0",), ("y0",)), (types[0],), (types[1],), (None,), {})
    found: Array = np.full(values.shape, 1, target.numpy)
    size = min(block, values.size)
    scratch = {"bits": np.empty(size, np.int32), "nan": np.empty(size, bool)}
    step = prepare_conversion(node, {"x0": values, "y0": found, **scratch})
    with np.errstate(all="ignore"):
        step()
        assert allocated(step) < 4096
    return found


def floats() -> Array:
    """Around every bfloat16 and float16: the numbers themselves, ties, and a last bit more and less."""
    wide = BITS.astype(np.uint32) << 16
    halves = BITS.view(np.float16).astype(np.float32).view(np.uint32)
    with np.errstate(all="ignore"):
        near: list[Array] = [wide + offset for offset in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
        near += [halves + offset for offset in (0, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    found: Array = np.concatenate(near).astype(np.uint32).view(np.float32)
    return found


def same_bits(ours: Array, theirs: Array) -> None:
    """Equal bits; of what is no number only that."""
    limit = 0x7F80 if theirs.dtype == np.uint16 else 0x7C00  # the bits of infinity
    missing = theirs.view(np.uint16) & 0x7FFF > limit
    np.testing.assert_array_equal(ours.view(np.uint16)[~missing], theirs.view(np.uint16)[~missing])
    assert (ours.view(np.uint16)[missing] & 0x7FFF > limit).all()


def test_bfloat16_rounds_as_ml_dtypes_does() -> None:
    values = floats()
    ours = converted(values, DType.FLOAT32, DType.BFLOAT16)
    with np.errstate(all="ignore"):
        same_bits(ours, values.astype(ml_dtypes.bfloat16).view(np.uint16))


def test_every_bfloat16_comes_back() -> None:
    wide = converted(BITS, DType.BFLOAT16, DType.FLOAT32)
    np.testing.assert_array_equal(wide.view(np.uint32), BITS.astype(np.uint32) << 16)
    again = converted(wide, DType.FLOAT32, DType.BFLOAT16)
    same_bits(again, BITS)


def test_float16_rounds_as_ieee_754_says() -> None:
    values = floats()
    with np.errstate(all="ignore"):
        same_bits(converted(values, DType.FLOAT32, DType.FLOAT16), values.astype(np.float16))
    halves = BITS.view(np.float16)
    same_bits(
        converted(converted(halves, DType.FLOAT16, DType.FLOAT32), DType.FLOAT32, DType.FLOAT16), halves
    )


@grid(
    ("value", "float16", "bfloat16"),
    [
        (65504.0, 65504.0, 65536.0),
        (65519.0, 65504.0, 65536.0),
        (65520.0, np.inf, 65536.0),
        (2.0**100, np.inf, 2.0**100),
        (3.4e38, np.inf, np.inf),
        (-np.inf, -np.inf, -np.inf),
        (2.0**-26, 0.0, 2.0**-26),
        (1 + 2**-9, 1 + 2**-9, 1.0),
        (1 + 2**-8, 1 + 2**-8, 1.0),  # a tie goes to the even neighbour
        (1 + 3 * 2**-8, 1 + 3 * 2**-8, 1 + 2**-6),
    ],
)
def test_ranges_and_ties(value: float, float16: float, bfloat16: float) -> None:
    for target, expected in ((DType.FLOAT16, float16), (DType.BFLOAT16, bfloat16)):
        kept = converted(np.array([value], np.float32), DType.FLOAT32, target)
        assert converted(kept, target, DType.FLOAT32).tolist() == [expected]


@pytest.mark.parametrize("bits", [0x7F800001, 0x7FFFFFFF, 0xFF800001, 0xFFFFFFFF, 0x7FC00000])
def test_what_is_no_number_stays_none(bits: int) -> None:
    value = np.array([bits], np.uint32).view(np.float32)
    for target in (DType.FLOAT16, DType.BFLOAT16):
        kept = converted(value, DType.FLOAT32, target)
        assert np.isnan(converted(kept, target, DType.FLOAT32)).all()


def test_blocks_of_any_size_give_the_same() -> None:
    values: Array = np.random.default_rng(5).standard_normal((7, 11, 13)).astype(np.float32)
    whole = converted(values, DType.FLOAT32, DType.BFLOAT16, block=10_000)
    for block in (1, 3, 1000, 1001):
        np.testing.assert_array_equal(converted(values, DType.FLOAT32, DType.BFLOAT16, block), whole)
