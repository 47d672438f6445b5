"""From several programs to one deployment: an arena in which each of them runs.

    references ──► persistent values, joined by name ──► each plan also reserves the values of the others
               ──► plans, one by one ──► persistent values to the bottom, in one order ──► proofs

Persistent values are live all the time. So a layout of one program stays right when they move to the bottom
and the others move up by as much, and its peak does not grow: the deployment takes what its largest entry
point takes, and its bound is the largest of theirs.

Where places are constrained, nothing moves: one entry point is laid out, and the others get the places of its
persistent values as pins. Their bounds are those without these pins.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from solver.collector import collector_paused
from solver.errors import (
    ArenaplanError,
    BatchError,
    CapacityError,
    ConstraintError,
    InternalError,
    LossError,
    OptionsError,
    PlanError,
)
from solver.graph import TrainableGraph, evaluation, inference
from solver.layout import Alignment, Certificate, Pin, Proof, Status, above_reserved
from solver.names import matching_names
from solver.native import deadline_of
from solver.pipeline.homes import in_common_homes
from solver.pipeline.layout import settled
from solver.pipeline.measures import candidate_requested
from solver.pipeline.paths import GraphPlans, Plans, ProgramPlans
from solver.pipeline.rows import exactly
from solver.pipeline.strategy import Candidate
from solver.pipeline.watch import Follower, Observer
from solver.plan import (
    MAX_ENTRIES,
    EntrySpec,
    Plan,
    RequestedOptions,
    Tie,
    check_name,
    refuse_ranges,
    with_deployment_digest,
)
from solver.plan.deployment import Deployment, EntryPoint, Persistent, Purpose
from solver.preparations import fixed_types
from solver.program import (
    RESIDUE,
    Constraints,
    EntryKind,
    Kind,
    Program,
    Value,
    contents_at_first,
    first_contents,
    loads,
    persistent,
)
from solver.verify import prove_deployment
from solver.version import producer

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = [
    "EntryRequest",
    "Networks",
    "entry_graphs",
    "entry_requests",
    "entry_subject",
    "joined_names",
    "plan_deployment",
    "texts_of_stars",
    "tie_between",
]


#: Options that no entry point takes yet, and why.
_NOT_TAKEN: Final = {
    "rewrite": "rewritten operations may need other weights than those of the other entry points",
    "chunked_head": "an entry point without the loss has the whole logits",
    "costs": "they are of the steps of one program",
    "tiers": "what one of them pages out, the others would have to find",
}


@dataclass(frozen=True, slots=True)
class EntryRequest:
    """An entry point to plan: its name, the network that it is of, and the graph or program that it runs."""

    name: str
    model: str
    purpose: Purpose
    subject: TrainableGraph | BlockProgram
    requested: RequestedOptions = field(default_factory=RequestedOptions)


@collector_paused()
def plan_deployment(
    name: str,
    entries: Sequence[EntryRequest],
    ties: Sequence[Tie] = (),
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
) -> Deployment:
    """Plan several programs for one arena, and prove each of them and that they leave each other's values.

    Programs of one model have their persistent values in common, by name; `ties` join those of different
    models. The capacity of each entry point bounds the whole arena. Raises OptionsError for entry points that
    do not go together, and whatever `plan_requested` raises. Cost: that of the separate plans.
    """
    _check_names(entries)
    with deadline_of(entries[0].requested.deadline_seconds):
        fixed = fixed_types([(entry.model, entry.subject, entry.requested.options) for entry in entries])
        plans, references = list[Plans](), list[Program]()
        for entry in entries:
            with _named(entry):
                plans.append(_plans(entry, fixed[entry.model], observe, follow))
                references.append(plans[-1].reference(entry.requested.options).program)
        _check_periods(entries, references)
        own_names = _own_names(entries, references)
        names = _names(entries, own_names, ties)
        shared = _shared(entries, references, own_names, names, ties)
        held = [[value for key, value in shared.items() if key not in known] for known in names]
        for each, values in zip(plans, held, strict=True):
            each.hold(values)
        if any(entry.requested.options.constraints for entry in entries):
            candidates = _constrained_candidates(entries, plans, held, names, list(shared))
        else:
            candidates = _candidates(entries, plans, names, shared)
        return _deployment(name, entries, plans, candidates, names, shared)


def _check_names(entries: Sequence[EntryRequest]) -> None:
    if not entries:
        raise OptionsError(
            "There is no entry point.", remedy="Give one, as train or infer:batch=1.", path=("entries",)
        )
    first: dict[str, int] = {}
    for k, entry in enumerate(entries):
        if first.setdefault(entry.name, k) != k:
            size = entry.requested.options.batch
            batch = "" if size is None else f"batch={size},"
            raise OptionsError(
                f"Two entry points are called {entry.name!r}.",
                remedy=f"Give one another name, as {entry.purpose}:{batch}name={entry.name}2.",
                path=("entries", k, "name"),
            )
        check_name(entry.model, "a model", ("models",))
        check_name(entry.name, "an entry point", ("entries", k, "name"))
        for option, why in _NOT_TAKEN.items():
            if getattr(entry.requested.options, option):
                raise OptionsError(
                    f"Entry points take no {option}: {why}.",
                    remedy=f"Leave out {option}, or plan entry point {entry.name!r} by itself.",
                    path=(option,),
                )


def _check_periods(entries: Sequence[EntryRequest], references: Sequence[Program]) -> None:
    """Programs that train one model count their iterations together, which say when weights are updated."""
    first: dict[str, tuple[str, int]] = {}
    for k, (entry, program) in enumerate(zip(entries, references, strict=True)):
        if entry.purpose != "train":
            continue
        other, period = first.setdefault(entry.model, (entry.name, program.period))
        if program.period != period:
            raise OptionsError(
                f"Entry point {entry.name!r} updates weights after {program.period} micro-batches, {other!r}"
                f" of the same model after {period}.",
                remedy="Train the model with as many micro-batches in both.",
                path=("entries", k),
            )


def _plans(
    entry: EntryRequest, fixed: frozenset[str], observe: Observer | None, follow: Follower | None
) -> Plans:
    options = entry.requested.options
    plans: Plans
    if isinstance(entry.subject, TrainableGraph):
        plans = GraphPlans(replace(entry.subject, fixed_types=fixed), options, observe, follow)
        if not plans.capabilities.trains:
            raise OptionsError(
                f"Target {options.target!r} runs one program alone.",
                remedy="Plan entry points for the target 'reference'.",
                path=("target",),
            )
        return plans
    return ProgramPlans(entry.subject, options, observe, follow)


def _own_names(entries: Sequence[EntryRequest], references: Sequence[Program]) -> list[dict[str, int]]:
    """For each entry point its persistent values by label, behind the name of the model where there are
    several.

    A constant that depends on the batch, in its shape or contents, is another value in each entry point: the
    name of the entry point is behind that of the later ones. Raises OptionsError where values of two models
    have one name: `b.w` of model `a`, and `w` of model `a.b`.
    """
    several = len({entry.model for entry in entries}) > 1
    own_names = []
    constants: dict[str, dict[Hashable, str]] = {}
    model_of: dict[str, str] = {}
    for entry, program in zip(entries, references, strict=True):
        own_names.append(known := dict[str, int]())
        for number in persistent(program):
            value = program.values[number]
            name = f"{entry.model}.{value.label}" if several else value.label
            if (model := model_of.setdefault(name, entry.model)) != entry.model:
                raise OptionsError(
                    f"{name!r} is a value of model {model!r}, and of model {entry.model!r}.",
                    remedy="Give one of the two models another name.",
                    path=("models",),
                )
            if value.kind is Kind.CONSTANT:
                alike = constants.setdefault(name, {})
                other = f"{name}@{entry.name}" if alike else name
                name = alike.setdefault((value.type, first_contents(program, number)), other)
            known[name] = number
    return own_names


def _names(
    entries: Sequence[EntryRequest], own_names: Sequence[Mapping[str, int]], ties: Sequence[Tie]
) -> list[dict[str, int]]:
    """For each entry point its persistent values, by the name under which the deployment knows them: the
    first of those that it is tied to.
    """
    everyone = dict.fromkeys(name for known in own_names for name in known)
    joined = joined_names(everyone, ties)
    names: list[dict[str, int]] = []
    for entry, known in zip(entries, own_names, strict=True):
        by_name: dict[str, int] = {}
        first: dict[str, str] = {}
        for own, value in known.items():
            other = first.setdefault(joined[own], own)
            if other != own:
                raise OptionsError(
                    f"{other!r} and {own!r} of entry point {entry.name!r} are tied to {joined[own]!r}.",
                    remedy="Tie each value of a model to one of another model.",
                    path=("ties", tie_between(everyone, ties, other, own)),
                )
            by_name[joined[own]] = value
        names.append(by_name)
    return names


def _shared(
    entries: Sequence[EntryRequest],
    references: Sequence[Program],
    own_names: Sequence[Mapping[str, int]],
    names: Sequence[Mapping[str, int]],
    ties: Sequence[Tie],
) -> dict[str, Value]:
    """All persistent values by name. Raises OptionsError for one that entry points see differently."""
    first: dict[str, tuple[int, str, Value]] = {}
    carried = [{e.value for e in program.entry if e.kind is EntryKind.CARRIED} for program in references]
    #: What some program changes.
    changing = {
        name
        for numbers, known in zip(carried, names, strict=True)
        for name, number in known.items()
        if number in numbers
    }

    def culprit(k: int, one: str, other: str) -> tuple[str | int, ...]:
        """The tie that joins the two names, or the entry point that has the same name for something else."""
        everyone = dict.fromkeys(name for known in own_names for name in known)
        return ("entries", k) if one == other else ("ties", tie_between(everyone, ties, one, other))

    for k, (entry, program) in enumerate(zip(entries, references, strict=True)):
        for own, (name, number) in zip(own_names[k], names[k].items(), strict=True):
            value = program.values[number]
            where, others_own, there = first.setdefault(name, (k, own, value))
            other = entries[where].name
            if there.type != value.type:
                raise OptionsError(
                    f"{name!r} is {there.type} in entry point {other!r}, and {value.type} in"
                    f" {entry.name!r} (as {value.label!r}).",
                    remedy="Give values of different types different names, and tie none of them.",
                    path=culprit(k, others_own, own),
                )
            if there.kind is not value.kind and Kind.CONSTANT in (there.kind, value.kind):
                kind = there.kind if value.kind is Kind.CONSTANT else value.kind
                constant, trains = (entry.name, other) if value.kind is Kind.CONSTANT else (other, entry.name)
                raise OptionsError(
                    f"{name!r} is a constant of entry point {constant!r}, and a {kind.word} of {trains!r},"
                    " which may change it.",
                    remedy=f"Make it a {kind.word} of {constant!r} as well, or tie it to nothing.",
                    path=culprit(k, others_own, own),
                )
            if name in changing or where == k:
                continue
            contents = contents_at_first(references[where], names[where][name])
            ours = contents_at_first(program, number)
            if ours != contents and None not in (ours, contents):
                raise OptionsError(
                    f"{name!r} begins with other values in entry point {other!r} than in {entry.name!r} (as"
                    f" {value.label!r}), and nothing trains it.",
                    remedy="Give it the same values in both, or another name in one, and tie it to nothing.",
                    path=culprit(k, others_own, own),
                )
    return {
        name: value if value.label == name else replace(value, label=name)
        for name, (_, _, value) in first.items()
    }


@contextmanager
def _named(entry: EntryRequest, held: Sequence[Value] = ()) -> Iterator[None]:
    """Errors name the entry point, and how many bytes it `held` for others where it does not fit."""
    try:
        yield
    except CapacityError as error:
        others = sum(value.type.nbytes for value in held)
        of_others = f" Of these, {others:,} bytes are values that other entry points keep." if others else ""
        error.message = f"Entry point {entry.name!r:.200} does not fit. {error.message}{of_others}"
        error.entry_point, error.held = entry.name, others
        raise
    except ArenaplanError as error:
        if isinstance(error, OptionsError) and error.path != ("target",):
            raise  # the options are those of all entry points; a target may lack a kernel for one of them
        error.message = f"Entry point {entry.name!r:.200}: {error.message}"
        raise


def _candidates(
    entries: Sequence[EntryRequest],
    plans: Sequence[Plans],
    names: Sequence[Mapping[str, int]],
    shared: Mapping[str, Value],
) -> list[Candidate]:
    """The plan of each entry point, in spaces of one alignment, where no persistent value is part of another
    value's bytes.
    """
    deadline = plans[0].deadline

    def planned(k: int, alignment: int | None = None) -> Candidate:
        requested = entries[k].requested
        if alignment is not None:
            requested = requested.having(alignment=alignment)
        plans[k].deadline = deadline.leaving(1 - 1 / max(1, len(plans) - k))
        held = [value for name, value in shared.items() if name not in names[k]]
        with _named(entries[k], held):
            return _apart(plans[k], candidate_requested(plans[k], requested))

    candidates = [planned(k) for k in range(len(plans))]
    alignment = max(_alignment(candidate) for candidate in candidates)
    return [
        candidate if _alignment(candidate) == alignment else planned(k, alignment)
        for k, candidate in enumerate(candidates)
    ]


def _constrained_candidates(
    entries: Sequence[EntryRequest],
    plans: Sequence[Plans],
    held: Sequence[Sequence[Value]],
    names: Sequence[Mapping[str, int]],
    shared: Sequence[str],
) -> list[Candidate]:
    """The plan of each entry point, with persistent values where the first layout has them: that of the entry
    point with the largest load, or of another one where the constraints collide otherwise.
    """
    programs = [
        each.reference(entry.requested.options).program for each, entry in zip(plans, entries, strict=True)
    ]
    labels = [
        {
            key: program.values[value].label
            for key, value in zip(shared, _numbers(program, known, shared), strict=True)
        }
        for program, known in zip(programs, names, strict=True)
    ]
    constraints = _constraints_of_each(entries, programs, labels)
    order = sorted(range(len(entries)), key=lambda k: -max(loads(programs[k])[0], default=0))
    refused: ConstraintError | None = None
    for first in order:
        try:
            return _around(first, entries, plans, held, labels, constraints)
        except ConstraintError as error:
            refused = refused or error
    raise refused or InternalError("No entry point was laid out.")


def _around(
    first: int,
    entries: Sequence[EntryRequest],
    plans: Sequence[Plans],
    held: Sequence[Sequence[Value]],
    labels: Sequence[Mapping[str, str]],
    constraints: Sequence[Constraints],
) -> list[Candidate]:
    """The plan of each entry point, with persistent values where the layout of the first one has them."""
    shared, places = plans[0].deadline, dict[str, int]()
    candidates: dict[int, Candidate] = {}
    for n, k in enumerate(sorted(range(len(entries)), key=lambda k: k != first)):
        asked, own = entries[k].requested, constraints[k]
        pinned = {pin.name for pin in own.pins}
        others = [Pin(labels[k][key], at) for key, at in places.items() if labels[k][key] not in pinned]
        alignment = asked.options.alignment
        if alignment is not None and asked.options.capacity is not None:
            alignment = max(alignment, RESIDUE)  # steps that run again need it
        plans[k].deadline = shared.leaving(1 - 1 / (len(plans) - n))
        with _named(entries[k], held[k]):
            requested = asked.having(
                alignment=alignment,
                pins=(*own.pins, *others),
                alignments=own.alignments,
                reserved=own.reserved,
            )
            candidate = _apart(plans[k], candidate_requested(plans[k], requested))
        plan = candidate.plan
        if n:
            plan = _with_own_bound(replace(plan, options=replace(plan.options, pins=own.pins)))
        else:
            at = {
                value.label: offset for value, offset in zip(plan.program.values, plan.offsets, strict=True)
            }
            places = {key: at[label] for key, label in labels[k].items()}
        candidates[k] = replace(candidate, plan=plan)
    return [candidates[k] for k in range(len(entries))]


def _constraints_of_each(
    entries: Sequence[EntryRequest], programs: Sequence[Program], labels: Sequence[Mapping[str, str]]
) -> list[Constraints]:
    """The constraints on values that each program has. A persistent value has a name in the deployment, too,
    and what is asked for of it in one program holds in all of them.

    Raises OptionsError for a name that no program has.
    """
    every = [[value.label for value in program.values] for program in programs]

    def meant(name: str, k: int) -> list[str]:
        """The labels in program k that a name stands for."""
        kept = [
            labels[k][key]
            for key in labels[k]
            if matching_names(name, [key, *(known[key] for known in labels)])
        ]
        return list(dict.fromkeys([*kept, *(every[k][i] for i in matching_names(name, every[k]))]))

    of_each = []
    for k, entry in enumerate(entries):
        asked = entry.requested.options.constraints
        for name in [*(pin.name for pin in asked.pins), *(each.name for each in asked.alignments)]:
            if not any(meant(name, other) for other in range(len(entries))):
                asked.rules(programs[k])  # says which names are near
        pins = [Pin(label, pin.offset) for pin in asked.pins for label in meant(pin.name, k)]
        alignments = [
            Alignment(label, each.bytes) for each in asked.alignments for label in meant(each.name, k)
        ]
        of_each.append(Constraints(tuple(pins), tuple(alignments), asked.reserved))
    return of_each


def _with_own_bound(plan: Plan) -> Plan:
    """The plan with a certificate that holds wherever persistent values lie: of loads and the user's pins."""
    rules = plan.options.constraints.rules(plan.program)
    inside = [region for region in plan.regions if region.space == 0]
    curve, size = loads(plan.program, placed=plan.regions)[0], plan.sizes[0]
    load = above_reserved(max(curve, default=0), rules.blocks[0])
    tops = [plan.offsets[r.members[0]] + r.size for r in inside if r.size and rules.pins(r)]
    bound = max(load, *tops, 0)
    status = Status.OPTIMAL if bound == size else Status.FEASIBLE
    proof = None if bound < size else Proof.MAX_LOAD if load == size else Proof.SOLVER
    witness = curve.index(max(curve)) if curve else None
    certificate = Certificate(status, proof, bound, witness, plan.certificates[0].solver)
    return replace(plan, certificates=(certificate, *plan.certificates[1:]))


def _numbers(program: Program, known: Mapping[str, int], shared: Sequence[str]) -> list[int]:
    """The numbers of all persistent values in a reference program: its own, and those that it holds."""
    held = iter(sorted(_held(program)))
    return [known[key] if key in known else next(held) for key in shared]


def _alignment(candidate: Candidate) -> int:
    return max(space.alignment for space in candidate.plan.program.spaces)


def _apart(plans: Plans, candidate: Candidate) -> Candidate:
    """The candidate, or one without sub-ranges where a persistent value is a part of a larger buffer."""
    plan = candidate.plan
    staying = {*persistent(plan.program), *_held(plan.program)}
    for region in plan.regions:
        if len(region.members) == 1:
            continue
        inside = [member for member in region.members if member in staying]
        if not inside:
            continue
        value = plan.program.values[inside[0]]
        if len(inside) > 1 or region.members[0] != inside[0] or region.nbytes != value.type.nbytes:
            return exactly(plans, replace(plan.options, sub_ranges=False))
    return candidate


def _held(program: Program) -> frozenset[int]:
    return frozenset(entry.value for entry in program.entry if entry.kind is EntryKind.HELD)


def _deployment(
    name: str,
    entries: Sequence[EntryRequest],
    plans: Sequence[Plans],
    candidates: Sequence[Candidate],
    names: Sequence[Mapping[str, int]],
    shared: Mapping[str, Value],
) -> Deployment:
    entry_points, numbers = [], []
    for candidate, known in zip(candidates, names, strict=True):
        of_reference = _numbers(candidate.reference.program, known, list(shared))
        place = {e.reference: e.value for e in candidate.plan.program.entry}
        numbers.append([place[number] for number in of_reference])
    made = [candidate.plan for candidate in candidates]
    if made[0].options.memories:
        made = in_common_homes(made, numbers, plans[0].deadline)
    for entry, each, candidate, plan, values in zip(entries, plans, candidates, made, numbers, strict=True):
        if not entry.requested.options.constraints:
            plan = settled(plan, values)
        plan = each.proved(replace(candidate, plan=plan))
        entry_points.append(EntryPoint(entry.name, entry.model, entry.purpose, plan))
    rows = tuple(Persistent(key, row) for key, row in zip(shared, zip(*numbers, strict=True), strict=True))
    deployment = Deployment(name, tuple(entry_points), rows, producer())
    references = [candidate.reference.program for candidate in candidates]
    violations = prove_deployment(deployment, references)
    if violations:
        raise InternalError(f"The deployment breaks rule {violations[0].rule}: {violations[0].detail}")
    return with_deployment_digest(deployment)


#: Networks by name, each read for a batch, or for its own.
Networks = Mapping[str, "Callable[[int | None], TrainableGraph | BlockProgram]"]


def entry_requests(
    networks: Networks, specs: Sequence[EntrySpec], requested: RequestedOptions
) -> list[EntryRequest]:
    """The entry points to plan, each with the graph or program that it runs.

    Without specs each network is one entry point, which is called as it is, for what it can do first: train,
    evaluate, infer. Raises OptionsError for a model that is not there, or that has no such entry point.
    """
    refuse_ranges(requested.ranges, "Each entry point")
    batch = requested.options.batch
    specs = specs or [
        EntrySpec(_first_purpose(read(batch)), model, name=model) for model, read in networks.items()
    ]
    if len(specs) > MAX_ENTRIES:
        raise OptionsError(
            f"There are {len(specs):,} entry points; {MAX_ENTRIES:,} are the most.",
            remedy="Plan them as several deployments.",
            path=("entries",),
        )
    requests = [_request(networks, spec, requested, k) for k, spec in enumerate(specs)]
    idle = [model for model in networks if model not in {request.model for request in requests}]
    if idle:
        raise OptionsError(
            f"Model {idle[0]!r:.200} has no entry point.",
            remedy=f"Name one of it, as {idle[0]:.200}.infer, or leave the model out.",
            path=("entries",),
        )
    return requests


def _request(networks: Networks, spec: EntrySpec, requested: RequestedOptions, k: int) -> EntryRequest:
    model = spec.model or (next(iter(networks)) if len(networks) == 1 else "")
    if model not in networks:
        of = f"model {model!r:.200}, which is not there" if model else "no model, and there are several"
        known = ", ".join(f"{name}.{spec.purpose}" for name in networks)
        raise OptionsError(
            f"Entry point {spec.purpose!r} is of {of}.",
            remedy=f"Write one of {known:.500}.",
            path=("entries", k),
        )
    try:
        network = networks[model](spec.batch or requested.options.batch)
    except BatchError as error:
        if spec.batch:
            error.path = ("entries", k, "batch")
        raise
    try:
        subject = entry_subject(network, spec.purpose)
    except (OptionsError, LossError) as error:
        raise OptionsError(
            f"Entry point {spec.purpose!r} of {model!r:.200}: {error.message}",
            remedy=error.remedy,
            path=("entries", k),
        ) from error
    name = spec.name or (spec.purpose if len(networks) == 1 else f"{model}.{spec.purpose}")
    # A program has no batch of its own: that of the options is for the graphs beside it.
    is_graph = isinstance(network, TrainableGraph)
    if spec.batch and not is_graph:
        raise OptionsError(
            f"Entry point {name!r:.200} is a program of explicit operations, which has no batch.",
            remedy="Leave out its batch.",
            path=("entries", k, "batch"),
        )
    batch = spec.batch or (requested.options.batch if is_graph else None)
    return EntryRequest(name, model, spec.purpose, subject, requested.having(batch=batch))


def entry_subject(network: TrainableGraph | BlockProgram, purpose: Purpose) -> TrainableGraph | BlockProgram:
    """The graph or program that an entry point of this purpose runs.

    Raises OptionsError for a purpose that the network does not have, LossError as `inference` does.
    """
    if not isinstance(network, TrainableGraph):
        if purpose == "run":
            return network
        raise OptionsError(
            f"{network.name!r} is a program of explicit operations: it is run as it is.",
            remedy="Name its entry point run.",
        )
    if purpose == "run":
        raise OptionsError(
            f"{network.name!r} is a graph, which is trained, evaluated, or used to infer.",
            remedy="Name its entry point train, evaluate or infer.",
        )
    if purpose == "train" and not network.trainable:
        raise OptionsError(
            f"Nothing of {network.name!r} is trained.",
            remedy="Name a loss and what is trained, or an entry point infer or evaluate.",
        )
    if purpose == "evaluate":
        return evaluation(network)
    return inference(network) if purpose == "infer" else network


def entry_graphs(
    networks: Networks, deployment: Deployment, *, skips_programs: bool = False
) -> dict[str, TrainableGraph]:
    """The graph that each entry point runs, by name, from the networks of the deployment by theirs.

    One network alone may have any name. Raises OptionsError for one that is not there, or that cannot do what
    the entry point is for; PlanError for an entry point of explicit operations, if it is not to be left out.
    """
    names = dict.fromkeys(entry_point.model for entry_point in deployment.entry_points)
    if len(names) == len(networks) == 1:
        networks = dict(zip(names, networks.values(), strict=True))
    for name in (*names, *networks):
        if name not in networks or name not in names:
            where = "there" if name not in networks else "of the plan"
            raise OptionsError(
                f"Model {name!r:.200} is not {where}.",
                remedy=f"Give each model of the plan by its name: {', '.join(names):.500}.",
            )
    graphs: dict[str, TrainableGraph] = {}
    for entry_point in deployment.entry_points:
        network = networks[entry_point.model](entry_point.plan.options.batch)
        try:
            subject = entry_subject(network, entry_point.purpose)
        except (OptionsError, LossError) as error:
            message = f"Entry point {entry_point.name!r}: {error.message}"
            raise OptionsError(
                message, remedy="Give the model that the plan was made from, and its --loss."
            ) from error
        if isinstance(subject, TrainableGraph):
            graphs[entry_point.name] = subject
        elif not skips_programs:
            raise PlanError(
                f"Entry point {entry_point.name!r} runs explicit operations, whose kernels are not here.",
                remedy="Run it from Python, with a function for each operation.",
            )
    return graphs


def _first_purpose(network: TrainableGraph | BlockProgram) -> Purpose:
    if not isinstance(network, TrainableGraph):
        return "run"
    return "train" if network.trainable else "infer" if network.loss is None else "evaluate"


def joined_names(names: Collection[str], ties: Sequence[Tie]) -> dict[str, str]:
    """For each name the first of those that it is tied to, directly or by way of others. Linear for each tie.

    Raises OptionsError for a tie that joins nothing, and for one whose sides differ in their number of stars.
    """
    joined = {name: name for name in names}
    order = {name: k for k, name in enumerate(names)}

    def first_of(name: str) -> str:
        while joined[name] != name:
            name = joined[name]
        return name

    for k, tie in enumerate(ties):
        if tie.left.count("*") != tie.right.count("*"):
            raise OptionsError(
                f"The tie {tie.text!r} has another number of stars on each side.",
                remedy="Write as many on the right as on the left: each stands for the same text.",
                path=("ties", k),
            )
        pairs = []
        for name in names:
            texts = None if "@" in name else texts_of_stars(tie.left, name)
            if texts is None:
                continue
            start, *parts = tie.right.split("*")
            other = start + "".join(text + part for text, part in zip(texts, parts, strict=True))
            if other and other in joined and other != name:
                pairs.append((name, other))
        if not pairs:
            known = ", ".join(repr(name) for name in names if "@" not in name)
            raise OptionsError(
                f"The tie {tie.text!r} joins nothing: no two persistent values match its sides.",
                remedy=f"Name values of two models. There are {known:.300}.",
                path=("ties", k),
            )
        for name, other in pairs:
            one, two = sorted((first_of(name), first_of(other)), key=order.__getitem__)
            joined[two] = one
    return {name: first_of(name) for name in names}


def tie_between(names: Collection[str], ties: Sequence[Tie], one: str, other: str) -> int:
    """The number of the first tie with which the two names are joined. They are joined by all ties."""
    for k in range(len(ties)):
        joined = joined_names(names, ties[: k + 1])
        if joined[one] == joined[other]:
            return k
    return len(ties)


def texts_of_stars(pattern: str, name: str) -> list[str] | None:
    """The text that each star of the pattern stands for in the name, each as short as the ones before it
    permit; None where the name does not match. Linear in the name for each part of the pattern.
    """
    first, *others = pattern.split("*")
    if not others:
        return [] if name == first else None
    *middle, last = others
    begin, end = len(first), len(name) - len(last)
    if begin > end or not (name.startswith(first) and name.endswith(last)):
        return None
    texts = []
    for part in middle:
        at = name.find(part, begin, end)
        if at < 0:
            return None
        texts.append(name[begin:at])
        begin = at + len(part)
    return [*texts, name[begin:end]]
