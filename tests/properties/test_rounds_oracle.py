"""Orders of programs that write blocks whole more than once, against all permutations of their operations."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from solver.graph import DType, TensorType
from solver.layout import Deadline
from solver.passes import SearchOrder
from solver.pipeline import plan_program
from solver.plan import PlanOptions
from solver.program import loads
from solver.training import Block, BlockOperation, BlockProgram, build_program, explicit_program

UNIT = 64


def rewritten(seed: int) -> BlockProgram:
    """Few blocks and more operations: most are written again, some fed, carried over, kept or updated."""
    rng = random.Random(seed)
    count = rng.randint(3, 6)
    names = [f"b{k}" for k in range(rng.randint(2, 4))]
    there = {"x"}
    entered = {name for name in names if rng.random() < 0.25}
    operations = []
    for t in range(count):
        readable = sorted(there | entered)
        reads = rng.sample(readable, min(len(readable), rng.choice((1, 1, 2))))
        writes = rng.sample(names, 1 if rng.random() < 0.8 else 2)
        if rng.random() > 0.15:
            writes = [name for name in writes if name not in reads] or writes
        # What is there at the start is read before anything writes it.
        reads = sorted({*reads, *(name for name in writes if name in entered - there)})
        there |= {*writes, *reads}
        operations.append(
            BlockOperation(f"o{t}", tuple(reads), tuple(writes), workspace=UNIT * rng.choice((0, 0, 9, 30)))
        )
    touched = {name for operation in operations for name in operation.touched}
    blocks = [
        Block(
            name,
            TensorType((UNIT * rng.randint(1, 20),), DType.UINT8),
            fed=name == "x" or (name in entered and rng.random() < 0.5),
            kept=name != "x" and rng.random() < 0.4,
        )
        for name in ("x", *names)
        if name in touched
    ]
    return build_program("rewritten", blocks, operations, any_order=True)


def in_blocks_of_their_own(program: BlockProgram) -> BlockProgram:
    """The program in which each whole write of a temporary goes to a new block."""
    now = {name: name for name in program.blocks}
    blocks = dict(program.blocks)
    operations = []
    for t, operation in enumerate(program.operations):
        reads = tuple(now[name] for name in operation.reads)
        for name in set(operation.writes) - set(operation.reads):
            block = program.blocks[name]
            if not _entered(program, name) and not block.kept:
                now[name] = f"{name}.{t}"
                blocks[now[name]] = replace(block, name=now[name])
        writes = tuple(now[name] for name in operation.writes)
        operations.append(replace(operation, reads=reads, writes=writes))
    touched = {name for operation in operations for name in operation.touched}
    return build_program("apart", [b for name, b in blocks.items() if name in touched], operations)


def outcome(program: BlockProgram, order: Sequence[int]) -> list[list[tuple[str, int | None]]]:
    """For each operation, by its number, which one wrote last what it reads; and the same for the end."""
    wrote: dict[str, int] = {}
    found: list[list[tuple[str, int | None]]] = [[] for _ in order]
    for t in order:
        operation = program.operations[t]
        found[t] = [(name, wrote.get(name)) for name in operation.reads]
        wrote |= dict.fromkeys(operation.writes, t)
    return [*found, [(name, wrote.get(name)) for name in program.blocks if _stays(program, name)]]


def _stays(program: BlockProgram, name: str) -> bool:
    block = program.blocks[name]
    return block.kept or (_entered(program, name) and not block.fed)


def _entered(program: BlockProgram, name: str) -> bool:
    return next(name in o.reads for o in program.operations if name in o.touched)


def legal(program: BlockProgram) -> Iterator[tuple[int, ...]]:
    """All orders in which each operation finds the same, and the end does."""
    same = tuple(range(len(program.operations)))
    expected = outcome(program, same)
    yield from (order for order in permutations(same) if outcome(program, order) == expected)


def peak(program: BlockProgram, order: Sequence[int]) -> int:
    """The most bytes at once, each block being there from its first touch to its last one."""
    spans: dict[str, tuple[int, int]] = {}
    for place, t in enumerate(order):
        for name in program.operations[t].touched:
            spans[name] = (spans.get(name, (place, 0))[0], place)
    for name in program.blocks:
        begin, end = spans[name]
        begin = 0 if _entered(program, name) else begin
        spans[name] = begin, len(order) if _stays(program, name) else end
    return max(
        program.operations[t].workspace
        + sum(program.blocks[name].type.nbytes for name, (a, b) in spans.items() if a <= place <= b)
        for place, t in enumerate(order)
    )


@settings(max_examples=int(os.environ.get("ARENAPLAN_FUZZ") or 150), deadline=None)
@given(st.integers(0, 2**32 - 1))
@example(1)
def test_no_order_in_which_each_operation_finds_the_same_is_below_the_bound(seed: int) -> None:
    program = rewritten(seed)
    least = min(peak(program, order) for order in legal(program))
    applied = SearchOrder(order=True).apply(explicit_program(program), Deadline())
    bound, reached = (int((applied.facts or {})[name]) for name in ("order_bound", "peak_after"))
    assert bound <= least <= reached
    apart = in_blocks_of_their_own(program)
    assert bound <= min(peak(apart, order) for order in legal(apart))
    order = tuple(step.reference for step in applied.program.steps if step.reference is not None)
    assert order in set(legal(program))
    assert max(loads(applied.program)[0]) == peak(program, order) == reached
    made = plan_program(program, PlanOptions(order=True))  # with its proof
    assert made.arena_bytes >= least
