"""What the record of a step depends on besides tensors: values of Python that its code may read.

    module ─► attributes that were read, submodules, hooks, methods ─► closures, globals, configurations ...

A watch lists containers of such values. One pass over all values by identity says whether one has changed;
equal numbers and texts count as the same.

A later call replays the recorded step and does not run its Python code again, so changes that this code makes
would be lost. If it replaces a tensor by one that is alike, the record copies the new contents into the old
tensor. An attribute that it only writes is put back, with a warning. Any other change is refused.
"""

from __future__ import annotations

import dis
import functools
import random
import sys
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, is_, itemgetter
from typing import Any

import numpy as np

from solver.errors import DocumentError
from solver.importers.pytorch.capture import torch

__all__ = ["Change", "Watch", "watched"]

_END = object()
_MISSING = object()

#: Values that are compared by type and value; all others are told apart by identity.
_PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)

#: Parts of PyTorch's modules that are watched although nothing of the caller's code reads them.
_PARTS = (
    "_parameters",
    "_buffers",
    "_modules",
    "_forward_pre_hooks",
    "_forward_hooks",
    "_backward_pre_hooks",
    "_backward_hooks",
)

#: Packages whose code depends on nothing that a caller changes, and the most values of a watch.
_LIBRARIES = frozenset({"torch", "numpy", "solver", "arenaplan"} | sys.stdlib_module_names) - {"__main__"}
_MAX_VALUES = 100_000

#: Global hooks of PyTorch.
_GLOBAL_HOOKS = (
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
)


@dataclass(frozen=True, slots=True)
class Change:
    """A value that is no longer what it was; `write` puts another one in its place, if it can be replaced."""

    path: str
    old: Any
    new: Any
    write: Callable[[Any], None] | None

    def __str__(self) -> str:
        return f"{self.path} changed from {_short(self.old)} to {_short(self.new)}"


@dataclass(slots=True)
class _Source:
    """A container: its values now by `read`, the path of each, and their values when it was watched."""

    path: str
    read: Callable[[], Iterable[Any]]
    names: list[Any]
    values: list[Any]
    write: Callable[[Any, Any], None] | None


class Watch:
    """The values that a record depends on. `reads` are the attributes that it has read, by the identity of
    the module; without them what all attributes hold is watched, but not the attributes themselves.

    `modules` are those that the step reaches, by path. Raises DocumentError for a GradScaler among them.
    """

    def __init__(
        self, module: Any, loss: Any, optimizer: Any, reads: Mapping[int, Mapping[str, Any]] | None = None
    ) -> None:
        self.modules: dict[str, Any] = {}
        self._reads, self._seen, self._sources = reads, dict[Any, Any](), list[_Source]()
        self._count = 0
        self._empty: list[tuple[str, Any]] = []
        self._parameters: list[tuple[str, Any]] = []
        self._visit("the module", module)
        self._visit("the loss", loss)
        self._watch_optimizer(optimizer)
        hooks = torch().nn.modules.module
        for name in _GLOBAL_HOOKS:
            self._mapping(f"the hooks {name[1:]}", getattr(hooks, name))
        for name in ("requires_grad", "_backward_hooks", "_post_accumulate_grad_hooks"):
            names = [f"{path}.{name}" for path, _ in self._parameters]
            self._add("", functools.partial(map, attrgetter(name), [p for _, p in self._parameters]), names)
        empty = [container for _, container in self._empty]
        self._add("", functools.partial(map, len, empty), [f"the size of {path}" for path, _ in self._empty])
        self._modes = _modes()
        self._flatten()

    def _flatten(self) -> None:
        self._reading = [source.read for source in self._sources]
        self._expected = [*chain.from_iterable(source.values for source in self._sources), _END]

    def holds(self) -> bool:
        """Whether nothing has changed. Cost: some 30 nanoseconds for each value."""
        try:
            values = chain(chain.from_iterable(read() for read in self._reading), (_END,))
            same = all(map(is_, values, self._expected))
        except (KeyError, ValueError, AttributeError, RuntimeError):
            same = False
        if not same and next(self.changes(), None) is None:
            self._refresh()
            same = True
        return same and self._modes == _modes()

    def _refresh(self) -> None:
        for source in self._sources:
            source.values = list(source.read())
        self._flatten()

    def changes(self) -> Iterator[Change]:
        """The values that have changed."""
        for source in self._sources:
            try:
                values = list(source.read())
            except (KeyError, ValueError, AttributeError):
                values = []
            if len(values) != len(source.values):
                new = f"{len(values)} values" if values else "nothing"
                yield Change(source.path, f"{len(source.values)} values", new, None)
                continue
            for name, old, new in zip(source.names, source.values, values, strict=True):
                if not _same(old, new):
                    write = None if source.write is None else functools.partial(source.write, name)
                    yield Change(_joined(source.path, name), old, new, write)
        for (name, old), (_, new) in zip(self._modes, _modes(), strict=True):
            if old != new:
                yield Change(name, old, new, None)

    def _add(
        self,
        path: str,
        read: Callable[[], Iterable[Any]],
        names: Iterable[Any],
        write: Callable[[Any, Any], None] | None = None,
    ) -> None:
        source = _Source(path, read, list(names), list(read()), write)
        self._sources.append(source)
        self._count += len(source.values)
        for name, value in zip(source.names, source.values, strict=True):
            self._visit(_joined(path, name), value)

    def _items(self, path: str, container: Any, names: Iterable[Any], write: Any = None) -> None:
        """Some values of a mapping, by name."""
        names = list(names)
        if names:
            keys = names if len(names) > 1 else names * 2
            self._add(path, functools.partial(itemgetter(*keys), container), keys, write)

    def _mapping(self, path: str, container: Any) -> None:
        if container:
            self._add(path, container.values, container, container.__setitem__)
        else:
            self._empty.append((path, container))

    def _visit(self, path: str, value: Any) -> None:
        """Watch what a value holds in turn."""
        framework = torch()
        if isinstance(value, (*_PLAIN, framework.Tensor)) or id(value) in self._seen:
            return
        if self._count > _MAX_VALUES:
            return
        self._seen[id(value)] = value
        if isinstance(value, framework.nn.Module):
            self._watch_module(path, value)
        elif isinstance(value, framework.optim.Optimizer):
            for group in value.param_groups:
                self._items(path, group, [key for key in group if key != "params"])
        elif isinstance(value, framework.amp.GradScaler):
            raise DocumentError(
                f"{path} scales the loss by a GradScaler, whose step needs gradients that a planned step does"
                " not leave.",
                remedy="Leave the scaler out: bfloat16 needs none, and clip_grad_norm= bounds gradients.",
            )
        elif isinstance(value, functools.partial):
            self._visit(path, value.func)
            self._visit(path, value.args)
            self._visit(path, value.keywords)
        elif isinstance(value, types.MethodType):
            self._visit(path, value.__func__)
            self._visit(path, value.__self__)
        elif isinstance(value, property):
            self._visit(path, value.fget)
        elif isinstance(value, staticmethod | classmethod):
            self._visit(path, value.__func__)
        elif isinstance(value, types.FunctionType):
            self._watch_function(value)
        elif isinstance(value, dict):
            self._mapping(path, value)
        elif isinstance(value, set | frozenset):
            self._add(path, lambda: (len(value),), ["size"])
        elif isinstance(value, list | tuple):
            self._add(path, lambda: value, range(len(value)), getattr(value, "__setitem__", None))
        elif not isinstance(value, type | types.ModuleType) and not _of_library(type(value).__module__):
            self._watch_class(path, type(value))
            if hasattr(value, "__dict__"):
                self._mapping(path, vars(value))
            slots = [s for c in type(value).__mro__ for s in _listed(getattr(c, "__slots__", ()))]
            names = [name for name in slots if not name.startswith("__") and hasattr(value, name)]
            self._add(path, lambda: (getattr(value, name) for name in names), names)

    def _watch_module(self, path: str, module: Any) -> None:
        while path in self.modules:
            path += "'"  # of a closure that is called alike
        self.modules[path] = module
        own = vars(module)
        for part in _PARTS:
            self._mapping(path if own[part] else f"{path}.{part}", own[part])
        named = [(_joined(path, key), p) for key, p in own["_parameters"].items() if p is not None]
        self._parameters += named
        reads = None if self._reads is None else self._reads.get(id(module), {})
        own_names = set(vars(torch().nn.Module())) - {"training"}
        names = [name for name in own if name not in own_names and (reads is None or name in reads)]
        if reads is None:
            for name in names:
                self._visit(_joined(path, name), own[name])
        else:
            self._items(path, own, names, functools.partial(_write, own))
            absent = [
                name
                for name in reads
                if name not in own
                and name not in own["_modules"]
                and name not in own["_parameters"]
                and name not in own["_buffers"]
                and (name == "forward" or not hasattr(torch().nn.Module, name))
            ]
            self._add(path, functools.partial(map, own.__contains__, absent), absent)
        self._watch_class(path, type(module), reads)

    def _watch_class(self, path: str, class_: type, reads: Mapping[str, Any] | None = None) -> None:
        """The attributes of a class that were read, or all."""
        for base in class_.__mro__:
            library, content = _of_library(base.__module__), vars(base)
            names = {"forward"} if library else {n for n in content if not n.startswith(("__", "_abc_"))}
            names &= content.keys() if reads is None else content.keys() & reads.keys()
            names = {name for name in names if (id(base), name) not in self._seen}
            self._seen.update(dict.fromkeys(((id(base), name) for name in names), base))
            if not library or issubclass(base, torch().nn.Module):
                self._items(base.__name__, content, sorted(names))

    def _watch_function(self, function: Any) -> None:
        if _of_library(function.__module__ or ""):
            return
        name, code = function.__qualname__, function.__code__
        parts = ("__code__", "__defaults__", "__kwdefaults__")
        self._add(name, functools.partial(attrgetter(*parts), function), parts)
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                read = functools.partial(_contents, cell)
                self._add(name, read, [variable], functools.partial(_fill, cell))
            except ValueError:
                continue  # a variable that is not bound yet
        if "site-packages" not in code.co_filename:
            self._watch_names(function.__globals__, set(_names(code, globals_only=True)), set(_names(code)))

    def _watch_names(self, namespace: Any, names: set[str], attributes: set[str]) -> None:
        """Global names that code may read, and attributes of the modules and classes that it reaches so."""
        used = sorted(name for name in names if name in namespace and not name.startswith("__"))
        self._items("the global", namespace, used, functools.partial(_write, namespace))
        for name in used:
            value = namespace[name]
            if not isinstance(value, type | types.ModuleType) or id(value) in self._seen:
                continue
            module = value.__module__ if isinstance(value, type) else value.__name__
            if not _of_library(module) and "site-packages" not in (getattr(value, "__file__", None) or ""):
                self._seen[id(value)] = value
                self._watch_names(vars(value), attributes, attributes)

    def _watch_optimizer(self, optimizer: Any) -> None:
        path, own = "the optimizer", vars(optimizer)
        groups = [(id(group), group) for group in optimizer.param_groups]
        self._seen.update([(id(optimizer), optimizer), *groups])
        self._add(path, lambda: optimizer.param_groups, range(len(optimizer.param_groups)))
        for k, group in enumerate(optimizer.param_groups):
            at = f"{path}.param_groups[{k}]"
            self._add(f"{at}.params", functools.partial(iter, group["params"]), range(len(group["params"])))
            names = [key for key in group if key != "params"]
            self._add(at, functools.partial(_kinds, group, names), names)
        for name in ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"):
            self._mapping(f"{path}.{name[1:]}", own[name])
        hooks = sys.modules["torch.optim.optimizer"]
        self._mapping("the hooks of optimizers", hooks._global_optimizer_pre_hooks)
        self._mapping("the hooks of optimizers", hooks._global_optimizer_post_hooks)
        self._add(path, lambda: (type(optimizer).step, "step" in own), ("step", "step of its own"))


def _kinds(group: Mapping[str, Any], names: Iterable[str]) -> Iterator[Any]:
    """Settings that a step does not read anew: of a number only whether it is 0."""
    for name in names:
        value = group.get(name)
        yield value == 0 if type(value) in (int, float) else None if isinstance(value, tuple) else value


def _write(container: Any, name: str, value: Any) -> None:
    if value is _MISSING:
        container.pop(name, None)
    else:
        container[name] = value


def _contents(cell: Any) -> tuple[Any]:
    return (cell.cell_contents,)


def _fill(cell: Any, _name: str, value: Any) -> None:
    cell.cell_contents = value


def _names(code: types.CodeType, *, globals_only: bool = False) -> Iterator[str]:
    """The names that code uses, and the functions within: of global variables, or of attributes as well."""
    if globals_only:
        yield from (i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"))
    else:
        yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant, globals_only=globals_only)


def _listed(slots: Any) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots


def _of_library(module: str) -> bool:
    return module.partition(".")[0] in _LIBRARIES


def _same(old: Any, new: Any) -> bool:
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if isinstance(old, types.MethodType):
        return old.__func__ is new.__func__ and old.__self__ is new.__self__
    return isinstance(old, _PLAIN) and (old == new or (old != old and new != new))


def _joined(path: str, name: Any) -> str:
    if not path:
        return str(name)
    if path == "the global":
        return f"the global {name!r}"
    return f"{path}.{name}" if isinstance(name, str) else f"{path}[{name}]"


def _short(value: Any) -> str:
    if isinstance(value, str) and value.endswith("values"):
        return value
    return f"{value!r:.80}" if isinstance(value, (*_PLAIN, type)) else f"a {type(value).__name__}"


def _modes() -> list[tuple[str, Any]]:
    """Settings of PyTorch that decide which kernels a step calls."""
    framework = torch()
    cuda = framework.backends.cuda
    return [
        ("autocast", (framework.is_autocast_enabled("cpu"), framework.is_autocast_enabled("cuda"))),
        ("autocast's type", (framework.get_autocast_dtype("cpu"), framework.get_autocast_dtype("cuda"))),
        ("the default type", framework.get_default_dtype()),
        ("deterministic algorithms", framework.are_deterministic_algorithms_enabled()),
        ("oneDNN", framework._C._get_mkldnn_enabled()),
        (
            "attention's kernels",
            (cuda.flash_sdp_enabled(), cuda.mem_efficient_sdp_enabled(), cuda.math_sdp_enabled()),
        ),
    ]


@contextmanager
def watched(watch: Watch, keep: Callable[[Any, Any], bool]) -> Iterator[dict[int, dict[str, Any]]]:
    """The attributes of modules that are read within, by module and name, with their values at first.

    What changes within is put back. `keep` is asked about a tensor that came into the place of another one;
    if it says no, and for other changes of what may be read, DocumentError is raised. An attribute that is
    only written stays as it was, and a warning says so.
    """
    framework = torch()
    reads: dict[int, dict[str, Any]] = {}

    def reading(self: Any, name: str) -> Any:
        try:
            value = object.__getattribute__(self, name)
        except AttributeError:
            reads.setdefault(id(self), {}).setdefault(name, _MISSING)
            raise
        reads.setdefault(id(self), {}).setdefault(name, value)
        return value

    attributes = [(path, module, dict(vars(module))) for path, module in watch.modules.items()]
    drawn = _generators()
    framework.nn.Module.__getattribute__ = reading
    try:
        yield reads
    finally:
        del framework.nn.Module.__getattribute__
        changes: list[tuple[Change, int, str]] = [(change, 0, "") for change in watch.changes()]
        for path, module, old in attributes:
            own = vars(module)
            for name in old.keys() | own.keys():
                was, now = old.get(name, _MISSING), own.get(name, _MISSING)
                if not _same(was, now):
                    write = functools.partial(_write, own, name)
                    changes.append((Change(_joined(path, name), was, now, write), id(module), name))
        for change, _, _ in changes:
            if change.write is not None:
                change.write(change.old)
    for name, old, new in zip(("PyTorch's", "Python's", "NumPy's"), drawn, _generators(), strict=True):
        if old != new:
            raise DocumentError(
                f"The step uses {name} generator of random numbers in Python code, which a record would not"
                " repeat.",
                remedy="Draw by operators of PyTorch, such as torch.rand, and seed outside the step.",
            )
    for change, owner, name in changes:
        alike = _are_alike(change.old, change.new) and not change.old.requires_grad
        if alike and keep(change.old, change.new):
            continue
        if owner and reads.get(owner, {}).get(name, _END) is not change.old:
            warnings.warn(
                f"{change.path} is set when the step is recorded, and stays as it was: a planned step sets no"
                " attributes of Python.",
                stacklevel=6,
            )
            continue
        raise DocumentError(
            f"The step cannot be recorded: when it runs, {change}, which a record would not repeat.",
            remedy="Keep it as a tensor or a buffer that the step changes in place, by copy_ or add_; let a"
            " module fill its caches before the step is made.",
        )


def _are_alike(old: Any, new: Any) -> bool:
    kinds = torch().Tensor
    if not isinstance(old, kinds) or not isinstance(new, kinds):
        return False
    return (old.shape, old.dtype, old.device) == (new.shape, new.dtype, new.device)


def _generators() -> tuple[Any, ...]:
    numbers = np.random.get_state(legacy=False)
    state = numbers["state"]
    return (
        torch().initial_seed(),
        random.getstate(),
        (state["key"].tobytes(), state["pos"]),
    )
