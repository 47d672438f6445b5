from __future__ import annotations

import gc
import random
import subprocess
import sys
import weakref

import pytest

from solver.layout import (
    Buffer,
    Deadline,
    LayoutProblem,
    Lifespan,
    Proof,
    Status,
    find_violations,
    max_load,
    solve,
)
from solver.layout.exact.cp_sat import let_go, refine, representable
from solver.layout.greedy.placement import greedy_portfolio
from solver.layout.model.instance import Instance
from tests.support.buffers import best_peak, layout, problem, random_problem


def _pinned(rng: random.Random, p: LayoutProblem) -> LayoutProblem:
    alignment = rng.choice((1, 2, 8))
    pin = Buffer("pinned", rng.randint(1, 9), Lifespan(1, 3), alignment, alignment * rng.randrange(4))
    return LayoutProblem((*p.buffers, pin))


@pytest.mark.parametrize("seed", range(25))
def test_optimum_with_pins_and_any_alignment(seed: int) -> None:
    rng = random.Random(seed)
    alignments = rng.choice(((1,), (4,), (1, 2, 8), (4, 8)))
    p = random_problem(rng, rng.randint(1, 5), 5, rng.choice((4, 20)), alignments)
    if rng.random() < 0.5:
        p = _pinned(rng, p)
    outcome = solve(p, solver="cp-sat")
    assert outcome.status is Status.OPTIMAL
    assert outcome.layout is not None
    assert outcome.layout.peak == best_peak(p)


def test_it_improves_on_a_poor_incumbent() -> None:
    p = problem((4, 0, 2), (4, 2, 4), (4, 4, 6), (3, 1, 5))
    poor = layout(p, 30, 60, 30, 0)
    refined = refine(Instance.of(p), poor, max_load(p).bytes, Deadline(), 1.0)
    assert refined.layout.peak == refined.proved == 7
    assert find_violations(p, refined.layout) == ()


def test_a_model_is_gone_once_it_is_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    """OR-Tools keeps its methods by old names in each model, and with them the model."""
    from ortools.sat.python import cp_model

    models: list[weakref.ref[cp_model.CpModel]] = []

    class Kept(cp_model.CpModel):
        def __init__(self) -> None:
            super().__init__()
            models.append(weakref.ref(self))

    monkeypatch.setattr(cp_model, "CpModel", Kept)
    p = problem((4, 0, 2), (4, 2, 4), (4, 4, 6), (3, 1, 5))
    gc.disable()
    try:
        refined = refine(Instance.of(p), layout(p, 30, 60, 30, 0), max_load(p).bytes, Deadline(), 1.0)
        assert [model() for model in models] == [None]
    finally:
        gc.enable()
    assert refined.layout.peak == 7


def test_a_model_that_is_notlet_go_of_stays() -> None:
    """Deleting it is not enough. Once this fails, OR-Tools has broken the cycle, and `let_go` can go."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    left = weakref.ref(model)
    gc.disable()
    try:
        model.minimize(model.new_int_var(0, 1, "x"))
        cp_model.CpSolver().solve(model)
        del model
        kept = left()
        assert kept is not None
        let_go(kept)
        del kept
        assert left() is None
    finally:
        gc.enable()


def test_a_model_without_old_names_islet_go_of_in_silence() -> None:
    """As a later OR-Tools may have them: nothing but slots."""

    class Slotted:
        __slots__ = ()

    let_go(Slotted())  # type: ignore[arg-type]  # in place of a model


def test_an_incumbent_off_the_grid_is_no_obstacle() -> None:
    p = problem((4, 0, 2), (4, 0, 2))
    assert refine(Instance.of(p), layout(p, 1, 7), 8, Deadline(), 1.0).layout.peak == 8


def test_the_common_divisor_makes_large_sizes_small() -> None:
    big = 2**50
    assert representable(Instance.of(problem((3 * big, 0, 2), (5 * big, 0, 2))), 8 * big)
    assert not representable(Instance.of(problem((3 * big, 0, 2), (5 * big + 1, 0, 2))), 8 * big)


def test_sizes_beyond_its_integers_leave_the_incumbent() -> None:
    p = problem((2**61 + 1, 0, 2), (2**60, 1, 3), (2**60 - 1, 2, 5))
    poor = layout(p, 2**60, 0, 2**62)
    refined = refine(Instance.of(p), poor, max_load(p).bytes, Deadline(), 1.0)
    assert (refined.layout, refined.proved, refined.cut) == (poor, 0, False)


def test_an_expired_deadline_returns_the_incumbent() -> None:
    p = problem((4, 0, 2), (4, 2, 4))
    poor = layout(p, 4, 4)
    refined = refine(Instance.of(p), poor, 4, Deadline.after(0), 1.0)
    assert (refined.layout, refined.proved, refined.cut) == (poor, 0, True)


def test_a_deadline_that_cuts_in_is_told_though_clocks_differ() -> None:
    """CP-SAT has a clock of its own; here it runs four times as fast."""

    class Slow(Deadline):
        @property
        def remaining(self) -> float:
            return super().remaining / 4

    p = random_problem(random.Random(1), 80, 40, 997, (1, 4, 32))
    instance, bound = Instance.of(p), max_load(p).bytes
    start = greedy_portfolio(instance, bound, Deadline()).layout
    refine(instance, start, bound, Deadline(), 1e-6)  # loads it, which takes longer than the deadline
    refined = refine(instance, start, bound, Slow.after(0.8), 1e9)
    assert bound <= refined.layout.peak <= start.peak
    assert (refined.proved, refined.cut) == (0, True)


def test_a_pin_that_alone_sets_the_peak_is_proved_by_the_solver_not_by_the_load() -> None:
    p = LayoutProblem((Buffer("a", 4, Lifespan(0, 1), 1, 100), Buffer("b", 4, Lifespan(0, 1))))
    outcome = solve(p, solver="cp-sat")
    assert (outcome.lower_bound, outcome.proof) == (104, Proof.SOLVER)


def test_importing_the_package_does_not_import_ortools() -> None:
    code = "import sys, solver.layout; sys.exit('ortools' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_same_problem_has_the_same_layout_each_time() -> None:
    """There are many layouts of the best peak that is found in this work; which is heard of first varies."""
    instance = Instance.of(random_problem(random.Random(3), 60, 25, 70, (1, 4, 16)))
    start = greedy_portfolio(instance, 0, Deadline()).layout
    refined = [refine(instance, start, 0, Deadline(), 0.01).layout for _ in range(2)]
    assert refined[0].peak < start.peak
    assert refined[0] == refined[1]
