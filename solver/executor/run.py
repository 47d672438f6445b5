"""Runs a program step by step in memory that is already there.

All views, slices and kernels are prepared once; an iteration then calls prepared functions and
allocates nothing of tensor size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache, partial

import numpy as np

from solver.errors import PlanError
from solver.executor.conversion import prepare_conversion
from solver.executor.initial import forget_whole_values, initial_value, whole_name
from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.executor.kernels.optimizer import prepare_accumulate, prepare_clip, prepare_update
from solver.executor.memory import Memory
from solver.executor.threads import turns
from solver.graph.ops.base import Node
from solver.graph.packing import unpack
from solver.graph.types import Array, Initializer, Operand, OptimizerSpec, Role, TrainingRules
from solver.program import (
    ACCUMULATE,
    CLIP,
    CONVERT,
    COPY,
    OWN_KERNELS,
    SEED,
    UPDATE,
    Access,
    Entry,
    EntryKind,
    Initial,
    Phase,
    Program,
    Step,
    expiring,
)

__all__ = ["Runner", "first_content"]

Prepared = Callable[[], None]

#: Elements of NumPy's own buffers, which it takes where operands broadcast or have gaps. Its default, 8192,
#: is 64 KiB an operand in float64; smaller ones are no slower. Restored after each iteration.
_BUFFER_ELEMENTS = 2048

#: Inline values by the operand that has them, as raw little-endian bytes in C order.
Data = Mapping[str, bytes]


class Runner:
    """One training run: the steps of a program bound to `memory`.

    With `poison`, a region's bytes are filled with NaN patterns at the end of its life, so that
    reading it later cannot go unnoticed; without, steps run at full speed. The steps of a level run at the
    same time, on threads that `close` ends; what one of them raises, `run` raises. `begins` are the constant
    and carried values that get their first contents here, by default all. `data` has the inline values that
    these name; raises PlanError for one that is missing or changed.
    """

    def __init__(
        self,
        program: Program,
        memory: Memory,
        data: Data,
        *,
        poison: bool = False,
        begins: Collection[int] | None = None,
    ) -> None:
        self.program = program
        self._begins = {
            entry.value
            for entry in program.entry
            if entry.kind in (EntryKind.CONSTANT, EntryKind.CARRIED)
            and (begins is None or entry.value in begins)
        }
        self.iteration = 0
        self._memory = memory
        self._nodes = program.operations
        self._views = tuple(memory.view(value) for value in range(len(program.values)))
        prepared = [self._prepare(step) for step in program.steps]
        self._turns, self._workers = turns(prepared, [step.level for step in program.steps])
        self._expired = expiring(program) if poison else {}
        self._write_initial(data)

    # -------------------------------------------------------------------------- running

    def run(self) -> None:
        """One iteration: level by level. The caller has written what is fed.

        Where gradients accumulate it is one micro-batch, and the last of each update applies them.
        """
        self.iteration += 1
        with np.errstate(all="ignore"):  # overflow to infinity is training's business, not a warning
            np.setbufsize(_BUFFER_ELEMENTS)
            self.run_levels()

    def run_levels(self) -> None:
        """The steps of the iteration that began, under the caller's NumPy settings."""
        if not self._expired:
            for turn in self._turns:
                turn()
            return
        for t, turn in enumerate(self._turns):
            turn()
            for value in self._expired.get(t, ()):
                self._memory.poison(value)

    def timed(self, clock: Callable[[], int]) -> tuple[int, ...]:
        """Runs one iteration and returns the time of each level in units of `clock`. Nothing is poisoned."""
        self.iteration += 1
        steps = []
        with np.errstate(all="ignore"):
            np.setbufsize(_BUFFER_ELEMENTS)
            for turn in self._turns:
                before = clock()
                turn()
                steps.append(clock() - before)
        return tuple(steps)

    def close(self) -> None:
        """End the threads, if there are any; nothing can be run afterwards."""
        self._workers.close()

    def value(self, label: str) -> Array:
        """View of a value, of a stored one a copy of its elements; valid during its life only.

        Raises KeyError for a label that is not there.
        """
        number = self.program.by_label[label]
        self._memory.raw(number)  # what lies in a file is read again
        type_ = self.program.values[number].type
        return self._views[number] if type_.storage is None else unpack(self._views[number], type_)

    def raw(self, number: int) -> Array:
        """Bytes of a value, ``uint8[nbytes]``; valid during its life only. Of what lies in a file a copy."""
        return self._memory.raw(number)

    def feed(self, label: str, array: Array) -> None:
        """Write what the caller feeds to every place that holds it. Nothing where no step reads it.

        Raises TypeError for an array that NumPy does not cast to the value's type.
        """
        number = self.program.by_label.get(label)
        references = {entry.reference for entry in self.program.entry if entry.value == number}
        for entry in self.program.entry:
            if entry.reference in references:
                np.copyto(self._views[entry.value], array, casting="same_kind")
                self._memory.keep(entry.value)

    def kept(self) -> dict[int, Array]:
        """Raw bytes of what must agree between two runs after an iteration, by value of the reference."""
        kept = {
            entry.reference: self._memory.raw(entry.value)
            for entry in self.program.entry
            if entry.kind in (EntryKind.CONSTANT, EntryKind.HELD)
        }
        kept.update((exit_.reference, self._memory.raw(exit_.value)) for exit_ in self.program.exit)
        return kept

    def carried(self) -> dict[int, Array]:
        """Raw bytes (``uint8[nbytes]``) that one iteration leaves to the next, by value of the reference."""
        return {
            entry.reference: self._memory.raw(entry.value)
            for entry in self.program.entry
            if entry.kind is EntryKind.CARRIED
        }

    def resume(self, contents: Mapping[int, Array], iteration: int, data: Data) -> None:
        """Stand where the iteration of this number ended, which left `contents`, as `carried` has them.

        Every place of a constant that gets its first contents here is written, too: an iteration that was cut
        short may have left other bytes there. `data` has the inline values of these.
        """
        for entry in self.program.entry:
            if entry.kind is EntryKind.CARRIED:
                np.copyto(self._memory.raw(entry.value), contents[entry.reference])
                self._memory.keep(entry.value)
            elif entry.value in self._begins:
                self._write_first(entry, data)
        self.iteration = iteration

    def write_constants(self, before: Runner, data: Data) -> None:
        """Write the constants of which another runner of the same steps, which ran before in this memory, has
        other contents or types. `data` has the inline values of constants.
        """
        for entry in self.program.entry:
            number = before.program.by_label[self.program.values[entry.value].label]
            theirs = before.program.values[number].type, before.program.initial.get(number)
            ours = self.program.values[entry.value].type, self.program.initial.get(entry.value)
            if entry.kind is EntryKind.CONSTANT and ours != theirs:
                self._write_first(entry, data)

    # ------------------------------------------------------------------------ preparing

    def _write_initial(self, data: Data) -> None:
        for entry in sorted(self.program.entry, key=self._whole_of):
            if entry.value in self._begins:
                self._write_first(entry, data)
        forget_whole_values()
        _sha256.cache_clear()

    def _whole_of(self, entry: Entry) -> str:
        """The weight that the entry holds a tile of: all tiles of one are to follow each other."""
        initial = self.program.initial.get(entry.value)
        is_tile = initial is not None and initial.rows is not None
        return whole_name(self.program.values[entry.value].label) if is_tile else ""

    def _write_first(self, entry: Entry, data: Data) -> None:
        self._views[entry.value][...] = first_content(self.program, entry.value, data)
        self._memory.keep(entry.value)

    def _prepare(self, step: Step) -> Prepared:
        node = self._nodes[step.operation]
        if step.reference is None and node.operation.type == COPY:
            source, target = step.bindings
            return self._memory.copy(source.value, target.value)
        arrays = {b.slot: self._views[b.value] for b in step.bindings}
        for binding in step.bindings:
            if binding.access is Access.READ:
                arrays[binding.slot] = arrays[binding.slot].view()
                arrays[binding.slot].flags.writeable = False
        prepared = self._empty_step(step, node) or self._kernel(step, node, arrays)
        return self._when_due(prepared) if step.due else prepared

    def _empty_step(self, step: Step, node: Node) -> Prepared | None:
        """A function for a step that leaves 0 bytes, or whose operation has empty outputs; None for others.

        Zeros: nothing looks at what such a forward step saves, and no element depends on what its backward
        step derives from. What either updates stays as it is.
        """
        own = node.operation.type in OWN_KERNELS or step.phase is Phase.EXPLICIT
        left = [b for b in step.bindings if b.access.defines and self._views[b.value].size]
        if left and (own or any(output.elements for output in node.outputs)):
            return None
        return partial(_fill, [self._views[b.value] for b in left if b.access is Access.WRITE])

    def _kernel(self, step: Step, node: Node, arrays: Mapping[str, Array]) -> Prepared:
        kernel = node.operation.type
        if kernel == SEED and "loss_scale" in arrays:
            return partial(np.copyto, arrays["dx0"], arrays["loss_scale"], casting="same_kind")
        if kernel == SEED:
            return partial(arrays["dx0"].fill, node.attributes["value"])
        if kernel == CONVERT:
            return prepare_conversion(node, arrays)
        if kernel == ACCUMULATE:
            return prepare_accumulate(arrays["x0"], arrays["x1"])
        if kernel == COPY:
            return partial(np.copyto, arrays["y0"], arrays["x0"])
        if kernel == CLIP:
            return prepare_clip(TrainingRules(**node.attributes), arrays)
        if kernel == UPDATE:
            spec, rules = _optimizer(node)
            return prepare_update(spec, rules, arrays, self._updates)
        kernels = kernels_for(kernel)
        prepare = kernels.forward if step.phase is Phase.FORWARD else kernels.backward
        return prepare(self._call(step, node, arrays))

    def _call(self, step: Step, node: Node, arrays: Mapping[str, Array]) -> Call:
        inputs, outputs = range(len(node.operation.inputs)), range(len(node.operation.outputs))
        scratch = {b.slot: arrays[b.slot] for b in step.bindings if b.access is Access.SCRATCH}
        positional = {f"{slot}{i}" for slot in ("x", "y", "dx", "dy") for i in (*inputs, *outputs)}
        saved = {name: a for name, a in arrays.items() if name not in positional and name not in scratch}
        return Call(
            node,
            x=tuple(arrays.get(f"x{i}") for i in inputs),
            y=tuple(arrays.get(f"y{i}") for i in outputs),
            dy=tuple(arrays.get(f"dy{i}") for i in outputs),
            dx=tuple(arrays.get(f"dx{i}") for i in inputs),
            saved=saved,
            scratch={name: a for name, a in scratch.items() if name not in positional},
            iteration=lambda: self.iteration,
        )

    def _updates(self) -> int:
        """Number of the update that the iteration belongs to, from 1."""
        return -(-self.iteration // self.program.period)

    def _when_due(self, step: Prepared) -> Prepared:
        """`step`, in the last iteration of each update."""

        def run() -> None:
            if self.iteration % self.program.period == 0:
                step()

        return run


def first_content(program: Program, number: int, data: Data) -> Array:
    """The first content of a constant or carried value. `data` as for `Runner`.

    Raises PlanError for inline values that are missing or changed. Linear in the bytes.
    """
    value, initial = program.values[number], program.initial.get(number)
    if initial is None:
        return np.zeros(value.type.shape, value.type.dtype.numpy)
    return initial_value(Operand(value.label, value.type, Role.PARAMETER, _initializer(initial, data)))


def _fill(views: Sequence[Array]) -> None:
    for view in views:
        view.fill(0)


def _optimizer(node: Node) -> tuple[OptimizerSpec, TrainingRules]:
    """The optimizer and the training rules that the attributes of an update state."""
    attributes = dict(node.attributes)
    rules = TrainingRules(
        **{f.name: attributes.pop(f.name) for f in fields(TrainingRules) if f.name in attributes}
    )
    return OptimizerSpec(attributes.pop("optimizer"), attributes), rules


@lru_cache(maxsize=1)
def _sha256(data: bytes) -> str:
    """Tiles of one weight have the same bytes, one behind the other."""
    return hashlib.sha256(data).hexdigest()


def _initializer(initial: Initial, data: Data) -> Initializer:
    """Raises PlanError for inline values that are not there, or are others than those planned with."""
    if initial.scheme != "values":
        return Initializer(
            initial.scheme, value=initial.value, scale=initial.scale, seed=initial.seed, rows=initial.rows
        )
    stored = data.get(initial.source, initial.data)
    if stored is None or _sha256(stored) != initial.sha256:
        what = "missing" if stored is None else "not those that the plan was made with"
        raise PlanError(
            f"The first values of {initial.source!r} are {what}.",
            remedy="Give the graph that the plan was made for.",
        )
    return Initializer("values", data=stored, rows=initial.rows)
