"""Packed bytes of stored operands, beside formulas in plain Python that were written separately."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import StorageError
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, Operand, Role, TensorType
from solver.graph.packing import check_packed, check_storage, pack, packed_values, unpack, unpack_rows
from solver.graph.storage import STORAGES, Storage, storage_of_word
from solver.graph.types import Array
from tests.support.every import every, grid
from tests.support.one_operation import allocated

KINDS = [
    Storage("float16"),
    Storage("bfloat16"),
    *(
        Storage(kind, group, zero_points, scales)
        for kind, group, zero_points, scales in product(
            ("int8", "int4"), (8, 32, 128), (False, True), ("float16", "bfloat16", "float32")
        )
    ),
]


def type_of(storage: Storage, *shape: int) -> TensorType:
    return TensorType(shape, DType.FLOAT32, storage)


def some(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, np.float32)


# ------------------------------------------------------------------------------ formulas, written separately


def half(value: float) -> bytes:
    return struct.pack("<e", value)


def single(value: float) -> float:
    """The nearest float32."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def q8_0(group: Sequence[float]) -> bytes:
    """A block of GGUF's Q8_0: the scale, 32 signed integers."""
    scale = single(max(abs(x) for x in group) / 127)
    inverse = single(1 / scale) if scale else 0.0
    numbers = []
    for x in group:
        product_ = single(x * inverse)
        size = int(abs(product_) + 0.5)
        numbers.append(size if product_ >= 0 else -size)
    return half(scale) + struct.pack("<32b", *numbers)


def q4_0(group: Sequence[float]) -> bytes:
    """A block of GGUF's Q4_0: the scale, 16 bytes with elements k and k + 16."""
    largest = max(group, key=abs)
    scale = single(largest / -8)
    inverse = single(1 / scale) if scale else 0.0
    numbers = [min(15, int(single(single(x * inverse) + 8.5))) for x in group]
    return half(scale) + bytes(numbers[k] | numbers[k + 16] << 4 for k in range(16))


def elements_of(block: bytes, storage: Storage) -> Iterator[float]:
    """The elements of one block, by the words of `solver.graph.storage`."""
    read = {"float16": "<e", "float32": "<f"}
    size = 4 if storage.scales == "float32" else 2
    if storage.scales == "bfloat16":
        (scale,) = struct.unpack("<f", b"\0\0" + block[:2])
    else:
        (scale,) = struct.unpack(read[storage.scales], block[:size])
    zero = block[size] if storage.zero_points else 8 if storage.kind == "int4" else 0
    body = block[size + storage.zero_points :]
    if storage.kind == "int4":
        integers = [byte & 15 for byte in body] + [byte >> 4 for byte in body]
    elif storage.zero_points:
        integers = [*body]
    else:
        integers = [byte - 256 if byte > 127 else byte for byte in body]
    for integer in integers:
        yield single((integer - zero) * scale)


@pytest.mark.parametrize(("kind", "formula"), [("int8", q8_0), ("int4", q4_0)])
def test_groups_of_32_are_the_blocks_of_gguf(kind: str, formula: Any) -> None:
    values = some(40, 96)
    values[3, :32] = 0
    values[4, :32] = np.linspace(-1, 1, 32, dtype=np.float32)  # two elements have the largest magnitude
    packed = pack(values, type_of(Storage(kind, 32), 40, 96))
    for row, numbers in zip(packed, values.tolist(), strict=True):
        assert row.tobytes() == b"".join(formula(numbers[k : k + 32]) for k in (0, 32, 64))


@grid("storage", KINDS[2:])
def test_unpacking_is_the_formula_of_the_format(storage: Storage) -> None:
    type_ = type_of(storage, 5, 256)
    packed = pack(some(5, 256), type_)
    assert packed.nbytes == type_.nbytes
    blocks = packed.reshape(-1, storage.block_bytes)
    expected = [number for block in blocks for number in elements_of(block.tobytes(), storage)]
    assert unpack(packed, type_).ravel().tolist() == expected


@grid("storage", KINDS)
def test_every_element_is_within_half_a_step(storage: Storage) -> None:
    values = some(6, 4, 128, seed=1)
    found = unpack(pack(values, type_of(storage, 6, 4, 128)), type_of(storage, 6, 4, 128))
    if not storage.group:
        np.testing.assert_allclose(found, values, rtol=2**-11 if storage.kind == "float16" else 2**-8)
        return
    groups = values.reshape(-1, storage.group)
    span = groups.max(axis=1) - groups.min(axis=1)
    magnitude = np.abs(groups).max(axis=1)
    bits = STORAGES[storage.kind]
    step = span / (2**bits - 1) if storage.zero_points else magnitude * (1 / 127 if bits == 8 else 1 / 8)
    # Symmetric int4 has no element opposite to the largest one; a rounded scale moves all by its own error.
    steps = 1.01 if not storage.zero_points and bits == 4 else 1.0 if storage.zero_points else 0.51
    scale_error = 2**-8 if storage.scales == "bfloat16" else 2**-11
    bound = steps * step + 2 * scale_error * np.maximum(magnitude, span)
    assert (np.abs(found.reshape(groups.shape) - groups) <= bound[:, None]).all()


@grid("storage", KINDS)
def test_elements_that_were_stored_are_stored_again_without_a_change(storage: Storage) -> None:
    """But for zero points, whose range follows from rounded elements, and ends that came to be larger."""
    type_ = type_of(replace(storage, scales="float32") if storage.group else storage, 3, 128)
    once = unpack(pack(some(3, 128), type_), type_)
    again = unpack(pack(once, type_), type_)
    if storage.group:
        np.testing.assert_allclose(again, once, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(again, once)


@grid("axis", [0, 1, 2])
@grid("storage", [Storage("float16"), Storage("int4", 8, zero_points=True)])
def test_rows_lie_along_any_axis(storage: Storage, axis: int) -> None:
    values = some(8, 16, 8)
    turned = np.moveaxis(values, axis, 0)
    type_ = type_of(replace(storage, axis=axis), 8, 16, 8)
    packed = pack(values, type_)
    assert packed.tobytes() == pack(turned, type_of(storage, *turned.shape)).tobytes()
    found = unpack(packed, type_)
    np.testing.assert_array_equal(
        np.moveaxis(found, axis, 0), unpack(packed, type_of(storage, *turned.shape))
    )


@given(st.integers(1, 5), st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_a_range_of_rows_is_a_range_of_bytes(rows: int, storage: Storage, seed: int) -> None:
    type_ = type_of(storage, rows, 128)
    packed = pack(some(rows, 128, seed=seed), type_)
    whole = unpack(packed, type_)
    for start in range(rows):
        part = np.empty((rows - start, 128), np.float32)
        unpack_rows(packed[start:], storage, part)
        np.testing.assert_array_equal(part, whole[start:])


@grid("storage", [Storage("float16"), Storage("bfloat16"), Storage("int8", 32), Storage("int4", 32, True)])
def test_packing_and_checking_take_little_memory_beside_the_bytes(storage: Storage) -> None:
    """Of 16 MiB of elements in 4,096 rows; the last row is checked as the first one is."""
    type_ = type_of(storage, 4096, 1024)
    values = some(4096, 1024)
    packed = pack(values, type_)
    assert unpack(packed[-3:], type_of(storage, 3, 1024)).tobytes() == unpack(packed, type_)[-3:].tobytes()
    assert allocated(lambda: pack(values, type_)) < type_.nbytes + 8 * 2**20
    data = packed.tobytes()
    assert allocated(lambda: check_packed("w", data, type_)) < 4 * 2**20
    packed[-1, :2] = (0xFF, 0xFF)
    with pytest.raises(StorageError, match="row 4095"):
        check_packed("w", packed.tobytes(), type_)


# ------------------------------------------------------------------------------------- rounding, odd values


def packed_integers(values: Sequence[float], storage: Storage) -> list[int]:
    block = pack(np.array([values], np.float32), type_of(storage, 1, len(values)))[0].tobytes()
    body = block[2 + storage.zero_points :]
    if storage.kind == "int4":
        return [byte & 15 for byte in body] + [byte >> 4 for byte in body]
    return [*np.frombuffer(body, np.uint8 if storage.zero_points else np.int8).tolist()]


def test_halves_are_rounded_as_the_format_says() -> None:
    ends = [0.0] * 3
    assert packed_integers([127, 0.5, 1.5, -0.5, -1.5, *ends], Storage("int8", 8)) == [
        127,
        1,
        2,
        -1,
        -2,
        0,
        0,
        0,
    ]
    assert packed_integers([-8, 0.5, -0.5, 1.5, 7.5, *ends], Storage("int4", 8)) == [0, 9, 8, 10, 15, 8, 8, 8]
    ends = [0.5, 1.5, 2.5]
    assert packed_integers([255, 0, 0, 0, 0, *ends], Storage("int8", 8, True)) == [255, 0, 0, 0, 0, 0, 2, 2]
    assert packed_integers([15, 0, 0, 0, 0, *ends], Storage("int4", 8, True)) == [15, 0, 0, 0, 0, 0, 2, 2]
    assert packed_integers([5, -10, 0, 0, 0, 0, 0, 0], Storage("int4", 8, True)) == [15, 0, *[10] * 6]


@grid("storage", KINDS)
def test_zeros_stay_zeros(storage: Storage) -> None:
    type_ = type_of(storage, 2, 128)
    packed = packed_values("w", bytes(2 * 128 * 4), type_)
    assert not unpack(packed, type_).any()
    check_packed("w", packed.tobytes(), type_)


@grid("storage", KINDS)
@grid("tiny", [1e-45, 1e-40, 3e-39, 1e-38, 1e-20])
def test_tiny_elements_stay_tiny(storage: Storage, tiny: float) -> None:
    """A scale that its type cannot hold makes zeros, and nothing else."""
    type_ = type_of(storage, 1, 128)
    values = np.full((1, 128), tiny, np.float32)
    values[0, ::3] *= -1
    packed = packed_values("w", values.tobytes(), type_)
    assert np.abs(unpack(packed, type_)).max() <= 1.1 * values.max()


@grid("storage", KINDS)
@grid("wrong", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused(storage: Storage, wrong: float) -> None:
    values = some(2, 128)
    values[1, 77] = wrong
    with pytest.raises(StorageError, match=r"'w' cannot be stored as .*(row 1|too large)"):
        packed_values("w", values.tobytes(), type_of(storage, 2, 128))


@grid("storage", [s for s in KINDS if s.kind == "float16" or (s.group and s.scales == "float16")])
def test_what_is_too_large_is_refused(storage: Storage) -> None:
    values = some(2, 128)
    values[0, 5] = 1e30
    with pytest.raises(StorageError, match="row 0"):
        packed_values("w", values.tobytes(), type_of(storage, 2, 128))
    constant = Operand("w", type_of(storage, 2, 128), Role.PARAMETER, Initializer("constant", value=1e30))
    with pytest.raises(StorageError, match="row 0"):
        initial_value(constant)


def test_packed_bytes_are_checked() -> None:
    type_ = type_of(Storage("int4", 32), 2, 64)
    packed = pack(some(2, 64), type_)
    cases = {
        "the scale of group 1 in row 0 is nan": half(float("nan")),
        "the scale of group 1 in row 0 is inf": half(float("inf")),
        "the scale of group 1 in row 0 is -inf": half(float("-inf")),
        "the scale of group 1 in row 0 is zero, and its integers are not": half(0),
    }
    with every() as case:
        for sentence, scale in cases.items():
            with case(sentence):
                data = bytearray(packed.tobytes())
                data[18:20] = scale
                with pytest.raises(StorageError, match=sentence):
                    check_packed("w", bytes(data), type_)
        for kind, element in (("float16", half(float("inf"))), ("bfloat16", b"\xc0\x7f")):
            with case(kind), pytest.raises(StorageError, match="element 3 of row 0 is infinite or no number"):
                check_packed("w", bytes(6) + element + bytes(8), type_of(Storage(kind), 2, 4))


@pytest.mark.parametrize("size", [0, 1, 71, 73, 511, 513])
def test_a_file_of_another_size_is_refused(size: int) -> None:
    type_ = type_of(Storage("int4", 32), 2, 64)
    with pytest.raises(StorageError) as caught:
        check_packed("w", bytes(size), type_)
    assert caught.value.message.startswith(
        "Operand 'w' is float32[2, 64] stored as int4 in groups of 32, 72 bytes"
    )
    assert caught.value.remedy == "Give the 72 packed bytes, or 512 bytes of float32 elements."


# ------------------------------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    ("storage", "shape", "clause"),
    [
        (Storage("int4", 32), (4, 48), "its rows have 48 elements, which groups of 32 do not divide"),
        (Storage("int8", 2**40), (4, 48), "its rows have 48 elements, which groups of 1099511627776 do not"),
        (Storage("int4", 9), (4, 9), "a group has an even number of elements, at least 8, not 9"),
        (Storage("int4", 4), (4, 8), "a group has an even number of elements, at least 8, not 4"),
        (Storage("int8"), (4, 8), "a group has an even number of elements, at least 8, not 0"),
        (Storage("int8", -8), (4, 8), "a group has an even number of elements, at least 8, not -8"),
        (Storage("float16", 8), (4, 8), "float16 has no groups"),
        (Storage("bfloat16", zero_points=True), (4, 8), "bfloat16 has no groups"),
        (Storage("float16", axis=2), (4, 8), "it has no axis 2 of rows beside another axis"),
        (Storage("float16", axis=-1), (4, 8), "it has no axis -1 of rows beside another axis"),
        (Storage("float16"), (8,), "it has no axis 0 of rows beside another axis"),
        (Storage("float16"), (), "it has no axis 0 of rows beside another axis"),
        (Storage("float16"), (4, 0), "it has no elements"),
        (Storage("int4", 8), (0, 8), "it has no elements"),
        (Storage("int3", 8), (4, 8), "'int3' is no kind of storage"),
        (Storage("int4", 8, scales="float8"), (4, 8), "'float8' is no type of scales"),
    ],
    ids=str,
)
def test_what_cannot_be_stored_is_refused(storage: Storage, shape: tuple[int, ...], clause: str) -> None:
    with pytest.raises(StorageError) as caught:
        check_storage("w", Role.PARAMETER, TensorType(shape, DType.FLOAT32), storage)
    assert clause in caught.value.message
    assert caught.value.message.startswith("Operand 'w' is float32[")


@pytest.mark.parametrize(
    ("word", "storage"),
    [
        ("float16", Storage("float16")),
        ("int4", Storage("int4", 32)),
        ("int8:64", Storage("int8", 64)),
        ("int4:128:zero-points", Storage("int4", 128, zero_points=True)),
        ("int4:zero-points", Storage("int4", 32, zero_points=True)),
        ("int4:x", None),
        ("int4:-8", None),
        ("float16:8", None),
        ("int4:8:8", None),
        ("int4:8:zero-points:8", None),
        ("", None),
        ("int5", None),
    ],
)
def test_words_of_storages(word: str, storage: Storage | None) -> None:
    assert storage_of_word(word) == storage
