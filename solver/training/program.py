"""The training program: every step of one training iteration, with what it reads and writes.

A program is explicit. Branching derivatives are accumulated by steps of their own, scratch is an
operand like any other, and the optimizer's update is a step. Planners need nothing else: no rule
of any operator is consulted after this point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from solver.graph.types import TensorType

__all__ = [
    "CALLER_DEFINED",
    "Binding",
    "Lifetime",
    "OperandKind",
    "Phase",
    "Share",
    "TrainingOperand",
    "TrainingOperandIndex",
    "TrainingOperationIndex",
    "TrainingProgram",
    "TrainingStep",
]


class Phase(Enum):
    """Part of a training iteration, in nntrainer's words."""

    FORWARD = "forward"
    CALC_GRADIENT = "calc_gradient"
    CALC_DERIVATIVE = "calc_derivative"
    APPLY_GRADIENT = "apply_gradient"


@dataclass(frozen=True, slots=True, order=True)
class TrainingOperandIndex:
    """Seed of every use-def chain: an operand and which of its two identities is meant.

    The forward identity is the value; the other one its back-propagated derivative, which for a
    parameter is the gradient.
    """

    operand: str
    is_forward: bool = True

    def __str__(self) -> str:
        return self.operand if self.is_forward else f"{self.operand}@grad"


@dataclass(frozen=True, slots=True)
class TrainingOperationIndex:
    """An operation in one phase; `part` tells the accumulate steps of one operation apart."""

    operation: str
    phase: Phase
    part: str = ""

    @property
    def is_forward(self) -> bool:
        return self.phase is Phase.FORWARD

    def __str__(self) -> str:
        suffix = f".{self.part}" if self.part else ""
        return f"{self.operation}:{self.phase.value}{suffix}"


class OperandKind(Enum):
    """What an operand of the program is for; reports and pools group by it."""

    INPUT = "input"
    LABEL = "label"
    PARAMETER = "parameter"
    STATE = "state"
    CONSTANT = "constant"
    ACTIVATION = "activation"
    LOSS = "loss"
    DERIVATIVE = "derivative"
    PARTIAL = "partial"
    GRADIENT = "gradient"
    OPTIMIZER_VARIABLE = "optimizer_variable"
    SAVED = "saved"
    SCRATCH = "scratch"
    RESULT = "result"


class Lifetime(Enum):
    """How long an operand must be kept, in nntrainer's vocabulary.

    `FORWARD_FUNCTION` and `BACKWARD_FUNCTION` live inside one step, `ITERATION` from first def to
    last use of one training step, `EPOCH` until the caller has read it after the step, `MAX`
    for as long as the model trains.
    """

    FORWARD_FUNCTION = "forward_function"
    BACKWARD_FUNCTION = "backward_function"
    ITERATION = "iteration"
    EPOCH = "epoch"
    MAX = "max"

    @property
    def outlives_iteration(self) -> bool:
        """Whether the value is there after the last step."""
        return self in (Lifetime.EPOCH, Lifetime.MAX)


@dataclass(frozen=True, slots=True)
class TrainingOperand:
    """`origin` is the operand (or, for scratch and saved, the operation) of the graph it serves."""

    index: TrainingOperandIndex
    type: TensorType
    kind: OperandKind
    lifetime: Lifetime
    origin: str

    @property
    def id(self) -> str:
        return str(self.index)

    @property
    def is_defined_by_caller(self) -> bool:
        """True for what holds a value before the first step runs."""
        return self.kind in CALLER_DEFINED or self.lifetime is Lifetime.MAX


#: What holds a value before the first step runs.
CALLER_DEFINED = frozenset(
    {
        OperandKind.INPUT,
        OperandKind.LABEL,
        OperandKind.PARAMETER,
        OperandKind.STATE,
        OperandKind.CONSTANT,
        OperandKind.OPTIMIZER_VARIABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Binding:
    """`slot` is what the kernel calls the operand: ``x0``, ``y0``, ``dy0``, ``dx1``, a scratch name."""

    slot: str
    operand: TrainingOperandIndex


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """One kernel call. What is updated in place stands in `reads` and in `writes`.

    `kernel` is the operator's name, or ``Seed``, ``Accumulate``, ``ClipByGlobalNorm`` or ``Update``.
    `scratch` is written and read inside the step and means nothing outside it.
    """

    index: TrainingOperationIndex
    kernel: str
    reads: tuple[Binding, ...] = ()
    writes: tuple[Binding, ...] = ()
    scratch: tuple[Binding, ...] = ()

    @property
    def uses(self) -> tuple[TrainingOperandIndex, ...]:
        return tuple(b.operand for b in self.reads)

    @property
    def defs(self) -> tuple[TrainingOperandIndex, ...]:
        return tuple(b.operand for b in self.writes)

    def touched(self) -> Iterator[TrainingOperandIndex]:
        """Every operand whose memory must be valid while the step runs; repeats possible."""
        for group in (self.reads, self.writes, self.scratch):
            for binding in group:
                yield binding.operand


@dataclass(frozen=True, slots=True)
class Share:
    """An operand is defined in the memory of `source`, by a step that reads `source`.

    A `view` leaves the bytes as they are, and both can be read until one is overwritten; otherwise
    `source`, and all that are views of the same bytes, hold no value from then on.
    """

    source: TrainingOperandIndex
    view: bool = False


@dataclass(frozen=True, slots=True)
class TrainingProgram:
    """Operands by index, and steps in a legal order (as `derive` emits them).

    `waves` has the wave of each step where steps run at the same time (`solver.schedule.waves`); it never
    falls, and begins with 0. Empty: one step after the other. `shares` has the operands that are defined
    in the memory of another one (`solver.schedule.in_place`); empty: each has memory of its own.
    """

    operands: Mapping[TrainingOperandIndex, TrainingOperand]
    steps: tuple[TrainingStep, ...] = field(default=())
    waves: tuple[int, ...] = ()
    shares: Mapping[TrainingOperandIndex, Share] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "operands", MappingProxyType(dict(self.operands)))
        object.__setattr__(self, "shares", MappingProxyType(dict(self.shares)))

    def storages(self) -> dict[TrainingOperandIndex, list[TrainingOperandIndex]]:
        """By the first operand of each shared memory: all that share it, in the order in which they come."""
        found: dict[TrainingOperandIndex, list[TrainingOperandIndex]] = {}
        first: dict[TrainingOperandIndex, TrainingOperandIndex] = {}
        for operand, share in self.shares.items():
            first[operand] = first.get(share.source, share.source)
            found.setdefault(first[operand], [share.source]).append(operand)
        return found

    @property
    def times(self) -> Sequence[int]:
        """When each step runs, in the unit of time of lifespans: its wave, or its position."""
        return self.waves or range(len(self.steps))

    @property
    def duration(self) -> int:
        """Units of time of one iteration."""
        return self.waves[-1] + 1 if self.waves else len(self.steps)
