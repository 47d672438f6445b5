"""Random graphs and programs on several workers: verified plans, and the bits of one worker."""

from __future__ import annotations

import itertools
import threading
import zlib
from dataclasses import replace
from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.documents import dump_plan, load_plan
from solver.executor import BlockRunner, BlockViews, validate
from solver.graph import DType, TensorType, TrainableGraph
from solver.pipeline import plan, plan_program
from solver.plan import Plan, PlanOptions, verify
from solver.plan.waves import wave_report
from solver.training import Block, BlockOperation, BlockProgram, build_program
from tests.support.programs import programs
from tests.support.random_graphs import random_graphs

WORKERS = st.sampled_from([2, 3, 4])


@settings(max_examples=40)
@given(random_graphs(), WORKERS, st.sampled_from(["immediate", "end"]), st.booleans(), st.booleans())
def test_graphs_train_to_the_same_bits(
    graph: TrainableGraph, workers: int, update: str, in_place: bool, rewrite: bool
) -> None:
    made = plan(graph, PlanOptions(parallelism=workers, update=update, in_place=in_place, rewrite=rewrite))
    assert verify(made) == ()
    assert load_plan(dump_plan(made)) == made
    assert validate(graph, made, steps=2).identical


@given(random_graphs())
def test_one_worker_is_the_plan_without_waves(graph: TrainableGraph) -> None:
    made = plan(graph, PlanOptions(parallelism=1))
    assert made == plan(graph)
    assert b'"wave' not in dump_plan(made)
    assert b'"workers' not in dump_plan(made)


@given(random_graphs(), WORKERS)
def test_more_workers_never_take_more_waves(graph: TrainableGraph, workers: int) -> None:
    one, several = (plan(graph, PlanOptions(parallelism=k, solver="greedy")) for k in (1, workers))
    found = wave_report(several)
    assert found.count <= len(one.steps) == found.steps
    assert found.widest <= workers
    assert found.sequential_bytes <= several.lower_bound


@given(random_graphs(), WORKERS, st.data())
def test_no_step_can_move_into_an_earlier_wave_of_what_it_needs(
    graph: TrainableGraph, workers: int, data: st.DataObject
) -> None:
    """Any step put into the wave of one that it depends on is named by the verifier."""
    made = plan(graph, PlanOptions(parallelism=workers, solver="greedy"))
    pairs = [
        (early, late)
        for early, late in itertools.combinations(made.steps, 2)
        if early.wave != late.wave and {*early.defs} & {*late.uses, *late.defs}
    ]
    early, late = data.draw(st.sampled_from(pairs))
    steps = tuple(replace(s, wave=early.wave) if s is late else s for s in made.steps)
    steps = tuple(sorted(steps, key=lambda s: s.wave or 0))
    assert any(" in the same wave" in violation.detail for violation in verify(replace(made, steps=steps)))


@given(random_graphs(), WORKERS, st.data())
def test_nor_beside_a_step_that_overwrites_the_memory_it_touches(
    graph: TrainableGraph, workers: int, data: st.DataObject
) -> None:
    """The same where operands share memory: the names differ, the bytes are the same."""
    made = plan(graph, PlanOptions(parallelism=workers, solver="greedy", in_place=True))
    home = {o.id: b.id for _, b in made.buffers() for o in b.operands}
    views = {o.id for _, b in made.buffers() for o in b.operands if o.view}
    pairs = [
        (early, late)
        for early, late in itertools.combinations(made.steps, 2)
        if early.wave != late.wave
        and {home[name] for name in {*early.defs} - views} & {home[name] for name in (*late.uses, *late.defs)}
    ]
    early, late = data.draw(st.sampled_from(pairs))
    steps = tuple(replace(s, wave=early.wave) if s is late else s for s in made.steps)
    steps = tuple(sorted(steps, key=lambda s: s.wave or 0))
    details = [violation.detail for violation in verify(replace(made, steps=steps))]
    assert any(" in the same wave" in d or " of its wave " in d for d in details)


# -------------------------------------------------------------------------------------- programs


def mix(operation: BlockOperation, views: BlockViews) -> None:
    """What is written depends on the operation and on every byte that it reads."""
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
@given(programs(), WORKERS)
def test_programs_compute_the_same_bytes(program: BlockProgram, workers: int) -> None:
    made = all_kept(program)
    several = plan_program(made, PlanOptions(parallelism=workers, alignment=1))
    assert verify(several) == ()
    assert results(made, several) == results(made, plan_program(made, PlanOptions(alignment=1)))
    assert not any(t.name.startswith("arenaplan-worker") for t in threading.enumerate())


@given(programs(), WORKERS)
def test_programs_in_waves_hold_what_they_hold_one_by_one(program: BlockProgram, workers: int) -> None:
    several = plan_program(program, PlanOptions(parallelism=workers, solver="greedy"))
    one = plan_program(program, PlanOptions(solver="greedy"))
    assert verify(several) == ()
    assert {b.id: (b.lifetime, b.size, b.kind) for _, b in several.buffers()} == {
        b.id: (b.lifetime, b.size, b.kind) for _, b in one.buffers()
    }
    assert several.duration <= one.duration
