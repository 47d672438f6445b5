"""Runs explicit programs in their planned arena, and holds every operation to what it declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from solver.errors import DanglingOperandError, PlanError
from solver.executor.memory import POISON, Memory, in_spaces
from solver.executor.proved import check_plan
from solver.executor.threads import Task, turns
from solver.graph.types import Array
from solver.plan import Plan
from solver.program import Access, EntryKind, Step, lives
from solver.targets import aligned
from solver.targets.reference import ALIGNMENT
from solver.training import BlockOperation, BlockProgram, explicit_program, program_digest

__all__ = ["BlockRunner", "BlockViews"]


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
        reference = aligned(explicit_program(program), plan.options.alignment or ALIGNMENT).program
        violations = check_plan(reference, plan, program_digest(program))
        if violations:
            raise PlanError(
                f"The plan is wrong ({len(violations)} violations): {violations[0].detail}",
                remedy="Plan again.",
            )
        missing = [o.name for o in program.operations if o.name not in functions]
        if missing:
            raise PlanError(
                f"Operation {missing[0]!r} has no function.", remedy="Give one for each operation."
            )
        self._program, self._plan, self._reference = program, plan, reference
        self._declared = {operation.name: operation for operation in program.operations}
        self._memory = in_spaces(plan)
        # In the place of another block from a step on, which reads that one: neither may be poisoned then.
        self._over = {(alias.step, alias.value) for alias in plan.program.aliases}
        covered = {alias.source for alias in plan.program.aliases}
        steps = plan.program.steps
        tasks = [self._task(t, step, functions[self._name(step)]) for t, step in enumerate(steps)]
        self._turns, self._workers = turns(tasks, [step.level for step in steps])
        kept = {e.value for e in plan.program.entry if e.kind is not EntryKind.FED}
        kept |= {exit_.value for exit_ in plan.program.exit}
        self._dying: list[list[int]] = [[] for _ in self._turns]
        for value, span in lives(plan.program).items():
            if value not in kept and value not in covered:
                self._dying[span.end - 1].append(value)

    def _name(self, step: Step) -> str:
        return self._plan.program.operations[step.operation].operation.id

    def block(self, name: str) -> Array:
        """The block in the arena. It holds what the plan says only while the block is live.

        Raises DanglingOperandError for a name that the program has no block of.
        """
        if name not in self._program.blocks:
            raise DanglingOperandError(
                f"The program has no block {name!r:.80}.",
                remedy="Use TracedStep.feed for what a traced step takes: it leaves out what nothing uses.",
            )
        return block_array(self._program, self._plan.program.by_label, self._memory, name)

    def run(self) -> None:
        """One iteration. Write what is fed before it; read what is kept after it."""
        for turn, dying in zip(self._turns, self._dying, strict=True):
            turn()
            self._poison(dying)

    def close(self) -> None:
        """End the threads, if there are any; nothing can be run afterwards."""
        self._workers.close()

    def _task(self, t: int, step: Step, function: Callable[[BlockViews], None]) -> Task:
        declared = self._declared[self._name(step)]
        original = self._reference.steps[step.reference or 0]  # explicit programs have no copies
        number = {
            self._reference.values[theirs.value].label: ours.value
            for ours, theirs in zip(step.bindings, original.bindings, strict=True)
        }
        views = BlockViews(self._program, declared, number, step, self._memory)
        unread = [b.value for b in step.bindings if b.access in (Access.WRITE, Access.SCRATCH)]
        blind = sorted(value for value in unread if (t, value) not in self._over)

        def run() -> None:
            self._poison(blind)
            function(views)

        return run

    def _poison(self, values: Iterable[int]) -> None:
        for value in values:
            self._memory.raw(value).fill(POISON)
