"""Decorators for functions that run as machine code.

A compiled function is compiled for the types of the arguments of its first call, and refuses others: whole
numbers, real numbers, C-contiguous arrays, and named tuples of these. Machine code is called with the address
of one block of 64-bit numbers::

    measure(sequence, 3, tables)        block: | address, shape | 3 | address, shape, address, shape, ... |
                                                 sequence              arrays of the named tuple

A named tuple stays in the block: compiled functions hand each other its address there, and read an array of
it where they use one. So a function may have a state of fifty arrays, and calling it costs one register.
"""

from __future__ import annotations

import array
import atexit
import hashlib
import logging
import os
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np

from solver.native import store
from solver.native.source import Kind, Source

__all__ = [
    "Kernel",
    "NotKept",
    "addressed",
    "compile_beside",
    "compiled",
    "inlined",
    "only_kept",
    "runs_compiled",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Argument = TypeVar("Argument")


class NotKept(Exception):
    """A function is needed that was not compiled before, where nothing may be compiled."""


class Kernel(Source):
    """One function that runs as machine code. See `compiled`, `inlined`."""

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any] | None = None) -> None:
        super().__init__(function)
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return (self._call or self._loaded(arguments))(*arguments)

    def runs_compiled(self) -> bool:
        """Whether the function has been called and runs as machine code."""
        return isinstance(self._call, _MachineCode)

    def _loaded(self, arguments: Sequence[Any]) -> Callable[..., Any]:
        with _LOADING:
            if self._call is None:
                kinds = tuple(map(_kind, arguments))
                try:
                    self._call = _MachineCode(self, kinds, self._address(kinds))
                except NotKept:
                    raise
                except Exception as error:  # noqa: BLE001 - numba, LLVM and the system fail in ways of their own
                    _warn_once(error)
                    self._call = _plain(self.function)
            return self._call

    def _address(self, kinds: tuple[Kind, ...]) -> int:
        """The address of code that is on disk, or that is compiled now and written there."""
        meaning = "\0".join((self.meaning(), repr(kinds), _compiler()))
        key = hashlib.sha256(meaning.encode()).hexdigest()
        address = store.load(self.name, key)
        if address is not None:
            return address
        if not _COMPILING:
            raise NotKept(f"{self.name} was not compiled before")
        if not store.writable():
            raise OSError("no directory can be written to keep compiled code: set NUMBA_CACHE_DIR")
        from solver.native.emit import machine_code

        if self.function.__module__.startswith("solver."):
            _announce()
        with store.locked(self.name):
            address = store.load(self.name, key)  # another process may have compiled it meanwhile
            if address is None:
                store.keep(self.name, key, machine_code(self, kinds))
                address = store.load(self.name, key)
        if address is None:
            raise OSError(f"{self.name} was compiled and does not load")
        return address


class _MachineCode:
    """Machine code at an address, called with one block of numbers."""

    def __init__(self, kernel: Kernel, kinds: tuple[Kind, ...], address: int) -> None:
        self._name, self._kinds, self._function = kernel.name, kinds, store.function_at(address)
        answers: dict[str, Callable[[int], Any]] = {"bool": bool, "int": int, "None": lambda _: None}
        self._answer = answers[kernel.returns]

    def __call__(self, *arguments: Any) -> Any:
        numbers: list[int] = []
        for kind, argument in zip(self._kinds, arguments, strict=True):
            if kind == "int":
                numbers.append(argument)
            elif not isinstance(argument, _Addressed):
                numbers += _numbers(kind, argument)
            elif argument.kind == kind:
                numbers += argument.numbers
            else:
                raise TypeError(f"{self._name} is compiled for {kind}, not for {argument.kind}")
        block = array.array("q", numbers)
        return self._answer(self._function(block.buffer_info()[0]))


class _Addressed:
    """An argument whose addresses were looked up. See `addressed`."""

    def __init__(self, arrays: Any) -> None:
        self.arrays, self.kind = arrays, _kind(arrays)
        self.numbers = tuple(_numbers(self.kind, arrays))


class _PlainArray:
    """An array for functions that run as Python: its numbers are Python's, so that none overflows."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: Any) -> Any:
        part = self.array[place]
        return _PlainArray(part) if isinstance(part, np.ndarray) else part.item()

    def __setitem__(self, place: Any, number: Any) -> None:
        self.array[place] = number


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as Python. 64-bit hashes overflow on purpose, as they do in machine code."""

    def called(*arguments: Any) -> Any:
        with np.errstate(over="ignore"):
            return function(*map(_as_plain, arguments))

    return called


def _as_plain(argument: Any) -> Any:
    if isinstance(argument, _Addressed):
        argument = argument.arrays
    if isinstance(argument, tuple):
        return type(argument)(*map(_as_plain, argument))
    return _PlainArray(argument) if isinstance(argument, np.ndarray) else argument


def _kind(argument: Any) -> Kind:
    if isinstance(argument, _PlainArray):
        argument = argument.array
    if isinstance(argument, np.ndarray):
        return _array_kind(argument.dtype, argument.ndim)
    if isinstance(argument, _Addressed):
        return argument.kind
    if isinstance(argument, tuple):
        fields: tuple[str, ...] = argument._fields  # type: ignore[attr-defined]  # of a named tuple
        return tuple((name, _kind(one)) for name, one in zip(fields, argument, strict=True))
    return "float" if isinstance(argument, float) else "int"


@cache
def _array_kind(of: np.dtype[Any], dimensions: int) -> Kind:
    return f"{of}[{dimensions}]"


def _numbers(kind: Kind, argument: Any) -> Iterator[int]:
    """The numbers of an argument in a block: itself, or address and shape of each array."""
    if isinstance(argument, _PlainArray):
        argument = argument.array
    if isinstance(kind, tuple):
        for (_, of), one in zip(kind, argument, strict=True):
            yield from _numbers(of, one)
    elif kind == "int":
        yield argument
    elif kind == "float":
        yield from struct.unpack("q", struct.pack("d", argument))
    elif _kind(argument) != kind:
        raise TypeError(f"an argument of compiled code is {_kind(argument)}, not {kind}")
    elif not argument.flags.c_contiguous:
        raise ValueError("an array for compiled code is not C-contiguous")
    else:
        yield argument.ctypes.data
        yield from argument.shape


def _announce() -> None:
    """At the first function that this process compiles: says so, and starts a process for the others.

    That process begins with the fastest to compile, and ends with this one at the latest.
    """
    if _BESIDE or os.environ.get(_HELPING):
        return
    logging.getLogger(__name__).warning("Compiling the searches, once on this machine: up to half a minute.")
    _BESIDE.append(compile_beside())
    atexit.register(_BESIDE[0].terminate)


def compile_beside() -> subprocess.Popen[bytes]:
    """Starts a process of low priority that compiles all functions, the fastest to compile first."""
    script = f"import sys; sys.path[:] = {sys.path!r}; from solver.compile import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", script, "--beside"],
        env={**os.environ, _HELPING: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@cache
def _compiler() -> str:
    """The source that says how code is made, and what it expects in a block."""
    return Path(__file__).with_name("emit.py").read_text("utf-8")


def _warn_once(reason: Exception) -> None:
    if not _WARNED:
        _WARNED.append(reason)
        logger = logging.getLogger(__name__)
        logger.warning("Searches run without compiled code, which is slow: %s", reason)


#: Why nothing compiles here, once that is known.
_WARNED: Final[list[Exception]] = []

#: The process that compiles beside this one, and how it knows that it is the one.
_BESIDE: Final[list[subprocess.Popen[bytes]]] = []
_HELPING: Final = "SOLVER_COMPILES_BESIDE"

#: One function is loaded, or compiled, at a time.
_LOADING: Final = threading.RLock()

#: Empty while nothing may be compiled.
_COMPILING: Final = [True]


@contextmanager
def only_kept() -> Iterator[None]:
    """Compiles nothing meanwhile: a call of a function that is not on disk raises `NotKept`."""
    before = _COMPILING[:]
    _COMPILING.clear()
    try:
        yield
    finally:
        _COMPILING.extend(before)


def addressed(argument: Argument) -> Argument:
    """An array, or a named tuple of arrays, for functions that are called often: looks up addresses once.

    The result is for calls of compiled functions alone, and keeps the arrays alive.
    """
    return cast(Argument, _Addressed(argument))


def compiled(function: Function) -> Function:
    """Compiled when first called, kept on disk, running beside other threads.

    No reference counts, no exceptions: a compiled function allocates nothing, raises nothing and divides by
    nothing that can be zero. Where nothing compiles it runs as Python, a hundred times slower.
    """
    return cast(Function, Kernel(function))


def inlined(function: Function) -> Function:
    """A part of compiled functions; LLVM puts it in place where that is faster. Python calls it as Python."""
    return cast(Function, Kernel(function, function))


def runs_compiled(function: Callable[..., Any]) -> bool:
    """Whether a function that has been called runs as machine code."""
    return isinstance(function, Kernel) and function.runs_compiled()
