"""Networks in float64 as ONNX, with PyTorch's losses over some steps: `doubles` trains them here.

    python -m tests.benchmarks.doubles_export FOLDER

Runs with an interpreter that has torch, onnx and onnxscript; writes ``FOLDER/NAME.onnx`` and ``NAME.npz``,
which has the batch and the losses.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.benchmarks.step_networks import NETWORKS, Transformer

STEPS = 5


class Normalised(nn.Module):  # type: ignore[misc]
    """Convolutions with batch and group normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.batch = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.depth, self.group = nn.Conv2d(8, 8, 3, groups=8, padding=1), nn.GroupNorm(2, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.batch(self.conv(x)))
        x = x + F.hardswish(self.group(self.depth(x)))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(6, 8, batch_first=True), nn.GRU(8, 8, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.gru(self.lstm(x)[0])[0][:, -1])


DOUBLES: dict[str, Callable[[], tuple[nn.Module, Tensor, Tensor]]] = {
    "mlp": NETWORKS["mlp_b32"],
    "lenet": NETWORKS["lenet_b32"],
    "normalised": lambda: (Normalised(), torch.randn(4, 3, 12, 12), torch.randint(0, 5, (4,))),
    "recurrent": lambda: (Recurrent(), torch.randn(3, 7, 6), torch.randint(0, 4, (3,))),
    "transformer": lambda: (
        Transformer(64, 16, 32, 4), torch.randint(0, 64, (2, 16)), torch.randint(0, 64, (2, 16)),
    ),
}  # fmt: skip


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    for name, make in DOUBLES.items():
        torch.manual_seed(0)
        module, x, label = make()
        module.double().train()
        x = x.double() if x.is_floating_point() else x
        with contextlib.redirect_stdout(sys.stderr):
            torch.onnx.export(
                module, (x,), folder / f"{name}.onnx", dynamo=True, optimize=False, opset_version=20
            )
        optimizer, losses = torch.optim.SGD(module.parameters(), lr=0.05, momentum=0.9), []
        for _ in range(STEPS):
            loss = F.cross_entropy(module(x).flatten(0, -2), label.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        np.savez(folder / f"{name}.npz", x=x.numpy(), label=label.numpy(), losses=np.array(losses))


if __name__ == "__main__":
    main()
