"""The limits of a worker, which reads models from strangers: files, network, memory; Linux enforces them.

It reaches code, and no secret and no network; its memory and its processor time are limited for each task.

Files are confined by Landlock (https://docs.kernel.org/userspace-api/landlock.html), the network by a seccomp
filter. Both hold for the calling thread and for all threads and processes that it starts from then on, and
cannot be lifted. Where the kernel lacks one, `confine` says so, and the worker runs without it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import platform
import resource
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = [
    "OPEN",
    "address_space",
    "allow_memory",
    "be_killed_first",
    "confine",
    "cpu_seconds",
    "limited",
    "oom_kills",
    "worker_environment",
]

#: Stands for what the kernel does not confine.
OPEN: Final = "open"

_ROOT: Final = Path(__file__).parents[2]

#: Variables that a worker gets, and how the names of others begin: none of them holds a secret.
_VARIABLES: Final = frozenset(
    {"GLIBC_TUNABLES", "HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "PATH", "TZ", "XDG_CACHE_HOME"}
)
_PREFIXES: Final = (
    "BLIS_", "GOTO_", "KMP_", "LC_", "MALLOC_", "MKL_", "NUMBA_", "OMP_", "OPENBLAS_", "PYDANTIC_", "PYTHON",
    "VECLIB_",
)  # fmt: skip


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of a confined worker. The code that it compiles is the only thing that it can write, in a
    directory that only workers read: none of them can leave code for anybody else.
    """
    allowed = {
        name: value for name, value in environment.items() if name in _VARIABLES or name.startswith(_PREFIXES)
    }
    if (cache := _code_cache(environment)) is not None:
        others = filter(None, [environment.get("NUMBA_CACHE_DIR")])
        allowed["TMPDIR"] = str(cache / "workers")
        allowed["NUMBA_CACHE_DIR"] = os.pathsep.join([allowed["TMPDIR"], *others])
    return allowed


def _code_cache(environment: Mapping[str, str]) -> Path | None:
    """Where this user keeps compiled code."""
    if given := environment.get("NUMBA_CACHE_DIR"):
        return Path(given.split(os.pathsep)[0])
    if given := environment.get("XDG_CACHE_HOME"):
        return Path(given, "arenaplan")
    if given := environment.get("HOME"):
        return Path(given, ".cache", "arenaplan")
    return None


def confine(module: str) -> dict[str, str]:
    """Confine this thread, which serves the tasks of `module`; what holds from now on.

    To be called before there are other threads.
    """
    report = {"variables": "allow-list", "files": OPEN, "network": OPEN}
    if sys.platform != "linux":
        return report
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return report
    if version := _confine_files(libc, module):
        report["files"] = f"Landlock {version}"
        if version >= 4:
            report["network"] = "Landlock, TCP only"
    if _confine_calls(libc):
        report["network"] = "seccomp"
    return report


# ------------------------------------------------------------------------------------------------ files

_PR_SET_NO_NEW_PRIVS: Final = 38
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_ONLY_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_TRUNCATE, _IOCTL_DEV = 1 << 14, 1 << 15
#: Rights that there are of files; the others are of directories.
_OF_FILES: Final = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
#: By version of Landlock, how many kinds of access to files it knows.
_KINDS: Final = {1: 13, 2: 14, 3: 15, 4: 15}
_LATEST_KINDS: Final = 16
#: TCP connections and listening since version 4; signals and abstract sockets of others since version 6.
_TCP, _SCOPES = 0b11, 0b11

_READ: Final = _EXECUTE | _READ_FILE | _READ_DIR
_EVERYTHING: Final = (1 << _LATEST_KINDS) - 1

#: What the C library, NumPy and the loader read. Nothing of it is secret.
_OF_THE_SYSTEM: Final = (
    "/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/proc/self", "/proc/cpuinfo",
    "/proc/meminfo", "/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage", "/dev/urandom",
    "/dev/zero",
)  # fmt: skip


def _confine_files(libc: ctypes.CDLL, module: str) -> int:
    """The version of Landlock that confines this thread from now on; 0 without it."""
    version = int(libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ONLY_VERSION))
    if version < 1:
        return 0
    handled = (1 << _KINDS.get(version, _LATEST_KINDS)) - 1
    attributes = struct.pack("=QQQ", handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(size), 0)
    if ruleset < 0:
        return 0
    try:
        for path, access in _reachable(module):
            _allow(libc, ruleset, path, access & handled)
        if libc.syscall(_RESTRICT_SELF, ruleset, 0):
            return 0
    finally:
        os.close(ruleset)
    return version


def _reachable(module: str) -> Iterator[tuple[str | Path, int]]:
    """Paths, each with the access that a worker has there and below."""
    yield from ((path, _READ) for path in _OF_THE_SYSTEM)
    yield "/dev/null", _READ_FILE | _WRITE_FILE
    yield from ((path, _READ) for path in _code(module))
    yield _ROOT, _READ_DIR  # to find the packages below
    kept, *others = os.environ.get("NUMBA_CACHE_DIR", "").split(os.pathsep)
    if kept:
        with contextlib.suppress(OSError):
            Path(kept).mkdir(parents=True, exist_ok=True)
        yield kept, _EVERYTHING
        yield Path(kept).parent, _READ
    yield from ((path, _READ) for path in others)


def _code(module: str) -> set[Path]:
    """Python, its libraries, and the packages of this project, of which a checkout holds more than code."""
    packages = {"arenaplan", "service", "solver", module.partition(".")[0]}
    libraries = [*sys.path, *os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)]
    installed = {Path(path) for path in (sys.prefix, sys.base_prefix, *libraries) if path} - {_ROOT}
    return installed | {_ROOT / package for package in packages}


def _allow(libc: ctypes.CDLL, ruleset: int, path: str | Path, access: int) -> None:
    """Allow the access below a path, if there is one."""
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        access = access if Path(path).is_dir() else access & _OF_FILES
        rule = struct.pack("=Qi", access, place)
        if libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0):
            raise OSError(ctypes.get_errno(), f"Landlock takes no rule for {path}")
    finally:
        os.close(place)


# ---------------------------------------------------------------------------------------------- network

_PR_SET_SECCOMP, _MODE_FILTER = 22, 2
#: By processor: its number for audits, and the calls that lead to the network or into other processes:
#: socket, ptrace, process_vm_readv, process_vm_writev, io_uring_setup.
_CALLS: Final[Mapping[str, tuple[int, tuple[int, ...]]]] = {
    "x86_64": (0xC000003E, (41, 101, 310, 311, 425)),
    "aarch64": (0xC00000B7, (198, 117, 270, 271, 425)),
}
_LOAD, _JUMP_IF_EQUAL, _JUMP_IF_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW_CALL, _REFUSE_CALL = 0x7FFF0000, 0x00050000 | 1  # EPERM
#: Calls of the x32 ABI, of which all are refused.
_X32: Final = 0x40000000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def _confine_calls(libc: ctypes.CDLL) -> bool:
    """Refuse the calls of `_CALLS` from now on; whether the kernel does so."""
    if platform.machine() not in _CALLS:
        return False
    processor, refused = _CALLS[platform.machine()]
    number, architecture = 0, 4  # offsets in struct seccomp_data
    instructions = [
        (_LOAD, 0, 0, architecture),
        (_JUMP_IF_EQUAL, 1, 0, processor),
        (_RETURN, 0, 0, _REFUSE_CALL),
        (_LOAD, 0, 0, number),
        (_JUMP_IF_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _REFUSE_CALL),
    ]
    for call in refused:
        instructions += [(_JUMP_IF_EQUAL, 0, 1, call), (_RETURN, 0, 0, _REFUSE_CALL)]
    instructions.append((_RETURN, 0, 0, _ALLOW_CALL))
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    program = _Program(len(instructions), packed)
    return int(libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0)) == 0


# ------------------------------------------------------------------------------------- memory and time

#: Where several processes could go to free memory, the kernel takes a worker rather than the service.
_OOM_SCORE: Final = 500


def address_space() -> int:
    """Bytes of address space of this process; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[0])
    except (OSError, ValueError):
        return 0
    return pages * resource.getpagesize()


def allow_memory(size: int) -> None:
    """Let this process have `size` bytes of address space more than it has now, and nothing beyond."""
    if now := address_space():
        _limit(resource.RLIMIT_AS, now + size)


def _limit(kind: int, soft: int) -> None:
    """Set the soft limit of this process, at most to the hard one, which stays."""
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


@contextlib.contextmanager
def limited(limits: Mapping[str, Any]) -> Iterator[None]:
    """Memory and processor time of one task: ``worker_memory_bytes`` and ``worker_cpu_seconds``, if given.

    Beyond the first, allocations fail: MemoryError in Python, mostly SIGABRT in C++. Beyond the second
    the kernel sends SIGXCPU, which ends the process.
    """
    memory, seconds = limits.get("worker_memory_bytes"), limits.get("worker_cpu_seconds")
    kinds = [resource.RLIMIT_AS, resource.RLIMIT_CPU]
    before = [resource.getrlimit(kind) for kind in kinds]
    if memory is not None:
        allow_memory(memory)
    if seconds is not None:
        _limit(resource.RLIMIT_CPU, math.ceil(time.process_time() + seconds))
    try:
        yield
    finally:  # the next request must reach this process, however large it is
        for kind, limit in zip(kinds, before, strict=True):
            resource.setrlimit(kind, limit)


def be_killed_first() -> None:
    """Ask the kernel to free memory by ending this process; and to write no image of it when it fails."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_bytes(b"%d" % _OOM_SCORE)


def cpu_seconds(pid: int) -> float:
    """Processor time of a process over all of its threads; 0 where the system does not say."""
    try:
        # Behind the name, which may hold anything: utime and stime are fields 14 and 15.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def oom_kills() -> int:
    """How many processes the kernel has ended for want of memory since the machine was started."""
    try:
        lines = Path("/proc/vmstat").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith(b"oom_kill "))
