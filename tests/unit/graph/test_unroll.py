"""Sequences in a graph: what they become, what is shared, and what is refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import (
    AttributeRuleError,
    DuplicateNameError,
    GraphError,
    ShapeMismatchError,
    TooManyOperationsError,
)
from solver.graph import DType, Operation, OptimizerSpec, TensorType, build_graph
from tests.support.graphs import Sketch
from tests.support.one_node import Input, node_of
from tests.support.sequence_graphs import classifier

T, B, D, H = 4, 2, 3, 5


def shapes(type_: str, inputs: list[Input], count: int = 1, **attributes: Any) -> list[tuple[int, ...]]:
    return [output.shape for output in node_of(type_, inputs, outputs=count, **attributes).outputs]


def test_shapes_of_the_outputs() -> None:
    inputs: list[Input] = [(T, B, D), (1, 4 * H, D), (1, 4 * H, H)]
    assert shapes("LSTM", inputs, 3) == [(T, 1, B, H), (1, B, H), (1, B, H)]
    assert shapes("LSTM", [(B, T, D), *inputs[1:]], 3, layout=1) == [(B, T, 1, H), (B, 1, H), (B, 1, H)]
    both: list[Input] = [(T, B, D), (2, 3 * H, D), (2, 3 * H, H), (2, 6 * H)]
    assert shapes("GRU", both, 2, direction="bidirectional") == [(T, 2, B, H), (2, B, H)]
    plain: list[Input] = [(T, B, D), (H, D), (H, H)]
    assert shapes("RNN", plain, 2, hidden_size=H) == [(T, 1, B, H), (1, B, H)]


def test_what_a_sequence_becomes() -> None:
    graph = classifier("LSTM", steps=2)
    own = [(o.id, o.type) for o in graph.operations if o.id.startswith("one.")]
    assert own == [
        ("one.steps", "Split"),
        ("one.0", "LSTMCell"),
        ("one.1", "LSTMCell"),
        ("one.all.0", "Concat"),
        ("one.Y.0", "Unsqueeze"),
    ]
    assert {o.type for o in graph.operations} & {"LSTM", "GRU", "RNN"} == set()
    assert graph.operands["all"].shape == (2, 1, 2, 4)
    assert graph.operands["last"].shape == (1, 2, 2)


def test_every_cell_reads_the_same_weights_and_the_state_before() -> None:
    cells = [o for o in classifier("GRU", steps=3).operations if o.type == "GRUCell"][:3]
    assert [c.inputs[2:] for c in cells] == [("w1", "r1", "b1")] * 3
    assert [c.inputs[1] for c in cells] == ["start", "one.h0", "one.h1"]
    assert [c.inputs[0] for c in cells] == ["one.x0", "one.x1", "one.x2"]


def test_a_reverse_sequence_begins_at_the_end() -> None:
    cells = [o for o in classifier("RNN", steps=3, direction="reverse").operations if o.type == "RNNCell"]
    assert [c.inputs[0] for c in cells[:3]] == ["one.x2", "one.x1", "one.x0"]


def test_one_step_needs_no_split() -> None:
    graph = classifier("RNN", steps=1)
    assert not [o for o in graph.operations if o.type in ("Split", "Concat")]


def test_attributes_reach_the_cells() -> None:
    graph = classifier("GRU", sequence={"linear_before_reset": 1})
    assert all(o.attributes["linear_before_reset"] == 1 for o in graph.operations if o.type == "GRUCell")


def test_layers_are_counted_as_they_were_written() -> None:
    """The last two operations with parameters are the two sequences, however many cells they have."""
    assert classifier(trainable=1).trainable == ("w2", "r2")
    assert classifier(trainable=2).trainable == ("w1", "r1", "b1", "w2", "r2")


LENGTHS, MASK = TensorType((B,), DType.INT64), TensorType((T, 1), DType.BOOL)
REFUSALS: list[tuple[str, list[Input], dict[str, Any], str]] = [
    ("LSTM", [(T, D), (1, 4 * H, D), (1, 4 * H, H)], {}, "X of three axes"),
    ("RNN", [(T, B, D), (1, H, D), (H,)], {}, "R of two or three"),
    (
        "RNN",
        [(T, B, D), (1, H, D), (1, H, H)],
        {"direction": "bidirectional"},
        "input 1 to have two directions",
    ),
    ("RNN", [(T, B, D), (H, D), (H, H), None, [T, T - 1]], {}, "length of each sequence to be 4"),
    ("RNN", [(T, B, D), (H, D), (H, H), None, LENGTHS], {}, "length of each sequence to be 4, a constant"),
    ("RNN", [(T, B, D), (H, D), (H, H), None, MASK], {}, rf"or a mask of truth values \[{T}, {B}, 1\]"),
]


@pytest.mark.parametrize(("type_", "inputs", "attributes", "reason"), REFUSALS)
def test_refusals(type_: str, inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=reason):
        node_of(type_, inputs, **attributes)


@pytest.mark.parametrize("attributes", [{"hidden_size": H + 1}, {"direction": "sideways"}, {"layout": 2}])
def test_attributes(attributes: dict[str, Any]) -> None:
    with pytest.raises(AttributeRuleError, match=f"Attribute '{next(iter(attributes))}'"):
        node_of("RNN", [(T, B, D), (H, D), (H, H)], **attributes)


def test_lengths_that_are_all_the_whole_may_be_given() -> None:
    assert shapes("RNN", [(T, B, D), (H, D), (H, H), None, [T, T]]) == [(T, 1, B, H)]


def sketch(*outputs: str, steps: int = T, weights: tuple[int, ...] = (H, D)) -> Sketch:
    s = Sketch("one")
    s.input("x", steps, B, D)
    s.parameter("w", *weights)
    s.parameter("r", H, H)
    s.operations.append(Operation("rnn", "RNN", ("x", "w", "r"), outputs))
    s.op("MeanSquaredError", ["last", s.label("t", 1, B, H)], "loss")
    return s


def test_an_output_that_is_not_needed_has_no_name() -> None:
    graph = sketch("", "last").graph()
    assert "" not in graph.operands
    assert not [o for o in graph.operations if o.type in ("Concat", "Unsqueeze")]


@pytest.mark.parametrize("outputs", [("", ""), ("", "last", "third")])
def test_outputs_that_do_not_exist(outputs: tuple[str, ...]) -> None:
    with pytest.raises(GraphError) as caught:
        sketch(*outputs).graph()
    assert caught.value.path is not None
    assert caught.value.path[:1] == ("operations",)


@pytest.mark.parametrize("taken", ["rnn.h1", "rnn.x0"])
def test_an_operand_that_is_called_like_one_of_the_cells(taken: str) -> None:
    s = sketch("", "last")
    s.op("Relu", ["last"], taken, "other")
    with pytest.raises(DuplicateNameError, match=f"takes the name '{taken}'") as caught:
        s.graph()
    assert caught.value.path == ("operations", 0)


@pytest.mark.parametrize(
    "outputs", [("", "rnn.h1"), ("", "rnn.x0"), ("rnn.h1", "last"), ("rnn.all.0", "last")]
)
def test_an_output_of_the_sequence_that_is_called_like_one_of_its_cells(outputs: tuple[str, str]) -> None:
    s = sketch(*outputs)
    if "last" not in outputs:
        s.op("Relu", [outputs[1]], "last")
    with pytest.raises(DuplicateNameError, match="unrolled over time takes the name 'rnn") as caught:
        s.graph()
    assert caught.value.path == ("operations", 0)
    assert "Rename" in caught.value.remedy


def test_the_last_state_may_be_called_what_it_would_be_called_anyway() -> None:
    s = sketch("", "rnn.h3")
    s.op("Relu", ["rnn.h3"], "last")
    defined = [name for operation in s.graph().operations for name in operation.outputs]
    assert len(defined) == len({*defined})


def test_an_operation_that_is_called_like_a_cell() -> None:
    s = sketch("", "last")
    s.op("Relu", ["last"], "other", "rnn.2")
    with pytest.raises(DuplicateNameError, match=r"takes the name 'rnn\.2'"):
        s.graph()


def test_too_many_steps() -> None:
    s = sketch("", "last", steps=60)
    common: dict[str, Any] = {"loss": "loss", "optimizer": OptimizerSpec("SGD", {"learning_rate": 0.1})}
    assert len(build_graph("g", s.operands, s.operations, **common, max_operations=62).operations) == 62
    with pytest.raises(TooManyOperationsError, match="Unrolled over time, the graph has 62 operations"):
        build_graph("g", s.operands, s.operations, **common, max_operations=61)
    with pytest.raises(
        TooManyOperationsError, match=r"'rnn' .* takes 60 steps in time; at most 10"
    ) as caught:
        build_graph("g", s.operands, s.operations, **common, max_operations=10)
    assert caught.value.path == ("operations", 0)


def test_many_sequences_share_one_limit() -> None:
    """A request cannot ask for more work by asking often."""
    s = sketch("", "last", steps=60)
    for k in range(9):
        s.operations.append(Operation(f"more{k}", "RNN", ("x", "w", "r"), ("", f"aside{k}")))
    common: dict[str, Any] = {"loss": "loss", "optimizer": OptimizerSpec("SGD", {"learning_rate": 0.1})}
    with pytest.raises(TooManyOperationsError, match=r"'more1' .* at most 17 more operations") as caught:
        build_graph("g", s.operands, s.operations, **common, max_operations=140)
    assert caught.value.path == ("operations", 3)


def test_what_the_cells_refuse_is_told_of_the_sequence() -> None:
    with pytest.raises(ShapeMismatchError, match=r"expected W \[1 H, 3\]") as caught:
        sketch("", "last", weights=(H, D + 1)).graph()
    assert caught.value.path == ("operations", 0)
