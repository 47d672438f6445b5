"""Obligations *figures*, *records*, *recomputation* and *paging*: the figures of a plan, added up again.

Sizes of spaces, lower bounds, capacities; and what preparations and passes recorded. A plan is compared with
its program as it was before passes put copies and repetitions into it:

    plan     conv   page_out(x)   relu   page_in(x)   grad(x@stay1)   conv again   ...
    unpaged  conv                 relu                grad(x)         conv again   ...   copies join values
    once     conv                 relu                grad(x)                      ...   in this order
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, TypeAlias

from solver.accounting import floor, flops_of, order_bound, schedule_problem
from solver.accounting.clocks import elapsed, is_copy, level_costs, traffic
from solver.accounting.costs import step_costs
from solver.accounting.gaps import paging_problem
from solver.accounting.homes import as_one_memory
from solver.layout import Certificate, Proof, Reserved, Status, above_reserved
from solver.layout.check.fast import columns, meeting
from solver.plan import Plan
from solver.program import CONVERT, Phase, Program, Region, exact, joined_memory, loads
from solver.reports.validation import Violation
from solver.verify.sharing import step_name

_Facts: TypeAlias = Mapping[str, int | str | bool]

__all__ = [
    "FACTS",
    "check_copies",
    "check_figures",
    "check_paging",
    "check_planned_sizes",
    "check_recomputation",
    "check_records",
    "once",
    "unpaged",
]


def unpaged(program: Program) -> Program:
    """The program without copies, whose ends are one value, and without aliases; all in the first space.

    What the caller writes into two memories, or what both keep from one iteration to the next, is one value
    as well. O(b log v) for b bindings and v values.
    """
    root = list(range(len(program.values)))

    def of(value: int) -> int:
        while root[value] != value:
            root[value] = root[root[value]]
            value = root[value]
        return value

    def join(one: int, other: int) -> None:
        first, second = sorted((of(one), of(other)))
        root[second] = first

    for step in program.steps:
        if is_copy(program, step):
            join(*(b.value for b in step.bindings))
    known: dict[int, int] = {}
    for e in program.entry:
        join(e.value, known.setdefault(e.reference, e.value))
    kept = [step for step in program.steps if not is_copy(program, step)]
    number = {level: k for k, level in enumerate(sorted({step.level for step in kept}))}
    steps = [
        replace(
            step,
            bindings=tuple(replace(b, value=of(b.value)) for b in step.bindings),
            level=number[step.level],
            until=number[step.level],
        )
        for step in kept
    ]
    entry = {of(e.value): replace(e, value=of(e.value)) for e in program.entry}
    exits = {of(e.value): replace(e, value=of(e.value)) for e in program.exit}
    return replace(
        program,
        values=tuple(replace(value, space=0) for value in program.values),
        steps=tuple(steps),
        entry=tuple(entry.values()),
        exit=tuple(exits.values()),
        aliases=(),
    )


def once(reference: Program, plan: Plan) -> Program:
    """The reference in the order of the plan's first runs, one step after the other. Linear."""
    steps = zip(plan.program.steps, plan.program.runs, strict=True)
    return reference.reordered([s.reference for s, run in steps if s.reference is not None and not run])


def _as_passes_saw_it(plan: Plan) -> Plan:
    """The plan with one space for all memories that kernels reach, as it was before homes were chosen."""
    memories, tiers = plan.options.memories, plan.options.tiers
    if not memories:
        return plan
    tiers = (joined_memory(memories), *tiers) if tiers else ()
    options = replace(plan.options, memories=(), place=(), tiers=tiers)
    return replace(plan, program=as_one_memory(plan.program, len(memories)), options=options)


def check_figures(plan: Plan) -> Iterator[Violation]:
    """Every figure that the plan's own buffers do not bear out.

    Rules: ``size``, ``overlap``, ``bound``, ``proof``, ``capacity``. Lives, loads and sums are computed
    again. A space ends with its topmost buffer; its bound is at least the load with the reserved bytes below
    it, and the end of each pinned buffer. A bound of proof ``solver`` above that rests on the search that
    gave it; nothing but its arithmetic can be checked here. O(n log n) for n buffers.
    """
    program, placed = plan.program, plan.regions
    curves = loads(program, placed=placed)
    rules = plan.options.constraints.rules(program)
    for number, space in enumerate(program.spaces):
        inside = [region for region in placed if region.space == number]
        size, certificate = plan.sizes[number], plan.certificates[number]
        top = max((plan.offsets[r.members[0]] + r.size for r in inside if r.size), default=0)
        # At another size that the plan serves, what is placed anew may end later.
        if top > size or (top < size and plan.planned_sizes is None):
            detail = f"Space {space.name!r} claims {size:,} bytes; its buffers end at {top:,}."
            yield Violation("size", (), detail)
        if plan.holds:
            yield from _overlaps(plan, inside)
        pinned = [plan.offsets[r.members[0]] + r.size for r in inside if r.size and rules.pins(r)]
        load = max(curves[number], default=0)
        least = max([above_reserved(load, rules.blocks[number]), *pinned])
        if not least <= certificate.lower_bound <= size:
            detail = (
                f"Space {space.name!r} claims the lower bound {certificate.lower_bound:,}; {least:,} bytes"
                f" are live at once{' or below a pin' if least > load else ''} and it has {size:,}."
            )
            yield Violation("bound", (), detail)
        yield from _certificate(space.name, size, certificate, curves[number], rules.blocks[number])
    for size, tier in zip(plan.sizes, (*plan.options.memories, *plan.options.tiers), strict=False):
        if size > tier.bytes:
            detail = f"Memory {tier.name!r} has {tier.bytes:,} bytes; {size:,} of it are used."
            yield Violation("capacity", (), detail)
    capacity = plan.options.capacity
    if capacity is not None and plan.arena_bytes > capacity:
        detail = f"The spaces take {plan.arena_bytes:,} bytes, the capacity is {capacity:,}."
        yield Violation("capacity", (), detail)


def check_planned_sizes(plan: Plan) -> Iterator[Violation]:
    """What a plan says of the sizes that it serves, and cannot mean. Rule ``range``. Linear in the sizes.

    Whether it is right at a size is for the proof at that size to say.
    """
    sizes = plan.planned_sizes
    if sizes is None:
        return
    batch = [each.most for each in sizes.ranges if each.name == "batch"]
    refused = {each.sizes for each in sizes.refused}
    if not sizes.ranges or len(set(sizes.names)) < len(sizes.ranges):
        yield Violation("range", (), f"The plan serves ranges of {', '.join(sizes.names) or 'nothing'}.")
    elif not all(1 <= each.least <= each.most for each in sizes.ranges):
        yield Violation(
            "range", (), f"The plan serves {', '.join(map(str, sizes.ranges))}, which is no range."
        )
    elif plan.options.batch is not None and batch and batch != [plan.options.batch]:
        detail = f"The plan was made at batch {plan.options.batch}, and serves batches up to {batch[0]}."
        yield Violation("range", (), detail)
    elif sizes.most not in sizes.proved or sizes.most in refused:
        yield Violation("range", (), "The size that the plan was made at is not among those that are proved.")
    elif wrong := [each for each in sizes.proved if each not in sizes or each in refused]:
        detail = f"The plan was proved at {list(wrong[0])}, which it does not serve."
        yield Violation("range", (), detail)
    elif any(len(each) != len(sizes.ranges) for each in refused):
        yield Violation("range", (), "A size is refused that has not one number for each range.")


def _certificate(
    name: str, size: int, certificate: Certificate, curve: Sequence[int], reserved: Sequence[Reserved]
) -> Iterator[Violation]:
    bound, witness = certificate.lower_bound, certificate.witness_step
    optimal = certificate.status is Status.OPTIMAL
    if certificate.status not in (Status.OPTIMAL, Status.FEASIBLE):
        yield Violation("proof", (), f"Space {name!r} has a layout and is {certificate.status.value}.")
    elif optimal != (certificate.proof is not None):
        yield Violation("proof", (), f"Space {name!r} is {certificate.status.value} with no matching proof.")
    elif optimal and bound != size:
        yield Violation("proof", (), f"Space {name!r} is claimed optimal above its lower bound.")
    if certificate.proof is Proof.MAX_LOAD or witness is not None:
        at = curve[witness] if witness is not None and 0 <= witness < len(curve) else 0
        claimed = max(curve, default=0)
        if certificate.proof is Proof.MAX_LOAD:
            at, claimed = above_reserved(at, reserved), size
        if at != claimed and (witness is not None or size):
            beside = " with what is reserved below them" if reserved else ""
            detail = f"Space {name!r} claims {claimed:,} bytes live on level {witness}{beside}; {at:,} are."
            yield Violation("proof", (), detail)


def _overlaps(plan: Plan, placed: Sequence[Region]) -> Iterator[Violation]:
    """The first two buffers that hold the same bytes at the same time, in order of time."""
    program = plan.program
    offsets = [plan.offsets[region.members[0]] for region in placed]
    rows = [
        (span.start, span.end, offset, offset + region.size, i)
        for i, (region, offset) in enumerate(zip(placed, offsets, strict=True))
        for span in region.spans
        if region.size
    ]
    for one, other in meeting(columns(rows)):
        i, j = sorted((rows[one][4], rows[other][4]))
        names = tuple(program.values[placed[k].members[0]].label for k in (i, j))
        low, high = max(rows[one][2], rows[other][2]), min(rows[one][3], rows[other][3])
        detail = f"{names[0]!r} and {names[1]!r} share bytes [{low}, {high}) while both are held."
        yield Violation("overlap", names, detail)
        return


def _integers(*names: str) -> dict[str, type]:
    return dict.fromkeys(names, int)


#: By record its facts with their types. A number that is left out is zero, as reports take it.
FACTS: Final[Mapping[str, Mapping[str, type]]] = MappingProxyType(
    {
        "rewrite": _integers("replacements", "bound_before", "bound_after"),
        "fit_scratch": _integers("budget_before", "budget_after", "bound_before", "bound_after"),
        "storage": _integers("conversions", "nanoseconds", "step_nanoseconds"),
        "order": {"update": str, "steps_moved": int},
        "search_order": {
            "for_recomputation": bool,
            **_integers("order_bound", "peak_before", "peak_after"),
            **_integers("every_order_nanoseconds", "step_nanoseconds"),
        },
        "recompute": _integers(
            "floor", "peak_before", "peak_after", "budget", "order_bound", "repeated_steps",
            "step_nanoseconds", "extra_nanoseconds", "bound_nanoseconds", "checked_nanoseconds",
            "step_flops", "extra_flops",
        ),
        "levels": _integers("parallelism", "steps", "levels"),
        "paging": _integers(
            "lookahead", "moved_in", "moved_out", "bound", "baseline", "nanoseconds", "transfers",
            "peak_before", "peak_after", "compute_nanoseconds", "least_nanoseconds",
        ),
        "aliases": _integers("views", "overwritten", "peak_before", "peak_after"),
        "homes": _integers(
            "access_nanoseconds", "bound_nanoseconds", "checked_nanoseconds", "compute_nanoseconds",
            "nanoseconds",
        ),
        "like": {
            "plan": str,
            **_integers("kept", "kept_bytes", "moved", "bytes_without", "nanoseconds_without"),
        },
    }
)  # fmt: skip


def check_records(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Facts that mean nothing, and figures that plan and reference do not bear out. Rule ``record``.

    Records of recomputation, paging and homes have checks of their own. Linear in the steps.
    """
    plan = _as_passes_saw_it(plan)
    details = [*_unknown(plan)]
    if plan.replacements and any(step.phase is Phase.EXPLICIT for step in reference.steps):
        details.append("Operations of an explicit program are said to be replaced, which no rule does.")
    if not details:
        facts = {record.name: record.facts for record in plan.records}
        for name, check in _CHECKS.items():
            if name in facts:
                details += check(reference, plan, facts[name])
    yield from (Violation("record", (), detail) for detail in details)


def _unknown(plan: Plan) -> Iterator[str]:
    names = [record.name for record in plan.records]
    for record in plan.records:
        if record.name not in FACTS or names.count(record.name) > 1:
            yield f"The record {record.name!r} is there twice, or of nothing that a plan records."
            continue
        known = dict(FACTS[record.name])
        if record.name == "paging":
            known |= _integers(*(f"written.{tier.name}" for tier in plan.options.tiers[1:]))
        if record.name == "like":
            known |= {fact: str for fact in record.facts if fact.startswith("moved.")}
        for fact, value in record.facts.items():
            if type(value) is not known.get(fact):
                yield f"The record {record.name!r} says {fact} = {value!r}, which it cannot."


def _differing(name: str, facts: _Facts, figures: Mapping[str, int]) -> Iterator[str]:
    for fact, figure in figures.items():
        if facts.get(fact, 0) != figure:
            yield f"The record {name!r} claims {fact} {facts.get(fact, 0)}; the plan says {figure}."


def _rising(name: str, facts: _Facts, *order: str) -> Iterator[str]:
    """A sentence if the facts of these names do not rise from zero in this order."""
    figures = [int(facts.get(fact, 0)) for fact in order]
    if [0, *figures] != sorted([0, *figures]):
        yield f"The record {name!r} claims {', '.join(order)} of {figures}, which do not rise."


def _rewrite(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    replacements = plan.replacements
    figures = {
        "replacements": len(replacements),
        "bound_before": replacements[0].bytes_before if replacements else 0,
        "bound_after": replacements[-1].bytes_after if replacements else 0,
    }
    yield from _differing("rewrite", facts, figures)


def _fit_scratch(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    yield from _differing("fit_scratch", facts, {"budget_after": plan.options.scratch_budget})
    yield from _rising("fit_scratch", facts, "budget_after", "budget_before")
    yield from _rising("fit_scratch", facts, "bound_after", "bound_before")


def _storage(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    cost = step_costs(reference, plan.options.costs)
    converting = [t for t, step in enumerate(reference.steps) if reference.kernel(step) == CONVERT]
    figures = {
        "conversions": len(converting),
        "nanoseconds": sum(cost[t] for t in converting),
        "step_nanoseconds": sum(cost),
    }
    yield from _differing("storage", facts, figures)


def _order(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    if facts.get("update") != plan.options.update:
        yield f"The record 'order' says update {facts.get('update')!r}, not {plan.options.update!r}."
    moved = int(facts.get("steps_moved", 0))
    searched = any(record.name == "search_order" for record in plan.records)
    if plan.options.parallelism == 1 and not searched:
        first = _first_runs(plan)
        yield from _differing("order", facts, {"steps_moved": sum(t != s for t, s in enumerate(first))})
    elif not 0 <= moved <= len(reference.steps):
        yield f"The record 'order' claims that {moved} of {len(reference.steps)} steps were moved."


def _first_runs(plan: Plan) -> Sequence[int]:
    steps = zip(plan.program.steps, plan.program.runs, strict=True)
    return [step.reference for step, run in steps if step.reference is not None and not run]


def _search_order(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    if plan.options.parallelism == 1:  # levels have an order of their own
        peak = max(loads(once(reference, plan))[0], default=0)
        yield from _differing("search_order", facts, {"peak_after": peak})
    yield from _rising("search_order", facts, "order_bound", "peak_after")
    if not facts.get("for_recomputation"):
        yield from _rising("search_order", facts, "peak_after", "peak_before")
    if "every_order_nanoseconds" in facts or "step_nanoseconds" in facts:
        cost = sum(step_costs(reference, plan.options.costs))
        yield from _differing("search_order", facts, {"step_nanoseconds": cost})


def _levels(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    steps = [step for step in plan.program.steps if not is_copy(plan.program, step)]
    figures = {
        "parallelism": plan.options.parallelism,
        "steps": len(steps),
        "levels": len({step.level for step in steps}),
    }
    yield from _differing("levels", facts, figures)


def _peak(program: Program) -> int:
    return sum(max(curve, default=0) for curve in loads(program))


def _aliases(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    program = plan.program
    views = sum(alias.view for alias in program.aliases)
    figures = {
        "views": views,
        "overwritten": len(program.aliases) - views,
        "peak_before": _peak(replace(program, aliases=())),
        "peak_after": _peak(program),
    }
    if facts:  # passes of targets record none
        yield from _differing("aliases", facts, figures)


def _like(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    yield from _differing("like", facts, {"moved": sum(fact.startswith("moved.") for fact in facts)})
    kept, pins = facts.get("kept", 0), len(plan.options.pins)
    if not _is_between(0, kept, pins):
        yield f"The record 'like' claims that {kept} values stay; {pins} are pinned."
    claimed, program = facts.get("kept_bytes", 0), plan.program
    pinned = plan.options.constraints.rules(program).pin_names
    most = sum(program.values[value].type.nbytes for value in pinned)
    if not _is_between(most if kept == pins else 0, claimed, most if kept else 0):
        yield f"The record 'like' claims that {claimed} bytes stay; {most} are pinned."


_CHECKS: Final[Mapping[str, Callable[[Program, Plan, _Facts], Iterator[str]]]] = MappingProxyType(
    {
        "rewrite": _rewrite,
        "fit_scratch": _fit_scratch,
        "storage": _storage,
        "order": _order,
        "search_order": _search_order,
        "levels": _levels,
        "aliases": _aliases,
        "like": _like,
    }
)


def check_recomputation(reference: Program, plan: Plan, cost: Sequence[int]) -> Iterator[Violation]:
    """Every figure in the records of recomputation and order that the steps of the plan do not bear out.

    Rule ``record``. `cost` are nanoseconds of the reference's steps. Without a record nothing is claimed. A
    bound beyond the one that `check_cost_bound` adds up rests on the search that proved it, and so does the
    bound for every order. Linear.
    """
    plan = _as_passes_saw_it(plan)
    yield from (Violation("record", (), detail) for detail in _recomputation(reference, plan, cost))


def _recomputation(reference: Program, plan: Plan, cost: Sequence[int]) -> Iterator[str]:
    again = [s.reference for s, run in zip(plan.program.steps, plan.program.runs, strict=True) if run]
    extra = sum(cost[t] for t in again if t is not None)
    records = {record.name: record.facts for record in plan.records}
    least = records.get("search_order", {}).get("every_order_nanoseconds", 0)
    if not _is_between(0, least, extra):
        yield f"Recomputation costs {extra:,} nanoseconds, and {least} at least in every order are claimed."
    facts = records.get("recompute")
    if facts is None:
        return
    flops = [flops_of(reference, step) for step in reference.steps]
    figures = {
        "repeated_steps": len(again),
        "extra_nanoseconds": extra,
        "step_nanoseconds": sum(cost),
        "checked_nanoseconds": plan.cost_bound.nanoseconds if plan.cost_bound is not None else 0,
        "step_flops": sum(flops),
        "extra_flops": sum(flops[t] for t in again if t is not None),
    }
    yield from _differing("recompute", facts, figures)
    budget = facts.get("budget", 0)
    if plan.cost_bound is not None and plan.cost_bound.budget != budget:
        yield f"Recomputation was chosen for {budget} bytes, and its bound is for {plan.cost_bound.budget}."
    yield from _peaks_of_recomputation(reference, plan, facts)
    yield from _rising("recompute", facts, "floor", "peak_after", "budget")
    bound = facts.get("bound_nanoseconds", 0)
    if not _is_between(0, bound, extra):
        yield f"Recomputation costs {extra:,} nanoseconds, and {bound} at least are claimed."


def _peaks_of_recomputation(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    """The peaks without repetitions and with them, and the bounds below them, from the plan's own order.

    Those bounds hold for every order, so any order gives them. On levels the order in which the peaks were
    measured is not in the plan.
    """
    first = once(reference, plan)
    if plan.options.parallelism == 1:
        yield from _differing_peaks("recompute", plan, facts, first, unpaged(plan.program))
    for name, bound, program in (
        ("floor", floor, first),
        ("order_bound", order_bound, first.at_same_residues()),
    ):
        problem = schedule_problem(program, [0] * len(first.steps), in_place=plan.options.in_place)
        least = bound(problem).bytes
        if not _is_between(0, facts.get(name, 0), least):
            yield f"Recomputation claims {name} {facts.get(name, 0)}; the steps need {least} bytes at least."


def _differing_peaks(name: str, plan: Plan, facts: _Facts, before: Program, after: Program) -> Iterator[str]:
    """Recorded peaks of the first space before a pass and after it that differ from those of its programs.

    Where values lie in place the recorded peaks are lower than those of values with bytes of their own, and
    only that is checked.
    """
    for fact, program in (("peak_before", before), ("peak_after", after)):
        peak, claimed = max(loads(program)[0], default=0), facts.get(fact, 0)
        if claimed != peak and not (plan.options.in_place and _is_between(0, claimed, peak)):
            yield f"The record {name!r} claims {fact} {claimed}; the plan says {peak}."


def _is_between(low: int, claimed: object, high: int) -> bool:
    return isinstance(claimed, int) and low <= claimed <= high


def check_paging(reference: Program, plan: Plan) -> Iterator[Violation]:
    """Every figure in the record of paging that the copies of the plan do not bear out.

    Rule ``record``. A bound that a search proved of bytes or time is only compared with what the plan itself
    takes, and may not be more. O(n log n) for n steps.
    """
    facts = next((record.facts for record in plan.records if record.name == "paging"), None)
    if facts is not None:
        yield from (Violation("record", (), detail) for detail in _paging(reference, plan, facts))


def _paging(reference: Program, plan: Plan, facts: _Facts) -> Iterator[str]:
    memories = plan.options.memories
    whole, plan = plan, _as_passes_saw_it(plan)
    program, tiers = plan.program, plan.options.tiers
    spaces = [space.name for space in program.spaces]
    if [tier.name for tier in tiers] != spaces:
        yield (
            f"Paging is recorded between the tiers {[tier.name for tier in tiers]}; the memories of the plan"
            f" are {spaces}."
        )
        return
    if any(check_copies(whole)):
        return
    took = elapsed(whole.program, (*memories, *whole.options.tiers), plan.options.costs, memories)
    moved = traffic(program)
    copies = [step for step in program.steps if is_copy(program, step)]
    figures = {
        "moved_in": moved.moved_in,
        "moved_out": moved.moved_out,
        "transfers": len(copies),
        "nanoseconds": took,
        "compute_nanoseconds": sum(level_costs(program, plan.options.costs)),
    } | {f"written.{tier.name}": written for tier, written in zip(tiers[1:], moved.written[1:], strict=True)}
    yield from _differing("paging", facts, figures)
    for name, most in (("bound", moved.moved_in + moved.moved_out), ("least_nanoseconds", took)):
        if not _is_between(0, facts.get(name, 0), most):
            yield f"Paging claims {name} {facts.get(name, 0)}; the plan itself takes {most}."
    lookahead = facts.get("lookahead", 0)
    # The most levels of steps on which one copy runs.
    levels = sorted({step.level for step in program.steps if not is_copy(program, step)})
    spans = (bisect_right(levels, copy.until) - bisect_left(levels, copy.level) for copy in copies)
    longest = max(spans, default=0)
    if not isinstance(lookahead, int) or lookahead < longest:
        yield f"Paging claims lookahead {lookahead}; a copy of the plan takes {longest} levels of steps."
        return
    before, baseline = unpaged(program), 0
    if copies:
        problem = paging_problem(before, lookahead)
        baseline = sum(problem.cost(frozenset(range(len(problem.gaps)))))
    yield from _differing("paging", facts, {"baseline": baseline})
    if not any(program.runs):  # steps that run again were aligned for that before anything was paged
        alike = zip(before.spaces, reference.spaces * len(before.spaces), strict=False)
        before = replace(before, spaces=tuple(replace(s, alignment=r.alignment) for s, r in alike))
    yield from _differing_peaks("paging", plan, facts, before, program)


def check_copies(plan: Plan) -> Iterator[Violation]:
    """Copies inside one tier, between tiers that name no bandwidth for them, and on other channels.

    Rule ``record``. None where the memories are no tiers, which `check_paging` names. Linear in the steps.
    """
    plan = _as_passes_saw_it(plan)
    program, tiers = plan.program, plan.options.tiers
    if [tier.name for tier in tiers] != [space.name for space in program.spaces]:
        return
    for t, step in enumerate(program.steps):
        if is_copy(program, step):
            source, target = (program.values[binding.value] for binding in step.bindings)
            names = (source.label, target.label)
            rates = tiers[source.space].read, tiers[target.space].write
            channel = {"channel": max(source.space, target.space)}
            attributes = program.operations[step.operation].attributes
            if source.space == target.space:
                detail = f"{step_name(plan, t)} copies inside tier {tiers[source.space].name!r}."
            elif max(rates) <= 0:
                detail = (
                    f"{step_name(plan, t)} copies from tier {tiers[source.space].name!r} to"
                    f" {tiers[target.space].name!r}, and neither says how fast that is."
                )
            elif attributes and exact(attributes) != exact(channel):
                # Between two memories there is one, and its time is that of all copies between them.
                detail = f"{step_name(plan, t)} has the attributes {dict(attributes)}, not {channel}."
            else:
                continue
            yield Violation("record", names, detail)
