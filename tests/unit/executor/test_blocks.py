"""Programs that run in their planned arena, and operations that touch what they did not declare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from solver.errors import DanglingOperandError, PlanError
from solver.executor import BlockRunner, BlockViews
from solver.graph import DType
from solver.pipeline import plan_program, reference_of
from solver.training import BlockProgram
from tests.support.programs import program
from tests.support.small_plans import placed, repeated

Functions = dict[str, Callable[[BlockViews], None]]

#: Momentum on one weight: w and m carry over from one iteration to the next.
MOMENTUM = program((("w x", "g"), ("m g", "m"), ("w m", "w")), fed=("x",), dtype=DType.FLOAT32)


def _gradient(v: BlockViews) -> None:
    np.multiply(v["w"], v["x"], out=v["g"])


def _momentum(v: BlockViews) -> None:
    v["m"][:] = np.float32(0.5) * v["m"] + v["g"]


def _update(v: BlockViews) -> None:
    v["w"][:] -= np.float32(0.25) * v["m"]


FUNCTIONS: Functions = {"op0": _gradient, "op1": _momentum, "op2": _update}


def runner(made: BlockProgram = MOMENTUM, **changes: Callable[[BlockViews], None]) -> BlockRunner:
    return BlockRunner(made, plan_program(made), FUNCTIONS | changes)


def test_values_carry_over_from_iteration_to_iteration() -> None:
    running = runner()
    running.block("w")[:], running.block("m")[:] = 1.0, 0.0
    w, m = np.float32(1), np.float32(0)
    for x in (1.0, 2.0, -1.0):
        running.block("x")[:] = x
        running.run()
        m = np.float32(0.5) * m + w * np.float32(x)
        w = w - np.float32(0.25) * m
        assert (float(running.block("w")[0]), float(running.block("m")[0])) == (float(w), float(m))


def test_what_is_dead_is_poison() -> None:
    running = runner()
    running.block("w")[:], running.block("m")[:], running.block("x")[:] = 1.0, 0.0, 1.0
    running.run()
    assert np.isnan(running.block("g")).all()


def test_undeclared_reads_are_refused() -> None:
    def peek(v: BlockViews) -> None:
        v["m"][:] = v["x"]

    running = runner(op1=peek)
    with pytest.raises(DanglingOperandError, match="'op1' touches 'x' without declaring it"):
        running.run()


def test_undeclared_writes_are_refused() -> None:
    def scribble(v: BlockViews) -> None:
        v["m"][:] = 0.0

    running = runner(op2=scribble)
    with pytest.raises(ValueError, match="read-only"):
        running.run()


def test_a_write_that_secretly_reads_finds_poison() -> None:
    def accumulate(v: BlockViews) -> None:
        v["g"][:] = v["g"] + v["x"]

    running = runner(op0=accumulate)
    running.block("w")[:], running.block("m")[:], running.block("x")[:] = 1.0, 0.0, 1.0
    running.run()
    assert np.isnan(running.block("w")).all()


def test_the_plan_of_another_program_is_refused() -> None:
    other = program((("w x", "g"), ("m g", "m"), ("w m", "w")), fed=("x",), dtype=DType.FLOAT64)
    with pytest.raises(PlanError, match="do not belong together"):
        BlockRunner(other, plan_program(MOMENTUM), FUNCTIONS)
    shuffled = program((("m g", "m"), ("w x", "g"), ("w m", "w")), dtype=DType.FLOAT32)
    with pytest.raises(PlanError, match="do not belong together"):
        BlockRunner(shuffled, plan_program(MOMENTUM), FUNCTIONS)


def test_a_wrong_plan_is_not_run() -> None:
    made = plan_program(MOMENTUM)
    stacked = replace(made, offsets=(0,) * len(made.offsets))
    with pytest.raises(PlanError, match="The plan is wrong"):
        BlockRunner(MOMENTUM, replace(stacked, sizes=(64,)), FUNCTIONS)


def test_every_operation_needs_a_function() -> None:
    with pytest.raises(PlanError, match="'op1' has no function"):
        BlockRunner(MOMENTUM, plan_program(MOMENTUM), {"op0": _gradient, "op2": _update})


def test_an_operation_finds_what_its_step_binds_whatever_that_is_called() -> None:
    """A plan in which an operation runs again, into a place of its own, for a later reader."""
    made = program((("x", "a"), ("a", "b"), ("a b", "c")), fed=("x",), kept=("c",), dtype=DType.FLOAT32)
    made = replace(made, operations=tuple(replace(each, pure=True) for each in made.operations))
    once = plan_program(made)
    again = placed(repeated(reference_of(made, once.options), 0, 2))
    functions: Functions = {
        "op0": lambda v: np.copyto(v["a"], v["x"]),
        "op1": lambda v: np.copyto(v["b"], v["a"] + np.float32(1)),
        "op2": lambda v: np.copyto(v["c"], v["a"] * v["b"]),
    }
    again = replace(again, graph_digest=once.graph_digest, reference_digest=once.reference_digest)
    running = BlockRunner(made, replace(again, options=once.options), functions)
    running.block("x")[:] = 3.0
    running.run()
    assert float(running.block("c")[0]) == 12.0
