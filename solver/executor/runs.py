"""The programs of a plan in its memory: one for each entry point, over the same persistent values."""

from __future__ import annotations

import os
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from solver.errors import PlanError
from solver.executor.blocks import StepsRunner
from solver.executor.memory import POISON, Memory, arenas, in_spaces, slow_bytes
from solver.executor.paging_file import PagingFile
from solver.executor.proved import EntryProgram, KernelSet, inline_data, program_at
from solver.executor.run import Runner
from solver.graph import Array, Operand, Role, TrainableGraph
from solver.plan import Deployment, Plan
from solver.program import Program, indices

if TYPE_CHECKING:
    from solver.executor.c_backend import CLibrary

__all__ = [
    "AtSize",
    "Runs",
    "check_paging_file",
    "feed",
    "graph_of_batch",
    "open_paging_file",
    "prepared",
    "write_batch",
]


@dataclass(frozen=True, slots=True)
class AtSize:
    """A program at one size, and what runs it in the memory of all sizes."""

    program: EntryProgram
    runner: Runner


class Runs:
    """Runs of the `programs` of a plan, in any order, in memory that they share.

    Each persistent value has got its first contents. `counts` are the iterations so far, on which dropout and
    optimizers depend; `counter` is, for each program, the one under whose name they are counted. Programs
    that train one model count together, because their optimizer variables are the same ones; every other
    program counts its own runs. Raises PlanError where the machine cannot hold a space, where first values
    are lost, and as `CLibrary`.
    """

    def __init__(
        self,
        programs: Sequence[EntryProgram],
        plan: Plan | Deployment,
        file: PagingFile | None = None,
        *,
        poison: bool = False,
        kernels: KernelSet = "numpy",
    ) -> None:
        self.programs = {program.name: program for program in programs}
        self._shares = isinstance(plan, Deployment)
        self._blocks = arenas(programs[0].plan.program.spaces, plan.sizes, file)
        self._file, self._poisons, self._bytes = file, poison, plan.sizes
        self._kernels: KernelSet = kernels
        library = self._compiled(plan)
        self.runners = {program.name: self._runner(program, library) for program in programs}
        self.counter = {
            program.name: next(p.name for p in programs if p is program or _train_together(p, program))
            for program in programs
        }
        self.counts = dict.fromkeys(self.counter.values(), 0)
        #: By program and sizes what runs there; and what each program ran with last.
        self._sizes: dict[tuple[str, tuple[int, ...]], AtSize] = {}
        self._last: dict[str, AtSize]
        self.resumed()

    def of_batch(self, name: str, batch: Mapping[str, ArrayLike]) -> AtSize:
        """The runner of a batch: of the program at the size of its arrays, proved when it is asked for first.

        Raises PlanError for a size that the plan does not serve, and for arrays of several sizes.
        """
        program = self.programs[name]
        served, resizable = program.plan.planned_sizes, program.graph.resizable
        if served is None or resizable is None or not isinstance(batch, Mapping):
            return self.at(name)
        sizes = sizes_of(resizable.axes, served.names, batch)
        return self.at(name, {each: sizes.get(each, most) for each, most in served.largest.items()})

    def at(self, name: str, sizes: Mapping[str, int] | None = None) -> AtSize:
        """The runner of a program at these sizes, else at those planned. Raises PlanError as `of_batch`."""
        program = self.programs[name]
        served = program.plan.planned_sizes
        if served is None or sizes is None or served.largest == sizes:
            return AtSize(program, self.runners[name])
        key = (name, tuple(sizes.values()))
        if key not in self._sizes:
            served.check(sizes)
            there = program_at(program, sizes)
            inside = replace(there, plan=replace(there.plan, sizes=program.plan.sizes))
            self._sizes[key] = AtSize(there, self._runner(inside, self._compiled(inside.plan)))
        return self._sizes[key]

    def _compiled(self, planned: Plan | Deployment) -> CLibrary | None:
        """The C files of a plan in the memory of all sizes; None where NumPy computes."""
        if self._kernels != "c":
            return None
        from solver.executor.c_backend import CLibrary

        return CLibrary(planned, self._blocks, poison=self._poisons)

    def _runner(self, program: EntryProgram, library: CLibrary | None) -> Runner:
        """The steps of a program in the memory of all sizes. Raises PlanError as `Runner`."""
        if library is None:
            memory = in_spaces(program.plan, self._file, self._blocks, self._bytes)
            return prepared(program, program.plan.program, memory, self._poisons)
        from solver.executor.c_backend import CRunner

        entry_point, begins = program.name if self._shares else "", program.values(program.begins)
        return CRunner(program.plan, library, program.data(), entry_point=entry_point, begins=begins)

    def last(self, name: str) -> Runner:
        """The runner of the last run of a program, whose results may still be there."""
        return self._last[name].runner

    def run(self, name: str, at: AtSize | None = None) -> None:
        """One iteration of a program, by default at the size planned. The caller has written what is fed."""
        counter = self.counter[name]
        at = at or self.at(name)
        runner = at.runner
        if runner is not (before := self._last[name].runner):
            runner.write_constants(before, at.program.data(at.program.constants))
            self._last[name] = at
        runner.iteration = self.counts[counter]
        runner.run()
        self.counts[counter] += 1

    def resumed(self) -> None:
        """Every runner of a planned size has just written its constants, and runs next."""
        self._last = {name: self.at(name) for name in self.programs}

    def poison(self) -> None:
        """Fill everything with NaN patterns that no entry point keeps from one run to the next.

        Files, and plans of one program, are left as they are.
        """
        program = next(iter(self.programs.values()))
        for space, block in enumerate(self._blocks if self._shares else ()):
            transient = np.ones(len(block), bool)
            for value in program.values(program.persistent):
                if program.plan.program.values[value].space == space:
                    low = program.plan.offsets[value]
                    transient[low : low + program.plan.program.values[value].type.nbytes] = False
            block[transient] = POISON

    def close(self) -> None:
        """End the threads, if there are any. Nothing can be run afterwards."""
        for runner in (*self.runners.values(), *(at.runner for at in self._sizes.values())):
            runner.close()


def prepared(program: EntryProgram, steps: Program, memory: Memory, poison: bool = False) -> Runner:
    """The steps of a program in memory, which writes what the program begins. Raises PlanError as `Runner`.

    `steps` are those of its plan, or its reference, which begins everything.
    """
    begins = program.values(program.begins) if steps is program.plan.program else None
    if program.steps is not None:
        # Each pure operation of a reference runs twice, which shows whether it is.
        twice = begins is None
        explicit = program.steps
        return StepsRunner(
            explicit, program.reference, steps, memory, poison=poison, begins=begins, twice=twice
        )
    data = program.data() if begins is not None else inline_data(program.subject)
    return Runner(steps, memory, data, poison=poison, begins=begins)


def write_batch(program: EntryProgram, runner: Runner, batch: Mapping[str, ArrayLike]) -> None:
    """Write what a run is fed. Raises PlanError for what is missing or does not fit."""
    if isinstance(runner, StepsRunner):
        runner.write(batch)
    else:
        feed(program.graph, runner, batch)


def _train_together(one: EntryProgram, other: EntryProgram) -> bool:
    return one.model == other.model and one.purpose == other.purpose == "train"


def check_paging_file(kernels: KernelSet, path: str | os.PathLike[str] | None) -> None:
    """Raises PlanError for a paging file with kernels in C, which have all memories in this process."""
    if kernels == "c" and path is not None:
        raise PlanError(
            "With kernels='c' slower memories are arrays of this process, and no file.",
            remedy="Leave the paging file out.",
        )


def open_paging_file(plan: Plan | Deployment, path: str | os.PathLike[str] | None) -> PagingFile | None:
    """A file for all memories of a plan but those where kernels run; None without a path.

    Raises PlanError for a plan with one memory, and for a file that cannot be made.
    """
    if path is None:
        return None
    first = plan.entry_points[0].plan if isinstance(plan, Deployment) else plan
    spaces = first.program.spaces
    if all(space.addressable for space in spaces):
        raise PlanError(
            "The plan has no slower memory that a file could be.",
            remedy="Plan with tiers, or leave the paging file out.",
        )
    return PagingFile(Path(path), slow_bytes(spaces, plan.sizes), POISON)


def sizes_of(
    axes: Mapping[str, tuple[str | None, ...]], names: Container[str], batch: Mapping[str, ArrayLike]
) -> dict[str, int]:
    """The sizes of dimensions, by their `names`, that the arrays of a batch have.

    An array with another number of axes says nothing here. Raises PlanError for two sizes of one dimension.
    """
    sizes: dict[str, tuple[int, str]] = {}
    for operand, dimensions in axes.items():
        try:
            shape = np.shape(batch.get(operand, ()))
        except ValueError:  # rows of several lengths, which `feed` names
            continue
        for name, size in zip(dimensions, shape, strict=True) if len(shape) == len(dimensions) else ():
            if name is None or name not in names:
                continue
            known, first = sizes.setdefault(name, (size, operand))
            if known != size:
                raise PlanError(
                    f"The {name} of {operand!r:.80} is {size}, that of {first!r:.80} is {known}.",
                    remedy="Give all arrays of a step the same number of examples."
                    if name == "batch"
                    else f"Give all arrays of a step the same {name}.",
                )
    return {name: size for name, (size, _) in sizes.items()}


def graph_of_batch(graph: TrainableGraph, batch: Mapping[str, ArrayLike]) -> TrainableGraph:
    """The graph at the size that the arrays of a batch have. Raises PlanError for arrays of several sizes."""
    fits = all(np.shape(batch[o.id]) == o.shape for o in _fed(graph).values() if o.id in batch)
    if fits or graph.resizable is None:
        return graph
    return graph.at(**sizes_of(graph.resizable.axes, graph.sizes, batch))


def feed(graph: TrainableGraph, runner: Runner, batch: Mapping[str, ArrayLike]) -> None:
    """Write a batch to the places of inputs and labels, once all of it is known to fit.

    Raises PlanError for what is missing, has another shape, or cannot become the element type, GraphError for
    an index or a class label that is out of range.
    """
    if not isinstance(batch, Mapping):
        raise PlanError(
            f"A batch is a mapping from names to arrays, not a {type(batch).__name__}.",
            remedy=f"Give {{{', '.join(f'{name!r}: ...' for name in _fed(graph))}}}.",
        )
    arrays = {name: _fitting(operand, batch.get(name)) for name, operand in _fed(graph).items()}
    for name, ranges in indices(runner.program).fed.items():
        for range_, positions in ranges:
            read = arrays[name] if positions is None else arrays[name].reshape(-1)[positions]
            if (value := range_.outside(read)) is not None:
                raise range_.error(value, f", in the batch's {name!r}")
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
