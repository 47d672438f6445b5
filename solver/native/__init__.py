"""The one seam between Python and compiled code: decorators for functions that run as machine code.

    @compiled function --numba, llvmlite--> machine code       `emit`, once a machine; alone imports numba
    machine code --------> a file of the user's cache          `store`
    file ----------------> an address, called through ctypes   here, at the first call in a process

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, cached_property, wraps
from importlib.util import find_spec
from pathlib import Path
from types import FunctionType
from typing import Any, Final, TypeAlias, TypeVar, cast

import numpy as np

from solver.native import store
from solver.native.store import PACKAGE_CACHE, writable

__all__ = [
    "PACKAGE_CACHE",
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
    "writable",
]

Function = TypeVar("Function", bound=Callable[..., Any])
Argument = TypeVar("Argument")

#: ``int``, ``float``, an array as ``int64[2]`` (element type and dimensions), or the fields of a named tuple,
#: each with its kind.
Kind: TypeAlias = "str | tuple[tuple[str, Kind], ...]"

#: Seconds that one function runs as Python before it is compiled: about what the fastest takes to compile.
PYTHON_SECONDS: Final = 2.0

#: Deadline, in seconds, up to which nothing is compiled: all functions take up to forty on two cores.
COMPILING_SECONDS: Final = 60.0

#: For the log.
_DEADLINE_NOTE: Final = (
    f"The searches are not compiled yet, and with a deadline of {COMPILING_SECONDS:g} s or less they run as"
    " Python: for better answers run `python -m solver.compile` once."
)


class Kernel:
    """One function that runs as machine code. See `compiled`, `inlined`."""

    def __init__(self, function: Callable[..., Any], call: Callable[..., Any] | None = None) -> None:
        self.function, self.call = cast(FunctionType, function), call
        self._python_seconds = 0.0

    @property
    def name(self) -> str:
        """Module and function, as ``sweep.disjoint``."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__qualname__}"

    @property
    def returns(self) -> str:
        """``int``, ``bool`` or ``None``, as annotated."""
        annotation = self.function.__annotations__["return"]
        return annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "None")

    @cached_property
    def meaning(self) -> str:
        """Text that changes whenever the machine code would: the code, what it reaches, and the compiler."""
        return "\0".join((*_meaning(self, set()), Path(__file__).with_name("emit.py").read_text("utf-8")))

    def __call__(self, *arguments: Any) -> Any:
        if _IN_PYTHON.get():
            return self.function(*arguments)
        call = self.call or self._loaded(arguments)
        if call is not None:
            return call(*arguments)
        began = time.perf_counter()
        try:
            return self._as_python(*arguments)
        finally:
            self._python_seconds += time.perf_counter() - began

    def _as_python(self, *arguments: Any) -> Any:
        """The answer of the function as Python, with all that it calls. Hashes overflow on purpose."""
        outermost = _IN_PYTHON.set(True)
        try:
            with np.errstate(over="ignore"):
                return self.function(*map(_as_plain, arguments))
        finally:
            _IN_PYTHON.reset(outermost)

    def _loaded(self, arguments: Sequence[Any]) -> Callable[..., Any] | None:
        """Machine code, or Python where nothing compiles; None: Python for now."""
        after = _COMPILING_AFTER.get()
        if not _LOADING.acquire(blocking=after < _DEADLINE_IS_SHORT):
            return None  # another thread compiles
        try:
            if self.call is None:
                kinds = tuple(map(_kind, arguments))
                address = self._address(kinds, compiles=self._python_seconds >= after)
                self.call = None if address is None else _MachineCode(self, kinds, address)
        except Exception as error:  # noqa: BLE001 - numba, LLVM and the system fail in ways of their own
            _FAILED.append(error)
            _log_once(f"Searches run without compiled code, which is slow: {_FAILED[0]}")
            self.call = self._as_python
        finally:
            _LOADING.release()
        return self.call

    def _address(self, kinds: tuple[Kind, ...], *, compiles: bool) -> int | None:
        """The address of code that is on disk, or that is compiled now; None: neither."""
        key = hashlib.sha256(f"{self.meaning}\0{kinds!r}".encode()).hexdigest()
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

        if not writable():
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


def _meaning(kernel: Kernel, seen: set[Kernel]) -> Iterator[str]:
    seen.add(kernel)
    function, code = kernel.function, kernel.function.__code__
    constants = [one for one in code.co_consts if one != function.__doc__]
    annotation = function.__annotations__.get("return")
    yield repr((kernel.name, annotation, code.co_code, constants, code.co_varnames))
    for name in code.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, Kernel):
            if value not in seen:
                yield from _meaning(value, seen)
        elif isinstance(value, int | float | tuple):
            yield f"{name}={value!r}"
        else:
            yield name


class _MachineCode:
    """Machine code at an address, called with one block of numbers."""

    def __init__(self, kernel: Kernel, kinds: tuple[Kind, ...], address: int) -> None:
        self._kinds, self._function = kinds, store.CALLED(address)
        answers: dict[str, Callable[[int], Any]] = {"bool": bool, "int": int, "None": lambda _: None}
        self._answer = answers[kernel.returns]

    def __call__(self, *arguments: Any) -> Any:
        block = array.array("q")
        for kind, argument in zip(self._kinds, arguments, strict=True):
            block.extend(_numbers(kind, argument))
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


def _as_plain(argument: Any) -> Any:
    if isinstance(argument, _Addressed):
        argument = argument.arrays
    if isinstance(argument, tuple):
        return type(argument)(*map(_as_plain, argument))
    return _PlainArray(argument) if isinstance(argument, np.ndarray) else argument


def _kind(argument: Any) -> Kind:
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


def _numbers(kind: Kind, argument: Any) -> Iterable[int]:
    """The numbers of an argument in a block: itself, or address and shape of each array."""
    if kind == "int":
        return (argument,)
    if kind == "float":
        return struct.unpack("q", struct.pack("d", argument))
    if _kind(argument) != kind:
        raise TypeError(f"an argument of compiled code is {_kind(argument)}, not {kind}")
    if isinstance(argument, _Addressed):
        return argument.numbers
    if isinstance(kind, tuple):
        return [number for (_, of), one in zip(kind, argument, strict=True) for number in _numbers(of, one)]
    if not argument.flags.c_contiguous:
        raise ValueError("an array for compiled code is not C-contiguous")
    return (argument.ctypes.data, *argument.shape)


def _announce(note: str) -> None:
    """Logs that this process lacks a function, and starts one for all functions, which ends with this one."""
    if not os.environ.get(_HELPING):
        _log_once(note)
        atexit.register(compile_beside().terminate)


@cache
def compile_beside() -> subprocess.Popen[bytes]:
    """Starts, once, a process of low priority that compiles all functions, the fastest to compile first."""
    script = f"import sys; sys.path[:] = {sys.path!r}; from solver.compile import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", script, "--beside"],
        env={**os.environ, _HELPING: "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@cache
def _numba_is_installed() -> bool:
    return find_spec("numba") is not None


@cache
def _log_once(note: str) -> None:
    logging.getLogger(__name__).warning(note)


#: Why functions did not compile.
_FAILED: Final[list[Exception]] = []

#: How the process that compiles beside this one knows that it is the one.
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
    return isinstance(function, Kernel) and isinstance(function.call, _MachineCode)
