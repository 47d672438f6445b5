"""When memory is taken and given back, of programs and of graphs."""

from __future__ import annotations

from dataclasses import replace

from solver.pipeline import plan, plan_program
from solver.reports.arenas import RecycledStep, recycling
from tests.support.graphs import chain
from tests.support.plan_views import HandMadePlan
from tests.support.programs import program


def test_by_hand() -> None:
    made = plan_program(
        program((("x w", "y"), ("y", "z e"), ("z", "w k"), ("y", "")), fed=("x",), kept=("k",))
    )
    found = recycling(made)
    assert (found.before, found.kept) == (("x", "w"), ("w", "k"))
    assert found.steps == (
        RecycledStep("op0", ("y",), ("x",), 3 * 64),
        RecycledStep("op1", ("z", "e"), ("e",), 4 * 64),
        RecycledStep("op2", ("k",), ("z",), 4 * 64),
        RecycledStep("op3", (), ("y",), 3 * 64),
    )


def test_fed_and_kept_is_there_before_and_after() -> None:
    found = recycling(plan_program(program((("x", "x"), ("x", "")), fed=("x",), kept=("x",))))
    assert (found.before, found.kept) == (("x",), ("x",))
    assert all(not step.allocated and not step.freed for step in found.steps)


def test_wrong_plans_are_shown_all_the_same() -> None:
    """`show` does not judge: lifespans beyond the last step, levels beyond all sense, no steps at all."""
    made = plan(chain((5, 4, 3)))
    names = sorted(b.id for _, b in made.buffers())
    late = tuple(replace(step, level=10**18) for step in made.steps)
    for steps in (made.steps[:2], late, ()):
        found = recycling(HandMadePlan(steps, made.arenas))
        assert sorted([*found.before, *(n for s in found.steps for n in s.allocated)]) == names
        assert sorted([*found.kept, *(n for s in found.steps for n in s.freed)]) == names


def test_graphs() -> None:
    """Parameters and optimizer state survive; the batch, derivatives and scratch are given back."""
    made = plan(chain((5, 4, 3), optimizer="Adam"))
    found = recycling(made)
    buffers = {b.id: b for _, b in made.buffers()}
    assert {"parameter", "optimizer_variable"} <= {buffers[name].kind.value for name in found.kept}
    assert {"input", "label", "parameter"} <= {buffers[name].kind.value for name in found.before}
    freed = [name for step in found.steps for name in step.freed]
    assert sorted([*found.kept, *freed]) == sorted(buffers)
    assert max(step.live_bytes for step in found.steps) == made.lower_bound
