"""The four networks of MLPerf Tiny, as they are trained: with batch normalisation and dropout, by Adam.

Banbury et al., "MLPerf Tiny Benchmark", NeurIPS 2021 (arXiv 2106.07597). Images are NHWC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from arenaplan.builder import Model, Tape, Tensor, adam, layers, ops

__all__ = ["MLPERF_TINY", "autoencoder", "ds_cnn", "mobilenet_v1", "resnet8"]


def autoencoder(batch: int) -> Model:
    """Anomaly detection: 640 - 128 x 4 - 8 - 128 x 4 - 640, which reconstructs spectrogram frames."""
    tape = Tape("mlperf_tiny_autoencoder", batch=batch)
    x, frames = tape.input("frames", 640), tape.label("target", 640)
    for k, units in enumerate((128, 128, 128, 128, 8, 128, 128, 128, 128)):
        x = _normal(layers.dense(x, units, name=f"dense{k}"), f"dense{k}")
    return tape.minimise(ops.mean_squared_error(layers.dense(x, 640, name="last"), frames), adam(0.001))


def ds_cnn(batch: int) -> Model:
    """Keyword spotting: depthwise separable convolutions of 64 filters over 49 x 10 features, 12 words."""
    tape = Tape("mlperf_tiny_ds_cnn", batch=batch)
    x, label = tape.input("features", 49, 10, 1), tape.label("label", 12)
    x = tape.apply(
        "Conv",
        x,
        tape.parameter("stem.weight", [64, 10, 4, 1], "he_normal"),
        tape.parameter("stem.bias", [64], "zeros"),
        name="stem",
        data_layout="NHWC",
        strides=[2, 2],
        auto_pad="SAME_UPPER",
    )
    x = tape.apply("Dropout", _normal(x, "stem"), name="stem.dropout", ratio=0.2)
    for k in range(4):
        x = _separable(x, 64, 1, f"block{k}")
    x = tape.apply("Dropout", x, name="dropout", ratio=0.4)
    return _classifier(x, 12, label)


def resnet8(batch: int) -> Model:
    """Image classification: residual blocks of 16, 32 and 64 filters, 32 x 32 images, 10 classes."""
    tape = Tape("mlperf_tiny_resnet8", batch=batch)
    x, label = tape.input("image", 32, 32, 3), tape.label("label", 10)
    x = _normal(layers.conv(x, 16, 3, name="stem"), "stem")
    for k, (filters, stride) in enumerate(((16, 1), (32, 2), (64, 2))):
        y = _normal(layers.conv(x, filters, 3, stride=stride, name=f"block{k}.first"), f"block{k}.first")
        y = layers.conv(y, filters, 3, name=f"block{k}.second")
        y = layers.batch_norm(y, name=f"block{k}.second.norm")
        if stride > 1:
            x = layers.conv(x, filters, 1, stride=stride, name=f"block{k}.shortcut")
        x = ops.relu(ops.add(x, y, name=f"block{k}.add"), name=f"block{k}.relu")
    return _classifier(x, 10, label)


def mobilenet_v1(batch: int) -> Model:
    """Visual wake words: MobileNet v1 of width 0.25 over 96 x 96 images, 2 classes."""
    tape = Tape("mlperf_tiny_mobilenet_v1", batch=batch)
    x, label = tape.input("image", 96, 96, 3), tape.label("label", 2)
    x = _normal(layers.conv(x, 8, 3, stride=2, name="stem"), "stem")
    blocks = ((16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2), *((128, 1),) * 5, (256, 2), (256, 1))
    for k, (filters, stride) in enumerate(blocks):
        x = _separable(x, filters, stride, f"block{k}")
    return _classifier(x, 2, label)


def _separable(x: Tensor, filters: int, stride: int, name: str) -> Tensor:
    x = _normal(layers.depthwise(x, stride=stride, name=f"{name}.depthwise"), f"{name}.depthwise")
    return _normal(layers.conv(x, filters, 1, name=f"{name}.pointwise"), f"{name}.pointwise")


def _normal(x: Tensor, name: str) -> Tensor:
    return ops.relu(layers.batch_norm(x, name=f"{name}.norm"), name=f"{name}.relu")


def _classifier(x: Tensor, classes: int, label: Tensor) -> Model:
    """The mean of each channel, a dense layer, softmax and cross-entropy."""
    logits = layers.dense(x.mean(1, 2), classes, name="classifier")
    return x.tape.minimise(ops.cross_entropy(logits, label), adam(0.001))


#: Each network by its name: from a batch size to the network.
MLPERF_TINY: Mapping[str, Callable[[int], Model]] = MappingProxyType(
    {"autoencoder": autoencoder, "ds_cnn": ds_cnn, "resnet8": resnet8, "mobilenet_v1": mobilenet_v1}
)
