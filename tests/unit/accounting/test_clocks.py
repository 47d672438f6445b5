"""How long an iteration takes, on programs small enough to follow by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.accounting import Traffic, elapsed, least_elapsed, level_costs, paging_problem, traffic
from solver.program import Costs, Tier, loads, transfer_nanoseconds
from solver.schedules.paging import in_tiers, with_transfers
from tests.support.paged_line import FLASH, LONG, SRAM, paged_line
from tests.support.programs import sequential


def test_steps_wait_for_transfers_that_nothing_hides() -> None:
    alone = sum(level_costs(LONG))
    out, back = transfer_nanoseconds(SRAM, FLASH, 10_000), transfer_nanoseconds(FLASH, SRAM, 10_000)
    assert elapsed(paged_line(0), [SRAM, FLASH]) == alone + out + back
    times = [elapsed(paged_line(ahead), [SRAM, FLASH]) for ahead in (0, 1, 2, 3)]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]
    cheap = [Tier("sram", 1), Tier("flash", 1, 10**12, 10**12)]
    assert elapsed(paged_line(3), cheap) == alone


def test_no_iteration_takes_less_than_its_steps_its_repetitions_or_its_transfers() -> None:
    """Four values of 100 bytes are there at once, the first tier has 200; 4 bytes of what moves are fed."""
    big = sequential(
        ("x", "a"), ("a", "b"), ("b", "c"), ("c b", "d"), ("d a", "e"), fed="x", a=100, b=100, c=100, d=100
    )
    peak = max(loads(big)[0])
    assert peak == 400
    tiers = (Tier("sram", 200), Tier("flash", 10_000, 10**9, 10**9))
    # Nothing is proved: some bytes go out and come in, or something runs again for nothing.
    assert least_elapsed(big, tiers, 50, [(200, 0)]) == 50
    # Where repetitions cost that much, it takes less to move nearly all that is too many.
    assert least_elapsed(big, tiers, 50, [(399, 1000)]) == 2 * (399 - 200 - 4)
    # Where they cost less, it takes less to run steps again, or some of both.
    assert least_elapsed(big, tiers, 50, [(399, 100)]) == 150
    assert least_elapsed(big, tiers, 50, [(300, 900), (399, 60)]) == 2 * (300 - 200 - 4)
    assert least_elapsed(big, (tiers[0], replace(tiers[1], write=10**8)), 50, [(399, 9000)]) == 11 * 195


def test_traffic_is_counted_by_memory() -> None:
    """10,000 bytes leave for memory 1 and come back into memory 0; without copies nothing moves."""
    assert traffic(paged_line(0)) == Traffic(10_000, 10_000, (10_000, 10_000))
    assert traffic(LONG) == Traffic(0, 0, (0,))


def test_a_level_lasts_as_long_as_its_longest_step() -> None:
    steps = len(LONG.steps)
    pairs = LONG.reordered(range(steps), [t // 2 for t in range(steps)])
    costs = Costs(tuple((label, 10 + t) for t, label in enumerate(LONG.step_labels)))
    assert level_costs(LONG, costs) == [10 + t for t in range(steps)]
    assert level_costs(pairs, costs) == [11, 13, 15, 17, 19]
    assert elapsed(LONG, [SRAM], costs) == sum(range(10, 20))


@pytest.mark.parametrize(("step", "expected"), [(0, 2000), (10, 2060), (250, 3500), (500, 5000), (600, 6000)])
def test_copies_of_one_channel_wait_for_each_other(step: int, expected: int) -> None:
    """Two values leave beside steps 1 and 2 and come back beside 7 and 8. 200 bytes at .5 GB/s and a latency
    of 100 ns take 500 ns. Where a step takes less, its level lasts until the copy has ended.
    """
    touches = (("x", "a b"), *((f"t{k}", f"t{k + 1}") for k in range(8)), ("t8 a b", "e"))
    program = sequential(*touches, fed="x t0", a=200, b=200)
    problem = paging_problem(program, 2)
    numbers = [j for j, gap in enumerate(problem.gaps) if program.values[gap.value].label in "ab"]
    tiers = [SRAM, Tier("slow", 10_000, 5 * 10**8, 5 * 10**8, 100)]
    homes = {problem.gaps[j].value: 1 for j in numbers}
    paged = with_transfers(in_tiers(program, tiers), problem, numbers, homes, tiers)
    costs = Costs(tuple((node.operation.id, step) for node in program.operations))
    assert elapsed(paged, tiers, costs) == expected
