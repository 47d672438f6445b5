"""Passes and layout: where what passes made does not fit, they run again with fewer bytes to use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from solver.accounting import busy_with, least_elapsed, step_costs
from solver.errors import CapacityError, InternalError
from solver.layout import Deadline, Outcome
from solver.passes import Applied as PassResult
from solver.passes import Paging, Pass, Recompute, SearchOrder
from solver.passes.paging import LOOKAHEADS
from solver.passes.recompute import read_only_bytes, weights_apart
from solver.passes.search_order import Lowest
from solver.pipeline.homes import RECORD as HOMES
from solver.pipeline.homes import InMemories, place_in_memories
from solver.pipeline.layout import place
from solver.pipeline.options import in_one_memory
from solver.pipeline.watch import Stopwatch
from solver.plan import PlanOptions
from solver.program import RESIDUE, CostBound, Costs, HomeBound, Program, Record, Region, loads, regions
from solver.targets import Lowered
from solver.verify.figures import unpaged

__all__ = ["MANY_STEPS", "Applied", "Passes", "Placed", "Results", "first_runs", "fitted", "run_passes"]

_K = TypeVar("_K")
_V = TypeVar("_V")

#: The passes of a target, by the options of a plan.
Passes = Callable[[PlanOptions], Sequence[Pass]]


@dataclass(frozen=True, slots=True)
class Results:
    """Results of passes that do not search, by the pass; orders that were searched for, by the options that
    have a say in them. Both also by the identity of the program, which is kept beside them: plans of one
    graph under several options run the same passes on the same programs.
    """

    passes: dict[tuple[Pass, int], tuple[Program, PassResult]] = field(default_factory=dict)
    orders: dict[tuple[str, Costs | None, int], tuple[Program, Lowest]] = field(default_factory=dict)

    def lowest(self, search: SearchOrder, program: Program, deadline: Deadline, watch: Stopwatch) -> Lowest:
        """The order with the lowest peak, searched for once whatever capacities it is asked for with."""
        key = search.update, search.costs, id(program)
        if key not in self.orders:
            found = search.lowest(program, deadline, watch.searching(search.name))
            _keep(self.orders, key, (program, found))
        return self.orders[key][1]


def _keep(results: dict[_K, _V], key: _K, result: _V) -> None:
    """Keep a result, in the place of the oldest where there are many."""
    if len(results) >= _MOST_RESULTS:
        del results[next(iter(results))]
    results[key] = result


#: Results that are kept: more than passes ask for between two that are alike.
_MOST_RESULTS = 32

#: How often passes run where the layout of what they made exceeds the capacity, and they can do something.
#: The first rounds take off what was too many; the later ones this part of the capacity at least.
_ROUNDS, _FEW_ROUNDS, _LATER_STEP = 6, 2, 50

#: Sizes of a first tier that are tried at most where every layout before failed; and how many steps all their
#: programs have together at most.
_MOST_SIZES, _SIZED_STEPS = 64, 2048

#: Budgets of recomputation where paging does the rest: thousandths of what is beyond the first tier. At the
#: first one nothing is left to paging, which takes the least work. Then the budget between the best one and
#: the next is halved so often.
_SHARES, _HALVED = (0, 100, 200, 500, 1000), 3


#: The part of the first tier from which weights that no step writes are left to paging alone.
_NOTABLE = 0.1

#: An estimate of paging alone that is larger than another plan's time by this factor is not searched for.
_FAR = 1.25

#: The most steps of a program for which plans with recomputation are compared in every way. In larger ones
#: that takes longer than recomputation does, and is done where no plan fits without.
MANY_STEPS = 3_000

#: Bounds that are proved of values with bytes of their own, and false of plans in which some share bytes.
_OF_OWN_BYTES = {
    Recompute.name: ("floor", "order_bound", "bound_nanoseconds", "checked_nanoseconds"),
    Paging.name: ("bound", "least_nanoseconds"),
}


@dataclass(frozen=True, slots=True)
class Applied:
    """The program behind all passes, what they record, whether none of them was cut by wall time, and what is
    proved of the cost of repetitions. `weights_apart`: recomputation counted no weights that no step writes.

    `home_bound` proves how long accesses take at least, where kernels reach several memories.
    """

    program: Program
    records: tuple[Record, ...]
    complete: bool
    bound: CostBound | None
    home_bound: HomeBound | None = None
    #: Recomputation left weights that no step writes to paging.
    weights_apart: bool = False

    def fact(self, name: str, figure: str) -> int:
        """A figure of a record; 0 without it."""
        facts = next((record.facts for record in self.records if record.name == name), {})
        return int(facts.get(figure, 0))

    def stating(self, name: str, figure: str, value: int) -> Applied:
        """The same with a figure more in a record."""
        records = tuple(
            replace(each, facts={**each.facts, figure: value}) if each.name == name else each
            for each in self.records
        )
        return replace(self, records=records)

    def in_memories(self, homes: InMemories) -> Applied:
        """The same with the homes of a program, which paging takes its time from."""
        applied = replace(
            self,
            program=homes.program,
            records=(*self.records, Record(HOMES, homes.facts)),
            complete=self.complete and homes.complete,
            home_bound=homes.bound,
        )
        return applied.stating(Paging.name, "nanoseconds", homes.facts["nanoseconds"])

    def without_bounds_of_own_bytes(self) -> Applied:
        """The same without what is proved only of values that share no bytes."""
        records = tuple(
            replace(each, facts={**each.facts, **dict.fromkeys(_OF_OWN_BYTES.get(each.name, ()), 0)})
            for each in self.records
        )
        return replace(self, records=records, bound=None)

    @property
    def nanoseconds(self) -> int:
        """How long an iteration is modelled to take."""
        return self.fact(Paging.name, "nanoseconds")

    @property
    def compute(self) -> int:
        """How long its steps take without transfers, those that run again included."""
        return self.fact(Paging.name, "compute_nanoseconds")


@dataclass(frozen=True, slots=True)
class Placed:
    """The program behind all passes, its regions, and the layout of each space.

    `reduced` says whether passes had to keep fewer bytes than the options have, so that the layout fits.
    """

    applied: Applied
    regions: Sequence[Region]
    outcomes: list[Outcome]
    reduced: bool


def fitted(
    reference: Lowered,
    passes: Passes,
    options: PlanOptions,
    deadline: Deadline,
    watch: Stopwatch,
    results: Results,
) -> Placed:
    """Passes, then layout; where passes can take fewer bytes, again with a smaller budget.

    Raises CapacityError where nothing was found that fits, OptionsError for what passes and solvers refuse,
    ConstraintError where the constraints have no layout.
    """
    #: By space, as each has a tier of its own; without tiers the first stands for all.
    seen = in_one_memory(options)
    reserved = _reserved_bytes(seen)
    refused: CapacityError | None = None
    only_apart = False
    whole = deadline.by_time()
    for step in (None, *_steps_down(seen, len(reference.program.steps))):
        less = list(reserved)
        less[0] += step or 0
        for round_ in range(_ROUNDS if (options.recompute or options.tiers) and not step else 1):
            with watch("passes"):
                try:
                    applied = _scheduled(
                        reference.program,
                        passes,
                        seen,
                        less,
                        deadline,
                        watch,
                        results,
                        only_apart=only_apart,
                    )
                except CapacityError as error:
                    if any(reserved):
                        words = "the capacity is", "the capacity without reserved bytes is"
                        error.message = error.message.replace(*words)
                    # A slower tier may have room for what leaves of a smaller first one.
                    ends = step or refused is None
                    if not options.tiers or (ends and error.path[:2] in (("capacity",), ("tiers", 0))):
                        raise refused or _of_memories(error, options) from None
                    refused = refused or _of_memories(error, options)
                    break
                only_apart = applied.weights_apart
                inside = regions(applied.program, reference.holds)
            with watch("layout"):
                try:
                    if options.memories:
                        homes = place_in_memories(applied.program, inside, options, deadline, watch)
                        inside, outcomes = homes.regions, homes.outcomes
                        applied = applied.in_memories(homes)
                    else:
                        outcomes = place(applied.program, inside, reference.solvers, options, whole, watch)
                    # What was proved is about a smaller tier than the options say.
                    if less[0] > reserved[0] and options.tiers:
                        applied = _bounded(applied, reference.program, passes, options, deadline)
                    return Placed(applied, inside, outcomes, reduced=less != reserved)
                except CapacityError as error:
                    refused = refused or error
                    least = 0 if round_ < _FEW_ROUNDS else error.available // _LATER_STEP
                    tier = next((part for part in error.path if isinstance(part, int)), 0)
                    if options.memories:  # which are the first for passes
                        tier = tier + 1 if error.path[0] == "tiers" else 0
                    less[tier] += max(error.excess, least)
        if refused is None or deadline.expired:
            break
    raise refused or InternalError("Layout was never tried.")


def _steps_down(options: PlanOptions, steps: int) -> Iterator[int]:
    """The bytes to leave out of the first tier where the layouts of larger steps have all failed.

    So a program that a smaller tier is enough for is planned in a larger one, too: of small programs every
    size of the tier is tried.
    """
    if options.tiers:
        count = min(_MOST_SIZES, _SIZED_STEPS // steps)
        size = options.tiers[0].bytes
        step = -(-size // (count + 1) // RESIDUE) * RESIDUE if count else size
        yield from range(step, size, step)


def _bounded(
    applied: Applied, reference: Program, passes: Passes, options: PlanOptions, deadline: Deadline
) -> Applied:
    """The same with bounds on the bytes moved and on the time in the tiers that the options have."""
    if options.memories or options.parallelism > 1:
        moved, took = 0, 0
    else:
        within = replace(options, recompute=False)
        paging = next(each for each in passes(within) if isinstance(each, Paging))
        ahead = applied.fact(Paging.name, "lookahead")
        copied = applied.fact(Paging.name, "moved_in") + applied.fact(Paging.name, "moved_out")
        moved = paging.least_bytes(unpaged(applied.program), ahead, copied, deadline)
        took = least_elapsed(reference, options.tiers, sum(step_costs(reference, options.costs)), ())
    applied = applied.stating(Paging.name, "bound", moved)
    return applied.stating(Paging.name, "least_nanoseconds", took)


def _reserved_bytes(options: PlanOptions) -> list[int]:
    """The bytes of each tier that are reserved; of the capacity in the first place without tiers."""
    names = [tier.name for tier in options.tiers] or [""]
    capacities = [tier.bytes for tier in options.tiers] or [options.capacity or 0]
    reserved = [0] * len(names)
    for range_ in options.reserved:
        k = names.index(range_.space) if range_.space in names else 0
        reserved[k] += max(0, min(range_.high, capacities[k]) - range_.low)
    return reserved


def _of_memories(error: CapacityError, options: PlanOptions) -> CapacityError:
    """An error of passes, for which all memories are one, with the place in the options as they are."""
    if options.memories and error.path[:1] == ("tiers",) and isinstance(error.path[1], int):
        tier = error.path[1] - 1
        error.path = ("tiers", tier, *error.path[2:]) if tier >= 0 else ("memories",)
    elif options.memories and error.path == ("capacity",):
        error.path = ("memories",)
    return error


def _scheduled(
    program: Program,
    passes: Passes,
    options: PlanOptions,
    less: Sequence[int],
    deadline: Deadline,
    watch: Stopwatch,
    results: Results,
    *,
    only_apart: bool,
) -> Applied:
    """The program behind all passes, which keep the capacities of the options reduced by `less` bytes.

    Where values may be recomputed and paged, recomputation gets several budgets and paging does the rest.
    The iteration that is modelled to be the fastest is taken. With `only_apart` the only budget is the one
    that counts no weights, if anything keeps it.
    """
    if not options.tiers:
        capacity = None if options.capacity is None else max(0, options.capacity - less[0])
        return run_passes(program, passes(replace(options, capacity=capacity)), deadline, watch, results)
    tiers = tuple(
        replace(tier, bytes=max(1, tier.bytes - few)) for tier, few in zip(options.tiers, less, strict=True)
    )
    options = replace(options, tiers=tiers)
    if not options.recompute:
        return run_passes(program, passes(options), deadline, watch, results)
    paging = next(each for each in passes(replace(options, recompute=False)) if isinstance(each, Paging))
    paging.check(program)
    peak = max(loads(program)[0], default=0)
    apart = _weights_apart(program, passes, options, deadline, watch, results)
    alone = sum(step_costs(program, options.costs))
    if apart is not None:
        least = least_elapsed(program, tiers, alone, ())
        apart = apart.stating(Paging.name, "least_nanoseconds", least)
    if apart is not None and only_apart:
        return apart
    # Each share takes as long as a plan does: of large programs the ends are compared.
    few = apart is not None and len(program.steps) > MANY_STEPS
    if apart is not None and few and paging.estimate(program) > _FAR * apart.nanoseconds:
        return apart
    by_share: dict[int, Applied] = {}
    without: dict[int, CapacityError] = {}
    over, busy = max(0, peak - tiers[0].bytes), busy_with(program, tiers)

    def attempt(share: int) -> None:
        # What is beyond the first tier has to be moved, which may take longer than the best plan.
        if by_share and busy(over * share // 1000) >= by_share[fastest()].nanoseconds:
            return
        capacity = tiers[0].bytes + over * share // 1000
        # Passes in front may raise the peak, and with all bytes nothing should run again.
        budget = replace(options, capacity=capacity, recompute=share < _SHARES[-1])
        try:
            by_share[share] = run_passes(program, passes(budget), deadline, watch, results)
        except CapacityError as error:
            without[share] = error

    def fastest() -> int:
        return min(by_share, key=lambda share: by_share[share].nanoseconds)

    for share in _SHARES[-1:] if few else _SHARES:
        attempt(share)
        if by_share and (deadline.expired or by_share[fastest()].nanoseconds <= alone):
            break
    if not by_share and apart is not None:
        return apart
    if not by_share:
        # What a tier lacks is told rather than that so much cannot be left to recomputation.
        of_tiers = [error for error in without.values() if error.path[:1] == ("tiers",)]
        raise min(of_tiers or without.values(), key=lambda error: error.excess)
    for _ in range(0 if few else _HALVED):
        best = fastest()
        # The faster side; and where the next budget was too small, towards that.
        beside = [max((s for s in (*by_share, *without) if s < best), default=best)]
        beside += [min((s for s in (*by_share, *without) if s > best), default=best)]
        beside = [s for s in beside if abs(s - best) > 1]
        if not beside or deadline.expired or by_share[best].nanoseconds <= by_share[best].compute:
            break
        attempt((best + min(beside, key=lambda s: by_share[s].nanoseconds if s in by_share else 0)) // 2)
    tried = [*by_share.values(), *([] if apart is None else [apart])]
    winner = min(tried, key=lambda each: each.nanoseconds)
    if options.parallelism > 1:
        return winner  # steps beside others cost less than the sum
    proved = [
        (each.fact(Recompute.name, "budget"), each.fact(Recompute.name, "bound_nanoseconds"))
        for each in by_share.values()
    ]
    for share in {*_SHARES[1:-1]}.difference(by_share, without):  # which would take too long to move
        capacity = tiers[0].bytes + over * share // 1000
        proved.append(
            (capacity, _least_repeated(program, passes(replace(options, capacity=capacity)), deadline))
        )
    return winner.stating(Paging.name, "least_nanoseconds", least_elapsed(program, tiers, alone, proved))


def _least_repeated(program: Program, passes: Sequence[Pass], deadline: Deadline) -> int:
    """Nanoseconds that repetitions cost at least behind the passes in front of recomputation."""
    for each in passes:
        if isinstance(each, Recompute):
            return each.least_nanoseconds(program, deadline)
        program = each.run(program)
    return 0


def _weights_apart(
    program: Program,
    passes: Passes,
    options: PlanOptions,
    deadline: Deadline,
    watch: Stopwatch,
    results: Results,
) -> Applied | None:
    """Recomputation that counts weights which no step writes only where steps read them, then paging.

    None where these weights are few, or nothing was found.
    """
    most = options.tiers[0].bytes
    if read_only_bytes(program) < _NOTABLE * most:
        return None
    budget = replace(options, capacity=most)
    for ahead in reversed(LOOKAHEADS):
        try:
            applied = run_passes(program, weights_apart(passes, ahead)(budget), deadline, watch, results)
        except CapacityError:
            continue
        return replace(applied, weights_apart=True)
    return None


def first_runs(program: Program) -> tuple[int, ...]:
    """The reference's steps in the order in which they run first."""
    return tuple(dict.fromkeys(step.reference for step in program.steps if step.reference is not None))


def run_passes(
    program: Program, passes: Sequence[Pass], deadline: Deadline, watch: Stopwatch, results: Results
) -> Applied:
    """The program behind the passes."""
    records, complete, bound = [], True, None
    for each in passes:
        key = each, id(program)
        if not each.searches and key in results.passes:
            result = results.passes[key][1]
        elif isinstance(each, SearchOrder) and each.searches and each.order:
            result = each.choose(program, results.lowest(each, program, deadline, watch), deadline)
        else:
            result = each.apply(program, deadline, watch.searching(each.name))
            if not each.searches:
                _keep(results.passes, key, (program, result))
        bound = bound or result.bound
        if result.facts is not None:
            records.append(Record(each.name, result.facts))
        program, complete = result.program, complete and result.complete
    return Applied(program, tuple(records), complete, bound)
