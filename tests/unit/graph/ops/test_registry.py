"""Families and operators are found by looking."""

from __future__ import annotations

import pytest

from solver.errors import InternalError, UnknownOperatorError
from solver.graph import ops
from solver.graph.ops import FAMILIES, OPERATOR_NAMES, SEQUENCES, lookup, signature
from solver.graph.ops.base import OperationType
from tests.support.every import grid

HERE = {
    "activation": (
        *("Relu", "Clip", "Sigmoid", "Tanh", "Softmax", "LogSoftmax"),
        *("LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "Swish", "Gelu", "PRelu"),
    ),
    "arithmetic": ("Add", "Sub", "Mul", "Div", "Pow"),
    "comparison": (
        *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"),
        *("And", "Or", "Not", "IsNaN"),
    ),
    "head": ("ProductLogSumExp",),
    "linear": ("Gemm", "MatMul"),
    "loss": (
        *("MeanSquaredError", "CategoricalCrossEntropy", "BinaryCrossEntropy"),
        *("KLDivergence", "MeanAbsoluteError", "Huber"),
    ),
    "movement": (
        *("Reshape", "Flatten", "Transpose", "Pad", "Squeeze", "Unsqueeze", "Expand", "Cast"),
        "StopGradient",
    ),
    "normalization": (
        *("LayerNormalization", "RMSNormalization", "InstanceNormalization", "GroupNormalization"),
    ),
    "quantization": ("DequantizeLinear", "QuantizeLinear"),
    "recurrent": ("LSTMCell", "GRUCell", "RNNCell"),
    "reduction": ("ReduceMean", "ReduceSum", "ReduceMax"),
    "resizing": ("Resize",),
    "ordering": ("ArgTopK",),
    "selection": ("Where", "Gather", "ScatterAdd", "ScatterUpdate"),
    "tiles": ("TileGather", "LogAddExp"),
    "slicing": ("Concat", "Split", "Slice"),
    "upsampling": ("ConvTranspose",),
    "random": ("RandomUniform",),
    "rounding": ("Floor", "Ceil", "Round", "Sign"),
    "running": ("CumSum",),
    "unary": (
        *("Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Erf", "Sin", "Cos", "Softplus"),
        *("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"),
    ),
}


@grid("family", HERE)
def test_a_family_holds_its_operators(family: str) -> None:
    assert FAMILIES[family] == HERE[family]


def test_every_operator_is_in_one_family_and_found_by_name() -> None:
    names = [name for operators in FAMILIES.values() for name in operators]
    assert sorted(names) == list(OPERATOR_NAMES)
    assert all(lookup(name).name == name for name in names)


def test_helpers_are_no_families() -> None:
    assert not [family for family in FAMILIES if family.startswith("_") or family in {"base", "helpers"}]


@pytest.mark.parametrize(
    ("wrong", "close"),
    [("relu", "Relu"), ("Gem", "Gemm"), ("SoftMax", "Softmax"), ("Reduce_Mean", "ReduceMean")],
)
def test_an_unknown_operator_gets_close_matches_and_where_all_names_are(wrong: str, close: str) -> None:
    with pytest.raises(UnknownOperatorError, match=f"no operator '{wrong}'") as caught:
        lookup(wrong)
    assert f"Did you mean {close}" in caught.value.remedy
    assert "`arenaplan operators` lists all" in caught.value.remedy


def test_an_operator_unlike_any_gets_no_guess() -> None:
    with pytest.raises(UnknownOperatorError) as caught:
        lookup("Einsum42")
    assert caught.value.remedy.startswith("`arenaplan operators` lists")


def test_sequences_have_a_signature_but_no_kernels() -> None:
    """A graph unrolls them, so that no program ever meets one."""
    assert sorted(SEQUENCES) == ["GRU", "LSTM", "RNN"]
    assert all(signature(name).name == name for name in (*SEQUENCES, *OPERATOR_NAMES))
    for name in SEQUENCES:
        with pytest.raises(UnknownOperatorError, match=f"no operator '{name}'"):
            lookup(name)
    with pytest.raises(UnknownOperatorError, match="no operator 'LSTMS'") as caught:
        signature("LSTMS")
    assert "Did you mean LSTM or " in caught.value.remedy


def test_two_operators_of_one_name_are_a_bug() -> None:
    relu: OperationType = lookup("Relu")
    with pytest.raises(InternalError, match="defines operator 'Relu' a second time"):
        ops.by_name({"activation": (relu,), "other": (relu,)})


@grid("name", OPERATOR_NAMES)
def test_what_every_operator_declares(name: str) -> None:
    kind = lookup(name)
    least, most = kind.arity
    assert 1 <= least <= most
    assert all(0 <= position < most for position in kind.constant_inputs)
    assert ("activation" in kind.rules()) == kind.fuses_activation
    assert kind.is_loss == (name in HERE["loss"])
