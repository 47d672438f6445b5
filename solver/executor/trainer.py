"""Training inside a planned arena, for callers who bring their own data."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike

from solver.arguments import checks_arguments
from solver.errors import OptionsError, PlanError
from solver.executor.arithmetic import rewritten
from solver.executor.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from solver.executor.initial import initial_value, stored_values
from solver.executor.memory import POISON, in_spaces, slow_bytes
from solver.executor.paging_file import PagingFile
from solver.executor.run import Runner
from solver.graph import Array, Operand, Role, TrainableGraph, graph_digest
from solver.layout import Lifespan
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
    for operand in graph.operands.values():
        initializer = operand.initializer if names is None or operand.id in names else None
        if initializer is not None and initializer.file is not None:
            data[operand.id] = stored_values(operand.id, initializer.file, operand.type.nbytes)
        elif initializer is not None and initializer.data is not None:
            data[operand.id] = initializer.data
    return data


def open_paging_file(plan: Plan, path: str | os.PathLike[str] | None) -> PagingFile | None:
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
    return PagingFile(Path(path), slow_bytes(plan), POISON)


class Trainer:
    """Trains `graph` inside the arena of `plan`, from the graph's initial values.

    The steps are those of the plan: nothing is derived but the reference program that proves it. The arena
    is allocated once; a step allocates nothing of tensor size. A plan with several steps on a level
    trains on that number of threads: close the trainer, or use it in a ``with``. With a `paging_file`, a path
    that does not exist yet, all memories but the first lie in that file. Raises PlanError when the plan is
    wrong (see `solver.verify`) or belongs to another graph.

    A step that is cut short by an exception leaves memory between two iterations: from then on every method
    but `restore` and `close` raises PlanError. So does a trainer in a process that was forked from the one
    that made it, where its threads and its paging file are not its own.
    """

    @checks_arguments
    def __init__(
        self, graph: TrainableGraph, plan: Plan, *, paging_file: str | os.PathLike[str] | None = None
    ) -> None:
        subject = rewritten(graph, plan)
        reference = reference_program(subject, plan)
        violations = check_plan(reference, plan, graph_digest(graph))
        if violations:
            raise PlanError(
                f"The plan is wrong ({len(violations)} violations): {violations[0].detail}",
                remedy="Plan again.",
            )
        self.graph = graph
        self._subject = subject
        self._digest = plan.digest
        self._process = os.getpid()
        self._is_cut_short = self._is_closed = False
        self._file = open_paging_file(plan, paging_file)
        self.runner = Runner(plan.program, in_spaces(plan, self._file), inline_data(subject))
        carried = self.runner.carried()
        #: The values of the reference that one iteration leaves to the next, by label.
        self._carried = {reference.values[number].label: number for number in carried}
        self._types = {label: reference.values[number].type for label, number in self._carried.items()}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A Trainer cannot be pickled: it holds an arena. Pickle its graph and plan, and save() its state."
        )

    def close(self) -> None:
        """End the threads of a plan with several steps on a level, and remove the paging file. Twice is fine.

        What was trained can still be read and saved, unless there was a paging file.
        """
        self._is_closed = True
        if os.getpid() == self._process:
            self.runner.close()
        if self._file is not None:
            self._file.close()

    @property
    def iteration(self) -> int:
        """The number of iterations behind what the trainer has learned; micro-batches count one each."""
        return self.runner.iteration

    def step(self, batch: Mapping[str, ArrayLike]) -> float:
        """One training iteration on `batch` (an array for each input and label). Returns the loss.

        Lists become arrays. Where gradients accumulate, `batch` is a micro-batch, and the last one of each
        update changes weights. Raises PlanError when an array is missing or has another shape or an
        incompatible dtype: nothing has been changed then. Raises whatever a kernel raises, GraphError for a
        label that is no class; then nothing but `restore` or `close` is possible.
        """
        if self.graph.loss is None:
            raise PlanError(
                "The plan is one of an inference: it has no loss, and nothing is trained.",
                remedy="Call `infer`, or plan a graph with a loss.",
            )
        self._run(batch)
        return float(self.runner.value(self.graph.loss))

    def evaluate(self, batch: Mapping[str, ArrayLike]) -> float:
        """The loss of `batch`, with the weights as they stand: nothing is trained. `read` gives the outputs.

        Raises PlanError for a plan that trains or has no loss, and as `step` does.
        """
        if self.graph.trainable:
            raise PlanError(
                f"The plan trains {len(self.graph.trainable):,} parameters; an evaluation trains none.",
                remedy="Call `step`, or plan `arenaplan.evaluation(graph)`.",
            )
        return self.step(batch)

    def infer(self, inputs: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Copies of the outputs for `inputs`, an array for each, with the weights as they stand.

        Raises PlanError for a plan of a graph with a loss, and as `step` does.
        """
        if self.graph.loss is not None:
            raise PlanError(
                f"The plan computes the loss {self.graph.loss!r}, which an inference does not.",
                remedy="Plan `arenaplan.inference(graph)`, or call `step` or `evaluate`.",
            )
        self._run(inputs)
        return {name: self.read(name) for name in self.graph.outputs}

    def _run(self, batch: Mapping[str, ArrayLike]) -> None:
        self._check_usable(runs=True)
        feed(self.graph, self.runner, batch)
        self._is_cut_short = True
        self.runner.run()
        self._is_cut_short = False

    @checks_arguments
    def read(self, name: str) -> Array:
        """Copy of a parameter, an output or the loss, as it stands after the last step.

        Raises PlanError for values whose memory is reused within the step.
        """
        self._check_usable()
        program = self.runner.program
        number = program.by_label.get(name)
        operand = self.graph.operands.get(name)
        if number is None and operand is not None and operand.role in (Role.PARAMETER, Role.STATE):
            return initial_value(operand).copy()  # no step reads it, so it has no memory and never changes
        kept = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
        kept |= {exit_.value for exit_ in program.exit}
        if number not in kept:
            raise PlanError(
                f"{name!r} does not outlive the training step.",
                remedy="Name it in the graph's `outputs` before planning.",
            )
        return self.runner.value(name).copy()

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: weights, optimizer variables, running statistics, accumulated gradients, and
        the number of the iteration, from which random numbers follow; as a .safetensors file.

        The new file takes the place of an old one when it is complete: a process that is killed leaves one of
        both. Training that `restore` resumes from it is bit for bit training that never stopped, on the same
        machine with as many BLAS threads. Raises PlanError where the file cannot be written.
        """
        self._check_usable()
        carried = self.runner.carried()
        contents = {label: carried[number] for label, number in self._carried.items()}
        write_checkpoint(Path(path), Checkpoint(self._digest, self.runner.iteration, contents), self._types)

    @checks_arguments
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue where the training stood that wrote a checkpoint, whatever this trainer did before.

        Raises PlanError for a file that cannot be read, is damaged, or belongs to another plan; the trainer
        then stands where it stood.
        """
        self._check_usable(runs=True, restores=True)
        checkpoint = read_checkpoint(Path(path), self._digest, self._types)
        data = inline_data(self._subject, self.runner.constant_sources())
        contents = {self._carried[label]: array for label, array in checkpoint.contents.items()}
        self._is_cut_short = True
        self.runner.resume(contents, checkpoint.iteration, data)
        self._is_cut_short = False

    def _check_usable(self, *, runs: bool = False, restores: bool = False) -> None:
        if os.getpid() != self._process:
            raise PlanError(
                "The trainer was made in another process, from which this one was forked.",
                remedy="Make a Trainer of the same graph and plan in this process.",
            )
        if self._is_closed and (runs or self._file is not None):
            raise PlanError(
                "The trainer is closed.", remedy="Make another Trainer of the same graph and plan."
            )
        if self._is_cut_short and not restores:
            raise PlanError(
                "A step was cut short by an exception: weights may stand between two iterations.",
                remedy="Restore a checkpoint, or make another Trainer.",
            )


def feed(graph: TrainableGraph, runner: Runner, batch: Mapping[str, ArrayLike]) -> None:
    """Write a batch to the places of inputs and labels, once all of it is known to fit.

    Raises PlanError for what is missing, has another shape, or cannot become the element type.
    """
    if not isinstance(batch, Mapping):
        raise PlanError(
            f"A batch is a mapping from names to arrays, not a {type(batch).__name__}.",
            remedy=f"Give {{{', '.join(f'{name!r}: ...' for name in _fed(graph))}}}.",
        )
    arrays = {name: _fitting(operand, batch.get(name)) for name, operand in _fed(graph).items()}
    for name, array in arrays.items():
        runner.feed(name, array)


def _fed(graph: TrainableGraph) -> dict[str, Operand]:
    return {o.id: o for o in graph.operands.values() if o.role in (Role.INPUT, Role.LABEL)}


def _fitting(operand: Operand, values: ArrayLike | None) -> Array:
    """The caller's values for an operand, as an array of its shape that NumPy casts to its element type."""
    if values is None:
        raise _batch_error(
            operand, "missing", "Give an array of exactly this shape for every input and label."
        )
    if isinstance(values, np.ma.MaskedArray):
        raise _batch_error(
            operand, "a masked array", "Fill it first: kernels read the elements under the mask as well."
        )
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise _batch_error(operand, f"no array ({reason})", "Give an array of numbers.") from None
    if array.shape != operand.shape:
        remedy = "Give an array of exactly this shape for every input and label."
        raise _batch_error(operand, f"of shape {list(array.shape)}", remedy)
    if not np.can_cast(array.dtype, operand.dtype.numpy, "same_kind"):
        raise _batch_error(operand, str(array.dtype), "Convert it first.")
    return array


def _batch_error(operand: Operand, actual: str, remedy: str) -> PlanError:
    return PlanError(
        f"The batch's {operand.id!r} is {actual}; the graph takes {operand.type}.", remedy=remedy
    )
