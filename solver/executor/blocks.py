"""Runs explicit programs in their planned arena, and holds every operation to what it declared."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from solver.errors import DanglingOperandError, PlanError
from solver.executor.memory import POISON, Memory, in_spaces
from solver.executor.proved import BlockSteps, check_plan, reference_of_steps
from solver.executor.run import Data, Runner
from solver.executor.threads import Task
from solver.graph.types import Array
from solver.importers.traced import TracedStep
from solver.names import counted
from solver.plan import Plan
from solver.program import Access, Entry, EntryKind, Program, Step, is_pure
from solver.training import BlockOperation, BlockProgram, program_digest

__all__ = ["BlockRunner", "BlockViews", "Steps", "StepsRunner"]


def block_array(program: BlockProgram, number: Mapping[str, int], memory: Memory, name: str) -> Array:
    """A block or view of the program in the arena; `number` has the values of the plan by block."""
    block = program.blocks[name]
    if block.view is None:
        return memory.view(number[name])
    raw = memory.raw(number[block.view.of])
    strides = block.view.byte_strides(block.type)
    return np.ndarray(block.type.shape, block.type.dtype.numpy, raw, block.view.offset, strides)


class BlockViews:
    """The blocks of one operation as tensors in the arena; what it only reads is read-only.

    `number` has the values of the plan by block, as the step binds them.
    """

    def __init__(
        self,
        program: BlockProgram,
        declared: BlockOperation,
        number: Mapping[str, int],
        step: Step,
        memory: Memory,
    ) -> None:
        self._operation = declared.name
        self._views = {name: block_array(program, number, memory, name) for name in declared.touched}
        for name, view in self._views.items():
            view.flags.writeable = name in declared.writes
        scratch = [b.value for b in step.bindings if b.access is Access.SCRATCH]
        self._workspace = memory.raw(scratch[0]) if scratch else None

    @property
    def workspace(self) -> Array:
        """The bytes that the operation asks for besides. Raises DanglingOperandError if it asks for none."""
        if self._workspace is None:
            raise DanglingOperandError(
                f"Operation {self._operation!r} has no workspace.",
                remedy="Declare its bytes, and plan again.",
            )
        return self._workspace

    def __getitem__(self, name: str) -> Array:
        """Raises DanglingOperandError for a block that the operation does not declare."""
        if name not in self._views:
            raise DanglingOperandError(
                f"Operation {self._operation!r} touches {name!r} without declaring it.",
                remedy="Add the block to what the operation reads or writes, and plan again.",
            )
        return self._views[name]


@dataclass(frozen=True, slots=True)
class Steps:
    """A program with a function for each of its operations."""

    program: BlockProgram
    functions: Mapping[str, Callable[[BlockViews], None]]


def block_tasks(
    steps: BlockSteps, reference: Program, program: Program, memory: Memory, *, twice: bool = False
) -> list[Task]:
    """A function for each step of a plan's `program`, which calls that of the operation on its blocks.

    What the operation writes without reading is poison before. With `twice` a pure operation that updates
    nothing runs again at once, and PlanError is raised where that leaves other bits: it was not pure.
    """
    declared = {operation.name: operation for operation in steps.program.operations}
    # In the place of another block from a step on, which reads that one: neither may be poisoned then.
    over = {(alias.step, alias.value) for alias in program.aliases}

    def task(t: int, step: Step) -> Task:
        if step.reference is None:
            source, target = (binding.value for binding in step.bindings)
            return memory.copy(source, target)
        name = program.operations[step.operation].operation.id
        original = reference.steps[step.reference]
        number = {
            reference.values[theirs.value].label: ours.value
            for ours, theirs in zip(step.bindings, original.bindings, strict=True)
        }
        views = BlockViews(steps.program, declared[name], number, step, memory)
        unread = [b.value for b in step.bindings if b.access in (Access.WRITE, Access.SCRATCH)]
        blind = sorted(value for value in unread if (t, value) not in over)
        function = steps.functions[name]

        def run() -> None:
            for value in blind:
                memory.raw(value).fill(POISON)
            function(views)

        if not twice or not is_pure(program, step) or any(b.access is Access.UPDATE for b in step.bindings):
            return run
        written = [b.value for b in step.bindings if b.access is Access.WRITE]
        return partial(_run_twice, name, run, memory, {program.values[v].label: v for v in written})

    return [task(t, step) for t, step in enumerate(program.steps)]


def spreading_tasks(reference: Program, program: Program, memory: Memory) -> list[Task]:
    """Functions that copy what callers have written to the block of a name to each place where it starts.

    What is not touched for long enough may start in slower memory, and in the first one besides.
    """
    fed = [entry for entry in program.entry if entry.kind is EntryKind.FED]
    named = {e.value: program.by_label[reference.values[e.reference].label] for e in fed}
    written = [partial(memory.keep, value) for value in dict.fromkeys(named.values())]
    return [*written, *(memory.copy(source, value) for value, source in named.items() if source != value)]


def _run_twice(name: str, run: Task, memory: Memory, written: Mapping[str, int]) -> None:
    run()
    first = {label: memory.raw(value).copy() for label, value in written.items()}
    run()
    for label, value in written.items():
        if not np.array_equal(first[label], memory.raw(value)):
            raise PlanError(
                f"Operation {name!r} says that it is pure, but its second run on the same bits left others in"
                f" {label!r}.",
                remedy="Leave pure out; or let it read, and write, the state that it depends on as a block.",
            )


class StepsRunner(Runner):
    """Runs an explicit program as `Runner` runs the programs of graphs, in memory that is already there.

    Of what it begins, blocks get the values that the steps have, as a traced step does; others are left to
    the caller.
    """

    def __init__(
        self,
        steps: BlockSteps,
        reference: Program,
        program: Program,
        memory: Memory,
        *,
        poison: bool = False,
        begins: Collection[int] | None = None,
        twice: bool = False,
    ) -> None:
        """`twice` as for `block_tasks`."""
        self._steps = steps
        self._tasks = iter(block_tasks(steps, reference, program, memory, twice=twice))
        self._spreading = spreading_tasks(reference, program, memory)
        super().__init__(program, memory, {}, poison=poison, begins=begins)

    def spread(self) -> None:
        """Copy what the caller wrote to each place where it starts."""
        for copy in self._spreading:
            copy()

    def run(self) -> None:
        self.spread()
        super().run()

    def block(self, name: str) -> Array:
        """The block in the arena. It holds what the plan says only while the block is live.

        Raises DanglingOperandError for a name that the program has no block of.
        """
        if name not in self._steps.program.blocks:
            raise DanglingOperandError(
                f"The program has no block {name!r:.80}.",
                remedy="Use TracedStep.feed for what a traced step takes: it leaves out what nothing uses.",
            )
        return block_array(self._steps.program, self.program.by_label, self._memory, name)

    def write(self, arrays: Mapping[str, ArrayLike]) -> None:
        """Write what is fed, by block, or by argument of a traced step. Raises PlanError for what is missing
        or does not fit.
        """
        steps, fed = self._steps, {name for name, b in self._steps.program.blocks.items() if b.fed}
        if isinstance(steps, TracedStep):
            written = {steps.arguments[name].block for name in arrays if name in steps.arguments}
            named = {place.block: name for name, place in steps.arguments.items()}
        else:
            written, named = {*arrays}, {name: name for name in fed}
            unknown = sorted(written - fed)
            if unknown:
                raise PlanError(
                    f"{unknown[0]!r:.80} is no block that is fed.",
                    remedy=f"Blocks that are fed: {', '.join(sorted(fed))}.",
                )
        missing = sorted(named[block] for block in fed - written if block in self.program.by_label)
        if missing:
            raise PlanError(f"{missing[0]!r:.80} is missing.", remedy="Give an array for all that is fed.")
        for name, values in arrays.items():
            array = np.asarray(values)
            if isinstance(steps, TracedStep):
                steps.feed(self, name, array)
                continue
            block = self.block(name)
            if array.shape != block.shape or not np.can_cast(array.dtype, block.dtype, "same_kind"):
                raise PlanError(
                    f"{name!r:.80} is {array.dtype}{list(array.shape)}; the block is"
                    f" {block.dtype}{list(block.shape)}.",
                    remedy="Give an array of exactly this shape, and convert it first.",
                )
            block[...] = array

    def synthetic(self, seed: int, step: int) -> dict[str, Array]:
        """Arrays for `write`, repeatable from a seed: floats standard normal, others 0 or 1."""
        blocks = self._steps.program.blocks
        types = {name: (b.type.shape, b.type.dtype.numpy) for name, b in blocks.items() if b.fed}
        if isinstance(self._steps, TracedStep):
            arguments = self._steps.arguments.items()
            types = {name: (p.shape, p.numpy) for name, p in arguments if p.block in types}
        arrays: dict[str, Array] = {}
        for name, (shape, dtype) in types.items():
            rng = np.random.default_rng([seed, step, zlib.crc32(name.encode())])
            drawn = rng.standard_normal(shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
            arrays[name] = drawn.astype(dtype)
        return arrays

    def results(self) -> dict[str, Array]:
        """Copies of what the last run left: kept blocks by name, or what a traced step returned by path."""
        steps = self._steps
        if isinstance(steps, TracedStep):
            paths = [place.path for place in steps.results]
            return dict(zip(paths, steps.read(self), strict=True))
        return {name: self.block(name).copy() for name, b in steps.program.blocks.items() if b.kept}

    def _prepare(self, step: Step) -> Task:
        return next(self._tasks)

    def _write_first(self, entry: Entry, data: Data) -> None:
        values = getattr(self._steps, "values", {}).get(self.program.values[entry.value].label)
        if values is not None:
            flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            np.copyto(self._memory.raw(entry.value), flat)
            self._memory.keep(entry.value)


class BlockRunner:
    """Runs a program in the arena of its plan, one function an operation.

    What an operation writes without reading is poison when it starts, and a block is poison again after
    its last touch: a read that was not declared cannot pass for a right one. Under a plan with several
    steps on a level their functions are called at the same time, on threads that `close` ends.
    """

    def __init__(
        self, program: BlockProgram, plan: Plan, functions: Mapping[str, Callable[[BlockViews], None]]
    ) -> None:
        """Raises PlanError when the plan is wrong or for another program, or an operation has no function."""
        steps = Steps(program, functions)
        reference = reference_of_steps(steps, plan)
        violations = check_plan(reference, plan, program_digest(program))
        if violations:
            raise PlanError(
                f"The plan is wrong ({counted(len(violations), 'violation')}): {violations[0].detail}",
                remedy="Plan again.",
            )
        memory = in_spaces(plan)
        self._runner = StepsRunner(steps, reference, plan.program, memory, poison=True, begins=())

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A BlockRunner cannot be pickled or copied: it holds an arena. Pickle its program and plan."
        )

    def block(self, name: str) -> Array:
        """The block in the arena. It holds what the plan says only while the block is live.

        Raises DanglingOperandError for a name that the program has no block of.
        """
        return self._runner.block(name)

    def run(self) -> None:
        """One iteration. Write what is fed before it; read what is kept after it."""
        self._runner.spread()
        self._runner.run_levels()

    def close(self) -> None:
        """End the threads, if there are any; nothing can be run afterwards."""
        self._runner.close()
