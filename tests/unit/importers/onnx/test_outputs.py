"""Outputs of a model: what they do not need is left out, and they have their names and their values."""

from __future__ import annotations

import copy
import re
import shlex
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from solver.errors import ArenaplanError, LossError
from solver.executor import Trainer, synthetic_batch
from solver.pipeline import plan
from tests.support.onnx_models import imported, model_of, node, nodes_of

RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def branch(*nodes: onnx.NodeProto, output: str) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), output, [], [helper.make_empty_tensor_value_info(output)])


def check_inference(model: onnx.ModelProto, *names: str, **options: Any) -> None:
    """The graph has the outputs `names`, with the values of ONNX's reference evaluator."""
    graph = imported(model, loss="none", **options).graph
    assert graph.outputs == names
    model = copy.deepcopy(model)
    nodes = [one for one in model.graph.node if one.op_type != "NonMaxSuppression"]
    del model.graph.node[:], model.graph.output[:]
    model.graph.node.extend(nodes)
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    batch = synthetic_batch(graph, 0, 0)
    rest = {v.name: np.zeros([d.dim_value or 1 for d in v.type.tensor_type.shape.dim], np.float32)
            for v in model.graph.input if v.name not in batch}  # fmt: skip
    expected = ReferenceEvaluator(model).run(list(names), batch | rest)
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.infer(batch)
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6)


# ------------------------------------------------------------------------------------ what is left out


def detector() -> onnx.ModelProto:
    """Non-maximum suppression behind boxes, which need x, and scores, which need s of an open size."""
    nodes = [
        *nodes_of("MatMul x w b, Reshape b four boxes, MatMul s v q, Sigmoid q r, Reshape r two scores"),
        node("NonMaxSuppression", ["boxes", "scores", "most"], ["picked"]),
    ]
    weights = {"w": floats(4, 8), "v": floats(3, 4), "four": np.array([1, 2, 4]), "two": np.array([1, 2, 2]),
               "most": np.array([2])}  # fmt: skip
    return model_of(nodes, {"x": (1, 4), "s": ("n", 3)}, weights, outputs=("picked", "boxes"))


def gated() -> onnx.ModelProto:
    """A branch that the data choose, behind a logit."""
    nodes = [
        *nodes_of("MatMul x w logit, ReduceMax logit m, Greater m zero c"),
        node(
            "If",
            ["c"],
            ["y"],
            then_branch=branch(*nodes_of("Neg logit a"), output="a"),
            else_branch=branch(*nodes_of("Abs logit e"), output="e"),
        ),
    ]
    nodes[1].attribute.append(helper.make_attribute("keepdims", 0))
    weights = {"w": floats(4, 3), "zero": np.zeros((), np.float32)}
    return model_of(nodes, {"x": (2, 4)}, weights, outputs=("y", "logit"))


@pytest.mark.parametrize(("model", "name"), [(detector, "boxes"), (detector, "b"), (gated, "logit")])
def test_an_output_needs_only_what_leads_to_it(model: Any, name: str) -> None:
    found = imported(model(), output=name)
    assert found.graph.trainable == ("w",)
    assert any(note.startswith(f"Left out, as {name!r} does not depend on it") for note in found.notes)
    check_inference(model(), name, output=name)
    if model is detector:  # sizes of inputs that are left out are not asked for, and do no harm
        check_inference(model(), name, output=name, dims={"s[0]": 1, "n": 1})


@pytest.mark.parametrize("loss", ["mse", "none"])
@pytest.mark.parametrize("model", [detector, gated])
def test_the_refusal_names_an_output_that_can_be_planned(model: Any, loss: str) -> None:
    dims = {"n": 1} if model is detector else {}
    with pytest.raises(ArenaplanError) as caught:
        imported(model(), loss=loss, dims=dims)
    option = re.match(r"Plan another output with (--output-name .*?)\. ", caught.value.remedy)
    assert option is not None
    name = shlex.split(option[1])[1]
    assert imported(model(), loss=loss, dims=dims, output=name).graph.operations


def test_the_outputs_that_are_kept_are_computed() -> None:
    nodes = nodes_of("MatMul x w y, Tanh y z, NonZero y n")
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, outputs=("n", "y", "z"))
    assert imported(model, output="y", keep_outputs=("z",)).graph.outputs == ("z",)
    check_inference(model, "z", output="y", keep_outputs=("z",))
    with pytest.raises(LossError, match="no output 'k'"):
        imported(model, output="k")


# ------------------------------------------------------------------------------- inputs and constants


def test_outputs_that_are_inputs_or_constants_are_results() -> None:
    nodes = nodes_of("MatMul x w y, Identity x same, Identity c table, Identity w weight, Identity s number")
    weights = {"w": floats(4, 3), "c": np.arange(3), "s": np.array(2.0, np.float32)}
    outputs = ("y", "same", "table", "weight", "number")
    model = model_of(nodes, {"x": (2, 4)}, weights, outputs=outputs)
    assert not any("depend" in note for note in imported(model, loss="none").notes)
    check_inference(model, *outputs)
    check_inference(model, "table", output="table")
    assert imported(model, loss="mse").graph.outputs == ()
    assert imported(model, loss="mse", keep_outputs="all").graph.outputs == outputs


def test_an_output_of_the_name_of_an_input_or_a_weight_is_named() -> None:
    model = model_of(nodes_of("MatMul x w y"), {"x": (2, 4)}, {"w": floats(4, 3)}, outputs=("y", "x", "w"))
    found = imported(model, loss="none")
    assert found.graph.outputs == ("y",)
    assert "Not among the results, as no operator computes it: output 'x', 'w'." in found.notes


# ------------------------------------------------------------------------------------------------ names


def test_outputs_have_the_names_of_the_model() -> None:
    """Whatever its nodes, and the tensors of its functions and branches, are called."""
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "F", ["a"], ["y"], nodes_of("Neg a chance, Exp chance y"), opsets)
    inner = branch(*nodes_of("Tanh h y"), output="y")
    nodes = [
        node("MatMul", ["x", "w"], ["h"], name="chance"),
        node("F", ["h"], ["first"], domain="own", name="y"),
        node("If", ["c"], ["second"], then_branch=inner, else_branch=inner, name="first"),
        node("Sigmoid", ["h"], ["chance"], name="second"),
        node("Identity", ["first"], ["y"]),
        node("Identity", ["h"], ["last"], name="w"),
    ]
    outputs = ("chance", "second", "y", "last")
    model = model_of(nodes, {"x": ("n", 4)}, {"w": floats(4, 3), "c": np.array(True)}, outputs=outputs,
                     functions=[function], domains=["own"])  # fmt: skip
    check_inference(model, *outputs, dims={"n": 2})
    assert "w" in imported(model, dims={"n": 2}).graph.trainable
