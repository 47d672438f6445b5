"""First values: kinds, ranges, inline values in both spellings."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest

from solver.documents.initializers import InitializerDocument, initializer_content, to_initializer
from solver.errors import DocumentError
from solver.graph.types import DType, Initializer, TensorType


def read(shape: tuple[int, ...], dtype: str, **fields: Any) -> Initializer:
    document = InitializerDocument.model_validate(fields)
    return to_initializer(document, "w", TensorType(shape, DType(dtype)), ("operands", 0, "initializer"))


def inline(shape: tuple[int, ...], dtype: str, values: list[Any]) -> Initializer:
    return read(shape, dtype, kind="values", values=values)


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("float32", [0.5, -1, 3.4028234663852886e38, 1e-50]),
        ("float64", [1e308, -1e308, 0.1, 7]),
        ("int32", [2**31 - 1, -(2**31), 0, 1]),
        ("int64", [2**63 - 1, -(2**63), 0, 1]),
        ("uint8", [0, 255, 1, 2]),
        ("bool", [True, False, False, True]),
    ],
)
def test_values_and_base64_mean_the_same(dtype: str, values: list[Any]) -> None:
    expected = np.array(values, dtype).reshape(2, 2)
    listed = inline((2, 2), dtype, values)
    encoded = read((2, 2), dtype, kind="values", base64=base64.b64encode(expected.tobytes()).decode())
    assert listed == encoded == Initializer("values", data=expected.tobytes())
    assert np.array_equal(np.frombuffer(listed.data or b"", dtype).reshape(2, 2), expected)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 3.5e38),
        ("float32", 10**400),
        ("float32", True),
        ("float32", "1"),
        ("float32", None),
        ("float64", 10**309),
        ("int32", 2**31),
        ("int32", -(2**31) - 1),
        ("int64", 2**63),
        ("int64", 1.0),
        ("uint8", -1),
        ("uint8", 256),
        ("uint8", False),
        ("bool", 1),
        ("bool", 0.0),
        ("bool", "true"),
    ],
)
def test_elements_beyond_the_type(dtype: str, value: Any) -> None:
    good = dtype == "bool"
    with pytest.raises(DocumentError, match=f"is no {dtype} element of operand 'w'") as caught:
        inline((3,), dtype, [good, good, value] if good else [0, 0, value])
    assert caught.value.pointer == "/operands/0/initializer/values/2"


def test_scalar_has_one_value() -> None:
    assert inline((), "int32", [7]).data == np.int32(7).tobytes()
    with pytest.raises(DocumentError, match=r"int32\[\], 1 elements, but has 0 values"):
        inline((), "int32", [])


def test_bytes_of_bool_are_zero_or_one() -> None:
    assert read((3,), "bool", kind="values", base64="AAEB").data == b"\0\1\1"
    with pytest.raises(DocumentError, match="other than 0 and 1"):
        read((3,), "bool", kind="values", base64="AAEC")


@pytest.mark.parametrize("text", ["AAAA\n", " AAAA", "AA-_", "A", "AAAAA", "é", "AAAA===="])
def test_strict_base64(text: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read((3,), "uint8", kind="values", base64=text)
    assert caught.value.pointer == "/operands/0/initializer/base64"


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"kind": "zeros"}, "int64"),
        ({"kind": "ones"}, "bool"),
        ({"kind": "constant", "value": 2}, "int32"),
        ({"kind": "constant", "value": 1}, "bool"),
        ({"kind": "constant", "value": 0.5}, "float32"),
        ({"kind": "normal", "scale": 0.1, "seed": 3}, "float64"),
        ({"kind": "uniform", "scale": 2, "seed": 0}, "float32"),
        ({"kind": "he_normal", "seed": 2**63 - 1}, "float32"),
        ({"kind": "glorot_uniform", "seed": 4}, "float32"),
    ],
)
def test_named_schemes_round_trip(fields: dict[str, Any], dtype: str) -> None:
    made = read((2, 3), dtype, **fields)
    assert made.data is None
    assert initializer_content(made) == fields
    assert read((2, 3), dtype, **initializer_content(made)) == made


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"kind": "constant", "value": 1.5}, "int32"),
        ({"kind": "constant", "value": 256}, "uint8"),
        ({"kind": "constant", "value": 2}, "bool"),
        ({"kind": "constant", "value": -1e39}, "float32"),
        ({"kind": "normal", "scale": 1.0}, "int32"),
        ({"kind": "zeros", "seed": 1}, "float32"),
        ({"kind": "he_normal", "values": [1]}, "float32"),
    ],
)
def test_named_schemes_that_do_not_fit(fields: dict[str, Any], dtype: str) -> None:
    with pytest.raises(DocumentError):
        read((1,), dtype, **fields)


def test_seed_comes_from_the_name() -> None:
    """Weights of one shape must not start alike."""
    made = read((2, 3), "float32", kind="he_normal")
    assert made.seed == zlib.crc32(b"w")


def test_null_fields_count_as_left_out() -> None:
    assert read((1,), "float32", kind="zeros", seed=None, values=None) == Initializer("zeros")
