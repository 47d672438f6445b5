"""One operation by itself: its node as the graph builds it, its kernels on poisoned, aligned arrays.

A kernel gets what its operator asked for and nothing else: an input or output that the backward step
did not declare is ``None``, scratch and results are poison, and what is read must not change. A state
that the forward step updates is a copy of the value given, anew for each step that is prepared.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any

import numpy as np

from solver.executor.kernels import kernels_for
from solver.executor.kernels.base import Call
from solver.graph.nodes import resolve
from solver.graph.ops import lookup
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET, BackwardNeeds, Node, ScratchRequest
from solver.graph.packing import pack
from solver.graph.storage import Storage
from solver.graph.types import Array, DType, Initializer, Operand, Operation, Role, TensorType

_POISON = 0xFF  # NaN in both floating types, -1 in the integers, true in bool
_ALIGNMENT = 64

Values = Sequence[Array | None]

#: The derivative of the only output, or one for each; None where nothing depends on an output.
Derivatives = Array | Sequence[Array | None]


def _dtype(value: Array) -> DType:
    """Raises ValueError for a type that no operator computes in."""
    found = DType(value.dtype.name)
    if found.is_storage:
        raise ValueError(f"{found.value} is a type of storage")
    return found


def poisoned(type_: TensorType) -> Array:
    """A C-contiguous array at a multiple of 64 bytes, full of poison."""
    block = np.full(type_.nbytes + _ALIGNMENT, _POISON, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + type_.nbytes].view(type_.dtype.numpy).reshape(type_.shape)


def placed(values: Array) -> Array:
    """A copy of `values` in an aligned array."""
    array = poisoned(TensorType(values.shape, _dtype(values)))
    np.copyto(array, values)
    return array


def normal(*shape: int, dtype: str = "float64", seed: int = 9) -> Array:
    """The same numbers each time, from the normal distribution."""
    return np.asarray(np.random.default_rng((seed, *shape)).standard_normal(shape), dtype)


class OneOperation:
    """`type` applied to `values` (``None`` for an input left out); integer inputs are constants.

    Inputs that are `stored`, by position, are packed: kernels and `values` have their bytes.
    """

    def __init__(
        self,
        type_: str,
        values: Values,
        *,
        scratch_budget: int = DEFAULT_SCRATCH_BUDGET,
        outputs: int = 1,
        stored: Mapping[int, Storage] = MappingProxyType({}),
        **attributes: Any,
    ) -> None:
        self.type, self.attributes = type_, attributes
        self.kind = lookup(type_)
        self.values = [None if value is None else placed(np.asarray(value)) for value in values]
        self.kernels = kernels_for(type_)
        names = tuple("" if value is None else f"x{i}" for i, value in enumerate(self.values))
        defined = tuple(f"y{i}" for i in range(self.kind.outputs or outputs))
        operation = Operation("op", type_, names, defined, attributes)
        operands = {
            name: _operand(name, value, is_constant=i in self.kind.constant_inputs, storage=stored.get(i))
            for i, (name, value) in enumerate(zip(names, self.values, strict=True))
            if value is not None
        }
        for i in stored:
            self.values[i] = placed(pack(_present(self.values[i]), operands[names[i]].type))
        self.types = self.kind.infer(resolve(operation, operands, scratch_budget))
        for name, output in zip(defined, self.types, strict=True):
            operands[name] = Operand(name, output, Role.INTERMEDIATE)
        self.node: Node = resolve(operation, operands, scratch_budget)
        #: What the forward step changes in place, by position; filled by `prepare_forward`.
        self.states: dict[int, Array] = {}
        #: The number that kernels see as that of the training iteration.
        self.iteration = 1

    # ------------------------------------------------------------------------------------- running

    def prepare_forward(self) -> tuple[list[Array], Callable[[], None]]:
        """(outputs, the prepared step)."""
        outputs = [poisoned(type_) for type_ in self.types]
        self.saved = _arrays(self.kind.saved(self.node))
        self.states = {i: placed(_present(self.values[i])) for i in sorted(self.kind.updates(self.node))}
        call = Call(
            self.node,
            x=tuple(self.states.get(i, value) for i, value in enumerate(self.values)),
            y=tuple(outputs),
            saved=self.saved,
            scratch=_arrays(self.kind.forward_scratch(self.node)),
            iteration=lambda: self.iteration,
        )
        return outputs, self.kernels.forward(call)

    def forward(self) -> Array:
        """The first output."""
        return self.forward_all()[0]

    def forward_all(self) -> list[Array]:
        """All outputs, computed twice; the second run starts from the results of the first."""
        before = _bytes(self.values)
        outputs, step = self.prepare_forward()
        step()
        first = _bytes(outputs)
        for position, state in self.states.items():
            np.copyto(state, _present(self.values[position]))
        step()
        assert _bytes(outputs) == first, "the forward step depends on what its memory held"
        assert _bytes(self.values) == before, "the forward step changed an input"
        return outputs

    def needs(self, *wanted: int) -> BackwardNeeds:
        return self.kind.backward(self.node, frozenset(wanted))

    def prepare_backward(
        self, dy: Derivatives, *wanted: int, outputs: Sequence[Array] | None = None
    ) -> tuple[dict[int, Array], Callable[[], None]]:
        """(derivatives of the inputs in `wanted`, the prepared step), given the derivative of Y.

        `outputs` are those of the forward step, if it has run already.
        """
        needs, y = self.needs(*wanted), self.forward_all() if outputs is None else outputs
        given = [dy] if isinstance(dy, np.ndarray) else dy
        dx = {i: poisoned(self.node.input(i)) for i in wanted}
        call = Call(
            self.node,
            x=tuple(value if i in needs.inputs else None for i, value in enumerate(self.values)),
            y=tuple(value if k in needs.outputs else None for k, value in enumerate(y)),
            dy=tuple(None if value is None else placed(value) for value in given),
            dx=tuple(dx.get(i) for i in range(len(self.values))),
            saved={name: self.saved[name] for name in needs.saved},
            scratch=_arrays(needs.scratch),
            iteration=lambda: self.iteration,
        )
        return dx, self.kernels.backward(call)

    def backward(self, dy: Derivatives, *wanted: int) -> dict[int, Array]:
        before = _bytes(self.values)
        dx, step = self.prepare_backward(dy, *wanted)
        step()
        first = _bytes(list(dx.values()))
        step()
        assert _bytes(list(dx.values())) == first, "the backward step depends on what its memory held"
        assert _bytes(self.values) == before, "the backward step changed an input"
        return dx

    # ---------------------------------------------------------------------------------- derivatives

    def slopes(
        self, dy: Sequence[Array | None], moves: Sequence[tuple[int, Array]], step: float = 1e-6
    ) -> list[float]:
        """d sum(Y dY) as the input at a position moves along a direction, by central differences.

        Floating inputs have to be float64.
        """
        outputs, run = self.prepare_forward()
        found = []
        for position, direction in moves:
            x = _present(self.values[position])
            assert x.dtype == np.float64, "central differences need float64"
            before, sums = x.copy(), list[float]()
            for distance in (step, -step):
                np.copyto(x, before + distance * direction)
                run()
                pairs = zip(outputs, dy, strict=True)
                sums.append(sum(float(np.vdot(y, given)) for y, given in pairs if given is not None))
            np.copyto(x, before)
            found.append((sums[0] - sums[1]) / (2 * step))
        return found

    def assert_derivatives(self, tolerance: float = 1e-6) -> None:
        """Derivatives are slopes along three random directions, for all outputs and for each of several.

        Every set of derivatives asked for has the values of all of them. `tolerance` is a ratio to the norm
        of what the elements add to the slope, so one wrong element shows in a tensor of any size.
        """
        rng = np.random.default_rng(5)
        whole = [rng.standard_normal(t.shape) if t.dtype.is_floating else None for t in self.types]
        alone = [[dy if i == k else None for i, dy in enumerate(whole)] for k in range(len(whole))]
        positions = sorted(self.kind.differentiable(self.node))
        for dy in (whole, *(alone if len(whole) > 1 else ())):
            outputs, found = self.forward_all(), self.backward(dy, *positions)
            for wanted in _subsets(positions):
                part, step = self.prepare_backward(dy, *wanted, outputs=outputs)
                step()
                for i in wanted:
                    np.testing.assert_allclose(part[i], found[i], rtol=1e-10, atol=1e-12)
            moves = [(i, rng.standard_normal(found[i].shape)) for i in positions * 3]
            for (i, direction), slope in zip(moves, self.slopes(dy, moves), strict=True):
                terms = found[i] * direction
                error = abs(float(terms.sum()) - slope)
                assert error <= tolerance * (1e-2 + float(np.linalg.norm(terms))), f"derivative {i}: {error}"

    def assert_lean(self, limit: int = 64 * 1024) -> None:
        """No step allocates memory of tensor size: forward, nor backward for each derivative and for all."""
        assert allocated(self.prepare_forward()[1], limit) < limit
        dy = [np.ones(t.shape, t.dtype.numpy) for t in self.types]
        positions = tuple(sorted(self.kind.differentiable(self.node)))
        for wanted in dict.fromkeys([*((i,) for i in positions), positions]):
            assert not wanted or allocated(self.prepare_backward(dy, *wanted)[1], limit) < limit


def allocated(step: Callable[[], object], limit: int = 0) -> int:
    """Bytes that one call of `step` holds at its peak beyond what was there, after a call to warm up.

    The least of three calls, or the first below `limit`: `tracemalloc` counts what other threads of the
    process allocate, too, and what finalizers of other tests' garbage do: so no garbage is collected then.
    """
    step()
    collects = gc.isenabled()
    gc.disable()
    try:
        peaks = [_peak(step)]
        while peaks[-1] >= limit and len(peaks) < 3:
            peaks.append(_peak(step))
        return min(peaks)
    finally:
        if collects:
            gc.enable()


def _peak(step: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _subsets(positions: Sequence[int]) -> Iterator[tuple[int, ...]]:
    for size in range(1, len(positions) + 1):
        yield from combinations(positions, size)


def _operand(name: str, value: Array, *, is_constant: bool, storage: Storage | None) -> Operand:
    type_ = TensorType(value.shape, _dtype(value), storage)
    if type_.dtype.is_floating and not is_constant:
        return Operand(name, type_, Role.INPUT)
    return Operand(name, type_, Role.CONSTANT, Initializer("values", value.tobytes()))


def _arrays(requests: Sequence[ScratchRequest]) -> Mapping[str, Array]:
    return {request.name: poisoned(request.type) for request in requests}


def _present(value: Array | None) -> Array:
    assert value is not None
    return value


def _bytes(arrays: Values) -> list[bytes]:
    return [array.tobytes() for array in arrays if array is not None]
