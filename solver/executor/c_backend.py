"""Runs plans of the target `c` on this machine: the exported C files, compiled by the system's compiler.

    plan -> net.h, net.c, kernels/*.c -> cc -shared -> net_step(), in memory that Python allocated

The files are those that a device gets. Python sees the same memory, so it writes batches and reads weights
as it does where NumPy computes.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Final

from solver.c_training import c_training_files, functions_of
from solver.errors import PlanError
from solver.executor.memory import BASE_ALIGNMENT, arenas, in_spaces
from solver.executor.run import Data, Prepared, Runner
from solver.graph import Array
from solver.native.store import keep_object, kept_object
from solver.plan import Deployment, Plan
from solver.program import Program, Step, indices

__all__ = ["CLibrary", "CRunner", "in_c_apart", "with_values_apart"]

#: Only speed depends on the optimization: no flag here contracts or reorders arithmetic.
_FLAGS: Final = (
    "-std=c11",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-DNET_HOSTED",
)
#: Offsets in the C files have 32 bits.
_MOST_BYTES: Final = 2**32


class CLibrary:
    """The C files of a plan, compiled for this machine, in memory that Python allocated.

    Raises PlanError where there is no compiler, or it refuses the files.
    """

    def __init__(self, planned: Plan | Deployment, blocks: Sequence[Array], *, poison: bool = False) -> None:
        self._library = _compiled(planned, poison=poison)
        self.blocks = tuple(blocks)
        for number, block in enumerate(blocks):
            place = ctypes.c_void_p.in_dll(self._library, f"arena{number}")
            place.value = block.ctypes.data
        ctypes.c_int.in_dll(self._library, "started").value = 1
        self._functions = {function.entry_point: function for function in functions_of(planned)}

    def run(self, entry_point: str, iteration: int) -> None:
        """Run an entry point, or with an empty name the program of a plan, which `iteration` runs precede.

        Raises GraphError for an index that the network computes and that is out of range.
        """
        function = self._functions[entry_point]
        counters = (ctypes.c_uint32 * (function.counter + 1)).in_dll(self._library, "iterations")
        counters[function.counter] = iteration
        run = self._library[f"net_{function.name}"]
        run.restype = None
        run()
        outside = ctypes.c_uint32.in_dll(self._library, "outside")
        if outside.value:
            step, outside.value = outside.value - 1, 0
            ((_, range_), *_) = indices(function.body.program).computed[step]
            raise range_.error(None)


class CRunner(Runner):
    """The program of a plan whose steps are one call of compiled C. Poison is compiled in.

    `entry_point` is empty for a plan of one program.
    """

    def __init__(
        self,
        plan: Plan,
        library: CLibrary,
        data: Data,
        *,
        entry_point: str = "",
        begins: Collection[int] | None = None,
    ) -> None:
        self._library, self._entry_point = library, entry_point
        super().__init__(plan.program, in_spaces(plan, None, library.blocks), data, begins=begins)

    def run(self) -> None:
        self.iteration += 1
        self._library.run(self._entry_point, self.iteration - 1)

    def _prepare(self, step: Step) -> Prepared:
        return _nothing


def _nothing() -> None:
    """All steps are one call."""


def with_values_apart(plan: Plan, reference: Program) -> Plan:
    """A plan of the reference program in which no two values share a byte.

    Raises PlanError where they take more than offsets of 32 bits reach.
    """
    offsets, sizes = [0] * len(reference.values), list[int]()
    for number in range(len(reference.spaces)):
        values = [v for v, value in enumerate(reference.values) if value.space == number]
        ends = accumulate(
            (-(-reference.values[v].type.nbytes // BASE_ALIGNMENT) * BASE_ALIGNMENT for v in values),
            initial=0,
        )
        *starts, size = ends
        for value, start in zip(values, starts, strict=True):
            offsets[value] = start
        sizes.append(size)
    if max(sizes) >= _MOST_BYTES:
        raise PlanError(
            f"With memory of their own the values take {max(sizes):,} bytes, and C's offsets end at 4 GiB.",
            remedy="Plan and validate a smaller batch.",
        )
    return replace(plan, program=reference, offsets=tuple(offsets), sizes=tuple(sizes))


def in_c_apart(plan: Plan, reference: Program, data: Data) -> CRunner:
    """The reference program in C, each value in memory of its own."""
    apart = with_values_apart(plan, reference)
    return CRunner(apart, CLibrary(apart, arenas(reference.spaces, apart.sizes)), data)


def _compiled(planned: Plan | Deployment, *, poison: bool) -> ctypes.CDLL:
    """The library of a plan's files. Object files are kept: another plan shares those of its kernels."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise PlanError(
            "There is no C compiler: no program `cc` is in PATH.",
            remedy="Install one (Debian: apt-get install gcc libc6-dev), or train with kernels='numpy' and a"
            " plan of the target 'reference'.",
        )
    with tempfile.TemporaryDirectory(prefix="arenaplan-") as name:
        folder = Path(name)
        for path, content in c_training_files(planned).items():
            place = folder / path
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(content)
        flags = (*_FLAGS, *(("-DNET_POISON",) if poison else ()))
        library, machine = folder / "net.so", _machine(compiler, flags)
        headers = b"\0".join(path.read_bytes() for path in sorted(folder.glob("kernels/*.h")))
        objects = []
        for source in [folder / "net.c", *sorted(folder.glob("kernels/*.c"))]:
            included = headers + (folder / "net.h").read_bytes() if source.stem == "net" else headers
            name, key = f"c-{source.stem}", sha256(machine + included + source.read_bytes()).hexdigest()
            code = kept_object(name, key)
            if code is None:
                code = _object(compiler, flags, source, folder)
                with suppress(OSError):  # where no directory can be written, each process compiles anew
                    keep_object(name, key, code)
            objects.append(folder / f"{source.stem}.o")
            objects[-1].write_bytes(code)
        _call([compiler, "-shared", *objects, "-o", library], folder)
        return ctypes.CDLL(str(library))


def _machine(compiler: str, flags: Sequence[str]) -> bytes:
    """The inputs of object files besides their sources: flags, and the macros of compiler and processor."""
    done = subprocess.run(
        [compiler, *flags, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, check=False
    )
    return " ".join((compiler, *flags)).encode() + done.stdout


def _object(compiler: str, flags: Sequence[str], source: Path, folder: Path) -> bytes:
    target = source.with_suffix(".o")
    _call([compiler, *flags, f"-I{folder}", "-c", source, "-o", target], folder)
    return target.read_bytes()


def _call(command: Sequence[str | Path], folder: Path) -> None:
    """Run the compiler. Raises PlanError with its first error."""
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").replace(str(folder), "").split("\n")
        shown = next((line for line in lines if "error" in line), lines[0]).strip()
        raise PlanError(
            f"{command[0]} cannot compile the plan's C files: {shown:.300}",
            remedy="Install another compiler as `cc` (gcc 9, clang 11 or later), or train with"
            " kernels='numpy' and a plan of the target 'reference'.",
        )
