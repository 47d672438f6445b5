"""The whole demonstration, as a person would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_demo_plans_compares_and_trains() -> None:
    """It ends with code 0 only if every tensor was identical after every step."""
    done = subprocess.run(
        [sys.executable, "-m", "examples.demo"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=300,
        env={"PATH": "", "COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "The service is ready at http://127.0.0.1:" in done.stdout
    assert "max-load" in done.stdout
    # Published figures of the other runtime: the release, and extra tensors planned.
    assert "48,375,616" in done.stdout
    assert "31,814,976" in done.stdout
    assert "is identical to training without shared memory" in done.stdout
    assert done.stderr == ""
