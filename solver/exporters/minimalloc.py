"""MiniMalloc's CSV out: what `solver.importers.minimalloc` reads, with offsets from a layout."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from solver.errors import OptionsError, ProblemError
from solver.layout import Buffer, Hole, Layout, LayoutProblem
from solver.names import first_hidden

if TYPE_CHECKING:  # whoever writes a layout knows no plans, and waits for every import
    from solver.plan import PlanView

__all__ = ["dump_minimalloc", "dump_plan_problem"]


def dump_plan_problem(plan: PlanView) -> bytes:
    """The buffers of a plan as a problem, without offsets, for other planners.

    Of a deployment, joined, it has one run of each entry point, and each persistent value once. Raises
    OptionsError for a plan of several memories, ProblemError as `dump_minimalloc`. Linear.
    """
    filled = [arena for arena in plan.arenas if arena.buffers]
    if len(filled) > 1:
        raise OptionsError(
            f"MiniMalloc's CSV has one memory, and the plan has {', '.join(arena.name for arena in filled)}.",
            remedy="Write the rows of all memories: --to offsets-csv.",
            path=("to",),
        )
    buffers = (
        Buffer(b.id, b.size, b.lifespan, b.alignment, holes=tuple(map(Hole, b.lent)))
        for arena in filled
        for b in arena.buffers
        if b.size
    )
    return dump_minimalloc(LayoutProblem(tuple(buffers)))


def dump_minimalloc(
    problem: LayoutProblem, layout: Layout | None = None, homes: Sequence[str] | None = None
) -> bytes:
    """One line a buffer; columns of alignments and gaps where there are any, of offsets for a layout or pins,
    and of the memory of each buffer, by `homes` or as it must be.

    Without a layout the cells of buffers that are not pinned stay empty. Raises ProblemError for an
    id that the format, which has no quotes, cannot hold.
    """
    buffers = problem.buffers
    _check_ids(buffers)
    heads = ["id,lower,upper,size"]
    columns = [[f"{b.id},{b.lifespan.start},{b.lifespan.end},{b.size}" for b in buffers]]
    if any(buffer.alignment != 1 for buffer in buffers):
        heads.append("alignment")
        columns.append([str(buffer.alignment) for buffer in buffers])
    if any(buffer.holes for buffer in buffers):
        heads.append("gaps")
        columns.append([" ".join(map(_gap, buffer.holes)) for buffer in buffers])
    for name in ("reads", "writes"):
        if any(getattr(buffer, name) != 1 for buffer in buffers):
            heads.append(name)
            columns.append([str(getattr(buffer, name)) for buffer in buffers])
    if homes is not None or any(buffer.memory for buffer in buffers):
        heads.append("memory")
        columns.append(list(homes) if homes is not None else [buffer.memory for buffer in buffers])
    if layout is not None:
        offsets = list(map(str, layout.offsets))
    else:
        offsets = ["" if buffer.offset is None else str(buffer.offset) for buffer in buffers]
    if layout is not None or any(offsets):
        heads.append("offset")
        columns.append(offsets)
    return "\n".join([",".join(heads), *map(",".join, zip(*columns, strict=True)), ""]).encode()


def _check_ids(buffers: Sequence[Buffer]) -> None:
    """Most are right, which one look at all of them together shows."""
    ids = [buffer.id for buffer in buffers]
    joined = "".join(ids)
    if all(ids) and "," not in joined and first_hidden(joined) is None:
        return
    index = next(i for i, id_ in enumerate(ids) if not id_ or "," in id_ or first_hidden(id_) is not None)
    raise ProblemError(
        f"The id {ids[index]!r:.80} cannot be written to CSV.",
        remedy="Name the buffer without commas, control and format characters, or write JSON.",
        path=("buffers", index, "id"),
    )


def _gap(gap: Hole) -> str:
    kept = f"@{gap.low}:{gap.high}" if gap.low < gap.high else ""
    return f"{gap.lifespan.start}-{gap.lifespan.end}{kept}"
