"""Every error the core raises on purpose.

    ArenaplanError
    ├── DocumentError            the bytes are not a document of this kind and version
    │   ├── NotJsonError         the bytes are not JSON
    │   └── OtherFormatError     a document of another kind, which it names
    ├── GraphError               the document is well formed, the graph is not
    │   ├── UnknownOperatorError
    │   ├── AttributeRuleError
    │   ├── ShapeMismatchError
    │   ├── DimensionError       zero, negative or beyond 2**63 - 1 bytes
    │   ├── BatchError           a symbolic batch without a positive value
    │   ├── CyclicGraphError
    │   ├── UseBeforeDefError
    │   ├── DuplicateDefError
    │   ├── DuplicateNameError
    │   ├── DanglingOperandError
    │   ├── TrainableError       unused, unknown or underivable trainable
    │   ├── LossError            none, several, not a scalar
    │   ├── StateError           an update of what is not a state, or a state with a second reader
    │   ├── StorageError         a stored operand that does not fit its shape, its bytes or an operator
    │   └── TooManyOperationsError
    ├── OptionsError             an option out of its range
    │   └── ConstraintError      pins, alignments and reserved bytes that no layout keeps
    ├── RequestError             a member of a request that is missing, unknown, or out of its range
    ├── ProblemError             buffers that no layout solver can take
    ├── CapacityError            the arena does not fit the capacity asked for
    ├── PlanError                a plan that does not belong to its graph, or is wrong
    └── InternalError            a postcondition failed: a bug of ours, never the caller's

Each carries a sentence that names the culprit, a remedy, a JSON pointer (RFC 6901) into the
document it came from, and a stable `code` that the HTTP service turns into a problem type.
Infeasible and out of time are not errors of the layout solvers: see `solver.layout.Status`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "ArenaplanError",
    "AttributeRuleError",
    "BatchError",
    "CapacityError",
    "ConstraintError",
    "CyclicGraphError",
    "DanglingOperandError",
    "DimensionError",
    "DocumentError",
    "DuplicateDefError",
    "DuplicateNameError",
    "GraphError",
    "InternalError",
    "LossError",
    "NotJsonError",
    "OptionsError",
    "OtherFormatError",
    "PlanError",
    "ProblemError",
    "RequestError",
    "ShapeMismatchError",
    "StateError",
    "StorageError",
    "TooManyOperationsError",
    "TrainableError",
    "UnknownOperatorError",
    "UseBeforeDefError",
    "json_pointer",
]


def json_pointer(path: Sequence[str | int]) -> str:
    """RFC 6901 pointer of a path; the empty path is the whole document, ``""``."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


class ArenaplanError(Exception):
    """Base of all errors raised on purpose.

    `message` names the culprit, `remedy` says what to do, `path` leads to the culprit in the
    document that was read (keys and list indexes, empty when unknown); `document` names that file, where
    there are several.
    """

    code: ClassVar[str] = "error"
    document: str = ""

    def __init__(self, message: str, *, remedy: str = "", path: Sequence[str | int] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.path = tuple(path)

    @property
    def pointer(self) -> str:
        return json_pointer(self.path)

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class DocumentError(ArenaplanError):
    code = "invalid-document"


class NotJsonError(DocumentError):
    """The bytes are not JSON text in UTF-8, so perhaps a file of another tool."""


class OtherFormatError(DocumentError):
    """`format` is what the document says it is, as ``arenaplan.plan``."""

    def __init__(self, message: str, *, format_: str, remedy: str) -> None:
        super().__init__(message, remedy=remedy, path=("format",))
        self.format = format_


class GraphError(ArenaplanError):
    code = "invalid-graph"


class UnknownOperatorError(GraphError):
    code = "unknown-operator"


class AttributeRuleError(GraphError):
    code = "invalid-attribute"


class ShapeMismatchError(GraphError):
    code = "shape-mismatch"


class DimensionError(GraphError):
    code = "invalid-dimension"


class BatchError(GraphError):
    code = "invalid-batch"


class CyclicGraphError(GraphError):
    code = "cyclic-graph"


class UseBeforeDefError(GraphError):
    code = "use-before-def"


class DuplicateDefError(GraphError):
    code = "duplicate-def"


class DuplicateNameError(GraphError):
    code = "duplicate-name"


class DanglingOperandError(GraphError):
    code = "dangling-operand"


class TrainableError(GraphError):
    code = "invalid-trainable"


class LossError(GraphError):
    code = "invalid-loss"


class StateError(GraphError):
    code = "invalid-state"


class StorageError(GraphError):
    code = "invalid-storage"


class TooManyOperationsError(GraphError):
    code = "too-many-operations"


class OptionsError(ArenaplanError):
    code = "invalid-options"


class ConstraintError(OptionsError):
    """The constraints on places collide for these steps; other steps may have a layout that keeps them."""


class RequestError(ArenaplanError):
    """A member of a request that is missing, unknown, or out of its range."""

    code = "invalid-request"


class ProblemError(ArenaplanError):
    code = "invalid-problem"


class CapacityError(ArenaplanError):
    """The arena does not fit. All sizes are bytes.

    `required` is the smallest arena known to work (or, when even the lower bound is beyond the
    capacity, that bound); `live_at_peak` lists (operand, bytes) live at the witness step. `proved` says that
    nothing fits the capacity; without it, nothing that fits was found. `entry_point` is that of a deployment
    which does not fit, and `held` the bytes of what it keeps for others. `of_order` says that no schedule in
    this order of the steps fits, though one in another order may.
    """

    code = "capacity-exceeded"
    of_order: bool = False
    entry_point: str | None = None
    held: int = 0

    def __init__(
        self,
        message: str,
        *,
        required: int,
        available: int,
        live_at_peak: Sequence[tuple[str, int]],
        remedy: str = "",
        path: Sequence[str | int] = (),
        proved: bool = False,
    ) -> None:
        super().__init__(message, remedy=remedy, path=path)
        self.proved = proved
        self.required = required
        self.available = available
        self.live_at_peak = tuple(live_at_peak)

    @property
    def excess(self) -> int:
        return self.required - self.available

    @staticmethod
    def sentence(subject: str, *, peak: int | None, bound: int, capacity: int) -> str:
        """States the proved lower bound and the peak of the best layout (None: no layout), in bytes.

        `subject` begins the sentence, as "The plan needs". A bound over the capacity: nothing can fit.
        """
        if bound > capacity:
            best = "" if peak in (None, bound) else f", {peak:,} as far as the solver could find"
            return f"{subject} {bound:,} bytes at least{best}; the capacity is {capacity:,}."
        proved = f"{bound:,} bytes at least are proved" if bound else "No bound is proved"
        unknown = f"{proved}, so whether a layout within it exists is not known."
        if peak is None:
            return f"No layout was found; the capacity is {capacity:,}. {unknown}"
        best = f"{subject} {peak:,} bytes as far as the solver could find"
        return f"{best}; the capacity is {capacity:,}. {unknown}"


class PlanError(ArenaplanError):
    code = "invalid-plan"


class InternalError(ArenaplanError):
    code = "internal-error"
