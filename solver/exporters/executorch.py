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

from solver.errors import CapacityError, OptionsError
from solver.exporters.executorch_banks import Graph, MemoryMap, memory_map, placement
from solver.exporters.executorch_graph import accesses, offset_in_root, root, stale_reads_of_graph
from solver.layout import Buffer, Deadline, LayoutProblem, Lifespan
from solver.layout.api import solve

__all__ = [
    "DEFAULT_MEMORY",
    "arranged",
    "not_installed",
    "only_host_memory",
    "placed",
    "plan_memory",
    "planned",
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
    target: Any = None,
    bytes_per_second: Mapping[str, float] | None = None,
    deadline_seconds: float | None = None,
) -> Any:
    """Offsets of all tensors, as ExecuTorch's `MemoryAlgoResult`: no memory is larger than `greedy` makes it.

    The arguments are those that ExecuTorch gives its algorithms; the others are for ``functools.partial``.
    `target` is a `TargetMemoryMap`: tensors whose `mem_id` is set stay there, the others lie in the banks in
    which the program takes the least modelled time, never more than by `BankedGreedy`. `bytes_per_second` has
    the speed of each bank by its name; by default each is a tenth as fast as the one before.
    `deadline_seconds` bounds each search by wall time, without it the same program gives the same plan. Sizes
    and offsets are bytes, offsets multiples of `alignment`.

    Raises ImportError without ExecuTorch, CapacityError for a bank that is too small, with the bytes that it
    needs, and OptionsError for a map that does not fit the program. Warns (RuntimeWarning) where the program
    reads bytes that another call has written since, and names the calls.
    """
    result = planned(
        *(alignment, list(specs), graph_module, graph_signature, extra_padding, deadline_seconds),
        target=target,
        bytes_per_second=bytes_per_second,
    )
    warn_of_stale_reads(graph_module, result.spec_dict, stacklevel=3)
    return result


def planned(
    alignment: int,
    specs: Sequence[Any],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int,
    deadline_seconds: float | None,
    *,
    target: Any,
    bytes_per_second: Mapping[str, float] | None,
) -> Any:
    """As `plan_memory`, without the check of what the program reads."""
    arguments = alignment, specs, graph_module, graph_signature, extra_padding
    if target is None:
        return placed(*arguments, deadline_seconds)
    only_host_memory(specs)
    banks = memory_map(target, alignment, extra_padding, bytes_per_second)
    graph = Graph(specs, graph_module, _reserved(graph_module))
    theirs = _banked_greedy(target, *arguments)
    for spec in specs:
        spec.realign(alignment)
    try:
        ours = placement([graph], [], banks, Deadline.after(deadline_seconds))
    except CapacityError:
        if theirs is None:
            raise
        ours = None
    if theirs is not None and (ours is None or _time(theirs, graph, banks) < ours.time):
        places = {
            id(spec): (place.mem_id, place.mem_offset)
            for spec, place in theirs.spec_dict.items()
            if spec.storage_base is None
        }
    else:
        assert ours is not None
        places = ours.graphs[0]
    return placed(*arguments, deadline_seconds, banks=banks, places=places)


def placed(
    alignment: int,
    specs: Sequence[Any],
    graph_module: Any,
    graph_signature: Any,
    extra_padding: int,
    deadline_seconds: float | None,
    *,
    banks: MemoryMap | None = None,
    places: Mapping[int, tuple[int, int]] | None = None,
) -> Any:
    """The smaller one of two layouts for each memory: that of `greedy`, or of `places`, and our own.

    `places` have the memory and the offset of tensors in `banks` by `id`; `greedy` places the others.
    """
    try:
        from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult, greedy
    except ImportError as error:
        raise not_installed() from error
    places = places or {}
    starts = _reserved(graph_module)
    others = [spec for spec in specs if id(root(spec)) not in places]
    theirs = greedy(alignment, others, graph_module, graph_signature, extra_padding)  # which rounds sizes up
    results, sizes = dict(theirs.spec_dict), list(theirs.bufsizes)
    for spec in specs:
        if id(root(spec)) in places:
            memory, offset = places[id(root(spec))]
            offset += offset_in_root(spec)
            sizes += [0] * (memory + 1 - len(sizes))
            sizes[memory] = max(sizes[memory], offset + spec.allocated_memory + extra_padding)
            results[spec] = SpecAllocResult(memory, 0, offset)
    memories: dict[int, list[Any]] = {}
    for spec, place in results.items():
        memories.setdefault(place.mem_id, []).append(spec)
    for memory, inside in memories.items():
        start = starts[memory] if memory < len(starts) else 0
        room = sizes[memory] - extra_padding - start
        layout = arranged(
            inside,
            banks.alignment(memory, alignment) if banks else alignment,
            start,
            room,
            deadline_seconds,
        )
        if layout is None:
            continue
        offsets, size = layout
        sizes[memory] = size + extra_padding
        # One object for the whole memory: any two of its tensors may share bytes at different times.
        results |= {spec: SpecAllocResult(memory, 0, offsets[id(spec)]) for spec in inside}
    return MemoryAlgoResult(results, sizes)


def only_host_memory(specs: Sequence[Any]) -> None:
    """Raises OptionsError for tensors in the memory of another device."""
    if any(getattr(spec.device, "name", "CPU") != "CPU" for spec in specs):
        raise OptionsError(
            "The program has tensors that are not in the host's memory; other devices have neither banks nor"
            " states of several methods.",
            remedy="Plan it with MemoryPlanningAlgorithmSuite([arenaplan.executorch.plan_memory]),"
            " or pass enable_non_cpu_memory_planning=False to ExecutorchBackendConfig.",
        )


def _reserved(graph_module: Any) -> list[int]:
    """Bytes at the bottom of each memory that branches and loops take."""
    return list(getattr(graph_module, "input_mem_buffer_sizes", None) or [])


def _banked_greedy(target: Any, *arguments: Any) -> Any:
    """ExecuTorch's own plan for its memory map; None where it refuses the program, or has no such plan."""
    try:
        from executorch.exir.banked_memory_planning import BankedGreedy, BankPlacementError, TargetMemoryMap
    except ImportError:  # ExecuTorch before 1.5.1
        return None
    if not isinstance(target, TargetMemoryMap):
        return None
    try:
        return BankedGreedy(target)(*arguments)
    except BankPlacementError:
        return None


def _time(result: Any, graph: Graph, banks: MemoryMap) -> int:
    """The modelled time of a plan of ExecuTorch's: accesses of tensors in banks."""
    counts = accesses(graph.graph_module)
    return sum(
        banks.time(spec.allocated_memory * max(1, counts[id(spec)]), bank)
        for spec, place in result.spec_dict.items()
        if spec.storage_base is None and (bank := banks.number(place.mem_id)) is not None
    )


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
