"""Small modules as people write them in PyTorch, with example inputs; this file imports PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = ["MODELS", "Example", "example"]


@dataclass(frozen=True, slots=True)
class Example:
    """A module in training mode, its inputs, the loss by name or as a function, and the targets."""

    module: Any
    inputs: tuple[Any, ...]
    loss: Any
    targets: tuple[Any, ...]


def mlp() -> Example:
    module = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    return Example(module, (torch.randn(8, 12),), "mse", (torch.randn(8, 3),))


class LeNet(nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: Any) -> Any:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(torch.sigmoid(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def lenet() -> Example:
    return Example(LeNet(), (torch.randn(4, 1, 28, 28),), "cross-entropy", (torch.randint(0, 10, (4,)),))


class Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride > 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Any) -> Any:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


def resnet() -> Example:
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1)),
        *(Residual(8, 8, 1), Residual(8, 16, 2), Residual(16, 32, 2)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 5)),
    )
    return Example(module, (torch.randn(4, 3, 64, 64),), "cross-entropy", (torch.randint(0, 5, (4,)),))


class Inverted(nn.Module):  # type: ignore[misc]
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        wide = inputs * 6
        self.same = stride == 1 and inputs == outputs
        self.conv = nn.Sequential(
            *(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(inplace=True)),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            *(nn.BatchNorm2d(wide), nn.ReLU6(inplace=True)),
            *(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )

    def forward(self, x: Any) -> Any:
        return x + self.conv(x) if self.same else self.conv(x)


def mobilenet() -> Example:
    module = nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.Hardswish()),
        *(Inverted(8, 8, 1), Inverted(8, 12, 2), Inverted(12, 12, 1)),
        *(nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(12, 7)),
    )

    def smoothed(output: Any, target: Any) -> Any:
        return F.cross_entropy(output, target, label_smoothing=0.1)

    return Example(module, (torch.randn(4, 3, 48, 48),), smoothed, (torch.randint(0, 7, (4,)),))


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Any) -> Any:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):  # type: ignore[misc]
    """A language model whose head is its embedding."""

    def __init__(self, words: int = 50, width: int = 16, length: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 4) for _ in range(2)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, index: Any) -> Any:
        x = self.words(index) + self.places(torch.arange(index.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def gpt() -> Example:
    def next_word(output: Any, target: Any) -> Any:
        return F.cross_entropy(output.view(-1, output.shape[-1]), target.view(-1))

    index = torch.randint(0, 50, (3, 12))
    return Example(Gpt(), (index,), next_word, (index.roll(-1, 1),))


def transformer() -> Example:
    """PyTorch's own encoder layer, with its fused projection."""
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, activation="gelu")
    module = nn.Sequential(layer, nn.Flatten(), nn.Linear(96, 2))
    return Example(module, (torch.randn(5, 6, 16),), "cross-entropy", (torch.randint(0, 2, (5,)),))


class Recurrent(nn.Module):  # type: ignore[misc]
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rnn = getattr(nn, kind)(5, 7, num_layers=2, batch_first=True, bidirectional=kind == "GRU")
        self.head = nn.Linear(14 if kind == "GRU" else 7, 3)

    def forward(self, x: Any) -> Any:
        y, _ = self.rnn(x)
        return self.head(y[:, -1])


def recurrent(kind: str) -> Example:
    return Example(Recurrent(kind), (torch.randn(4, 6, 5),), "cross-entropy", (torch.randint(0, 3, (4,)),))


class Upsampling(nn.Module):  # type: ignore[misc]
    """A U-net of two levels, with a transposed convolution, group norm and resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(2, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.up = nn.ConvTranspose2d(8, 6, 2, 2)
        self.out = nn.Conv2d(8, 3, 1)

    def forward(self, x: Any) -> Any:
        y = torch.cat([self.up(self.down(x)), x], 1)
        return self.out(F.interpolate(y, scale_factor=2.0, mode="bilinear"))


def upsampling() -> Example:
    return Example(
        Upsampling(), (torch.randn(2, 2, 8, 8),), "cross-entropy", (torch.randint(0, 3, (2, 16, 16)),)
    )


class Frozen(nn.Module):  # type: ignore[misc]
    """A frozen trunk whose batch norm keeps its statistics, a padded embedding, and a loss of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.PReLU())
        for parameter in self.trunk.parameters():
            parameter.requires_grad_(False)
        self.table = nn.Embedding(9, 4, padding_idx=0)
        self.head = nn.Linear(12, 1)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, x: Any, words: Any, wanted: Any) -> Any:
        joined = torch.cat([self.trunk(x), self.table(words).mean(1)], 1)
        loss = F.binary_cross_entropy_with_logits(self.head(joined).squeeze(1), wanted)
        return loss + 0.01 * self.head.weight.pow(2).sum()


def frozen() -> Example:
    inputs = (torch.randn(7, 6), torch.randint(0, 9, (7, 3)), torch.randint(0, 2, (7,)).float())
    return Example(Frozen().train(), inputs, None, ())


MODELS: Mapping[str, Callable[[], Example]] = {
    "mlp": mlp,
    "lenet": lenet,
    "resnet": resnet,
    "mobilenet": mobilenet,
    "transformer": transformer,
    "gpt": gpt,
    "lstm": lambda: recurrent("LSTM"),
    "gru": lambda: recurrent("GRU"),
    "rnn": lambda: recurrent("RNN"),
    "upsampling": upsampling,
    "frozen": frozen,
}


def example(name: str, *, double: bool = False) -> Example:
    """The model of that name, the same each time; in float64 where that is asked for."""
    torch.manual_seed(0)
    made = MODELS[name]()
    if not double:
        return made
    wide = [
        tuple(x.double() if x.is_floating_point() else x for x in xs) for xs in (made.inputs, made.targets)
    ]
    return Example(made.module.double(), wide[0], made.loss, wide[1])
