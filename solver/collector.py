"""The garbage collector, out of the way while many objects are made that hold no cycle."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


@contextmanager
def collector_paused() -> Iterator[None]:
    """Large graphs, programs and documents are millions of objects that stay, none of them in a cycle.

    The collector would walk them again and again, which takes as long as making them. Also a decorator. Where
    several threads pause it, the first that ends lets it run again.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
