"""Which small wrong changes are made of a module."""

from __future__ import annotations

import pytest

from tests.reports.mutants import mutants
from tests.support.every import grid


def changed(source: str) -> list[str]:
    """The lines that differ in each mutant, without what they were."""
    diffs = (mutant.diff("m.py") for mutant in mutants(source))
    return [line[1:].strip() for diff in diffs for line in diff.splitlines() if line.startswith("+")]


@grid(
    ("source", "expected"),
    [
        ("a < b <= c", {"a <= b <= c", "a >= b <= c", "a < b < c", "a < b > c"}),
        ("(a) is not (b)", {"(a) is (b)"}),
        ("x = a not  in b", {"x = a in b"}),
        ("x = (a +\n  b)", {"x = (a -"}),
        ("x = a // b % c", {"x = a * b % c", "x = a // b * c"}),
        ("x = a and b and c", {"x = a or b and c", "x = a and b or c"}),
        ("x = not a", {"x = a"}),
        ("x = -a", {"x = a"}),
        ("x = y if a else z", {"x = y if (not (a)) else z"}),
        ("x = [a for a in b if a.c]", {"x = [a for a in b if True]"}),
        ("x = True, 7", {"x = False, 7", "x = True, 8"}),
        ("x = f(a, b)", {"x = f(b, a)"}),
        ("x = f(a, a)", set()),
        ("x = min(a, b)", {"x = max(a, b)"}),
        ("x += a", {"x -= a", "pass"}),
        ("x.y = a", {"pass"}),
        ("for a in b:\n    continue", {"pass"}),
        ('é = "ü"; x = a + b', {'é = "ü"; x = a - b'}),
    ],
)
def test_changes(source: str, expected: set[str]) -> None:
    made = set(changed(source))
    assert made - {"pass"} == expected - {"pass"}
    assert expected <= made


@grid(
    "source",
    [
        '"""A docstring."""',
        "MOST = 4000",
        "x: int | None",
        "def f(a: int | str) -> int | str: ...",
        "@dataclass(frozen=True)\nclass A: ...",
        "x = 'text'",
        "x = f'{a + 1}'",
        "from a import b",
    ],
)
def test_what_is_only_said_stays(source: str) -> None:
    assert changed(source) == []


def test_what_is_raised_stays_but_may_be_left_out() -> None:
    assert changed("if a:\n    raise Error(1 + 1)") == ["if (not (a)):", "pass"]


def test_each_is_made_once_and_in_order() -> None:
    made = mutants("a = 1\nb = 2\nc = a < b\n")
    assert [mutant.line for mutant in made] == [1, 2, 3, 3]
    assert len({mutant.after for mutant in made}) == len(made)


def test_no_python() -> None:
    with pytest.raises(SyntaxError):
        mutants("a = ")
