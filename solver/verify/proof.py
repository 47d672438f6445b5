"""The symbolic proof: a plan run on terms instead of numbers, in the arena's bytes, beside its reference.

    reference    each value has bytes of its own            x ─► t1     w ─► t2     conv(t1, t2) ─► t3
    plan         bytes [0, 64) hold t1, [64, 128) t2 ...    step 3 reads [0, 64): t1, [64, 128): t2
                                                            writes [128, 192): t3, and ends what was there

docs/explanation/proof.md has the formal statement: the state, the transfer of each step, the obligations
under the names that they have here, and the theorem. No pass is known here: whatever order, level, alias,
repetition or copy a plan has, it is judged by what its bytes hold.

Validation of the result instead of the optimizer, as for register allocation: Rideau and Leroy, *Validating
register allocation and spilling*, CC 2010; the checker of Cranelift's regalloc2.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Final

from solver.accounting import step_costs
from solver.layout import Lifespan
from solver.plan import Plan
from solver.plan.deployment import Deployment, EntryPoint
from solver.plan.ranges import resized
from solver.program import (
    RESIDUE,
    Entry,
    EntryKind,
    Kind,
    Program,
    Value,
    contents_at_first,
    holding,
    persistent,
    reference_digest,
)
from solver.reports.validation import Violation
from solver.verify.cost import check_cost_bound, check_homes
from solver.verify.execution import check_contents
from solver.verify.figures import (
    check_copies,
    check_figures,
    check_paging,
    check_planned_sizes,
    check_recomputation,
    check_records,
)
from solver.verify.form import check_form, check_names, check_steps
from solver.verify.sharing import Line, check_aliases, check_levels, check_overlaps, check_residues

__all__ = [
    "OBLIGATIONS",
    "Obligation",
    "Subject",
    "check_deployment_form",
    "held_references",
    "prove",
    "prove_at",
    "prove_deployment",
]


class Subject:
    """The claim of a proof: `plan` computes what `reference` does. A target extends the lives `holds`."""

    def __init__(self, reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None) -> None:
        self.reference, self.plan, self.holds = reference, plan, holds

    @cached_property
    def line(self) -> Line:
        """The places of a plan of right form."""
        return Line(self.plan)


@dataclass(frozen=True, slots=True)
class Obligation:
    """One part of the proof: its name, the rules that its violations bear, and its check."""

    name: str
    rules: tuple[str, ...]
    check: Callable[[Subject], Iterable[Violation]]


def prove(
    reference: Program, plan: Plan, holds: Mapping[int, Lifespan] | None = None
) -> tuple[Violation, ...]:
    """The violations that keep `plan` from computing what `reference` computes; none for a right plan.

    A plan that passes leaves, after each iteration, the bits of the reference in every exit, on a machine
    whose kernels keep the facts that operators state, with the threads and libraries of the reference; and
    its figures are those of its own buffers. `holds` are the lives that the target makes longer; where they
    are passed, the plan's must be the same, for longer lives raise its bounds.

    Obligations are checked in the order of `OBLIGATIONS`; the first row with a violation ends the proof.
    O(b log r) for b bindings and r ranges of bytes.
    """
    subject = Subject(reference, plan, holds)
    for row in OBLIGATIONS:
        violations = tuple(v for obligation in row for v in obligation.check(subject))
        if violations:
            return violations
    return ()


def _check_holds(subject: Subject) -> Iterator[Violation]:
    if subject.holds is not None and dict(subject.holds) != dict(subject.plan.holds):
        yield Violation("hold", (), "The plan holds values longer than its target does, or not as long.")


def _check_digests(subject: Subject) -> Iterator[Violation]:
    """Whether the plan is for this reference. An unfinished plan has no digest; titles make no difference."""
    plan = subject.plan
    program = replace(subject.reference, name=plan.program.name)
    if plan.graph != plan.program.name:
        yield Violation("digest", (), f"The plan is of {plan.graph!r}, its program of {plan.program.name!r}.")
    if plan.reference_digest and plan.reference_digest != reference_digest(program):
        yield Violation("digest", (), "The reference program does not have the digest that the plan names.")


def _check_recomputation(subject: Subject) -> Iterator[Violation]:
    """The claims on the cost of recomputation, where there are any."""
    reference, plan = subject.reference, subject.plan
    if plan.cost_bound is None and all(record.name != "recompute" for record in plan.records):
        return
    cost = step_costs(reference, plan.options.costs)
    yield from check_recomputation(reference, plan, cost)
    if plan.cost_bound is not None:
        shared = plan.options.in_place or bool(plan.program.aliases)
        if plan.program.spaces[0].alignment == RESIDUE:
            reference = reference.at_same_residues()
        yield from check_cost_bound(reference, plan.cost_bound, cost, in_place=shared)


_FORM: Final = ("form", "level", "place", "entry", "exit", "initial", "period", "overlap")
_FIGURES: Final = ("size", "overlap", "bound", "proof", "capacity")

#: The obligations in the order in which they are checked. Each row relies on the rows above it: which pairs
#: an alias exempts, for instance, is asked only where every alias is a promise of an operator. The violations
#: of one row are reported together.
OBLIGATIONS: Final[tuple[tuple[Obligation, ...], ...]] = (
    (Obligation("form", _FORM, lambda s: check_form(s.reference, s.plan)),),
    (Obligation("steps", ("step",), lambda s: check_steps(s.reference, s.plan)),),
    (Obligation("holds", ("hold",), _check_holds),),
    (Obligation("aliases", ("alias",), lambda s: check_aliases(s.reference, s.plan)),),
    (
        Obligation("inside a step", ("overlap",), lambda s: check_overlaps(s.plan, s.line)),
        Obligation("levels", ("level",), lambda s: check_levels(s.plan, s.line)),
        Obligation("residues", ("residue",), lambda s: check_residues(s.plan)),
    ),
    (
        Obligation(
            "contents", ("undefined", "value", "exit"), lambda s: check_contents(s.reference, s.plan, s.line)
        ),
    ),
    (Obligation("names", ("name",), lambda s: check_names(s.reference, s.plan.program)),),
    (Obligation("homes", ("home",), lambda s: check_homes(s.plan)),),
    (
        # A copy that moves nothing between memories makes figures wrong, too: it is named first.
        Obligation("copies", ("record",), lambda s: islice(check_copies(s.plan), 1)),
        Obligation("figures", _FIGURES, lambda s: check_figures(s.plan)),
        Obligation("digests", ("digest",), _check_digests),
        Obligation("sizes", ("range",), lambda s: check_planned_sizes(s.plan)),
        Obligation("records", ("record",), lambda s: check_records(s.reference, s.plan)),
    ),
    (
        Obligation("recomputation", ("record", "cost"), _check_recomputation),
        Obligation("paging", ("record",), lambda s: check_paging(s.reference, s.plan)),
    ),
)


def prove_at(
    plan: Plan, planned: Program, reference: Program, graph_digest: str = "", *, grows: bool = False
) -> tuple[Plan, tuple[Violation, ...]]:
    """The plan at the size of `reference`, and what keeps it from computing what that does there.

    `planned` is the reference program at the size that was planned. Beside the proof of an ordinary plan,
    what one iteration leaves to the next must lie where the plan has it, so that iterations of both sizes may
    follow each other. Raises PlanError where the steps at the two sizes differ. With `grows` it may take more
    bytes than the plan. Cost: that of `prove`.
    """
    other = resized(plan, planned, reference, graph_digest, grows=grows)
    violations = prove(reference, other) or tuple(_moved(plan, other))
    if not violations and not grows and any(map(operator.gt, other.sizes, plan.sizes)):
        violations = (Violation("size", (), "The plan has fewer bytes than it takes at this size."),)
    return other, violations


def _moved(plan: Plan, other: Plan) -> Iterator[Violation]:
    """The values that stay from one iteration to the next, and lie elsewhere at the other size."""
    ours, theirs = (_staying(each) for each in (plan, other))
    for label in sorted(ours.keys() | theirs.keys()):
        if ours.get(label) != theirs.get(label):
            detail = f"{label!r} stays from one iteration to the next, and is another one at this size."
            yield Violation("range", (label,), detail)


def _staying(plan: Plan) -> dict[str, tuple[object, ...]]:
    """Space, place and type of what stays, by label. The contents of constants may depend on the size."""
    values = plan.program.values
    return {
        values[e.value].label: (
            e.kind,
            values[e.value].space,
            plan.offsets[e.value],
            values[e.value].type if e.kind is EntryKind.CARRIED else None,
        )
        for e in plan.program.entry
        if e.kind is not EntryKind.FED
    }


# ----------------------------------------------------------------------------------------------- deployments

# Each program is proved to leave in its exits what its reference leaves there, and everything that it holds
# for others as it was. So if a persistent value has one place in all plans, and what one program leaves there
# is what the others take from there, any sequence of runs computes what the references compute.
# docs/explanation/proof.md has the induction.


def prove_deployment(
    deployment: Deployment, references: Sequence[Program] | None = None
) -> tuple[Violation, ...]:
    """The violations of what the plans of a deployment promise each other; none for a right one.

    `references` has the reference program of each entry point, with what it holds for others
    (`held_references`); without them nothing is said on names. Rules: ``form`` (names, numbers, spaces),
    ``persistent`` (a value that is missing, twice, elsewhere, or another one), ``initial``, ``period``. That
    each plan is right is for `prove` to say, and asked before. Linear in the values.
    """
    return (
        check_deployment_form(deployment)
        or (*_check_places(deployment),)
        or (*_check_names(deployment, references or ()), *_check_periods(deployment))
    )


def held_references(deployment: Deployment, programs: Sequence[Program]) -> tuple[Program, ...]:
    """The reference `programs` of the entry points, each with the values that its plan holds for others.

    The form of the deployment must be right. A value that no entry point has for itself is left out, which
    `prove` then notices. Linear.
    """
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    held: list[list[Value]] = [[] for _ in programs]
    for row in deployment.persistent:
        there = [of.get(number) for of, number in zip(entries, row.values, strict=True)]
        own = (
            program.values[entry.reference]
            for entry, program in zip(there, programs, strict=True)
            if entry and entry.kind is not EntryKind.HELD and 0 <= entry.reference < len(program.values)
        )
        first = next(own, None)
        for entry, values in zip(there, held, strict=True):
            if first and entry and entry.kind is EntryKind.HELD:
                values.append(replace(first, label=row.name))
    return tuple(map(holding, programs, held))


def check_deployment_form(deployment: Deployment) -> tuple[Violation, ...]:
    """The violations of the form that everything else relies on: rule ``form``. Linear."""
    return (*_check_form(deployment),)


def _check_form(deployment: Deployment) -> Iterator[Violation]:
    names = Counter(entry_point.name for entry_point in deployment.entry_points)
    if not names or max(names.values()) > 1:
        yield Violation("form", (), "There is no entry point, or two have one name.")
        return
    first = deployment.entry_points[0].plan.program.spaces
    for entry_point in deployment.entry_points:
        if entry_point.plan.program.spaces != first:
            detail = f"Entry point {entry_point.name!r} has other memories than the first one."
            yield Violation("form", (), detail)
    rows = Counter(row.name for row in deployment.persistent)
    if rows and max(rows.values()) > 1:
        yield Violation("form", (), "A persistent value is listed twice.")
    counts = [len(entry_point.plan.program.values) for entry_point in deployment.entry_points]
    for row in deployment.persistent:
        if len(row.values) != len(counts) or not all(
            0 <= value < count for value, count in zip(row.values, counts, strict=True)
        ):
            detail = f"Persistent value {row.name!r} is no value of some entry point."
            yield Violation("form", (row.name,), detail)
            return


def _check_places(deployment: Deployment) -> Iterator[Violation]:
    for k, entry_point in enumerate(deployment.entry_points):
        listed = [row.values[k] for row in deployment.persistent]
        yield from _check_complete(entry_point, listed)
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    plans = [(e.plan.program.values, e.plan.offsets) for e in deployment.entry_points]
    for row in deployment.persistent:
        places = [
            (values[number].space, offsets[number], values[number].type)
            for (values, offsets), number in zip(plans, row.values, strict=True)
        ]
        if any(place != places[0] for place in places):
            detail = f"{row.name!r} has another place or type in some entry point than in the others."
            yield Violation("persistent", (row.name,), detail)
        there = [of.get(number) for of, number in zip(entries, row.values, strict=True)]
        if all(entry is not None and entry.kind is EntryKind.HELD for entry in there):
            yield Violation("persistent", (row.name,), f"{row.name!r} is held for no entry point.")


def _check_complete(entry_point: EntryPoint, listed: list[int]) -> Iterator[Violation]:
    """Each value that stays, or is held for others, is listed once; and nothing else."""
    program = entry_point.plan.program
    staying = set(persistent(program))
    staying.update(entry.value for entry in program.entry if entry.kind is EntryKind.HELD)
    odd = staying.symmetric_difference(listed) or {v for v, times in Counter(listed).items() if times > 1}
    if odd:
        label = program.values[min(odd)].label
        detail = f"{label!r} of entry point {entry_point.name!r} is not listed once among what stays."
        yield Violation("persistent", (label,), detail)


def _check_names(deployment: Deployment, references: Sequence[Program]) -> Iterator[Violation]:
    """Each persistent value is one value of a model, by its label, in all programs of the model.

    Otherwise a program could find under the name of one weight what another program left in another weight.
    Constants of one label are one value where they have one type and the same contents.
    """
    entries = [_entries(entry_point) for entry_point in deployment.entry_points]
    rows: dict[Hashable, str] = {}
    for row in deployment.persistent if references else ():
        labels: dict[str, str] = {}
        contents = set()
        changes = any(
            of[number].kind is EntryKind.CARRIED for of, number in zip(entries, row.values, strict=True)
        )
        for k, (entry_point, number) in enumerate(zip(deployment.entry_points, row.values, strict=True)):
            entry, model = entries[k][number], entry_point.model
            value = references[k].values[entry.reference]
            if entry.kind is EntryKind.HELD:
                if value.label != row.name and not value.label.startswith(f"{row.name}@held"):
                    detail = f"Entry point {entry_point.name!r} holds {value.label!r} for {row.name!r}."
                    yield Violation("persistent", (row.name,), detail)
                continue
            key: Hashable = (model, value.label)
            if value.kind is Kind.CONSTANT or not changes:
                first = contents_at_first(references[k], entry.reference)
                if first is not None:
                    contents.add(first)
                if value.kind is Kind.CONSTANT:
                    key = (model, value.label, value.type, first)
            known = labels.setdefault(model, value.label), rows.setdefault(key, row.name)
            if known != (value.label, row.name):
                detail = (
                    f"{value.label!r} is {row.name!r} in entry point {entry_point.name!r}, and not in another"
                    f" one of model {model!r}."
                )
                yield Violation("persistent", (row.name,), detail)
        names = [deployment.name_of(model, label) for model, label in labels.items()]
        if row.name not in names and not any(row.name.startswith(f"{name}@") for name in names):
            yield Violation("persistent", (row.name,), f"No entry point has a value {row.name!r}.")
        if len(contents) > 1 and not changes:
            detail = f"{row.name!r} begins with other values in some entry point, and no program changes it."
            yield Violation("initial", (row.name,), detail)


def _check_periods(deployment: Deployment) -> Iterator[Violation]:
    """The programs that train one model count their runs together, so each must update after as many."""
    first: dict[str, EntryPoint] = {}
    for entry_point in deployment.entry_points:
        if entry_point.purpose == "train":
            other = first.setdefault(entry_point.model, entry_point)
            ours, theirs = (each.plan.program.period for each in (entry_point, other))
            if ours != theirs:
                detail = (
                    f"Entry point {entry_point.name!r} updates weights after {ours} micro-batches,"
                    f" {other.name!r} of the same model after {theirs}."
                )
                yield Violation("period", (), detail)


def _entries(entry_point: EntryPoint) -> Mapping[int, Entry]:
    return {entry.value: entry for entry in entry_point.plan.program.entry}
