"""The tape: what is recorded, under which names, and what is refused where it stands."""

from __future__ import annotations

import numpy as np
import pytest

from arenaplan.builder import Tape, Tensor, adam, layers, ops, sgd
from solver.documents import dump_graph, load_graph
from solver.errors import GraphError, ShapeMismatchError
from solver.graph import Array, DType, Role


@pytest.fixture
def tape() -> Tape:
    return Tape("test", batch=4)


@pytest.fixture
def x(tape: Tape) -> Tensor:
    return tape.input("x", 6)


def finished(tape: Tape, y: Tensor) -> dict[str, object]:
    """The document with the mean of the squares of y as loss, so that any shape will do."""
    return tape.document((y * y).mean(*range(len(y.shape)), name="loss"), sgd())


class TestNames:
    def test_made_of_the_operator_and_a_number(self, x: Tensor) -> None:
        assert [ops.relu(x).name, ops.relu(x).name, (x + x).name] == ["relu1.out", "relu2.out", "add1.out"]

    def test_given(self, x: Tensor) -> None:
        assert layers.dense(x, 3, name="head").name == "head.out"
        assert layers.dense(x, 3).name == "dense1.out"

    def test_scopes_nest_and_count_for_themselves(self, tape: Tape, x: Tensor) -> None:
        with tape.scope("block"):
            assert ops.relu(x).name == "block.relu1.out"
            with tape.scope("inner"):
                assert layers.dense(x, 3, name="head").name == "block.inner.head.out"
                assert (x * 2).name == "block.inner.mul1.out"
        assert ops.relu(x).name == "relu1.out"

    def test_scope_ends_with_an_error(self, tape: Tape, x: Tensor) -> None:
        with pytest.raises(ZeroDivisionError), tape.scope("block"):
            _ = 1 / 0
        assert ops.relu(x).name == "relu1.out"

    def test_parameters_bear_the_name_of_their_layer(self, tape: Tape, x: Tensor) -> None:
        layers.dense(x, 3)
        with tape.scope("block"):
            layers.dense(x, 3, name="head")
        names = [row["name"] for row in tape.document(x, sgd())["operands"] if row["role"] == "parameter"]
        assert names == ["dense1.weight", "dense1.bias", "block.head.weight", "block.head.bias"]

    def test_each_of_several_outputs(self, tape: Tape) -> None:
        parts = tape.apply_many("Split", tape.input("sequence", 3, 2), outputs=("a", "b", "c"), axis=1)
        assert [part.name for part in parts] == ["split1.a", "split1.b", "split1.c"]
        assert {part.shape for part in parts} == {(4, 1, 2)}

    def test_outputs_that_nobody_needs_have_none(self, tape: Tape) -> None:
        last = layers.lstm(tape.input("sequence", 3, 2), 5)
        assert last.shape == (4, 5)
        assert tape.document(last, sgd())["operations"][0]["outputs"] == ["", "lstm1.last"]


class TestShapes:
    def test_batch_comes_first_and_stays_symbolic(self, tape: Tape, x: Tensor) -> None:
        assert x.shape == (4, 6)
        assert tape.document(x, sgd())["operands"][0]["shape"] == ["batch", 6]

    def test_another_batch_at_planning_time(self, tape: Tape) -> None:
        image = tape.input("image", 8, 8, 2)
        y = layers.dense(ops.flatten(ops.pool(layers.conv(image, 3, 3), 2)), 5)
        y = layers.project(y.reshape(0, 5, 1), 2).transpose(0, 2, 1)
        assert y.shape == (4, 2, 5)
        graph = load_graph(finished(tape, y), batch=9)
        assert graph.operands[y.name].shape == (9, 2, 5)

    @pytest.mark.parametrize(
        ("build", "shape"),
        [
            (lambda x: x + 1, (4, 6)),
            (lambda x: 1 - x, (4, 6)),
            (lambda x: 2 * x / 3, (4, 6)),
            (lambda x: 1.5 + x - x, (4, 6)),
            (lambda x: x.reshape(-1, 2, 3), (4, 2, 3)),
            (lambda x: x.reshape(0, 3, 2), (4, 3, 2)),
            (lambda x: x.transpose(1, 0), (6, 4)),
            (lambda x: x @ x.transpose(1, 0), (4, 4)),
            (lambda x: x.mean(0), (6,)),
            (lambda x: x.mean(1, keepdims=True), (4, 1)),
            (lambda x: ops.clip(ops.gelu(ops.softmax(x)), 0, 1), (4, 6)),
            (lambda x: ops.pad(x, [0, 1, 0, 2]), (4, 9)),
            (lambda x: layers.layer_norm(layers.project(x, 5, bias=False)), (4, 5)),
        ],
    )
    def test_of_expressions(self, tape: Tape, x: Tensor, build: object, shape: tuple[int, ...]) -> None:
        assert callable(build)
        y = build(x)
        assert y.shape == shape
        assert load_graph(finished(tape, y)).operands[y.name].shape == shape

    def test_of_images(self, tape: Tape) -> None:
        x = tape.input("image", 9, 9, 4)
        assert layers.conv(x, 8, 3, stride=2, bias=False).shape == (4, 5, 5, 8)
        assert layers.conv(x, 8, 3, padding="VALID").shape == (4, 7, 7, 8)
        assert layers.depthwise(layers.batch_norm(x), stride=2).shape == (4, 5, 5, 4)
        assert layers.upsample(x, 2).shape == (4, 18, 18, 2)
        assert ops.pool(x, 3, stride=2, padding="SAME_UPPER").shape == (4, 5, 5, 4)

    def test_of_sequences(self, tape: Tape) -> None:
        token = tape.input("token", 5, dtype=DType.INT64)
        table = tape.parameter("table", [11, 6], "normal", scale=0.1)
        words = layers.embedding(token, table)
        assert words.shape == (4, 5, 6)
        assert layers.lstm(words, 7).shape == (4, 7)

    def test_that_do_not_fit_are_refused_where_they_stand(self, tape: Tape, x: Tensor) -> None:
        with pytest.raises(ShapeMismatchError, match="'matmul1' \\(MatMul\\)"):
            _ = x @ x
        with pytest.raises(ShapeMismatchError, match="'reshape1'"):
            x.reshape(5, 5)
        assert tape.document(x, sgd())["operations"] == []

    def test_unknown_attributes_are_refused(self, tape: Tape, x: Tensor) -> None:
        with pytest.raises(GraphError, match="no attribute 'alpha'"):
            tape.apply("Relu", x, alpha=1)


class TestOperands:
    def test_random_parameters_have_seeds_of_their_own(self, tape: Tape, x: Tensor) -> None:
        layers.dense(layers.dense(x, 6), 6)
        rows = tape.document(x, sgd())["operands"]
        seeds = [row["initializer"]["seed"] for row in rows if "seed" in row.get("initializer", {})]
        assert seeds == [1, 2]

    @pytest.mark.parametrize("count", [3, 500])
    @pytest.mark.parametrize("dtype", [np.float32, np.int64])
    def test_constants_keep_their_values(self, tape: Tape, count: int, dtype: type) -> None:
        values: Array = np.arange(count).astype(dtype)
        constant = tape.constant("values", values)
        x = tape.input("x", count, dtype=DType(np.dtype(dtype).name))
        y = tape.apply("Cast", tape.apply("Add", x, constant) if dtype is np.float32 else x, to=1)
        if dtype is np.int64:
            y = tape.apply("Gather", y, constant, axis=1)
        initializer = load_graph(finished(tape, y)).operands["values"].initializer
        assert initializer is not None
        assert initializer.data == values.tobytes()

    def test_numbers_become_constants_of_the_type_of_their_partner(self, tape: Tape, x: Tensor) -> None:
        graph = load_graph(finished(tape, 2 * x))
        assert graph.operands["mul1.number"].type.dtype is DType.FLOAT32
        assert graph.operands["mul1.number"].role is Role.CONSTANT

    def test_running_statistics_are_states(self, tape: Tape) -> None:
        y = layers.batch_norm(tape.input("x", 5, 5, 3))
        graph = load_graph(finished(tape, y))
        states = [name for name, operand in graph.operands.items() if operand.role is Role.STATE]
        assert states == ["norm1.mean", "norm1.variance"]
        assert graph.trainable == ("norm1.scale", "norm1.shift")

    def test_left_out_optional_inputs_have_no_name(self, tape: Tape) -> None:
        x = tape.input("x", 3, 3, 2)
        pads = tape.integers("pads", [1, 1])
        tape.apply("Pad", x, pads, None, tape.integers("axes", [1]))
        assert tape.document(x, sgd())["operations"][0]["inputs"] == ["x", "pads", "", "axes"]


class TestModel:
    def test_document_round_trips(self, tape: Tape, x: Tensor) -> None:
        label = tape.label("label", 3)
        probabilities = ops.softmax(layers.dense(x, 3))
        loss = ops.cross_entropy(probabilities, label, from_logits=False)
        model = tape.minimise(loss, adam(0.01), trainable=["dense1.bias"], outputs=[probabilities])
        assert model.graph.trainable == ("dense1.bias",)
        assert model.graph.outputs == (probabilities.name,)
        assert model.graph.loss == "loss1.out"
        assert model.parameters == 21
        assert load_graph(dump_graph(model.graph)) == model.graph

    def test_that_cannot_be_trained_is_refused(self, tape: Tape, x: Tensor) -> None:
        with pytest.raises(GraphError, match="not a floating scalar"):
            tape.minimise(ops.relu(x), sgd())

    def test_what_is_recorded_later_is_not_in_it(self, tape: Tape, x: Tensor) -> None:
        model = tape.minimise(layers.dense(x, 3).mean(0, 1), sgd())
        recorded = len(model.document["operations"])
        ops.relu(x)
        assert len(model.document["operations"]) == recorded

    def test_trains_in_its_arena(self, tape: Tape, x: Tensor) -> None:
        model = tape.minimise(
            ops.mean_squared_error(layers.dense(x, 1), tape.label("y", 1)), sgd(0.1, momentum=0.5)
        )
        rng = np.random.default_rng(0)
        examples = [rng.standard_normal((4, 6)).astype(np.float32) for _ in range(80)]
        losses = list(model.train({"x": each, "y": each.sum(axis=1, keepdims=True)} for each in examples))
        assert losses[-1] < 1e-3 < losses[0]
        assert model.validate(steps=2).identical
        assert model.plan().arena_bytes == model.plan().lower_bound

    def test_rules_for_gradients(self, tape: Tape, x: Tensor) -> None:
        loss = layers.dense(x, 3).mean(0, 1)
        assert "training" not in tape.document(loss, sgd())
        rules = {"clip_global_norm": 0.5, "accumulate": 2}
        assert tape.minimise(loss, sgd(), training=rules).graph.training.clip_global_norm == 0.5

    def test_starts_from_other_values(self, tape: Tape, x: Tensor) -> None:
        model = tape.minimise(
            ops.mean_squared_error(layers.dense(x, 1), tape.label("y", 1)), sgd(), outputs=[x]
        )
        weight = np.arange(6, dtype=np.float32).reshape(1, 6)
        other = model.starting_from({"dense1.weight": weight, "elsewhere": weight})
        np.testing.assert_array_equal(other.trainer().read("dense1.weight"), weight)
        np.testing.assert_array_equal(other.trainer().read("dense1.bias"), np.zeros(1))
        assert (model.trainer().read("dense1.weight") != weight).all()
