"""Graph -> reference program -> passes -> layout -> plan -> proof.

An explicit program enters behind derivation: it is its own reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from solver import preparations
from solver.accounting import roofline, step_costs
from solver.collector import collector_paused
from solver.errors import CapacityError, DimensionError, InternalError, OptionsError
from solver.graph import TrainableGraph, graph_digest
from solver.graph.declared import MAX_BYTES
from solver.layout import Certificate, Deadline
from solver.native import heeding_deadline
from solver.passes import Aliases, Levels, Paging, Pass, SearchOrder, without_advice
from solver.pipeline.layout import place
from solver.pipeline.options import DEFAULTS, PROGRAM, check_of_program, checked
from solver.pipeline.planner import Planner
from solver.pipeline.scheduling import Passes, placed
from solver.pipeline.watch import Follower, Observer, Stopwatch
from solver.plan import Plan, PlanOptions, with_digest
from solver.preparations import Prepared
from solver.program import CONVERT, Costs, Program, Record, check_costs, reference_digest, regions
from solver.targets import TARGETS, Lowered, Target, aligned
from solver.targets.reference import ALIGNMENT
from solver.verify import prove
from solver.version import producer

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["Start", "arena_bytes", "modelled_costs", "plan", "plan_program", "reference_of", "start_of"]


@collector_paused()
@heeding_deadline
def plan(
    graph: TrainableGraph,
    options: PlanOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
    advise: bool = True,
) -> Plan:
    """Plan the memory of one training iteration, and prove that the plan computes what the graph says.

    Without `options.deadline_seconds` the same arguments give the same plan, byte for byte. Raises
    OptionsError for an option out of range, CapacityError when no arena within the capacity was found; with
    `advise` it says which capacity is enough, also where finding that takes as long as some plans.
    """
    options = options or PlanOptions()
    target = checked(options)
    watch = Stopwatch(observe, follow)
    deadline = Deadline.after(options.deadline_seconds)
    passes = target.passes if advise else without_advice(target.passes)
    best: tuple[Lowered, Plan] | None = None
    refused: CapacityError | None = None
    tried = set[tuple[object, ...]]()
    within = options.capacity is not None or bool(options.tiers)
    price = _nanoseconds if within else _bytes
    for preparing in _preparing(options):
        with watch("prepare"):
            planner = Planner(target, preparing, deadline)
            prepared = _prepared(graph, planner, preparing)
        if (prepared.replacements, prepared.scratch_budget) in tried:
            continue
        tried.add((prepared.replacements, prepared.scratch_budget))
        try:
            candidate = _prepared_plan(prepared, planner, passes, options, deadline, watch)
        except CapacityError as error:
            refused = refused or error
            continue
        except OptionsError:
            if preparing is options:
                raise
            continue  # costs that were given are those of other steps
        if best is None or price(candidate[1]) < price(best[1]):
            best = candidate
        if deadline.expired or (within and not (any(candidate[1].program.runs) or options.tiers)):
            break
    if best is None:
        raise refused or InternalError("No preparation was tried.")
    return _proved(*best, lambda: graph_digest(graph), watch)


def _preparing(options: PlanOptions) -> Iterator[PlanOptions]:
    """The options, then options with fewer preparations, whose plan may be the better one.

    Preparations are chosen by the peak of the order as written. Within a capacity or tiers, the bytes that
    they save may make a plan dearer, or impossible; where the order is searched, larger.
    """
    yield options
    within = options.capacity is not None or bool(options.tiers)
    if options.rewrite and (within or options.order):
        yield replace(options, rewrite=False)
    if options.fit_scratch and within:
        yield replace(options, fit_scratch=False)
        if options.rewrite:
            yield replace(options, rewrite=False, fit_scratch=False)


def _bytes(plan: Plan) -> int:
    """The bytes of all arenas of a plan."""
    return sum(plan.sizes)


def _nanoseconds(plan: Plan) -> int:
    """How long an iteration of a plan is modelled to take."""
    for record in plan.records:
        if record.name == Paging.name and "nanoseconds" in record.facts:
            return int(record.facts["nanoseconds"])
    return sum(step_costs(plan.program, plan.options.costs))


def _prepared_plan(
    prepared: Prepared,
    planner: Planner,
    passes: Passes,
    options: PlanOptions,
    deadline: Deadline,
    watch: Stopwatch,
) -> tuple[Lowered, Plan]:
    """The reference program of a prepared graph, and its plan, which is not proved yet."""
    # The budget as it was fitted: the plan can be repeated with its own options.
    options = replace(options, scratch_budget=prepared.scratch_budget)
    with watch("derive"):
        reference = _reference(prepared, planner, options)
    plan = _planned(prepared.graph.name, reference, passes, options, deadline, watch)
    return reference, replace(
        plan,
        replacements=prepared.replacements,
        records=(*prepared.records, *_conversions(reference.program, options), *plan.records),
        deterministic=plan.deterministic and prepared.complete,
    )


@collector_paused()
@heeding_deadline
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
    if options.target == DEFAULTS.target:
        options = replace(options, target=PROGRAM)
    check_of_program(options)
    watch = Stopwatch(observe, follow)
    deadline = Deadline.after(options.deadline_seconds)
    with watch("derive"):
        from solver.training import explicit_program, program_digest

        reference = aligned(explicit_program(program), options.alignment or ALIGNMENT)
        _check_extent(reference.program)
    _check_permissions(program, options)
    unproved = _planned(program.name, reference, _passes_of_program, options, deadline, watch)
    return _proved(reference, unproved, lambda: program_digest(program), watch)


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
    """The start of every plan of a graph: the prepared graph, its reference program, and the target."""

    prepared: Prepared
    reference: Lowered
    target: Target


@collector_paused()
def start_of(graph: TrainableGraph, options: PlanOptions, deadline: Deadline | None = None) -> Start:
    """The start of `plan` under these options. Raises OptionsError for an option out of range."""
    target = checked(options)
    planner = Planner(target, options, deadline or Deadline())
    prepared = _prepared(graph, planner, options)
    return Start(prepared, _reference(prepared, planner, options), target)


def arena_bytes(program: Program, reference: Lowered, options: PlanOptions, deadline: Deadline) -> int:
    """The bytes of the layout that `plan` would find for a program that passes made of this reference.

    Raises OptionsError where the solver has none in time.
    """
    inside = regions(program, reference.holds)
    options = replace(options, capacity=None, tiers=())
    outcomes = place(program, inside, reference.solvers, options, deadline, Stopwatch(None, None))
    return sum(outcome.layout.peak for outcome in outcomes if outcome.layout)


@collector_paused()
def modelled_costs(graph: TrainableGraph, options: PlanOptions) -> Costs:
    """The cost of each step as `plan` models it under these options without costs, by a roofline.

    Raises OptionsError for an option out of range.
    """
    program = start_of(graph, options).reference.program
    return Costs(tuple(zip(program.step_labels, roofline(program), strict=True)), "modelled by a roofline")


def _prepared(graph: TrainableGraph, planner: Planner, options: PlanOptions) -> Prepared:
    prepared = Prepared(graph)
    for each in preparations.chosen(options):
        prepared = each.run(prepared, planner)
    return prepared


def _reference(prepared: Prepared, planner: Planner, options: PlanOptions) -> Lowered:
    """The reference program, whose steps all have a cost where costs are given."""
    reference = planner.reference(prepared)
    if options.costs is not None:
        check_costs(reference.program, options.costs)
    return reference


def _conversions(program: Program, options: PlanOptions) -> tuple[Record, ...]:
    """The cost of storage in other types: its conversions, and their part of the modelled iteration."""
    if options.storage is None:
        return ()
    cost = step_costs(program, options.costs)
    which = [t for t, step in enumerate(program.steps) if program.kernel(step) == CONVERT]
    spent = sum(cost[t] for t in which)
    facts = {"conversions": len(which), "nanoseconds": spent, "step_nanoseconds": sum(cost)}
    return (Record("storage", facts),)


def _planned(
    name: str, reference: Lowered, passes: Passes, options: PlanOptions, deadline: Deadline, watch: Stopwatch
) -> Plan:
    """The plan without digests, neither proved nor saying how the reference program was prepared."""
    placement = placed(reference, passes, options, deadline, watch)
    program, outcomes = placement.applied.program, placement.outcomes
    offsets = [0] * len(program.values)
    for space, outcome in enumerate(outcomes):
        assert outcome.layout is not None
        inside = (region for region in placement.regions if region.space == space)
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
        deterministic=placement.applied.complete and all(outcome.deterministic for outcome in outcomes),
        holds=reference.holds,
        records=placement.applied.records,
        producer=producer(),
        cost_bound=placement.applied.bound,
    )


def _proved(reference: Lowered, plan: Plan, digest: Callable[[], str], watch: Stopwatch) -> Plan:
    """The plan with its digests; `digest` is that of its graph or program."""
    with watch("prove"):
        violations = prove(reference.program, plan, reference.holds)
    if violations:
        raise InternalError(f"The plan breaks rule {violations[0].rule}: {violations[0].detail}")
    with watch("digest"):
        ours = reference_digest(reference.program)
        return with_digest(replace(plan, graph_digest=digest(), reference_digest=ours))
