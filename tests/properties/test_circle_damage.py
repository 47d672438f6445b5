"""Damaged Circle files: whatever bytes change, one clear error or a graph, and bounded memory."""

from __future__ import annotations

import os
import tracemalloc

import numpy as np
import pytest

from solver.errors import ArenaplanError
from solver.exporters.circle import with_training
from solver.graph import OptimizerSpec
from solver.importers.circle import CircleTraining, load_circle
from tests.support.circle_cases import CASES, written
from tests.support.circle_models import dense

#: 20 changed files of each kind here, thousands in ./run fuzz.
CHANGES = 20 if not os.environ.get("ARENAPLAN_FUZZ") else 1000

TRAINED = with_training(
    dense(), CircleTraining(OptimizerSpec("Adam", {"learning_rate": 0.1}), "mean-squared-error")
)
FILES = {"dense": dense(), "trained": TRAINED} | {case.id: written(case) for case in CASES[::6]}


@pytest.mark.parametrize("name", FILES)
def test_changed_bytes(name: str) -> None:
    whole = FILES[name]
    random = np.random.default_rng(len(whole))
    tracemalloc.start()
    try:
        for _ in range(CHANGES):
            changed = np.frombuffer(whole, np.uint8).copy()
            places = random.integers(0, len(whole), random.integers(1, 9))
            changed[places] = random.choice(np.array([0, 1, 2, 127, 128, 255]), len(places))
            try:
                load_circle(changed.tobytes(), batch=2)
            except ArenaplanError:
                continue
        assert tracemalloc.get_traced_memory()[1] < 200 * len(whole) + 2**24
    finally:
        tracemalloc.stop()
