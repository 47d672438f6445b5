"""Measurements of the memory that PyTorch's kernels allocate by themselves, beside the tensors that they get.

Each operation of a traced step runs once, in tensors that are there for it alone: ones where it takes
floating-point numbers, else zeros.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, cast

from solver.errors import DocumentError
from solver.importers.pytorch.calls import GENERATOR, View
from solver.importers.pytorch.capture import torch
from solver.importers.traced import TracedStep, reason_of

__all__ = ["Runs", "allocated_bytes", "outside_bytes", "with_scratch"]


class Runs(Protocol):
    """A dataclass: the run of an operation of a traced step, in memory that it is bound to."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def bound(self, tensor_of: Callable[[View], Any], *, into_place: bool) -> Callable[[], Any]: ...


def with_scratch(traced: TracedStep) -> TracedStep:
    """The step with a workspace for each operation whose kernel allocates memory and frees it again.

    Raises DocumentError for a kernel that cannot run by itself. Cost: a run of each operation.
    """
    runs = _alone(traced, traced.functions, None)
    scratch = dict(zip(traced.functions, allocated_bytes(runs, with_results=False), strict=True))
    operations = tuple(replace(o, workspace=scratch[o.name]) for o in traced.program.operations)
    return replace(traced, program=replace(traced.program, operations=operations))


def outside_bytes(traced: TracedStep) -> tuple[int, frozenset[str]]:
    """The most bytes that PyTorch allocates while one operation of the step runs, and the operations whose
    kernels write results into their places.

    A result is among the bytes where PyTorch has no kernel that writes it into its place, and so is what a
    kernel allocates and frees again. Raises DocumentError as `with_scratch`. Cost: two runs of an operation.
    """
    into_place: set[str] = set()
    tried = allocated_bytes(_alone(traced, traced.functions, into_place))
    allocated = dict(zip(traced.functions, tried, strict=True))
    others = [name for name in traced.functions if name not in into_place]
    if others:
        allocated |= zip(others, allocated_bytes(_alone(traced, others, None)), strict=True)
    return max(allocated.values(), default=0), frozenset(into_place)


def _alone(
    traced: TracedStep, names: Iterable[str], into_place: set[str] | None
) -> Iterator[Callable[[], Any]]:
    """Operations in memory of their own, one after the other. With `into_place` results are written to their
    places, and the operations are added that keep to these.
    """
    framework = torch()
    for name in names:
        # A generator of random numbers takes no other numbers for its state.
        blocks: dict[str, Any] = {GENERATOR: framework.random.get_rng_state()}

        def tensor_of(view: View, blocks: dict[str, Any] = blocks) -> Any:
            if not view.block:
                return framework.empty(view.shape, dtype=view.dtype)
            if view.block in blocks:
                return view.within(blocks[view.block])
            size = traced.program.blocks[view.block].type.nbytes
            blocks[view.block] = framework.zeros(size, dtype=framework.uint8)
            tensor = view.within(blocks[view.block])
            return tensor.fill_(1) if view.dtype.is_floating_point else tensor

        runs = replace(cast("Runs", traced.functions[name]))
        yield _named(name, runs.bound(tensor_of, into_place=into_place is not None))
        # Some kernels use the tensor that they write into as room for more, and enlarge it.
        kept = all(raw.untyped_storage().nbytes() == raw.nbytes for raw in blocks.values())
        if into_place is not None and kept:
            into_place.add(name)


def _named(name: str, run: Callable[[], Any]) -> Callable[[], Any]:
    """The run, whose errors name the operation."""

    def named() -> Any:
        try:
            return run()
        except Exception as error:
            raise DocumentError(
                f"What {name!r} allocates cannot be measured: its kernel refuses tensors of ones and zeros:"
                f" {reason_of(error)}",
                remedy="Trace the step by arenaplan.torch.program without scratch=True: that runs no kernel.",
            ) from error

    return named


def allocated_bytes(runs: Iterable[Callable[[], Any]], *, with_results: bool = True) -> list[int]:
    """For each run the most bytes that PyTorch has allocated in it at a time; `with_results` says whether
    the tensors that it returns are among them. Each runs once, on the CPU, when the iterator gives it.

    As PyTorch's profiler counts them: what libraries allocate past its allocator is not among them.
    """
    framework = torch()
    profiler = framework.profiler
    mark = "arenaplan: run "
    returned_at: list[set[int]] = []
    with (
        warnings.catch_warnings(),
        profiler.profile(activities=[profiler.ProfilerActivity.CPU], profile_memory=True) as profile,
    ):
        warnings.simplefilter("ignore")  # of kernels that enlarge the tensor which they write into
        for k, run in enumerate(runs):
            with profiler.record_function(f"{mark}{k}"):
                returned = run()
            many = returned if isinstance(returned, list | tuple) else [returned]
            returned_at.append({x.untyped_storage().data_ptr() for x in many if hasattr(x, "data_ptr")})
            del run, returned, many
    spans: dict[int, tuple[int, int]] = {}
    changes: list[tuple[int, int, int]] = []
    events = list(profile.profiler.kineto_results.experimental_event_tree())
    while events:
        event = events.pop()
        kind, facts = event.typed
        if kind.name == "Allocation":
            changes.append((event.start_time_ns, facts.ptr, facts.alloc_size))
        elif event.name.startswith(mark):
            spans[int(event.name.removeprefix(mark))] = (event.start_time_ns, event.end_time_ns)
        events += event.children
    changes.sort()
    times = [time for time, _, _ in changes]
    most = []
    for k, addresses in enumerate(returned_at):
        start, end = spans[k]
        own = changes[bisect_left(times, start) : bisect_right(times, end)]
        most.append(_most_bytes(own, set() if with_results else addresses))
    return most


def _most_bytes(changes: Sequence[tuple[int, int, int]], results: Collection[int]) -> int:
    """The most bytes that are allocated at a time, apart from those that are at `results` in the end.

    `changes` are (time, address, bytes), in which bytes that are freed are negative.
    """
    last = {address: time for time, address, nbytes in changes if nbytes > 0}
    live = most = 0
    for time, address, nbytes in changes:
        if address not in results or time != last[address]:
            live += nbytes
            most = max(most, live)
    return most
