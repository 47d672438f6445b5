"""Trains networks by their plans on every machine whose compiler is here: ``./run device``.

A network leaves the same bits everywhere: of its losses, its weights and its optimizer variables. They are
compared with those of a program in which each value has memory of its own. Nothing is installed; a machine
whose compiler or emulator is missing is skipped, and named with Debian's packages.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from string import ascii_letters

from tests.device.functions import FUNCTIONS, largest_error
from tests.device.machines import PACKAGES, Board, Machine, boards, controls, first_machine, machines
from tests.device.networks import BARE, NETWORKS, Network, Written
from tests.device.objects import Failed

#: What `net_self_test` answers for another compiler's bits, as net.h has it.
OTHER_BITS = "5"

SAME, OTHER, FAILED, ABSENT = "=", "#", "!", "."


@dataclass(frozen=True, slots=True)
class Bits:
    """The output of a program: its losses and its state, as bits in hexadecimal, and bytes of the stack."""

    losses: tuple[str, ...]
    state: str
    test: str
    stack: int = 0

    @classmethod
    def read(cls, text: str) -> Bits:
        rows = [line.split() for line in text.splitlines()]
        if not rows or rows[-1][0] != "state":
            raise Failed(f"ended without its bits: {text.strip()[-200:]!r}")
        stack = next((int(number, 16) for name, number in rows if name == "stack"), 0)
        return cls(tuple(bits for name, bits in rows if name == "loss"), rows[-1][1], rows[0][1], stack)

    @property
    def digest(self) -> str:
        return sha256(" ".join((*self.losses, self.state)).encode()).hexdigest()[:16]

    def loss(self, k: int) -> float:
        value: float = struct.unpack(">f", bytes.fromhex(self.losses[k]))[0]
        return value


@dataclass
class Check:
    """Networks on machines, one row of cells for each machine; counts the cells that are as they must be, and
    those that are wrong.
    """

    folder: Path
    networks: Sequence[Network]
    #: The bits of each network on the first machine, whose self-test is its hash.
    bits: dict[str, Bits] = field(default_factory=dict)
    #: The compiled kernels of each compiler and its flags, which machines share.
    kernels: dict[tuple[str, ...], Path] = field(default_factory=dict)
    rows: dict[str, str] = field(default_factory=dict)
    sizes: list[str] = field(default_factory=list)
    skipped: dict[Machine, str] = field(default_factory=dict)
    right: int = 0
    wrong: int = 0

    def __post_init__(self) -> None:
        self.written = [
            network.write(self.folder / "networks" / str(k)) for k, network in enumerate(self.networks)
        ]

    def machine(self, machine: Machine, *, differs: bool = False) -> None:
        """The networks on one machine leave the bits of the first machine, and their self-tests pass. Of a
        control it `differs`: it is refused by the compiler, or all self-tests notice.
        """
        if lacking := machine.lacking:
            self.skipped[machine] = lacking
            print(f"{machine.title}: SKIPPED, {lacking} is not installed", flush=True)
            return
        cells, lines, stacks = "", list[str](), [0]
        try:
            kernels = self._kernels(machine, differs)
        except Failed as failure:
            refused = differs and re.search(r"ap\.h:\d+:.*error", str(failure)) is not None
            self._count(refused)
            self.rows[machine.title] = "refused when compiled" if refused else f"FAILED: {failure}"
            print(f"{machine.title}: {self.rows[machine.title]}", flush=True)
            return
        is_first = not self.bits
        for written in self.written:
            elsewhere = isinstance(machine, Board) != written.network.bare
            if (elsewhere and not is_first) or (differs and written.network.is_tiny):
                cells += ABSENT
                continue
            name = written.network.name
            try:
                bits = self._trained(machine, written, kernels)
                if not differs:
                    stacks.append(self._facts(machine, written, kernels, bits))
            except Failed as failure:
                self._count(False)
                cells += FAILED
                lines.append(f"    {name} FAILED: {failure}")
                continue
            same = bits.digest == self.bits[name].digest
            cells += SAME if same else OTHER
            right = (same, bits.test) == ((False, OTHER_BITS) if differs else (True, "0"))
            self._count(right)
            if not right:
                lines.append(f"    {name}: {bits.digest}, its self-test answers {bits.test}")
        stack = f", at most {max(stacks):,} bytes of stack" if max(stacks) else ""
        self.rows[machine.title] = cells
        print("\n".join((f"{machine.title}: {cells}{stack}", *lines)), flush=True)

    def _kernels(self, machine: Machine, differs: bool) -> Path:
        """The archive in the folder of the machine, with its call graphs; copies of those of a machine that
        compiles in the same way. A control compiles what its networks use: of the others nothing is asked.
        """
        if differs:
            used = {name for written in self.written for name in written.kernels}
            return machine.kernels(self.folder / machine.folder, used)
        folder = self.folder / machine.folder
        key = (*machine.compiler, *machine.strict, *machine.kernel_flags)
        if key not in self.kernels:
            self.kernels[key] = machine.kernels(folder)
        archive = self.kernels[key]
        if archive.parent != folder:
            folder.mkdir(parents=True, exist_ok=True)
            for path in (archive, *archive.parent.glob("*.ci")):
                shutil.copy(path, folder)
        return folder / archive.name

    def _count(self, right: bool) -> None:
        self.right, self.wrong = self.right + right, self.wrong + (not right)

    def _trained(self, machine: Machine, written: Written, kernels: Path) -> Bits:
        """On the first machine a network tells its hash; on others it tests itself against that."""
        before = self.bits.get(written.network.name)
        expected = [] if before is None else [f"-DEXPECTED=UINT64_C(0x{before.test})"]
        program = machine.build(written, kernels, *expected)
        bits = Bits.read(machine.run(program, written))
        if before is not None:
            return bits
        self.bits[written.network.name] = bits
        return Bits(bits.losses, bits.state, "0")

    def _facts(self, machine: Machine, written: Written, kernels: Path, bits: Bits) -> int:
        """The bytes of stack; of a board, a row of sizes as well. Raises Failed for what must not be."""
        stack = machine.check(written, kernels)
        if isinstance(machine, Board):
            sections = machine.sections(kernels.parent / written.folder.name / "program")
            arena = sections.get(".arena", 0) or sections.get(".wide", 0)
            if arena != written.plan.arena_bytes:
                raise Failed(f"the arena has {arena:,} bytes, and {written.plan.arena_bytes:,} in the plan")
            tenth = max(1, len(bits.losses) // 10)
            begin, end = fmean(map(bits.loss, range(tenth))), fmean(map(bits.loss, range(-tenth, 0)))
            variables = sections.get(".bss", 0) + sections.get(".data", 0)
            row = (
                f"{written.network.name:24} {machine.title:18} {sections['.text']:>8,} {arena:>10,}"
                f" {variables:>6,} {stack:>6,} {bits.stack:>6,}   {begin:.3f} to {end:.3f}"
                f" in {len(bits.losses)} steps"
            )
            self.sizes.append(row)
        return stack or 0

    def table(self, machines: Sequence[Machine]) -> str:
        """Networks by letter with their bits; machine x network; sizes on boards; what was skipped."""
        lines = [""]
        for letter, network in zip(ascii_letters, self.networks, strict=False):
            bits = self.bits.get(network.name)
            lines.append(f"{letter}  {network.name:36} {bits.digest if bits else ''}")
        rows = {title: self.rows[title] for each in machines if (title := each.title) in self.rows}
        width = max(map(len, rows), default=0)
        lines += ["", " " * width + "  " + ascii_letters[: len(self.networks)]]
        lines += [f"{title:{width}}  {cells}" for title, cells in rows.items()]
        lines += [
            "",
            f"{SAME} the same bits   {OTHER} other bits   {FAILED} failed   {ABSENT} not trained there",
        ]
        if self.sizes:
            head = ("network", "board", "code", "arena", "others", "stack", "used", "loss")
            lines += [
                "",
                "{:24} {:18} {:>8} {:>10} {:>6} {:>6} {:>6}   {}".format(*head),
                *sorted(self.sizes),
            ]
        if self.skipped:
            lines += ["", *(f"SKIPPED {each.title}: {name}" for each, name in self.skipped.items())]
            packages = sorted({package for machine in self.skipped for package in machine.packages})
            lines += [f"Debian has them: apt-get install --no-install-recommends {' '.join(packages)}"]
        return "\n".join(lines)


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no regular expression: {error}") from None


def measure_functions(jobs: int) -> int:
    """Print the largest error of each elementary function at all floats; 1 if one is above what is stated."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        errors = pool.map(lambda name: largest_error(name, Path(folder)), FUNCTIONS)
        for (name, (_, stated)), error in zip(FUNCTIONS.items(), errors, strict=True):
            failed += error > stated
            print(f"{name}: {error:.4f} units in the last place, stated {stated}", flush=True)
    return int(failed > 0)


def main(arguments: Sequence[str] | None = None) -> int:
    every = " ".join(sorted({package for packages in PACKAGES.values() for package in packages.split()}))
    parser = argparse.ArgumentParser(
        prog="./run device",
        description=__doc__,
        epilog=f"Debian's packages of all machines: apt-get install --no-install-recommends {every}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", default="", type=_pattern, help="machines by a regular expression, as 'Cortex-M4F|clang'"
    )
    parser.add_argument("--networks", default="", type=_pattern, help="networks by one, as '^(?!resnet)'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="machines at the same time")
    parser.add_argument(
        "--functions", action="store_true", help="only errors of exp, log and others, at all floats"
    )
    options = parser.parse_args(arguments)
    if options.functions:
        return measure_functions(options.jobs)
    here = [machine for machine in (*machines(), *boards()) if options.only.search(machine.title)]
    told = [machine for machine in controls() if options.only.search(machine.title)]
    kinds = {isinstance(machine, Board) for machine in (*here, *told)}
    named = [network for network in (*NETWORKS, *BARE) if options.networks.search(network.name)]
    chosen = [network for network in named if network.bare in kinds]
    if not chosen or not (here or told):
        parser.error("no machine or no network has such a name; without options all are used")
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        check = Check(Path(folder), chosen)
        check.machine(first_machine())
        if not check.bits:
            print("Nothing to compare with: install gcc or clang.")
            return 1
        tasks = [pool.submit(check.machine, machine) for machine in here]
        tasks += [pool.submit(check.machine, machine, differs=True) for machine in told]
        for task in tasks:
            task.result()
        print(check.table([first_machine(), *here, *told]))
    print(f"\n{check.right} right, {check.wrong} wrong")
    return int(check.wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
