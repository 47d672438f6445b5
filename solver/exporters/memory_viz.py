"""A plan as a memory snapshot of PyTorch, for its viewer memory_viz.

    segments         one for each space, as the end of the iteration leaves it
    device_traces    a list for each space: buffers come ("alloc") and go ("free_requested", "free_completed")

A space is a "device". The stack of a block names the buffer, what it is, and the step with which it comes.
The format is that of `torch.cuda.memory._snapshot`; `torch.cuda._memory_viz` reads it as well.
"""

from __future__ import annotations

import pickle
from typing import Any, Final

from solver.plan import Arena, PlannedBuffer, PlanView

__all__ = ["dump_memory_viz", "memory_snapshot"]

#: Spaces begin far apart, and none at address zero.
_SPACE_DISTANCE_BYTES: Final = 1 << 44


def dump_memory_viz(plan: PlanView) -> bytes:
    """The snapshot, pickled. One level takes one microsecond of its time."""
    return pickle.dumps(memory_snapshot(plan), protocol=4)  # what PyTorch's own viewer reads


def memory_snapshot(plan: PlanView) -> dict[str, Any]:
    """The snapshot. O(n log n) for n buffers."""
    steps = plan.level_ids()
    bases = [(number + 1) * _SPACE_DISTANCE_BYTES for number in range(len(plan.arenas))]
    return {
        "segments": [
            _segment(arena, number, base, plan.duration, steps)
            for number, (arena, base) in enumerate(zip(plan.arenas, bases, strict=True))
            if arena.size
        ],
        "device_traces": [_trace(arena, base, steps) for arena, base in zip(plan.arenas, bases, strict=True)],
        "allocator_settings": {},
        "external_annotations": [],
    }


def _segment(arena: Arena, number: int, base: int, end: int, steps: tuple[str, ...]) -> dict[str, Any]:
    kept = sorted((b for b in arena.buffers if b.spans[-1].end >= end and b.size), key=lambda b: b.offset)
    blocks: list[dict[str, Any]] = []
    at = 0
    for buffer in kept:
        if at < buffer.offset:
            blocks.append(_block(base + at, buffer.offset - at, 0, "inactive", []))
        frames = _frames(buffer, buffer.spans[-1].start, steps)
        blocks.append(_block(base + buffer.offset, buffer.size, buffer.nbytes, "active_allocated", frames))
        at = buffer.end
    if at < arena.size:
        blocks.append(_block(base + at, arena.size - at, 0, "inactive", []))
    used = sum(buffer.size for buffer in kept)
    return {
        "device": number,
        "address": base,
        "total_size": arena.size,
        "allocated_size": used,
        "active_size": used,
        "requested_size": sum(buffer.nbytes for buffer in kept),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [{"filename": arena.name, "line": 0, "name": f"space {arena.name}"}],
        "blocks": blocks,
    }


def _block(address: int, size: int, requested: int, state: str, frames: list[Any]) -> dict[str, Any]:
    return {
        "address": address, "size": size, "requested_size": requested, "state": state, "frames": frames,
    }  # fmt: skip


def _trace(arena: Arena, base: int, steps: tuple[str, ...]) -> list[dict[str, Any]]:
    """Events in order of time; at one level buffers go before others come."""
    # Level, whether it comes, address: what sorts alike comes as the buffers stand in the plan.
    events: list[tuple[int, bool, int, PlannedBuffer]] = []
    for buffer in arena.buffers:
        for span in buffer.spans:
            events.append((span.start, True, buffer.offset, buffer))
            events.append((span.end, False, buffer.offset, buffer))
    events.sort(key=lambda event: event[:3])
    entries: list[dict[str, Any]] = []
    if arena.size:
        whole = {"addr": base, "size": arena.size, "stream": 0, "time_us": 0, "frames": []}
        entries.append({"action": "segment_alloc", **whole})
    for level, comes, offset, buffer in events:
        if not comes and level >= len(steps):
            continue  # what is there at the end stays, as in the segment
        frames = _frames(buffer, level, steps)
        one = {"addr": base + offset, "size": buffer.size, "stream": 0, "time_us": level, "frames": frames}
        actions = ("alloc",) if comes else ("free_requested", "free_completed")
        entries += [{"action": action, **one} for action in actions]
    return entries


def _frames(buffer: PlannedBuffer, level: int, steps: tuple[str, ...]) -> list[dict[str, Any]]:
    """The lines that the viewer prints as a stack, the innermost first."""
    shape = "x".join(map(str, buffer.shape)) or "scalar"
    elements = buffer.values[0].elements
    step = steps[level] if level < len(steps) else "end"
    return [
        {"filename": buffer.id, "line": level, "name": f"{buffer.kind.word} {elements} {shape}"},
        {"filename": step, "line": level, "name": f"level {level}"},
    ]
