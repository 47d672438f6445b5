"""Buffers that hold several operands, where some are defined in the memory of others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from solver.layout import Lifespan
from solver.targets.pools import TargetBuffer, TargetTenant
from solver.training.program import Lifetime

__all__ = ["together"]

_LENGTHS = {lifetime: length for length, lifetime in enumerate(Lifetime)}


def together(
    buffers: Iterable[TargetBuffer], shares: Mapping[str, tuple[str, bool]]
) -> tuple[TargetBuffer, ...]:
    """One buffer for all operands that share memory, in the place and with the name of the first of them.

    `shares` has the source of each operand that is defined in another one's memory, and whether it is a view,
    in the order of definition. The buffer lives as long as any of its tenants. Linear.
    """
    root: dict[str, str] = {}
    for operand, (source, _) in shares.items():
        root[operand] = root.get(source, source)
    alone = {buffer.id: buffer for buffer in buffers}
    tenants: dict[str, list[TargetTenant]] = {}
    for operand, first in root.items():
        rooms = tenants.setdefault(first, [TargetTenant(alone[first], None, view=False)])
        source, view = shares[operand]
        rooms.append(TargetTenant(alone[operand], source, view))
    return tuple(
        _joint(buffer, tenants[buffer.id]) if buffer.id in tenants else buffer
        for buffer in alone.values()
        if buffer.id not in root
    )


def _joint(buffer: TargetBuffer, tenants: list[TargetTenant]) -> TargetBuffer:
    spans = [tenant.buffer.lifespan for tenant in tenants]
    return replace(
        buffer,
        lifetime=max((tenant.buffer.lifetime for tenant in tenants), key=_LENGTHS.__getitem__),
        lifespan=Lifespan(min(span.start for span in spans), max(span.end for span in spans)),
        tenants=tuple(tenants),
    )
