"""The whole path on one screen: graph -> reference program -> passes -> layout -> plan -> proof.

An explicit program enters behind derivation: it is its own reference.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from solver import documents, preparations
from solver.collector import collector_paused
from solver.errors import CapacityError, DimensionError, InternalError, OptionsError
from solver.frozen import maker
from solver.graph import TrainableGraph
from solver.graph.declared import MAX_BYTES
from solver.layout import (
    Buffer,
    Certificate,
    Deadline,
    Hole,
    LayoutProblem,
    Outcome,
    Progress,
    SolveOptions,
    Status,
    max_load,
)
from solver.layout.api import SOLVERS, solve
from solver.passes import Aliases, Levels, Paging, Pass, Recompute, SearchOrder, in_given_order
from solver.plan import Plan, PlanOptions
from solver.preparations import Prepared
from solver.program import CONVERT, CostBound, Costs, Program, Record, Region, check_costs, loads, regions
from solver.schedules import roofline, step_costs
from solver.schedules.paging import least_elapsed
from solver.targets import TARGETS, Lowered, Target, aligned
from solver.targets.reference import ALIGNMENT
from solver.verify import prove
from solver.version import producer

if TYPE_CHECKING:
    from solver.preparations.rewriting import Arithmetic
    from solver.training import BlockProgram

__all__ = [
    "PROGRAM",
    "TARGETS",
    "BlockProgram",
    "Start",
    "TrainableGraph",
    "modelled_costs",
    "plan",
    "plan_program",
    "reference_of",
    "start_of",
]

#: The target of plans of explicit programs: one arena, every block as the program uses it.
PROGRAM = "program"

_DEFAULTS = PlanOptions()

_buffer = maker(Buffer)

#: How often passes run where the layout of what they made exceeds the capacity, and they can do something.
#: The first rounds take off what was too many; the later ones this part of the capacity at least.
_ROUNDS, _FEW_ROUNDS, _LATER_STEP = 6, 2, 50

#: Budgets of recomputation where paging does the rest: thousandths of what is beyond the first tier. Then so
#: often one is tried that is half-way from the best to the next.
_SHARES, _HALVED = (1000, 500, 200, 100, 0), 3

#: Told the name of each stage and the seconds it took.
Observer = Callable[[str, float], None]
#: Told the name of each stage when it begins, and each better layout or bound, of one space, as it is found.
Follower = Callable[[str, Progress | None], None]


def __getattr__(name: str) -> Any:
    """The type of explicit programs, which plans of graphs do without."""
    if name != "BlockProgram":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from solver.training import BlockProgram

    return BlockProgram


@collector_paused()
def plan(
    graph: TrainableGraph,
    options: PlanOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
) -> Plan:
    """Plan the memory of one training iteration, and prove that the plan computes what the graph says.

    Without `options.deadline_seconds` the same arguments give the same plan, byte for byte. Raises
    OptionsError for an option out of range, CapacityError when no arena within the capacity was found.
    """
    options = options or PlanOptions()
    target = _checked(options)
    watch = _Stopwatch(observe, follow)
    deadline = Deadline.after(options.deadline_seconds)
    with watch("prepare"):
        planner = _Planner(target, options, deadline)
        prepared = _prepared(graph, planner, options)
        options = replace(
            options, scratch_budget=prepared.scratch_budget
        )  # what the plan can be repeated with
    with watch("derive"):
        reference = _reference(prepared, planner, options)
    made = _planned(graph.name, reference, target.passes, options, deadline, watch)
    made = replace(
        made,
        replacements=prepared.replacements,
        records=(*prepared.records, *_conversions(reference.program, options), *made.records),
        deterministic=made.deterministic and prepared.complete,
    )
    return _proved(reference, made, lambda: documents.graph_digest(graph), watch)


@collector_paused()
def plan_program(
    program: BlockProgram,
    options: PlanOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
) -> Plan:
    """Plan the memory of an explicit program, under the promises of `plan`; `graph` is the program's name.

    The default target means `PROGRAM` here. `in_place` uses the permissions to overwrite, `order` that to
    reorder. Raises OptionsError for what only graphs have (batch, scratch budget, update mode, rewriting) and
    for what the program does not permit, DimensionError when the blocks, rounded up to the alignment,
    do not fit the 64-bit offsets of any runtime.
    """
    options = options or PlanOptions()
    if options.target == _DEFAULTS.target:
        options = replace(options, target=PROGRAM)
    _check_of_program(options)
    watch = _Stopwatch(observe, follow)
    deadline = Deadline.after(options.deadline_seconds)
    with watch("derive"):
        from solver.training import explicit_program

        reference = aligned(explicit_program(program), options.alignment or ALIGNMENT)
        _check_extent(reference.program)
    _check_permissions(program, options)
    made = _planned(program.name, reference, _passes_of_program, options, deadline, watch)
    return _proved(reference, made, lambda: documents.program_digest(program), watch)


def _passes_of_program(options: PlanOptions) -> Sequence[Pass]:
    """The passes that need no operators."""
    return (
        SearchOrder(options.order, in_place=options.in_place),
        Levels(options.parallelism),
        Aliases(options.in_place),
    )


def _check_permissions(program: BlockProgram, options: PlanOptions) -> None:
    """Raises OptionsError for what the program does not permit."""
    if options.order and not program.any_order:
        raise OptionsError(
            "The program does not permit another order of its operations.",
            remedy='Leave the option out, or write "any_order": true into the program.',
            path=("order",),
        )


def _check_extent(program: Program) -> None:
    if sum(region.size for region in regions(program)) > MAX_BYTES:
        raise DimensionError(
            f"The blocks, rounded up to {program.spaces[0].alignment} bytes, add up to more than"
            " 2**63 - 1 bytes.",
            remedy="Reduce the blocks, or the alignment.",
            path=("blocks",),
        )


def reference_of(subject: TrainableGraph | BlockProgram, options: PlanOptions) -> Program:
    """The program that a plan made with these options must agree with; `subject` is already rewritten."""
    if isinstance(subject, TrainableGraph):
        prepared = Prepared(subject, options.scratch_budget, storage=options.storage)
        return TARGETS[options.target].reference(prepared, options).program
    from solver.training import explicit_program

    return aligned(explicit_program(subject), options.alignment or ALIGNMENT).program


@dataclass(frozen=True, slots=True)
class Start:
    """What plans of a graph begin with: the prepared graph, its reference program, and the target."""

    prepared: Prepared
    reference: Lowered
    target: Target


@collector_paused()
def start_of(graph: TrainableGraph, options: PlanOptions, deadline: Deadline | None = None) -> Start:
    """What `plan` begins with under these options. Raises OptionsError for an option out of range."""
    target = _checked(options)
    planner = _Planner(target, options, deadline or Deadline())
    prepared = _prepared(graph, planner, options)
    return Start(prepared, _reference(prepared, planner, options), target)


@collector_paused()
def modelled_costs(graph: TrainableGraph, options: PlanOptions) -> Costs:
    """What `plan` takes each step to cost under these options where no costs are given, by a roofline.

    Raises OptionsError for an option out of range.
    """
    program = start_of(graph, options).reference.program
    return Costs(tuple(zip(program.step_labels, roofline(program), strict=True)), "modelled by a roofline")


def _reference(prepared: Prepared, planner: _Planner, options: PlanOptions) -> Lowered:
    """The reference program, whose steps all have a cost where costs are given."""
    reference = planner.reference(prepared)
    if options.costs is not None:
        check_costs(reference.program, options.costs)
    return reference


def _conversions(program: Program, options: PlanOptions) -> tuple[Record, ...]:
    """What storage in other types costs: its conversions, and their part of the modelled iteration."""
    if options.storage is None:
        return ()
    cost = step_costs(program, options.costs)
    which = [t for t, step in enumerate(program.steps) if program.kernel(step) == CONVERT]
    spent = sum(cost[t] for t in which)
    facts = {"conversions": len(which), "nanoseconds": spent, "step_nanoseconds": sum(cost)}
    return (Record("storage", facts),)


def _planned(
    name: str,
    reference: Lowered,
    passes: Callable[[PlanOptions], Sequence[Pass]],
    options: PlanOptions,
    deadline: Deadline,
    watch: _Stopwatch,
) -> Plan:
    """Passes and layout. Where another order leaves no plan that fits, the steps stay in the given one."""
    try:
        applied, placed, outcomes = _fitting(reference, passes, options, deadline, watch)
    except CapacityError as error:
        if error.proved or not options.order or not (options.recompute or options.tiers):
            raise
        try:
            applied, placed, outcomes = _fitting(reference, in_given_order(passes), options, deadline, watch)
        except CapacityError:
            raise error from None
    program = applied.program
    offsets = [0] * len(program.values)
    for space, outcome in enumerate(outcomes):
        assert outcome.layout is not None
        inside = (region for region in placed if region.space == space)
        for region, offset in zip(inside, outcome.layout.offsets, strict=True):
            for member, shift in zip(region.members, region.offsets, strict=True):
                offsets[member] = offset + shift
    return Plan(
        graph=name,
        graph_digest="",
        reference_digest="",
        options=options,
        program=program,
        offsets=tuple(offsets),
        sizes=tuple(outcome.layout.peak if outcome.layout else 0 for outcome in outcomes),
        certificates=tuple(
            Certificate(o.status, o.proof, o.lower_bound, o.witness_step, o.solver) for o in outcomes
        ),
        deterministic=applied.complete and all(outcome.deterministic for outcome in outcomes),
        holds=reference.holds,
        records=applied.records,
        producer=producer(),
        cost_bound=applied.bound,
    )


def _fitting(
    reference: Lowered,
    passes: Callable[[PlanOptions], Sequence[Pass]],
    options: PlanOptions,
    deadline: Deadline,
    watch: _Stopwatch,
) -> tuple[_Applied, Sequence[Region], list[Outcome]]:
    """Passes, then layout; where passes can take fewer bytes, again with a smaller budget."""
    refused, less = None, 0
    for round_ in range(_ROUNDS if options.recompute or options.tiers else 1):
        with watch("passes"):
            try:
                applied = _scheduled(reference.program, passes, options, less, deadline)
            except CapacityError as error:
                raise refused or error from None
            placed = regions(applied.program, reference.holds)
        with watch("layout"):
            try:
                return (
                    applied,
                    placed,
                    _place(applied.program, placed, reference.solvers, options, deadline, watch),
                )
            except CapacityError as error:
                refused = refused or error
                less += (
                    error.excess
                    if round_ < _FEW_ROUNDS
                    else max(error.excess, error.available // _LATER_STEP)
                )
    raise refused or InternalError("Layout was never tried.")


@dataclass(frozen=True, slots=True)
class _Applied:
    """The program behind all passes, what they record, whether none of them was cut by wall time, and what is
    proved of the cost of repetitions.
    """

    program: Program
    records: tuple[Record, ...]
    complete: bool
    bound: CostBound | None

    def fact(self, name: str, figure: str) -> int:
        """A figure of a record; 0 without it."""
        facts = next((record.facts for record in self.records if record.name == name), {})
        return int(facts.get(figure, 0))

    def stating(self, name: str, figure: str, value: int) -> _Applied:
        """The same with a figure more in a record."""
        records = tuple(
            replace(each, facts={**each.facts, figure: value}) if each.name == name else each
            for each in self.records
        )
        return replace(self, records=records)

    @property
    def nanoseconds(self) -> int:
        """How long an iteration is modelled to take."""
        return self.fact(Paging.name, "nanoseconds")

    @property
    def compute(self) -> int:
        """How long its steps take without transfers, those that run again included."""
        return self.fact(Paging.name, "compute_nanoseconds")


def _scheduled(
    program: Program,
    passes: Callable[[PlanOptions], Sequence[Pass]],
    options: PlanOptions,
    less: int,
    deadline: Deadline,
) -> _Applied:
    """The program behind all passes, which have so many bytes less to keep than the options say.

    Where values may be recomputed and paged, recomputation gets several budgets and paging does the rest.
    The iteration that is modelled to be the fastest is taken.
    """
    if not options.tiers:
        capacity = None if options.capacity is None else max(0, options.capacity - less)
        return _applied(program, passes(replace(options, capacity=capacity)), deadline)
    first, *others = options.tiers
    tiers = (replace(first, bytes=max(1, first.bytes - less)), *others)
    options = replace(options, tiers=tiers)
    if not options.recompute:
        return _applied(program, passes(options), deadline)
    peak = max(loads(program)[0], default=0)
    found: dict[int, _Applied] = {}
    without: dict[int, CapacityError] = {}

    def attempt(share: int) -> None:
        capacity = tiers[0].bytes + max(0, peak - tiers[0].bytes) * share // 1000
        try:
            found[share] = _applied(program, passes(replace(options, capacity=capacity)), deadline)
        except CapacityError as error:
            without[share] = error

    def fastest() -> int:
        return min(found, key=lambda share: found[share].nanoseconds)

    for share in _SHARES:
        attempt(share)
        # Smaller budgets cost more steps that run again, and those of the last one took the best's time.
        enough = share in found and found[share].compute >= found[fastest()].nanoseconds
        if enough or (found and deadline.expired):
            break
    if not found:
        raise next(iter(without.values()))
    for _ in range(_HALVED):
        best = fastest()
        # The faster side; and where the next budget was too small, towards that.
        beside = [max((s for s in (*found, *without) if s < best), default=best)]
        beside += [min((s for s in (*found, *without) if s > best), default=best)]
        beside = [s for s in beside if abs(s - best) > 1]
        if not beside or deadline.expired or found[best].nanoseconds <= found[best].compute:
            break
        attempt((best + min(beside, key=lambda s: found[s].nanoseconds if s in found else 0)) // 2)
    best = fastest()
    if options.parallelism > 1:
        return found[best]  # steps beside others cost less than the sum
    proved = [
        (each.fact(Recompute.name, "budget"), each.fact(Recompute.name, "bound_nanoseconds"))
        for each in found.values()
    ]
    alone = sum(step_costs(program, options.costs))
    return found[best].stating(Paging.name, "least_nanoseconds", least_elapsed(program, tiers, alone, proved))


def _applied(program: Program, passes: Sequence[Pass], deadline: Deadline) -> _Applied:
    records, complete, bound = [], True, None
    for each in passes:
        made = each.apply(program, deadline)
        bound = bound or made.bound
        if made.facts is not None:
            records.append(Record(each.name, made.facts))
        program, complete = made.program, complete and made.complete
    return _Applied(program, tuple(records), complete, bound)


def _proved(reference: Lowered, made: Plan, graph_digest: Callable[[], str], watch: _Stopwatch) -> Plan:
    with watch("prove"):
        violations = prove(reference.program, made, reference.holds)
    if violations:
        raise InternalError(f"The plan breaks rule {violations[0].rule}: {violations[0].detail}")
    with watch("digest"):
        ours = documents.reference_digest(reference.program)
        return documents.with_digest(replace(made, graph_digest=graph_digest(), reference_digest=ours))


# ------------------------------------------------------------------------------------------- options


#: By option: the capability that a target needs for it, what a target without it is like, and the remedy.
_ASKED_OF_TARGETS = {
    "parallelism": ("parallelism", "runs one step at a time", "Leave the parallelism at 1."),
    "update": ("update", "applies gradients when its runtime does", "Leave it out."),
    "in_place": ("in_place", "says itself what is defined in place", "Leave it out."),
    "sub_ranges": ("sub_ranges", "says itself what is defined in place", "Leave it out."),
    "rewrite": ("rewrite", "runs the operations that it is given", "Leave it out."),
    "order": ("order", "has an order of its own", "Leave it out."),
    "recompute": ("recompute", "runs each step once", "Leave it out."),
    "tiers": ("paging", "has memory of one kind", "Leave the tiers out."),
    "storage": ("storage", "keeps values as they are", "Leave it out."),
    "costs": ("recompute", "runs each step once, whatever it takes", "Leave them out."),
    "fit_scratch": ("scratch", "says itself what its kernels need", "Leave it out."),
}


def _checked(options: PlanOptions) -> Target:
    """The target of the options, which has all that they ask for; what others take, they check themselves."""
    if options.target not in TARGETS:
        raise OptionsError(
            f"Unknown target {options.target!r}.",
            remedy=f"Choose one of {list(TARGETS)}.",
            path=("target",),
        )
    target = TARGETS[options.target]
    _check_numbers(options)
    for name, (capability, why, remedy) in _ASKED_OF_TARGETS.items():
        asked = getattr(options, name) != getattr(_DEFAULTS, name)
        if asked and not getattr(target.capabilities, capability):
            raise OptionsError(f"Target {options.target!r} {why}.", remedy=remedy, path=(name,))
    if options.tiers and options.capacity is not None:
        raise OptionsError(
            "Both a capacity and tiers are given.",
            remedy="Give the size of the first tier, which is the capacity then.",
            path=("capacity",),
        )
    preparations.chosen(options)
    target.passes(_with_capacity(options))
    return target


def _with_capacity(options: PlanOptions) -> PlanOptions:
    """Passes ask for a capacity where they are to keep one: that of the first tier, if there are tiers."""
    return replace(options, capacity=options.tiers[0].bytes) if options.tiers else options


def _check_of_program(options: PlanOptions) -> None:
    if options.target != PROGRAM:
        raise OptionsError(
            f"Unknown target {options.target!r} of an explicit program.",
            remedy=f"Choose {PROGRAM!r}, or leave it out.",
            path=("target",),
        )
    for name in (
        "batch",
        "scratch_budget",
        "fit_scratch",
        "update",
        "sub_ranges",
        "rewrite",
        "storage",
        "recompute",
        "tiers",
        "costs",
    ):
        if getattr(options, name) != getattr(_DEFAULTS, name):
            raise OptionsError(
                f"The option {name} is for graphs; a program says itself what it does.",
                remedy="Leave it out.",
                path=(name,),
            )
    _check_numbers(options)


def _check_numbers(options: PlanOptions) -> None:
    if options.solver not in SOLVERS:
        raise OptionsError(
            f"Unknown solver {options.solver!r}.",
            remedy=f"Choose one of {list(SOLVERS)}.",
            path=("solver",),
        )
    alignment = options.alignment
    if alignment is not None and (alignment < 1 or alignment & (alignment - 1) or alignment > 2**20):
        raise OptionsError(
            f"Alignment {alignment} is not a power of two up to 2**20.",
            remedy="Give 16, 32, 64, ...; the target's own is used without one.",
            path=("alignment",),
        )
    for name, number in (("capacity", options.capacity), ("deadline_seconds", options.deadline_seconds)):
        if number is not None and number < 0:
            raise OptionsError(f"{name} is {number}.", remedy="Give zero or more.", path=(name,))


# ------------------------------------------------------------------------------------- preparations


def _prepared(graph: TrainableGraph, planner: _Planner, options: PlanOptions) -> Prepared:
    prepared = Prepared(graph)
    for each in preparations.chosen(options):
        prepared = each.run(prepared, planner)
    return prepared


class _Planner:
    """What preparations ask: the footprint of what would be planned, under the same options."""

    def __init__(self, target: Target, options: PlanOptions, deadline: Deadline) -> None:
        self._target, self._options, self._deadline = target, options, deadline
        self._last: tuple[Prepared, Lowered] | None = None

    @property
    def arithmetic(self) -> Arithmetic:
        # Most plans compute nothing, and the kernels of all operators take a while to load.
        from solver.executor.arithmetic import KernelArithmetic

        return KernelArithmetic()

    def stop(self) -> bool:
        return self._deadline.expired

    def reference(self, prepared: Prepared) -> Lowered:
        """Its reference program. What was asked for last is kept: mostly that is what is planned then."""
        asked = prepared.scratch_budget, prepared.storage
        if self._last is not None:
            last, lowered = self._last
            if last.graph is prepared.graph and (last.scratch_budget, last.storage) == asked:
                return lowered
        lowered = self._target.reference(prepared, self._options)
        self._last = prepared, lowered
        return lowered

    def footprint(self, prepared: Prepared) -> tuple[int, int, frozenset[str]]:
        lowered = self.reference(prepared)
        program = lowered.program
        for each in self._target.passes(_with_capacity(self._options)):
            program = program if each.searches else each.run(program)
        placed = regions(program, lowered.holds)
        curves = loads(program, found=placed)
        tops = [max(curve, default=0) for curve in curves]
        fullest = {
            level
            for curve, top in zip(curves, tops, strict=True)
            for level, load in enumerate(curve)
            if load == top
        }
        busy = {program.operations[s.operation].operation.id for s in program.steps if s.level in fullest}
        return sum(tops), sum(region.size for region in placed), frozenset(busy)


# ------------------------------------------------------------------------------------------- layout


def _problem(program: Program, placed: Sequence[Region], capacity: int | None) -> LayoutProblem:
    return LayoutProblem(
        tuple(
            _buffer(
                program.values[r.members[0]].label,
                r.size,
                r.lifespan,
                program.spaces[r.space].alignment,
                holes=tuple(map(Hole, r.lent)) if r.lent else (),
            )
            for r in placed
        ),
        capacity,
    )


def _place(
    program: Program,
    placed: Sequence[Region],
    solvers: Sequence[str | None],
    options: PlanOptions,
    deadline: Deadline,
    watch: _Stopwatch,
) -> list[Outcome]:
    """Solve each space. The capacity bounds their sum, so a space may use what the others leave."""
    by_space: list[list[Region]] = [[] for _ in program.spaces]
    for region in placed:
        by_space[region.space].append(region)
    left = options.capacity
    bounds = [0] * len(by_space)
    if left is not None:  # what the spaces behind the first need at least is left to them
        bounds[1:] = [max_load(_problem(program, inside, None)).bytes for inside in by_space[1:]]
    outcomes: list[Outcome] = []
    for k, inside in enumerate(by_space):
        room = None if left is None else left - sum(bounds[k + 1 :])
        if options.tiers:
            room = options.tiers[k].bytes
        problem = _problem(program, inside, None if room is None else max(0, room))
        solver = (solvers[k] if k < len(solvers) else None) or options.solver
        outcome = solve(problem, solver=solver, deadline=deadline, options=SolveOptions(progress=watch.found))
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise _no_layout(solver, in_time=outcome.deterministic)
        if outcome.layout is None or (room is not None and outcome.layout.peak > room):
            if options.tiers:
                options = replace(options, capacity=room)
                raise _does_not_fit(problem, outcome, room or 0, outcome.lower_bound, options)
            certain = sum(o.lower_bound for o in outcomes) + sum(bounds[k + 1 :])
            raise _does_not_fit(problem, outcome, room or 0, certain + outcome.lower_bound, options)
        outcomes.append(outcome)
        left = None if left is None else left - outcome.layout.peak
    return outcomes


def _no_layout(solver: str, *, in_time: bool) -> OptionsError:
    """The solver has no layout, and nothing says that there is none: not a question of capacity."""
    if in_time:
        remedy = 'It may not take pins or alignments: use "portfolio".'
        return OptionsError(f"The solver {solver!r} found no layout.", remedy=remedy, path=("solver",))
    return OptionsError(
        f"Time ran out before the solver {solver!r} had a layout.",
        remedy='Give more time, or use "portfolio", which always has one.',
        path=("deadline_seconds",),
    )


def _does_not_fit(
    problem: LayoutProblem, outcome: Outcome, room: int, bound: int, options: PlanOptions
) -> CapacityError:
    """`bound` is proved for all spaces together, whatever the spaces before this one were given."""
    capacity = options.capacity or 0
    fewer = "" if options.parallelism == 1 else ", run fewer steps at the same time"
    found = capacity - room + outcome.layout.peak if outcome.layout else None
    witness = outcome.witness_step or 0
    live = [
        b
        for b in problem.buffers
        if b.lifespan.start <= witness < b.lifespan.end
        and not any(hole.lifespan.start <= witness < hole.lifespan.end for hole in b.holes)
    ]
    return CapacityError(
        CapacityError.sentence("The plan needs", found=found, bound=bound, capacity=capacity),
        remedy=f"Raise the capacity, reduce the batch{fewer}, or train fewer parameters.",
        required=max(found or 0, bound),
        available=capacity,
        live_at_peak=sorted(((b.id, b.size) for b in live), key=lambda item: (-item[1], item[0])),
        path=("capacity",),
        proved=bound > capacity,
    )


class _Stopwatch:
    def __init__(self, observe: Observer | None, follow: Follower | None) -> None:
        self._observe = observe
        self._follow = follow

    def found(self, progress: Progress) -> None:
        """A better layout, or a better bound."""
        if self._follow:
            self._follow("layout", progress)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        if self._follow:
            self._follow(stage, None)
        started = time.perf_counter()
        yield
        if self._observe:
            self._observe(stage, time.perf_counter() - started)
