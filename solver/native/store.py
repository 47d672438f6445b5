"""Machine code on disk: one file a function, for one state of its sources and one kind of machine.

Files lie where ``NUMBA_CACHE_DIR`` says, if it is set (one directory, or several as in ``PATH``), else in
the user's cache directory, else in the package, where those of an image are. A directory that cannot be
written is still read. With a linker at hand a file is a shared library, which the system loads; otherwise it
is an object file, which llvmlite loads: that takes .1 s and 47 MB more.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

__all__ = [
    "CALLED",
    "PACKAGE_CACHE",
    "SYMBOL",
    "keep",
    "keep_object",
    "kept_object",
    "load",
    "loaded_object",
    "locked",
    "writable",
]

#: The function to call, by the same name in all files.
SYMBOL: Final = "arenaplan_kernel"

#: Its type, called with the address of a block of numbers. Other threads of Python run meanwhile.
CALLED: Final = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)

_LIBRARY, _OBJECT = ".so", ".o"

#: Bytes of the SHA-256 digest at the end of each file: loading half a file could end the process.
_DIGEST: Final = 32

#: Files of one function that stay when another is written: people switch between states of the sources.
_MAX_FILES: Final = 16

#: Directory of what is compiled for an image.
PACKAGE_CACHE: Final = Path(__file__).parent / "__pycache__"

#: Loaded code lives as long as the process.
_LOADED: Final[list[Any]] = []


def load(name: str, key: str) -> int | None:
    """The address of the code of this function, loaded for good; None where no file of it loads."""
    for directory in _directories():
        for suffix in (_LIBRARY, _OBJECT):
            path = _path(directory, name, key, suffix)
            with suppress(OSError, RuntimeError, ImportError, AttributeError):
                code = _read(path)
                if code is not None:
                    return _loaded_library(path) if suffix == _LIBRARY else loaded_object(code)
    return None


def _read(path: Path) -> bytes | None:
    """The code in a file; None where it is not all there. Raises OSError."""
    content = path.read_bytes()
    code, digest = content[:-_DIGEST], content[-_DIGEST:]
    return code if hashlib.sha256(code).digest() == digest else None


def kept_object(name: str, key: str) -> bytes | None:
    """The object file that `keep_object` has kept under this name and key; None where there is none."""
    for directory in _directories():
        with suppress(OSError):
            code = _read(_path(directory, name, key, _OBJECT))
            if code is not None:
                return code
    return None


def keep_object(name: str, key: str, code: bytes) -> None:
    """Writes an object file as it is where it can be kept, for linkers. Raises OSError."""
    _write(_path(_place(), name, key, _OBJECT), code)


def writable() -> bool:
    """Whether code can be kept; elsewhere each process compiles what it needs."""
    return any(map(_writable, _directories()))


def _place() -> Path:
    """The first directory that can be written. Raises OSError where there is none."""
    for directory in filter(_writable, _directories()):
        return directory
    raise OSError("no directory can be written")


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Meanwhile no other process of this machine is inside, for the function of this name."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    with Path(_place(), f"{name}.lock").open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def keep(name: str, key: str, code: bytes) -> None:
    """Writes an object file where it can be kept, as a shared library if possible. Raises OSError."""
    library, directory = _linked(code), _place()
    if library is not None:
        path = _path(directory, name, key, _LIBRARY)
        _write(path, library)
        try:
            ctypes.CDLL(str(path))
        except OSError:  # from a file system without the right to execute
            path.unlink()
        else:
            return
    _write(_path(directory, name, key, _OBJECT), code)


def _write(path: Path, content: bytes) -> None:
    """The file appears as a whole; the oldest ones of the same function make room."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content + hashlib.sha256(content).digest())
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)
    function = path.name.rpartition("-")[0]
    others = sorted(path.parent.glob(f"{function}-*"), key=lambda other: -other.stat().st_mtime)
    for other in others[_MAX_FILES:]:
        other.unlink(missing_ok=True)


def _linked(code: bytes) -> bytes | None:
    """The code as a shared library; None where there is no linker for it."""
    if sys.platform != "linux":
        return None
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place, "code.o"), Path(place, "code.so")
        source.write_bytes(code)
        command = ["ld", "-shared", "-Bsymbolic", "--strip-all", "-o", str(target), str(source)]
        try:
            subprocess.run(command, capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return target.read_bytes()


def _loaded_library(path: Path) -> int | None:
    library = ctypes.CDLL(str(path))
    return ctypes.cast(getattr(library, SYMBOL), ctypes.c_void_p).value


def loaded_object(code: bytes) -> int:
    """The address of the code in an object file that llvmlite loads for good."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    # From here on LLVM sees the symbols of this process.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _LOADED.append(engine)
    address: int = engine.get_function_address(SYMBOL)
    return address


def _path(directory: Path, name: str, key: str, suffix: str) -> Path:
    """Code of one state of the sources, for any processor of the same type and system."""
    machine = f"{sys.platform}-{platform.machine()}"
    digest = hashlib.sha256(f"{machine} {key}".encode()).hexdigest()[:32]
    return directory / f"{name}-{machine}-{digest}{suffix}"


def _writable(directory: Path) -> bool:
    with suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return True
    return False


def _directories() -> Iterator[Path]:
    environment = os.environ
    if environment.get("NUMBA_CACHE_DIR"):
        yield from map(Path, environment["NUMBA_CACHE_DIR"].split(os.pathsep))
    if environment.get("XDG_CACHE_HOME"):
        yield Path(environment["XDG_CACHE_HOME"], "arenaplan")
    elif environment.get("HOME"):
        yield Path(environment["HOME"], ".cache", "arenaplan")
    yield PACKAGE_CACHE
