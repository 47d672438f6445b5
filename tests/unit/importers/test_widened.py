"""Notes about weights that are planned in more bytes than the model stores."""

from __future__ import annotations

from solver.graph import DType, TensorType
from solver.importers.narrowed import Origin, widening_notes

FLOATS = TensorType((64, 64), DType.FLOAT32)


def test_half_precision() -> None:
    (note,) = widening_notes([(FLOATS, Origin("w", "float16", 8192))])
    assert "1 weight is stored in 8,192 bytes (float16) and planned in 16,384 bytes" in note
    assert "'w'" in note


def test_packed_integers_and_scales_count_once() -> None:
    """Two weights computed from one packed tensor: its bytes are there once."""
    packed, scales = Origin("packed", "uint8", 4096), Origin("scales", "float32", 256)
    unpacked = Origin(parents=(packed,))
    first = Origin(parents=(unpacked, scales))
    second = Origin(parents=(Origin(parents=(unpacked,)), scales))
    (note,) = widening_notes([(FLOATS, first), (FLOATS, second)])
    assert "2 weights are stored in 4,352 bytes (float32, uint8) and planned in 32,768 bytes" in note


def test_nothing_to_say() -> None:
    indices = TensorType((64,), DType.INT64)
    assert not widening_notes(
        [
            (FLOATS, Origin("plain", "float32", 16384)),
            (FLOATS, Origin(parents=(Origin("row", "float32", 256),))),
            (FLOATS, Origin(parents=(Origin("mask", "bool", 4096),))),
            (FLOATS, Origin(parents=(Origin("positions", "int64", 512),))),
            (FLOATS, Origin()),
            (indices, Origin("integers", "int8", 64)),
            (FLOATS, Origin("w", "int32", 65536)),
        ]
    )


def test_many_names() -> None:
    (note,) = widening_notes([(FLOATS, Origin(f"w{k}", "int8", 4096)) for k in range(5)])
    assert note.endswith("'w0', 'w1', 'w2' and 2 more.")
