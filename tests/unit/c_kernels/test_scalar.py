"""Elementary functions in C, at floats from the whole range: their errors in units in the last place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.device.functions import FUNCTIONS, largest_error

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

#: From one float to the next that is tried: odd, so that all exponents and low bits are among them.
#: ``./run device --functions`` tries all floats, `ARENAPLAN_FUZZ` 138 million.
STRIDE = 31 if os.environ.get("ARENAPLAN_FUZZ") else 10_007


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_at_most_those_that_are_stated(name: str, tmp_path: Path) -> None:
    _, stated = FUNCTIONS[name]
    assert 0.4 < largest_error(name, tmp_path, stride=STRIDE) <= stated <= 2
