"""Exports the networks of `zoo_models` to ONNX, in several variants, with a batch and PyTorch's loss on it.

    python -m tests.benchmarks.zoo_export FOLDER [--missing] [NAME...]

Runs with an interpreter that has torch, torchvision, timm, transformers, onnx and onnxscript:

    python -m venv zoo && zoo/bin/pip install torch torchvision timm transformers onnx onnxscript

Each export is ``NAME.VARIANT.onnx`` beside ``NAME.VARIANT.npz`` (inputs by their names in the model, label,
loss, or why the exporter failed). Variants: `dynamo`, what torch.onnx.export does by default, of the model
in evaluation mode; `dynamo-train`, in training mode and not optimised; `script-train`, by the older exporter
in training mode.
"""

from __future__ import annotations

import contextlib
import copy
import io
import os
import random
import sys
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch import Tensor, nn
from torch.onnx import TrainingMode

# Wheels of torchvision for another build of PyTorch lack compiled operators; the networks need none of them.
_MISSING: Any = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):
        _MISSING.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

from tests.benchmarks.zoo_models import NETWORKS, Network  # noqa: E402 - torchvision needs them

VARIANTS = ("dynamo", "dynamo-train", "script-train")


def seeded() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


def spread(module: nn.Module) -> nn.Module:
    """Other values than zeros and ones: exporters merge weights that are equal; trained ones are not."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
        for name, buffer in module.named_buffers():
            if name.endswith("running_mean"):
                buffer.add_(torch.randn_like(buffer) * 0.05)
            elif name.endswith("running_var"):
                buffer.mul_(1 + 0.2 * torch.rand_like(buffer))
    for inner in module.modules():
        if isinstance(inner, nn.Dropout):
            inner.p = 0.0
        elif type(inner).__name__ == "StochasticDepth":
            inner.p = 0.0  # torchvision's
        elif type(inner).__name__ == "DropPath":
            inner.drop_prob = 0.0  # timm's
    return module


def loss_of(word: str, prediction: Tensor) -> tuple[Tensor, Tensor]:
    """(label, loss)."""
    generator = torch.Generator().manual_seed(7)
    if word == "mse":
        label = torch.randn(prediction.shape, generator=generator)
        return label, nn.functional.mse_loss(prediction, label)
    axis = 1 if prediction.dim() >= 4 else -1
    moved = prediction.movedim(axis, -1)
    label = torch.randint(0, moved.shape[-1], moved.shape[:-1], generator=generator)
    flat = moved.reshape(-1, moved.shape[-1])
    return label, nn.functional.cross_entropy(flat, label.reshape(-1))


def export(network: Network, variant: str, folder: Path) -> str:
    seeded()
    module, inputs = network.make()
    spread(module).train("train" in variant)
    path = folder / f"{network.name}.{variant}.onnx"
    # PyTorch's own loss is of a copy: in training mode a forward pass changes running statistics.
    twin = copy.deepcopy(module)
    with torch.no_grad():
        label, loss = loss_of(network.loss, twin(*inputs))
        double = loss_of(network.loss, copy.deepcopy(module).double()(*map(doubled, inputs)))[1]
    if variant.startswith("dynamo"):
        optimise = "train" not in variant
        program = torch.onnx.export(module, inputs, dynamo=True, verbose=False, optimize=optimise)
        program.save(path)
        names = [value.name for value in program.model.graph.inputs]
    else:
        torch.onnx.export(
            module, inputs, path, dynamo=False, training=TrainingMode.TRAINING, do_constant_folding=False
        )
        names = input_names(path)
    arrays = {f"input.{name}": x.numpy() for name, x in zip(names, inputs, strict=False)}
    np.savez(
        path.with_suffix(".npz"),
        label=label.numpy(),
        loss=loss.numpy(),
        double=double.numpy(),
        word=network.loss,
        family=network.family,
        **arrays,
    )
    return f"{path.stat().st_size:,} bytes"


def doubled(x: Tensor) -> Tensor:
    return x.double() if x.is_floating_point() else x


def input_names(path: Path) -> list[str]:
    import onnx

    graph = onnx.load(path, load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    return [value.name for value in graph.input if value.name not in weights]


def main() -> None:
    folder, wanted = Path(sys.argv[1]), {name for name in sys.argv[2:] if name != "--missing"}
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for network in NETWORKS:
        if wanted and network.name not in wanted:
            continue
        for variant in VARIANTS:
            stem = folder / f"{network.name}.{variant}"
            if "--missing" in sys.argv and Path(f"{stem}.npz").exists():
                continue
            quiet = io.StringIO()
            try:
                with contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
                    said = export(network, variant, folder)
            except Exception as error:  # noqa: BLE001 - an exporter may fail in any way, which is one of the results
                said = f"not exported: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
                stem.with_name(f"{stem.name}.onnx").unlink(missing_ok=True)
                np.savez(f"{stem}.npz", failed=said, family=network.family)
            print(f"{network.name} {variant}: {said}", flush=True)


if __name__ == "__main__":
    main()
