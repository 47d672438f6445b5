"""Strict JSON: what is accepted, what is refused where, and that hostile texts cost little."""

from __future__ import annotations

import gc
import json
import sys
from typing import Any

import pytest

from solver.canonical import canonical_json, to_bytes
from solver.documents import parse_json
from solver.documents.parse import MAX_DEPTH, MAX_DIGITS, Place, find_fault, place
from solver.errors import DocumentError


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -12,
        1.5e-300,
        "",
        'ünïcode \U0001f600 " \\ / [ { NaN',
        [],
        {},
        [[], [{}], {"a": [1, {"b": None}]}],
        {"NaN": "Infinity", "1e999": "]]]]"},
    ],
)
def test_accepts_json(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value
    assert parse_json(json.dumps(value, ensure_ascii=False, indent=1).encode()) == value


@pytest.mark.parametrize("open_", [b"[", b'{"a":'])
def test_depth_limit_is_exact(open_: bytes) -> None:
    close = b"]" if open_ == b"[" else b"}"
    assert parse_json(open_ * MAX_DEPTH + b"1" + close * MAX_DEPTH)
    with pytest.raises(DocumentError, match="deeper than 64"):
        parse_json(open_ * (MAX_DEPTH + 1) + b"1" + close * (MAX_DEPTH + 1))


def test_brackets_in_strings_are_no_nesting() -> None:
    text = "[" * 1000 + '"\\' + "{" * 1000
    assert parse_json(json.dumps([text]).encode()) == [text]


def test_depth_does_not_depend_on_the_recursion_limit() -> None:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit * 100)
    try:
        with pytest.raises(DocumentError, match="deeper than 64"):
            parse_json(b"[" * 1_000_000)
    finally:
        sys.setrecursionlimit(limit)


def test_digits_limit_is_exact() -> None:
    assert parse_json(b"1" * MAX_DIGITS) == int("1" * MAX_DIGITS)
    with pytest.raises(DocumentError, match="more than 1,000 digits"):
        parse_json(b"1" * (MAX_DIGITS + 1))


@pytest.mark.parametrize("ahead", range(0, MAX_DIGITS, 99))
def test_digits_are_counted_wherever_they_begin(ahead: int) -> None:
    text = b"[" + b" " * ahead + b"7" * (MAX_DIGITS + 1) + b"]"
    with pytest.raises(DocumentError, match="more than 1,000 digits"):
        parse_json(text)
    assert parse_json(text.replace(b"7", b"", 1)) == [int("7" * MAX_DIGITS)]
    assert parse_json(b'{"text": "' + b"7" * 3000 + b'", "number": 12}')["number"] == 12


def test_underflow_is_zero() -> None:
    assert parse_json(b"1e-999") == 0.0


@pytest.mark.parametrize(
    "data",
    [b'"' + b'\\"' * 300_000, b'["a' + b'","' * 300_000, b'"\\', b"\\" * 300_000, b'{"a' * 300_000],
    ids=["escaped-quotes", "many-strings", "half-escape", "backslashes", "keys"],
)
def test_hostile_texts_take_linear_time(data: bytes) -> None:
    """Quadratic scanning of any of these would take minutes and trip the limit on a hanging test."""
    with pytest.raises(DocumentError):
        parse_json(data)


@pytest.mark.parametrize("data", [b"", b"[", b"]", b"[1,]", b"{,}", b"{'a': 1}", b"01", b"+1", b".5", b"tru"])
def test_refuses_what_is_no_json(data: bytes) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_json(data)
    assert caught.value.path == ()
    assert caught.value.remedy


def test_lone_surrogate_pair_halves() -> None:
    assert parse_json(b'"\\ud83d\\ude00"') == "\U0001f600"
    for half in (b'"\\ud83d"', b'"\\uDE00"', b'{"\\udfff": 1}', b'["a\\ude00\\ud83d"]'):
        with pytest.raises(DocumentError, match="surrogate"):
            parse_json(half)


@pytest.mark.parametrize(
    ("text", "kind", "path"),
    [
        ('{"a": 1, "a": 2}', "duplicate", ("a",)),
        ('{"x": {"a": 1}, "a": 2, "a": 3}', "duplicate", ("a",)),
        ('[{"a": 1}, {"a": 1}, {"b": [], "b": 1}]', "duplicate", (2, "b")),
        ('{"a": [{"b": NaN}]}', "constant", ("a", 0, "b")),
        ('[0, [1, 2], {"k": [true, -Infinity]}]', "constant", (2, "k", 1)),
        ('{"a": "NaN", "b": -1e400}', "overflow", ("b",)),
        ('{"a": {"b": 1}, "c": ' + "7" * 1001 + "}", "digits", ("c",)),
    ],
)
def test_fault_has_kind_and_path(text: str, kind: str, path: tuple[str | int, ...]) -> None:
    fault = find_fault(text)
    assert fault is not None
    assert (fault.kind, fault.path) == (kind, path)
    assert text[fault.place.column - 1 :].startswith(fault.token)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"a": {"a": {"a": 1}}}', '["a", "a"]', '{"a": "a", "b": "a"}', "]]}", '"a', ",,:", "-"],
)
def test_no_fault(text: str) -> None:
    assert find_fault(text) is None


def test_keys_that_only_look_different_are_duplicates() -> None:
    assert find_fault('{"a\\/b": 1, "a/b": 2}') is not None
    assert find_fault('{"\\x": 1, "x": 2}') is None


def test_place_counts_from_one() -> None:
    assert place("abc", 0) == Place(1, 1)
    assert place("a\nbc\nd", 3) == Place(2, 2)
    assert place("a\n\nd", 3) == Place(3, 1)
    assert str(Place(3, 1)) == "line 3, column 1"


def test_long_tokens_are_cut_in_messages() -> None:
    with pytest.raises(DocumentError) as caught:
        parse_json(b"[" + b"9" * 5000 + b"]")
    assert len(str(caught.value)) < 200


def test_canonical_json_is_one_text_for_equal_values() -> None:
    assert canonical_json({"b": [1, 2.5], "a": "é"}) == '{"a":"é","b":[1,2.5]}'.encode()
    assert canonical_json({"a": 1, "b": 2}) == canonical_json({"b": 2, "a": 1})


def test_written_json_is_strict() -> None:
    assert to_bytes({"b": 1, "a": [1, 2]}) == b'{"b":1,"a":[1,2]}'
    assert to_bytes({"b": 1}, indent=2) == b'{\n  "b": 1\n}'
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_bytes({"a": float("nan")})


def test_many_lists_are_read_without_the_collector() -> None:
    """It would look through all of them again and again: two thirds of the time of twenty million lists."""
    collections: list[str] = []

    def note(phase: str, _: object) -> None:
        collections.append(phase)

    gc.callbacks.append(note)
    try:
        document = parse_json(b"[" + b"[]," * 100_000 + b"[]]")
    finally:
        gc.callbacks.remove(note)
    assert len(document) == 100_001
    assert collections.count("start") <= 1  # when it goes on; else one for every 700 lists
    assert gc.isenabled()
