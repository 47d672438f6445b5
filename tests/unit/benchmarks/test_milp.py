"""The published models that the search is compared with: they cost what the exact search says."""

from __future__ import annotations

from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import replay
from tests.benchmarks.milp import checkmate, moccasin, vgg16_cifar
from tests.support.every import grid
from tests.support.schedule_problems import exact, layered, problem


@grid("seed", range(8))
def test_they_find_the_optimum_of_small_graphs(seed: int) -> None:
    given = layered(8, seed)
    budget = max(replay(given, tuple(range(8)))) * 9 // 10
    best = exact(given, budget)
    assert checkmate(given, budget, 60.0).extra == best
    found = moccasin(given, budget, 10.0)
    assert found.extra is None or (best is not None and found.extra >= best), "it makes a value twice at most"


def test_the_graph_of_poet() -> None:
    reads, size, flops = vgg16_cifar()
    assert len(reads) == len(size) == len(flops) == 81
    assert all(v < t for t, values in enumerate(reads) for v in values)
    # Gradients cost twice what is before them; the loss has none of its own.
    assert sum(flops[41:]) == 2 * sum(flops[:40])
    given = problem(reads, size, flops)
    assert cheapest(given, max(replay(given, tuple(range(81)))) * 8 // 10).optimal
