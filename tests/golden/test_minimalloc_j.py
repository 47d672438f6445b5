"""The optimum of MiniMalloc's J: a layout as low as the max-load, so nothing is left to prove.

The exact search finds one in a fifth of a second with two seeds of two thousand. It is kept here because no
budget that people wait for is sure to find it again.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from solver.importers import load_minimalloc
from solver.layout import Layout, find_violations, max_load
from tests.support.buffers import DATA

INSTANCE = DATA / "minimalloc" / "J.1048576.csv"


@pytest.mark.skipif(not INSTANCE.exists(), reason="the public instance is not here")
def test_the_optimum_of_j_is_its_max_load() -> None:
    problem = replace(load_minimalloc(INSTANCE.read_bytes()).problem, capacity=None)
    kept = json.loads(Path(__file__).with_name("minimalloc_j.json").read_bytes())
    layout = Layout(tuple(kept["offsets"]), kept["peak"])
    assert find_violations(problem, layout) == ()
    assert layout.peak == max_load(problem).bytes == 989_184
