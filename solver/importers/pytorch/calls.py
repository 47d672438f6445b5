"""PyTorch's kernels on tensors that lie in given memory: NumPy's blocks, or one slab of a device.

A call of a traced step is bound to memory once: its tensors are views that stay, and each run calls the
kernel. Where PyTorch has a kernel that writes into a tensor (``out=``), the result goes to its place at once;
else PyTorch allocates the result, and it is copied.
"""

from __future__ import annotations

import warnings
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Protocol, cast

import numpy as np

from solver.errors import DocumentError
from solver.importers.pytorch.capture import torch
from solver.importers.traced import Placed, TracedStep, reason_of

__all__ = [
    "GENERATOR",
    "Call",
    "Runs",
    "View",
    "allocated_bytes",
    "below_autograd",
    "outside_bytes",
    "with_scratch",
]

#: The block that holds the state of PyTorch's generator of random numbers.
GENERATOR = "torch.random.state"

#: Gives the tensor of a view.
TensorOf = Callable[["View"], Any]


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a block: its first element, sizes and strides, counted in elements.

    A tensor without elements is in no block. `conjugated` and `negated` say that PyTorch conjugates or
    negates the elements when it reads them.
    """

    block: str
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int
    conjugated: bool = False
    negated: bool = False

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return int(np.prod(self.shape)) * int(self.dtype.itemsize)

    def placed(self, path: str) -> Placed:
        """The same in bytes, for whoever runs the program."""
        size, word = self.dtype.itemsize, str(self.dtype).removeprefix("torch.")
        strides = tuple(stride * size for stride in self.strides)
        return Placed(path, self.block, self.start * size, self.shape, strides, word)

    def within(self, raw: Any) -> Any:
        """The tensor in the bytes of its block, ``uint8[nbytes]``; no copy."""
        start = raw.storage_offset() // self.dtype.itemsize + self.start
        return self.lazily(raw.view(self.dtype).as_strided(self.shape, self.strides, start))

    def lazily(self, tensor: Any) -> Any:
        """The tensor that reads these elements conjugated or negated if the view does."""
        tensor = tensor.conj() if self.conjugated else tensor
        return tensor._neg_view() if self.negated else tensor

    def of_array(self, blocks: Any) -> Any:
        """The tensor in an arena of NumPy, by the name of its block."""
        framework = torch()
        if not self.block:
            return framework.empty(self.shape, dtype=self.dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what an operation only reads is read-only, and stays as it is
            raw = framework.from_numpy(blocks[self.block].reshape(-1).view(np.uint8))
        return self.within(raw)


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with its arguments, in which views stand for tensors, and the places of what it returns; None
    for what it returns of its arguments. A call that `draws` random numbers updates the state in `GENERATOR`.
    `differentiable` calls run as in a forward pass, in which some kernels keep more for the backward pass.
    """

    target: Any
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    outputs: Sequence[View | None]
    draws: View | None = None
    differentiable: bool = False

    def __call__(self, blocks: Any) -> None:
        """Run on blocks of NumPy."""
        self.bound(lambda view: view.of_array(blocks))()

    def bound(self, tensor_of: TensorOf, *, into_place: bool = False) -> Callable[[], Any]:
        """A function that runs the kernel on these tensors, and returns what the kernel does; `into_place`
        uses ``out=`` where there is one.
        """

        def tensors(argument: Any) -> Any:
            if isinstance(argument, list | tuple):
                return [tensors(x) for x in argument]
            return tensor_of(argument) if isinstance(argument, View) else argument

        arguments, named = tensors(self.arguments), {key: tensors(x) for key, x in self.named.items()}
        places = [None if view is None else tensor_of(view) for view in self.outputs]
        run = None
        if into_place and not self.draws:
            run = _writing(self.target, arguments, named, places)
        if run is None:
            run = _copying(self.target, arguments, named, places)
        run = below_autograd(run) if self.differentiable else torch().no_grad()(run)
        return run if self.draws is None else _drawing(run, tensor_of(self.draws))


def _copying(
    target: Any, arguments: Sequence[Any], named: Mapping[str, Any], places: Sequence[Any]
) -> Callable[[], Any]:
    def run() -> Any:
        returned = target(*arguments, **named)
        many = returned if isinstance(returned, list | tuple) else [returned]
        for place, result in zip(places, many, strict=True):
            if place is not None:
                place.copy_(result)
        return returned

    return run


def _writing(
    target: Any, arguments: Sequence[Any], named: Mapping[str, Any], places: Sequence[Any]
) -> Callable[[], Any] | None:
    """A run of the same operator's kernel that writes into `places`; None if it has no such kernel."""
    packet = getattr(target, "overloadpacket", None)
    if packet is None or not places or any(place is None for place in places):
        return None
    plain = [(a.name, str(a.type)) for a in target._schema.arguments]
    for name in packet.overloads():
        overload = getattr(packet, name)
        taken = overload._schema.arguments
        outs = [a.name for a in taken if a.is_out]
        same = [(a.name, str(a.type)) for a in taken if not a.is_out] == plain
        if same and len(outs) == len(places) and _has_kernel(overload, places[0]):
            into = dict(zip(outs, places, strict=True))
            return partial(overload, *arguments, **named, **into)
    return None


def below_autograd(run: Callable[[], Any]) -> Callable[[], Any]:
    """The run as PyTorch makes it in a forward pass: with gradients, but below what records them."""
    framework = torch()

    def below() -> Any:
        with framework.enable_grad(), framework._C._AutoDispatchBelowAutograd():
            return run()

    return below


def _has_kernel(overload: Any, place: Any) -> bool:
    """Whether a device has a kernel of its own for it: one that is generated copies its results."""
    key = place.device.type.upper()
    return bool(torch()._C._dispatch_has_kernel_for_dispatch_key(overload.name(), key))


def _drawing(run: Callable[[], Any], state: Any) -> Callable[[], Any]:
    """The run with the generator in a state that it updates; for others the generator stays as it is."""
    generator = torch().random.default_generator

    def drawing() -> Any:
        others = generator.get_state()
        generator.set_state(state.cpu().clone())
        try:
            returned = run()
            state.copy_(generator.get_state())
        finally:
            generator.set_state(others)
        return returned

    return drawing


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
