"""The two example models as graph documents: an MNIST classifier and MobileNet v2.

`python -m examples.models` writes both beside this file. Parameters have named initializers with
seeds, so a document is a few kilobytes whatever the size of its model. Activations are NHWC.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from arenaplan.builder import Document, Tape, Tensor, adam, layers, ops

__all__ = ["MODELS", "STAGES", "Document", "classifier", "mnist", "mobilenet_v2", "render"]


def mnist(batch: int = 32) -> Document:
    """Four convolutions, two poolings, two dense layers: 484,714 parameters."""
    tape = Tape("mnist", batch=batch)
    x, label = tape.input("image", 28, 28, 1), tape.label("label", 10)
    x = layers.conv(x, 32, 5, activation="Relu", name="conv1")
    x = layers.conv(x, 32, 5, activation="Relu", name="conv2")
    x = ops.pool(x, 2, name="pool1")
    x = layers.conv(x, 64, 3, activation="Relu", name="conv3")
    x = layers.conv(x, 64, 3, activation="Relu", name="conv4")
    x = ops.pool(x, 2, name="pool2")
    x = layers.dense(ops.flatten(x, name="flatten"), 128, activation="Relu", name="dense1")
    return classifier(layers.dense(x, 10, name="dense2"), label)


def classifier(x: Tensor, label: Tensor) -> Document:
    """The document that ends in softmax and categorical cross-entropy, minimised by Adam."""
    probabilities = ops.softmax(x, name="softmax")
    loss = ops.cross_entropy(probabilities, label, from_logits=False, name="loss")
    return x.tape.document(loss, adam(0.001), outputs=[probabilities])


#: Expansion, channels, blocks and first stride of each stage: table 2 of Sandler et al.,
#: "MobileNetV2: Inverted Residuals and Linear Bottlenecks", arXiv 1801.04381.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet_v2() -> Document:
    """Width 1.0, 224x224x3, 1000 classes, batch 10, batch norm folded: 3,487,816 parameters.

    Depthwise convolutions of stride 2 follow an explicit Pad and pad nothing themselves.
    """
    tape = Tape("mobilenet_v2", batch=10)
    x, label = tape.input("image", 224, 224, 3), tape.label("label", 1000)
    x = layers.conv(x, 32, 3, stride=2, activation="Relu6", name="stem")
    block = 0
    for expansion, filters, repeats, first_stride in STAGES:
        for repeat in range(repeats):
            with tape.scope(f"block{block}"):
                x = _inverted_residual(x, expansion, filters, first_stride if repeat == 0 else 1)
            block += 1
    x = layers.conv(x, 1280, 1, activation="Relu6", name="head")
    x = x.mean(1, 2, name="mean")
    return classifier(layers.dense(x, 1000, name="classifier"), label)


def _inverted_residual(x: Tensor, expansion: int, filters: int, stride: int) -> Tensor:
    """Expand, filter each channel, project without an activation; add the input where shapes agree."""
    y, padding = x, "SAME_UPPER"
    if expansion != 1:
        y = layers.conv(y, x.shape[-1] * expansion, 1, activation="Relu6", name="expand")
    if stride == 2:
        y, padding = ops.pad(y, [0, 0, 0, 0, 0, 1, 1, 0], name="pad"), "VALID"
    y = layers.depthwise(y, stride=stride, padding=padding, activation="Relu6", name="depthwise")
    y = layers.conv(y, filters, 1, name="project")
    return ops.add(x, y, name="add") if y.shape == x.shape else y


MODELS: Mapping[str, Callable[[], Document]] = {"mnist": mnist, "mobilenet_v2": mobilenet_v2}


def render(document: Document) -> str:
    """JSON with one operand or operation on each line, so that changes read well."""
    lines = []
    for key, value in document.items():
        if key in ("operands", "operations"):
            rows = ",\n    ".join(json.dumps(row) for row in value)
            lines.append(f'  "{key}": [\n    {rows}\n  ]')
        else:
            lines.append(f'  "{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    for name, build in MODELS.items():
        path = Path(__file__).with_name(f"{name}.json")
        path.write_text(render(build()), encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
