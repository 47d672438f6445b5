"""Threads that run the steps of a concurrency level at the same time.

NumPy lets go of the interpreter inside its loops and inside BLAS, so threads do run side by side. BLAS has
threads of its own, as many as there are cores, and some builds take turns when several callers ask at
once. How many it uses is left alone: it can decide the last bit of a product, so the caller who
starts the process decides (``OPENBLAS_NUM_THREADS=1`` suits levels best, as long as all runs to compare
have it).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import partial

__all__ = ["LevelThreads", "Task", "turns"]

Task = Callable[[], None]


class LevelThreads:
    """`count` threads: the calling thread, and threads that wait for work until `close`.

    They also end when this object is no longer referenced.
    """

    def __init__(self, count: int) -> None:
        self._threads = ThreadPoolExecutor(count - 1, "arenaplan-level") if count > 1 else None

    def run(self, tasks: Sequence[Task]) -> None:
        """Run all tasks at the same time, and return when all have ended: a barrier.

        Each sees the caller's context, and with it NumPy's error state. When tasks fail, the error of the
        first of them in the order given is raised, after all have ended.
        """
        first, *others = tasks
        if self._threads is None or not others:
            for task in tasks:
                task()
            return
        pending = [self._threads.submit(copy_context().run, task) for task in others]
        try:
            first()
        finally:
            wait(pending)
        for future in pending:
            future.result()

    def close(self) -> None:
        """End the threads and wait for them. Twice is fine; levels cannot be run afterwards."""
        if self._threads is not None:
            self._threads.shutdown()


def turns(tasks: Iterable[Task], times: Sequence[int]) -> tuple[list[Task], LevelThreads]:
    """One task for each level, which runs the level's tasks at the same time; and the threads that do it.

    `times` has the level of each task, from 0 and never falling.
    """
    threads = LevelThreads(max(Counter(times).values(), default=1))
    levels: list[list[Task]] = [[] for _ in range(times[-1] + 1 if times else 0)]
    for task, time in zip(tasks, times, strict=True):
        levels[time].append(task)
    return [level[0] if len(level) == 1 else partial(threads.run, level) for level in levels], threads
