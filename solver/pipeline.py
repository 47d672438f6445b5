"""The whole path on one screen: graph -> program -> order -> buffers -> layout -> plan.

An explicit program enters behind the order, which is its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from solver.documents import graph_digest, program_digest, seal
from solver.errors import CapacityError, InternalError, OptionsError
from solver.executor.arithmetic import KernelArithmetic
from solver.graph import Graph
from solver.layout import SOLVERS, Deadline, Outcome, max_load, solve
from solver.liveness import analyze, analyze_blocks
from solver.liveness.footprint import footprint
from solver.plan import Arena, Certificate, Plan, PlannedBuffer, PlannedStep, PlanOptions, Tenant, verify
from solver.rewrite import Footprint, Rewriting, rewrite
from solver.schedule import MAX_WORKERS, UPDATE_MODES, blocks_in_waves, singa_program, training_program
from solver.targets import Pool, TargetPlan, TargetTenant, reference
from solver.targets.nntrainer import nntrainer_target
from solver.targets.onert import onert_target
from solver.targets.singa import ALIGNMENT as SINGA_ALIGNMENT
from solver.targets.singa import Sharing
from solver.training import BlockProgram

__all__ = ["PROGRAM", "TARGETS", "BlockProgram", "Graph", "plan", "plan_program"]

TARGETS = ("reference", "onert", "nntrainer", "singa")

#: The target of plans of explicit programs: one arena, every block as the program uses it.
PROGRAM = "program"

_DEFAULTS = PlanOptions()


def _onert(graph: Graph, options: PlanOptions) -> TargetPlan:
    return onert_target(graph, options.alignment)


def _nntrainer(graph: Graph, options: PlanOptions) -> TargetPlan:
    return nntrainer_target(graph, options.alignment)


def _singa(graph: Graph, options: PlanOptions) -> TargetPlan:
    level = Sharing.ALL if options.in_place else Sharing.DERIVATIVES_OF_SUMS
    return analyze(singa_program(graph, level), options.alignment or SINGA_ALIGNMENT)


#: Targets with an order of their own, which bypass the training program.
_RUNTIMES: Mapping[str, Callable[[Graph, PlanOptions], TargetPlan]] = MappingProxyType(
    {"onert": _onert, "nntrainer": _nntrainer, "singa": _singa}
)

#: Told the name of each stage and the seconds it took.
Observer = Callable[[str, float], None]


def plan(graph: Graph, options: PlanOptions | None = None, *, observe: Observer | None = None) -> Plan:
    """Plan the memory of one training iteration, prove it, and check the result independently.

    Without `options.deadline_seconds` the same arguments give the same plan, byte for byte. Raises
    OptionsError for an option out of range, CapacityError when no arena within the capacity was found.
    """
    options = options or PlanOptions()
    _check(options, TARGETS)
    watch = _Stopwatch(observe)
    deadline = Deadline.after(options.deadline_seconds)
    found = _rewriting(graph, options, deadline, watch)
    target = _target(found.graph, options, watch)
    made = _solved(graph.name, graph_digest(graph), target, options, deadline, watch)
    deterministic = made.deterministic and found.complete
    return _finish(replace(made, replacements=found.applied, deterministic=deterministic), watch)


def plan_program(
    program: BlockProgram, options: PlanOptions | None = None, *, observe: Observer | None = None
) -> Plan:
    """Plan the memory of an explicit program, under the promises of `plan`; `graph` is the program's name.

    The default target means `PROGRAM` here. Raises OptionsError for what only graphs have (batch, scratch
    budget, update mode), DimensionError when the blocks together do not fit 64-bit offsets.
    """
    options = options or PlanOptions()
    if options.target == _DEFAULTS.target:
        options = replace(options, target=PROGRAM)
    _check(options, (PROGRAM,))
    _check_of_program(options)
    watch = _Stopwatch(observe)
    deadline = Deadline.after(options.deadline_seconds)
    with watch("liveness"):
        grouped = blocks_in_waves(program, options.workers)
        target = analyze_blocks(grouped, options.alignment or reference.ALIGNMENT)
    made = _solved(program.name, program_digest(program), target, options, deadline, watch)
    return _finish(made, watch)


def _solved(
    name: str, digest: str, target: TargetPlan, options: PlanOptions, deadline: Deadline, watch: _Stopwatch
) -> Plan:
    with watch("solve"):
        arenas, deterministic = _place(target, options, deadline)
    steps = tuple(PlannedStep(s.id, s.kernel, s.uses, s.defs, s.scratch, s.wave) for s in target.steps)
    return Plan(name, digest, options, steps, arenas, deterministic)


def _finish(made: Plan, watch: _Stopwatch) -> Plan:
    with watch("verify"):
        violations = verify(made)
    if violations:
        raise InternalError(f"The plan breaks rule {violations[0].rule}: {violations[0].detail}")
    with watch("seal"):
        return seal(made)


def _check(options: PlanOptions, targets: tuple[str, ...]) -> None:
    """Options that no later stage checks itself."""
    for name, value, known in (
        ("target", options.target, targets),
        ("solver", options.solver, tuple(SOLVERS)),
        ("update", options.update, UPDATE_MODES),
    ):
        if value not in known:
            raise OptionsError(
                f"Unknown {name} {value!r}.", remedy=f"Choose one of {list(known)}.", path=(name,)
            )
    alignment = options.alignment
    if alignment is not None and (alignment < 1 or alignment & (alignment - 1) or alignment > 2**20):
        raise OptionsError(
            f"Alignment {alignment} is no power of two up to 2**20.",
            remedy="Give 16, 32, 64, ...; the target's own is used without one.",
            path=("alignment",),
        )
    for name, number in (("capacity", options.capacity), ("deadline_seconds", options.deadline_seconds)):
        if number is not None and number < 0:
            raise OptionsError(f"{name} is {number}.", remedy="Give zero or more.", path=(name,))
    _check_of_target(options)


def _check_of_target(options: PlanOptions) -> None:
    """What a runtime with an order of its own leaves nobody to choose."""
    if not 1 <= options.workers <= (1 if options.target in _RUNTIMES else MAX_WORKERS):
        raise OptionsError(
            f"Target {options.target!r} cannot be planned for {options.workers} workers.",
            remedy=f"Give 1 to {MAX_WORKERS}, and only 1 for runtimes with an order of their own.",
            path=("workers",),
        )
    if options.in_place and options.target in ("onert", "nntrainer", PROGRAM):
        raise OptionsError(
            f"Target {options.target!r} says itself what is defined in place.",
            remedy="Leave it out.",
            path=("in_place",),
        )
    if options.rewrite and options.target in (*_RUNTIMES, PROGRAM):
        raise OptionsError(
            f"Target {options.target!r} runs the operations that it is given.",
            remedy="Leave it out.",
            path=("rewrite",),
        )


def _check_of_program(options: PlanOptions) -> None:
    for name in ("batch", "scratch_budget", "update"):
        if getattr(options, name) != getattr(_DEFAULTS, name):
            raise OptionsError(
                f"A program has no {name.replace('_', ' ')} to choose.", remedy="Leave it out.", path=(name,)
            )


def _rewriting(graph: Graph, options: PlanOptions, deadline: Deadline, watch: _Stopwatch) -> Rewriting:
    """Replacements are judged by the bound of the whole program, under the same options."""

    def cost(candidate: Graph) -> Footprint:
        return footprint(_target(candidate, options, _Stopwatch(None)))

    if not options.rewrite:
        return Rewriting(graph)
    with watch("rewrite"):
        return rewrite(graph, KernelArithmetic(), cost, stop=lambda: deadline.expired)


def _target(graph: Graph, options: PlanOptions, watch: _Stopwatch) -> TargetPlan:
    if options.target in _RUNTIMES:
        with watch("liveness"):
            return _RUNTIMES[options.target](graph, options)
    with watch("derive"):
        program = training_program(
            graph,
            scratch_budget=options.scratch_budget,
            update=options.update,
            workers=options.workers,
            in_place=options.in_place,
        )
    with watch("liveness"):
        return analyze(program, options.alignment or reference.ALIGNMENT)


def _place(target: TargetPlan, options: PlanOptions, deadline: Deadline) -> tuple[tuple[Arena, ...], bool]:
    """Solve each pool. The capacity bounds their sum, so a pool may use what the others leave."""
    bounds = [max_load(pool.problem()).bytes for pool in target.pools]
    left = options.capacity
    arenas: list[Arena] = []
    deterministic = True
    for k, pool in enumerate(target.pools):
        room = None if left is None else left - sum(bounds[k + 1 :])
        outcome = solve(pool.problem(room), solver=pool.solver or options.solver, deadline=deadline)
        if outcome.layout is None or (room is not None and outcome.layout.peak > room):
            certain = sum(arena.certificate.lower_bound for arena in arenas) + sum(bounds[k + 1 :])
            raise _does_not_fit(pool, outcome, room or 0, certain + outcome.lower_bound, options)
        arenas.append(_arena(pool, outcome))
        deterministic &= outcome.deterministic
        left = None if left is None else left - outcome.layout.peak
    return tuple(arenas), deterministic


def _arena(pool: Pool, outcome: Outcome) -> Arena:
    assert outcome.layout is not None
    certificate = Certificate(
        outcome.status, outcome.proof, outcome.lower_bound, outcome.witness_step, outcome.solver
    )
    buffers = tuple(
        PlannedBuffer(
            b.id, b.kind, b.lifetime, b.type.shape, b.type.dtype.value,
            b.type.nbytes, b.size, b.alignment, b.lifespan, offset, tuple(map(_tenant, b.tenants)),
        )
        for b, offset in zip(pool.buffers, outcome.layout.offsets, strict=True)
    )  # fmt: skip
    return Arena(pool.name, outcome.layout.peak, certificate, buffers)


def _tenant(tenant: TargetTenant) -> Tenant:
    b = tenant.buffer
    return Tenant(
        b.id, b.kind, b.lifetime, b.type.shape, b.type.dtype.value, b.lifespan, tenant.source, tenant.view
    )


def _does_not_fit(pool: Pool, outcome: Outcome, room: int, bound: int, options: PlanOptions) -> CapacityError:
    """`bound` is proved for all pools together, whatever the pools before this one were given."""
    capacity = options.capacity or 0
    fewer = "" if options.workers == 1 else ", plan for fewer workers"
    found = capacity - room + outcome.layout.peak if outcome.layout else None
    witness = outcome.witness_step or 0
    live = [b for b in pool.buffers if b.lifespan.start <= witness < b.lifespan.end]
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
    def __init__(self, observe: Observer | None) -> None:
        self._observe = observe

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        if self._observe:
            self._observe(stage, time.perf_counter() - started)
