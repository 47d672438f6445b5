"""One test over many cases that checks every case and reports every failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

__all__ = ["every"]


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
