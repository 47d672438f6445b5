from __future__ import annotations

import ctypes

import numpy as np
import pytest

from solver.layout.model.heap import give_back


def test_arrays_stay_what_they_are() -> None:
    kept = np.arange(100_000)
    give_back()
    assert kept.sum() == 4_999_950_000


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def no_library(name: object) -> object:
        asked.append(name)
        raise OSError("there is no such library")

    monkeypatch.setattr(ctypes, "CDLL", no_library)
    give_back()
    assert asked == [None]
