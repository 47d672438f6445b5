"""MobileNet v2 with batch normalisation, as it is trained; `examples.models` has it with the norms folded.

Sandler et al., "MobileNetV2: Inverted residuals and linear bottlenecks", arXiv 1801.04381, table 2.
"""

from __future__ import annotations

from functools import partial

from arenaplan.builder import Model, Tape, Tensor, layers, ops, sgd
from examples.gallery.data import SHAPES, shape_batches
from examples.gallery.example import Example
from examples.models import STAGES

__all__ = ["EXAMPLE", "build"]

SIDE = 64


def build(batch: int, *, side: int = SIDE, classes: int = len(SHAPES)) -> Model:
    tape = Tape("mobilenet_v2_bn", batch=batch)
    x, label = tape.input("image", side, side, 3), tape.label("label", classes)
    x = _normal(layers.conv(x, 32, 3, stride=2, bias=False, name="stem"), name="stem")
    block = 0
    for expansion, filters, repeats, first_stride in STAGES:
        for repeat in range(repeats):
            with tape.scope(f"block{block}"):
                x = _inverted_residual(x, expansion, filters, first_stride if repeat == 0 else 1)
            block += 1
    x = _normal(layers.conv(x, 1280, 1, bias=False, name="head"), name="head")
    loss = ops.cross_entropy(layers.dense(x.mean(1, 2), classes, name="classifier"), label)
    return tape.minimise(loss, sgd(0.01, momentum=0.9))


def _inverted_residual(x: Tensor, expansion: int, filters: int, stride: int) -> Tensor:
    """Expand, filter each channel, project without an activation; add the input where shapes agree."""
    y = x
    if expansion != 1:
        y = _normal(layers.conv(y, x.shape[-1] * expansion, 1, bias=False, name="expand"), name="expand")
    y = _normal(layers.depthwise(y, stride=stride, bias=False, name="depthwise"), name="depthwise")
    y = layers.conv(y, filters, 1, bias=False, name="project")
    joins = y.shape == x.shape
    y = layers.batch_norm(y, scale="zeros" if joins else "ones", name="project.norm")
    return ops.add(x, y, name="add") if joins else y


def _normal(x: Tensor, *, name: str) -> Tensor:
    """Normalised, and cut to what ReLU6 lets through."""
    return ops.clip(layers.batch_norm(x, name=f"{name}.norm"), 0.0, 6.0, name=f"{name}.relu6")


EXAMPLE = Example(
    "mobilenet_v2_bn", "MobileNet v2 with batch norm tells shapes", build, partial(shape_batches, side=SIDE),
    batch=16, steps=60, goal=0.6,
)  # fmt: skip
