"""Operations recorded instead of executed, and the handles that stand for their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from arenaplan.builder.model import Document, Model, inline
from solver.arguments import checks_arguments
from solver.graph import Array, DType, Initializer, Operand, Operation, Role, TensorType, output_types

__all__ = ["Document", "Operandlike", "Tape", "Tensor", "Trainable"]

#: All parameters, names of parameters, or ``{"last": n}``: those of the last n operations that own some.
Trainable = Literal["all"] | Sequence[str] | Mapping[str, int]

#: From how many elements on a constant is written in base64 instead of numbers.
_LONG = 64


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """The result that an operation will have, or a value that it will be given. Operators record more.

    Numbers mix in: ``2 * x + 1``. Shapes that do not fit raise ShapeMismatchError at once, where they stand.
    """

    tape: Tape
    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @checks_arguments
    def __add__(self, other: Operandlike) -> Tensor:
        return self._binary("Add", self, other)

    @checks_arguments
    def __radd__(self, other: float) -> Tensor:
        return self._binary("Add", other, self)

    @checks_arguments
    def __sub__(self, other: Operandlike) -> Tensor:
        return self._binary("Sub", self, other)

    @checks_arguments
    def __rsub__(self, other: float) -> Tensor:
        return self._binary("Sub", other, self)

    @checks_arguments
    def __mul__(self, other: Operandlike) -> Tensor:
        return self._binary("Mul", self, other)

    @checks_arguments
    def __rmul__(self, other: float) -> Tensor:
        return self._binary("Mul", other, self)

    @checks_arguments
    def __truediv__(self, other: Operandlike) -> Tensor:
        return self._binary("Div", self, other)

    @checks_arguments
    def __matmul__(self, other: Tensor) -> Tensor:
        return self.tape.apply("MatMul", self, other)

    @checks_arguments
    def reshape(self, *shape: int, name: str | None = None) -> Tensor:
        """-1 takes what is left, 0 keeps the dimension at its place: the batch stays symbolic."""
        name = self.tape.name("reshape", name)
        return self.tape.apply("Reshape", self, self.tape.integers(f"{name}.shape", shape), name=name)

    @checks_arguments
    def transpose(self, *axes: int, name: str | None = None) -> Tensor:
        return self.tape.apply("Transpose", self, name=self.tape.name("transpose", name), perm=list(axes))

    @checks_arguments
    def mean(self, *axes: int, keepdims: bool = False, name: str | None = None) -> Tensor:
        name = self.tape.name("mean", name)
        constant = self.tape.integers(f"{name}.axes", axes)
        return self.tape.apply("ReduceMean", self, constant, name=name, keepdims=int(keepdims))

    def _binary(self, type_: str, left: Operandlike, right: Operandlike) -> Tensor:
        tape, dtype = self.tape, self.type.dtype.numpy
        name = tape.name(type_.lower(), None)
        pair = (
            x if isinstance(x, Tensor) else tape.constant(f"{name}.number", np.array(x, dtype))
            for x in (left, right)
        )
        return tape.apply(type_, *pair, name=name)


Operandlike = Tensor | float


class Tape:
    """Operands and operations in the order in which they are recorded.

    Names are made of the operator's and a number (``conv2``), unless they are given; inside
    ``with tape.scope("block1")`` they start with ``block1.``. Parameters and outputs of an operation are
    called after it: ``conv2.weight``, ``conv2.out``. The other methods take full names, as `name` makes them.
    """

    @checks_arguments
    def __init__(self, name: str, *, batch: int) -> None:
        self.title = name
        self.batch = batch
        self._declared: list[Document] = []
        self._operations: list[Document] = []
        self._operands: dict[str, Operand] = {}
        self._scope = ""
        self._counts: Counter[str] = Counter()
        self._seed = 0

    # ------------------------------------------------------------------------------------ names

    @contextmanager
    @checks_arguments
    def scope(self, name: str) -> Iterator[None]:
        """Prefix of every name recorded meanwhile."""
        outer, self._scope = self._scope, f"{self._scope}{name}."
        try:
            yield
        finally:
            self._scope = outer

    @checks_arguments
    def name(self, kind: str, name: str | None) -> str:
        """The full name of the next operation of a kind: the given one, or the kind and a number."""
        if name is not None:
            return f"{self._scope}{name}"
        self._counts[f"{self._scope}{kind}"] += 1
        return f"{self._scope}{kind}{self._counts[f'{self._scope}{kind}']}"

    # --------------------------------------------------------------------------------- operands

    @checks_arguments
    def input(self, name: str, *dimensions: int, dtype: DType = DType.FLOAT32) -> Tensor:
        """A batch of examples of the given dimensions, fed at every step."""
        return self._fed(name, Role.INPUT, dimensions, dtype)

    @checks_arguments
    def label(self, name: str, *dimensions: int, dtype: DType = DType.FLOAT32) -> Tensor:
        """A batch of what is wanted for each example."""
        return self._fed(name, Role.LABEL, dimensions, dtype)

    def _fed(self, name: str, role: Role, dimensions: tuple[int, ...], dtype: DType) -> Tensor:
        declared: list[int | str] = ["batch", *dimensions]
        return self._declare(name, role, declared, TensorType((self.batch, *dimensions), dtype))

    @checks_arguments
    def parameter(
        self,
        name: str,
        shape: Sequence[int],
        kind: str,
        *,
        role: Role = Role.PARAMETER,
        storage: Document | None = None,
        **fields: float,
    ) -> Tensor:
        """A parameter, or other state, that starts as `kind` says; random kinds get a seed of their own.

        One with a `storage`, as ``{"kind": "int4", "group": 64}``, is not trained and is kept so. Whether the
        operators that read it can is known when the model is made.
        """
        initializer: Document = {"kind": kind, **fields}
        if kind in ("he_normal", "glorot_uniform", "normal", "uniform"):
            self._seed += 1
            initializer["seed"] = self._seed
        type_ = TensorType(tuple(shape), DType.FLOAT32)
        declared = self._declare(name, role, list(shape), type_, initializer)
        if storage is not None:
            self._declared[-1] |= {"storage": storage, "trainable": False}
        return declared

    @checks_arguments
    def constant(self, name: str, values: Array) -> Tensor:
        """Values that never change."""
        initializer = {"kind": "values", "values": values.ravel().tolist()}
        if values.size > _LONG:
            initializer = inline(values)
        type_ = TensorType(values.shape, DType(values.dtype.name))
        return self._declare(name, Role.CONSTANT, list(values.shape), type_, initializer, values)

    @checks_arguments
    def integers(self, name: str, values: Sequence[int]) -> Tensor:
        """A constant list of integers: a shape, axes, pads."""
        return self.constant(name, np.array(values, np.int64))

    def _declare(
        self,
        name: str,
        role: Role,
        shape: Sequence[int | str],
        type_: TensorType,
        initializer: Document | None = None,
        values: Array | None = None,
    ) -> Tensor:
        row = {"name": name, "role": role.value, "shape": list(shape), "dtype": type_.dtype.value}
        self._declared.append(row if initializer is None else row | {"initializer": initializer})
        known = None if values is None else Initializer("values", data=values.tobytes())
        self._operands[name] = Operand(name, type_, role, known)
        return Tensor(self, name, type_)

    # ------------------------------------------------------------------------------- operations

    @checks_arguments
    def apply(self, type_: str, *inputs: Tensor | None, name: str | None = None, **attributes: Any) -> Tensor:
        """Record an operation with one output. None stands for an optional input that is left out."""
        return self.apply_many(type_, *inputs, name=name, outputs=("out",), **attributes)[0]

    @checks_arguments
    def apply_many(
        self,
        type_: str,
        *inputs: Tensor | None,
        outputs: Sequence[str],
        name: str | None = None,
        **attributes: Any,
    ) -> tuple[Tensor, ...]:
        """Record an operation; output ``out`` of operation ``split1`` is called ``split1.out``.

        An optional output that is not needed is the empty string, and is not among the results. Raises what
        the planner would raise later: unknown operators, attributes and shapes that do not fit.
        """
        name = name or self.name(type_.lower(), None)
        names = [f"{name}.{output}" if output else "" for output in outputs]
        read = [x.name if x else "" for x in inputs]
        row: Document = {"name": name, "type": type_, "inputs": read, "outputs": names}
        if attributes:
            row["attributes"] = attributes
        frozen = {key: tuple(v) if isinstance(v, list) else v for key, v in attributes.items()}
        types = output_types(Operation(name, type_, tuple(read), tuple(names), frozen), self._operands)
        self._operations.append(row)
        results = [Tensor(self, *pair) for pair in zip(names, types, strict=True) if pair[0]]
        for result in results:
            self._operands[result.name] = Operand(result.name, result.type, Role.INTERMEDIATE)
        return tuple(results)

    # -------------------------------------------------------------------------------- finishing

    @checks_arguments
    def document(
        self,
        loss: Tensor,
        optimizer: Document,
        *,
        trainable: Trainable = "all",
        outputs: Sequence[Tensor] = (),
        training: Document | None = None,
    ) -> Document:
        """Everything recorded so far as a graph document.

        `training` holds rules for gradients, as ``{"clip_global_norm": 1.0}``.
        """
        document: Document = {
            "format": "arenaplan.graph",
            "version": 1,
            "name": self.title,
            "batch": self.batch,
            "operands": list(self._declared),
            "operations": list(self._operations),
            "loss": loss.name,
            "outputs": [output.name for output in outputs],
            "optimizer": optimizer,
            "trainable": trainable,
        }
        return document | {"training": training} if training else document

    @checks_arguments
    def minimise(
        self,
        loss: Tensor,
        optimizer: Document,
        *,
        trainable: Trainable = "all",
        outputs: Sequence[Tensor] = (),
        training: Document | None = None,
    ) -> Model:
        """The recorded network as a model that can be planned and trained. Raises GraphError."""
        return Model.of(
            self.document(loss, optimizer, trainable=trainable, outputs=outputs, training=training)
        )
