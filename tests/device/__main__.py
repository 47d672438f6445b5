"""Trains networks by their plans on every machine whose compiler is here: ``./run device``.

A network leaves the same bits everywhere: of its losses, its weights and its optimizer variables. Nothing is
installed; what lacks a compiler or an emulator is skipped, and named.
"""

from __future__ import annotations

import argparse
import struct
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from statistics import fmean

from tests.device.machines import PACKAGES, Board, Failed, Machine, boards, controls, machines
from tests.device.networks import BARE, NETWORKS, Network, Written

#: What `net_self_test` answers for another compiler's bits, as net.h has it.
OTHER_BITS = "5"


@dataclass(frozen=True, slots=True)
class Bits:
    """What a program told: its losses and its state, as bits in hexadecimal."""

    losses: tuple[str, ...]
    state: str
    test: str

    @classmethod
    def told(cls, text: str) -> Bits:
        rows = [line.split() for line in text.splitlines()]
        if not rows or rows[-1][0] != "state":
            raise Failed(f"ended without its bits: {text.strip()[-200:]!r}")
        return cls(tuple(bits for name, bits in rows if name == "loss"), rows[-1][1], rows[0][1])

    @property
    def digest(self) -> str:
        return sha256(" ".join((*self.losses, self.state)).encode()).hexdigest()[:16]

    def loss(self, k: int) -> float:
        value: float = struct.unpack(">f", bytes.fromhex(self.losses[k]))[0]
        return value


class Check:
    """Networks on machines, one row each; counts what differs."""

    def __init__(self, folder: Path, networks: Sequence[Network]) -> None:
        self.folder = folder
        self.written = [network.write(folder / "nets" / str(k)) for k, network in enumerate(networks)]
        #: The bits of each network on the first machine that trained it.
        self.bits: dict[str, Bits] = {}
        self.equal = self.wrong = 0

    def machine(self, machine: Machine) -> None:
        """All networks on one machine: equal bits, and a self-test that passes."""
        if machine.lacking:
            print(f"{machine.title}: SKIPPED, {machine.lacking} is not installed", flush=True)
            return
        try:
            kernels = machine.kernels(self._place(machine))
        except Failed as failure:
            self._failed(machine, "the kernels", failure)
            return
        rows = []
        for written in self.written:
            try:
                bits = self._trained(machine, written, kernels)
            except Failed as failure:
                self._failed(machine, written.network.name, failure)
                continue
            equal = bits.digest == self.bits[written.network.name].digest and bits.test == "0"
            self.equal, self.wrong = self.equal + equal, self.wrong + (not equal)
            rows.append("same" if equal else f"{written.network.name} DIFFERS: {bits.digest}, {bits.test}")
        different = "".join(f"; {row}" for row in rows if row != "same")
        print(f"{machine.title}: {rows.count('same')} networks the same{different}", flush=True)

    def control(self, machine: Machine) -> None:
        """One network with arithmetic of another kind: it is refused, or its self-test notices."""
        if machine.lacking:
            print(f"control {machine.title}: SKIPPED, {machine.lacking} is not installed", flush=True)
            return
        written = self.written[0]
        try:
            bits = self._trained(machine, written, machine.kernels(self._place(machine)))
        except Failed as failure:
            refused = "#error" in str(failure)
            self.equal, self.wrong = self.equal + refused, self.wrong + (not refused)
            print(f"control {machine.title}: {'refused, as it must be' if refused else failure}", flush=True)
            return
        noticed = bits.digest != self.bits[written.network.name].digest and bits.test == OTHER_BITS
        self.equal, self.wrong = self.equal + noticed, self.wrong + (not noticed)
        word = "the self-test notices" if noticed else "NOT NOTICED"
        print(f"control {machine.title}: {written.network.name} differs: {word}", flush=True)

    def _place(self, machine: Machine) -> Path:
        return self.folder / machine.title.replace(" ", "_").replace("/", "_")

    def _trained(self, machine: Machine, written: Written, kernels: Path) -> Bits:
        """Where the network was trained before, it tests itself against the hash of that time."""
        before = self.bits.get(written.network.name)
        expected = [] if before is None else [f"-DEXPECTED=UINT64_C(0x{before.test})"]
        program = machine.build(written, kernels, *expected)
        bits = Bits.told(machine.run(program))
        if before is None:
            self.bits[written.network.name] = bits
            print(f"    {written.network.name}: {bits.digest}, first on {machine.title}", flush=True)
            bits = Bits(bits.losses, bits.state, "0")
        if isinstance(machine, Board):
            self._image(machine, written, program, bits)
        return bits

    def _image(self, board: Board, written: Written, program: Path, bits: Bits) -> None:
        """Sizes of a board's image; its arena has the bytes of the plan."""
        sections = board.sections(program)
        arena = sections.get(".arena", 0) or sections.get(".wide", 0)
        same = arena == written.plan.arena_bytes
        self.wrong += not same
        tenth = max(1, len(bits.losses) // 10)
        before, after = fmean(map(bits.loss, range(tenth))), fmean(map(bits.loss, range(-tenth, 0)))
        variables = sections.get(".bss", 0) + sections.get(".data", 0)
        told = (
            f"{board.title}, {written.network.name}: code {sections['.text']:,} B",
            f"arena {arena:,} B" + ("" if same else f", NOT the plan's {written.plan.arena_bytes:,} B"),
            f"other variables {variables:,} B",
            f"largest frame {board.frame(program):,} B",
            f"loss {before:.3f} -> {after:.3f} in {len(bits.losses)} steps",
        )
        print("    " + "; ".join(told), flush=True)

    def _failed(self, machine: Machine, what: str, failure: Failed) -> None:
        self.wrong += 1
        print(f"{machine.title}: {what} FAILED: {failure}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./run device",
        description=__doc__,
        epilog=f"Debian's packages of all compilers and emulators: {PACKAGES}",
    )
    parser.add_argument("--machine", default="", help="only machines with this in their names, as Cortex-M4F")
    parser.add_argument("--network", default="", help="only networks with this in their names, as lenet5")
    asked = parser.parse_args()
    failed = equal = rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for part, networks, those in (
            ("hosts", NETWORKS, list(machines())),
            ("boards", BARE, list(boards())),
        ):
            chosen = [network for name, network in networks.items() if asked.network in name]
            here = [machine for machine in those if asked.machine in machine.title]
            if not chosen or not here:
                continue
            rows += len(here)
            check = Check(Path(folder, part), chosen)
            if part == "boards":
                check.machine(next(machines()))  # boards are held against this machine
            for machine in here:
                check.machine(machine)
            if part == "hosts":
                for machine in controls():
                    check.control(machine)
            failed, equal = failed + check.wrong, equal + check.equal
    if not rows:
        parser.error("no machine and network have these words in their names; without options all are used")
    print(f"{equal} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
