"""No program, replayed in its planned arena, ever reads a byte that another block overwrote."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from random import Random

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from solver.pipeline import plan_program
from solver.plan import Plan, PlannedBuffer, PlanOptions
from solver.reports.arenas import recycling
from solver.training import BlockClass, BlockProgram, block_classes, orderings, predecessors
from tests.support.programs import programs
from tests.support.proofs import moved, violations

ALIGNMENTS = st.sampled_from([1, 4, 64])


class Replay:
    """An arena of tags instead of bytes: each write leaves a tag of its own on every byte of the block."""

    def __init__(self, program: BlockProgram, plan: Plan, iterations: int = 3) -> None:
        self._program = program
        self._at = {
            buffer.id: slice(buffer.offset, buffer.offset + buffer.nbytes) for _, buffer in plan.buffers()
        }
        self._tags = np.zeros(plan.arena_bytes, np.int64)
        self._fresh = itertools.count(1)
        self._expected: dict[str, int] = {}
        self.wrong = tuple(self._run(iterations))

    def _write(self, name: str) -> None:
        self._expected[name] = self._tags[self._at[name]] = next(self._fresh)

    def _reads(self, name: str) -> Iterator[str]:
        if (self._tags[self._at[name]] != self._expected[name]).any():
            yield name

    def _run(self, iterations: int) -> Iterator[str]:
        classes = block_classes(self._program)
        blocks = self._program.blocks.values()
        outside = [b.name for b in blocks if classes[b.name] in (BlockClass.INPUT, BlockClass.PARAM)]
        for iteration in range(iterations):
            for name in outside:
                if iteration == 0 or self._program.blocks[name].fed:
                    self._write(name)
            for operation in self._program.operations:
                for name in operation.reads:
                    yield from self._reads(name)
                for name in operation.writes:
                    self._write(name)
                for name in operation.touched:
                    yield from self._reads(name)
            for block in blocks:
                if block.kept:
                    yield from self._reads(block.name)


@settings(max_examples=150, deadline=None)
@given(programs(), ALIGNMENTS, st.sampled_from(["portfolio", "greedy", "bump"]))
def test_every_read_finds_what_was_written_last(program: BlockProgram, alignment: int, solver: str) -> None:
    made = plan_program(program, PlanOptions(alignment=alignment, solver=solver))
    assert Replay(program, made).wrong == ()


@settings(max_examples=60, deadline=None)
@given(programs(), st.data())
def test_a_plan_with_a_block_moved_onto_a_live_one_is_found_out(
    program: BlockProgram, data: st.DataObject
) -> None:
    """Neither the replay nor the proof is blind."""
    made = plan_program(program, PlanOptions(alignment=1))
    pairs = [
        (a, b)
        for a, b in itertools.permutations(made.arenas[0].buffers, 2)
        if a.lifespan.overlaps(b.lifespan) and _matters(program, a, b)
    ]
    assume(pairs)
    a, b = data.draw(st.sampled_from(pairs))
    wrong = moved(made, a.id, b.offset)
    assert Replay(program, wrong).wrong
    assert {violation.rule for violation in violations(program, wrong)} == {"overlap"}


def _matters(program: BlockProgram, a: PlannedBuffer, b: PlannedBuffer) -> bool:
    """Two blocks that one operation touches, writing at least one: their tags cannot both be right after."""
    return any({a.id, b.id} <= {*o.touched} and {a.id, b.id} & {*o.writes} for o in program.operations)


@settings(max_examples=100, deadline=None)
@given(programs())
def test_every_block_is_allocated_once_and_freed_once_or_kept(program: BlockProgram) -> None:
    found = recycling(plan_program(program, PlanOptions(solver="greedy")))
    allocated = [*found.before, *(name for step in found.steps for name in step.allocated)]
    freed = [*found.kept, *(name for step in found.steps for name in step.freed)]
    assert sorted(allocated) == sorted(freed) == sorted(program.blocks)
    classes = block_classes(program)
    assert all(classes[name] in (BlockClass.INPUT, BlockClass.PARAM) for name in found.before)


@settings(max_examples=100, deadline=None)
@given(programs(), st.randoms(use_true_random=False))
def test_any_order_that_keeps_the_dependencies_reads_the_same_values(
    program: BlockProgram, random: Random
) -> None:
    """The orderings are enough: a random topological order sees each read find the same writer."""
    before = predecessors(program)
    order: list[int] = []
    while len(order) < len(before):
        ready = [t for t in range(len(before)) if t not in order and before[t] <= {*order}]
        order.append(random.choice(ready))
    assert _found(program, order) == _found(program, range(len(before)))


def _found(program: BlockProgram, order: Iterable[int]) -> dict[tuple[int, str], int | None]:
    """Which operation wrote what each read finds, and what is there in the end."""
    writer: dict[str, int] = {}
    found: dict[tuple[int, str], int | None] = {}
    for t in order:
        operation = program.operations[t]
        found |= {(t, name): writer.get(name) for name in operation.reads}
        writer |= dict.fromkeys(operation.writes, t)
    return found | {(-1, name): t for name, t in writer.items()}


@settings(max_examples=100, deadline=None)
@given(programs())
def test_dependencies_point_forward(program: BlockProgram) -> None:
    for ordering in orderings(program):
        assert 0 <= ordering.source < ordering.target < len(program.operations)
