"""Machines to train on: a compiler, its flags, and what runs its programs."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from solver.c_kernels import SOURCES
from tests.device.networks import Written

__all__ = [
    "BARE_STRICT",
    "PACKAGES",
    "STRICT",
    "Board",
    "Failed",
    "Machine",
    "boards",
    "controls",
    "machines",
]

HERE: Final = Path(__file__).with_name("sources")
BOARD: Final = Path(__file__).parents[2] / "examples" / "board"

#: Debian's packages of all compilers and emulators.
PACKAGES: Final = (
    "gcc clang"
    " gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-arm-linux-gnueabihf libc6-dev-armhf-cross"
    " gcc-riscv64-linux-gnu libc6-dev-riscv64-cross qemu-user-static"
    " gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm"
)

#: How every file is compiled.
STRICT: Final = (
    "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-Wconversion",
)  # fmt: skip

#: Without a C library, and so that functions without a caller can be left out.
BARE_STRICT: Final = (*STRICT, "-ffreestanding", "-ffunction-sections", "-fdata-sections", "-fstack-usage")
SECONDS: Final = 900


class Failed(Exception):
    """A program that could not be compiled, or that did not run to its end."""


def called(command: Sequence[str | Path], *, folder: Path | None = None) -> str:
    """What a command prints. Raises Failed if it fails or takes long."""
    try:
        done = subprocess.run(
            list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"took more than {SECONDS} s") from None
    if done.returncode:
        raise Failed((done.stderr or done.stdout or f"exit {done.returncode}").strip())
    return done.stdout or done.stderr  # QEMU writes what a board tells to the latter


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiler with flags, and the emulator of its programs, if they need one."""

    name: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    emulator: tuple[str, ...] = ()
    strict: tuple[str, ...] = STRICT

    @property
    def title(self) -> str:
        return f"{self.name} {' '.join(self.flags)}"

    @property
    def lacking(self) -> str | None:
        """The program that is not installed."""
        needed = (self.compiler[0], *self.emulator[:1])
        return next((name for name in needed if shutil.which(name) is None), None)

    @property
    def tools(self) -> str:
        """The prefix of the compiler's binutils."""
        return self.compiler[0].removesuffix("gcc") if self.compiler[0].endswith("-gcc") else ""

    def kernels(self, folder: Path) -> Path:
        """All kernels as an archive; each network takes what it uses."""
        folder.mkdir(parents=True, exist_ok=True)
        called([*self.compiler, *self.strict, *self.flags, "-c", *sorted(SOURCES.glob("*.c"))], folder=folder)
        archive = folder / "kernels.a"
        archive.unlink(missing_ok=True)
        called([f"{self.tools}ar", "rcs", archive, *sorted(folder.glob("*.o"))])
        return archive

    def build(self, written: Written, kernels: Path, *defined: str) -> Path:
        """The program, beside its archive of kernels."""
        program = kernels.with_name("program")
        sources = [written.folder / "net.c", HERE / "main.c", HERE / "host.c", HERE / "data.S"]
        static = ["-static"] if self.emulator else []
        called(
            [*self.compiler, *self.strict, *self.flags, *defined, *static, f"-I{written.folder}", f"-I{HERE}",
             f"-Wa,-I{written.folder}", *sources, kernels, "-o", program],
        )  # fmt: skip
        return program

    def run(self, program: Path) -> str:
        return called([*self.emulator, program])


@dataclass(frozen=True, slots=True)
class Board(Machine):
    """A microcontroller without an operating system."""

    strict: tuple[str, ...] = BARE_STRICT

    def build(self, written: Written, kernels: Path, *defined: str) -> Path:
        program = kernels.with_name("program")
        nbytes = sum(written.plan.sizes)
        options = written.network.options
        where = "arena" if nbytes < 4 << 20 else "wide"
        place = f'-DNET_PLACE_ARENA=__attribute__((section(".bss.{where}")))'
        ram = [f"-Wl,--defsym=RAM={options['capacity']}"] if "capacity" in options else []
        sources = [written.folder / "net.c", HERE / "main.c", BOARD / "startup.c", HERE / "data.S"]
        called(
            [*self.compiler, *self.strict, *self.flags, *defined, place, f"-I{written.folder}", f"-I{HERE}",
             f"-Wa,-I{written.folder}", "-nostdlib", f"-T{BOARD / 'board.ld'}", "-Wl,--gc-sections", *ram,
             *sources, kernels, "-lgcc", "-o", program],
        )  # fmt: skip
        return program

    def run(self, program: Path) -> str:
        return called([*self.emulator, "-kernel", program])

    def sections(self, program: Path) -> dict[str, int]:
        """Bytes of each section of a program."""
        rows = called([f"{self.tools}size", "-A", "-d", program])
        return {name: int(size) for name, size in re.findall(r"^(\S+)\s+(\d+)\s+\d+$", rows, re.MULTILINE)}

    def frame(self, program: Path) -> int:
        """Bytes of the largest stack frame of a function, of all kernels and the network's own."""
        return max(
            int(line.split("\t")[1])
            for usage in program.parent.glob("*.su")
            for line in usage.read_text(encoding="ascii").splitlines()
        )


def _host(compiler: str) -> Iterator[Machine]:
    name = f"{platform.machine()} {compiler}"
    for flags in ("-O0", "-O2", "-O3", "-Os", "-O3 -march=native", "-O2 -DAP_PLAIN -DAP_SOFT_ROOT"):
        yield Machine(name, (compiler,), tuple(flags.split()))
    if compiler == "gcc":
        checked = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
        yield Machine(name, (compiler,), checked)


def machines() -> Iterator[Machine]:
    """Those with an operating system: this one, and those that QEMU emulates for a process."""
    for compiler in ("gcc", "clang"):
        yield from _host(compiler)
    for name, triple, emulator, sets in (
        (
            "aarch64 gcc",
            "aarch64-linux-gnu",
            "qemu-aarch64-static",
            ("-O0", "-O3", "-Os", "-O2 -DAP_PLAIN -DAP_SOFT_ROOT"),
        ),
        ("armv7 gcc", "arm-linux-gnueabihf", "qemu-arm-static", ("-O3", "-Os", "-O2 -mfpu=neon")),
        ("riscv64 gcc", "riscv64-linux-gnu", "qemu-riscv64-static", ("-O3", "-Os")),
    ):
        for flags in sets:
            yield Machine(name, (f"{triple}-gcc",), tuple(flags.split()), (emulator,))


_M4: Final = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
_M7: Final = ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16")
_M3: Final = ("-mcpu=cortex-m3", "-mthumb", "-mfloat-abi=soft")


def boards() -> Iterator[Board]:
    """Microcontrollers, as `qemu-system-arm` has them."""
    for name, board, flags, sets in (
        ("Cortex-M4F", "mps2-an386", _M4, ("-Os", "-O3")),
        (
            "Cortex-M7",
            "mps2-an500",
            ("-mcpu=cortex-m7", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv5-d16"),
            ("-Os",),
        ),
        ("Cortex-M3", "mps2-an385", _M3, ("-Os",)),
    ):
        emulator = ("qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none",
                    "-semihosting-config", "enable=on,target=native")  # fmt: skip
        for each in sets:
            yield Board(name, ("arm-none-eabi-gcc", *flags), (each,), emulator)


def controls() -> Iterator[Machine]:
    """Compilers that are told to compute other numbers."""
    contracts = "fma" in Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    for compiler in ("gcc", "clang"):
        name = f"{platform.machine()} {compiler}"
        yield Machine(name, (compiler,), ("-O3", "-ffast-math"))
        if contracts:
            yield Machine(name, (compiler,), ("-O3", "-mfma", "-ffp-contract=fast"))
