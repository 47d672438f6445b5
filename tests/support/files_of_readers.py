"""The files that readers of the pages have: models of other tools, and trained weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.circle_models import CircleFile, dense

__all__ = ["write_files_of_readers"]


def write_files_of_readers(folder: Path) -> None:
    """`model.onnx`, `model.circle` with `trained.npz`, `model.tflite`, and `face_detection.tflite`."""
    (folder / "model.circle").write_bytes(dense())
    (folder / "model.tflite").write_bytes(dense(b"TFL3"))
    np.savez(folder / "trained.npz", w0=np.ones((8, 4), np.float32))
    (folder / "face_detection.tflite").write_bytes(_face_detection())
    onnx.save(_classifier(), folder / "model.onnx")


def _classifier() -> onnx.ModelProto:
    """Rows of a batch that is left open, to ten logits."""
    weight = numpy_helper.from_array(np.ones((8, 10), np.float32), "weight")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])
    y = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 10])
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "weight"], ["logits"])], "g", [x], [y], [weight]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _face_detection() -> bytes:
    """Two heads: where faces are, and how sure that is."""
    file, random = CircleFile(), np.random.default_rng(2)
    x, outputs = file.input("image", (1, 12)), []
    for name, units in (("regressors", 16), ("classificators", 1)):
        weight = file.constant(f"{name} weight", random.standard_normal((units, 12)).astype(np.float32))
        outputs.append(file.tensor(name, (1, units)))
        file.operator("FULLY_CONNECTED", [x, weight, -1], outputs[-1:], "FullyConnectedOptions")
    return file.write(*outputs, identifier=b"TFL3")
