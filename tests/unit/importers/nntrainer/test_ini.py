"""The strict INI reader: what it takes, and the line, section and key that each refusal names."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.errors import DocumentError
from solver.importers.nntrainer.ini import Section, read_sections
from tests.support.every import grid


def section(text: str) -> Section:
    (found,) = read_sections(f"[S]\n{text}".encode())
    return found


def test_sections_keys_and_values() -> None:
    model, layer = read_sections(b"# a file\n[Model]\nType = NeuralNetwork\n\n[ Fc 1 ]\n  UNIT=10\n")
    assert (model.name, model.line, model.values) == ("Model", 2, {"type": "NeuralNetwork"})
    assert (layer.name, layer.values, layer.lines) == ("Fc 1", {"unit": "10"}, {"unit": 6})


@grid(
    ("line", "value"),
    [
        ("k = v # comment", "v"),
        ("k = v\t; comment", "v"),
        ('k = "v"', "v"),
        ("k = 'v w'", "v w"),
        ("k = a#b;c", "a#b;c"),
        ("k =", ""),
        ("k = a = b", "a = b"),
        ("k = v\r", "v"),
    ],
)
def test_comments_and_quotes(line: str, value: str) -> None:
    assert section(line).values == {"k": value}


def test_a_byte_order_mark_is_no_part_of_the_first_section() -> None:
    assert read_sections(b"\xef\xbb\xbf[Model]\n")[0].name == "Model"


@grid(
    ("text", "what"),
    [
        ("", "no sections"),
        ("# nothing\n", "no sections"),
        ("k = v\n", "Line 1: 'k' stands before the first section"),
        ("[S]\nk\n", "Line 2: 'k' is not an entry"),
        ("[S]\n= v\n", "Line 2"),
        ("[S\n", "Line 1: '[S' is not a section"),
        ("[]\n", "Line 1"),
        ("[S]\n\n[s]\n", "Line 3: section 's' stands there twice, first in line 1"),
        ("[S]\nk = 1\nK = 2\n", "Line 2: 'k' of section 'S' is given again in line 3"),
    ],
)
def test_malformed_files(text: str, what: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read_sections(text.encode())
    assert what in caught.value.message
    assert caught.value.remedy


def test_not_utf_8() -> None:
    with pytest.raises(DocumentError, match="Line 2 is not UTF-8"):
        read_sections(b"[S]\nk = \xff\n")


def test_values() -> None:
    s = section("a = 3\nb = 1,2\nc = 4\nd = 1e-3\ne = TRUE\nf = x, Y ,\ng = Max\nh = 1:28:28")
    assert (s.integer("a"), s.integer("z", 7)) == (3, 7)
    assert (s.pair("b"), s.pair("c"), s.pair("z", (5, 6))) == ((1, 2), (4, 4), (5, 6))
    assert s.number("d") == 0.001
    assert (s.flag("e", default=False), s.flag("z", default=True)) == (True, True)
    assert (s.words("f"), s.words("z")) == (["x", "Y"], [])
    assert (s.choice("g", ("max", "min")), s.choice("z", ("on",), "on")) == ("max", "on")
    assert s.integers("h", (3, 4), separator=":") == [1, 28, 28]


@grid(
    ("text", "read"),
    [
        ("k = x", lambda s: s.integer("k")),
        ("k = -1", lambda s: s.integer("k")),
        ("k = 0", lambda s: s.integer("k", least=1)),
        ("k = 1,2,3", lambda s: s.pair("k")),
        ("k = 9999999999999999999", lambda s: s.integer("k")),
        ("", lambda s: s.integer("k")),
        ("k = fast", lambda s: s.number("k")),
        ("k = nan", lambda s: s.number("k")),
        ("k = 1e999", lambda s: s.number("k")),
        ("k = maybe", lambda s: s.flag("k", default=True)),
        ("k = mid", lambda s: s.choice("k", ("max", "min"))),
        ("", lambda s: s.choice("k", ("max", "min"))),
    ],
)
def test_bad_values_name_section_and_key(text: str, read: Callable[[Section], object]) -> None:
    with pytest.raises(DocumentError) as caught:
        read(section(text))
    assert caught.value.path == ("S", "k")
    assert caught.value.message.startswith(f"Line {2 if text else 1}: 'k' of section 'S'")


def test_unknown_keys_come_with_the_nearest_known_one() -> None:
    with pytest.raises(DocumentError, match="'filtres' of section 'S' is not known here") as caught:
        section("filtres = 3").check_keys({"filters", "stride"})
    assert caught.value.remedy == "Did you mean filters? Known keys: filters, stride."
    assert caught.value.path == ("S", "filtres")
