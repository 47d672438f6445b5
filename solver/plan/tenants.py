"""Checks buffers that hold several operands: every read finds the value that was written for it.

The steps are replayed without values. For each such buffer the replay knows which operands the bytes
hold: those that the last overwriting left, and the views of them since then::

    step                      holds after it
    conv      defines x       x
    relu      x -> y          y              an operand in place of x: reading x from now on is an error
    flatten   y -> z, a view  y, z           both can be read
    softmax   z -> s          s

Which kernels can do without memory of their own is not checked here; `validate` compares the claims with
those of the graph's operators, and the training with one in which each operand has memory of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from solver.layout.model.problem import Lifespan
from solver.plan.plan import Plan, PlannedBuffer, PlannedStep, Tenant
from solver.plan.violation import Violation
from solver.training.program import CALLER_DEFINED, Lifetime, OperandKind

__all__ = ["check_tenants"]

RULE = "in-place"

#: Kernels that copy every byte as it is; those of the derivatives are more.
_COPIES = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_DERIVATIVE_COPIES = _COPIES | {"Add", "Sub"}
_DERIVATIVES = frozenset({OperandKind.DERIVATIVE, OperandKind.PARTIAL, OperandKind.GRADIENT})

_LENGTHS = {lifetime: length for length, lifetime in enumerate(Lifetime)}


def check_tenants(plan: Plan) -> Iterator[Violation]:
    """Every read of a value that is no longer there, and every claim that does not fit. Linear."""
    shared = [buffer for _, buffer in plan.buffers() if buffer.tenants]
    for buffer in shared:
        for detail in _misfits(buffer):
            yield Violation(RULE, (buffer.id,), detail)
    replays = [_Replay(buffer) for buffer in shared]
    home = {tenant.id: replay for replay in replays for tenant in replay.buffer.tenants}
    for time, step in zip(plan.times, plan.steps, strict=True):
        touched = (home[name] for name in (*step.uses, *step.defs, *step.scratch) if name in home)
        for replay in dict.fromkeys(touched):
            for detail in replay.run(time, step):
                yield Violation(RULE, (replay.buffer.id,), f"Step {step.id!r} {detail}")
    for replay in replays:
        for name in replay.lost():
            yield Violation(RULE, (name,), f"{name!r} is read after the last step, but overwritten before.")


def _misfits(buffer: PlannedBuffer) -> Iterator[str]:
    """What is wrong with the tenants themselves, no step considered."""
    first, *later = buffer.tenants
    if first.id != buffer.id or first.source is not None:
        yield f"{buffer.id!r} must be the first tenant of its buffer."
    for tenant in buffer.tenants:
        if tenant.dtype != buffer.dtype or math.prod(tenant.shape) != math.prod(buffer.shape):
            yield f"{tenant.id!r} does not have the size of {buffer.id!r}, whose bytes it takes."
    for tenant in later:
        if tenant.lifetime is Lifetime.MAX:
            yield f"{tenant.id!r} carries over, but others are in its place before."
        if tenant.source is None:
            yield f"{tenant.id!r} does not say whose memory it takes."
    start = min(tenant.lifespan.start for tenant in buffer.tenants)
    end = max(tenant.lifespan.end for tenant in buffer.tenants)
    if buffer.lifespan != Lifespan(start, end):
        yield f"{buffer.id!r} lives {_span(buffer.lifespan)}, its tenants [{start}, {end})."
    longest = max((tenant.lifetime for tenant in buffer.tenants), key=_LENGTHS.__getitem__)
    if buffer.lifetime is not longest:
        yield f"{buffer.id!r} has the lifetime {buffer.lifetime.value}, a tenant {longest.value}."


class _Replay:
    """What the bytes of one buffer hold, step after step."""

    def __init__(self, buffer: PlannedBuffer) -> None:
        self.buffer = buffer
        self.tenants = {tenant.id: tenant for tenant in buffer.tenants}
        first = buffer.tenants[0]
        self.is_the_callers = first.kind in CALLER_DEFINED
        self.holds = {first.id} if self.is_the_callers else set[str]()
        self.defined = set(self.holds)
        self.touched_at = self.overwritten_at = -1

    def run(self, time: int, step: PlannedStep) -> Iterator[str]:
        uses = [name for name in step.uses if name in self.tenants]
        defs = [self.tenants[name] for name in step.defs if name in self.tenants]
        for name in step.scratch:
            if name in self.tenants:
                yield f"has the scratch {name!r} in a buffer that holds operands."
        for name in uses:
            if name not in self.holds:
                yield f"reads {name!r}, whose bytes hold {self._contents()}."
        overwriting = [tenant for tenant in defs if not tenant.view or tenant.id in uses]
        for tenant in defs:
            yield from self._check_def(tenant, uses, step)
        if self.overwritten_at == time or (overwriting and self.touched_at == time):
            yield f"touches {self.buffer.id!r} while another step of its wave overwrites it."
        self.touched_at = time
        if overwriting:
            yield from self._overwrite(overwriting[0], defs, uses, time)
        else:
            self.holds.update(tenant.id for tenant in defs)
        self.defined.update(tenant.id for tenant in defs)

    def _check_def(self, tenant: Tenant, uses: list[str], step: PlannedStep) -> Iterator[str]:
        """Whether an operand may begin here."""
        if tenant.id in uses:
            return
        if tenant.id in self.defined:
            yield f"defines {tenant.id!r} again."
        elif tenant.source is None:
            if self.holds:
                yield f"defines {tenant.id!r} where {self._contents()} is."
        elif tenant.source not in uses:
            yield f"defines {tenant.id!r} in the memory of {tenant.source!r} without reading that."
        elif tenant.view and step.kernel not in (
            _DERIVATIVE_COPIES if tenant.kind in _DERIVATIVES else _COPIES
        ):
            yield f"is of kind {step.kernel}, which makes no view {tenant.id!r}."

    def _overwrite(self, new: Tenant, defs: list[Tenant], uses: list[str], time: int) -> Iterator[str]:
        if len(defs) > 1:
            yield f"overwrites {self.buffer.id!r} with {' and '.join(repr(tenant.id) for tenant in defs)}."
        others = [name for name in uses if name not in (new.id, new.source)]
        if others:
            yield f"overwrites {others[0]!r} with {new.id!r} while it reads it."
        if self.is_the_callers and new is not self.buffer.tenants[0]:
            yield f"overwrites {self.buffer.id!r}, which is the caller's, with {new.id!r}."
        self.holds, self.overwritten_at = {new.id}, time

    def lost(self) -> list[str]:
        """Operands that are read after the last step, and whose value is gone."""
        kept = [tenant.id for tenant in self.buffer.tenants if tenant.lifetime.outlives_iteration]
        return [name for name in kept if name not in self.holds]

    def _contents(self) -> str:
        return " and ".join(sorted(map(repr, self.holds))) or "nothing"


def _span(span: Lifespan) -> str:
    return f"[{span.start}, {span.end})"
