"""Plans with the graphs that they are of, proved: what training, validation and measuring begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol, runtime_checkable

from solver.errors import OptionsError, PlanError
from solver.executor.arithmetic import rewritten
from solver.executor.initial import stored_values, whole_name
from solver.graph import FileRange, Graph, TrainableGraph, TrainingSpec, graph_digest
from solver.layout import Lifespan
from solver.plan import Deployment, EntryPoint, Plan
from solver.plan.deployment import Purpose
from solver.preparations import Prepared, chosen, fixed_types
from solver.program import EntryKind, Program
from solver.targets import TARGETS, aligned
from solver.targets.reference import ALIGNMENT
from solver.training import BlockProgram, explicit_program, program_digest
from solver.verify import (
    Violation,
    check_deployment_form,
    check_labels,
    held_references,
    prove,
    prove_at,
    prove_deployment,
)

__all__ = [
    "BlockSteps",
    "EntryProgram",
    "KernelSet",
    "Runnable",
    "check_plan",
    "entry_programs",
    "inline_data",
    "program_at",
    "purpose_of",
    "reference_of_steps",
    "reference_program",
]


#: Which kernels run a plan: this process's in NumPy, or those in C, compiled for this machine.
KernelSet = Literal["numpy", "c"]


def reference_program(graph: TrainableGraph, plan: Plan, kernels: KernelSet = "numpy") -> Program:
    """The program that `plan` must agree with; `graph` is rewritten as the plan says.

    Raises PlanError for a plan of a target that other kernels run, and for options out of range.
    """
    target = TARGETS.get(plan.options.target)
    if target is None or not target.capabilities.trains:
        raise PlanError(
            f"A plan for target {plan.options.target!r} describes another runtime's memory.",
            remedy="Plan with target 'reference' to train here.",
        )
    if (kernels == "c") != (target.name == "c"):
        is_c = target.name == "c"
        raise PlanError(
            f"The plan is for target {target.name!r}, whose memory {'C' if is_c else 'NumPy'}'s kernels fit.",
            remedy="Pass kernels='c', on the command line --kernels c; or plan for the target 'reference'."
            if is_c
            else "Plan with target 'c', on the command line --target c; or leave kernels='c' out.",
        )
    with _options_of_plan():
        chosen(plan.options)  # refuses values that no preparation takes
        prepared = Prepared(graph, plan.options.scratch_budget, storage=plan.options.storage)
        return target.reference(prepared, plan.options).program


@contextlib.contextmanager
def _options_of_plan() -> Iterator[None]:
    """Options that are out of range are a fault of the plan here, not of a request."""
    try:
        yield
    except OptionsError as error:
        path = ("options", *error.path)
        raise PlanError(error.message, remedy="Plan the graph again.", path=path) from error


#: Rules that a plan for another graph, batch or budget breaks.
_FOREIGN = frozenset({"digest", "form", "step", "entry", "exit", "initial", "name", "period"})


def check_plan(
    reference: Program, plan: Plan, graph_digest: str, holds: Mapping[int, Lifespan] = MappingProxyType({})
) -> tuple[Violation, ...]:
    """The violations of a plan against its reference (`solver.verify.prove`), where they belong together.

    `graph_digest` is that of the graph, or of the explicit program; no target that trains `holds` anything
    longer. Raises PlanError when they do not belong together: steps, what holds values at the start and the
    end, names, or digests differ.
    """
    with _options_of_plan():
        violations = prove(reference, plan, holds)
    violations = violations or tuple(check_labels(reference, plan))
    if not violations and plan.graph_digest != graph_digest:
        violations = (Violation("digest", (), "The graph does not have the digest that the plan names."),)
    if not violations and not plan.reference_digest:
        violations = (Violation("digest", (), "The plan names no digest of its reference program."),)
    foreign = next((violation.detail for violation in violations if violation.rule in _FOREIGN), None)
    if foreign is not None:
        raise PlanError(
            f"Plan and graph do not belong together: {foreign}",
            remedy="Plan this graph again with this version, with the batch that the plan was made for.",
        )
    return violations


def inline_data(graph: TrainableGraph, names: Container[str] | None = None) -> dict[str, bytes]:
    """The values that a graph gives, inline or in files, by operand; of `names` only, where they are given.

    Raises PlanError for lost files.
    """
    data: dict[str, bytes] = {}
    files: dict[FileRange, bytes] = {}  # tiles of one weight share theirs
    for operand in graph.operands.values():
        initializer = operand.initializer if names is None or operand.id in names else None
        if initializer is not None and initializer.file is not None:
            if initializer.file not in files:
                name = operand.id if initializer.rows is None else whole_name(operand.id)
                files[initializer.file] = stored_values(name, initializer.file, operand.type.nbytes)
            data[operand.id] = files[initializer.file]
        elif initializer is not None and initializer.data is not None:
            data[operand.id] = initializer.data
    return data


@runtime_checkable
class BlockSteps(Protocol):
    """An explicit program with a function for each of its operations, as a traced step is."""

    @property
    def program(self) -> BlockProgram: ...

    @property
    def functions(self) -> Mapping[str, Callable[[Any], None]]: ...


#: What an entry point runs.
Runnable = TrainableGraph | BlockSteps

_EACH: Final = "Give the graph of each entry point by name, as arenaplan.entry_graphs(model, plan) has them."


@dataclass(frozen=True, slots=True)
class EntryProgram:
    """One program of a plan with the graph that it runs; `subject` is the graph as the plan rewrites it.
    Of an explicit program the graph is empty, and there are `steps`.

    `reference` holds what the plan holds for other entry points. `persistent` has the value of the reference
    for each persistent value by name; `own` are the names of those that the program does not hold for others,
    `begins` those of which it has the first contents.
    """

    name: str
    model: str
    purpose: Purpose
    graph: TrainableGraph
    subject: TrainableGraph
    plan: Plan
    reference: Program
    persistent: Mapping[str, int]
    own: frozenset[str]
    begins: frozenset[str]
    steps: BlockSteps | None = None

    def values(self, names: Container[str]) -> frozenset[int]:
        """The values of the plan's program that hold these persistent values."""
        numbers = {number for name, number in self.persistent.items() if name in names}
        return frozenset(entry.value for entry in self.plan.program.entry if entry.reference in numbers)

    @property
    def constants(self) -> frozenset[int]:
        """The constants of the plan's program."""
        return frozenset(e.value for e in self.plan.program.entry if e.kind is EntryKind.CONSTANT)

    def data(self, values: Collection[int] | None = None) -> dict[str, bytes]:
        """The first values that the graph gives for `values` of the plan's program, by operand; by default
        for those that it begins. Raises PlanError for lost files.
        """
        initial = self.plan.program.initial
        chosen = self.values(self.begins) if values is None else values
        begun = [initial[value] for value in chosen if value in initial]
        return inline_data(self.subject, {each.source for each in begun if each.scheme == "values"})


def purpose_of(graph: TrainableGraph) -> Purpose:
    """The purpose of a run of the graph as it is."""
    return "train" if graph.trainable else "infer" if graph.loss is None else "evaluate"


def entry_programs(
    graph: Runnable | Mapping[str, Runnable], plan: Plan | Deployment, kernels: KernelSet = "numpy"
) -> tuple[tuple[EntryProgram, ...], tuple[Violation, ...]]:
    """The programs of a plan, one for each entry point, and the violations of the proof.

    Raises PlanError for graphs and plans that do not belong together, for kernels that do not run the plan,
    and where a graph is missing.
    """
    if not isinstance(plan, Plan):
        if isinstance(graph, Mapping):
            return _programs_of_deployment(graph, plan, kernels)
        names = ", ".join(repr(entry_point.name) for entry_point in plan.entry_points)
        raise PlanError(f"There is one graph for the entry points {names}.", remedy=_EACH)
    if not isinstance(graph, Runnable):
        raise PlanError(
            f"The plan of {plan.graph!r:.80} has no entry points, and there are graphs for some.",
            remedy="Give the graph that the plan is of.",
        )
    sizes = plan.planned_sizes
    if isinstance(graph, TrainableGraph) and sizes is not None and set(sizes.names) <= graph.sizes.keys():
        graph = graph.at(**sizes.largest)
    alone, digest = _read(graph, plan, kernels)
    return (alone,), check_plan(alone.reference, plan, digest)


def program_at(program: EntryProgram, sizes: Mapping[str, int]) -> EntryProgram:
    """The program at other sizes, in the places of its plan, proved: it has the first contents of nothing.

    Raises PlanError where it is wrong.
    """
    graph = program.graph.at(**sizes)
    subject = rewritten(graph, program.plan)
    kernels: KernelSet = "c" if program.plan.options.target == "c" else "numpy"
    reference = reference_program(subject, program.plan, kernels)
    plan, violations = prove_at(program.plan, program.reference, reference, graph_digest(graph))
    if violations:
        asked = ", ".join(f"{name} {size}" for name, size in sizes.items())
        detail = violations[0].detail
        raise PlanError(f"The plan is wrong at {asked}: {detail}", remedy="Plan this size by itself.")
    labels = {name: program.reference.values[number].label for name, number in program.persistent.items()}
    persistent = {name: reference.by_label[label] for name, label in labels.items()}
    return replace(
        program,
        graph=graph,
        subject=subject,
        plan=plan,
        reference=reference,
        persistent=persistent,
        begins=frozenset(),
    )


def _programs_of_deployment(
    runnables: Mapping[str, Runnable], plan: Deployment, kernels: KernelSet
) -> tuple[tuple[EntryProgram, ...], tuple[Violation, ...]]:
    violations = check_deployment_form(plan)
    if violations:
        return (), violations
    for entry_point in plan.entry_points:
        _check_runnable(entry_point, runnables)
    names = {entry_point.name for entry_point in plan.entry_points}
    unknown = [name for name in runnables if name not in names]
    if unknown:
        raise PlanError(f"The plan has no entry point {unknown[0]!r:.80}.", remedy=_entry_points(plan))
    fixed = fixed_types([(each.model, runnables[each.name], each.plan.options) for each in plan.entry_points])
    read = []
    for entry_point in plan.entry_points:
        runs, types = runnables[entry_point.name], fixed[entry_point.model]
        with _of_entry_point(entry_point):
            runs = replace(runs, fixed_types=types) if isinstance(runs, TrainableGraph) else runs
            read.append(_read(runs, entry_point.plan, kernels))
    references = held_references(plan, [program.reference for program, _ in read])
    broken = list[Violation]()
    for entry_point, (_, digest), reference in zip(plan.entry_points, read, references, strict=True):
        with _of_entry_point(entry_point):
            for violation in check_plan(reference, entry_point.plan, digest):
                detail = f"Entry point {entry_point.name!r}: {violation.detail}"
                broken.append(replace(violation, detail=detail))
    violations = tuple(broken) or prove_deployment(plan, references)
    programs, begun = list[EntryProgram](), set[str]()
    for k, (entry_point, (program, _), reference) in enumerate(
        zip(plan.entry_points, read, references, strict=True)
    ):
        entries = {entry.value: entry for entry in entry_point.plan.program.entry}
        there = {row.name: entries[row.values[k]] for row in plan.persistent if row.values[k] in entries}
        own = frozenset(name for name, entry in there.items() if entry.kind is not EntryKind.HELD)
        programs.append(
            replace(
                program,
                name=entry_point.name,
                model=entry_point.model,
                purpose=entry_point.purpose,
                reference=reference,
                persistent={name: entry.reference for name, entry in there.items()},
                own=own,
                begins=own.difference(begun),
            )
        )
        begun |= own
    return tuple(programs), violations


def _read(runs: Runnable, plan: Plan, kernels: KernelSet) -> tuple[EntryProgram, str]:
    """The program of a plan without other entry points, and the digest of its graph."""
    steps = None if isinstance(runs, TrainableGraph) else runs
    if isinstance(runs, TrainableGraph):
        graph, digest, purpose = runs, graph_digest(runs), purpose_of(runs)
        subject = rewritten(graph, plan)
        reference = reference_program(subject, plan, kernels)
    elif kernels == "c":
        raise PlanError(
            "Explicit operations run by functions of their own, and not by kernels in C.",
            remedy="Leave kernels='c' out.",
        )
    else:
        graph = TrainableGraph(Graph(runs.program.name, {}, (), ()), TrainingSpec(None, None, ()))
        subject, digest, purpose = graph, program_digest(runs.program), "run"
        reference = reference_of_steps(runs, plan)
    kept = (e.reference for e in reference.entry if e.kind in (EntryKind.CONSTANT, EntryKind.CARRIED))
    persistent = {reference.values[number].label: number for number in kept}
    names = frozenset(persistent)
    program = EntryProgram(
        purpose, graph.name, purpose, graph, subject, plan, reference, persistent, names, names, steps
    )
    return program, digest


def reference_of_steps(steps: BlockSteps, plan: Plan) -> Program:
    """The reference of a plan of an explicit program.

    Raises PlanError for an operation without a function.
    """
    missing = [o.name for o in steps.program.operations if o.name not in steps.functions]
    if missing:
        raise PlanError(f"Operation {missing[0]!r} has no function.", remedy="Give one for each operation.")
    return aligned(explicit_program(steps.program), plan.options.alignment or ALIGNMENT).program


def _check_runnable(entry_point: EntryPoint, runnables: Mapping[str, Runnable]) -> None:
    name, purpose = entry_point.name, entry_point.purpose
    graph: object = runnables.get(name)
    if purpose == "run":
        if not isinstance(graph, BlockSteps):
            raise PlanError(
                f"Entry point {name!r} runs explicit operations, and nothing has functions for them.",
                remedy="In Python, give an object with `program` and `functions`, as a traced step has them.",
            )
        return
    if not isinstance(graph, TrainableGraph):
        lacks = "There is no graph" if graph is None else f"A {type(graph).__name__} is no graph"
        raise PlanError(f"{lacks} for entry point {name!r}.", remedy=_EACH)
    if purpose_of(graph) != purpose:
        raise PlanError(
            f"Entry point {name!r} is there to {purpose}, its graph to {purpose_of(graph)}.", remedy=_EACH
        )


@contextlib.contextmanager
def _of_entry_point(entry_point: EntryPoint) -> Iterator[None]:
    """Errors name the entry point."""
    try:
        yield
    except PlanError as error:
        message = f"Entry point {entry_point.name!r}: {error.message}"
        raise PlanError(message, remedy=error.remedy, path=error.path) from error


def _entry_points(plan: Deployment) -> str:
    return f"Its entry points are {', '.join(entry_point.name for entry_point in plan.entry_points)}."
