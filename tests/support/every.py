"""One test over many cases that checks every case and reports every failure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import product
from typing import Any

import pytest

__all__ = ["every", "grid"]

Test = Callable[..., None]
_Named = type(pytest.param())

#: Characters of the name of a case.
LONGEST = 500


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


def grid(names: str | Sequence[str], values: Iterable[Any]) -> Callable[[Test], Test]:
    """``pytest.mark.parametrize`` as one test: every case runs, and every failure is reported.

    Decorators stack as those do, and `pytest.param` gives a case a name, which is its values otherwise. All
    cases share the fixtures.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    rows = [v if isinstance(v, _Named) else pytest.param(*(v if len(keys) > 1 else (v,))) for v in values]
    assert not any(row.marks for row in rows), "cases of one test have no marks of their own"
    axis = [(row.id, dict(zip(keys, row.values, strict=True))) for row in rows]

    def decorate(test: Test) -> Test:
        body: Test = getattr(test, "case", test)
        axes = [axis, *getattr(test, "axes", [])]

        @wraps(test)
        def run(**fixtures: Any) -> None:
            with every() as case:
                for parts in product(*axes):
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
