"""ONNX models with something wrong in them: in their bytes, or in what they say."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import flatbuffers
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.support.circle_models import circle
from tests.support.onnx_models import model_of, node, nodes_of

__all__ = ["damaged_bytes", "damaged_circle", "damaged_model", "whole_models"]

#: Numbers that sizes, axes and offsets are put to.
_NUMBERS = (0, 1, -1, 2, 7, -2, 2**31, 2**40, -(2**63), 2**63 - 1)
_OPERATORS = (
    "Relu",
    "Conv",
    "Reshape",
    "Concat",
    "Foo",
    "Loop",
    "If",
    "BatchNormalization",
    "LSTM",
    "Split",
    "Tile",
)


def damaged_bytes(data: bytes, random: Random) -> bytes:
    """Some bytes changed, a piece cut out, doubled or moved, or the end cut off."""
    made = bytearray(data)
    start = random.randrange(len(made))
    stop = min(len(made), start + random.choice((1, 4, 60)))
    match random.randrange(5):
        case 0:
            some = random.choice((range(256), (0, 1, 2, 127, 128, 255)))
            for _ in range(random.choice((1, 2, 8))):
                made[random.randrange(len(made))] = random.choice(some)
        case 1:
            del made[start:stop]
        case 2:
            made[start:start] = made[start:stop]
        case 3:
            del made[start:]
        case _:
            made[start:stop] = random.randbytes(stop - start)
    return bytes(made)


def damaged_model(data: bytes, random: Random) -> bytes:
    """One thing said otherwise, in a file that is as well formed as before."""
    model = onnx.ModelProto.FromString(data)
    graph = model.graph
    made: onnx.NodeProto = random.choice(graph.node)
    match random.randrange(9):
        case 0:
            made.op_type = random.choice(_OPERATORS)
        case 1 if made.input:
            made.input[random.randrange(len(made.input))] = _some_name(graph, random)
        case 2 if made.output:
            made.output[random.randrange(len(made.output))] = _some_name(graph, random)
        case 3 if made.attribute:
            _change(random.choice(made.attribute), random)
        case 4 if made.attribute:
            del made.attribute[random.randrange(len(made.attribute))]
        case 5 if graph.initializer:
            tensor = random.choice(graph.initializer)
            values = np.asarray(random.choices(_NUMBERS, k=random.randrange(5)), np.int64)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
        case 6:
            shape = random.choice(graph.input).type.tensor_type.shape
            dimension = shape.dim[0] if shape.dim else shape.dim.add()
            dimension.dim_value = random.choice(_NUMBERS)
        case 7:
            del graph.node[random.randrange(len(graph.node))]
        case _:
            random.choice(graph.input).type.tensor_type.elem_type = random.choice(
                (1, 1, 7, 11, random.randrange(25))
            )
    return bytes(model.SerializeToString())


def _some_name(graph: onnx.GraphProto, random: Random) -> str:
    names = [name for made in graph.node for name in (*made.input, *made.output)]
    return str(random.choice([*names, "", "nowhere"]))


def _change(attribute: onnx.AttributeProto, random: Random) -> None:
    number = random.choice(_NUMBERS)
    if attribute.type == onnx.AttributeProto.INT:
        attribute.i = number
    elif attribute.type == onnx.AttributeProto.INTS and attribute.ints:
        attribute.ints[random.randrange(len(attribute.ints))] = number
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = random.choice((0.0, float("inf"), float("nan"), -1.0))
    else:
        attribute.type = random.randrange(15)  # type: ignore[assignment]  # any number is well formed


def damaged_circle(data: bytes, random: Random) -> bytes:
    """A .circle or .tflite file in which one field of one table says something else."""
    model = circle.Model.ModelT.InitFromPackedBuf(data)
    graph = random.choice(model.subgraphs)
    rows = (graph.tensors, graph.operators, model.operatorCodes, model.buffers, [graph])
    some = [row for row in (rows[:2] if random.random() < 0.7 else rows) if row] or [[graph]]
    of = random.choice(random.choice(some))
    options = getattr(of, "builtinOptions", None)
    if options is not None and random.random() < 0.5:
        of = options
    field = random.choice(sorted(vars(of)) or ["none"])
    value = vars(of).get(field)
    if isinstance(value, str | bytes):
        setattr(of, field, random.choice((b"", b"x", b"y0", "\u202e".encode())))
    elif value is None or isinstance(value, bool | int | float):
        fits = random.choice(_NUMBERS[:6]) if random.random() < 0.8 else random.randrange(128)
        setattr(of, field, max(fits, 0) if isinstance(value, bool) or value is None else fits)
    elif isinstance(value, list | np.ndarray):
        made = list(value)
        if made and random.random() < 0.7:
            place = random.randrange(len(made))
            made[place] = random.choice((*made, *_NUMBERS)) if isinstance(made[place], int) else made[-1]
        else:
            made = random.choice(([], made[:-1], made[::-1], made + made))
        setattr(of, field, made)
    builder = flatbuffers.Builder(1024)
    try:
        builder.Finish(model.Pack(builder), file_identifier=data[4:8])
    except (TypeError, ValueError, AttributeError, OverflowError):  # no file can say that
        return data
    return bytes(builder.Output())


def whole_models() -> Sequence[onnx.ModelProto]:
    """Small ones of many kinds, each of which can be imported with the loss mse."""
    rng = np.random.default_rng(1)

    def floats(*shape: int) -> Any:
        return rng.standard_normal(shape).astype(np.float32)

    images = model_of(
        [
            node("Conv", ["x", "w", "b"], ["h"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2]),
            node("BatchNormalization", ["h", "s", "t", "m", "v"], ["n", "m2", "v2"], training_mode=1),
            node("MaxPool", ["n"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", ["p", "", "scales"], ["r"], mode="linear"),
            *nodes_of("Pad r pads q, GlobalAveragePool q g, Flatten g f"),
            node("Gemm", ["f", "fc.weight", "fc.bias"], ["y"], transB=1),
        ],
        {"x": (2, 3, 8, 8)},
        {
            "w": floats(4, 3, 3, 3),
            "b": floats(4),
            "s": floats(4),
            "t": floats(4),
            "m": floats(4),
            "v": np.ones(4, np.float32),
            "scales": np.array([1, 1, 2, 2], np.float32),
            "pads": np.array([0, 0, 1, 0, 0, 0, 0, 1]),
            "fc.weight": floats(5, 4),
            "fc.bias": floats(5),
        },
    )
    attention = model_of(
        [
            *nodes_of(
                "Shape x shape, Gather shape one length, Range zero length one places, "
                "Gather pos.weight places p, Add x p h, MatMul h qkv.weight qkv"
            ),
            node("Split", ["qkv"], ["q", "k", "v"], axis=-1, num_outputs=3),
            node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
            *nodes_of("MatMul q kt scores, Softmax scores weights, MatMul weights v a"),
            node("Concat", ["a", "x"], ["c"], axis=1),
            *nodes_of("Slice c ones threes ones d, Expand d wide y"),
        ],
        {"x": (2, 4, 6)},
        {
            "one": np.asarray(1),
            "zero": np.asarray(0),
            "pos.weight": floats(9, 6),
            "qkv.weight": floats(6, 18),
            "ones": np.array([1]),
            "threes": np.array([3]),
            "wide": np.array([3, 2, 2, 6]),
        },
    )
    recurrent = model_of(
        [
            node("LSTM", ["x", "lstm.w", "lstm.r", "lstm.b"], ["h", "", ""], direction="bidirectional"),
            node("SplitToSequence", ["h", "two"], ["pieces"], axis=0),
            *nodes_of("SequenceAt pieces first piece, Tile piece repeats y"),
        ],
        {"x": (4, 2, 3)},
        {
            "lstm.w": floats(2, 16, 3),
            "lstm.r": floats(2, 16, 4),
            "lstm.b": floats(2, 32),
            "two": np.asarray(2),
            "first": np.asarray(0),
            "repeats": np.array([1, 1, 2, 1]),
        },
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    inner = helper.make_function("own", "Half", ["a"], ["b"], [node("Mul", ["a", "a"], ["b"])], opsets)
    outer = helper.make_function(
        "own",
        "Both",
        ["a"],
        ["c"],
        [node("Half", ["a"], ["b"], domain="own"), node("Relu", ["b"], ["c"])],
        opsets,
    )
    relu = helper.make_graph(
        [node("Relu", ["h"], ["t"])], "then", [], [helper.make_empty_tensor_value_info("t")]
    )
    neg = helper.make_graph(
        [node("Neg", ["h"], ["e"])], "else", [], [helper.make_empty_tensor_value_info("e")]
    )
    called = model_of(
        [
            node("MatMul", ["x", "w"], ["g"]),
            node("Both", ["g"], ["h"], domain="own"),
            node("If", ["condition"], ["i"], then_branch=relu, else_branch=neg),
            node("Einsum", ["i", "v"], ["y"], equation="ij,jk->ik"),
        ],
        {"x": (2, 3)},
        {"w": floats(3, 4), "v": floats(4, 5), "condition": np.asarray(True)},
        functions=[inner, outer],
        domains=["own"],
    )
    return images, attention, recurrent, called
