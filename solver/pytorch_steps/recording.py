"""A step of PyTorch, recorded call by call while it runs on tensors without elements.

    module, loss, hooks ──► PyTorch's dispatcher ──► (kernel, views of blocks, strides of its results)

The step runs on the caller's own objects, so that hooks, checkpoints and closures see the parameters that
they know; whatever tensor a call takes is recognised by its storage. No element is computed. But each kind of
call runs once by itself, on ones: some kernels lay out results in another way than PyTorch's rules say.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from solver.errors import ArenaplanError, DocumentError
from solver.importers.pytorch.calls import GENERATOR, View, below_autograd
from solver.importers.pytorch.capture import torch
from solver.importers.pytorch.program import (
    Blocks,
    check_dense,
    draws_random_numbers,
    flops_of,
    view_at,
    written_by,
)
from solver.importers.traced import reason_of

__all__ = ["Recording", "dense_strides", "ones"]


class Recording(Blocks):
    """The calls of one step. `known` are the tensors that carry over, by name; those that share a storage
    share the block that is called after the first of them.

    `outside` are other tensors that the step takes, by block: it reads and writes them where they are.
    """

    def __init__(self, known: Mapping[str, Any], generator: Any) -> None:
        super().__init__(generator)
        from torch._subclasses import FakeTensorMode

        self._fake = FakeTensorMode()
        self._names: dict[int, str] = {}  # of blocks, by storage
        self._without: dict[int, Any] = {}  # bytes without elements, by the storage that they stand for
        self._alive: list[Any] = [generator]  # storages are told apart by address
        self._layouts: dict[Any, Any] = {}
        self._counts: dict[str, int] = {}
        self._spans: list[tuple[int, int]] = []
        self._generator = generator
        self.outside: dict[str, Any] = {}
        self._names[_storage(generator)] = GENERATOR
        self.known = {name: self._known(name, tensor) for name, tensor in known.items()}
        self.lasting = set(self.blocks)

    def _known(self, name: str, tensor: Any) -> View:
        check_dense(name, tensor)
        storage = tensor.untyped_storage()
        block = self._names.get(storage._cdata)
        if block is None:
            self._spans.append((storage.data_ptr(), storage.data_ptr() + storage.nbytes()))
            self._alive.append(storage)
            block = self._names[storage._cdata] = name
            self.fresh(name, tensor)
        return view_at(block if tensor.numel() else "", tensor)

    def fed(self, name: str, tensor: Any) -> tuple[Any, View]:
        """(A tensor without elements in the place of one that is fed, its view)."""
        check_dense(name, tensor)
        with self._fake:
            own = torch().empty_strided(
                tensor.shape, dense_strides(tensor), dtype=tensor.dtype, device=tensor.device
            )
        own.requires_grad_(tensor.requires_grad)
        return own, self._new(name, own, fed=True)

    def view(self, tensor: Any) -> View:
        """The view of a tensor that the step has computed, or that is known."""
        name = self._names[_storage(self._stand_in(tensor))]
        return view_at(name if tensor.numel() else "", tensor)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Records what is called within. Raises DocumentError for what cannot be recorded."""
        framework, generator, thread = torch(), self._generator, threading.get_ident()
        real = framework.random.default_generator
        from torch.utils._python_dispatch import TorchDispatchMode

        called = self._called

        class Mode(TorchDispatchMode):  # type: ignore[misc]  # PyTorch is not installed where this is checked
            def __torch_dispatch__(
                self, function: Any, types: Any, arguments: Any = (), named: Any = None
            ) -> Any:
                del types
                return called(function, arguments, named or {})

        def state_of() -> Any:
            return generator.clone() if threading.get_ident() == thread else real.get_state()

        def begin_at(state: Any) -> None:
            if threading.get_ident() == thread:
                generator.copy_(state)
            else:
                real.set_state(state)

        framework.clear_autocast_cache()
        try:
            with (
                patch.object(framework, "get_rng_state", state_of),
                patch.object(framework, "set_rng_state", begin_at),
                patch.object(framework.random, "get_rng_state", state_of),
                patch.object(framework.random, "set_rng_state", begin_at),
                Mode(),
            ):
                yield
        except ArenaplanError:
            raise
        except Exception as error:
            raise DocumentError(
                f"PyTorch cannot trace the step: {reason_of(error)}",
                remedy="Write a step that does not branch on elements, without calls of item() or compile().",
            ) from error
        finally:
            framework.clear_autocast_cache()

    def is_own(self, tensor: Any) -> bool:
        """Whether a tensor lies in the memory of a parameter or buffer."""
        return self._names.get(_storage(tensor)) in self.known

    def prune(self, needed: set[str]) -> None:
        """Leave out calls whose results nothing reads; `needed` blocks are read behind the last one."""
        needed, operations = needed | self.lasting | {GENERATOR}, []
        for operation in reversed(self.operations):
            if not needed.isdisjoint(operation.writes):
                operations.append(operation)
                needed.update(operation.reads)
            else:
                del self.functions[operation.name]
        self.operations[:] = reversed(operations)

    def _called(self, function: Any, arguments: Any, named: Any) -> Any:
        from torch.utils._pytree import tree_map

        framework = torch()
        tensors, keywords = tree_map(self._stand_in, (arguments, named))
        if not hasattr(function, "_schema") or function.namespace == "prim":
            with self._fake:
                return function(*tensors, **keywords)
        packet = function.overloadpacket.__name__
        number = self._counts[packet] = self._counts.get(packet, -1) + 1
        name = f"{packet}_{number}" if number else packet
        if packet == "_local_scalar_dense":
            raise DocumentError(
                f"PyTorch cannot trace the step: {name!r} takes an element of a tensor as a number.",
                remedy="Leave out item(), tolist() and the like; keep the number as a tensor.",
            )
        if isinstance(named.get("generator"), framework.Generator):
            raise DocumentError(
                f"PyTorch cannot trace the step: {name!r} draws from a torch.Generator of its own.",
                remedy="Leave out generator=, so that it draws from PyTorch's own generator.",
            )
        try:
            with self._fake:
                returned = function(*tensors, **keywords)
        except framework._subclasses.fake_tensor.DynamicOutputShapeException as error:
            raise DocumentError(
                f"PyTorch cannot trace the step: the shape of {name!r} depends on elements.",
                remedy="Use what has a known shape: torch.where(mask, x, 0) in place of x[mask], topk with a"
                " fixed k in place of nonzero or unique.",
            ) from error
        single = not isinstance(returned, list | tuple)
        many = [returned] if single else list(returned)
        fresh = [k for k, x in enumerate(many) if _is_tensor(x) and _storage(x) not in self._names]
        opaque = False
        for k, own in self._real_layouts(function, tensors, keywords, fresh).items():
            opaque = (
                opaque or own.shape != many[k].shape
            )  # memory of a library, whose bytes are its own affair
            many[k] = own
        results = [
            None
            if not _is_tensor(x)
            else self._new(name if single else f"{name}.{k}", x)
            if k in fresh
            else self.view(x)
            for k, x in enumerate(many)
        ]
        views, named_views = tree_map(self._viewed, (list(tensors), dict(keywords)))
        written, _ = written_by(function, views, named_views)
        if fresh or written:
            drawn = draws_random_numbers(function, tensors, keywords)
            flops = flops_of(function, tensors, keywords, many[0] if single else many)
            self.add(
                name,
                function,
                views,
                named_views,
                results,
                written,
                draws=drawn,
                flops=flops,
                differentiable=framework.is_grad_enabled(),
            )
            if opaque:
                self.operations[-1] = replace(self.operations[-1], pure=False)
        return many[0] if single else type(returned)(many)

    def _new(self, name: str, tensor: Any, *, fed: bool = False) -> View:
        """The view of a tensor without elements whose storage is new."""
        while name in self.blocks:
            name += "'"  # a parameter or buffer is called so
        self._names[_storage(tensor)] = name
        self._alive.append(tensor.untyped_storage())
        return self.fresh(name, tensor, fed=fed)

    def _viewed(self, argument: Any) -> Any:
        return self.view(argument) if _is_tensor(argument) else argument

    def _stand_in(self, argument: Any) -> Any:
        """The tensor without elements for one that has some; other arguments as they are."""
        if not _is_tensor(argument) or hasattr(argument, "fake_mode"):
            return argument
        storage = argument.untyped_storage()
        if storage._cdata not in self._names:
            self._take(argument, storage)
        if storage._cdata not in self._without:
            with self._fake:
                raw = torch().empty(storage.nbytes(), dtype=torch().uint8, device=argument.device)
            self._without[storage._cdata] = raw
            self._names[_storage(raw)] = self._names[storage._cdata]
        raw, size = self._without[storage._cdata], argument.element_size()
        with self._fake:
            whole = raw[: len(raw) // size * size].view(argument.dtype)
            place = whole.as_strided(argument.shape, argument.stride(), argument.storage_offset())
            return view_at("", argument).lazily(place)

    def _take(self, tensor: Any, storage: Any) -> None:
        """Take a tensor that is neither known nor computed into `outside`."""
        start, end = storage.data_ptr(), storage.data_ptr() + storage.nbytes()
        what = f"a tensor of {tensor.dtype}{list(tensor.shape)}"
        if any(start < there and begin < end for begin, there in self._spans):
            raise DocumentError(
                f"The step takes {what}, which shares the memory of a parameter or buffer, not its storage.",
                remedy="Use the parameter itself.",
            )
        if tensor.requires_grad:
            raise DocumentError(
                f"The step takes {what} that requires a gradient, and that no module or optimizer of the"
                " step holds.",
                remedy="Make it a parameter of the module, or call detach().",
            )
        block = f"constant{len(self.outside)}"
        while block in self.blocks:
            block += "'"
        check_dense(block, tensor)
        self._alive.append(storage)
        self._names[storage._cdata] = block
        self.outside[block] = tensor
        self.fresh(block, tensor)
        self.lasting.add(block)

    def _real_layouts(
        self, function: Any, tensors: Any, keywords: Any, fresh: Sequence[int]
    ) -> dict[int, Any]:
        """Tensors without elements in the place of results that the kernel lays out in another way."""
        from torch.utils._pytree import tree_flatten, tree_map

        if not fresh:
            return {}
        leaves, structure = tree_flatten((tensors, keywords))
        grads = torch().is_grad_enabled()
        key = (function, grads, str(structure), *map(_layout, leaves))
        if key not in self._layouts:
            state = torch().random.default_generator.get_state()
            try:
                real, real_named = tree_map(_of_ones, (tensors, keywords))
                run = functools.partial(function, *real, **real_named)
                returned = (below_autograd(run) if grads else torch().no_grad()(run))()
                many = returned if isinstance(returned, list | tuple) else [returned]
                self._layouts[key] = [_layout(x) for x in many]
            except Exception:  # noqa: BLE001 - the measurement of what it allocates names the kernel
                self._layouts[key] = None
            finally:
                torch().random.default_generator.set_state(state)
        layouts = self._layouts[key]
        if layouts is None:
            return {}
        with self._fake:
            return {
                k: torch().empty_strided(shape, strides, dtype=dtype, device=device)
                for k, (shape, strides, dtype, device, *_) in ((k, layouts[k]) for k in fresh if layouts[k])
            }


def dense_strides(tensor: Any) -> tuple[int, ...]:
    """The strides of a tensor; those of a contiguous one if some of its elements share memory."""
    used = sorted((s, n) for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)
    reach = 0
    for stride, size in used:
        if stride <= reach:
            return tuple(torch().empty(tensor.shape, device="meta").stride())
        reach += stride * (size - 1)
    return tuple(tensor.stride())


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _storage(tensor: Any) -> int:
    check_dense("a result", tensor)
    return int(tensor.untyped_storage()._cdata)


def _layout(value: Any) -> Any:
    if not _is_tensor(value):
        return repr(value) if value is not None else None
    return (
        tuple(value.shape),
        tuple(value.stride()),
        value.dtype,
        value.device,
        value.is_conj(),
        value.is_neg(),
    )


def _of_ones(value: Any) -> Any:
    return ones(view_at("", value), value.device) if _is_tensor(value) else value


def ones(view: View, device: Any) -> Any:
    """A real tensor of a view's layout, ones if it takes floating-point numbers, else zeros."""
    reach = sum((n - 1) * stride for n, stride in zip(view.shape, view.strides, strict=True))
    number = 1 if view.dtype.is_floating_point else 0
    whole = torch().full((reach + 1 if view.nbytes else 0,), number, dtype=view.dtype, device=device)
    return view.lazily(whole.as_strided(view.shape, view.strides))
