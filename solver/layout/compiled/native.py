"""Machine code of the layout search, kept on disk and run without numba, which takes longer to import.

    sources --numba--> LLVM's assembly --llvmlite--> machine code   `emit`: once, half a minute
    machine code --llvmlite--> an address, called through ctypes    here: 40 ms, nearly all of it llvmlite's

What is kept holds for one state of the sources, one kind of processor and one llvmlite. It lies where numba
keeps what it compiles: under ``NUMBA_CACHE_DIR`` where that is set, else in ``__pycache__`` beside the
sources, else in the user's cache directory. A directory that cannot be written is still read.

The arrays of a search are handed over as one block of numbers, for each array its address and its shape.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from solver.layout.compiled.skyline_state import SearchState
from solver.layout.compiled.stamp import stamp
from solver.layout.model.instance import Integers

__all__ = ["Bind", "Call", "MachineCode", "keep", "link", "load", "processor"]

#: A search whose arrays are bound: nodes of the first run and growth in, answer out.
Call: TypeAlias = Callable[[int, float], int]
Bind: TypeAlias = Callable[[SearchState, Integers], Call]

#: How the code is called; `ctypes` lets go of the interpreter's lock meanwhile.
_CALLED: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_double)

#: What the code names for errors and for memory of numba's. It raises nothing and allocates nothing.
_NEVER_CALLED: Final = ("numba_", "NRT_")


@dataclass(frozen=True, slots=True)
class MachineCode:
    """An object file, the function to call in it, and what it needs from the process."""

    symbol: str
    needs: tuple[str, ...]
    code: bytes


class _Bound:
    """The arrays of one search, which must stay where they are while it can be called."""

    def __init__(self, function: Callable[[int, int, float], int], arrays: tuple[Any, ...]) -> None:
        if not all(array.flags.c_contiguous and array.itemsize == 8 for array in arrays):
            raise ValueError("the arrays of a search are not in one piece each, of 64-bit numbers")
        self._function, self._arrays = function, arrays
        numbers = [number for array in arrays for number in (array.ctypes.data, *array.shape)]
        self._block = np.array(numbers, dtype=np.int64)
        self._address = self._block.ctypes.data

    def __call__(self, first: int, growth: float) -> int:
        return self._function(self._address, first, growth)


def load() -> Bind | None:
    """What is kept, made ready to be called; None where nothing is, or where it cannot be."""
    try:
        name = _name()
    except (ImportError, OSError, RuntimeError):
        return None
    for place in _places():
        try:
            return link(_read(place / name))
        except (ImportError, OSError, RuntimeError, ValueError):
            continue
    return None


def keep(made: MachineCode) -> bool:
    """Writes it to the first place that can be written; whether there is one. It appears there as a whole."""
    digest = hashlib.sha256(made.code).hexdigest()
    header = json.dumps(
        {"symbol": made.symbol, "needs": made.needs, "stamp": stamp(), "digest": digest}
    ).encode()
    for place in _places():
        try:
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
                file.write(header + b"\n" + made.code)
            Path(file.name).chmod(0o644)
            Path(file.name).replace(place / _name())
        except OSError:
            continue
        return True
    return False


def link(made: MachineCode) -> Bind:
    """Puts the code into this process, for good. RuntimeError where it needs what is not there."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # From here on LLVM sees the symbols of this process.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    for name in made.needs:
        if llvm.address_of_symbol(name) is not None:
            continue
        if not name.startswith(_NEVER_CALLED):
            # Found here, for LLVM itself would end the process.
            raise RuntimeError(f"compiled code needs {name}, which this process does not have")
        llvm.add_symbol(name, ctypes.cast(ctypes.pythonapi.abort, ctypes.c_void_p).value)
    engine.add_object_file(llvm.ObjectFileRef.from_data(made.code))
    engine.finalize_object()
    function = _CALLED(engine.get_function_address(made.symbol))
    _LINKED.append(engine)
    return lambda state, ranks: _Bound(function, (*state, ranks))


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


def _read(path: Path) -> MachineCode:
    """ValueError where the file is not what was written, or was made from other sources."""
    header, _, code = path.read_bytes().partition(b"\n")
    told = json.loads(header)
    if told["stamp"] != stamp():
        raise ValueError(f"{path} was made from other sources")
    if told["digest"] != hashlib.sha256(code).hexdigest():
        raise ValueError(f"{path} is damaged")
    return MachineCode(told["symbol"], tuple(told["needs"]), code)


@cache
def _name() -> str:
    """The name of the file, another for each environment; new sources take the place of old ones."""
    import llvmlite
    import llvmlite.binding as llvm

    parts = (
        llvmlite.__version__,
        platform.python_version_tuple()[:2],
        llvm.get_process_triple(),
        *processor(),
    )
    return f"search-{hashlib.sha256(repr(parts).encode()).hexdigest()[:32]}.machine"


def _places() -> Iterator[Path]:
    given = os.environ.get("NUMBA_CACHE_DIR")
    if given:
        yield Path(given)
    yield Path(__file__).parent / "__pycache__"
    home = os.environ.get("XDG_CACHE_HOME")
    if home or os.environ.get("HOME"):
        yield (Path(home) if home else Path(os.environ["HOME"]) / ".cache") / "arenaplan"
