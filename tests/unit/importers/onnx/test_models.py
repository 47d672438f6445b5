"""Whole models: what is trained, what is a constant, dimensions, losses, functions, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from solver import documents
from solver.errors import (
    ArenaplanError,
    BatchError,
    DimensionError,
    DocumentError,
    GraphError,
    LossError,
    OptionsError,
    TooManyOperationsError,
    TrainableError,
    UnknownOperatorError,
)
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Role, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid
from tests.support.onnx_models import imported, model_of, node, nodes_of, shape_of, types_of

RNG = np.random.default_rng(4)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def roles(graph: TrainableGraph) -> dict[str, str]:
    return {o.id: o.role.value for o in graph.operands.values() if o.role is not Role.INTERMEDIATE}


def dense(**more: Any) -> onnx.ModelProto:
    """x W + b."""
    nodes = nodes_of("MatMul x fc.weight h, Add h fc.bias y")
    return model_of(nodes, {"x": (4, 3)}, {"fc.weight": floats(3, 5), "fc.bias": floats(5)}, **more)


# ------------------------------------------------------------------------------- parameters and constants


def test_weights_are_parameters_and_the_label_is_an_input() -> None:
    graph = imported(dense()).graph
    assert roles(graph) == {"x": "input", "fc.weight": "parameter", "fc.bias": "parameter", "label": "label"}
    assert graph.trainable == ("fc.weight", "fc.bias")
    assert types_of(graph) == ["MatMul", "Add", "MeanSquaredError"]


def test_a_name_made_up_by_an_exporter_is_a_parameter_where_weights_stand() -> None:
    nodes = [node("MatMul", ["x", "onnx::MatMul_9"], ["y"])]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"onnx::MatMul_9": floats(3, 4)})).graph
    assert graph.trainable == ("onnx::MatMul_9",)


def test_uses_are_looked_up_through_moves() -> None:
    nodes = [node("Transpose", ["t::w"], ["v"], perm=[1, 0]), node("MatMul", ["x", "v"], ["y"])]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"t::w": floats(4, 3)})).graph
    assert graph.trainable == ("t::w",)


def test_a_caller_may_train_what_looks_like_a_constant() -> None:
    nodes = nodes_of("MatMul x w h, Mul h onnx::s y")
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "onnx::s": floats(4)})
    assert imported(model, trainable=("onnx::s",)).graph.trainable == ("onnx::s",)


def test_patterns_and_counts_choose_what_is_trained() -> None:
    assert imported(dense(), trainable=("fc.b*",)).graph.trainable == ("fc.bias",)
    assert imported(dense(), trainable=1).graph.trainable == ("fc.bias",)
    with pytest.raises(TrainableError, match="No parameter is called 'head'") as caught:
        imported(dense(), trainable=("head",))
    assert "fc.weight, fc.bias" in caught.value.remedy


def test_tied_weights_stay_one_operand() -> None:
    nodes = [
        node("Gather", ["emb.weight", "ids"], ["h"]),
        node("Transpose", ["emb.weight"], ["t"], perm=[1, 0]),
        node("MatMul", ["h", "t"], ["y"]),
    ]
    model = model_of(nodes, {"ids": ("int64", (2, 3))}, {"emb.weight": floats(10, 4)})
    graph = imported(model, loss="cross-entropy").graph
    assert graph.trainable == ("emb.weight",)
    assert validate(graph, plan(graph), steps=2).identical


# ------------------------------------------------------------------------------------------ dimensions


def test_open_dimensions_take_sizes() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": ("batch", "seq", 3)}, {"w": floats(3, 4)})
    graph = imported(model, dims={"seq": 7}, batch=2).graph
    assert shape_of(graph, "x") == (2, 7, 3)
    assert shape_of(imported(model, dims={"x[1]": 5, "batch": 3}).graph, "x") == (3, 5, 3)


@pytest.mark.parametrize("sizes", [{"batch": 8}, {"dims": {"x[0]": 8}}, {"batch": 8, "dims": {"x[0]": 8}}])
def test_a_batch_that_the_model_fixes_takes_another_size(sizes: Any) -> None:
    graph = imported(dense(), **sizes).graph
    assert (shape_of(graph, "x"), shape_of(graph, "label")) == ((8, 3), (8, 5))


def test_the_batch_that_a_model_has_may_be_asked_for() -> None:
    assert shape_of(imported(dense(), batch=4).graph, "x") == (4, 3)


def test_a_batch_is_that_of_all_inputs_that_have_the_first_ones() -> None:
    nodes = nodes_of("MatMul x w h, Add h z g, Add g s y")
    inputs = {"x": (2, 3), "z": (2, 4), "s": (1, 4)}
    graph = imported(model_of(nodes, inputs, {"w": floats(3, 4)}), batch=6).graph
    assert [shape_of(graph, name) for name in inputs] == [(6, 3), (6, 4), (1, 4)]


def test_a_batch_beside_another_size_of_the_same_dimension_is_refused() -> None:
    inputs = {"x": ("batch", 3)}
    model = model_of(nodes_of("MatMul x w y"), inputs, {"w": floats(3, 4)})
    assert shape_of(imported(model, batch=4, dims={"batch": 4}).graph, "x") == (4, 3)
    with pytest.raises(BatchError, match="'batch', which is the batch, 4") as caught:
        imported(model, batch=1, dims={"batch": 4})
    assert caught.value.remedy == "Write --batch 4 in the place of --dim batch=4."


# --------------------------------------------------------------------------------------- inputs with a value


def chooses(kind: str = "int64") -> onnx.ModelProto:
    """x W where rate is 16,000 (or true), and x V otherwise."""
    branches = {}
    for name, weight in (("then", "w"), ("else", "v")):
        inner = [node("MatMul", ["x", weight], [f"{name}_y"])]
        out = helper.make_empty_tensor_value_info(f"{name}_y")
        branches[f"{name}_branch"] = helper.make_graph(inner, name, [], [out])
    compared = [node("Equal", ["rate", "khz"], ["c"])] if kind == "int64" else [node("Not", ["rate"], ["c"])]
    weights = {"w": floats(3, 4), "v": floats(3, 4), "khz": np.array(16000)}
    nodes = [*compared, node("If", ["c"], ["y"], name="choice", **branches)]
    model = model_of(nodes, {"x": (2, 3), "rate": ("int64", ())}, weights)
    model.graph.input[1].type.tensor_type.elem_type = getattr(onnx.TensorProto, kind.upper())
    return model


@pytest.mark.parametrize(("value", "weight"), [(16000, "w"), (8000, "v"), ([], None)])
def test_an_input_with_a_value_chooses_a_branch(value: Any, weight: str | None) -> None:
    if weight is None:
        with pytest.raises(OptionsError, match="'rate'"):
            imported(chooses(), inputs={"rate": value})
        return
    graph = imported(chooses(), inputs={"rate": value}).graph
    assert graph.trainable == (weight,)
    assert "rate" not in graph.operands


def test_a_choice_that_is_left_open_names_the_input_and_a_value_of_it() -> None:
    with pytest.raises(UnknownOperatorError, match=r"'choice' \(If\) chooses by 'rate'") as caught:
        imported(chooses())
    assert caught.value.remedy == "Fix it with --input rate=16000."
    with pytest.raises(UnknownOperatorError) as caught:
        imported(chooses("bool"))
    assert caught.value.remedy == "Fix it with --input rate=true."
    assert imported(chooses("bool"), inputs={"rate": True}).graph.trainable == ("v",)
    vector = chooses("bool")
    vector.graph.node[0].CopyFrom(node("ReduceSum", ["rate"], ["sum"], keepdims=0))
    vector.graph.node.insert(1, node("Greater", ["sum", "rate_limit"], ["c"]))
    vector.graph.initializer.append(numpy_helper.from_array(np.array(2.5, np.float32), "rate_limit"))
    vector.graph.input[1].CopyFrom(helper.make_tensor_value_info("rate", onnx.TensorProto.FLOAT, [3]))
    with pytest.raises(UnknownOperatorError) as caught:
        imported(vector)
    assert caught.value.remedy == "Fix it with --input rate=2.5."
    assert imported(vector, inputs={"rate": 2.5}).graph.trainable == ("w",)


def test_lengths_of_sequences_that_are_all_whole_leave_nothing_behind() -> None:
    """The document of the graph can be read again, which it cannot be with an operand that nothing reads."""
    nodes = [node("GRU", ["x", "w", "r", "", "lengths"], ["h", "y"], hidden_size=4)]
    inputs: Any = {"x": (5, 2, 3), "lengths": ("int64", (2,))}
    model = model_of(nodes, inputs, {"w": floats(1, 12, 3), "r": floats(1, 12, 4)})
    model.graph.input[1].type.tensor_type.elem_type = onnx.TensorProto.INT32
    graph = imported(model, inputs={"lengths": 5}).graph
    assert set(graph.trainable) == {"w", "r"}
    again = documents.load_graph(json.loads(documents.dump_graph(graph)))
    assert documents.graph_digest(again) == documents.graph_digest(graph)


def test_one_number_fills_an_input_and_a_list_has_its_shape() -> None:
    nodes = nodes_of("MatMul x w h, Mul h s y")
    model = model_of(nodes, {"x": ("n", 3), "s": ("n", 4)}, {"w": floats(3, 4)})
    for value, data in ((0.5, [[0.5] * 4] * 2), ([[1, 2, 3, 4], [5, 6, 7, 8]], [[1, 2, 3, 4], [5, 6, 7, 8]])):
        graph = imported(model, inputs={"s": value}, batch=2).graph
        (constant,) = (o for o in graph.operands.values() if o.role is Role.CONSTANT)
        assert constant.initializer is not None
        assert constant.initializer.data == np.array(data, np.float32).tobytes()


def test_shape_arithmetic_comes_to_constants() -> None:
    """As exporters flatten: the shape is taken apart, multiplied, and put together again."""
    one = numpy_helper.from_array(np.array([1]))
    nodes = [
        *nodes_of("Shape x s, Gather s zero n"),
        node("Constant", [], ["one"], value=one), node("Mul", ["n", "one"], ["m"]),
        node("Concat", ["m", "rest"], ["shape"], axis=0),
        *nodes_of("Reshape x shape flat, MatMul flat w y"),
    ]  # fmt: skip
    weights = {"zero": np.array([0]), "rest": np.array([-1]), "w": floats(6, 4)}
    graph = imported(model_of(nodes, {"x": ("n", 2, 3)}, weights), batch=5).graph
    assert types_of(graph) == ["Reshape", "MatMul", "MeanSquaredError"]


# -------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize(
    ("loss", "label", "dtype"),
    [
        ("cross-entropy", (4,), "int64"), ("soft-cross-entropy", (4, 5), "float32"),
        ("binary-cross-entropy", (4, 5), "float32"), ("mse", (4, 5), "float32"), ("l1", (4, 5), "float32"),
        ("huber", (4, 5), "float32"), ("kl-divergence", (4, 5), "float32"),
    ],
)  # fmt: skip
def test_losses_have_their_labels(loss: str, label: tuple[int, ...], dtype: str) -> None:
    graph = imported(dense(), loss=loss).graph
    operand = graph.operands["label"]
    assert (operand.shape, operand.dtype.value, operand.role) == (label, dtype, Role.LABEL)
    assert validate(graph, plan(graph), steps=2).identical


def test_classes_of_images_are_at_axis_1_and_may_be_elsewhere() -> None:
    nodes = [node("Conv", ["x", "w"], ["y"], kernel_shape=[1, 1])]
    model = model_of(nodes, {"x": (2, 3, 5, 6)}, {"w": floats(4, 3, 1, 1)})
    assert shape_of(imported(model, loss="cross-entropy").graph, "label") == (2, 5, 6)
    assert shape_of(imported(model, loss="cross-entropy", class_axis=-1).graph, "label") == (2, 4, 5)
    with pytest.raises(DocumentError, match="no axis 4"):
        imported(model, loss="cross-entropy", class_axis=4)


def test_a_last_softmax_is_part_of_the_loss() -> None:
    nodes = nodes_of("MatMul x w h, Softmax h y")
    found = imported(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}), loss="cross-entropy")
    assert types_of(found.graph) == ["MatMul", "CategoricalCrossEntropy"]
    assert "taken as logits" in found.notes[0]


def test_a_loss_inside_the_model_is_taken() -> None:
    nodes = nodes_of("MatMul x w h, SoftmaxCrossEntropyLoss h t loss")
    inputs: Any = {"x": (2, 3), "t": ("int64", (2,))}
    model = model_of(nodes, inputs, {"w": floats(3, 4)}, outputs=("h", "loss"))
    found = imported(model, loss=None)
    assert found.graph.loss == "loss"
    assert types_of(found.graph) == ["MatMul", "CategoricalCrossEntropy"]


def test_two_losses_have_to_be_chosen_from() -> None:
    nodes = [node("ReduceMean", ["h"], [name], keepdims=0) for name in ("a", "b")]
    nodes.insert(0, node("MatMul", ["x", "w"], ["h"]))
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, outputs=("a", "b"))
    with pytest.raises(LossError, match="2 outputs that could be the loss: a, b"):
        imported(model, loss=None)
    assert imported(model, loss=None, output="b").graph.loss == "b"


def test_inputs_without_influence_are_left_out() -> None:
    nodes = nodes_of("MatMul x w y, Relu z u")
    found = imported(model_of(nodes, {"x": (2, 3), "z": (9,)}, {"w": floats(3, 4)}))
    assert "z" not in found.graph.operands
    assert "The loss does not depend on input 'z': left out." in found.notes


# ---------------------------------------------------------------------------------------- what is kept


def with_three_outputs() -> onnx.ModelProto:
    """A prediction, the product that it is made of, and one beside it that the loss does not need."""
    nodes = nodes_of("MatMul x w h, Add h b y, Tanh h beside")
    weights = {"w": floats(3, 4), "b": floats(4)}
    return model_of(nodes, {"x": (2, 3)}, weights, outputs=("y", "h", "beside"))


@pytest.mark.parametrize(
    ("asked", "kept", "lost"),
    [
        ((), (), "'y', 'h', 'beside'"),
        (("beside",), ("beside",), "'y', 'h'"),
        (("h", "y"), ("h", "y"), "'beside'"),
        ("all", ("y", "h", "beside"), ""),
    ],
)
def test_outputs_are_kept_where_that_is_said(
    asked: Literal["all"] | tuple[str, ...], kept: tuple[str, ...], lost: str
) -> None:
    found = imported(with_three_outputs(), loss="mse", keep_outputs=asked)
    assert found.graph.outputs == kept
    notes = [note for note in found.notes if note.startswith("Not kept after a step")]
    assert len(notes) == bool(lost)
    assert all(f"output {lost};" in note for note in notes)
    # What is kept are the values that NumPy computes, of the weights before the step.
    batch = synthetic_batch(found.graph, 0, 0)
    with Trainer(found.graph, plan(found.graph)) as trainer:
        h = batch["x"] @ trainer.read("w")
        expected = {"h": h, "y": h + trainer.read("b"), "beside": np.tanh(h)}
        trainer.step(batch)
        for name in kept:
            np.testing.assert_allclose(trainer.read(name), expected[name], rtol=1e-5)


# ---------------------------------------------------------------------------------------- normalisation


def normalised(training: int | None = None, opset: int = 18) -> onnx.ModelProto:
    mode: Any = {} if training is None else {"training_mode": training}
    outputs = ["y", "m2", "v2"] if training else ["y"]
    nodes = [
        node("Conv", ["x", "w"], ["h"], kernel_shape=[1, 1]),
        node("BatchNormalization", ["h", "s", "b", "m", "v"], outputs, **mode),
    ]
    weights = {
        "w": floats(4, 3, 1, 1),
        "s": floats(4),
        "b": floats(4),
        "m": floats(4),
        "v": np.ones(4, np.float32),
    }
    return model_of(nodes, {"x": (2, 3, 5, 6)}, weights, opset=opset)


@pytest.mark.parametrize(
    ("training", "asked", "mode"), [(None, None, 0), (1, None, 1), (None, "train", 1), (1, "frozen", 0)]
)
def test_batch_normalisation_has_the_mode_that_is_asked_for(
    training: int | None, asked: Any, mode: int
) -> None:
    found = imported(normalised(training), batch_norm=asked)
    made = next(op for op in found.graph.operations if op.type == "BatchNormalization")
    assert made.attributes["training_mode"] == mode
    assert {found.graph.operands[name].role for name in ("m", "v")} == {Role.STATE}
    frozen = any("--batch-norm train" in note for note in found.notes)
    assert frozen == (mode == 0 and asked is None)
    assert validate(found.graph, plan(found.graph), steps=2).identical


@pytest.mark.parametrize(
    ("weight", "bias", "is_said"),
    [
        ("onnx::Conv_{}", "onnx::Conv_1{}", True),
        ("stem.{}.conv.weight", "stem.{}.bn.bias", True),
        ("conv{}/kernel", "batch_normalization_{}/FusedBatchNormV3", True),
        ("features.{}.weight", "features.{}.bias", False),
    ],
)  # fmt: skip
def test_lost_normalisation_is_said_where_names_show_it(weight: str, bias: str, is_said: bool) -> None:
    """VGG has convolutions with biases, and never had any normalisation."""
    names = [(weight.format(k), bias.format(k)) for k in range(5)]
    nodes = [
        node("Conv", [f"h{k}", w, b], [f"h{k + 1}"], kernel_shape=[1, 1]) for k, (w, b) in enumerate(names)
    ]
    weights = {w: floats(3, 3, 1, 1) for w, _ in names} | {b: floats(3) for _, b in names}
    found = imported(model_of(nodes, {"h0": (2, 3, 4, 4)}, weights, outputs=("h5",)))
    assert any("lost their batch normalisation" in note for note in found.notes) == is_said


def test_dropout_is_on_where_the_model_says_so() -> None:
    def model(training: bool) -> onnx.ModelProto:
        nodes = [node("MatMul", ["x", "w"], ["h"]), node("Dropout", ["h", "r", "t"], ["y", "mask"])]
        return model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "r": 0.25, "t": np.asarray(training)})

    assert "Dropout" not in types_of(imported(model(False)).graph)
    made = imported(model(True)).graph.operations[1]
    assert (made.type, made.attributes["ratio"]) == ("Dropout", 0.25)


# ---------------------------------------------------------------------------- functions and branches


def function(name: str, nodes: list[onnx.NodeProto], attributes: tuple[str, ...] = ()) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["c"], nodes, opsets, list(attributes))


def test_functions_are_walked_where_they_are_called() -> None:
    inner = function("Inner", [node("LeakyRelu", ["a"], ["c"])])
    leaky = inner.node[0].attribute.add()
    leaky.name, leaky.ref_attr_name, leaky.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    inner.attribute.append("slope")
    outer = function(
        "Outer", [node("Inner", ["a"], ["b"], domain="own", slope=0.5), node("Neg", ["b"], ["c"])]
    )
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Outer", ["h"], ["y"], domain="own")]
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, functions=[inner, outer], domains=["own"])
    graph = imported(model).graph
    assert types_of(graph) == ["MatMul", "LeakyRelu", "Neg", "MeanSquaredError"]
    assert graph.operations[1].attributes["alpha"] == 0.5


def test_functions_that_double_are_counted_before_they_are_walked() -> None:
    """Each calls the one before twice: two to the power of thirty operations. A walk would have come to the
    limit of operations first.
    """
    made = [function("F0", [node("Neg", ["a"], ["c"])])]
    for k in range(30):
        calls = [node(f"F{k}", ["a"], ["b"], domain="own"), node(f"F{k}", ["b"], ["c"], domain="own")]
        made.append(function(f"F{k + 1}", calls))
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("F30", ["h"], ["y"], domain="own")]
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, functions=made, domains=["own"])
    with pytest.raises(TooManyOperationsError, match="more than 100,000 nodes"):
        imported(model)


@pytest.mark.parametrize("place", ["graph", "function", "branch"])
def test_nodes_are_counted_before_they_are_walked(place: str) -> None:
    """The first node reads what nothing defines, which a walk would say."""
    many = [node("Neg", ["nothing"], ["y"])] * 100_001
    nodes = [node("MatMul", ["x", "w"], ["h"])]
    if place == "branch":
        body = helper.make_graph(many, "body", [], [helper.make_tensor_value_info("y", 1, None)])
        condition = helper.make_tensor("c", onnx.TensorProto.BOOL, [], [True])
        nodes += [node("Constant", [], ["c"], value=condition)]
        nodes += [node("If", ["c"], ["y"], then_branch=body, else_branch=body)]
        model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)})
    elif place == "function":
        nodes += [node("Many", ["h"], ["y"], domain="own")]
        functions = [function("Many", [*many, node("Neg", ["a"], ["c"])])]
        model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, functions=functions, domains=["own"])
    else:
        model = model_of([*nodes, *many], {"x": (2, 3)}, {"w": floats(3, 4)})
    with pytest.raises(TooManyOperationsError, match="more than 100,000 nodes"):
        imported(model)


@pytest.mark.parametrize(("condition", "chosen"), [(True, "Relu"), (False, "Neg")])
def test_a_known_condition_chooses_a_branch(condition: bool, chosen: str) -> None:
    def branch(type_: str) -> onnx.GraphProto:
        output = helper.make_empty_tensor_value_info(type_)
        return helper.make_graph([node(type_, ["h"], [type_])], type_, [], [output])

    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "c": np.asarray(condition)})).graph
    assert types_of(graph) == ["MatMul", chosen, "MeanSquaredError"]


def test_sequences_exist_in_the_importer_alone() -> None:
    nodes = [
        node("SplitToSequence", ["x", "two"], ["s"], axis=1),
        *nodes_of("SequenceAt s one h, MatMul h w y"),
    ]
    weights = {"two": np.asarray(2), "one": np.asarray(1), "w": floats(2, 4)}
    graph = imported(model_of(nodes, {"x": (3, 4)}, weights)).graph
    assert types_of(graph) == ["Split", "MatMul", "MeanSquaredError"]


def test_onnx_itself_defines_some_operators_by_others() -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Shrink", ["h"], ["y"], lambd=0.5, bias=0.25)]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)})).graph
    assert "Where" in types_of(graph)
    assert validate(graph, plan(graph), steps=2).identical


def test_random_numbers_are_drawn_anew_and_repeat() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("RandomNormalLike", ["h"], ["n"], scale=0.5, mean=1.0),
        *nodes_of("Bernoulli p b, Mul h b g, Add g n y"),
    ]  # fmt: skip
    weights = {"w": floats(3, 4), "p": np.full((2, 4), 0.5, np.float32)}
    graph = imported(model_of(nodes, {"x": (2, 3)}, weights)).graph
    assert types_of(graph).count("RandomUniform") == 3
    assert validate(graph, plan(graph), steps=3).identical
    batch = synthetic_batch(graph, 0, 1)
    with Trainer(graph, plan(graph)) as trainer:
        assert trainer.step(batch) != trainer.step(batch)


# ---------------------------------------------------------------------------------------- recognition


def after_product(nodes: list[onnx.NodeProto], **constants: Any) -> onnx.ModelProto:
    weights = {"fc.weight": floats(8, 8)} | {name.replace("__", "."): v for name, v in constants.items()}
    return model_of([node("MatMul", ["i", "fc.weight"], ["x"]), *nodes], {"i": (2, 8)}, weights)


LAYERS: dict[str, tuple[list[onnx.NodeProto], dict[str, Any], dict[str, Any]]] = {
    "Gelu": (
        nodes_of("Div x s a, Erf a b, Add b one c, Mul x c d, Mul d half y"),
        {"s": 2**0.5, "one": 1, "half": 0.5},
        {},
    ),
    "Gelu by tanh": (
        nodes_of(
            "Pow x three p, Mul p k q, Add x q r, Mul r s t, Tanh t u, Add u one v, Mul x half w, Mul w v y"
        ),
        {"three": 3, "k": 0.044715, "s": (2 / np.pi) ** 0.5, "one": 1, "half": 0.5},
        {"approximate": "tanh"},
    ),
    "Swish": (nodes_of("Sigmoid x s, Mul s x y"), {}, {}),
    "Swish of a multiple": (nodes_of("Mul x c z, Sigmoid z s, Mul x s y"), {"c": 1.75}, {"alpha": 1.75}),
    "HardSwish": ([node("HardSigmoid", ["x"], ["s"], alpha=1 / 6), node("Mul", ["x", "s"], ["y"])], {}, {}),
    "HardSwish by bounds": (
        nodes_of("Add x three a, Clip a zero six b, Mul x b c, Div c six y"),
        {"three": 3, "zero": 0, "six": 6},
        {},
    ),
    "LayerNormalization": (
        nodes_of(
            "ReduceMean x last m, Sub x m d, Pow d two q, ReduceMean q last v, Add v e w, Sqrt w r, "
            "Div d r o, Mul o ln.weight k, Add k ln.bias y"
        ),
        {"two": 2, "e": 0.5, "last": np.array([-1]), "ln__weight": floats(8), "ln__bias": floats(8)},
        {"axis": 1, "epsilon": 0.5},
    ),
    "LayerNormalization, no shift": (
        nodes_of(
            "ReduceMean x last m, Sub x m d, Mul d d q, ReduceMean q last v, Add v e w, Sqrt w r, "
            "Div d r o, Mul o ln.weight y"
        ),
        {"e": 0.5, "last": np.array([-1]), "ln__weight": floats(8)},
        {"axis": 1, "epsilon": 0.5},
    ),
    "RMSNormalization": (
        nodes_of(
            "Pow x two q, ReduceMean q last v, Add v e w, Sqrt w r, Reciprocal r i, Mul x i o, "
            "Mul n.weight o y"
        ),
        {"two": 2, "e": 0.5, "last": np.array([-1]), "n__weight": floats(8)},
        {"axis": 1, "epsilon": 0.5},
    ),
    "RMSNormalization, one divided": (
        nodes_of(
            "Mul x x q, ReduceMean q last v, Add e v w, Sqrt w r, Div one r i, Mul i x o, Mul o n.weight y"
        ),
        {"one": 1, "e": 0.5, "last": np.array([-1]), "n__weight": floats(8)},
        {"axis": 1, "epsilon": 0.5},
    ),
    "RMSNormalization, divided": (
        nodes_of("Mul x x q, ReduceMean q last v, Add v e w, Sqrt w r, Div x r o, Mul o n.weight y"),
        {"e": 0.5, "last": np.array([-1]), "n__weight": floats(8)},
        {"axis": 1, "epsilon": 0.5},
    ),
}


@grid("layer", LAYERS)
def test_layers_that_are_written_out_are_recognised_and_compute_the_same(layer: str) -> None:
    """As ONNX's own evaluator, which recognises nothing."""
    nodes, constants, attributes = LAYERS[layer]
    model = after_product(nodes, **constants)
    graph = imported(model).graph
    assert types_of(graph) == ["MatMul", layer.split()[0].rstrip(","), "MeanSquaredError"]
    assert dict(graph.operations[1].attributes) == attributes
    assert validate(graph, plan(graph), steps=2).identical
    batch = synthetic_batch(graph, 3, 1)
    with Trainer(graph, plan(graph)) as trainer:
        loss = trainer.step(batch)
    (y,) = ReferenceEvaluator(model).run(None, {"i": batch["i"]})
    assert loss == pytest.approx(float(np.mean((y - batch["label"]) ** 2)), rel=1e-4)


@pytest.mark.parametrize("number", [0.4, 2.0])
def test_what_only_looks_like_a_layer_is_left_alone(number: float) -> None:
    nodes, constants, _ = LAYERS["Gelu"]
    model = after_product(nodes, **{**constants, "half": number})
    assert "Gelu" not in types_of(imported(model).graph)


def _linear(rank: int, *, bias: bool, swapped: bool) -> onnx.ModelProto:
    """x W' + b as exporters write it, of two rows of eight and axes of 3 before them."""
    nodes = [node("Transpose", ["fc.weight"], ["t"], perm=[1, 0] if swapped else [0, 1])]
    nodes.append(node("MatMul", ["x", "t"], ["m" if bias else "y"]))
    if bias:
        nodes.append(node("Add", ["fc.bias", "m"], ["y"]))
    weights = {"fc.weight": floats(5, 8) if swapped else floats(8, 5), "fc.bias": floats(5)}
    return model_of(
        nodes, {"x": (*[3] * (rank - 2), 2, 8)}, weights if bias else {"fc.weight": weights["fc.weight"]}
    )


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rank", [2, 3, 4])
def test_a_product_with_a_transposed_weight_is_one_gemm(rank: int, bias: bool) -> None:
    model = _linear(rank, bias=bias, swapped=True)
    graph = imported(model).graph
    inner = ["Gemm"] if rank == 2 else ["Reshape", "Gemm", "Reshape"]
    assert types_of(graph) == [*inner, "MeanSquaredError"]
    batch = synthetic_batch(graph, 3, 1)
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.step(batch)
    (y,) = ReferenceEvaluator(model).run(None, {"x": batch["x"]})
    assert found == pytest.approx(float(np.mean((y - batch["label"]) ** 2)), rel=1e-5)
    assert validate(graph, plan(graph, PlanOptions(in_place=True)), steps=2).identical


def test_a_product_of_another_kind_stays() -> None:
    assert "MatMul" in types_of(imported(_linear(3, bias=True, swapped=False)).graph)


# ---------------------------------------------------------------------- what depends on integers that are fed

#: By name: nodes that make y of w [2, 4], a product of x and fc.weight, and of the integers i [2, 3].
OF_INTEGERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "GatherElements": ([node("GatherElements", ["w", "i"], ["y"], axis=1)], {}),
    "GatherND": ([node("GatherND", ["cube", "i"], ["y"])], {"cube": floats(3, 3, 3, 2)}),
    "ScatterElements": ([node("ScatterElements", ["w", "i", "u"], ["y"], axis=1)], {"u": floats(2, 3)}),
    "ScatterElements, added": (
        [node("ScatterElements", ["w", "i", "u"], ["y"], axis=1, reduction="add")],
        {"u": floats(2, 3)},
    ),
    "ScatterND": ([node("ScatterND", ["cube", "i", "w"], ["y"])], {"cube": floats(3, 3, 3, 4)}),
    "counted": (
        [
            node("Greater", ["i", "one"], ["g"]),
            node("Cast", ["g"], ["n"], to=7),
            node("ReduceSum", ["n", "axis"], ["s"], keepdims=1),
            node("Cast", ["s"], ["f"], to=1),
            node("Mul", ["w", "f"], ["y"]),
        ],
        {"one": np.array(1), "axis": np.array([1])},
    ),
    "whole numbers": (
        [
            *nodes_of("Mul i seven m, Mod m three r, Div m three q, Add r q s, Clip s one three c"),
            node("GatherElements", ["w", "c"], ["y"], axis=1),
        ],
        {"seven": np.array(7), "three": np.array(3), "one": np.array(1)},
    ),
    "Einsum of three": (
        [node("Einsum", ["w", "a", "b"], ["y"], equation="bi,bij,kj->bk")],
        {"a": floats(2, 4, 3), "b": floats(5, 3)},
    ),
    "TopK": ([node("TopK", ["w", "k"], ["y", "z"], axis=1)], {"k": np.array([2])}),
    "ArgMax": (
        [
            node("ArgMax", ["w"], ["a"], axis=1, keepdims=1),
            node("GatherElements", ["w", "a"], ["b"], axis=1),
            node("ReduceProd", ["w", "axis"], ["p"], keepdims=1),
            node("Mul", ["b", "p"], ["y"]),
        ],
        {"axis": np.array([1])},
    ),
}


@grid("name", OF_INTEGERS)
def test_what_is_computed_from_integers_is_what_onnx_says(name: str) -> None:
    nodes, constants = OF_INTEGERS[name]
    weights = {"fc.weight": floats(3, 4), **constants}
    first = node("MatMul", ["x", "fc.weight"], ["w"])
    model = model_of([first, *nodes], {"x": (2, 3), "i": ("int64", (2, 3))}, weights)
    graph = imported(model).graph
    batch = {"x": floats(2, 3), "i": np.array([[0, 2, 1], [2, 1, 0]])}
    (y,) = map(np.asarray, ReferenceEvaluator(model).run(None, batch))
    batch = {key: value for key, value in batch.items() if key in graph.operands}
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.step({**batch, "label": np.zeros(y.shape, np.float32)})
    assert found == pytest.approx(float(np.mean(y**2)), rel=1e-5)
    assert validate(graph, plan(graph), steps=2).identical


@grid("reduction", ["mean", "sum"])
@grid("ignored", [None, 2])
@grid("weighed", [False, True])
def test_classes_are_weighed_and_ignored(weighed: bool, ignored: int | None, reduction: str) -> None:
    given: dict[str, Any] = {"reduction": reduction} | ({} if ignored is None else {"ignore_index": ignored})
    inputs = ["s", "t", *(["share"] if weighed else [])]
    nodes = [
        node("MatMul", ["x", "fc.weight"], ["s"]),
        node("SoftmaxCrossEntropyLoss", inputs, ["y"], **given),
    ]
    weights = {"fc.weight": floats(3, 4)} | ({"share": np.array([1, 2, 3, 4], np.float32)} if weighed else {})
    model = model_of(nodes, {"x": (5, 3), "t": ("int64", (5,))}, weights)
    graph = imported(model, loss=None).graph
    batch = {"x": floats(5, 3), "t": np.array([0, 2, 3, 1, 2])}
    (y,) = map(np.asarray, ReferenceEvaluator(model).run(None, batch))
    with Trainer(graph, plan(graph)) as trainer:
        assert trainer.step(batch) == pytest.approx(float(y), rel=1e-5)


def test_a_normalisation_that_is_called_twice_has_statistics_for_each_call() -> None:
    names = ["bn.weight", "bn.bias", "bn.running_mean", "bn.running_var"]
    nodes = []
    for x in "ab":
        outputs = [f"{x}n", f"{x}m", f"{x}v"]
        nodes.append(node("BatchNormalization", [x, *names], outputs, training_mode=1))
    nodes.append(node("Mul", ["an", "bn"], ["y"]))
    weights = {name: np.array([1, 2, 3], np.float32) for name in names}
    found = imported(model_of(nodes, {"a": (4, 3), "b": (4, 3)}, weights))
    assert "updated by the first: bn.running_mean, bn.running_var" in " ".join(found.notes)
    assert list(roles(found.graph).values()).count("state") == 4
    assert validate(found.graph, plan(found.graph), steps=2).identical


@pytest.mark.parametrize("training", [0, 1])
def test_a_weight_that_is_stored_once_with_a_statistic_is_trained_and_the_statistic_is_not(
    training: int,
) -> None:
    """As PyTorch exports a normalisation that is new: its bias equals its mean, its weight its variance."""
    nodes = [
        *nodes_of("Identity bn.weight variance, Identity bn.bias mean, MatMul x w h"),
        node("BatchNormalization", ["h", "bn.weight", "bn.bias", "mean", "variance"], ["y", "a", "b"],
             training_mode=training),
    ]  # fmt: skip
    if not training:
        del nodes[-1].output[1:]
    weights = {"w": floats(3, 4), "bn.weight": np.abs(floats(4)) + 1, "bn.bias": floats(4)}
    graph = imported(model_of(nodes, {"x": (5, 3)}, weights, opset=17)).graph
    assert set(graph.trainable) == set(weights)
    states = [o for o in graph.operands.values() if o.role is Role.STATE]
    values = [o.initializer.data for o in states if o.initializer is not None]
    assert values == [weights["bn.bias"].tobytes(), weights["bn.weight"].tobytes()]
    assert validate(graph, plan(graph), steps=2).identical


def test_a_normalisation_whose_statistics_the_model_computes_has_states_of_its_own() -> None:
    """As PyTorch exports one that tracks none."""
    nodes = [
        node("ReduceMean", ["x"], ["m"], axes=[0], keepdims=0),
        node("BatchNormalization", ["x", "bn.weight", "bn.bias", "m", "m"], ["y", "a", "b"], training_mode=1),
    ]
    weights = {"bn.weight": floats(3), "bn.bias": floats(3)}
    graph = imported(model_of(nodes, {"x": (4, 3)}, weights, opset=17)).graph
    assert types_of(graph) == ["BatchNormalization", "MeanSquaredError"]
    assert validate(graph, plan(graph), steps=2).identical


def test_a_function_need_not_define_what_nothing_reads() -> None:
    """ONNX's Attention has the keys for the next step among its outputs, which training does not read."""
    nodes = [
        *(node("MatMul", ["x", f"{name}.weight"], [name]) for name in "qkv"),
        node("Attention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=2),
    ]
    weights = {f"{name}.weight": floats(6, 6) for name in "qkv"}
    model = model_of(nodes, {"x": (2, 3, 6)}, weights, opset=23)
    assert "Softmax" in types_of(imported(model).graph)


# -------------------------------------------------------------------------------------------- refusals


def test_all_missing_operators_are_named_at_once() -> None:
    nodes = [
        node("MatMul", ["x", "w"], ["h"]),
        node("Det", ["h"], ["a"], name="first"), node("Det", ["h"], ["b"], name="second"),
        node("NonMaxSuppression", ["a", "b"], ["c"], name="third"), node("Relu", ["c"], ["d"]),
        node("Foo", ["d"], ["y"], name="fourth", domain="acme"),
    ]  # fmt: skip
    model = model_of(nodes, {"x": (2, 2)}, {"w": floats(2, 2)}, domains=["acme"])
    with pytest.raises(UnknownOperatorError, match="3 operators") as caught:
        imported(model)
    for part in ("Det (first, second)", "NonMaxSuppression (third)", "acme.Foo (fourth)"):
        assert part in caught.value.message
    assert "arenaplan operators" in caught.value.remedy


def test_names_lose_what_no_name_may_hold() -> None:
    nodes = [node("MatMul", ["x", "a@b\n"], ["y"], name="n@1")]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"a@b\n": floats(3, 4)})).graph
    assert graph.trainable == ("a_b_",)
    assert graph.operations[0].id == "n_1"


def test_weights_of_sixteen_bits_are_taken_as_float32() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    wide = floats(30, 40)
    model = model_of(nodes, {"x": (2, 30)}, {"w": wide.astype(np.float16)})
    graph = imported(model).graph
    given = graph.operands["w"].initializer
    assert given is not None
    assert given.data == wide.astype(np.float16).astype(np.float32).tobytes()


@pytest.mark.parametrize("text", [b"", b"\x08\x07", b"{}", b"[Model]\n", bytes(range(256))])
def test_what_is_not_a_model(text: bytes) -> None:
    with pytest.raises(ArenaplanError):
        load_onnx(text, options=ImportOptions(loss="mse"))


# ------------------------------------------------------------------------- what comes before the trained part


def headed(*prefix: onnx.NodeProto, x: tuple[int, ...] = (4, 3), **weights: Any) -> onnx.ModelProto:
    """A prefix from x to h, and a trained product behind it."""
    nodes = [*prefix, node("MatMul", ["h", "head.weight"], ["y"])]
    return model_of(nodes, {"x": x}, {**weights, "head.weight": floats(3, 5)})


@pytest.mark.parametrize("op", ["Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"])
def test_inverse_functions_are_planned_before_a_head_and_trained_through(op: str) -> None:
    graph = imported(headed(node(op, ["x"], ["h"])), trainable=("head.weight",)).graph
    program = plan(graph).program
    assert [step.phase.word for step in program.steps if program.kernel(step) == op] == ["forward"]
    nodes = [node("MatMul", ["x", "w"], ["a"]), node(op, ["a"], ["y"])]
    trained = imported(model_of(nodes, {"x": (4, 3)}, {"w": floats(3, 5)})).graph
    assert "w" in trained.trainable
    assert validate(trained, plan(trained), steps=2).identical


#: An operator that nothing here knows, with shape inference of ONNX's.
def unknown(x: str, y: str) -> onnx.NodeProto:
    return node("Det", [x], [y])


def strange(x: str, y: str) -> onnx.NodeProto:
    """Of a domain that nobody knows, and so without shapes."""
    return node("Strange", [x], [y], domain="com.example")


def two_paths() -> onnx.ModelProto:
    """An unknown operator on one of two paths that meet in `sum`; then two layers."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        strange("a", "b"),
        *nodes_of("Mul b x sum, Relu sum h, MatMul h first.weight m, MatMul m head.weight y"),
    ]
    made = model_of(
        nodes,
        {"x": ("n", 3)},
        {"first.weight": floats(3, 4), "head.weight": floats(4, 2)},
        domains=["com.example"],
    )
    made.graph.value_info.append(helper.make_tensor_value_info("sum", onnx.TensorProto.FLOAT, ["n", 3]))
    return made


def test_remedies_with_names_that_a_shell_takes_apart_are_quoted() -> None:
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("the batch", 3)}, {"w": floats(3, 4)})
    with pytest.raises(DimensionError) as caught:
        imported(model)
    assert caught.value.remedy == "Give --dim 'the batch=SIZE'."
    assert imported(model, dims={"the batch": 2}).graph.trainable == ("w",)


def test_the_refusal_names_a_tensor_whose_sizes_the_caller_has_to_say() -> None:
    nodes = [strange("x", "h"), *nodes_of("MatMul h w y, Add y b z")]
    model = model_of(
        nodes, {"x": (2, 3)}, {"w": floats(4, 5), "b": floats(5)}, outputs=("z",), domains=["com.example"]
    )
    with pytest.raises(UnknownOperatorError) as caught:
        imported(model)
    assert "--freeze-before h, which" in caught.value.remedy
    assert "--dim 'h[0]=SIZE'" in caught.value.remedy
    graph = imported(model, freeze_before=("h",), dims={"h[0]": 2, "h[1]": 4}).graph
    assert graph.trainable == ("w", "b")


def test_what_follows_a_tensor_is_the_same_network() -> None:
    found = imported(two_paths(), freeze_before=("sum",), dims={"n": 5})
    assert roles(found.graph) == {
        "sum": "input", "first.weight": "parameter", "head.weight": "parameter", "label": "label"
    }  # fmt: skip
    assert shape_of(found.graph, "sum") == (5, 3)
    assert "Frozen before 'sum': 3 of 6 nodes are not imported." in found.notes
    assert validate(found.graph, plan(found.graph), steps=2).identical


def test_training_behind_a_tensor_is_training_of_the_whole_with_the_rest_frozen() -> None:
    prefix = nodes_of("MatMul x body.weight a, Tanh a h")
    model = headed(*prefix, **{"body.weight": floats(3, 3)})
    whole = imported(model, trainable=("head.weight",)).graph
    part = imported(model, freeze_before=("h",)).graph
    x, label = floats(4, 3), floats(4, 5)
    body = numpy_helper.to_array(model.graph.initializer[0])
    with Trainer(whole, plan(whole)) as one, Trainer(part, plan(part)) as other:
        for _ in range(3):
            expected = one.step({"x": x, "label": label})
            assert other.step({"h": np.tanh(x @ body), "label": label}) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("options", [{"batch": 5}, {"dims": {"n": 5}}, {"dims": {"x[0]": 5}}])
def test_sizes_of_inputs_that_are_left_out_reach_what_follows(options: dict[str, Any]) -> None:
    nodes = [node("Flatten", ["x"], ["f"]), unknown("z", "d"), node("Mul", ["f", "d"], ["h"])]
    nodes.append(node("MatMul", ["h", "w"], ["y"]))
    model = model_of(nodes, {"x": ("n", 2, 3), "z": (2, 2)}, {"w": floats(6, 2)})
    assert shape_of(imported(model, freeze_before=("h",), **options).graph, "h") == (5, 6)


@pytest.mark.parametrize("options", [{"batch": 5}, {"dims": {"x[0]": 5}}])
def test_another_batch_than_the_fixed_one_reaches_what_follows(options: dict[str, Any]) -> None:
    nodes = [node("Flatten", ["x"], ["f"]), unknown("z", "d"), node("Mul", ["f", "d"], ["h"])]
    nodes.append(node("MatMul", ["h", "w"], ["y"]))
    model = model_of(nodes, {"x": (1, 2, 3), "z": (2, 2)}, {"w": floats(6, 2)})
    model.graph.value_info.append(helper.make_tensor_value_info("h", onnx.TensorProto.FLOAT, [1, 6]))
    graph = imported(model, freeze_before=("h",), **options).graph
    assert (shape_of(graph, "h"), shape_of(graph, "label")) == ((5, 6), (5, 2))


def test_the_caller_may_say_a_shape_that_nothing_tells() -> None:
    model = headed(strange("x", "h"))
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(DimensionError, match="shape of 'h' is not known") as caught:
        imported(model, freeze_before=("h",))
    assert "--dim 'h[0]=SIZE'" in caught.value.remedy
    graph = imported(model, freeze_before=("h",), dims={"h[0]": 7, "h[1]": 3}).graph
    assert shape_of(graph, "h") == (7, 3)
    with pytest.raises(DimensionError, match="no dimension 'q'"):
        imported(model, freeze_before=("h",), dims={"h[0]": 7, "h[1]": 3, "q": 1})


def test_several_tensors_and_one_output_of_several() -> None:
    nodes = [
        node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        strange("a", "c"),
        *nodes_of("Add c b h, MatMul h head.weight y"),
    ]
    model = model_of(nodes, {"x": (4, 3)}, {"head.weight": floats(3, 5)}, domains=["com.example"])
    dims = {"c[0]": 2, "c[1]": 3}
    graph = imported(model, freeze_before=("c",), dims=dims).graph
    assert {"c", "x"} <= set(roles(graph))
    both = imported(model, freeze_before=("c", "b"), dims=dims).graph
    assert set(roles(both)) == {"c", "b", "head.weight", "label"}
    assert validate(both, plan(both), steps=1).identical


def test_a_hostile_model_that_is_refused_is_not_inferred_without_end() -> None:
    """Inference of shapes must neither follow functions for ever nor make constants."""
    again = helper.make_function(
        "local", "f", ["i"], ["o"], [node("f", ["i"], ["o"], domain="local")],
        [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)],
    )  # fmt: skip
    nodes = [node("f", ["x"], ["a"], domain="local"), node("ConstantOfShape", ["s"], ["c"])]
    nodes += nodes_of("Add a c h, MatMul h head.weight y")
    weights = {"s": np.array([2**40]), "head.weight": floats(3, 5)}
    model = model_of(nodes, {"x": (4, 3)}, weights, functions=[again], domains=["local"])
    with pytest.raises((GraphError, DocumentError)):
        imported(model)
    with pytest.raises((GraphError, DocumentError)):
        imported(model, freeze_before=("a",))


#: A model, the choices for its import, the error, and words of its message and of its remedy.
REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], dict[str, Any], type[ArenaplanError], str, str]] = {
    "no parameters": (
        lambda: model_of(nodes_of("Relu x y"), {"x": (2, 3)}),
        {}, TrainableError, "no parameters", "",
    ),
    "no such dimension": (dense, {"dims": {"seq": 7}}, DimensionError, "no dimension 'seq'", ""),
    "a batch of none": (dense, {"batch": 0}, BatchError, "The batch is 0", ""),
    "a batch of a scalar": (
        lambda: model_of(nodes_of("Mul x w y"), {"x": ()}, {"w": floats(3)}),
        {"batch": 2}, BatchError, "no input has an axis", "",
    ),
    "open dimensions": (
        lambda: model_of(nodes_of("MatMul x w y"), {"x": ("batch", None, 3)}, {"w": floats(3, 4)}),
        {}, DimensionError, "2 dimensions open: batch (of x[0]), x[1]",
        "Give --dim batch=SIZE --dim x[1]=SIZE.",
    ),
    "no such input": (chooses, {"inputs": {"r": 1}}, OptionsError, "no input 'r'", ""),
    **{
        f"an input of {value}": (
            chooses, {"inputs": {"rate": value}}, OptionsError, "'rate' is int64", "Give one number",
        )
        for value in (True, [True], math.nan, 0.5, -math.inf, 1.5, [1, 2], 10**24, -(2**63) - 1)
    },
    "a constant that would be huge": (
        lambda: model_of(nodes_of("ConstantOfShape s c, Add x c y"), {"x": (1,)}, {"s": np.array([2**40])}),
        {}, DocumentError, "would have to be made", "",
    ),
    "no loss": (
        dense, {"loss": None, "trainable": 1}, LossError,
        "none of its outputs is a number, and --trainable", "--loss",
    ),
    "no such output": (dense, {"output": "z"}, LossError, "no output 'z'", ""),
    "no such output to keep": (
        with_three_outputs, {"keep_outputs": ("z",)}, OptionsError,
        "no output 'z' that depends on its inputs", "Its outputs are y, h, beside.",
    ),
    "faults of two nodes": (
        lambda: model_of(
            [
                *(node("Reshape", ["x", "s"], [name], name=name) for name in ("one", "two")),
                *nodes_of("Add one two y"),
            ],
            {"x": (2, 3), "s": ("int64", (2,))},
        ),
        {}, GraphError,
        ("'one' (Reshape) cannot be imported: the shape (input 1) is computed from what the caller gives."
         " (1 more node"),
        "",
    ),
    "an old opset": (lambda: dense(opset=5), {}, DocumentError, "opset 5; 7 to", "another"),
    "a new opset": (lambda: dense(opset=99), {}, DocumentError, "opset 99; 7 to", "older"),
    "a value that nothing defines": (
        lambda: model_of(nodes_of("Relu z y"), {"x": (2,)}),
        {}, DocumentError, "reads 'z', which nothing defines", "",
    ),
    "a function that calls itself": (
        lambda: model_of(
            [*nodes_of("MatMul x w h"), node("Endless", ["h"], ["y"], domain="own")],
            {"x": (2, 3)},
            {"w": floats(3, 4)},
            functions=[function("Endless", [node("Endless", ["a"], ["c"], domain="own")])],
            domains=["own"],
        ),
        {}, TooManyOperationsError, "calls within calls", "",
    ),
    "an unknown operator in front": (
        two_paths, {"dims": {"n": 5}}, UnknownOperatorError, "com.example.Strange", "--freeze-before sum,",
    ),
    **{
        f"frozen before {name}": (
            lambda: headed(*nodes_of("Relu x h, Relu h aside")),
            {"freeze_before": (name,)}, GraphError, why, "Did you mean 'h'" if name == "hh" else "",
        )
        for name, why in (
            ("x", "it is an input"), ("head.weight", "it is a weight"), ("hh", "no operator has an output"),
            ("aside", "the loss does not depend on it"),
        )
    },
}  # fmt: skip


@grid("case", REFUSED)
def test_models_and_choices_that_are_refused(case: str) -> None:
    model, choices, error, words, remedy = REFUSED[case]
    with pytest.raises(error) as caught:
        imported(model(), **choices)
    assert words in caught.value.message
    assert remedy in caught.value.remedy
    assert ("Did you mean" in caught.value.remedy) == ("Did you mean" in remedy)
    if "inputs" in choices:
        assert caught.value.path == ("input",)
