"""One test over many cases that checks every case and reports every failure; and which cases a run takes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import product
from typing import Any, Final, TypeVar

import pytest

__all__ = ["ALL", "every", "grid", "some"]

Case = TypeVar("Case")
Test = Callable[..., None]
#: Names and values of the cases along one axis, and how many of them a combination of the other axes takes.
Axis = tuple[list[tuple[object, dict[str, Any]]], int | None]

#: Whether sweeps take all of their cases, as under ``./run test --all`` and ``./run fuzz``.
ALL: Final = bool(os.environ.get("TESTS_TAKE_ALL") or os.environ.get("ARENAPLAN_FUZZ"))
_Named = type(pytest.param())

#: Characters of the name of a case.
LONGEST = 500


def some(cases: Iterable[Case], *, beside: Iterable[Case] = ()) -> list[Case]:
    """These cases of a sweep, and under ``./run test --all`` those `beside` them."""
    return [*cases, *(beside if ALL else ())]


@contextmanager
def every() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """Collects the failures of cases, and raises all of them together at the end::

        with every() as case:
            for name, text in TEXTS.items():
                with case(name):
                    assert parse(text).ok

    Each failure has the case as a note. What ends a test run or skips a test is raised at once.
    """
    failures: list[BaseException] = []
    cases = 0

    @contextmanager
    def case(name: object) -> Iterator[None]:
        nonlocal cases
        cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as failure:  # noqa: BLE001 - raised again at the end, with the others
            failure.add_note(f"case: {name}")
            failures.append(failure)

    yield case
    assert cases, "there is no case"
    if failures:
        raise BaseExceptionGroup(f"{len(failures)} of {cases} cases fail", failures)


def grid(
    names: str | Sequence[str], values: Iterable[Any], *, turn: int | None = None
) -> Callable[[Test], Test]:
    """``pytest.mark.parametrize`` as one test: every case runs, and every failure is reported.

    Decorators stack as those do, and `pytest.param` gives a case a name, which is its values otherwise. All
    cases share the fixtures. One axis may have a `turn`: each combination of the others takes this number of
    its values, in turn, and all of them only under ``./run test --all``.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [v if isinstance(v, _Named) else pytest.param(*(v if len(keys) > 1 else (v,))) for v in values]
    assert not any(row.marks for row in rows), "cases of one test have no marks of their own"
    axis = [(row.id, dict(zip(keys, row.values, strict=True))) for row in rows], turn

    def decorate(test: Test) -> Test:
        body: Test = getattr(test, "case", test)
        axes = [axis, *getattr(test, "axes", [])]

        @wraps(test)
        def run(**fixtures: Any) -> None:
            with every() as case:
                for parts in combinations(axes):
                    arguments = {name: value for _, part in parts for name, value in part.items()}
                    with case(", ".join(f"{name or part}" for name, part in parts)[:LONGEST]):
                        body(**fixtures, **arguments)

        parameters = inspect.signature(test).parameters
        run.__dict__["__signature__"] = inspect.Signature(
            [p for p in parameters.values() if p.name not in keys]
        )
        run.__dict__.update(case=body, axes=axes)
        return run

    return decorate


def combinations(axes: Sequence[Axis]) -> Iterator[tuple[tuple[object, dict[str, Any]], ...]]:
    """The product of the axes, of which one that has a turn gives only so many values to each combination."""
    turned = [(at, turn) for at, (_, turn) in enumerate(axes) if turn is not None and not ALL]
    if not turned:
        yield from product(*(rows for rows, _ in axes))
        return
    ((at, turn),) = turned
    rows, others = axes[at][0], [rows for k, (rows, _) in enumerate(axes) if k != at]
    for number, parts in enumerate(product(*others)):
        # One further in each round: else the same pairs would come again.
        first = number * turn + number * turn // len(rows)
        for k in range(turn):
            yield *parts[:at], rows[(first + k) % len(rows)], *parts[at:]
