"""Machines to train on: a compiler, its flags, and what runs its programs."""

from __future__ import annotations

import platform
import re
import shutil
import signal
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from solver.c_kernels import SOURCES
from solver.plan import Plan
from tests.device.networks import Written
from tests.device.objects import CALL_GRAPH, Failed, called, check_symbols, stack_depth

__all__ = ["PACKAGES", "Board", "Machine", "boards", "controls", "first_machine", "machines"]

HERE: Final = Path(__file__).with_name("sources")
BOARD: Final = Path(__file__).parents[2] / "examples" / "board"

#: Debian's packages for each compiler and emulator.
PACKAGES: Final = {
    "gcc": "gcc libc6-dev",
    "clang": "clang libc6-dev libclang-rt-dev",
    "i686-linux-gnu-gcc": "gcc-i686-linux-gnu libc6-dev-i386-cross",
    "aarch64-linux-gnu-gcc": "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
    "arm-linux-gnueabihf-gcc": "gcc-arm-linux-gnueabihf libc6-dev-armhf-cross",
    "riscv64-linux-gnu-gcc": "gcc-riscv64-linux-gnu libc6-dev-riscv64-cross",
    "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
    "qemu-aarch64-static": "qemu-user-static",
    "qemu-arm-static": "qemu-user-static",
    "qemu-riscv64-static": "qemu-user-static",
    "qemu-system-arm": "qemu-system-arm",
}

#: How every file is compiled.
STRICT: Final = (
    "-std=c11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-Wconversion",
)  # fmt: skip

#: Without a C library, and so that functions without a caller can be left out.
BARE_STRICT: Final = (*STRICT, "-ffreestanding", "-ffunction-sections", "-fdata-sections")


@dataclass(frozen=True, slots=True)
class Machine:
    """A compiler with flags, and the emulator of its programs, if they need one. `triple` is that of the
    binutils; `note` says how its programs differ from those of others.
    """

    name: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    emulator: tuple[str, ...] = ()
    strict: tuple[str, ...] = STRICT
    triple: str = ""
    note: str = ""

    @property
    def title(self) -> str:
        return " ".join((self.name, *self.flags)) + (f", {self.note}" if self.note else "")

    @property
    def programs(self) -> tuple[str, ...]:
        """The compilers and the emulator."""
        cross = (f"{self.triple}gcc",) if self.triple else ()
        return (self.compiler[0], *cross, *self.emulator[:1])

    @property
    def packages(self) -> tuple[str, ...]:
        """Debian's packages of the programs and of their libraries."""
        return tuple(dict.fromkeys(p for name in self.programs for p in PACKAGES[name].split()))

    @property
    def lacking(self) -> str:
        """A program that is not installed, or a library that the compiler does not find; empty if all are."""
        missing = [name for name in self.programs if shutil.which(name) is None]
        if missing or isinstance(self, Board):
            return missing[0] if missing else ""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "program.c")
            program.write_text(
                '#include <stdio.h>\nint main(void) { return puts("") < 0; }\n', encoding="ascii"
            )
            links = "-static" if self.triple else "-no-pie"
            try:
                called([*self.compiler, *self.flags, str(program), links, "-o", f"{program}.out"])
            except Failed as failure:
                return f"{self.compiler[0]}'s library: {failure}"
        return ""

    @property
    def folder(self) -> str:
        """A name for a folder that no other machine has."""
        return re.sub(r"[^\w.=-]+", "_", self.title)

    @property
    def _writes_call_graphs(self) -> bool:
        return self.compiler[0].endswith("gcc")

    def compile(self, sources: list[Path], folder: Path, *flags: str) -> None:
        """Object files in the folder, and beside them what gcc says of their calls."""
        folder.mkdir(parents=True, exist_ok=True)
        graphs = [CALL_GRAPH] if self._writes_call_graphs else []
        called([*self.compiler, *self.strict, *flags, *graphs, "-fno-pie", "-c", *sources], folder=folder)

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """The flags without macros of networks, which no kernel reads."""
        return tuple(flag for flag in self.flags if not flag.startswith("-DNET_"))

    def kernels(self, folder: Path, names: Collection[str] = ()) -> Path:
        """The kernels in files of these names, or all, as an archive; each network takes what it uses."""
        sources = sorted(path for path in SOURCES.glob("*.c") if not names or path.name in names)
        self.compile(sources, folder, *self.kernel_flags)
        archive = folder / "kernels.a"
        archive.unlink(missing_ok=True)
        called([f"{self.triple}ar", "rcs", archive, *sorted(folder.glob("*.o"))])
        return archive

    def build(self, written: Written, kernels: Path, *defined: str) -> Path:
        """The program of a network, in a folder of its own."""
        folder = kernels.parent / written.folder.name
        self.compile([self._net(written)], folder, *self.flags, *self._places(written))
        called(
            [*self.compiler, *self.strict, *self.flags, *defined, f"-I{self._net(written).parent}",
             f"-I{written.folder}", f"-I{HERE}", *self._sources(), folder / "net.o",
             kernels, *self._links(written), "-o", folder / "program"],
        )  # fmt: skip
        return folder / "program"

    def check(self, written: Written, kernels: Path) -> int | None:
        """The bytes of stack that the network needs, where the compiler says them.

        Raises Failed if a file has symbols that it must not have.
        """
        net = kernels.parent / written.folder.name / "net.o"
        check_symbols(f"{self.triple}nm", net, kernels, self._plan(written))
        return stack_depth(net, kernels.parent) if self._writes_call_graphs else None

    def run(self, program: Path, written: Written) -> str:
        return called([*self.emulator, program], folder=self._net(written).parent)

    def _net(self, written: Written) -> Path:
        return written.folder / "net.c"

    def _plan(self, written: Written) -> Plan | None:
        """The plan whose arenas the network's object file has."""
        return written.plan

    def _sources(self) -> list[Path]:
        return [HERE / "main.c", HERE / "host.c"]

    def _places(self, written: Written) -> list[str]:
        """Flags that place the arenas of a network."""
        return []

    def _links(self, written: Written) -> list[str]:
        return ["-static" if self.triple else "-no-pie"]


@dataclass(frozen=True, slots=True)
class Apart(Machine):
    """Trains with each value in memory of its own: the bits that every plan is held against."""

    note: str = "values apart"

    def _net(self, written: Written) -> Path:
        return written.folder / "apart" / "net.c"

    def _plan(self, written: Written) -> Plan:
        return written.apart


@dataclass(frozen=True, slots=True)
class Shifted(Machine):
    """Trains in memory of another program, which begins 64 bytes behind an address of many zeros."""

    note: str = "arenas aligned to 64 bytes only"

    def _plan(self, written: Written) -> None:
        return None


@dataclass(frozen=True, slots=True)
class Killed(Machine):
    """Trains in processes that end by SIGKILL, one in each step, and goes on from the state in a file."""

    note: str = "killed in each step and resumed"

    def run(self, program: Path, written: Written) -> str:
        state = program.with_name("state")
        state.unlink(missing_ok=True)
        losses: list[str] = []
        for last in range(written.network.steps + 1):
            code = -signal.SIGKILL if last < written.network.steps else 0
            text = called(
                [*self.emulator, program, state, str(last)], folder=self._net(written).parent, code=code
            )
            test, begins, *rows = text.splitlines()
            losses[int(begins.split()[1], 16) :] = [row for row in rows if row.startswith("loss ")]
        return "\n".join((test, *losses, rows[-1]))

    def _sources(self) -> list[Path]:
        return [HERE / "killed.c", HERE / "host.c"]


@dataclass(frozen=True, slots=True)
class Board(Machine):
    """A microcontroller without an operating system."""

    strict: tuple[str, ...] = BARE_STRICT

    def run(self, program: Path, written: Written) -> str:
        return called([*self.emulator, "-kernel", program])

    def sections(self, program: Path) -> dict[str, int]:
        """Bytes of each section of a program."""
        rows = called([f"{self.triple}size", "-A", "-d", program])
        return {name: int(size) for name, size in re.findall(r"^(\S+)\s+(\d+)\s+\d+$", rows, re.MULTILINE)}

    def _sources(self) -> list[Path]:
        return [HERE / "main.c", HERE / "data.c", HERE / "data.S", BOARD / "startup.c"]

    def _places(self, written: Written) -> list[str]:
        where = "arena" if sum(written.plan.sizes) < 4 << 20 else "wide"
        return [f'-DNET_PLACE_ARENA=__attribute__((section(".bss.{where}")))']

    def _links(self, written: Written) -> list[str]:
        options = written.network.options
        ram = [f"-Wl,--defsym=RAM={options['capacity']}"] if "capacity" in options else []
        data = f"-Wa,-I{written.folder}"
        return [data, "-nostdlib", f"-T{BOARD / 'board.ld'}", "-Wl,--gc-sections", *ram, "-lgcc"]


def _sets(*texts: str) -> list[tuple[str, ...]]:
    return [tuple(text.split()) for text in texts]


_EVERYWHERE: Final = _sets("-O0", "-O2", "-O3", "-Os", "-O2 -DAP_PLAIN -DAP_SOFT_ROOT")
_HERE: Final = [*_EVERYWHERE, *_sets("-O3 -march=native", "-O2 -DNET_POISON")]
_CHECKED: Final = (
    "-O1", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all", "-DNET_POISON",
)  # fmt: skip
_SSE: Final = ("-msse2", "-mfpmath=sse")


def first_machine() -> Machine:
    """The machine whose bits all others are compared with."""
    compiler = "gcc" if shutil.which("gcc") else "clang"
    return Apart(f"{platform.machine()} {compiler}", (compiler,), ("-O2",))


def machines() -> Iterator[Machine]:
    """Those with an operating system: this one, and those that QEMU emulates for a process."""
    here = platform.machine()
    for compiler in ("gcc", "clang"):
        for flags in (*_HERE, _CHECKED):
            yield Machine(f"{here} {compiler}", (compiler,), flags)
    yield Shifted(f"{here} gcc", ("gcc",), ("-O2", "-DNET_HOSTED"))
    yield Killed(f"{here} gcc", ("gcc",), ("-O2", "-DNET_POISON"))
    for flags in (*_EVERYWHERE, *_sets("-O3 -march=native")):
        yield Machine("i686 gcc", ("i686-linux-gnu-gcc",), (*_SSE, *flags), triple="i686-linux-gnu-")
    for name, triple, emulator, sets in (
        ("aarch64", "aarch64-linux-gnu", "qemu-aarch64-static", _EVERYWHERE),
        ("armv7", "arm-linux-gnueabihf", "qemu-arm-static", [*_EVERYWHERE, *_sets("-O2 -mfpu=neon")]),
        ("riscv64", "riscv64-linux-gnu", "qemu-riscv64-static", _EVERYWHERE),
    ):
        for flags in sets:
            yield Machine(f"{name} gcc", (f"{triple}-gcc",), flags, (emulator,), triple=f"{triple}-")
        if name != "riscv64":
            for flags in _sets("-O3", "-Os"):
                clang = ("clang", f"--target={triple}")
                yield Machine(f"{name} clang", clang, flags, (emulator,), triple=f"{triple}-")


_BOARDS: Final = {
    "Cortex-M4F": ("mps2-an386", "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16"),
    "Cortex-M7": ("mps2-an500", "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16"),
    "Cortex-M3": ("mps2-an385", "-mcpu=cortex-m3 -mthumb -mfloat-abi=soft"),
}


def _board(name: str, *flags: str) -> Board:
    board, processor = _BOARDS[name]
    emulator = ("qemu-system-arm", "-M", board, "-nographic", "-monitor", "none", "-serial", "none",
                "-semihosting-config", "enable=on,target=native")  # fmt: skip
    return Board(name, ("arm-none-eabi-gcc", *processor.split()), flags, emulator, triple="arm-none-eabi-")


def boards() -> Iterator[Board]:
    """Microcontrollers, as `qemu-system-arm` has them."""
    for name in _BOARDS:
        for flags in ("-Os", "-O3"):
            yield _board(name, flags)


def controls() -> Iterator[Machine]:
    """Compilers that are told to compute other numbers, or that do without being told."""
    here = platform.machine()
    contracts = "fma" in Path("/proc/cpuinfo").read_text(encoding="ascii").split()
    for compiler in ("gcc", "clang"):
        yield Machine(f"{here} {compiler}", (compiler,), ("-O3", "-ffast-math"))
        yield Machine(f"{here} {compiler}", (compiler,), ("-O3", "-funsafe-math-optimizations"))
        if contracts:
            yield Machine(f"{here} {compiler}", (compiler,), ("-O3", "-mfma", "-ffp-contract=fast"))
    yield Machine("i686 gcc", ("i686-linux-gnu-gcc",), ("-O2", "-mfpmath=387"), triple="i686-linux-gnu-")
    yield Machine(
        "aarch64 gcc", ("aarch64-linux-gnu-gcc",), ("-O3", "-ffp-contract=fast"), ("qemu-aarch64-static",),
        triple="aarch64-linux-gnu-",
    )  # fmt: skip
    yield _board("Cortex-M4F", "-Os", "-ffp-contract=fast")
