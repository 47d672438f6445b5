"""Runs explicit programs in their planned arena, and holds every operation to what it declared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from solver.errors import DanglingOperandError, PlanError
from solver.executor.memory import POISON, Memory, check_plan, in_arenas
from solver.executor.workers import Task, turns
from solver.graph.types import Array
from solver.plan.plan import Plan
from solver.schedule import blocks_in_waves
from solver.training.explicit import BlockOperation, BlockProgram

__all__ = ["BlockRunner", "BlockViews"]


class BlockViews:
    """The blocks of one operation as tensors in the arena; what it only reads is read-only."""

    def __init__(self, program: BlockProgram, operation: BlockOperation, memory: Memory) -> None:
        self._operation = operation.name
        self._views: dict[str, Array] = {}
        writes = frozenset(operation.writes)
        for name in operation.touched:
            view = memory.view(name, program.blocks[name].type)
            view.flags.writeable = name in writes
            self._views[name] = view

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
    its last touch: a read that was not declared cannot pass for a right one. Under a plan for several
    workers the functions of a wave are called at the same time, on threads that `close` ends.
    """

    def __init__(
        self, program: BlockProgram, plan: Plan, functions: Mapping[str, Callable[[BlockViews], None]]
    ) -> None:
        """Raises PlanError when the plan is wrong or for another program, or an operation has no function."""
        program = blocks_in_waves(program, plan.options.workers)
        _check(program, plan, functions)
        check_plan(plan)
        self._program = program
        self._memory = in_arenas(plan.arenas)
        tasks = (self._task(operation, functions[operation.name]) for operation in program.operations)
        self._turns, self._workers = turns(tasks, program.times)
        self._dying: list[list[str]] = [[] for _ in self._turns]
        for _, buffer in plan.buffers():
            if not buffer.lifetime.outlives_iteration:
                self._dying[buffer.lifespan.end - 1].append(buffer.id)

    def block(self, name: str) -> Array:
        """The block in the arena. It holds what the plan says only while the block is live."""
        return self._memory.view(name, self._program.blocks[name].type)

    def run(self) -> None:
        """One iteration. Write what is fed before it; read what is kept after it."""
        for turn, dying in zip(self._turns, self._dying, strict=True):
            turn()
            self._poison(dying)

    def close(self) -> None:
        """End the threads, if there are any; nothing can be run afterwards."""
        self._workers.close()

    def _task(self, operation: BlockOperation, function: Callable[[BlockViews], None]) -> Task:
        views = BlockViews(self._program, operation, self._memory)
        blind = sorted({*operation.writes} - {*operation.reads})

        def run() -> None:
            self._poison(blind)
            function(views)

        return run

    def _poison(self, names: Iterable[str]) -> None:
        for name in names:
            self._memory.raw(name).fill(POISON)


def _check(program: BlockProgram, plan: Plan, functions: Mapping[str, object]) -> None:
    steps = [(step.id, step.uses, step.defs) for step in plan.steps]
    operations = [(o.name, o.reads, o.writes) for o in program.operations]
    sizes = {buffer.id: buffer.nbytes for _, buffer in plan.buffers()}
    same = (steps, plan.times) == (operations, tuple(program.times))
    if not same or sizes != {block.name: block.type.nbytes for block in program.blocks.values()}:
        raise PlanError("The plan was made for another program.", remedy="Plan this program.")
    missing = [operation.name for operation in program.operations if operation.name not in functions]
    if missing:
        raise PlanError(f"Operation {missing[0]!r} has no function.", remedy="Give one for each operation.")
