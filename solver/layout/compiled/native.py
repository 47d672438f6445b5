"""Machine code kept on disk and called without numba, which takes longer to import.

What is kept holds for one state of the sources, one kind of processor and one llvmlite. It lies where numba
keeps what it compiles: under ``NUMBA_CACHE_DIR`` where that is set, else in ``__pycache__`` beside this
module, else in the user's cache directory. A directory that cannot be written is still read. An image keeps
shared libraries, for any processor of its kind, which need nothing but the system's loader.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from solver.layout.compiled.stamp import stamp

__all__ = [
    "NEVER_CALLED",
    "SYMBOL",
    "MachineCode",
    "function_at",
    "keep",
    "keep_library",
    "link",
    "load",
    "processor",
    "read",
    "writable",
]

#: How the code is called; `ctypes` lets go of the interpreter's lock meanwhile.
_CALLED: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

#: The function to call, by the same name in all files.
SYMBOL: Final = "arenaplan_kernel"

#: What the code names for errors and for memory of numba's. It raises nothing and allocates nothing.
NEVER_CALLED: Final = ("numba_", "NRT_")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """An object file with the function `SYMBOL`, and what it needs from the process."""

    needs: tuple[str, ...]
    code: bytes


def function_at(address: int) -> Callable[[int], int]:
    """What lies there, called with the address of a block of numbers."""
    return _CALLED(address)


def load(name: str, kinds: str) -> int | None:
    """The address of what is kept of this function for these arguments; None where nothing is, or can be."""
    for place in _places():
        library = place / _library(name, kinds)
        if library.exists():
            with suppress(OSError):
                found = ctypes.CDLL(str(library))
                return ctypes.cast(getattr(found, SYMBOL), ctypes.c_void_p).value
    made = read(name, kinds)
    with suppress(ImportError, OSError, RuntimeError):
        return None if made is None else link(made)
    return None


def read(name: str, kinds: str) -> MachineCode | None:
    """What is kept of this function for these arguments, not yet linked."""
    for place in _places():
        with suppress(ImportError, OSError, RuntimeError, ValueError):
            return _read(place / _file(name), kinds)
    return None


def writable() -> bool:
    """Whether there is a place to keep code in: compiling without one would take a minute each time."""
    for place in _places():
        with suppress(OSError):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                return True
    return False


def keep_library(name: str, kinds: str, code: bytes) -> None:
    """Writes a shared library beside this module, for an image: it runs where llvmlite is not installed."""
    (Path(__file__).parent / "__pycache__" / _library(name, kinds)).write_bytes(code)


def keep(name: str, kinds: str, made: MachineCode) -> bool:
    """Writes it to the first place that can be written; whether there is one. It appears there as a whole."""
    told = {
        "needs": made.needs,
        "kinds": kinds,
        "stamp": stamp(),
        "digest": hashlib.sha256(made.code).hexdigest(),
    }
    for place in _places():
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
                file.write(json.dumps(told).encode() + b"\n" + made.code)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(place / _file(name))
        except OSError:
            continue
        return True
    return False


def link(made: MachineCode) -> int:
    """Puts the code into this process, for good; its address. RuntimeError where that lacks something."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # From here on LLVM sees the symbols of this process.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for name in made.needs:
        if llvm.address_of_symbol(name) is not None:
            continue
        if not name.startswith(NEVER_CALLED):
            # Found here, for LLVM itself would end the process.
            raise RuntimeError(f"compiled code needs {name}, which this process does not have")
        llvm.add_symbol(name, ctypes.cast(ctypes.pythonapi.abort, ctypes.c_void_p).value)
    engine.add_object_file(llvm.ObjectFileRef.from_data(made.code))
    engine.finalize_object()
    _LINKED.append(engine)
    address: int = engine.get_function_address(SYMBOL)
    return address


#: Code lives as long as its engine.
_LINKED: Final[list[Any]] = []


def processor() -> tuple[str, str]:
    """Name and features of what is compiled for: this one, or as the settings of numba say in an image."""
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = "" if name == "generic" else llvm.get_host_cpu_features().flatten()
    return name, features


def _read(path: Path, kinds: str) -> MachineCode:
    """ValueError where the file is not what was written, or was made from other sources or arguments."""
    header, _, code = path.read_bytes().partition(b"\n")
    told = json.loads(header)
    if (told.get("stamp"), told.get("kinds")) != (stamp(), kinds):
        raise ValueError(f"{path} was made from other sources")
    if told["digest"] != hashlib.sha256(code).hexdigest():
        raise ValueError(f"{path} is damaged")
    return MachineCode(tuple(told["needs"]), code)


def _library(name: str, kinds: str) -> str:
    """Of one state of the sources, for any processor of this kind."""
    state = hashlib.sha256(repr((stamp(), kinds, sys.platform)).encode()).hexdigest()
    return f"{name}-{platform.machine()}-{state[:32]}.so"


def _file(name: str) -> str:
    """Another for each function and environment; new sources take the place of old ones."""
    return f"{name}-{_environment()}.machine"


@cache
def _environment() -> str:
    import llvmlite
    import llvmlite.binding as llvm

    parts = (
        llvmlite.__version__,
        platform.python_version_tuple()[:2],
        llvm.get_process_triple(),
        *processor(),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _places() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given)
    yield Path(__file__).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME")
    if home or os.environ.get("HOME"):
        yield (Path(home) if home else Path(os.environ["HOME"]) / ".cache") / "arenaplan"
