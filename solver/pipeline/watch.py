"""Who is told what a plan has come to: its stages, and each better layout."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from solver.layout import Progress
from solver.passes import Tell
from solver.schedules import SearchProgress

__all__ = ["Follower", "Observer", "Stopwatch"]

#: Told the name of each stage and the seconds it took.
Observer = Callable[[str, float], None]
#: Told the name of each stage, and of each pass that searches, when it begins; then each better layout or
#: bound, of one space, and each better schedule or bound, as it is found.
Follower = Callable[[str, Progress | SearchProgress | None], None]


class Stopwatch:
    """Times stages: ``with watch("layout"):``."""

    def __init__(self, observe: Observer | None, follow: Follower | None) -> None:
        self._observe = observe
        self._follow = follow

    def found(self, progress: Progress) -> None:
        """A better layout, or a better bound."""
        if self._follow:
            self._follow("layout", progress)

    def searching(self, name: str) -> Tell:
        """For the pass of this name."""

        def tell(progress: SearchProgress | None) -> None:
            if self._follow:
                self._follow(name, progress)

        return tell

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if self._follow:
            self._follow(stage, None)
        started = time.perf_counter()
        yield
        if self._observe:
            self._observe(stage, time.perf_counter() - started)
