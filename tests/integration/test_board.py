"""The example of a board: its image trains in QEMU, with the bits of the same program on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from arenaplan.builder import Tape, layers, ops, sgd
from solver.executor import c_files
from solver.graph import DType, TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.support.server import PATIENCE, ROOT

MAKEFILE = ROOT / "examples" / "board" / "Makefile"
RAM = 512 * 1024


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "-f", str(MAKEFILE), "NET=net", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def lenet() -> TrainableGraph:
    """LeNet-5 at batch 1, with class numbers as labels."""
    tape = Tape("lenet", batch=1)
    x, label = tape.input("image", 28, 28, 1), tape.label("label", dtype=DType.INT64)
    x = ops.pool(layers.conv(x, 6, 5, activation="Tanh"), 2, kind="Average")
    x = ops.pool(layers.conv(x, 16, 5, padding="VALID", activation="Tanh"), 2, kind="Average")
    x = layers.dense(layers.dense(ops.flatten(x), 120, activation="Tanh"), 84, activation="Tanh")
    return tape.minimise(ops.cross_entropy(layers.dense(x, 10), label, sparse=True), sgd(0.01)).graph


@pytest.mark.skipif(shutil.which("gcc") is None or shutil.which("make") is None, reason="needs gcc, make")
def test_a_convolutional_network_trains_in_512_kib(tmp_path: Path) -> None:
    asked = RequestedOptions(PlanOptions(target="c", capacity=RAM - 16 * 1024))
    for name, content in c_files(plan_requested(lenet(), asked)).items():
        (tmp_path / "net" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "net" / name).write_bytes(content)
    here = make(tmp_path, "here")
    assert here.returncode == 0, here.stderr
    lines = [line for line in here.stdout.splitlines() if line.startswith(("steps", "bits"))]
    losses = [float(loss) for line in lines for loss in re.findall(r"loss (\d\.\d+)", line)]
    assert len(losses) == 10
    assert losses[-1] < 0.8 * losses[0]
    for program in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(program) is None:
            pytest.skip(f"The network trains here; a board needs {program}.")
    board = make(tmp_path, "run", f"RAM={RAM}")
    assert board.returncode == 0, board.stderr
    assert [line for line in board.stdout.splitlines() if line.startswith(("steps", "bits"))] == lines
    (tmp_path / "board.elf").unlink()
    small = make(tmp_path, "board.elf", f"RAM={RAM - 80 * 1024}")
    assert "need more than RAM" in small.stderr
