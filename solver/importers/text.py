"""Words of messages: lists of names, texts of a file, words of a command line, and advice to freeze a model.

A model is seen as steps in their order, each with the tensors that it reads and those that it writes. Names
of tensors may be of any hashable type. What follows a tensor is planned, what leads to it alone is left out.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import Final, TypeVar

from solver.errors import ArenaplanError, DimensionError, GraphError, LossError

__all__ = [
    "argument",
    "cut_points",
    "freeze_remedy",
    "freeze_sentence",
    "needed_steps",
    "shown",
    "some",
    "unknown_cut",
]

#: Characters that a shell interprets, but for brackets, which it passes on where no file matches.
_SHELL: Final = re.compile(r"[^\w\[\]=.,:/@%+-]")
#: Characters of a file's text that a message repeats.
_MAX_CHARACTERS: Final = 60


def some(names: Sequence[str], most: int = 8, *, quoted: bool = False) -> str:
    """The first names and the number of the others: ``a, b and 3 more``."""
    text = ", ".join(f"{name!r:.80}" if quoted else f"{name:.60}" for name in names[:most])
    return f"{text} and {len(names) - most:,} more" if len(names) > most else text


def shown(text: str) -> str:
    """A text in quotes, cut off if it is long."""
    quoted = repr(text)
    return quoted if len(quoted) <= _MAX_CHARACTERS else f"{quoted[: _MAX_CHARACTERS - 3]}..."


def argument(text: str) -> str:
    """A word of a command line as a remedy shows it: in quotes where a shell would take it apart."""
    return shlex.quote(text) if _SHELL.search(text) else text


_T = TypeVar("_T", bound=Hashable)

#: The tensors that a step reads, and those that it writes.
Step = tuple[Collection[_T], Collection[_T]]

#: Errors that nonsensical files lead to.
_NONSENSE: Final = (
    *(ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, MemoryError),
    RecursionError,
)
#: Tensors that are tried before a message names none.
_MAX_TRIALS: Final = 4


def needed_steps(steps: Sequence[Step[_T]], outputs: Collection[_T], cuts: Collection[_T] = ()) -> list[int]:
    """The steps that `outputs` depend on where the tensors in `cuts` are inputs. Linear."""
    needed, kept = set(outputs) - set(cuts), []
    for k in range(len(steps) - 1, -1, -1):
        reads, writes = steps[k]
        if not needed.isdisjoint(writes):
            kept.append(k)
            needed.update(name for name in reads if name not in cuts)
    return kept[::-1]


def cut_points(steps: Sequence[Step[_T]], outputs: Collection[_T], refused: Collection[int]) -> Iterator[_T]:
    """The tensors that every path from a refused step to the outputs goes through, the earliest first.

    They are where a single tensor that depends on a refused step is still to be read. Cost: linear in the
    operands of the steps.
    """
    kept = needed_steps(steps, outputs)
    last: dict[_T, int] = {}
    for k in kept:
        last.update(dict.fromkeys(steps[k][0], k))
    last.update(dict.fromkeys(outputs, len(steps)))
    tainted: set[_T] = set()
    live: set[_T] = set()
    left = set(refused) & set(kept)
    for k in kept:
        reads, writes = steps[k]
        if k in left or not tainted.isdisjoint(reads):
            tainted.update(writes)
            live.update(name for name in writes if last.get(name, -1) > k)
        live = {name for name in live if last[name] > k}
        left.discard(k)
        if not left and len(live) == 1 and not live.isdisjoint(writes):
            yield from live


def freeze_remedy(names: Iterator[str], works: Callable[[str], object]) -> str:
    """The remedy that names the first tensor before which the model can be frozen; empty where there is none.

    Failing such a tensor, it names one whose sizes the caller has to say. `works` imports the model frozen
    before a tensor and raises where that fails; the lack of a loss, which the caller may still choose, is no
    failure.
    """
    without_sizes = ""
    for _, name in zip(range(_MAX_TRIALS), names, strict=False):
        try:
            works(name)
        except LossError:
            pass
        except DimensionError as error:
            if error.path == ("freeze_before",) and not without_sizes:
                sizes = f"Give the size of each of its axes, as --dim {shlex.quote(f'{name}[0]=SIZE')}. "
                without_sizes = f"{freeze_sentence(name)}{sizes}"
            continue
        except (ArenaplanError, *_NONSENSE):
            continue
        return freeze_sentence(name)
    return without_sizes


def freeze_sentence(name: str) -> str:
    """The remedy that freezes a model before a tensor, to be put before another one."""
    return f"Plan what follows with --freeze-before {shlex.quote(name)}, which becomes an input. "


def unknown_cut(name: str, known: Collection[str], why: str = "") -> GraphError:
    """The error for a tensor before which nothing can be frozen; close matches are among `known`."""
    close = difflib.get_close_matches(name, known, n=3)
    return GraphError(
        f"The model cannot be frozen before {name!r:.80}: {why or 'no operator has an output of that name'}.",
        remedy=f"Did you mean {' or '.join(map(repr, close))}?"
        if close and not why
        else "Give --freeze-before the output of an operator that the trained part reads.",
        path=("freeze_before",),
    )
