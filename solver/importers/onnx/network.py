"""The graph that an import writes: operands and operations under names of their own, typed as they come."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.errors import DocumentError, TooManyOperationsError
from solver.graph import (
    MAX_OPERATIONS,
    Array,
    AttributeValue,
    DType,
    Initializer,
    Operand,
    Operation,
    Role,
    TensorType,
)
from solver.importers.recorder import GraphRecorder
from solver.importers.widened import Origin

__all__ = ["Constant", "Network", "Sequence_", "Tensor", "Unknown", "Value"]

_DTYPES: Final = {dtype.numpy: dtype for dtype in DType}
#: Characters of a name; longer names of operands are shortened.
_MAX_NAME_CHARACTERS: Final = 1024


@dataclass(frozen=True, slots=True)
class Tensor:
    """An operand of the graph."""

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """Values that are known at import. They become an operand only where an operation reads them.

    `origin` says which tensors of the file it comes from, where it does.
    """

    array: Array
    name: str = ""
    origin: Origin | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def rank(self) -> int:
        return self.array.ndim


@dataclass(frozen=True, slots=True)
class Sequence_:
    """ONNX's sequence of tensors, which exists in the importer alone."""

    items: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """The result of an operator without a translation. The walk goes on, to list them all at once."""


Value = Tensor | Constant | Sequence_ | Unknown


class Network(GraphRecorder):
    """The graph that an import writes. It makes every name unique and removes characters that names lack."""

    def __init__(self) -> None:
        super().__init__()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], Tensor] = {}
        #: The tensors of the file behind parameters and constants, by operand.
        self.origins: dict[str, Origin] = {}
        #: Constants whose values lie in a file that is not there, with its name. They are zeros.
        self.absent: dict[str, str] = {}
        self._taken: set[str] = set()
        self._taken_by_operations: set[str] = set()
        self._counters: dict[str, int] = {}

    def fresh(self, preferred: str, *, of_operation: bool = False) -> str:
        """A name like `preferred` that no other operand has, or no other operation."""
        taken = self._taken_by_operations if of_operation else self._taken
        plain = (
            "".join(c if c.isprintable() and c != "@" else "_" for c in preferred)[
                : _MAX_NAME_CHARACTERS - 12
            ]
            or "value"
        )
        name = plain
        while name in taken:
            self._counters[plain] = self._counters.get(plain, 0) + 1
            name = f"{plain}.{self._counters[plain]}"
        taken.add(name)
        return name

    def declare(
        self, name: str, role: Role, type_: TensorType, initializer: Initializer | None = None
    ) -> Tensor:
        """An operand that no operation defines."""
        own = self.fresh(name)
        self.put(own, role, type_, initializer)
        return Tensor(own, type_)

    def constant(self, array: Array, name: str = "", origin: Origin | None = None) -> Tensor:
        """An operand with these values; one for all that have the same. Raises DocumentError."""
        dtype = _DTYPES.get(array.dtype)
        if dtype is None:
            raise DocumentError(
                f"The constant {name!r:.80} has elements of type {array.dtype}.",
                remedy=f"Export the model with {', '.join(d.value for d in DType)}.",
            )
        data = np.ascontiguousarray(array).tobytes()
        key = (dtype.value, array.shape, hashlib.sha256(data).digest())
        if key not in self._constants:
            type_ = TensorType(array.shape, dtype)
            self._constants[key] = self.declare(
                name or "constant", Role.CONSTANT, type_, Initializer("values", data)
            )
        tensor = self._constants[key]
        if origin is not None:
            self.origins.setdefault(tensor.name, origin)
        return tensor

    def emit(
        self,
        type_: str,
        inputs: Sequence[str],
        name: str,
        outputs: int | Sequence[bool] = 1,
        **attributes: AttributeValue | None,
    ) -> tuple[Tensor, ...]:
        """Add an operation and return what it defines.

        `outputs` is their number, or for each whether it is read. Attributes that are None are left out.
        Raises what the operator's checks raise, and TooManyOperationsError.
        """
        if len(self.operations) >= MAX_OPERATIONS:
            raise TooManyOperationsError(
                f"The model has more than {MAX_OPERATIONS:,} operations.", remedy="Split the model."
            )
        is_read = [True] * outputs if isinstance(outputs, int) else list(outputs)
        own = self.fresh(name, of_operation=True)
        defined = tuple(self.fresh(f"{own}.out{k or ''}") if there else "" for k, there in enumerate(is_read))
        kept = {key: value for key, value in attributes.items() if value is not None}
        types = self.record(Operation(own, type_, tuple(inputs), defined, kept))
        return tuple(Tensor(n, t) for n, t in zip(defined, types, strict=True))

    def results(self, outputs: Mapping[str, Value]) -> dict[str, Value]:
        """The outputs under their own names, where an operation defines them and nothing else is called so.

        Results of functions and branches have names from there, which an output may have, too.
        """
        results = dict(outputs)
        for name in outputs:
            value, holder = results[name], self.types.get(name)
            if not isinstance(value, Tensor) or value.name in {name, *self.operands} or name in self.operands:
                continue
            if value.name in outputs and results[value.name] == value:
                continue  # two outputs are one tensor, which has the first one's name
            if holder is not None:
                moved = self.call_it(Tensor(name, holder.type), name, 0)
                results = {key: moved if value == Tensor(name, holder.type) else value
                           for key, value in results.items()}  # fmt: skip
            results[name] = self.call_it(value, name, 0)
        return results

    def call_it(self, tensor: Tensor, name: str, since: int) -> Tensor:
        """The tensor under the name that the model has for it, if an operation from `since` on defines it."""
        old = tensor.name
        if not any(old in operation.outputs for operation in self.operations[since:]):
            return tensor
        new = self.fresh(name)
        for i in range(since, len(self.operations)):
            operation = self.operations[i]
            if old in operation.inputs or old in operation.outputs:
                inputs = tuple(new if n == old else n for n in operation.inputs)
                outputs = tuple(new if n == old else n for n in operation.outputs)
                self.operations[i] = Operation(
                    operation.id, operation.type, inputs, outputs, operation.attributes
                )
        self.types[new] = Operand(new, self.types.pop(old).type, Role.INTERMEDIATE)
        self._taken.discard(old)
        return Tensor(new, tensor.type)


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)
