"""Formats are found by suffix and by first bytes, and choices for an import by words."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import DocumentError, OptionsError, TrainableError
from solver.importers.options import LOSSES, ImportOptions, import_options, training_fields
from solver.importers.registry import IMPORTERS, find_importer, load_model, unknown_format
from solver.options import IMPORT_OPTIONS
from tests.support.every import grid
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


# ---------------------------------------------------------------------------------------------------- choices


def test_what_is_left_out() -> None:
    found = import_options({})
    assert (found.loss, found.output, found.class_axis, found.trainable) == (None, None, None, "all")
    assert (found.optimizer.type, dict(found.optimizer.attributes)) == ("SGD", {})
    assert (dict(found.dims), found.batch, found.batch_norm, found.weights) == ({}, None, None, True)


def test_everything_that_can_be_said() -> None:
    given = {
        "loss": "mse", "output": "y", "class_axis": "1", "optimizer": "SGD,momentum=0.9,nesterov=true",
        "learning_rate": "0.1", "trainable": "head.*, fc.bias", "dim": ["batch=32", "x[1]=7", "a=b=3"],
        "batch_norm": "train", "weights": "none", "freeze_before": ["h", "h", "g"],
        "frozen": "stem.*, b", "input": ["sr=16000", "a=b=[[1, 2.5]]", "on=false"], "micro_batches": "4",
        "keep_outputs": "y, h,y",
    }  # fmt: skip
    found = import_options(given, batch=4)
    assert dict(found.optimizer.attributes) == {"momentum": 0.9, "nesterov": True, "learning_rate": 0.1}
    assert found.trainable == ("head.*", "fc.bias")
    assert dict(found.dims) == {"batch": 32, "x[1]": 7, "a=b": 3}
    assert (found.class_axis, found.batch, found.batch_norm, found.weights) == (1, 4, "train", False)
    assert found.freeze_before == ("h", "g")
    assert found.frozen == ("stem.*", "b")
    assert found.rules.accumulate == 4
    assert dict(found.inputs) == {"sr": 16000, "a=b": [[1, 2.5]], "on": False}
    assert found.keep_outputs == ("y", "h")
    assert import_options({"keep_outputs": "all"}).keep_outputs == "all"
    assert set(given) == set(IMPORT_OPTIONS)


def test_choices_replace_what_a_document_says() -> None:
    document = {
        "loss": "loss",
        "optimizer": {"type": "Adam", "beta1": 0.8},
        "training": {"clip_global_norm": 1.0, "accumulate": 2},
        "trainable": "all",
        "operands": [
            {"name": "x", "role": "input"},
            *({"name": name, "role": "parameter"} for name in ("a.w", "a.b", "c")),
        ],
    }
    assert training_fields(document, {}) == {}
    assert training_fields(document, {"micro_batches": "8"}) == {
        "training": {"clip_global_norm": 1.0, "accumulate": 8}
    }
    assert training_fields(document, {"learning_rate": 0.5}) == {
        "optimizer": {"type": "Adam", "beta1": 0.8, "learning_rate": 0.5}
    }
    assert training_fields(document, {"optimizer": "sgd,momentum=0.9"}) == {
        "optimizer": {"type": "SGD", "momentum": 0.9}
    }
    for words, trainable in {"all": "all", "last:2": {"last": 2}, "c,a.*": ["a.w", "a.b", "c"]}.items():
        assert training_fields(document, {"trainable": words}) == {"trainable": trainable}
    with pytest.raises(TrainableError, match="No parameter is called 'd'"):
        training_fields(document, {"trainable": "d"})


@pytest.mark.parametrize(("text", "count"), [("last:2", 2), ("last:0", 0)])
def test_a_number_of_operations_is_trained(text: str, count: int) -> None:
    assert import_options({"trainable": text}).trainable == count


def test_values_of_inputs_are_spelt_as_in_json_python_and_c() -> None:
    words = {
        "a": "true",
        "b": "False",
        "c": "TRUE",
        "d": "-inf",
        "e": "Infinity",
        "f": "1e3",
        "g": "[true, 2]",
    }
    values = import_options({"input": [f"{name}={word}" for name, word in words.items()]}).inputs
    assert list(values.values()) == [True, False, True, -math.inf, math.inf, 1000.0, [True, 2]]
    assert math.isnan(import_options({"input": "a=nan"}).inputs["a"])


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_known(loss: str) -> None:
    assert import_options({"loss": loss}).loss == loss


@grid(
    ("given", "path", "said"),
    [
        ({"loss": "ce"}, "loss", "cross-entropy"),
        ({"optimizer": "lion"}, "optimizer", "adam"),
        ({"optimizer": "sgd,momentum=fast"}, "optimizer", "number"),
        ({"optimizer": "sgd,speed=1"}, "optimizer", "learning_rate"),
        ({"learning_rate": "-1"}, "optimizer", "learning_rate"),
        ({"learning_rate": "much"}, "learning_rate", "number"),
        ({"class_axis": "x"}, "class_axis", "whole number"),
        ({"micro_batches": "x"}, "micro_batches", "whole number"),
        ({"micro_batches": 0}, "micro_batches", "1 to 1,000,000"),
        ({"trainable": "last:x"}, "trainable", "whole number"),
        ({"trainable": "last:-1"}, "trainable", "not negative"),
        ({"trainable": " ,"}, "trainable", "names"),
        ({"keep_outputs": ","}, "keep_outputs", "names of outputs"),
        ({"dim": ["batch"]}, "dim", "batch=32"),
        ({"dim": ["=3"]}, "dim", "batch=32"),
        ({"frozen": ", "}, "frozen", "names"),
        ({"input": "16000"}, "input", "sr=16000"),
        ({"input": ["=3"]}, "input", "sr=16000"),
        ({"input": ["sr=fast"]}, "input", "sr=16000"),
        ({"input": ["sr=[[1], [1, 2]]"]}, "input", "sr=16000"),
        ({"input": ["sr=[]"]}, "input", "sr=16000"),
        ({"input": ["sr={}"]}, "input", "sr=16000"),
        ({"input": ["sr=1", "sr=2"]}, "input", "one value"),
        ({"dim": ["batch=-1"]}, "dim", "batch=32"),
        ({"dim": ["batch=1e3"]}, "dim", "batch=32"),
        ({"dim": ["a=1", "b=1", "a=1"]}, "dim", "one size"),
        ({"dim": ["batch=" + "9" * 5000]}, "dim", "batch=32"),
        ({"batch_norm": "eval"}, "batch_norm", "train or frozen"),
        ({"weights": "all"}, "weights", "reference or none"),
        ({"lr": "1"}, "lr", "learning_rate"),
    ],
)
def test_what_is_refused_names_the_option_and_what_there_is(
    given: dict[str, Any], path: str, said: str
) -> None:
    with pytest.raises(OptionsError) as caught:
        import_options(given)
    assert caught.value.path[0] == path
    assert said in str(caught.value)
