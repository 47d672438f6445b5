"""Training inside a planned arena, for callers who bring their own data."""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Self

from numpy.typing import ArrayLike

from solver.arguments import checks_arguments
from solver.errors import PlanError
from solver.executor.blocks import StepsRunner
from solver.executor.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from solver.executor.initial import initial_value
from solver.executor.proved import KernelSet, Runnable, entry_programs
from solver.executor.run import Runner
from solver.executor.runs import Runs, check_paging_file, open_paging_file, write_batch
from solver.graph import Array, Role, TensorType, TrainableGraph
from solver.graph.packing import unpack
from solver.names import counted
from solver.plan import Deployment, Plan
from solver.plan.deployment import Purpose
from solver.preparations import with_frozen_storage
from solver.program import EntryKind, Program

__all__ = ["Trainer"]

#: The method of a trainer for each purpose, and the graph that has it.
_METHODS: Final[Mapping[Purpose, str]] = {
    "train": "step(batch)",
    "infer": "infer(inputs)",
    "evaluate": "evaluate(batch)",
    "run": "run(entry, batch)",
}
_GRAPHS: Final[Mapping[Purpose, str]] = {
    "train": "a graph with a loss and parameters that are trained",
    "infer": "`arenaplan.inference(graph)`",
    "evaluate": "`arenaplan.evaluation(graph)`",
}


class Trainer:
    """Runs the programs of `plan` in its arena, from the initial values of the graphs.

    A plan of one program takes its `graph`. A plan with entry points takes the graph of each by name; they
    run one at a time, over the same persistent values: parameters, optimizer variables, running statistics.
    An entry point of explicit operations takes an object with `program` and `functions`, as
    `arenaplan.torch.program` returns one.

    The steps are those of the plan: nothing is derived but the reference programs that prove it. The arena
    is allocated once; a step allocates nothing of tensor size. A plan with several steps on a level
    trains on that number of threads: close the trainer, or use it in a ``with``. With a `paging_file`, a path
    that does not exist yet, all memories but the first lie in that file. Raises PlanError when the plan is
    wrong (see `solver.verify`) or belongs to another graph.

    A training step that is cut short by an exception leaves memory between two iterations: from then on
    every method but `restore` and `close` raises PlanError. An inference or evaluation that is cut short has
    changed nothing that stays, and the trainer goes on. In a process that was forked from the one that made
    it, a trainer raises PlanError: its threads and its paging file are not its own there.

    A plan for ranges of sizes takes a graph of any of these, and batches of all: each size is proved at its
    first step.

    With ``kernels="c"`` the plan is one of the target `c`, of one program: its C files are compiled with the
    system's `cc`, and each step is one call. Raises PlanError where there is no compiler.
    """

    @checks_arguments
    def __init__(
        self,
        graph: TrainableGraph | Mapping[str, Runnable],
        plan: Plan | Deployment,
        *,
        paging_file: str | os.PathLike[str] | None = None,
        kernels: KernelSet = "numpy",
    ) -> None:
        programs, violations = entry_programs(graph, plan, kernels)
        if violations:
            raise PlanError(
                f"The plan is wrong ({counted(len(violations), 'violation')}): {violations[0].detail}",
                remedy="Plan again.",
            )
        self._plan = plan
        self._process = os.getpid()
        self._is_cut_short = self._is_closed = False
        check_paging_file(kernels, paging_file)
        self._file = open_paging_file(plan, paging_file)
        self._runs = Runs(programs, plan, self._file, kernels=kernels)
        self._programs = self._runs.programs
        self._harmless = {p.name for p in programs if _leaves_alone(p.plan.program, p.plan.offsets)}
        #: The entry point that ran last, whose results are still there.
        self._last: str | None = None
        #: Each value that one iteration leaves to the next, by name: an entry point that has it, and its
        #: number in the reference.
        self._carried: dict[str, tuple[str, int]] = {}
        self._types: dict[str, TensorType] = {}
        for program in programs:
            carried = {e.reference for e in program.reference.entry if e.kind is EntryKind.CARRIED}
            for name, number in program.persistent.items():
                if number in carried and name not in self._carried:
                    self._carried[name] = (program.name, number)
                    self._types[name] = program.reference.values[number].type

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
            self._runs.close()
        if self._file is not None:
            self._file.close()

    @property
    def graph(self) -> TrainableGraph:
        """The graph of the first entry point, or of a plan that has one program."""
        return next(iter(self._programs.values())).graph

    @property
    def runner(self) -> Runner:
        """The first entry point in its memory, or the program of a plan that has one."""
        return next(iter(self._runs.runners.values()))

    @property
    def iteration(self) -> int:
        """The number of iterations behind what the trainer has learned; micro-batches count one each.

        Of a plan that trains several models, those of the first one: `iterations` has all.
        """
        training = (name for name, program in self._programs.items() if program.purpose == "train")
        return self.iterations[next(training, next(iter(self._programs)))]

    @property
    def iterations(self) -> dict[str, int]:
        """The iterations of each entry point. Those that train one model count together: their optimizer
        variables are the same ones.
        """
        return {name: self._runs.counts[counter] for name, counter in self._runs.counter.items()}

    def step(self, batch: Mapping[str, ArrayLike], entry: str | None = None) -> float:
        """One training iteration on `batch` (an array for each input and label). Returns the loss.

        Lists become arrays. Where gradients accumulate, `batch` is a micro-batch, and the last one of each
        update changes weights. Raises PlanError when an array is missing or has another shape or an
        incompatible dtype, GraphError for an index or a class label in it that is out of range: nothing has
        been changed then. Raises whatever a kernel raises, GraphError for an index that the graph computes;
        then nothing but `restore` or `close` is possible. With a plan for ranges of sizes, arrays may have
        any of these; a size that the plan does not serve is a PlanError, too.

        `entry` names the entry point where several train. Raises PlanError where none does; a plan of one
        program needs a loss only, and its step trains what there is to train.
        """
        return self._loss(self._run(self._entry("train", entry), batch))

    @checks_arguments
    def evaluate(self, batch: Mapping[str, ArrayLike], entry: str | None = None) -> float:
        """The loss of `batch`, with the weights as they stand: nothing is trained. `read` gives the outputs.

        Arguments and errors as `step`; after an exception the trainer goes on.
        """
        return self._loss(self._run(self._entry("evaluate", entry), batch))

    @checks_arguments
    def infer(self, inputs: Mapping[str, ArrayLike], entry: str | None = None) -> dict[str, Array]:
        """Copies of the outputs for `inputs`, an array for each, with the weights as they stand.

        Arguments and errors as `step`; after an exception the trainer goes on.
        """
        return self._outputs(self._run(self._entry("infer", entry), inputs))

    @checks_arguments
    def run(self, entry: str, batch: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """One run of an entry point, whatever it is for: copies of its outputs, and of its loss.

        Explicit operations take an array for each block that is fed, and return the blocks that are kept; a
        traced step takes its arguments by name, and returns by path what the function returned. Arguments and
        errors as `step`.
        """
        name = self._run(self._entry(None, entry), batch)
        runner, loss = self._runs.last(name), self._programs[name].graph.loss
        if isinstance(runner, StepsRunner):
            return runner.results()
        return self._outputs(name) | ({} if loss is None else {loss: self._value(name, loss)})

    @checks_arguments
    def blocks(self, entry: str) -> StepsRunner:
        """The blocks of an entry point that runs explicit operations, by ``blocks(entry).block(name)``.

        Write first values of persistent blocks there that the steps have none for. Raises PlanError for an
        entry point of a graph.
        """
        self._check_usable(runs=True)
        runner = self._runs.last(self._entry("run", entry))
        assert isinstance(runner, StepsRunner)
        return runner

    def _entry(self, purpose: Purpose | None, name: object) -> str:
        """The entry point of this name and purpose; without a name the only one of its purpose."""
        known = ", ".join(f"{p.name!r} ({p.purpose})" for p in self._programs.values())
        if name is not None and (not isinstance(name, str) or name not in self._programs):
            raise PlanError(f"There is no entry point {name!r:.80}.", remedy=f"There are {known}.")
        fits = (None, "train") if isinstance(self._plan, Plan) and self.graph.loss else (None,)
        fitting = [p.name for p in self._programs.values() if purpose in (*fits, p.purpose)]
        if name is not None and name not in fitting:
            theirs = self._programs[name].purpose
            raise PlanError(
                f"Entry point {name!r} is there to {theirs}, not to {purpose}.",
                remedy=f"Call `{_METHODS[theirs]}`.",
            )
        if name is not None or len(fitting) == 1:
            return name or fitting[0]
        if purpose is not None and not fitting:
            others = "` or `".join(dict.fromkeys(_METHODS[p.purpose] for p in self._programs.values()))
            raise PlanError(
                f"The plan has no program to {purpose}; it has {known}.",
                remedy=f"Call `{others}`, or plan {_GRAPHS[purpose]}, alone or as an entry point.",
            )
        raise PlanError(
            f"The plan has {len(fitting)} entry points to {purpose}.",
            remedy=f"Name one: entry={fitting[0]!r}. There are {', '.join(map(repr, fitting))}.",
        )

    def _run(self, name: str, batch: Mapping[str, ArrayLike]) -> str:
        self._check_usable(runs=True)
        at = self._runs.of_batch(name, batch)
        write_batch(at.program, at.runner, batch)
        self._last = None
        self._is_cut_short = name not in self._harmless
        self._runs.run(name, at)
        self._is_cut_short = False
        self._last = name
        return name

    def _loss(self, name: str) -> float:
        return float(self._runs.last(name).value(str(self._programs[name].graph.loss)))

    def _outputs(self, name: str) -> dict[str, Array]:
        return {output: self._value(name, output) for output in self._programs[name].graph.outputs}

    def _value(self, entry: str, label: str) -> Array:
        model = self._programs[entry].model
        return self.read(label if isinstance(self._plan, Plan) else self._plan.name_of(model, label))

    @checks_arguments
    def read(self, name: str) -> Array:
        """Copy of a parameter or another persistent value as it stands, or of an output or the loss.

        Outputs and the loss are those of the last run: the next one, of any entry point, takes their memory.
        In a plan of several models, names have the name of the model in front, as ``encoder.w1``. Raises
        PlanError for values whose memory is reused, within a step or since.
        """
        self._check_usable()
        labels = self._labels(name)
        for kept in (_staying, _results):
            for entry, label in labels.items():
                program = self._programs[entry].plan.program
                if program.by_label.get(label, -1) not in kept(program):
                    continue
                if kept is _results and entry != self._last:
                    raise PlanError(
                        f"{name!r} is a result of {entry!r}, which is not what ran last: its memory holds"
                        " something else.",
                        remedy=f"Read it behind a run of {entry!r}, before the next run.",
                    )
                return self._runs.last(entry).value(label).copy()
        for entry, label in labels.items():
            planned = self._programs[entry]
            stored = with_frozen_storage(planned.graph, planned.plan.options.frozen_storage)
            operand = stored.operands.get(label)
            if operand is not None and operand.role in (Role.PARAMETER, Role.STATE):
                # No step reads it, or steps read tiles of it: it never changes.
                first = initial_value(operand)
                return first.copy() if operand.type.storage is None else unpack(first, operand.type)
        raise PlanError(
            f"{name!r} does not outlive the step that computes it.",
            remedy="Name it in the graph's `outputs` before planning.",
        )

    def _labels(self, name: str) -> dict[str, str]:
        """The label of a value in the programs that may have it, first in the one that ran last."""
        labels = {}
        for entry in sorted(self._programs, key=lambda entry: entry != self._last):
            model = self._programs[entry].model
            prefix = "" if isinstance(self._plan, Plan) else self._plan.name_of(model, "")
            if name.startswith(prefix):
                labels[entry] = name.removeprefix(prefix)
        return labels

    @checks_arguments
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: weights, optimizer variables, running statistics, accumulated gradients, and
        the numbers of iterations, from which random numbers follow; as a .safetensors file.

        The new file takes the place of an old one when it is complete: a process that is killed leaves one of
        both. Training that `restore` resumes from it is bit for bit training that never stopped, on the same
        machine with as many BLAS threads. Raises PlanError where the file cannot be written.
        """
        self._check_usable()
        raw = {entry: runner.carried() for entry, runner in self._runs.runners.items()}
        contents = {name: raw[entry][number] for name, (entry, number) in self._carried.items()}
        checkpoint = Checkpoint(self._plan.digest, self._runs.counts, contents)
        write_checkpoint(Path(path), checkpoint, self._types)

    @checks_arguments
    def restore(self, path: str | os.PathLike[str]) -> None:
        """Continue where the training stood that wrote a checkpoint, whatever this trainer did before.

        Raises PlanError for a file that cannot be read, is damaged, or belongs to another plan; the trainer
        then stands where it stood.
        """
        self._check_usable(runs=True, restores=True)
        checkpoint = read_checkpoint(Path(path), self._plan.digest, self._types, self._runs.counts)
        data = {
            name: program.data(program.constants & program.values(program.begins))
            for name, program in self._programs.items()
        }
        self._is_cut_short, self._last = True, None
        self._runs.counts.update(checkpoint.iterations)
        for entry, runner in self._runs.runners.items():
            persistent = self._programs[entry].persistent
            contents = {
                persistent[name]: array for name, array in checkpoint.contents.items() if name in persistent
            }
            runner.resume(contents, self.iterations[entry], data[entry])
        self._runs.resumed()
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


def _staying(program: Program) -> set[int]:
    """The values that a program leaves to its next run, but for those that it holds for others."""
    return {e.value for e in program.entry if e.kind in (EntryKind.CONSTANT, EntryKind.CARRIED)}


def _results(program: Program) -> set[int]:
    return {exit_.value for exit_ in program.exit}


def _leaves_alone(program: Program, offsets: Sequence[int]) -> bool:
    """Whether no step writes a byte of what stays from one run to the next, not even for a while."""
    if any(entry.kind is EntryKind.CARRIED for entry in program.entry):
        return False

    def place(value: int) -> tuple[int, int, int]:
        return program.values[value].space, offsets[value], offsets[value] + program.values[value].type.nbytes

    staying = sorted(place(e.value) for e in program.entry if e.kind is not EntryKind.FED)
    for value in {b.value for step in program.steps for b in step.bindings if b.access.writes}:
        space, low, high = place(value)
        before = bisect_left(staying, (space, high))
        if before and staying[before - 1][0] == space and staying[before - 1][2] > low:
            return False
    return True
