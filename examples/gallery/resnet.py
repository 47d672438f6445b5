"""ResNet-18 and ResNet-50 with batch normalisation, on small images.

He, Zhang, Ren and Sun, "Deep residual learning for image recognition", arXiv 1512.03385, table 1. The stride
of a bottleneck sits on its 3x3 convolution, as it mostly does by now.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from arenaplan.builder import Model, Tape, Tensor, adam, layers, ops
from examples.gallery.data import SHAPES, shape_batches
from examples.gallery.example import Example

__all__ = ["RESNET18", "RESNET50", "build"]

#: Side of the images that the examples learn from; the networks take any.
SIDE = 64

#: Blocks of each stage; from 50 layers on, blocks are bottlenecks.
STAGES = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def build(
    batch: int,
    *,
    depth: int,
    side: int = SIDE,
    classes: int = len(SHAPES),
    width: int = 64,
    optimizer: dict[str, Any] | None = None,
) -> Model:
    """`width` is the number of filters of the stem and of the first stage; each stage doubles it."""
    tape = Tape(f"resnet{depth}", batch=batch)
    x, label = tape.input("image", side, side, 3), tape.label("label", classes)
    x = _unit(x, width, 7, stride=2, name="stem")
    x = ops.pool(x, 3, stride=2, padding="SAME_UPPER")
    for stage, blocks in enumerate(STAGES[depth]):
        for block in range(blocks):
            with tape.scope(f"stage{stage}.block{block}"):
                stride = 2 if stage > 0 and block == 0 else 1
                x = (_bottleneck if depth >= 50 else _basic)(x, width * 2**stage, stride)
    loss = ops.cross_entropy(layers.dense(x.mean(1, 2), classes, name="classifier"), label)
    return tape.minimise(loss, optimizer or adam(0.001))


def _unit(
    x: Tensor,
    filters: int,
    kernel: int,
    *,
    stride: int = 1,
    activated: bool = True,
    last: bool = False,
    name: str,
) -> Tensor:
    """Convolution, normalisation, and an activation where one follows at once.

    The last one of a block starts at zero, so that the network starts shallow (Goyal et al. 2017).
    """
    x = layers.conv(x, filters, kernel, stride=stride, bias=False, name=name)
    x = layers.batch_norm(x, scale="zeros" if last else "ones", name=f"{name}.norm")
    return ops.relu(x, name=f"{name}.relu") if activated else x


def _basic(x: Tensor, filters: int, stride: int) -> Tensor:
    y = _unit(x, filters, 3, stride=stride, name="first")
    y = _unit(y, filters, 3, activated=False, last=True, name="second")
    return _joined(x, y, stride)


def _bottleneck(x: Tensor, filters: int, stride: int) -> Tensor:
    y = _unit(x, filters, 1, name="reduce")
    y = _unit(y, filters, 3, stride=stride, name="filter")
    y = _unit(y, 4 * filters, 1, activated=False, last=True, name="expand")
    return _joined(x, y, stride)


def _joined(x: Tensor, y: Tensor, stride: int) -> Tensor:
    """The input added to what the block made of it, brought to the same shape where they differ."""
    if x.shape != y.shape:
        x = _unit(x, y.shape[-1], 1, stride=stride, activated=False, name="shortcut")
    return ops.add(x, y, activation="Relu", name="add")


RESNET18 = Example(
    "resnet18", "ResNet-18 tells shapes", partial(build, depth=18), partial(shape_batches, side=SIDE),
    batch=16, steps=30, goal=0.8,
)  # fmt: skip

RESNET50 = Example(
    "resnet50", "ResNet-50 tells shapes", partial(build, depth=50), partial(shape_batches, side=SIDE),
    batch=8, steps=30, goal=0.8,
)  # fmt: skip
