"""Processes that train in turn: C beside NumPy, the memory of C's, and clocks behind each of its steps."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from examples.gallery import GALLERY
from examples.models import mnist
from tests.benchmarks.c_kernel_times import timed
from tests.benchmarks.trainings import in_c, in_python, in_turn, prepare

pytestmark = pytest.mark.skipif(
    shutil.which("gcc") is None or not Path("/proc/self/clear_refs").exists(), reason="needs gcc and /proc"
)


def test_numpy_and_c_take_the_same_steps_in_turn(tmp_path: Path) -> None:
    prepare(tmp_path, GALLERY["transfer"].model().document)
    with in_c(tmp_path, "program", ["-O2"]) as c, in_python(tmp_path, "arenaplan", sys.executable) as numpy:
        in_turn([c, numpy], seconds=0, most=3)
        assert c.missing is numpy.missing is None
        assert len(c.steps) == len(numpy.steps) == 4
        for a, b in zip(c.steps, numpy.steps, strict=True):
            assert a["loss"] == pytest.approx(b["loss"], rel=1e-4)
            assert a["cpu"] > 0 < b["cpu"]
        assert c.steps[-1]["loss"] < c.steps[0]["loss"]


def test_a_process_in_c_takes_its_arena_and_two_megabytes(tmp_path: Path) -> None:
    plan = prepare(tmp_path, mnist(16))
    with in_c(tmp_path, "program", ["-O2"]) as c:
        in_turn([c], seconds=0, most=3)
        assert 0.9 * plan.arena_bytes < c.steps[-1]["peak"] < plan.arena_bytes + 2_000_000


def test_an_interpreter_without_the_package_says_so(tmp_path: Path) -> None:
    with in_python(tmp_path, "onert", sys.executable) as process:
        assert process.missing == "onert"


def test_each_step_of_the_program_has_a_clock(tmp_path: Path) -> None:
    plan = prepare(tmp_path, GALLERY["transfer"].model().document)
    kernels = timed(tmp_path)
    assert len(kernels) == len(plan.program.steps)
    assert {"ap_dense_forward", "ap_dense_backward", "ap_adam"} <= set(kernels)
    assert (tmp_path / "timed.c").read_text().count("stamp(") == 2 + len(kernels)
