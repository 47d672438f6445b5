"""In place: which operands are defined in the memory of another one.

    conv ──► x ──► Relu ──► y ──► Flatten ──► z ──► Gemm         one storage, three operands:
                                                                 y overwrites x, z is a view of y
Two things may happen to a storage when a step defines an operand in it:

* the step overwrites it: only where no later step reads any of the operands whose value it holds. Gelu and
  Swish read X in their backward step, so X is not overwritten, unless no backward step comes;
* the step leaves it as it is, a view: only where neither operand is overwritten while the other is still
  read, as an accumulation would do.

Inputs, labels, parameters, states, constants, results and the loss are never overwritten. Which
kernels can do it at all, their operators say (`OperationType.in_place`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from solver.graph.ops import lookup
from solver.graph.ops.base import InPlace, Node
from solver.training import Lifetime, Share, TrainingOperandIndex, TrainingProgram, TrainingStep

__all__ = ["share_in_place"]

#: Later than every step: when what outlives the iteration is read last, and then when nothing happens.
_AFTER, _NEVER = 2**62, 2**63

#: Whether a promise may be used in a step.
Allowed = Callable[[TrainingStep, InPlace], bool]


def share_in_place(
    program: TrainingProgram, nodes: Mapping[str, Node], allowed: Allowed | None = None
) -> TrainingProgram:
    """The same steps, and `shares` with everything that can be done in place. Linear in the touches.

    Decided step by step, in the execution order; with waves, what a wave touches lives at the same time.
    """
    return replace(program, shares=_Sharing(program, nodes, allowed or _all).run())


def _all(step: TrainingStep, promise: InPlace) -> bool:
    return True


@dataclass(slots=True, eq=False)
class _Storage:
    """The operands whose value some bytes hold, until when they must stay, and when they are overwritten.

    `until` is the time of the last touch of any of them; `redefined` that of the next accumulation or
    update.
    """

    holds: set[TrainingOperandIndex]
    until: int
    redefined: int


class _Sharing:
    """Walks through the steps once; lives for one call of `share_in_place`."""

    def __init__(self, program: TrainingProgram, nodes: Mapping[str, Node], allowed: Allowed) -> None:
        self.program = program
        self.nodes = nodes
        self.allowed = allowed
        self.shares: dict[TrainingOperandIndex, Share] = {}
        self.storages: dict[TrainingOperandIndex, _Storage] = {}
        #: Steps by time: one, or those of a wave.
        self.groups: dict[int, list[TrainingStep]] = defaultdict(list)
        self.last: dict[TrainingOperandIndex, int] = {}
        self.redefinitions: dict[TrainingOperandIndex, list[int]] = defaultdict(list)
        for time, step in self._timed():
            self.groups[time].append(step)
            self.last.update(dict.fromkeys(step.touched(), time))
            for operand in {*step.uses} & {*step.defs}:
                self.redefinitions[operand].append(time)

    def _timed(self) -> Iterator[tuple[int, TrainingStep]]:
        return zip(self.program.times, self.program.steps, strict=True)

    def run(self) -> dict[TrainingOperandIndex, Share]:
        for time, step in self._timed():
            for promise in self._promises(step):
                self._keep(promise, time, step)
            for operand in step.defs:
                if operand in step.uses:
                    self._hold(self._storage(operand), operand, time)
        return self.shares

    def _promises(self, step: TrainingStep) -> Iterable[InPlace]:
        node = self.nodes.get(step.index.operation)
        if node is None or node.operation.type != step.kernel:
            return ()  # a seed, an accumulation or an update
        promises = lookup(step.kernel).in_place(node)
        return (promise for promise in promises if self.allowed(step, promise))

    def _keep(self, promise: InPlace, time: int, step: TrainingStep) -> None:
        """Let source and target of a promise share memory if the step has both and nothing forbids it."""
        source = next((b.operand for b in step.reads if b.slot == promise.source), None)
        target = next((b.operand for b in step.writes if b.slot == promise.target), None)
        if source is None or target is None or not self._fits(source, target, promise, step):
            return
        storage = self._storage(source)
        if source not in storage.holds:
            return
        if promise.view and self._may_view(storage, target):
            storage.holds.add(target)
            storage.until = max(storage.until, self._until(target))
            storage.redefined = min(storage.redefined, self._redefined(target, time))
        elif not promise.view and self._may_overwrite(storage, time):
            self._hold(storage, target, time)
        else:
            return
        self.storages[target] = storage
        self.shares[target] = Share(source, promise.view)

    def _fits(
        self, source: TrainingOperandIndex, target: TrainingOperandIndex, promise: InPlace, step: TrainingStep
    ) -> bool:
        wanted = self.program.operands[target]
        ours, theirs = wanted.type, self.program.operands[source].type
        return (
            target not in self.shares
            and target not in step.uses
            and wanted.lifetime is not Lifetime.MAX
            and ours.elements == theirs.elements
            and ours.dtype is theirs.dtype
            and not (promise.alone and len(step.writes) > 1)
        )

    def _may_view(self, storage: _Storage, target: TrainingOperandIndex) -> bool:
        return self._until(target) < storage.redefined and storage.until < self._redefined(target, -1)

    def _may_overwrite(self, storage: _Storage, time: int) -> bool:
        """Nothing is read later, and at this time one operand, once: the source."""
        if storage.until > time:
            return False
        touched = [operand for other in self.groups[time] for operand in other.touched()]
        return sum(self.storages.get(operand) is storage for operand in touched) == 1

    # ------------------------------------------------------------------------------------ storages

    def _storage(self, operand: TrainingOperandIndex) -> _Storage:
        """The storage of an operand; without one, it is alone in its own."""
        if operand not in self.storages:
            until, redefined = self._until(operand), self._redefined(operand, -1)
            self.storages[operand] = _Storage({operand}, until, redefined)
        return self.storages[operand]

    def _hold(self, storage: _Storage, operand: TrainingOperandIndex, time: int) -> None:
        """From `time` on the storage holds one operand, and what it held before is gone."""
        storage.holds = {operand}
        storage.until = self._until(operand)
        storage.redefined = self._redefined(operand, time)

    def _until(self, operand: TrainingOperandIndex) -> int:
        found = self.program.operands[operand]
        if found.is_defined_by_caller or found.lifetime.outlives_iteration:
            return _AFTER
        return self.last[operand]

    def _redefined(self, operand: TrainingOperandIndex, time: int) -> int:
        times = self.redefinitions.get(operand, [])
        position = bisect_right(times, time)
        return times[position] if position < len(times) else _NEVER
