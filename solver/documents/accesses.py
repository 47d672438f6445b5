"""Logs of accesses: JSON lines that a runtime writes, held against a plan by `solver.verify`.

    {"step": "conv1:forward", "access": "read", "value": "conv1.weight"}
    {"step": 0, "access": "write", "space": "arena", "offset": 3211264, "bytes": 128}

A line names a step by its label or its position in the plan, and bytes either as a value (all of it, or
`bytes` of it from `offset` on) or as `bytes` of a space from `offset` on; the space may be left out where
there is one. `iteration`, from 0, may be left out where no step is earlier than the one before it. A first
line ``{"format": "arenaplan.accesses", "version": 1, "plan": digest}`` ties the log to its plan; it may be
left out.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from solver.errors import DocumentError, PlanError
from solver.plan import Plan
from solver.verify import MemoryAccess

__all__ = ["dump_accesses", "load_accesses"]

_FORMAT: Final = "arenaplan.accesses"

_FIELDS: Final = ("step", "access", "value", "space", "offset", "bytes", "iteration")
#: Beyond any memory, and far from what makes arithmetic slow.
_MOST: Final = 2**62


def load_accesses(data: bytes, plan: Plan) -> list[MemoryAccess]:
    """The accesses of a log, in its order; empty lines say nothing. Linear.

    Raises DocumentError, which names the line, for what is not a log of this plan's steps and values, and
    PlanError for a log of another plan.
    """
    reader = _Reader(plan)
    accesses: list[MemoryAccess] = []
    for number, line in enumerate(io.BytesIO(data), 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise _refused(number, f"is not JSON: {error}", "Write one object a line.") from None
        if not isinstance(fields, dict):
            raise _refused(number, "is not an object", "Write one object a line.")
        if "format" in fields and not accesses:
            _check_header(number, fields, plan)
            continue
        accesses.append(reader.access(number, fields))
    return accesses


def dump_accesses(accesses: Iterable[MemoryAccess], plan: Plan) -> Iterator[bytes]:
    """The lines of a log, its header first."""
    yield _line({"format": _FORMAT, "version": 1, "plan": plan.digest})
    labels, spaces = plan.program.step_labels, plan.program.spaces
    for access in accesses:
        fields: dict[str, Any] = {
            "step": labels[access.step],
            "access": "write" if access.writes else "read",
            "space": spaces[access.space].name,
            "offset": access.offset,
            "bytes": access.nbytes,
        }
        if access.iteration is not None:
            fields["iteration"] = access.iteration
        yield _line(fields)


def _line(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _refused(line: int, what: str, remedy: str) -> DocumentError:
    return DocumentError(f"Line {line} {what}.", remedy=remedy, path=(line - 1,))


def _check_header(line: int, fields: Mapping[str, Any], plan: Plan) -> None:
    if fields["format"] != _FORMAT or fields.get("version") != 1:
        raise _refused(line, f"is not the first line of a log: {_FORMAT}, version 1", "Correct or drop it.")
    if fields.get("plan", plan.digest) != plan.digest:
        raise PlanError(
            f"The log is of plan {str(fields['plan'])[:16]!r}, not of {plan.digest[:16]!r}.",
            remedy="Give the plan that the runtime was built with.",
        )


class _Reader:
    """Knows the names of one plan."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        self._plan = plan
        self._steps = {label: t for t, label in enumerate(program.step_labels)}
        self._spaces = {space.name: k for k, space in enumerate(program.spaces)}
        self._iteration: int | None = None

    def access(self, line: int, fields: Mapping[str, Any]) -> MemoryAccess:
        for name in fields:
            if name not in _FIELDS:
                raise _refused(line, f"has an unknown field {name!r:.40}", f"Known: {', '.join(_FIELDS)}.")
        step = self._step(line, fields.get("step"))
        kind = fields.get("access")
        if kind not in ("read", "write"):
            raise _refused(line, f"has the access {kind!r:.40}", "Write read or write.")
        space, offset, nbytes = self._bytes(line, fields)
        iteration = fields.get("iteration")
        if iteration is not None:
            iteration = _natural(line, fields, "iteration")
        if self._iteration is not None and (iteration is None or iteration < self._iteration):
            raise _refused(
                line, f"is of iteration {iteration}, behind one of {self._iteration}", "Keep them in order."
            )
        self._iteration = iteration
        return MemoryAccess(step, kind == "write", space, offset, nbytes, iteration, line)

    def _step(self, line: int, value: Any) -> int:
        if isinstance(value, str) and value in self._steps:
            return self._steps[value]
        count = len(self._plan.program.steps)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < count:
            return value
        raise _refused(
            line,
            f"is of step {value!r:.80}, which the plan does not have",
            f"Name a step as `arenaplan show` does, or give its position, 0 to {count - 1}.",
        )

    def _bytes(self, line: int, fields: Mapping[str, Any]) -> tuple[int, int, int]:
        program = self._plan.program
        label = fields.get("value")
        if label is not None:
            if "space" in fields:
                raise _refused(line, "has a value and a space", "Give one of the two.")
            number = program.by_label.get(label) if isinstance(label, str) else None
            if number is None:
                remedy = "Name a value as `arenaplan offsets` does."
                raise _refused(line, f"is of value {label!r:.80}, which the plan does not have", remedy)
            value = program.values[number]
            offset = _natural(line, fields, "offset") if "offset" in fields else 0
            nbytes = _natural(line, fields, "bytes") if "bytes" in fields else value.type.nbytes - offset
            if nbytes < 0 or offset + nbytes > value.type.nbytes:
                what = f"goes beyond the {value.type.nbytes:,} bytes of {label!r:.80}"
                raise _refused(line, what, "Give a range inside the value, or one of the space.")
            return value.space, self._plan.offsets[number] + offset, nbytes
        name = fields.get("space")
        if name is None and len(program.spaces) == 1:
            name = program.spaces[0].name
        if not isinstance(name, str) or name not in self._spaces:
            known = ", ".join(self._spaces)
            raise _refused(line, f"is of space {name!r:.80}", f"Choose from {known}, or name a value.")
        return self._spaces[name], _natural(line, fields, "offset"), _natural(line, fields, "bytes")


def _natural(line: int, fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST:
        what = "lacks" if value is None else f"has {value!r:.40} as"
        raise _refused(line, f"{what} {name}", "Give a whole number, not negative.")
    return value
