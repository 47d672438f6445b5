"""C files with first values: where they go, and archives of them."""

from __future__ import annotations

import importlib
import io
import zipfile

import pytest

from solver.executor import c_files, zip_archive
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.support.graphs import chain

PLAN = plan_requested(chain((8, 6, 4), 9), RequestedOptions(PlanOptions(target="c")))


def test_many_first_values_are_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "net_weights.c" in c_files(PLAN)
    monkeypatch.setattr(importlib.import_module("solver.executor.c_files"), "MAX_EMBEDDED_BYTES", 64)
    assert "net_weights.bin" in c_files(PLAN)
    assert "net_weights.c" in c_files(PLAN, "embed")


def test_archives_of_equal_files_are_equal_and_can_be_read_by_all() -> None:
    files = c_files(PLAN)
    archive = zip_archive(files)
    assert archive == zip_archive(dict(files))
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert [(i.filename, i.date_time, i.external_attr >> 16) for i in opened.infolist()] == [
            (name, (1980, 1, 1, 0, 0, 0), 0o100644) for name in files
        ]
