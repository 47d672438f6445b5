"""Random graphs and programs with several steps on a level: proved plans, and the bits of one at a time."""

from __future__ import annotations

import itertools
import threading
import zlib
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.executor import BlockRunner, BlockViews
from solver.graph import DType, TensorType, TrainableGraph
from solver.pipeline import plan, plan_program
from solver.plan import Plan, PlanOptions
from solver.reports.arenas import level_report
from solver.training import Block, BlockOperation, BlockProgram, build_program
from tests.support.damaged import on_level, with_options
from tests.support.programs import programs
from tests.support.proofs import violations
from tests.support.random_graphs import PLANNED, random_graphs

PARALLELISM = st.sampled_from([2, 3, 4])


@PLANNED
@given(random_graphs())
def test_one_step_at_a_time_has_a_level_for_each_step(graph: TrainableGraph) -> None:
    made = plan(graph, PlanOptions(parallelism=1))
    assert made == plan(graph)
    assert made.times == tuple(range(len(made.steps)))
    assert "levels" not in {record.name for record in made.records}


@PLANNED
@given(random_graphs(), PARALLELISM)
def test_more_steps_at_a_time_never_take_more_levels(graph: TrainableGraph, parallelism: int) -> None:
    one, several = (plan(graph, PlanOptions(parallelism=k, solver="greedy")) for k in (1, parallelism))
    found = level_report(several)
    assert found.count <= len(one.steps) == found.steps
    assert found.widest <= parallelism
    assert found.sequential_bytes <= several.lower_bound


def crowded(made: Plan, late: int, level: int) -> Plan:
    """The plan with one step moved to an earlier level, where any number of steps may run."""
    return with_options(on_level(made, made.program.step_labels[late], level), parallelism=64)


@PLANNED
@given(random_graphs(), PARALLELISM, st.data())
def test_no_step_can_move_onto_the_level_of_what_it_needs(
    graph: TrainableGraph, parallelism: int, data: st.DataObject
) -> None:
    """Any step put on the level of one that it depends on is named by the proof."""
    made = plan(graph, PlanOptions(parallelism=parallelism, solver="greedy"))
    pairs = [
        (s, t)
        for (s, early), (t, late) in itertools.combinations(enumerate(made.steps), 2)
        if early.level != late.level and {*early.defs} & {*late.uses, *late.defs}
    ]
    s, t = data.draw(st.sampled_from(pairs))
    found = violations(graph, crowded(made, t, made.steps[s].level))
    assert any(v.rule == "level" and " while Step " in v.detail for v in found)


@PLANNED
@given(random_graphs(), PARALLELISM, st.data())
def test_nor_beside_a_step_that_overwrites_the_memory_it_touches(
    graph: TrainableGraph, parallelism: int, data: st.DataObject
) -> None:
    """The same where values share memory: the labels differ, the bytes are the same.

    Moved before the step that defines what it takes the bytes of, its alias has the wrong form besides.
    """
    made = plan(graph, PlanOptions(parallelism=parallelism, solver="greedy", in_place=True))
    home = {value.id: buffer.id for _, buffer in made.buffers() for value in buffer.values}
    views = {value.id for _, buffer in made.buffers() for value in buffer.values if value.view}
    pairs = [
        (s, t)
        for (s, early), (t, late) in itertools.combinations(enumerate(made.steps), 2)
        if early.level != late.level
        and {home[name] for name in {*early.defs} - views} & {home[name] for name in (*late.uses, *late.defs)}
    ]
    s, t = data.draw(st.sampled_from(pairs))
    found = {v.rule for v in violations(graph, crowded(made, t, made.steps[s].level))}
    assert found & {"level", "form"}


# -------------------------------------------------------------------------------------- programs


def mix(operation: BlockOperation, views: BlockViews) -> None:
    """Writes bytes that depend on the operation and on every byte that it reads."""
    mixed = zlib.crc32(operation.name.encode())
    for name in operation.reads:
        mixed = zlib.crc32(views[name].tobytes(), mixed)
    for shift, name in enumerate(operation.writes):
        views[name][:] = np.uint8(mixed + shift & 255)


def all_kept(program: BlockProgram) -> BlockProgram:
    """The same program with every block kept, so that each can be compared in the end."""
    blocks = [
        Block(b.name, TensorType(b.type.shape, DType.UINT8), b.fed, kept=True)
        for b in program.blocks.values()
    ]
    return build_program(program.name, blocks, program.operations)


def results(program: BlockProgram, made: Plan) -> dict[str, bytes]:
    runner = BlockRunner(program, made, {o.name: partial(mix, o) for o in program.operations})
    for k, name in enumerate(program.blocks):
        runner.block(name)[:] = k
    for _ in range(3):
        runner.run()
    runner.close()
    return {name: runner.block(name).tobytes() for name in program.blocks}


@settings(max_examples=60)
@given(programs(), PARALLELISM)
def test_programs_compute_the_same_bytes(program: BlockProgram, parallelism: int) -> None:
    made = all_kept(program)
    several = plan_program(made, PlanOptions(parallelism=parallelism, alignment=1))
    assert violations(made, several) == ()
    assert results(made, several) == results(made, plan_program(made, PlanOptions(alignment=1)))
    assert not any(t.name.startswith("arenaplan-level") for t in threading.enumerate())


@given(programs(), PARALLELISM)
def test_programs_on_levels_hold_what_they_hold_one_by_one(program: BlockProgram, parallelism: int) -> None:
    several = plan_program(program, PlanOptions(parallelism=parallelism, solver="greedy"))
    one = plan_program(program, PlanOptions(solver="greedy"))
    assert violations(program, several) == ()
    assert {b.id: (b.lifetime, b.size, b.kind) for _, b in several.buffers()} == {
        b.id: (b.lifetime, b.size, b.kind) for _, b in one.buffers()
    }
    assert several.duration <= one.duration
