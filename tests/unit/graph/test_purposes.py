"""Inference and evaluation: what becomes of operators, operands and outputs of a training graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

import arenaplan
from solver.documents import load_graph
from solver.errors import BatchError, GraphError, LossError, ShapeMismatchError, TrainableError
from solver.graph import Initializer, OptimizerSpec, Role, TrainableGraph, TrainingRules, build_graph
from solver.graph.purposes import evaluation, inference
from tests.support.documents import graph_document
from tests.support.graphs import Sketch, chain


def network(*, outputs: tuple[str, ...] = ()) -> TrainableGraph:
    """Gemm, BatchNormalization and Dropout twice, of which the last defines the logits."""
    s = Sketch("network")
    x = s.input("x", 4, 6)
    for k, (a, b) in enumerate(((6, 8), (8, 3))):
        x = s.op("Gemm", [x, s.parameter(f"w{k}", a, b)], f"h{k}")
        affine = [s.parameter(f"{name}{k}", b) for name in ("scale", "shift")]
        running = [s.state(f"{name}{k}", b) for name in ("mean", "variance")]
        x = s.op("BatchNormalization", [x, *affine, *running], f"n{k}", training_mode=1, momentum=0.8)
        x = s.op("Dropout", [x], f"d{k}", ratio=0.3, seed=k + 1)
    s.op("CategoricalCrossEntropy", [x, s.label("t", 4, 3)], "loss", from_logits=1)
    return s.graph(outputs=outputs, optimizer="Adam", training=TrainingRules(accumulate=2))


def types(graph: TrainableGraph) -> list[str]:
    return [operation.type for operation in graph.operations]


def test_an_inference_has_no_loss_no_labels_and_no_dropout() -> None:
    graph = inference(network(outputs=("n1",)))
    assert types(graph) == ["Gemm", "BatchNormalization"] * 2
    assert graph.outputs == ("n1",)
    assert (graph.loss, graph.optimizer, graph.trainable) == (None, None, ())
    assert graph.training == TrainingRules()
    assert {operand.role for operand in graph.operands.values()}.isdisjoint({Role.LABEL})


def test_readers_of_dropout_read_its_input() -> None:
    assert inference(network(outputs=("n1",))).operations[2].inputs == ("n0", "w1")


def test_dropout_whose_output_is_a_result_is_the_identity_of_that_name() -> None:
    graph = inference(network())
    assert graph.outputs == ("d1",)
    last = graph.operations[-1]
    assert (last.type, last.inputs, last.outputs) == ("Dropout", ("n1",), ("d1",))
    assert last.attributes["ratio"] == 0


def test_batch_norm_reads_the_running_statistics_with_its_other_attributes() -> None:
    norm = inference(network()).operations[1]
    assert dict(norm.attributes) == {"training_mode": 0, "momentum": 0.8}
    assert norm.inputs == ("h0", "scale0", "shift0", "mean0", "variance0")


def test_operands_that_remain_are_the_same_in_the_same_order() -> None:
    graph = network(outputs=("n0",))
    for kept in (inference(graph).operands, evaluation(graph).operands):
        assert list(kept.items()) == [(name, o) for name, o in graph.operands.items() if name in kept]


def test_an_evaluation_keeps_loss_labels_and_outputs() -> None:
    graph = evaluation(network(outputs=("n1", "n0")))
    assert types(graph) == [*["Gemm", "BatchNormalization"] * 2, "CategoricalCrossEntropy"]
    assert graph.operations[-1].inputs == ("n1", "t")
    assert (graph.loss, graph.outputs, graph.trainable) == ("loss", ("n1", "n0"), ())
    assert graph.training == TrainingRules()


def test_the_optimizer_makes_no_other_evaluation() -> None:
    assert evaluation(chain(optimizer="SGD")) == evaluation(chain(optimizer="Adam"))


def test_both_are_their_own() -> None:
    graph = network(outputs=("n1",))
    assert inference(inference(graph)) == inference(graph)
    assert evaluation(evaluation(graph)) == evaluation(graph)
    assert inference(evaluation(graph)) == inference(graph)


def test_an_inference_is_not_evaluated() -> None:
    with pytest.raises(LossError, match="no loss to evaluate"):
        evaluation(inference(network()))


def masked(*operations: tuple[str, list[str], str]) -> TrainableGraph:
    """Ones and zeros, drawn for each example, in operations that end in y."""
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.add("ones", Role.CONSTANT, (4, 1), initializer=Initializer("ones"))
    s.add("share", Role.CONSTANT, (), initializer=Initializer("constant", value=0.75))
    s.op("Dropout", ["ones"], "mask", ratio=0.25)
    s.op("Mul", ["mask", "share"], "kept")
    for type_, inputs, output in operations:
        s.op(type_, inputs, output)
    s.op("MeanSquaredError", ["y", s.label("t", 4, 5)], "loss")
    return s.graph()


def test_a_mask_that_is_a_factor_is_its_mean() -> None:
    """As stochastic depth and dropout of channels have it: the mask is scaled, and multiplied by."""
    graph = inference(masked(("Div", ["kept", "share"], "u"), ("Mul", ["h", "u"], "y")))
    assert types(graph) == ["Gemm", "Mul", "Div", "Mul"]
    assert graph.operations[1].inputs == ("ones", "share")


@pytest.mark.parametrize(
    "uses",
    [
        [("Sub", ["share", "kept"], "rest"), ("Mul", ["h", "rest"], "y")],
        [("Add", ["h", "kept"], "y")],
        [("Div", ["h", "kept"], "y")],
        [("Mul", ["kept", "kept"], "twice"), ("Mul", ["h", "twice"], "y")],
    ],
)
def test_a_mask_that_is_more_than_a_factor_is_refused(uses: list[tuple[str, list[str], str]]) -> None:
    """As in alpha dropout, where what is dropped becomes another number."""
    graph = masked(*uses)
    for purpose in (inference, evaluation):
        with pytest.raises(GraphError, match=r"'mask.op' draws a mask, and .* reads it as more") as caught:
            purpose(graph)
        assert caught.value.path[0] == "operations"


# -------------------------------------------------------------------------- outputs of an inference


def heads() -> Sketch:
    """Two predictions of one layer, whose losses are added to a third number that no label reaches."""
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.op("Relu", ["h"], "a")
    s.op("Sigmoid", ["h"], "b")
    s.op("MeanSquaredError", ["a", s.label("t", 4, 5)], "loss_a")
    s.op("MeanAbsoluteError", ["b", s.label("u", 4, 5)], "loss_b")
    s.op("ReduceMean", ["h", s.integers("axes", 0, 1)], "size", keepdims=0)
    s.op("Add", ["loss_a", "loss_b"], "both")
    s.op("Add", ["both", "size"], "loss")
    return s


def test_predictions_are_what_losses_compare_with_labels() -> None:
    graph = inference(heads().graph())
    assert graph.outputs == ("a", "b")
    assert types(graph) == ["Gemm", "Relu", "Sigmoid"]
    assert set(graph.operands) == {"x", "w", "h", "a", "b"}


def test_named_outputs_come_first_without_those_that_depend_on_labels() -> None:
    assert inference(heads().graph(outputs=["loss_a", "b", "loss"])).outputs == ("b",)
    assert inference(heads().graph(outputs=["loss_a", "t"])).outputs == ("a", "b")


def test_an_output_that_nothing_of_an_inference_reads_is_left_out() -> None:
    s = heads()
    assert inference(s.graph(outputs=["x", "a", "u", "w"])).outputs == ("x", "a", "w")
    assert evaluation(s.graph(outputs=["x", "a", "u"])).outputs == ("x", "a", "u")


def test_a_loss_of_elementary_operations() -> None:
    """The label goes through an operation of its own before it is compared."""
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.op("Neg", [s.label("t", 4, 5)], "negative")
    s.op("Add", ["h", "negative"], "difference")
    s.op("Mul", ["difference", "difference"], "square")
    s.op("ReduceMean", ["square", s.integers("axes", 0, 1)], "loss", keepdims=0)
    assert inference(s.graph()).outputs == ("h",)


def test_the_prediction_may_be_the_second_operand() -> None:
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.op("MeanSquaredError", [s.label("t", 4, 5), "h"], "loss")
    assert inference(s.graph()).outputs == ("h",)


def test_an_autoencoder_compares_with_its_input() -> None:
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    s.op("MeanSquaredError", ["h", "x"], "loss")
    assert inference(s.graph()).outputs == ("h",)


def test_a_label_that_the_prediction_reads_stays() -> None:
    """As a decoder reads the tokens that it is to predict."""
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.op("Mul", ["h", s.label("t", 4, 5)], "y")
    s.op("MeanSquaredError", ["y", "t"], "loss")
    graph = inference(s.graph())
    assert graph.outputs == ("y",)
    assert graph.operands["t"].role is Role.LABEL


def test_without_outputs_and_predictions_there_is_no_inference() -> None:
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    s.op("ReduceMean", ["h", s.integers("axes", 0, 1)], "loss", keepdims=0)
    with pytest.raises(LossError, match="There is no prediction") as caught:
        inference(s.graph())
    assert caught.value.path == ("outputs",)
    assert inference(s.graph(outputs=["h"])).outputs == ("h",)


def test_random_numbers_that_the_graph_draws_stay() -> None:
    s = Sketch()
    s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "h")
    s.op("RandomUniform", [s.integers("shape", 4, 5)], "noise", seed=3)
    s.op("Add", ["h", "noise"], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 5)], "loss")
    assert types(inference(s.graph())) == ["Gemm", "RandomUniform", "Add"]


# ---------------------------------------------------------------------------- graphs without a loss


def forward(**more: Any) -> TrainableGraph:
    s = heads()
    arguments = {"loss": None, "optimizer": None, "outputs": ["a"], **more}
    return build_graph("forward", s.operands[:2], s.operations[:2], **arguments)


def test_a_graph_without_a_loss_is_an_inference() -> None:
    graph = forward()
    assert (graph.loss, graph.optimizer, graph.trainable) == (None, None, ())
    adam = OptimizerSpec("Adam", {"learning_rate": 0.1})
    assert forward(optimizer=adam, training=TrainingRules(accumulate=2)) == graph
    assert forward(trainable=[]) == forward(loss=[]) == graph


def test_a_graph_without_a_loss_trains_nothing() -> None:
    for trainable in (["w"], 1):
        with pytest.raises(LossError, match="parameters to train and no loss") as caught:
            forward(trainable=trainable)
        assert caught.value.path == ("loss",)


def test_a_graph_without_a_loss_has_an_output_that_is_computed() -> None:
    for outputs in ([], ["x", "w"]):
        with pytest.raises(LossError, match="no loss and no output that an operation defines"):
            forward(outputs=outputs)


def test_training_needs_an_optimizer_and_evaluation_does_not() -> None:
    s = heads()
    with pytest.raises(TrainableError, match="names no optimizer") as caught:
        build_graph("g", s.operands, s.operations, loss="loss", optimizer=None)
    assert caught.value.path == ("optimizer",)
    graph = build_graph(s.name, s.operands, s.operations, loss="loss", optimizer=None, trainable=[])
    assert graph == evaluation(s.graph())


# -------------------------------------------------------------------------------- batches of their own


def loaded(sizes: Sequence[int] = (-1, 6), batch: int | None = None) -> TrainableGraph:
    """The small network of documents, whose batch is symbolic and 4; `sizes` are those of its Reshape."""
    document = graph_document()
    document["operands"][2]["initializer"]["values"] = list(sizes)
    return load_graph(document, batch=batch)


@pytest.mark.parametrize("purpose", [inference, evaluation])
def test_the_batch_of_an_entry_point_is_its_own(purpose: Callable[[TrainableGraph], TrainableGraph]) -> None:
    graph = purpose(loaded(batch=1))
    assert graph.operands["image"].shape == (1, 2, 3)
    assert graph.operands["probabilities"].shape == (1, 5)
    assert purpose(loaded()).at(batch=1) == graph
    assert graph.sizes == {"batch": 1}
    assert purpose(loaded()).at(batch=1).at(batch=4) == purpose(loaded())


def test_sizes_of_an_inference_are_those_of_its_inputs() -> None:
    resizable = inference(loaded()).resizable
    assert resizable is not None
    assert resizable.axes == {"image": ("batch", None, None)}
    assert inference(network()).resizable is None


def test_changes_of_the_training_graph_go_to_other_batches() -> None:
    operands = dict(loaded().operands)
    operands["bias"] = replace(operands["bias"], initializer=Initializer("ones"))
    graph = loaded().with_graph(operands=operands)
    assert inference(graph).at(batch=2).operands["bias"].initializer == Initializer("ones")


def test_short_batches_are_inferred_in_a_plan_for_a_range() -> None:
    """Bit for bit as in a plan of that size."""
    graph = inference(loaded())
    made = arenaplan.plan(graph, batch="1..4")
    with arenaplan.Trainer(graph, made) as trainer:
        for size in (4, 1, 3):
            there = graph.at(batch=size)
            batch = arenaplan.synthetic_batch(there, seed=size, step=1)
            with arenaplan.Trainer(there, arenaplan.plan(there)) as other:
                expected = other.infer(batch)["probabilities"]
            found = trainer.infer(batch)["probabilities"]
            assert found.tobytes() == expected.tobytes()


def test_sizes_of_a_reshape_that_spell_out_the_batch_are_named() -> None:
    assert loaded((4, 6)).sizes == {"batch": 4}
    with pytest.raises(ShapeMismatchError) as caught:
        loaded((4, 6), batch=1)
    assert caught.value.remedy == (
        "Constant 'flat.shape', the sizes of a Reshape, spells out the batch 4: write -1 in its place, so"
        " that it follows a batch of 1."
    )
    with pytest.raises(ShapeMismatchError) as caught:
        loaded((3, 6), batch=1)
    assert "'flat.shape'" not in caught.value.remedy


def test_a_fixed_batch_has_no_other() -> None:
    document = graph_document()
    for operand in document["operands"]:
        operand["shape"] = [4 if size == "batch" else size for size in operand["shape"]]
    assert inference(load_graph(document, batch=4)).outputs == ("probabilities",)
    with pytest.raises(BatchError, match="A batch of 1 is asked for, but no shape of the graph is symbolic"):
        load_graph(document, batch=1)
