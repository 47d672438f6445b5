"""Graph -> reference program -> passes -> layout -> plan -> proof.

An explicit program enters behind derivation: it is its own reference.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from solver import preparations
from solver.accounting import roofline, step_costs
from solver.collector import collector_paused
from solver.errors import DimensionError, InternalError, OptionsError
from solver.graph import TrainableGraph, graph_digest
from solver.graph.declared import MAX_BYTES
from solver.layout import Certificate, Deadline
from solver.passes import (
    Aliases,
    Levels,
    Paging,
    Pass,
    Recompute,
    SearchOrder,
    in_listed_order,
)
from solver.pipeline.layout import place
from solver.pipeline.options import check_of_program, check_places, checked, of_program, with_capacity
from solver.pipeline.planner import Derived, Planner
from solver.pipeline.scheduling import Passes, Placed, Results, run_passes
from solver.pipeline.strategy import Candidate, until
from solver.pipeline.watch import Follower, Observer, Stopwatch
from solver.plan import Plan, PlanOptions, with_digest
from solver.preparations import Prepared
from solver.program import (
    CONVERT,
    Costs,
    Program,
    Record,
    Value,
    check_costs,
    holding,
    reference_digest,
    regions,
)
from solver.targets import TARGETS, Capabilities, Lowered, aligned
from solver.targets.reference import ALIGNMENT
from solver.verify import prove
from solver.version import producer

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = [
    "GraphPlans",
    "Plans",
    "ProgramPlans",
    "Start",
    "arena_bytes",
    "checked_of_program",
    "modelled_costs",
    "reference_of",
    "start_of",
]


class Plans(ABC):
    """Plans of one graph or program under several options. They share the time until the deadline, and the
    programs that do not depend on the options.
    """

    def __init__(
        self,
        options: PlanOptions,
        observe: Observer | None,
        follow: Follower | None,
        deadline: Deadline | None = None,
    ) -> None:
        """Without a deadline, that of the options, and `EFFORT` units of work."""
        self.watch = Stopwatch(observe, follow)
        self.deadline = deadline or until(options.deadline_seconds)
        self.results = Results()
        #: Values of other programs in the same memory, which all programs hold.
        self._held: tuple[Value, ...] = ()

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """The abilities of the target of all plans."""

    @abstractmethod
    def starts(self, options: PlanOptions) -> Iterator[Start]:
        """The reference program under these options; then those with fewer preparations, whose plans may be
        better. Raises OptionsError as `plan` does.
        """

    @abstractmethod
    def behind(self, options: PlanOptions) -> Lowered:
        """The program behind the passes of these options, which do not search, in the place of the reference
        program. An order is looked for by list scheduling alone.
        """

    @abstractmethod
    def reference(self, options: PlanOptions) -> Lowered:
        """The reference program under these options. Raises OptionsError as `plan` does."""

    @abstractmethod
    def hold(self, values: Sequence[Value]) -> None:
        """From now on all programs hold these values of others in the same memory."""

    @abstractmethod
    def digest(self) -> str:
        """The digest of the graph or program."""

    def proved(self, candidate: Candidate) -> Plan:
        """The plan with its digests. Raises InternalError if it breaks a rule."""
        reference, plan = candidate.reference, candidate.plan
        with self.watch("prove"):
            violations = prove(reference.program, plan, reference.holds)
        if violations:
            raise InternalError(f"The plan breaks rule {violations[0].rule}: {violations[0].detail}")
        with self.watch("digest"):
            ours = reference_digest(reference.program)
            return with_digest(replace(plan, graph_digest=self.digest(), reference_digest=ours))

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the graph or program."""

    def finished(self, start: Start, placement: Placed) -> Candidate:
        """The plan of what was placed."""
        prepared, reference, options = start.prepared, start.reference, start.options
        program, outcomes = placement.applied.program, placement.outcomes
        offsets = [0] * len(program.values)
        for space, outcome in enumerate(outcomes):
            assert outcome.layout is not None
            inside = (region for region in placement.regions if region.space == space)
            for region, offset in zip(inside, outcome.layout.offsets, strict=True):
                for member, shift in zip(region.members, region.offsets, strict=True):
                    offsets[member] = offset + shift
        records = placement.applied.records
        if prepared is not None:
            records = (*prepared.records, *_conversions(reference.program, options), *records)
        plan = Plan(
            graph=self.name,
            graph_digest="",
            reference_digest="",
            options=options,
            program=program,
            offsets=tuple(offsets),
            sizes=tuple(outcome.layout.peak if outcome.layout else 0 for outcome in outcomes),
            certificates=tuple(
                Certificate(o.status, o.proof, o.lower_bound, o.witness_step, o.solver) for o in outcomes
            ),
            deterministic=placement.applied.complete
            and start.complete
            and all(outcome.deterministic for outcome in outcomes),
            holds=reference.holds,
            replacements=() if prepared is None else prepared.replacements,
            records=records,
            producer=producer(),
            cost_bound=placement.applied.bound,
            home_bound=placement.applied.home_bound,
        )
        return Candidate(reference, plan)

    def _behind(self, reference: Lowered, passes: Passes, options: PlanOptions) -> Lowered:
        if options.tiers:  # whose names the program does not know without them
            options = replace(options, pins=(), alignments=(), reserved=())
        options = replace(options, capacity=None, tiers=(), memories=(), place=(), recompute=False)
        chosen = in_listed_order(passes)(options)
        program = run_passes(reference.program, chosen, self.deadline, self.watch, self.results).program
        return replace(reference, program=program)


class GraphPlans(Plans):
    """Plans of a graph."""

    def __init__(
        self,
        graph: TrainableGraph,
        options: PlanOptions,
        observe: Observer | None = None,
        follow: Follower | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Raises OptionsError for an option out of range."""
        self._target = checked(options)
        self._given = graph
        # Once for all trials. The preparation then finds no more than what a chunked head reads in front of a
        # Transpose.
        self._graph = preparations.with_frozen_storage(graph, options.frozen_storage)
        super().__init__(options, observe, follow, deadline)
        self._derived: list[Derived] = []

    @property
    def capabilities(self) -> Capabilities:
        return self._target.capabilities

    def digest(self) -> str:
        return graph_digest(self._given)

    @property
    def name(self) -> str:
        return self._graph.name

    def starts(self, options: PlanOptions) -> Iterator[Start]:
        checked(options)
        tried = set[tuple[object, ...]]()
        for preparing in _preparing(options):
            with self.watch("prepare"):
                planner = self._planner(preparing)
                prepared = _prepared(self._graph, planner, preparing)
            if (prepared.replacements, prepared.scratch_budget) in tried:
                continue
            tried.add((prepared.replacements, prepared.scratch_budget))
            fitted = replace(options, scratch_budget=prepared.scratch_budget)
            try:
                with self.watch("derive"):
                    reference = _reference(prepared, planner, fitted)
            except OptionsError:
                if preparing is options:
                    raise
                continue  # costs that were given are those of other steps
            yield Start(reference, self._target.passes, fitted, prepared)

    def behind(self, options: PlanOptions) -> Lowered:
        reference = self.reference(options)
        with self.watch("passes"):
            return self._behind(reference, self._target.passes, options)

    def reference(self, options: PlanOptions) -> Lowered:
        planner = self._planner(options)
        with self.watch("prepare"):
            prepared = _prepared(self._graph, planner, options)
        with self.watch("derive"):
            return _reference(prepared, planner, options)

    def hold(self, values: Sequence[Value]) -> None:
        self._held = (*values,)
        self._derived[:] = [
            (key, prepared, replace(lowered, program=holding(lowered.program, self._held)))
            for key, prepared, lowered in self._derived
        ]

    def _planner(self, options: PlanOptions) -> Planner:
        return Planner(self._target, options, self.deadline.by_time(), self._derived, self._held)


class ProgramPlans(Plans):
    """Plans of an explicit program."""

    def __init__(
        self,
        program: BlockProgram,
        options: PlanOptions,
        observe: Observer | None = None,
        follow: Follower | None = None,
        deadline: Deadline | None = None,
    ) -> None:
        """Raises OptionsError and DimensionError as `plan_program` does."""
        options = of_program(options)
        check_of_program(options)
        _passes_of_program(with_capacity(options))
        super().__init__(options, observe, follow, deadline)
        self._program = program
        with self.watch("derive"):
            from solver.training import explicit_program

            self._reference = aligned(explicit_program(program), options.alignment or ALIGNMENT)
            _check_extent(self._reference.program)

    @property
    def capabilities(self) -> Capabilities:
        again = any(operation.pure for operation in self._program.operations)
        return Capabilities(
            trains=True,
            in_place=True,
            order=self._program.any_order,
            recompute=again,
            paging=True,
            parallelism=True,
        )

    def digest(self) -> str:
        from solver.training import program_digest

        return program_digest(self._program)

    @property
    def name(self) -> str:
        return self._program.name

    def starts(self, options: PlanOptions) -> Iterator[Start]:
        options = checked_of_program(self._program, options)
        if options.costs is not None:
            check_costs(self._reference.program, options.costs)
        check_places(self._reference.program, options)
        yield Start(self._reference, _passes_of_program, options)

    def behind(self, options: PlanOptions) -> Lowered:
        with self.watch("passes"):
            return self._behind(self._reference, _passes_of_program, options)

    def reference(self, options: PlanOptions) -> Lowered:
        return self._reference

    def hold(self, values: Sequence[Value]) -> None:
        self._reference = replace(self._reference, program=holding(self._reference.program, values))


def _preparing(options: PlanOptions) -> Iterator[PlanOptions]:
    """The options, then options with fewer preparations, whose plan may be the better one.

    Preparations are chosen by the peak of the order as written. Within a capacity or tiers, the bytes that
    they save may make a plan dearer, or impossible; where the order is searched, larger.
    """
    yield options
    within = options.capacity is not None or bool(options.tiers or options.memories)
    if options.rewrite and (within or options.order):
        yield replace(options, rewrite=False)
    if options.fit_scratch and within:
        yield replace(options, fit_scratch=False)
        if options.rewrite:
            yield replace(options, rewrite=False, fit_scratch=False)


def _passes_of_program(options: PlanOptions) -> Sequence[Pass]:
    """The passes but `Order`, which moves the updates of graphs."""
    return (
        SearchOrder(options.order, in_place=options.in_place),
        Recompute(
            options.recompute,
            options.capacity,
            in_place=options.in_place,
            costs=options.costs,
            tiers=options.tiers,
        ),
        Levels(options.parallelism),
        Paging(options.tiers, options.recompute, in_place=options.in_place, costs=options.costs),
        Aliases(options.in_place, constraints=options.constraints),
    )


def checked_of_program(program: BlockProgram, options: PlanOptions) -> PlanOptions:
    """The options as those of an explicit program. Raises OptionsError for what it does not permit."""
    options = of_program(options)
    check_of_program(options)
    if options.order and not program.any_order:
        raise OptionsError(
            "The program does not permit another order of its operations.",
            remedy='Leave the option out, or write "any_order": true into the program.',
            path=("order",),
        )
    if options.recompute and not any(operation.pure for operation in program.operations):
        raise OptionsError(
            "No operation of the program may run again: none says that it is pure.",
            remedy='Leave the option out, or write "pure": true into each operation whose reads decide what'
            " it writes.",
            path=("recompute",),
        )
    return options


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


@dataclass(frozen=True, slots=True, eq=False)
class Start:
    """The start of every plan: the reference program and the passes; of a graph also its prepared form."""

    reference: Lowered
    passes: Passes
    #: As asked for, with the scratch budget as it was fitted: a plan is repeated with its own options.
    options: PlanOptions
    prepared: Prepared | None = None

    @property
    def complete(self) -> bool:
        """Whether no deadline cut the preparation short."""
        return self.prepared is None or self.prepared.complete


@collector_paused()
def start_of(
    subject: TrainableGraph | BlockProgram, options: PlanOptions, deadline: Deadline | None = None
) -> Start:
    """The start of a plan under these options. Raises OptionsError as `plan` and `plan_program` do."""
    if not isinstance(subject, TrainableGraph):
        options = checked_of_program(subject, options)
        reference = ProgramPlans(subject, options).reference(options)
        if options.costs is not None:
            check_costs(reference.program, options.costs)
        return Start(reference, _passes_of_program, options)
    target = checked(options)
    planner = Planner(target, options, deadline or Deadline())
    prepared = _prepared(subject, planner, options)
    return Start(_reference(prepared, planner, options), target.passes, options, prepared)


def arena_bytes(program: Program, reference: Lowered, options: PlanOptions, deadline: Deadline) -> int:
    """The bytes of the layout that `plan` would find for a program that passes made of this reference.

    Raises OptionsError where the solver has none in time.
    """
    inside = regions(program, reference.holds)
    options = replace(options, capacity=None, tiers=(), memories=(), place=())
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
    check_places(reference.program, options)
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
