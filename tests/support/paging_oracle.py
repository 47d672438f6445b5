"""The least bytes that paging moves, by trying every state of memory: shares nothing with the solver.

Between two levels a copy of each value may begin, out or in, which takes `ahead` levels, and it may be
dropped from fast memory. A state says of each value whether fast memory has it and whether slower memory has
its contents, or in how many levels they will; a level needs what it touches in fast memory, within the
capacity. No copy crosses the end of an iteration: there it takes fewer levels. Exponential in the number of
values.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from solver.graph import DType, TensorType
from solver.training import Block, BlockOperation, BlockProgram, build_program

__all__ = ["Story", "block_program", "least_moved", "stories"]

#: Levels until fast and slower memory have it: 0 is there, -1 is neither there nor on its way. A value that
#: is nowhere does not exist, or no more.
_State = tuple[int, int]
_AWAY, _THERE = -1, 0


@dataclass(frozen=True, slots=True)
class Story:
    """The accesses to a value of `size` bytes: ``touches[level]`` is "", "r" (read), "w" or "u" (update).

    `kind`: fed by the caller, carried over, or made in the iteration. What is fed or made may be a `result`.
    """

    size: int
    kind: str
    touches: tuple[str, ...]
    result: bool = False


def stories(rng: random.Random, levels: int, count: int, *, fed_results: bool = False) -> list[Story]:
    """Random values; each level touches one at least. With `fed_results` what is fed may be a result, too."""
    found: list[Story] = []
    for _ in range(count):
        kind = rng.choice(["fed", "carried", "constant", "made", "made"])
        when = sorted(rng.sample(range(levels), rng.randint(1, 3)))
        words = {"fed": "rrw", "constant": "r", "carried": "ruw", "made": "ruw"}[kind]
        touches = ["" for _ in range(levels)]
        for level in when:
            touches[level] = rng.choice(words)
        if kind == "made":
            touches[when[0]] = "w"
        elif touches[when[0]] == "w":
            touches[when[0]] = "r"
        result = (kind == "made" or (fed_results and kind == "fed")) and rng.random() < 0.4
        found.append(Story(rng.randint(1, 9), kind, tuple(touches), result))
    for level in range(levels):
        if not any(story.touches[level] for story in found):
            i = rng.choice([i for i, s in enumerate(found) if s.kind != "made"] or [0])
            story = found[i]
            if story.kind == "made":
                first = next(k for k, touch in enumerate(story.touches) if touch)
                kinds = "w" if level < first else "r"
                rest = tuple("r" if touch == "w" and level < first else touch for touch in story.touches)
                touches = [*rest[:level], kinds, *rest[level + 1 :]]
            else:
                touches = [*story.touches[:level], "r", *story.touches[level + 1 :]]
            found[i] = Story(story.size, story.kind, tuple(touches), story.result)
    return found


def block_program(given: Sequence[Story]) -> BlockProgram:
    """The same as a program: one operation a level."""
    blocks = [
        Block(f"v{i}", TensorType((s.size,), DType.UINT8), fed=s.kind == "fed", kept=s.result)
        for i, s in enumerate(given)
    ]
    operations = []
    for level in range(len(given[0].touches)):
        touched = [(f"v{i}", s.touches[level]) for i, s in enumerate(given) if s.touches[level]]
        reads = tuple(name for name, touch in touched if touch in "ru")
        writes = tuple(name for name, touch in touched if touch in "wu")
        operations.append(BlockOperation(f"step{level}", reads, writes, "any"))
    return build_program("stories", blocks, operations)


def least_moved(given: Sequence[Story], capacity: int, ahead: int = 0) -> int | None:
    """Bytes in and out of one iteration at least, where a copy has `ahead` levels; None where none keeps the
    capacity.
    """
    carried = [i for i, s in enumerate(given) if s.kind in ("carried", "constant")]
    unchanged = [i for i in carried if not {"u", "w"} & set(given[i].touches)]
    places: list[_State] = [(_THERE, _AWAY), (_AWAY, _THERE), (_THERE, _THERE)]
    levels = len(given[0].touches)
    best: int | None = None
    for begin in product(places, repeat=len(carried)):
        # What never changes may be in slower memory from the beginning, at no cost.
        if any(i in unchanged and there[1] for i, there in zip(carried, begin, strict=True)):
            continue
        start: list[_State] = [(_AWAY, _AWAY)] * len(given)
        for i, there in zip(carried, begin, strict=True):
            start[i] = there
        for k, s in enumerate(given):
            if s.kind == "fed":
                start[k] = (_THERE, _THERE)
        costs = {tuple(start): 0}
        for level in range(levels):
            costs = _through(given, level, _moved(given, costs, level, ahead), capacity)
        for state, cost in _moved(given, costs, levels, ahead).items():
            good = all(
                (there[0] != _THERE or state[i][0] == _THERE)
                and (there[1] != _THERE or state[i][1] >= _THERE)
                for i, there in zip(carried, begin, strict=True)
            ) and all(state[i][0] == _THERE or state[i][1] >= _THERE for i, s in enumerate(given) if s.result)
            if good and (best is None or cost < best):
                best = cost
    return best


def _moved(
    given: Sequence[Story], costs: dict[tuple[_State, ...], int], level: int, ahead: int
) -> dict[tuple[_State, ...], int]:
    """The states that each state can become before a level, value by value."""
    # Nothing runs before the first level: there a copy in may end sooner.
    soonest = ahead if level else 0
    for i, story in enumerate(given):
        found: dict[tuple[_State, ...], int] = {}
        for state, cost in costs.items():
            for there, more in _choices(state[i], story.size, ahead, soonest):
                new = (*state[:i], there, *state[i + 1 :])
                found[new] = min(found.get(new, cost + more), cost + more)
        costs = found
    return costs


def _choices(now: _State, size: int, ahead: int, soonest: int) -> Iterator[tuple[_State, int]]:
    fast, slow = now
    yield now, 0
    if fast == _THERE and slow <= _THERE:
        yield (_AWAY, slow), 0
        if slow == _AWAY:
            yield (_THERE, ahead), size
            if not ahead:
                yield (_AWAY, _THERE), size
    elif fast == _AWAY and slow == _THERE:
        for levels in range(soonest, ahead + 1):
            yield (levels, _THERE), size


def _through(
    given: Sequence[Story], level: int, costs: dict[tuple[_State, ...], int], capacity: int
) -> dict[tuple[_State, ...], int]:
    """The states that a level leaves, of those in which it can run."""
    found: dict[tuple[_State, ...], int] = {}
    for state, cost in costs.items():
        behind = list(state)
        for i, story in enumerate(given):
            touch, (fast, slow) = story.touches[level], state[i]
            if touch in ("r", "u") and fast != _THERE:
                break
            if touch in ("w", "u"):
                if slow > _THERE:
                    break  # it is being copied
                behind[i] = (_THERE, _AWAY)
        else:
            if sum(s.size for s, there in zip(given, behind, strict=True) if there[0] >= _THERE) <= capacity:
                key = tuple((fast - (fast > 0), slow - (slow > 0)) for fast, slow in behind)
                found[key] = min(found.get(key, cost), cost)
    return found
