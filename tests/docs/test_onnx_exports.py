"""The lines of the ONNX page that export a module of PyTorch: the batch is open, batch norm trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arenaplan
from arenaplan.choices import ImportChoices
from tests.support.examples_in_pages import blocks
from tests.support.server import ROOT

EXPORTS = [
    block.text
    for block in blocks(ROOT / "docs/how-to/onnx.md")
    if block.language == "py" and block.text.startswith("torch.onnx.export")
]


def test_the_exports_of_the_page() -> None:
    assert ["dynamo=True" in text for text in EXPORTS] == [False, True]


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore")  # PyTorch's, on its older exporter and within its newer one
@pytest.mark.parametrize(
    ("text", "more"), [*zip(EXPORTS, [{}, {"batch_norm": "train"}], strict=True)], ids=["older", "newer"]
)
def test_an_export_keeps_the_batch_open_and_batch_norm_in_training(
    text: str, more: ImportChoices, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    monkeypatch.chdir(tmp_path)
    model: Any = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(4 * 6 * 6, 3),
    )  # fmt: skip
    inputs = torch.randn(2, 1, 8, 8)
    exec(text, {"torch": torch, "model": model, "inputs": (inputs,)})
    for batch in (3, 5):
        choices: ImportChoices = {"loss": "cross-entropy", "dim": f"batch={batch}", **more}
        graph = arenaplan.load_graph("model.onnx", **choices)
        assert [x.shape for x in graph.operands.values() if x.role.value == "input"] == [(batch, 1, 8, 8)]
        (norm,) = [each for each in graph.operations if each.type == "BatchNormalization"]
        assert norm.attributes["training_mode"] == 1
        assert len(graph.trainable) == 6
        assert arenaplan.validate(graph, arenaplan.plan(graph), steps=1).identical
