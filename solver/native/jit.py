"""Decorators for functions that run as machine code.

A function whose machine code is on disk runs as that. Another one runs as Python, which gives the same answer
in a hundred times the time, until it has taken longer than `compiling_after` says; then it is compiled. So
small problems compile nothing, and time decides when a function is compiled but never what it returns.

Machine code is for the types of the arguments of its first call, and refuses others: whole numbers, real
numbers, C-contiguous arrays, and named tuples of these. It is called with the address of one block of 64-bit
numbers::

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
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from importlib.util import find_spec
from math import inf
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numpy as np

from solver.native import store
from solver.native.source import Kind, Source

__all__ = [
    "COMPILING_SECONDS",
    "PYTHON_SECONDS",
    "Kernel",
    "addressed",
    "compile_beside",
    "compiled",
    "compiling_after",
    "deadline_of",
    "heeding_deadline",
    "inlined",
    "may_compile",
    "runs_compiled",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Argument = TypeVar("Argument")


#: Seconds that one function runs as Python before it is compiled: about what the fastest takes to compile.
PYTHON_SECONDS: Final = 2.0

#: Deadline, in seconds, up to which nothing is compiled: all functions take up to forty on two cores.
COMPILING_SECONDS: Final = 60.0

#: For the log.
_DEADLINE_NOTE: Final = (
    f"The searches are not compiled yet, and with a deadline of {COMPILING_SECONDS:g} s or less they run as"
    " Python: for better answers run `python -m solver.compile` once."
)

#: Seconds between two looks on disk for a function that runs as Python: another process may have compiled it.
_LOOK_SECONDS: Final = 1.0


class Kernel(Source):
    """One function that runs as machine code. See `compiled`, `inlined`."""

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any] | None = None) -> None:
        super().__init__(function)
        self._call, self._python = call, _plain(function)
        self._python_seconds, self._looked = 0.0, -inf

    def __call__(self, *arguments: Any) -> Any:
        call = self._call or self._loaded(arguments)
        if call is not None:
            return call(*arguments)
        began = time.perf_counter()
        try:
            return self._python(*arguments)
        finally:
            self._python_seconds += time.perf_counter() - began

    def runs_compiled(self) -> bool:
        """Whether the function has been called and runs as machine code."""
        return isinstance(self._call, _MachineCode)

    def _loaded(self, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """Machine code, or Python where nothing compiles; None: Python for now."""
        after = _COMPILING_AFTER.get()
        if _IN_PYTHON.get() or not _LOADING.acquire(blocking=after < _DEADLINE_IS_SHORT):
            return None
        try:
            compiles = self._python_seconds >= after
            due = compiles or after == inf or time.monotonic() >= self._looked + _LOOK_SECONDS
            if self._call is None and due:
                kinds = tuple(map(_kind, arguments))
                try:
                    address = self._address(kinds, compiles=compiles)
                    self._call = None if address is None else _MachineCode(self, kinds, address)
                except Exception as error:  # noqa: BLE001 - numba, LLVM and the system fail in ways of their own
                    _FAILED.append(error)
                    _log_once(f"Searches run without compiled code, which is slow: {_FAILED[0]}")
                    self._call = self._python
                self._looked = time.monotonic()
            return self._call
        finally:
            _LOADING.release()

    def _address(self, kinds: tuple[Kind, ...], *, compiles: bool) -> int | None:
        """The address of code that is on disk, or that is compiled now; None: neither."""
        meaning = "\0".join((self.meaning(), repr(kinds), _compiler()))
        key = hashlib.sha256(meaning.encode()).hexdigest()
        address, ours = store.load(self.name, key), self.function.__module__.startswith("solver.")
        if address is not None:
            return address
        if not compiles:
            if not _numba_is_installed():
                raise ImportError("numba is not installed")
            if ours and _COMPILING_AFTER.get() == _DEADLINE_IS_SHORT:
                _announce(_DEADLINE_NOTE)
            return None
        from solver.native.emit import machine_code

        if not store.writable():
            _log_once("No directory is writable, so each process compiles anew: set NUMBA_CACHE_DIR.")
            return store.loaded_object(machine_code(self, kinds))
        if ours:
            _announce("Compiling the searches, once on this machine: up to half a minute.")
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
    """The function as Python, with all that it calls. Hashes overflow on purpose, as there."""

    def called(*arguments: Any) -> Any:
        outermost = _IN_PYTHON.set(True)
        try:
            with np.errstate(over="ignore"):
                return function(*map(_as_plain, arguments))
        finally:
            _IN_PYTHON.reset(outermost)

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


def _announce(note: str) -> None:
    """At the first function that this process compiles or lacks: logs it, and starts a process for the rest.

    That process begins with the fastest to compile, and ends with this one at the latest.
    """
    if _BESIDE or os.environ.get(_HELPING):
        return
    _log_once(note)
    atexit.register(compile_beside().terminate)


def compile_beside() -> subprocess.Popen[bytes]:
    """Starts, once, a process of low priority that compiles all functions, the fastest to compile first."""
    if not _BESIDE:
        script = f"import sys; sys.path[:] = {sys.path!r}; from solver.compile import main; sys.exit(main())"
        process = subprocess.Popen(
            [sys.executable, "-c", script, "--beside"],
            env={**os.environ, _HELPING: "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _BESIDE.append(process)
    return _BESIDE[0]


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


@cache
def _compiler() -> str:
    """The source that says how code is made, and what it expects in a block."""
    return Path(__file__).with_name("emit.py").read_text("utf-8")


def _log_once(note: str) -> None:
    if note not in _LOGGED:
        _LOGGED.add(note)
        logging.getLogger(__name__).warning(note)


#: Why functions did not compile, and the notes that were logged.
_FAILED: Final[list[Exception]] = []
_LOGGED: Final[set[str]] = set()

#: The process that compiles beside this one, and how it knows that it is the one.
_BESIDE: Final[list[subprocess.Popen[bytes]]] = []
_HELPING: Final = "SOLVER_COMPILES_BESIDE"

#: One function is loaded, or compiled, at a time.
_LOADING: Final = threading.RLock()

#: Seconds as Python after which a function is compiled. Infinity and `_DEADLINE_IS_SHORT` are never reached;
#: within a short deadline another process compiles meanwhile.
_COMPILING_AFTER: Final = ContextVar("_COMPILING_AFTER", default=PYTHON_SECONDS)
_DEADLINE_IS_SHORT: Final = sys.float_info.max

#: Whether a function runs as Python, which then calls others as Python.
_IN_PYTHON: Final = ContextVar("_IN_PYTHON", default=False)


@contextmanager
def compiling_after(seconds: float) -> Iterator[None]:
    """Within it, a function is compiled once it has run as Python for `seconds`; with infinity none is."""
    before = _COMPILING_AFTER.set(seconds)
    try:
        yield
    finally:
        _COMPILING_AFTER.reset(before)


@contextmanager
def deadline_of(seconds: float | None) -> Iterator[None]:
    """Within it, nothing is compiled if the deadline is at most `COMPILING_SECONDS`: it would use that up.

    A process beside this one compiles meanwhile. None is no deadline.
    """
    if seconds is None or seconds > COMPILING_SECONDS:
        yield
    else:
        with compiling_after(_DEADLINE_IS_SHORT):
            yield


def heeding_deadline(function: Function) -> Function:
    """A function of something and of options, which calls all else within `deadline_of` their deadline."""

    @wraps(function)
    def called(subject: Any, options: Any = None, *others: Any, **named: Any) -> Any:
        with deadline_of(None if options is None else options.deadline_seconds):
            return function(subject, options, *others, **named)

    return cast(Function, called)


def may_compile() -> bool:
    """Whether functions that are not on disk are compiled once they have run long enough."""
    return _COMPILING_AFTER.get() < _DEADLINE_IS_SHORT and _numba_is_installed() and not _FAILED


def addressed(argument: Argument) -> Argument:
    """An array, or a named tuple of arrays, for functions that are called often: looks up addresses once.

    The result is for calls of compiled functions alone, and keeps the arrays alive.
    """
    return cast(Argument, _Addressed(argument))


def compiled(function: Function) -> Function:
    """Compiled once it has run long enough, kept on disk, running beside other threads.

    No reference counts, no exceptions: a compiled function allocates nothing, raises nothing and divides by
    nothing that can be zero. Until it is compiled it runs as Python, a hundred times slower.
    """
    return cast(Function, Kernel(function))


def inlined(function: Function) -> Function:
    """A part of compiled functions; LLVM puts it in place where that is faster. Python calls it as Python."""
    return cast(Function, Kernel(function, function))


def runs_compiled(function: Callable[..., Any]) -> bool:
    """Whether a function that has been called runs as machine code."""
    return isinstance(function, Kernel) and function.runs_compiled()
