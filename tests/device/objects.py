"""Facts that compiled files of a network show: functions of others, variables, the depth of the stack."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from solver.plan import Plan

__all__ = ["CALL_GRAPH", "Failed", "called", "check_symbols", "stack_depth"]

#: With this flag gcc writes what each function calls, and the bytes of its frame, to a file `.ci`.
CALL_GRAPH: Final = "-fcallgraph-info=su"

#: Functions that a compiler calls on its own: four of memory, and its runtime, whose names begin with ``__``.
_OF_THE_COMPILER: Final = re.compile(r"mem(cpy|move|set|cmp)|__\w+|_GLOBAL_OFFSET_TABLE_")
#: Variables beside the arenas: counters, and one piece of the state for the hash.
MOST_VARIABLES: Final = 512
SECONDS: Final = 1800


class Failed(Exception):
    """A program that could not be compiled, that did not run to its end, or that is not as promised."""


def called(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    code: int = 0,
    seconds: int | None = SECONDS,
) -> str:
    """The output of a command. Raises Failed if it ends with another code, or takes more than `seconds`."""
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {seconds} s") from None
    if done.returncode != code:
        raise Failed(_first_error(done.stderr or done.stdout) or f"exit {done.returncode}")
    return done.stdout or done.stderr  # QEMU writes what a board tells to the latter


def _first_error(text: str) -> str:
    """The line that tells of an error, of a compiler's or a sanitizer's output; else the last."""
    lines = [line.strip() for line in text.splitlines() if not re.search("warning|collect2|^ *$", line)]
    last = lines[-1] if lines else ""
    return next((line for line in lines if re.search("error|ERROR|cannot find|undefined", line)), last)[:400]


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    kind: str
    nbytes: int


def _symbols(nm: str, file: Path) -> list[_Symbol]:
    rows = re.findall(r"^(\S+) (\w) *(?:\w*) *(\w*)$", called([nm, "-P", file]), re.MULTILINE)
    return [_Symbol(name, kind, int(size or "0", 16)) for name, kind, size in rows]


def check_symbols(nm: str, net: Path, kernels: Path, plan: Plan | None) -> None:
    """Check that the arenas, if the file has them, have the bytes of the plan, that other variables are few
    and kernels have none, and that no function of a library is called: no allocation, none of libm.

    Raises Failed, with the symbols.
    """
    own, of_kernels = _symbols(nm, net), _symbols(nm, kernels)
    defined = {symbol.name for symbol in (*own, *of_kernels) if symbol.kind != "U"}
    foreign = {
        symbol.name
        for symbol in (*own, *of_kernels)
        if symbol.name not in defined
        and not _OF_THE_COMPILER.fullmatch(symbol.name)
        and not symbol.name.startswith("net_page_")
    }
    if foreign:
        raise Failed(f"calls functions of a library: {', '.join(sorted(foreign))}")
    variables = {s.name: s.nbytes for s in own if s.kind in "bBdDC" and not s.name.startswith("__")}
    of_kernels = [s for s in of_kernels if s.kind in "bBdDC" and not s.name.startswith("__")]
    if of_kernels:
        raise Failed(f"kernels have variables: {', '.join(symbol.name for symbol in of_kernels)}")
    if plan is not None:
        for number, (space, size) in enumerate(zip(plan.program.spaces, plan.sizes, strict=True)):
            nbytes = variables.pop(f"arena{number}") if space.addressable else size
            if nbytes != max(1, size):
                raise Failed(f"memory {space.name!r} has {nbytes} bytes, and {size} in the plan")
    if sum(variables.values()) > MOST_VARIABLES:
        raise Failed(f"variables beside the arenas take more than {MOST_VARIABLES} bytes: {variables}")


def stack_depth(net: Path, kernels: Path) -> int:
    """Bytes of the frames along the deepest chain of calls that begins at a function of the network, by the
    call graphs that gcc wrote beside the object file and into the folder. Functions of the compiler's runtime
    count nothing. A call through a pointer is one of a static function of the same file that nobody calls by
    name.

    Raises Failed for a function that calls itself, for pointers to functions of other files, and for frames
    of a size that only the run knows.
    """
    own = net.with_suffix(".ci").read_text(encoding="utf-8")
    graph = "\n".join((own, *(path.read_text(encoding="utf-8") for path in sorted(kernels.glob("*.ci")))))
    frames = _frames(graph)
    calls: dict[str, set[str]] = {}
    for caller, callee in re.findall(r'edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', graph):
        calls.setdefault(caller, set()).add(callee)
    called_by_name = {callee for callees in calls.values() for callee in callees}
    for caller, callees in calls.items():
        if "__indirect_call" in callees:
            file = frames[caller].file
            pointed_at = {n for n in frames if n.startswith(f"{file}:") and n not in called_by_name}
            if not pointed_at:
                raise Failed(f"{caller} calls a function of another file through a pointer")
            callees |= pointed_at
    return _deepest(_frames(own), frames, calls)


@dataclass(frozen=True, slots=True)
class _Frame:
    file: str
    nbytes: int


def _frames(graph: str) -> dict[str, _Frame]:
    """The frames of functions by their titles, which begin with the file where the function is static."""
    frames = {}
    nodes = r'node: \{ title: "([^"]+)" label: "[^"\\]*\\n([^"\\]*):\d+:\d+\\n(\d+) bytes \(([^)"]+)\)'
    for title, file, nbytes, kind in re.findall(nodes, graph):
        if kind == "dynamic":  # "dynamic,bounded" is at most that much
            raise Failed(f"the frame of {title} has a size that only the run knows")
        frames[title] = _Frame(file, int(nbytes))
    return frames


def _deepest(begins: Iterable[str], frames: Mapping[str, _Frame], calls: Mapping[str, set[str]]) -> int:
    running: list[str] = []

    @cache
    def depth(name: str) -> int:
        if name in running:
            raise Failed(f"calls itself: {' -> '.join((*running[running.index(name) :], name))}")
        running.append(name)
        own = frames[name].nbytes if name in frames else 0
        deepest = own + max(map(depth, calls.get(name, ())), default=0)
        running.pop()
        return deepest

    return max(map(depth, begins))
