"""Memory plans for ExecuTorch: an algorithm that its `MemoryPlanningAlgorithmSuite` takes beside its own.

ExecuTorch says for each tensor (`TensorSpec`) its bytes, in which memory it lies, and at which nodes it
lives, the last one included; this places all of a memory at once. What ExecuTorch's greedy algorithm finds
is taken where that is smaller, or where tensors are given in a way that is not known here. Written for
ExecuTorch 1.5.

The lives that ExecuTorch gives are not right for every program: results of branches are overwritten by the
next ones. So the plan is followed once more, call by call, and wrong reads are warned of.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from solver.errors import OptionsError
from solver.exporters.executorch_graph import stale_reads_of_graph
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan
from solver.layout.api import solve
from solver.removed import removed

__all__ = [
    "DEFAULT_MEMORY",
    "arranged",
    "not_installed",
    "placed",
    "plan_memory",
    "refuse_options",
    "warn_of_stale_reads",
]

#: The number of the memory of tensors that name none.
DEFAULT_MEMORY = 1


def plan_memory(
    alignment: int,
    specs: Collection[Any],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int = 0,
    *,
    deadline_seconds: float | None = None,
    **options: Any,
) -> Any:
    """Offsets of all tensors, as ExecuTorch's `MemoryAlgoResult`: no memory is larger than `greedy` makes it.

    The arguments are those that ExecuTorch gives its algorithms; `deadline_seconds` is for
    ``functools.partial``: it bounds each search by wall time, without it the same program gives the same
    plan. Sizes and offsets are bytes, offsets multiples of `alignment`.

    Raises ImportError without ExecuTorch, and OptionsError for options that earlier versions had. Warns
    (RuntimeWarning) where the program reads bytes that another call has written since, and names the calls.
    """
    refuse_options("plan_memory", options)
    result = placed(alignment, list(specs), graph_module, graph_signature, extra_padding, deadline_seconds)
    warn_of_stale_reads(graph_module, result.spec_dict, stacklevel=3)
    return result


def refuse_options(function: str, options: Mapping[str, Any]) -> None:
    """Raises OptionsError for an option that earlier versions had, TypeError for any other."""
    for name in options:
        sentence = removed(f"executorch.{name}")
        if sentence is None:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        raise OptionsError(sentence, path=(name,))


def placed(
    alignment: int,
    specs: Sequence[Any],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int,
    deadline_seconds: float | None,
) -> Any:
    """The smaller one of two layouts for each memory: that of `greedy`, and our own."""
    try:
        from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult, greedy
    except ImportError as error:
        raise not_installed() from error
    #: Bytes at the bottom of each memory that branches and loops take.
    starts = list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])
    theirs = greedy(alignment, specs, graph_module, graph_signature, extra_padding)  # which rounds sizes up
    results, sizes = dict(theirs.spec_dict), list(theirs.bufsizes)
    memories: dict[int, list[Any]] = {}
    for spec, place in results.items():
        memories.setdefault(place.mem_id, []).append(spec)
    for memory, inside in memories.items():
        start = starts[memory] if memory < len(starts) else 0
        room = sizes[memory] - extra_padding - start
        layout = arranged(inside, alignment, start, room, deadline_seconds)
        if layout is None:
            continue
        offsets, size = layout
        sizes[memory] = size + extra_padding
        # One object for the whole memory: any two of its tensors may share bytes at different times.
        results |= {spec: SpecAllocResult(memory, 0, offsets[id(spec)]) for spec in inside}
    return MemoryAlgoResult(results, sizes)


def not_installed() -> ImportError:
    return ImportError(
        "ExecuTorch is not installed here: pip install 'executorch>=1.5' 'torch>=2.9'.", name="executorch"
    )


def warn_of_stale_reads(graph_module: Any, places: Mapping[Any, Any], *, stacklevel: int = 2) -> None:
    """Warn (RuntimeWarning) of operands of a planned graph that are overwritten before they are read.

    `places` are as in `stale_reads_of_graph`.
    """
    for sentence in stale_reads_of_graph(graph_module, places):
        warnings.warn(
            f"Results may be wrong: {sentence} ExecuTorch hands on the result of a branch without a copy,"
            " whatever the plan. Export the module with torch.cond(...).clone().",
            RuntimeWarning,
            stacklevel=stacklevel,
        )


def arranged(
    specs: Sequence[Any], alignment: int, start: int, room: int, deadline_seconds: float | None = None
) -> tuple[Mapping[int, int], int] | None:
    """Offsets of the tensors of one memory by their `id`, and its size; None where it is not below `room`.

    `start` bytes in front belong to others; `room` are the bytes behind them that another plan takes. A
    tensor with a `storage_base` lies in that one's bytes. Also None for tensors without a lifetime, or in
    bytes of one that is not among them. Cost: a layout search (`solver.layout.solve`).
    """
    known = {id(spec) for spec in specs}
    roots = [spec for spec in specs if getattr(spec, "storage_base", None) is None]
    views = [spec for spec in specs if getattr(spec, "storage_base", None) is not None]
    if any(None in spec.lifetime for spec in specs) or any(id(v.storage_base) not in known for v in views):
        return None
    sized = [spec for spec in roots if spec.allocated_memory > 0]
    # Where memory begins behind others' bytes, alignment counts from the beginning.
    behind = -start % alignment
    problem = LayoutProblem(
        tuple(
            Buffer(str(k), spec.allocated_memory, Lifespan(spec.lifetime[0], spec.lifetime[1] + 1), alignment)
            for k, spec in enumerate(sized)
        )
    )
    layout = solve(problem, deadline=Deadline.after(deadline_seconds)).layout if sized else None
    peak = layout.peak if layout else 0
    if behind + peak >= room:
        return None
    offsets = {id(spec): start + behind for spec in roots}
    for spec, offset in zip(sized, layout.offsets if layout else (), strict=True):
        offsets[id(spec)] = start + behind + offset
    while views:
        ready = [spec for spec in views if id(spec.storage_base) in offsets]
        if not ready:
            return None
        for spec in ready:
            offsets[id(spec)] = offsets[id(spec.storage_base)] + spec.storage_base_offset
        views = [spec for spec in views if id(spec) not in offsets]
    return offsets, start + behind + peak
