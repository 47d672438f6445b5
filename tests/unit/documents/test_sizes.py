"""Sizes as text: units of powers of ten and two, whole bytes, nothing else around them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import load_layout_options, load_options, read_size
from solver.errors import DocumentError

UNITS = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("65,536", 65536),
        ("580,512,832", 580_512_832),
        ("1,024 KiB", 2**20),
        ("24MiB", 24 * 2**20),
        ("24 mib", 24 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("0.29GB", 290_000_000),
        ("1k", 1000),
        (" 7 KB ", 7000),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size
    requested = load_options(json.dumps({"capacity": text, "scratch_budget": text}).encode())
    assert requested.options.capacity == size
    assert load_layout_options({"capacity": text}).capacity == size


@pytest.mark.parametrize(
    "text",
    [
        "", "-5", "+5", "1e3", "0.5", "1.0001KiB", "20,97", "2097,520", "1,5MB", ",512", "5 apples", "12MiB!",
        "1bit", "1_0", "MiB", "\u0661", "1.", ".5MB", "nan", "inf", "5ib", "1MiB 2",
    ],
)  # fmt: skip
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="give bytes, or a number with kB"):
        read_size(text)
    for field in ("capacity", "scratch_budget"):
        with pytest.raises(DocumentError, match="bytes, or a number with kB") as caught:
            load_options({field: text})
        assert caught.value.path == (field,)


@pytest.mark.parametrize("text", ["9223372036854775808", "8EiB", "99999999999GB"])
def test_sizes_that_no_offset_reaches(text: str) -> None:
    with pytest.raises(ValueError, match=r"give at most 9,223,372,036,854,775,807 bytes"):
        read_size(text)
    with pytest.raises(DocumentError, match="at most 9,223,372,036,854,775,807 bytes") as caught:
        load_options({"capacity": text})
    assert caught.value.path == ("capacity",)


@pytest.mark.parametrize("value", [1.5, True, [1], 1.0])
def test_only_text_is_converted(value: object) -> None:
    with pytest.raises(DocumentError):
        load_options({"capacity": value})


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_units(number: int, unit: str) -> None:
    assert read_size(f"{number}{unit}") == read_size(f"{number} {unit.lower()}") == number * UNITS[unit]
