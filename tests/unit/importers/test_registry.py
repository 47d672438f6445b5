"""Formats are found by suffix and by first bytes; what is missing is said."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from solver.errors import DocumentError
from solver.importers.options import ImportOptions
from solver.importers.registry import IMPORTERS, find_importer, load_model, unknown_format
from tests.support.onnx_models import model_of, node

MODEL = model_of(
    [node("MatMul", ["x", "w"], ["y"])], {"x": (2, 3)}, {"w": np.ones((3, 4), np.float32)}
).SerializeToString()


@pytest.mark.parametrize(
    ("path", "name"), [("a.onnx", "onnx"), ("A.ONNX", "onnx"), ("a.ini", "nntrainer"), ("a.json", None)]
)
def test_suffixes(path: str, name: str | None) -> None:
    found = find_importer(b"{}", Path(path))
    assert (found.name if found else None) == name


@pytest.mark.parametrize("path", [None, Path("-"), Path("model.bin"), Path("model")])
def test_first_bytes(path: Path | None) -> None:
    found = find_importer(MODEL, path)
    assert found is not None
    assert found.name == "onnx"


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"format": 1}', b"[1, 2]", b"\x89PNG\r\n", b"\x80\x02}", b"\x08\x00"]
)
def test_what_is_not_a_model(data: bytes) -> None:
    assert find_importer(data) is None


def test_every_row_leads_to_a_function() -> None:
    for importer in IMPORTERS:
        module, _, function = importer.load.partition(":")
        assert callable(getattr(importlib.import_module(module), function))


def test_a_package_that_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)  # an import then fails
    importer = find_importer(MODEL)
    assert importer is not None
    with pytest.raises(DocumentError, match="'onnx', which is not installed") as caught:
        load_model(importer, MODEL, options=ImportOptions(loss="mse"), path=None, name="m")
    assert caught.value.remedy == "pip install 'onnx>=1.19'"


def test_an_unknown_format_gets_the_list() -> None:
    error = unknown_format("weights.pt")
    assert "'weights.pt'" in error.message
    for part in (".onnx", ".ini", "torch.onnx.export", "arenaplan plan model.onnx"):
        assert part in error.remedy
