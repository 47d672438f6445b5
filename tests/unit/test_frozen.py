"""Objects made by `maker` are those of the constructor."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, replace

import pytest

from solver.frozen import maker


@dataclass(frozen=True, slots=True)
class Point:
    kind: str
    made: int
    then: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        assert self.size > 0


@dataclass(frozen=True, slots=True)
class Growing:
    parts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Solid(Point):
    depth: int = 0


def test_what_is_made_is_what_the_constructor_makes() -> None:
    make = maker(Point)
    assert make("a", 1) == Point("a", 1)
    found = make("b", made=2, then=(3,))
    assert type(found) is Point
    assert found == Point("b", 2, (3,))
    assert hash(found) == hash(Point("b", 2, (3,)))
    assert replace(found, made=1) == Point("b", 1, (3,))
    assert pickle.loads(pickle.dumps(found)) == copy.deepcopy(found) == found


def test_it_is_frozen() -> None:
    found = maker(Point)("a", 1)
    with pytest.raises(FrozenInstanceError):
        found.made = 2  # type: ignore[misc]  # that is the test


def test_an_argument_must_be_given() -> None:
    with pytest.raises(TypeError):
        maker(Point)("a")  # type: ignore[call-arg]  # that is the test


def test_a_default_factory_is_asked_for_each_object() -> None:
    make = maker(Growing)
    first, second = make(), make()
    assert first.parts == second.parts == []
    assert first.parts is not second.parts
    assert make([3]).parts == [3]


@pytest.mark.parametrize("kind", [Checked, Solid])
def test_a_constructor_that_does_more_is_refused(kind: type) -> None:
    with pytest.raises(TypeError, match=kind.__name__):
        maker(kind)
