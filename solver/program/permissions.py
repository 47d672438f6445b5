"""What an explicit step permits: results in the bytes of what it reads.

Of explicit kernels nothing is known, so their permissions stand among the attributes of the operation, where
the plan has them and the proof finds them: slots in pairs, ``w0=r1,w1=r0``.
"""

from __future__ import annotations

from collections.abc import Mapping

from solver.graph.ops.base import InPlace, Node

__all__ = ["permission_attributes", "permitted"]

_KEY = "overwrites"


def permission_attributes(slots: Mapping[str, str]) -> dict[str, str]:
    """The attributes of an operation that permits each slot that it writes to lie in one that it reads."""
    return {_KEY: ",".join(f"{target}={source}" for target, source in slots.items())} if slots else {}


def permitted(node: Node) -> tuple[InPlace, ...]:
    """The permissions of an explicit operation, as an operator's promises. Linear."""
    pairs = [pair.partition("=") for pair in str(node.attributes.get(_KEY, "")).split(",")]
    return tuple([InPlace(source, target) for target, _, source in pairs if source])
