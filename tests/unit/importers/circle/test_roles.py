"""Whether a tensor is trained is decided by the operators that read it, and never by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from solver.errors import TrainableError
from solver.graph import Role, TrainableGraph
from solver.graph.types import Array
from solver.importers.circle import load_circle_model
from solver.importers.options import import_options
from tests.support.circle_models import CircleFile
from tests.support.every import grid


def ones(*shape: int) -> Array:
    return np.ones(shape, np.float32)


def trained(file: CircleFile, output: int, **choices: str) -> list[str]:
    return sorted(graph_of(file, output, **choices).trainable)


def graph_of(file: CircleFile, output: int, **choices: str) -> TrainableGraph:
    return load_circle_model(file.write(output), options=import_options({"loss": "mse", **choices})).graph


def layer(file: CircleFile, x: int, units: int, width: int, name: str, *, bias: bool = True) -> int:
    given = [file.constant(f"{name} w", ones(units, width))]
    given += [file.constant(f"{name} b", ones(units))] if bias else []
    y = file.tensor(f"{name} y", (1, units))
    file.operator("FULLY_CONNECTED", [x, *given], [y], "FullyConnectedOptions")
    return y


def step(file: CircleFile, code: str, inputs: list[int], shape: tuple[int, ...], name: str) -> int:
    y = file.tensor(name, shape)
    file.operator(code, inputs, [y])
    return y


@grid("name", ["w_mean", "reconstruct", "prelu1_slope", "onnx::MatMul_7", "Const", "mask", ""])
@grid("units", [1, 2])
def test_weights_of_any_name(name: str, units: int) -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), units, 3, name)
    assert trained(file, y) == [f"{name} b", f"{name} w"]


@grid("units", [1, 4])
@grid("code", ["ADD", "SUB"])
@grid("turned", [False, True])
def test_a_bias_that_stands_behind_its_layer(units: int, code: str, turned: bool) -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), units, 3, "dense", bias=False)
    bias = file.constant("shift", ones(units))
    z = step(file, code, [bias, y] if turned else [y, bias], (1, units), "z")
    assert trained(file, z) == ["dense w", "shift"]


def test_scale_and_shift_of_a_normalisation_and_not_its_epsilon() -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), 4, 3, "dense")
    squares = step(file, "MUL", [y, y], (1, 4), "squares")
    axis = file.constant("axis", np.array([1], np.int32))
    mean = file.tensor("mean", (1, 1))
    file.operator("MEAN", [squares, axis], [mean], "ReducerOptions", {"keepDims": True})
    wide = step(file, "ADD", [mean, file.constant("epsilon", ones(1))], (1, 1), "wide")
    root = step(file, "RSQRT", [wide], (1, 1), "root")
    normal = step(file, "MUL", [y, root], (1, 4), "normal")
    scaled = step(file, "MUL", [normal, file.constant("scale", ones(1, 4))], (1, 4), "scaled")
    z = step(file, "ADD", [scaled, file.constant("shift", ones(4))], (1, 4), "z")
    assert trained(file, z) == ["dense b", "dense w", "scale", "shift"]


def test_numbers_that_say_where_to_move_are_no_weights() -> None:
    """A signal is cut into frames by a GATHER, and multiplied with a window, before there is a weight."""
    file = CircleFile()
    x, where = file.input("x", (1, 6)), [np.array(v, np.int32) for v in ([0, 0], [1, 4], [1, 1])]
    cut = file.tensor("cut", (1, 4))
    inputs = [x, *(file.constant(f"slice {k}", value) for k, value in enumerate(where))]
    file.operator("STRIDED_SLICE", inputs, [cut], "StridedSliceOptions")
    frames, places = file.tensor("frames", (1, 3)), file.constant("places", np.array([0, 1, 3], np.int32))
    file.operator("GATHER", [cut, places], [frames], "GatherOptions", {"axis": 1})
    windowed = step(file, "MUL", [frames, file.constant("window", ones(3))], (1, 3), "windowed")
    assert trained(file, layer(file, windowed, 2, 3, "dense")) == ["dense b", "dense w"]


def test_scale_and_shift_of_one_channel() -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), 1, 3, "dense")
    y = step(file, "RELU", [y], (1, 1), "positive")
    scaled = step(file, "MUL", [y, file.constant("scale", ones(1))], (1, 1), "scaled")
    z = step(file, "ADD", [scaled, file.constant("shift", ones(1))], (1, 1), "z")
    assert trained(file, z) == ["dense b", "dense w", "scale", "shift"]
    alone = step(file, "MUL", [y, file.constant("half", ones(1))], (1, 1), "alone")
    assert trained(file, alone) == ["dense b", "dense w"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("rows", ["learned", "sines"])
def test_a_table_of_positions(rows: str, dtype: str) -> None:
    file = CircleFile()
    ids, words = file.input("ids", (1, 4), "int32"), file.constant("words", ones(9, 6))
    angles = np.arange(4)[:, None] / np.array([1, 10, 100])
    values = {"learned": np.random.default_rng(1).standard_normal((1, 4, 6)) / 50,
              "sines": np.concatenate([np.sin(angles), np.cos(angles)], 1)[None]}  # fmt: skip
    embedded, kinds = file.tensor("embedded", (1, 4, 6)), file.constant("kinds", ones(1, 1, 6))
    file.operator("GATHER", [words, ids], [embedded], "GatherOptions")
    both = step(file, "ADD", [embedded, kinds], (1, 4, 6), "both")
    places = file.constant("places" if dtype == "float32" else "half", values[rows].astype(dtype))
    if dtype == "float16":
        half, places = places, file.tensor("places", (1, 4, 6))
        file.operator("DEQUANTIZE", [half], [places])
    z = step(file, "ADD", [places, both], (1, 4, 6), "z")
    assert trained(file, z) == ["kinds", *(["places"] if rows == "learned" else []), "words"]


@grid("codes", [("SUB", "MUL"), ("MUL", "ADD"), ("ADD", "MUL"), ("MUL", "SUB")])
def test_what_an_input_is_normalised_by_is_not_trained(codes: tuple[str, str]) -> None:
    file = CircleFile()
    x = file.input("x", (1, 3))
    first = step(file, codes[0], [x, file.constant("s", ones(3))], (1, 3), "first")
    second = step(file, codes[1], [first, file.constant("t", ones(3))], (1, 3), "second")
    assert trained(file, layer(file, second, 2, 3, "dense")) == ["dense b", "dense w"]


@grid("has_layer", [False, True])
def test_a_layer_normalisation_as_keras_writes_it(has_layer: bool) -> None:
    """The scale is multiplied with the root, which has one channel."""
    file = CircleFile()
    x = file.input("x", (1, 3))
    y = layer(file, x, 3, 3, "first") if has_layer else x
    axis = file.constant("axis", np.array([1], np.int32))
    mean = file.tensor("mean", (1, 1))
    file.operator("MEAN", [y, axis], [mean], "ReducerOptions", {"keepDims": True})
    root = step(file, "RSQRT", [mean], (1, 1), "root")
    scaled = step(file, "MUL", [root, file.constant("scale", ones(3))], (1, 3), "scaled")
    product = step(file, "MUL", [y, scaled], (1, 3), "product")
    z = step(file, "ADD", [product, file.constant("shift", ones(3))], (1, 3), "z")
    first = ["first b", "first w"] if has_layer else []
    assert trained(file, layer(file, z, 2, 3, "d")) == ["d b", "d w", *first, "scale", "shift"]


def test_what_follows_a_frozen_layer_is_trained() -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), 4, 3, "dense")
    scaled = step(file, "MUL", [y, file.constant("scale", ones(4))], (1, 4), "scaled")
    z = step(file, "ADD", [scaled, file.constant("shift", ones(4))], (1, 4), "z")
    assert trained(file, z, freeze_before="dense y") == ["scale", "shift"]


def test_a_weight_that_looks_like_a_table_is_named_with_what_freezes_it() -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), 4, 3, "dense")
    bins, mean = file.constant("bins", np.arange(4, dtype=np.float32)[None]), file.tensor("mean", (1, 1))
    file.operator("FULLY_CONNECTED", [y, bins, -1], [mean], "FullyConnectedOptions")
    model = load_circle_model(file.write(mean), options=import_options({"loss": "mse"}))
    assert model.summary.endswith("; looks like a table: bins (--frozen bins leaves it untrained).")


def test_scalars_masks_and_anchors_are_not_trained() -> None:
    file = CircleFile()
    y = layer(file, file.input("x", (1, 3)), 4, 3, "dense")
    y = step(file, "MUL", [y, file.constant("half", np.full((), 0.5, np.float32))], (1, 4), "halved")
    flat = file.constant("sizes", np.array([1, 2, 2], np.int32))
    boxes = step(file, "RESHAPE", [y, flat], (1, 2, 2), "boxes")
    z = step(file, "ADD", [boxes, file.constant("anchors", ones(1, 2, 2))], (1, 2, 2), "z")
    assert trained(file, z) == ["dense b", "dense w"]
    # patterns reach every floating tensor
    assert trained(file, z, trainable="anchors,half") == ["anchors", "half"]
    assert trained(file, z, trainable="*") == ["anchors", "dense b", "dense w", "half"]
    assert graph_of(file, z).operands["anchors"].role is Role.CONSTANT
    with pytest.raises(TrainableError, match="'sizes'"):
        graph_of(file, z, trainable="sizes")


#: Operator -> the shape of what it makes, its options' table and options, and what its second input says.
MOVES: Mapping[str, tuple[tuple[int, ...], str, Mapping[str, Any], Array | None]] = {
    "TRANSPOSE": ((2, 3), "", {}, np.array([1, 0], np.int32)),
    "RESHAPE": ((3, 2), "", {}, np.array([3, 2], np.int32)),
    "CONCATENATION": ((2, 3), "ConcatenationOptions", {"axis": 0}, ones(1, 3)),
    "EXPAND_DIMS": ((1, 2, 3), "", {}, np.array([0], np.int32)),
    "SQUEEZE": ((2, 3), "SqueezeOptions", {"squeezeDims": [0]}, None),
}


@pytest.mark.parametrize(
    ("stored", "moves"),
    [
        ((3, 2), ["TRANSPOSE"]),
        ((6,), ["RESHAPE", "TRANSPOSE"]),
        ((1, 3), ["CONCATENATION"]),
        ((2, 3), ["EXPAND_DIMS", "SQUEEZE"]),
    ],
)
def test_weights_behind_moves(stored: tuple[int, ...], moves: list[str]) -> None:
    file = CircleFile()
    x, weight = file.input("x", (1, 3)), file.constant("stored", ones(*stored))
    for code in moves:
        shape, table, options, second = MOVES[code]
        inputs = [weight, *([] if second is None else [file.constant(f"{code} second", second)])]
        weight = file.tensor(code, shape)
        file.operator(code, inputs, [weight], table, options)
    y = file.tensor("y", (1, 2))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    assert trained(file, y) == (["CONCATENATION second"] if moves == ["CONCATENATION"] else []) + ["stored"]


def test_a_constant_factor_of_a_product_of_matrices_is_a_weight() -> None:
    file = CircleFile()
    x = file.input("x", (2, 3))
    y = file.tensor("y", (2, 4))
    options = {"adjointRhs": True}
    file.operator("BATCH_MATMUL", [x, file.constant("w", ones(4, 3))], [y], "BatchMatMulOptions", options)
    assert trained(file, y) == ["w"]


def test_a_weight_that_only_a_condition_reads_is_not_trained() -> None:
    file = CircleFile()
    x = file.input("x", (1, 3))
    y, other = layer(file, x, 2, 3, "dense"), layer(file, x, 2, 3, "gate")
    is_larger = step(file, "GREATER", [other, y], (1, 2), "is larger")
    z = step(file, "SELECT_V2", [is_larger, y, file.constant("other", ones(1, 2))], (1, 2), "z")
    file.tensors[is_larger].type = 6  # BOOL
    assert trained(file, z) == ["dense b", "dense w"]
    with pytest.raises(TrainableError, match="'gate w'"):
        graph_of(file, z, trainable="gate w")


def test_a_model_without_weights() -> None:
    file = CircleFile()
    y = step(file, "RELU", [file.input("x", (1, 3))], (1, 3), "y")
    with pytest.raises(TrainableError, match="no weights that the loss has a derivative with respect to"):
        graph_of(file, y)
