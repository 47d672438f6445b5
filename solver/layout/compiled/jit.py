"""Decorators for functions that run as machine code. Importing this imports no compiler.

    sources --numba--> LLVM's assembly --llvmlite--> machine code   `emit`: once, and kept on disk
    machine code --------> an address, called through ctypes        `native`: at the first call

A decorated function is compiled for the types of the arguments of its first call, and refuses others: whole
numbers, real numbers, arrays that lie in one piece, and named tuples of these. Numba is imported where
something is compiled, and never where all that is called was compiled before.
"""

from __future__ import annotations

import array
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, TypeVar, cast

import numpy as np

from solver.layout.compiled import native
from solver.layout.compiled.fallback import UNCOMPILED, warn_uncompiled
from solver.layout.compiled.source import Kind, Source

__all__ = ["Compiled", "addressed", "compiled", "inlined", "keep_libraries", "only_kept", "runs_compiled"]

Function = TypeVar("Function", bound=Callable[..., Any])
Argument = TypeVar("Argument")


class Addressed:
    """An argument whose addresses were looked up. See `addressed`."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays
        self.kind = _kind(arrays)
        self.numbers = tuple(_numbers(self.kind, arrays))


class Compiled(Source):
    """One function that runs as machine code. See `compiled`."""

    def __init__(self, function: Callable[..., Any], *, inline: bool, plain: bool) -> None:
        super().__init__(function, inline=inline)
        self._plain = plain
        self._call: Callable[..., Any] | None = function if inline else None
        if not inline:
            _ALL.append(self)

    def __call__(self, *arguments: Any) -> Any:
        return (self._call or self._loaded(arguments))(*arguments)

    def loaded(self) -> bool:
        """Whether it has been called, and runs as machine code."""
        return isinstance(self._call, _Machine)

    def as_library(self) -> None:
        """Keeps what was called as a shared library too.

        RuntimeError where nothing was kept, OSError without a linker.
        """
        from solver.layout.compiled.emit import library

        kinds = repr(self._call.kinds) if isinstance(self._call, _Machine) else ""
        made = native.read(self.name, kinds)
        if made is None:
            raise RuntimeError(f"{self.name} was not compiled before")
        native.keep_library(self.name, kinds, library(made))

    def _loaded(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        with _LOADING:
            if self._call is None:
                try:
                    self._call = self._found(arguments)
                except UNCOMPILED as error:
                    if not self._plain:
                        raise
                    warn_uncompiled(error)
                    self._call = _without_addresses(self.function)
            return self._call

    def _found(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        """Machine code that was kept, or is made now; numba's own where that cannot be called."""
        kinds = tuple(map(_kind, arguments))
        text = repr(kinds)
        address = native.load(self.name, text)
        if address is None:
            if not _COMPILING:
                raise RuntimeError(f"{self.name} was not compiled before")
            if not native.writable():
                raise RuntimeError("there is no directory to keep compiled code in: set NUMBA_CACHE_DIR")
            from solver.layout.compiled.emit import dispatcher, machine_code

            try:
                plain = tuple(one.arrays if isinstance(one, Addressed) else one for one in arguments)
                made = machine_code(self, kinds, plain)
                address = native.link(made)
                native.keep(self.name, text, made)
            except (AttributeError, TypeError, ValueError):
                return _without_addresses(dispatcher(self))
        return _Machine(self.name, kinds, address, self.returns)


class _Machine:
    """Machine code at an address, called with one block of numbers."""

    def __init__(self, name: str, kinds: tuple[Kind, ...], address: int, returns: str) -> None:
        self._name, self.kinds = name, kinds
        self._function = native.function_at(address)
        answers: dict[str, Callable[[int], Any]] = {"bool": bool, "int": int, "None": _nothing}
        self._answer = answers[returns]

    def __call__(self, *arguments: Any) -> Any:
        numbers: list[int] = []
        for kind, argument in zip(self.kinds, arguments, strict=True):
            if kind == "int":
                numbers.append(argument)
            elif not isinstance(argument, Addressed):
                numbers += _numbers(kind, argument)
            elif argument.kind == kind:
                numbers += argument.numbers
            else:
                raise TypeError(f"{self._name} is compiled for {kind}, not for {argument.kind}")
        block = array.array("q", numbers)
        return self._answer(self._function(block.buffer_info()[0]))


def _nothing(_: int) -> None:
    return None


def _without_addresses(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        return function(*(one.arrays if isinstance(one, Addressed) else one for one in arguments))

    return called


def _kind(argument: Any) -> Kind:
    if isinstance(argument, np.ndarray):
        return _array_kind(argument.dtype, argument.ndim)
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    if isinstance(argument, Addressed):
        return argument.kind
    return "float" if isinstance(argument, float) else "int"


@cache
def _array_kind(of: np.dtype[Any], axes: int) -> Kind:
    return f"{of}[{axes}]"


def _numbers(kind: Kind, argument: Any) -> Iterator[int]:
    """What a block has of an argument: a number, or of each array its address and shape."""
    if isinstance(kind, tuple):
        for one, each in zip(kind, argument, strict=True):
            yield from _numbers(one, each)
    elif kind == "int":
        yield argument
    elif kind == "float":
        yield from struct.unpack("q", struct.pack("d", argument))
    elif _kind(argument) != kind:
        raise TypeError(f"an argument of compiled code is {_kind(argument)}, not {kind}")
    elif not argument.flags.c_contiguous:
        raise ValueError("an array for compiled code does not lie in one piece")
    else:
        yield argument.ctypes.data
        yield from argument.shape


#: Every compiled function whose module has been imported.
_ALL: Final[list[Compiled]] = []

#: One function is loaded, or compiled, at a time.
_LOADING: Final = threading.RLock()

#: Empty while nothing may be compiled.
_COMPILING: Final = [True]


@contextmanager
def only_kept() -> Iterator[None]:
    """Meanwhile the need to compile is a RuntimeError, at once: the compiler would take minutes."""
    kept = _COMPILING[:]
    _COMPILING.clear()
    try:
        yield
    finally:
        _COMPILING.extend(kept)


def addressed(argument: Argument) -> Argument:
    """An array, or a tuple of arrays, for functions that are called often: its addresses are looked up once.

    What comes back is for calls of compiled functions alone, and keeps the arrays alive.
    """
    return cast(Argument, Addressed(argument))


def compiled(function: Function, *, plain: bool = False) -> Function:
    """Compiled when first called, kept on disk, running beside other threads.

    No reference counts, no exceptions: what runs here allocates nothing, raises nothing and divides by
    nothing that can be zero. Where nothing compiles the call raises one of `UNCOMPILED`; `plain`: the
    function runs as Python instead, a hundred times slower.
    """
    return cast(Function, Compiled(function, inline=False, plain=plain))


def inlined(function: Function) -> Function:
    """A part of compiled functions: put in place, because handing over thirty arrays costs more."""
    return cast(Function, Compiled(function, inline=True, plain=True))


def keep_libraries() -> None:
    """Shared libraries of all that has been called, for an image. See `Compiled.as_library`."""
    for one in _ALL:
        if one.loaded():
            one.as_library()


def runs_compiled(function: Callable[..., Any]) -> bool:
    """Whether a function that has been called runs as machine code."""
    return isinstance(function, Compiled) and function.loaded()
