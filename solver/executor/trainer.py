"""Training inside a planned arena, for callers who bring their own data."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from solver.errors import OptionsError, PlanError
from solver.executor.initial import initial_value, stored_values
from solver.executor.memory import POISON, in_spaces, slow_bytes
from solver.executor.paging_file import PagingFile
from solver.executor.replayed import rewritten
from solver.executor.run import Runner
from solver.graph.types import Array, Role, TrainableGraph
from solver.plan import Plan
from solver.preparations import Prepared, chosen
from solver.program import EntryKind, Program
from solver.targets import TARGETS
from solver.verify import Violation, check_labels, prove

__all__ = ["Trainer", "check_plan", "feed", "inline_data", "open_paging_file", "reference_program"]


def reference_program(graph: TrainableGraph, plan: Plan) -> Program:
    """The program that `plan` must agree with; `graph` is rewritten as the plan says.

    Raises PlanError for a plan of a target whose kernels are not here, and for options out of range.
    """
    target = TARGETS.get(plan.options.target)
    if target is None or not target.capabilities.trains:
        raise PlanError(
            f"A plan for target {plan.options.target!r} describes another runtime's memory.",
            remedy="Plan with target 'reference' to train here.",
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
_FOREIGN = frozenset({"form", "step", "entry", "exit", "initial", "name", "period"})


def check_plan(reference: Program, plan: Plan) -> tuple[Violation, ...]:
    """What is wrong with a plan beside its reference (`solver.verify.prove`), where they belong together.

    Raises PlanError when they do not: steps, or what holds values at the start and the end, differ.
    """
    with _options_of_plan():
        violations = prove(reference, plan, {})  # no target that trains holds anything longer
    violations = violations or tuple(check_labels(reference, plan.program))
    foreign = next((violation.detail for violation in violations if violation.rule in _FOREIGN), None)
    if foreign is not None:
        raise PlanError(
            f"Plan and graph do not belong together: {foreign}",
            remedy="Plan this graph again with this version, with the batch that the plan was made for.",
        )
    return violations


def inline_data(graph: TrainableGraph) -> dict[str, bytes]:
    """The values that a graph gives, inline or in files, by operand. Raises PlanError for lost files."""
    found: dict[str, bytes] = {}
    for operand in graph.operands.values():
        given = operand.initializer
        if given is not None and given.file is not None:
            found[operand.id] = stored_values(operand.id, given.file, operand.type.nbytes)
        elif given is not None and given.data is not None:
            found[operand.id] = given.data
    return found


def open_paging_file(plan: Plan, path: Path | None) -> PagingFile | None:
    """A file for all memories of a plan but those where kernels run; None without a path.

    Raises PlanError for a plan with one memory, and for a file that cannot be made.
    """
    if path is None:
        return None
    if all(space.addressable for space in plan.program.spaces):
        raise PlanError(
            "The plan has no slower memory that a file could be.",
            remedy="Plan with tiers, or leave the paging file out.",
        )
    return PagingFile(path, slow_bytes(plan), POISON)


class Trainer:
    """Trains `graph` inside the arena of `plan`, from the graph's initial values.

    The steps are those of the plan: nothing is derived but the reference program that proves it. The arena
    is allocated once; a step allocates nothing of tensor size. A plan with several steps on a level
    trains on so many threads: close the trainer, or use it in a ``with``. With a `paging_file`, a path
    that does not exist yet, all memories but the first lie in that file. Raises PlanError when the plan is
    wrong (see `solver.verify`) or belongs to another graph.
    """

    def __init__(self, graph: TrainableGraph, plan: Plan, *, paging_file: Path | None = None) -> None:
        subject = rewritten(graph, plan)
        violations = check_plan(reference_program(subject, plan), plan)
        if violations:
            raise PlanError(
                f"The plan is wrong ({len(violations)} violations): {violations[0].detail}",
                remedy="Plan again.",
            )
        self.graph = graph
        self._file = open_paging_file(plan, paging_file)
        self.runner = Runner(plan.program, in_spaces(plan, self._file), inline_data(subject))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of a plan with several steps on a level, and remove the paging file.

        What was trained can still be read, unless it lies in that file.
        """
        self.runner.close()
        if self._file is not None:
            self._file.close()

    def step(self, batch: Mapping[str, Array]) -> float:
        """One training iteration on `batch` (an array for each input and label). Returns the loss.

        Where gradients accumulate, `batch` is a micro-batch, and the last one of each update changes weights.
        Raises PlanError when an array is missing or has another shape or an incompatible dtype.
        """
        feed(self.graph, self.runner, batch)
        self.runner.run()
        return float(self.runner.value(self.graph.loss))

    def read(self, name: str) -> Array:
        """Copy of a parameter, an output or the loss, as it stands after the last step.

        Raises PlanError for values whose memory is reused within the step.
        """
        program = self.runner.program
        number = program.by_label.get(name)
        given = self.graph.operands.get(name)
        if number is None and given is not None and given.role in (Role.PARAMETER, Role.STATE):
            return initial_value(given).copy()  # no step reads it, so it has no memory and never changes
        kept = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
        kept |= {exit_.value for exit_ in program.exit}
        if number not in kept:
            raise PlanError(
                f"{name!r} does not outlive the training step.",
                remedy="Name it in the graph's `outputs` before planning.",
            )
        return self.runner.value(name).copy()


def feed(graph: TrainableGraph, runner: Runner, batch: Mapping[str, Array]) -> None:
    """Write a batch to the places of inputs and labels."""
    for operand in graph.operands.values():
        if operand.role not in (Role.INPUT, Role.LABEL):
            continue
        array = batch.get(operand.id)
        if array is None or array.shape != operand.shape:
            found = "missing" if array is None else f"of shape {list(array.shape)}"
            raise PlanError(
                f"The batch's {operand.id!r} is {found}; the graph takes {operand.type}.",
                remedy="Give an array of exactly this shape for every input and label.",
            )
        if not np.can_cast(array.dtype, operand.dtype.numpy, "same_kind"):
            raise PlanError(
                f"The batch's {operand.id!r} is {array.dtype}; the graph takes {operand.type}.",
                remedy="Convert it first.",
            )
        runner.feed(operand.id, array)
