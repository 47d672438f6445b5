"""The one program that derivation, passes, targets, plans, the proof and the executor speak of.

    entry ──► steps, in levels ──► exit                 one iteration; then the next one begins

    values     0 x   1 conv.out   2 conv.out@grad       a place for one tensor each, by number
    steps      conv:forward    reads x, w   writes conv.out        levels 0..0
               conv:calc_grad  reads dy     writes w@grad          levels 7..7
    aliases    relu.out lies in the bytes of conv.out   from the step that defines it

Nothing is decided by a name: labels, kinds and phases are for reports. What a step does to memory stands in
its bindings, what holds a value at the start in `entry`, what must be there at the end in `exit`. Lifespans
are computed from these (`solver.program.lives`) and stand nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cache, cached_property
from typing import TypeVar

from solver.graph.ops.base import Node
from solver.graph.types import Operation, RowRange, TensorType

__all__ = [
    "ACCUMULATE",
    "CLIP",
    "CONVERT",
    "COPY",
    "OWN_KERNELS",
    "SEED",
    "UPDATE",
    "Access",
    "Alias",
    "Binding",
    "Entry",
    "EntryKind",
    "Exit",
    "Initial",
    "Kind",
    "Lifetime",
    "Phase",
    "Program",
    "Space",
    "Step",
    "Value",
    "anonymous",
    "numbered",
]

T = TypeVar("T")

#: Kernels of steps that stem from no operation of a graph.
SEED, ACCUMULATE, CLIP, UPDATE, COPY = "Seed", "Accumulate", "ClipByGlobalNorm", "Update", "Copy"

#: The kernel of steps that turn a value into another element type, to be kept in 16 bits, and back.
CONVERT = "Convert"

#: All of these. No operator describes them: all that they read decides all that they write.
OWN_KERNELS = frozenset({SEED, ACCUMULATE, CLIP, UPDATE, COPY, CONVERT})

#: SIMD kernels may round differently at another address modulo the widest vector register, in bytes.
RESIDUE = 64


class _Word(Enum):
    """A member is a word of documents, and is asked for it so often that it is an attribute."""

    #: The value of the member.
    word: str

    def __init__(self, word: str) -> None:
        self.word = word

    __hash__ = object.__hash__


class Phase(_Word):
    """The part of a training iteration that a step belongs to, in nntrainer's words.

    `FORWARD` calls the forward kernel of an operation, the others its backward kernel. `EXPLICIT` steps
    belong to no operator: of their kernels nothing is known but what they bind.
    """

    FORWARD = "forward"
    CALC_GRADIENT = "calc_gradient"
    CALC_DERIVATIVE = "calc_derivative"
    APPLY_GRADIENT = "apply_gradient"
    EXPLICIT = "explicit"


class Kind(_Word):
    """The purpose of a value. Reports group by it."""

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
    """How long a value is kept, in nntrainer's vocabulary; a label for reports.

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


class Access(_Word):
    """How a step uses the bytes of a value.

    `READ` leaves them; `WRITE` defines every byte without looking; `UPDATE` reads and writes the same
    bytes, and may leave them as they are; `SCRATCH` finds them undefined and leaves them undefined.
    """

    READ = "read"
    WRITE = "write"
    UPDATE = "update"
    SCRATCH = "scratch"

    #: Whether the step looks at the bytes; whether they may differ afterwards, scratch included; whether
    #: they hold a result of the step afterwards.
    reads: bool
    writes: bool
    defines: bool

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.reads = word in ("read", "update")
        self.writes = word != "read"
        self.defines = word in ("write", "update")


class EntryKind(_Word):
    """Where the contents of a value come from when an iteration begins.

    `FED`: the caller writes it before each iteration. `CONSTANT`: it never changes. `CARRIED`: the
    iteration before left it there; before the first one it has its initial value. `HELD`: it belongs to
    another program that runs in the same memory. No step touches it, and it never changes.
    """

    FED = "fed"
    CONSTANT = "constant"
    CARRIED = "carried"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class Space:
    """Memory with addresses of its own. `alignment` in bytes is that of its base and of every place.

    Kernels work in `addressable` spaces only; copies reach all.
    """

    name: str
    alignment: int
    addressable: bool = True


@dataclass(frozen=True, slots=True)
class Value:
    """A place for one tensor; each write makes a new version of its contents.

    `label` is unique in its program; `origin` is the operand or operation of the graph that it serves.
    `space` is a position in `Program.spaces`.
    """

    label: str
    type: TensorType
    kind: Kind
    origin: str
    space: int = 0


@dataclass(frozen=True, slots=True)
class Binding:
    """`slot` is what the kernel calls the value: ``x0``, ``y0``, ``dy0``, ``dx1``, a scratch name."""

    slot: str
    value: int
    access: Access


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call, on the levels ``[level, until]``; `until` is later for asynchronous copies alone.

    `operation` is a position in `Program.operations`: the kernel with all that decides what it computes.
    `reference` is the step of the reference program that it is or repeats, None for copies. A step that
    is `due` runs in the last micro-batch of each update only. `part` tells steps of one operation and
    phase apart.
    """

    operation: int
    phase: Phase
    bindings: tuple[Binding, ...]
    reference: int | None
    level: int
    until: int
    part: str = ""
    due: bool = False


@dataclass(frozen=True, slots=True)
class Alias:
    """`value` lies in the bytes of `source`, `offset` bytes behind its beginning, from `step` on.

    The step binds both. A `view`: it has nothing to do, and both hold their contents until a write.
    Otherwise it overwrites, and the contents of the source end.
    """

    value: int
    source: int
    step: int
    view: bool
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """`value` holds, at the start, what `reference` holds there in the reference program."""

    value: int
    kind: EntryKind
    reference: int


@dataclass(frozen=True, slots=True)
class Exit:
    """`value` holds, at the end, what `reference` holds there in the reference program."""

    value: int
    reference: int


@dataclass(frozen=True, slots=True)
class Initial:
    """How a carried or constant value gets its first contents.

    `scheme` is one of the graph's named initializers with its numbers, or ``values``: then they are the
    inline values of the graph's operand `source`, whose bytes have the given SHA-256 (hexadecimal). With
    `rows` everything is about a larger value, of which the content has these rows. Of constants, `data` has
    the bytes, if they are known; they follow from the digest, so no comparison looks at them.
    """

    scheme: str
    value: float = 0.0
    scale: float = 1.0
    seed: int = 0
    source: str = ""
    sha256: str = ""
    rows: RowRange | None = field(default=None, repr=False)
    data: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Program:
    """One training iteration.

    `steps` stand in an order in which they may run one after the other; their levels never fall. With a
    `period` of k the program runs k times for each update. `initial` has the first contents of carried
    and constant values, by value; those without are zeros.
    """

    name: str
    spaces: tuple[Space, ...]
    values: tuple[Value, ...]
    operations: tuple[Node, ...]
    steps: tuple[Step, ...]
    entry: tuple[Entry, ...]
    exit: tuple[Exit, ...]
    aliases: tuple[Alias, ...] = ()
    period: int = 1
    initial: Mapping[int, Initial] = field(default_factory=dict)
    _known: dict[str, object] = field(default_factory=dict, init=False, repr=False, compare=False)

    def once(self, name: str, work_out: Callable[[Program], T]) -> T:
        """A fact that follows from the program alone, computed when it is first asked for under this name."""
        if name not in self._known:
            self._known[name] = work_out(self)
        return self._known[name]  # type: ignore[return-value]  # one name for one function

    def at_same_residues(self) -> Program:
        """The program with all alignments at multiples of `RESIDUE`: what repeats a step, or reads a value
        behind its copies, then finds it at the same address modulo that, and the same bits.
        """
        if not any(space.alignment % RESIDUE for space in self.spaces):
            return self
        return replace(
            self, spaces=tuple(replace(s, alignment=max(s.alignment, RESIDUE)) for s in self.spaces)
        )

    @property
    def duration(self) -> int:
        """Levels of one iteration."""
        return self.steps[-1].level + 1 if self.steps else 0

    @cached_property
    def by_label(self) -> Mapping[str, int]:
        """The number of each value."""
        return {value.label: i for i, value in enumerate(self.values)}

    @cached_property
    def step_labels(self) -> tuple[str, ...]:
        """``conv1:calc_gradient``, ``fc:calc_derivative.accumulate0``; of explicit steps the operation's.

        A step that repeats one before it, by its reference, is ``conv1:forward.again1``.
        """
        return tuple(
            f"{self._label(step)}.again{run}" if run else self._label(step)
            for step, run in zip(self.steps, self.runs, strict=True)
        )

    @cached_property
    def runs(self) -> tuple[int, ...]:
        """For each step how many before it have the same reference step: it repeats them. 0 for copies."""
        count: dict[int | None, int] = {}
        run_of_step = []
        for step in self.steps:
            run_of_step.append(0 if step.reference is None else count.get(step.reference, 0))
            count[step.reference] = run_of_step[-1] + 1
        return tuple(run_of_step)

    def _label(self, step: Step) -> str:
        name = self.operations[step.operation].operation.id
        if step.phase is Phase.EXPLICIT:
            return name
        return f"{name}:{step.phase.word}.{step.part}" if step.part else f"{name}:{step.phase.word}"

    def kernel(self, step: Step) -> str:
        """The name of the kernel that a step calls: an operator, or one of the program's own."""
        return self.operations[step.operation].operation.type

    def touches(self) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """For each step the values that it reads and those that it writes; scratch is in neither."""
        for step in self.steps:
            reads = tuple(b.value for b in step.bindings if b.access.reads)
            yield reads, tuple(b.value for b in step.bindings if b.access.defines)

    def reordered(self, order: Sequence[int], levels: Sequence[int] | None = None) -> Program:
        """The same steps in another order, on `levels` or one after the other. Linear.

        Aliases keep the steps that they belong to. Whether the order is a legal one is not checked.
        """
        position = {old: new for new, old in enumerate(order)}
        steps = []
        for old, level in zip(order, range(len(order)) if levels is None else levels, strict=True):
            step = self.steps[old]
            if step.level != level or step.until != level:
                step = Step(
                    step.operation,
                    step.phase,
                    step.bindings,
                    step.reference,
                    level,
                    level,
                    step.part,
                    step.due,
                )
            steps.append(step)
        aliases = tuple(replace(alias, step=position[alias.step]) for alias in self.aliases)
        return replace(self, steps=tuple(steps), aliases=aliases)


def anonymous(node: Node) -> Node:
    """The node without the graph's names, which no kernel needs: operands are called by their slots."""
    operation = node.operation
    inputs, outputs = numbered("x", len(operation.inputs)), numbered("y", len(operation.outputs))
    if not all(operation.inputs):
        inputs = tuple([slot if name else "" for slot, name in zip(inputs, operation.inputs, strict=True)])
    return Node(
        Operation(operation.id, operation.type, inputs, outputs),
        node.inputs,
        node.outputs,
        node.constants,
        node.attributes,
        node.scratch_budget,
        node.floats,
    )


@cache
def numbered(kind: str, count: int) -> tuple[str, ...]:
    """Slots: ``x0``, ``x1``; the same object for the same number of them."""
    return tuple([f"{kind}{i}" for i in range(count)])
