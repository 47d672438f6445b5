"""The interface of an operator: one class each, in a module for each family.

A family file `graph/ops/<family>.py` holds subclasses of `OperationType`; the kernels of the same
operators live in `executor/kernels/<family>.py`. The class answers these questions and does no
arithmetic on tensors:

* which attributes exist, and which values they may take (`attributes`),
* the types of the outputs (`infer`),
* which scratch the kernels need, forward and backward, and what must survive from one to the other,
* which of X, W (inputs) and Y (outputs) the backward kernels read (`backward`),
* which results may lie in the memory of what is read (`in_place`), which of them are copies (`copies`) or put
  together from copies of parts (`parts`), and which of what is read has no influence on a result (`ignores`).

What is said in the last point is trusted by proofs of plans, and put to the test for every operator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from solver.errors import AttributeRuleError, GraphError, InternalError, ShapeMismatchError
from solver.graph.types import Array, AttributeValue, DType, Operation, TensorType

__all__ = [
    "ACTIVATIONS",
    "DEFAULT_SCRATCH_BUDGET",
    "ELEMENTWISE",
    "MAX_INPUTS",
    "Attribute",
    "BackwardNeeds",
    "ForwardOnly",
    "InPlace",
    "IndexRange",
    "NoDerivative",
    "Node",
    "OperationType",
    "Part",
    "ScratchRequest",
    "Signature",
    "named",
    "scratch",
]

#: Activations that an operator may apply to its own output; all invertible from Y alone.
ACTIVATIONS = ("None", "Relu", "Relu6", "Sigmoid", "Tanh")

#: Bytes one step may use for scratch that grows with the number of examples treated at a time.
#: 2 MiB keeps a chunk of columns in the second-level cache of common CPUs; a kernel takes at
#: least one example at a time, so a single example may exceed it.
DEFAULT_SCRATCH_BUDGET = 2 * 1024 * 1024

#: Inputs of an operator that takes any number of them.
MAX_INPUTS = 100_000


@dataclass(frozen=True, slots=True)
class Attribute:
    """Rule for one attribute. `choices` and `minimum` bound scalars and each element of lists.

    With `omit_default` a node has the attribute only where it differs from its default: so do attributes that
    were added to an operator later, as plans made before stay equal to their reference programs.
    """

    kind: Literal["int", "ints", "float", "string"]
    default: AttributeValue | None = None
    choices: tuple[str | int, ...] | None = None
    minimum: float | None = None
    required: bool = False
    omit_default: bool = False


@dataclass(frozen=True, slots=True)
class ScratchRequest:
    """Memory that a kernel needs beside its operands: `name` is unique within the operation."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class BackwardNeeds:
    """The operands that one backward step reads, beside the derivatives of all outputs.

    `inputs` and `outputs` are positions of X and Y; `saved` names what the forward step saved;
    `scratch` lives for this step only.
    """

    inputs: frozenset[int] = frozenset()
    outputs: frozenset[int] = frozenset()
    saved: frozenset[str] = frozenset()
    scratch: tuple[ScratchRequest, ...] = ()
    reads_output_derivatives: bool = True


@dataclass(frozen=True, slots=True)
class InPlace:
    """A kernel's promise: it is right as well where `source`, read, and `target`, written, are one memory.

    Slots are those of steps: ``x0`` and ``y0`` forward, ``dy0`` and ``dx0`` backward. A `view` is a plain
    copy: the bytes stay as they are, so that both may go on being read. The promise of one that is
    `alone` holds only in a step that writes nothing else. Operands of different sizes or element types never
    share memory, so a promise need not exclude broadcasting.
    """

    source: str
    target: str
    view: bool = False
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """A plain copy of contiguous bytes: of `nbytes` from `start` of `source` to `target_start` of `target`.

    Slots are those of `InPlace`. The parts of a target are disjoint and make up all of it, so where the
    sources lie at the right distances the target is a view of them: the step then changes no byte.
    """

    source: str
    target: str
    start: int
    target_start: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The integers that an input of an operation may hold: those in [least, most], and what is `ignored`."""

    operation: str
    noun: Literal["index", "class label"]
    least: int
    most: int
    ignored: int | None = None

    def outside(self, values: Array) -> int | None:
        """An element that must not be there, None if all may. Linear; copies only if one is out of range."""
        if not values.size or (self.least <= values.min() and values.max() <= self.most):
            return None
        wrong = values[(values < self.least) | (values > self.most)]
        if self.ignored is not None:
            wrong = wrong[wrong != self.ignored]
        return int(wrong[0]) if wrong.size else None

    @property
    def allowed(self) -> str:
        """The integers as words."""
        ignored = "" if self.ignored is None else f", or be {self.ignored}, which is ignored"
        return f"in [{self.least}, {self.most}]{ignored}"

    def error(self, value: int | None, source: str = "") -> GraphError:
        """The error for this value, or for one that nobody looked at; `source` says where it was."""
        article, plural = ("An", "Indices") if self.noun == "index" else ("A", "Labels")
        number = "out of range" if value is None else value
        return GraphError(
            f"{article} {self.noun} of operation {self.operation!r} is {number}{source}.",
            remedy=f"{plural} must lie {self.allowed}.",
        )


#: Y over X, and dX over dY: promises of kernels that are done with an element, or a row, when they write it.
ELEMENTWISE = (InPlace("x0", "y0"), InPlace("dy0", "dx0"))


@dataclass(frozen=True, slots=True)
class Node:
    """An operation with the types of its operands resolved: all that a family needs to know.

    `inputs[i]` is ``None`` where an optional input is left out; `constants[i]` holds the elements,
    in C order, of a constant integer input (shape, axes, pads), else ``None``; `floats` those of
    floating inputs that are constant by rule, by position. `outputs` is empty while they are being
    inferred. `attributes` has every default filled in, unless its rule omits it.
    """

    operation: Operation
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    constants: tuple[tuple[int, ...] | None, ...]
    attributes: Mapping[str, Any]
    scratch_budget: int = DEFAULT_SCRATCH_BUDGET
    floats: Mapping[int, tuple[float, ...]] = field(default_factory=dict)

    def input(self, position: int) -> TensorType:
        """Type of an input that must be there."""
        type_ = self.inputs[position] if position < len(self.inputs) else None
        if type_ is None:
            raise ShapeMismatchError(
                f"Operation {self.operation.id!r} ({self.operation.type}) lacks input {position}.",
                remedy="Give it an operand.",
            )
        return type_

    def has_input(self, position: int) -> bool:
        return position < len(self.inputs) and self.inputs[position] is not None

    def mismatch(self, expected: str) -> ShapeMismatchError:
        """Error that names the operation, its operands and all their shapes."""
        operands = ", ".join(
            f"{name} is {type_}"
            for name, type_ in zip(self.operation.inputs, self.inputs, strict=True)
            if type_ is not None
        )
        return ShapeMismatchError(
            f"Operation {self.operation.id!r} ({self.operation.type}): {expected}; {operands}.",
            remedy="Change the shapes or the attributes so that they agree.",
        )


class Signature(ABC):
    """The part of an operator that the checks of a graph need: operands, attributes, types, derivatives."""

    name: ClassVar[str]
    #: Smallest and largest number of inputs.
    arity: ClassVar[tuple[int, int]]
    #: Number of outputs; nothing where an operation has as many as it names, one at least.
    outputs: ClassVar[int | None] = 1
    #: Own attributes. `activation` is added to those of operators with `fuses_activation`.
    attributes: ClassVar[Mapping[str, Attribute]] = {}
    fuses_activation: ClassVar[bool] = False
    #: True for operators whose output is a loss to be minimised.
    is_loss: ClassVar[bool] = False
    #: Inputs that leave the others as they are where they are 1, not 0: scales and variances.
    unit_inputs: ClassVar[frozenset[int]] = frozenset()
    #: Inputs that must be constants known when the graph is built.
    constant_inputs: ClassVar[frozenset[int]] = frozenset()
    #: True for operators that have a derivative and no kernel for it. A graph that needs one is refused.
    forward_only: ClassVar[bool] = False

    @abstractmethod
    def infer(self, node: Node) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises ShapeMismatchError (through `node.mismatch`)."""

    def check_filled(self, node: Node, filled: Mapping[int, int]) -> None:  # noqa: B027 - most take anything
        """Raises GraphError where an input must not hold what it is filled with.

        `filled` has the positions of the constant integer inputs whose elements are all the same by a named
        scheme, with the value; `node.constants` has none of these.
        """

    def differentiable(self, node: Node) -> frozenset[int]:
        """Positions of the inputs that have a derivative: floating ones, neither constant by rule nor stored.

        `node` may be without its outputs.
        """
        return frozenset(
            i
            for i, type_ in enumerate(node.inputs)
            if type_ is not None
            and type_.dtype.is_floating
            and type_.storage is None
            and i not in self.constant_inputs
        )

    def index_ranges(self, node: Node) -> Mapping[int, IndexRange]:
        """The positions of the integer inputs whose elements have a range; its forward kernel checks it."""
        return {}

    def updates(self, node: Node) -> frozenset[int]:
        """Positions of the inputs that the forward step reads and then writes in place.

        They must be operands of role state, which no other input names; nothing on the backward pass
        reads them. An operation that updates something must run once an iteration. `node` may be without
        its outputs.
        """
        return frozenset()

    def stored_axis(self, node: Node, position: int) -> int | None:
        """The axis of the rows in which the kernels take a stored input; None where they take elements alone.

        Asked once the types are known to be right, of inputs that have a storage.
        """
        return None

    # ------------------------------------------------------------------ attributes, once for all

    def rules(self) -> dict[str, Attribute]:
        rules = dict(self.attributes)
        if self.fuses_activation:
            rules["activation"] = Attribute("string", default="None", choices=ACTIVATIONS)
        return rules

    def normalise(self, operation: Operation) -> Mapping[str, Any]:
        """Attributes with defaults filled in. Raises AttributeRuleError naming the attribute."""
        rules, stated = self._rules, operation.attributes
        if not stated and self._defaults is not None:
            return self._defaults
        for key in stated:
            if key not in rules:
                raise AttributeRuleError(
                    f"Operation {operation.id!r} ({self.name}) has no attribute {key!r}.",
                    remedy=f"Known attributes: {', '.join(sorted(rules)) or 'none'}.",
                    path=("attributes", key),
                )
        attributes = {
            key: _checked(operation, key, rule) if key in stated or rule.required else rule.default
            for key, rule in rules.items()
        }
        return {k: v for k, v in attributes.items() if not rules[k].omit_default or v != rules[k].default}

    @cached_property
    def _rules(self) -> Mapping[str, Attribute]:
        return self.rules()

    @cached_property
    def _defaults(self) -> Mapping[str, Any] | None:
        """One mapping for all operations without attributes; None where one of them is required."""
        rules = self._rules
        if any(rule.required for rule in rules.values()):
            return None
        return MappingProxyType({k: rule.default for k, rule in rules.items() if not rule.omit_default})


class OperationType(Signature):
    """One operator. Subclasses are stateless and registered in `solver.graph.ops`."""

    #: What of `saved` the forward kernel does without where no backward step reads it.
    optional_saved: ClassVar[frozenset[str]] = frozenset()

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        """Scratch of the forward step; lives for that step only."""
        return ()

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        """Values that the forward step saves for backward steps; each lives until its last reader."""
        return ()

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        """Pairs that may share memory, the preferred first; at most one is used for each target."""
        return ()

    def copies(self, node: Node, forward: bool) -> tuple[InPlace, ...]:
        """Promises of `in_place` whose target is a copy of the source's bytes, for one direction of steps.

        They are the views between operands of one element type and size in bytes: a derivative that is
        summed because its operand was broadcast is smaller than dY. Cost: that of `in_place`.
        """
        slot = "x" if forward else "d"
        return tuple(
            [
                promise
                for promise in self.in_place(node)
                if promise.view
                and promise.source[0] == slot
                and _extent(node, promise.source) == _extent(node, promise.target)
            ]
        )

    def parts(self, node: Node, forward: bool) -> tuple[Part, ...]:
        """The sources of a step's results, where these are copies of contiguous parts.

        `forward` is False for a backward step. What is said of a target holds in steps that have all of its
        sources. Proofs trust it; tests hold it for every operator. Cost: linear in the operands.
        """
        return ()

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        """Read slots (x0, dy0, y0, saved names) that have no influence on what a step writes to `slot`.

        `forward` is False for a backward step, whatever derivatives it computes. Empty by default: a
        result depends on everything that its step reads. Proofs trust what is named here, so tests replace
        it by other bytes, NaN among them, and compare results bit for bit. Slots that a step does not read
        may be named. Cost: constant.
        """
        return frozenset()

    @abstractmethod
    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        """Needs of a backward step that defines the derivatives of the inputs in `derivatives`.

        `derivatives` is a non-empty subset of `differentiable(node)`. One operation may run two such
        steps: calcGradient for its trainable parameters, calcDerivative for the rest.
        """


class NoDerivative(OperationType):
    """An operator whose derivative is zero or does not exist: no step goes back through it."""

    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset()

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        raise InternalError(f"Operator {self.name!r} has no derivative.")


class ForwardOnly(NoDerivative):
    """An operator with a forward kernel alone, for what comes before everything that is trained."""

    forward_only = True


def _extent(node: Node, slot: str) -> tuple[DType, int]:
    """Element type and bytes of the operand that a slot of a step is for: x0, y0, dx0, dy0."""
    operand = slot.lstrip("d")
    types = node.inputs if operand[0] == "x" else node.outputs
    type_ = types[int(operand[1:])]
    assert type_ is not None, "promises are about operands that are there"
    return type_.dtype, type_.nbytes


def _checked(operation: Operation, key: str, rule: Attribute) -> Any:
    value = operation.attributes.get(key)
    if value is None:
        if rule.required:
            raise _bad(operation, key, "is required")
        return rule.default
    if rule.kind == "ints":
        if isinstance(value, str | int | float) or not all(_is_int(v) for v in value):
            raise _bad(operation, key, f"must be a list of integers, not {value!r}")
        elements: Sequence[Any] = value
    else:
        elements = (value,)
        if not _has_kind(value, rule.kind):
            raise _bad(operation, key, f"must be of kind {rule.kind}, not {value!r}")
    for element in elements:
        if rule.choices is not None and element not in rule.choices:
            raise _bad(operation, key, f"must be one of {list(rule.choices)}, not {element!r}")
        if rule.minimum is not None and element < rule.minimum:
            raise _bad(operation, key, f"must be at least {rule.minimum}, not {element!r}")
    return tuple(value) if rule.kind == "ints" else value  # type: ignore[arg-type]  # an iterable, checked above


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _has_kind(value: object, kind: str) -> bool:
    if kind == "int":
        return _is_int(value)
    if kind == "float":
        return isinstance(value, float) or _is_int(value)
    return isinstance(value, str)


def _bad(operation: Operation, key: str, what: str) -> AttributeRuleError:
    return AttributeRuleError(
        f"Attribute {key!r} of operation {operation.id!r} ({operation.type}) {what}.",
        remedy="See the list of operators for what it takes.",
        path=("attributes", key),
    )


def named(kind: type[OperationType], *names: str) -> tuple[OperationType, ...]:
    """Operators that differ from `kind`, and from each other, in nothing but their names."""
    return tuple(type(f"_{name}", (kind,), {"name": name})() for name in names)


def scratch(name: str, shape: Sequence[int], dtype: DType) -> ScratchRequest:
    """Shorthand for a scratch request."""
    return ScratchRequest(name, TensorType(tuple(shape), dtype))
