"""PyTorch's kernels on tensors that lie in given memory: NumPy's blocks, or one slab of a device.

A call of a traced step is bound to memory once: its tensors are views that stay, and each run calls the
kernel. Where PyTorch has a kernel that writes into a tensor (``out=``), the result goes to its place at once;
else PyTorch allocates the result, and it is copied.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from solver.importers.pytorch.capture import torch
from solver.importers.traced import Placed

__all__ = ["GENERATOR", "Call", "View", "below_autograd"]

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
    """A run of the same operator's kernel that writes into `places`; None where there is none."""
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
