"""`./run device` with the compilers that are here: equal bits are counted, other bits are noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.device.__main__ import Check
from tests.device.machines import Failed, boards, controls, machines
from tests.device.networks import BARE, NETWORKS

HERE = [machine for machine in machines() if machine.lacking is None]
compiles = pytest.mark.skipif(not HERE, reason="needs gcc or clang")


@compiles
def test_machines_leave_the_same_bits_and_controls_are_noticed(tmp_path: Path) -> None:
    check = Check(tmp_path, [NETWORKS["bias_only b16"]])
    several = [HERE[0], HERE[-1], *(board for board in boards() if board.flags == ("-Os",))]
    for machine in several:
        check.machine(machine)
    for machine in controls():
        check.control(machine)
    done = [machine for machine in (*several, *controls()) if machine.lacking is None]
    assert (check.equal, check.wrong) == (len(done), 0)


@compiles
def test_a_machine_with_other_bits_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(tmp_path, [NETWORKS["bias_only b16"]])
    check.machine(HERE[0])
    (first,) = check.bits.values()
    check.bits = {"bias_only b16": replace(first, state="0" * 16)}
    check.machine(HERE[0])
    assert (check.equal, check.wrong) == (1, 1)
    assert "DIFFERS" in capsys.readouterr().out


@compiles
def test_programs_that_do_not_compile_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(tmp_path, [NETWORKS["bias_only b16"]])
    check.machine(replace(HERE[0], flags=("-DAP_CONVOLUTION_H",)))
    assert check.wrong == 1
    assert "FAILED" in capsys.readouterr().out


def test_what_is_not_installed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = Check(tmp_path, [])
    check.machine(replace(next(machines()), compiler=("no-such-gcc",)))
    assert "SKIPPED, no-such-gcc is not installed" in capsys.readouterr().out
    assert check.wrong == 0


def test_a_board_without_enough_memory_is_refused_by_the_linker(tmp_path: Path) -> None:
    board = next(boards())
    if board.lacking:
        pytest.skip(f"{board.lacking} is not installed")
    network = BARE["transfer b1 in 256 KiB"]
    smaller = replace(network, options={**network.options, "capacity": 240_000}, steps=1)
    written = smaller.write(tmp_path / "net")
    with pytest.raises(Failed, match="need more than RAM"):
        board.build(written, board.kernels(tmp_path / "kernels"))
