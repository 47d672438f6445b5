"""Runs a training program step by step in memory that is already there.

All views, slices and kernels are prepared once; an iteration then calls prepared functions and
allocates nothing of tensor size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import groupby

import numpy as np

from solver.executor.initial import initial_value
from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.executor.kernels.optimizer import prepare_accumulate, prepare_clip, prepare_update
from solver.executor.memory import POISON, Memory
from solver.executor.workers import turns
from solver.graph.nodes import graph_nodes
from solver.graph.types import Array, Graph
from solver.layout import Lifespan
from solver.liveness import lifespans
from solver.training import (
    ACCUMULATE,
    CLIP,
    SEED,
    UPDATE,
    Lifetime,
    TrainingOperandIndex,
    TrainingProgram,
    TrainingStep,
)

__all__ = ["Runner"]

Prepared = Callable[[], None]

#: Elements of NumPy's own buffers, which it takes where operands broadcast or have gaps. Its default, 8192,
#: is 64 KiB an operand in float64; smaller ones are no slower. Restored after each iteration.
_BUFFER_ELEMENTS = 2048


class Runner:
    """One training run: the program's steps bound to `memory`.

    With `poison`, a buffer's bytes are filled with NaN patterns at the end of its lifespan, so that
    reading it later cannot go unnoticed; without, steps run at full speed. The steps of a wave run at the
    same time, on threads that `close` ends; what one of them raises, `run` raises.
    """

    def __init__(
        self,
        graph: Graph,
        program: TrainingProgram,
        memory: Memory,
        *,
        scratch_budget: int,
        poison: bool = False,
    ) -> None:
        self.graph = graph
        self.program = program
        self.iteration = 0
        self._memory = memory
        self._nodes = graph_nodes(graph, scratch_budget)
        spans = lifespans(program)
        self._turns, self._workers = turns(map(self._prepare, program.steps), program.times)
        self._expired = self._expiring(spans) if poison else {}
        self._views = {i: self._view(i) for i in spans}
        self._write_initial_values()

    # -------------------------------------------------------------------------- running

    def run(self) -> None:
        """One iteration: every step in order, or wave by wave. The caller has written inputs and labels.

        Where gradients accumulate it is one micro-batch, and the last of each update applies them.
        """
        self.iteration += 1
        with np.errstate(all="ignore"):  # overflow to infinity is training's business, not a warning
            np.setbufsize(_BUFFER_ELEMENTS)
            if self._expired:
                for t, turn in enumerate(self._turns):
                    turn()
                    for raw in self._expired.get(t, ()):
                        raw.fill(POISON)
            else:
                for turn in self._turns:
                    turn()

    def close(self) -> None:
        """End the threads, if there are any; nothing can be run afterwards."""
        self._workers.close()

    def value(self, name: str) -> Array:
        """View of an operand's value; valid during its lifespan only."""
        return self._views[TrainingOperandIndex(name)]

    def persistent(self) -> dict[str, Array]:
        """Raw bytes of what must agree between two runs after a step: state, loss and outputs."""
        kept = (Lifetime.MAX, Lifetime.EPOCH)
        return {
            str(i): self._memory.raw(str(i)) for i in self._views if self.program.operands[i].lifetime in kept
        }

    # ------------------------------------------------------------------------ preparing

    def _view(self, index: TrainingOperandIndex) -> Array:
        return self._memory.view(str(index), self.program.operands[index].type)

    def _write_initial_values(self) -> None:
        for index, view in self._views.items():
            operand = self.program.operands[index]
            if operand.lifetime is not Lifetime.MAX:
                continue
            declared = self.graph.operands.get(index.operand) if index.is_forward else None
            view[...] = 0 if declared is None else initial_value(declared)

    def _expiring(self, spans: Mapping[TrainingOperandIndex, Lifespan]) -> dict[int, list[Array]]:
        """Memory to poison after each step or wave: where the lifespan of the last operand in it ends."""
        shared, shares = self.program.storages(), self.program.shares
        storages = [*shared.values(), *([i] for i in spans if i not in shared and i not in shares)]
        ends = sorted(
            (max(spans[i].end for i in storage) - 1, str(storage[0]))
            for storage in storages
            if all(map(self._is_temporary, storage))
        )
        return {
            t: [self._memory.raw(name) for _, name in group] for t, group in groupby(ends, lambda e: e[0])
        }

    def _is_temporary(self, index: TrainingOperandIndex) -> bool:
        return self.program.operands[index].lifetime not in (Lifetime.MAX, Lifetime.EPOCH)

    def _prepare(self, step: TrainingStep) -> Prepared:
        arrays = {b.slot: self._view(b.operand) for b in (*step.reads, *step.writes, *step.scratch)}
        if step.kernel == SEED:
            return partial(arrays["dx0"].fill, self.graph.training.loss_scale)
        if step.kernel == ACCUMULATE:
            return prepare_accumulate(arrays["x0"], arrays["x1"])
        if step.kernel == CLIP:
            return self._when_due(prepare_clip(self.graph.training, arrays))
        if step.kernel == UPDATE:
            return self._when_due(prepare_update(self.graph, arrays, self._updates))
        kernels = kernels_for(step.kernel)
        prepare = kernels.forward if step.index.is_forward else kernels.backward
        return prepare(self._call(step, arrays))

    def _call(self, step: TrainingStep, arrays: Mapping[str, Array]) -> Call:
        node = self._nodes[step.index.operation]
        inputs, outputs = range(len(node.operation.inputs)), range(len(node.operation.outputs))
        scratch = {b.slot: arrays[b.slot] for b in step.scratch}
        positional = {f"{slot}{i}" for slot in ("x", "y", "dx", "dy") for i in (*inputs, *outputs)}
        saved = {name: a for name, a in arrays.items() if name not in positional and name not in scratch}
        return Call(
            node,
            x=tuple(arrays.get(f"x{i}") for i in inputs),
            y=tuple(arrays.get(f"y{i}") for i in outputs),
            dy=tuple(arrays.get(f"dy{i}") for i in outputs),
            dx=tuple(arrays.get(f"dx{i}") for i in inputs),
            saved=saved,
            scratch=scratch,
            iteration=lambda: self.iteration,
        )

    def _updates(self) -> int:
        """Number of the update that the iteration belongs to, from 1."""
        return -(-self.iteration // self.graph.training.accumulate)

    def _when_due(self, step: Prepared) -> Prepared:
        """`step`, in the last iteration of each update."""
        every = self.graph.training.accumulate
        if every == 1:
            return step

        def run() -> None:
            if self.iteration % every == 0:
                step()

        return run
