"""Layers, tensors and steps of the nntrainer target on small graphs; published tables are in tests/golden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.errors import OptionsError
from solver.graph import DType, TrainableGraph, TrainingRules
from solver.layout import Lifespan
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import CLIP, Kind, Lifetime
from solver.targets import TargetBuffer
from solver.targets.nntrainer import nntrainer_orders, nntrainer_target
from solver.targets.nntrainer.layers import InPlace, Layer, LayerKind, layers_of
from solver.targets.nntrainer.orders import ExecutionOrder, TensorLifespan, execution_orders
from tests.support.graphs import Sketch, chain
from tests.support.proofs import violations
from tests.support.sequence_graphs import classifier as classifier_of_sequences


def finish(s: Sketch, output: str, *shape: int, **options: object) -> TrainableGraph:
    s.op("MeanSquaredError", [output, s.label("t", *shape)], "loss", "mse")
    return s.graph(**options)  # type: ignore[arg-type]  # passed on as it came


def residual(activation: str = "None", **options: object) -> TrainableGraph:
    """h is read by a layer and by the addition; the activation stands behind the addition."""
    s = Sketch("residual")
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w1", 6, 6)], "h", "fc1")
    u = s.op("Gemm", [h, s.parameter("w2", 6, 6)], "u", "fc2")
    y = s.op("Add", [h, u], "y", "join", activation=activation)
    return finish(s, y, 4, 6, **options)


def followed_by(*types: str, branch: bool = False) -> TrainableGraph:
    """One fully connected layer and a chain of operations behind it, each on the one before."""
    s = Sketch("chain")
    x = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc")
    if branch:
        x = s.op("Add", [x, s.op("Gemm", [x, s.parameter("v", 6, 6)], "u", "fc2")], "sum", "join")
    for k, type_ in enumerate(types):
        inputs = [x, s.integers(f"shape{k}", -1, 6)] if type_ == "Reshape" else [x]
        x = s.op(type_, inputs, f"y{k}", f"op{k}")
    return finish(s, x, 4, 6)


def layers(graph: TrainableGraph) -> dict[str, Layer]:
    return {layer.id: layer for layer in layers_of(graph)}


CLIPPED = TrainingRules(clip_global_norm=1.0)


def tensors(graph: TrainableGraph) -> dict[str, TargetBuffer]:
    return {b.id: b for b in nntrainer_target(graph).pools[1].buffers}


def weights(graph: TrainableGraph) -> dict[str, TargetBuffer]:
    return {b.id: b for b in nntrainer_target(graph).pools[0].buffers}


# ------------------------------------------------------------------------------------------ layers


def test_inputs_are_layers_and_a_fused_activation_is_one_of_its_own() -> None:
    assert list(layers(chain((6, 5, 4)))) == ["x", "fc1", "fc1@activation", "fc2", "mse"]


def test_several_readers_stand_behind_a_multi_out_layer() -> None:
    found = layers(residual())
    assert list(found) == ["x", "fc1", "h@multi_out", "fc2", "join", "mse"]
    multi_out = found["h@multi_out"]
    assert multi_out.kind is LayerKind.MULTI_OUT
    assert {c.value for c in multi_out.outputs} == {"h"}
    assert [c.derivative for c in multi_out.outputs] == ["h@grad.0", "h@grad.1"]


def test_an_operand_added_to_itself_has_two_readers() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc")
    found = layers(finish(s, s.op("Add", [h, h], "y", "join"), 4, 6))
    assert [c.derivative for c in found["join"].inputs] == ["h@grad.0", "h@grad.1"]


@pytest.mark.parametrize("type_", ["Relu", "Sigmoid", "Tanh", "Flatten", "Reshape"])
def test_activations_and_reshapes_work_in_place(type_: str) -> None:
    (output,) = layers(followed_by(type_))["op0"].outputs
    assert (output.value, output.derivative) == ("h", "h@grad")
    assert output.in_place is InPlace.NON_RESTRICTING


@pytest.mark.parametrize("type_", ["Softmax", "Gelu", "Swish"])
def test_others_do_not(type_: str) -> None:
    (output,) = layers(followed_by(type_))["op0"].outputs
    assert (output.value, output.derivative, output.in_place) == ("y0", "y0@grad", InPlace.NONE)


def test_two_activations_in_a_row_do_not_share() -> None:
    """The first needs its output for its derivative, so the second must not overwrite it."""
    found = layers(followed_by("Sigmoid", "Flatten", "Relu"))
    assert [found[f"op{k}"].outputs[0].value for k in range(3)] == ["h", "h", "y2"]


def test_an_activation_behind_a_multi_out_layer_has_memory_of_its_own() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc")
    flat = s.op("Flatten", [h], "flat", "flatten")
    y = s.op("Add", [s.op("Relu", [flat], "r", "relu"), h], "y", "join")
    found = layers(finish(s, y, 4, 6))
    assert found["flatten"].outputs[0].in_place is InPlace.RESTRICTING
    assert found["flatten"].outputs[0].value == "h"
    assert found["relu"].outputs[0].value == "r"


def test_an_activation_does_not_overwrite_the_callers_input() -> None:
    s = Sketch()
    x = s.op("Relu", [s.input("x", 4, 6)], "r", "relu")
    graph = finish(s, s.op("Gemm", [x, s.parameter("w", 6, 6)], "y", "fc"), 4, 6)
    assert layers(graph)["relu"].outputs[0].value == "r"


def classifier(**attributes: float) -> TrainableGraph:
    s = Sketch("classifier")
    x = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 5)], "z", "fc")
    if not attributes.get("from_logits"):
        x = s.op("Softmax", [x], "p", "softmax")
    s.op("CategoricalCrossEntropy", [x, s.label("t", 4, 5)], "loss", "cross", **attributes)
    return s.graph()


def test_softmax_becomes_part_of_the_cross_entropy() -> None:
    found = layers(classifier())
    assert list(found) == ["x", "fc", "cross"]
    assert [c.value for c in (*found["cross"].inputs, *found["cross"].outputs)] == ["z", "p"]
    assert list(layers(classifier(from_logits=1))) == ["x", "fc", "cross"]


def normalised(*, training_mode: int = 1, frozen: bool = False, layout: str = "NCHW") -> TrainableGraph:
    """Convolution, batch normalisation, relu."""
    s = Sketch("normalised")
    image, kernel = ((3, 8, 8), (4, 3, 1, 1)) if layout == "NCHW" else ((8, 8, 3), (4, 1, 1, 3))
    common = {"data_layout": layout}
    x = s.op("Conv", [s.input("x", 2, *image), s.parameter("k", *kernel)], "c", "conv", **common)
    affine = [s.parameter("gamma", 4, trainable=not frozen), s.parameter("beta", 4, trainable=not frozen)]
    running = [s.state("mean", 4), s.state("variance", 4)]
    mode = {"training_mode": training_mode}
    x = s.op("BatchNormalization", [x, *affine, *running], "n", "bn", **common, **mode)
    output = (2, 4, 8, 8) if layout == "NCHW" else (2, 8, 8, 4)
    return finish(s, s.op("Relu", [x], "y", "relu"), *output)


def test_a_normalisation_works_in_place_and_so_does_what_follows() -> None:
    found = layers(normalised())
    assert found["bn"].kind is LayerKind.NORMALISATION
    assert [found[name].outputs[0].value for name in ("conv", "bn", "relu")] == ["c"] * 3
    assert (found["bn"].weights, found["bn"].states) == (("gamma", "beta"), ("mean", "variance"))


def test_a_normalisation_does_not_overwrite_what_an_activation_keeps() -> None:
    s = Sketch()
    x = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", activation="Relu")
    names = [s.parameter("gamma", 6), s.parameter("beta", 6), s.state("mean", 6), s.state("variance", 6)]
    graph = finish(s, s.op("BatchNormalization", [x, *names], "n", "bn", training_mode=1), 4, 6)
    assert layers(graph)["bn"].outputs[0].value == "n"


# ----------------------------------------------------------------------------------------- tensors


def test_the_callers_memory_is_in_no_pool() -> None:
    target = nntrainer_target(residual())
    assert {"x", "t", "x@grad"}.isdisjoint(b.id for pool in target.pools for b in pool.buffers)


def test_branches_have_derivatives_of_their_own() -> None:
    orders = nntrainer_orders(residual())
    # ticks: x 0, fc1 1, multi-out 2, fc2 3, join 4, mse 5; then mse 6-8, join 9-11, fc2 12-14, out 15-17
    assert orders["y@grad"] == (7, 9, 10)
    assert orders["h@grad.1"] == (10, 15, 16)
    assert orders["u@grad"] == (10, 12, 13)
    assert orders["h@grad.0"] == (13, 15, 16)
    assert orders["h@grad"] == (16, 18, 19)
    assert orders["h"] == (1, 2, 3, 4, 9, 12)


def test_an_activation_by_its_input_keeps_it_until_its_derivative() -> None:
    """The trap: released after the forward function, the derivative would be computed from rubbish."""
    orders = nntrainer_orders(followed_by("Gelu"))
    derivative = 8  # ticks: x 0, fc 1, gelu 2, mse 3; then mse 4-6, gelu 7-9
    assert orders["h"] == (1, 2, derivative)
    assert orders["y0"] == (2, 3, 5, derivative)


def test_max_pooling_keeps_positions_for_the_whole_iteration() -> None:
    s = Sketch()
    x = s.op("Conv", [s.input("x", 2, 3, 8, 8), s.parameter("k", 4, 3, 1, 1)], "c", "conv")
    x = s.op("MaxPool", [x], "p", "pool", kernel_shape=(2, 2), strides=(2, 2))
    graph = finish(s, x, 2, 4, 4, 4)
    helper = tensors(graph)["pool@helper"]
    assert (helper.kind, helper.type.dtype, helper.type.shape) == (
        Kind.SAVED,
        DType.INT32,
        (2, 4, 4, 4),
    )
    assert nntrainer_orders(graph)["pool@helper"] == (2, 7, 8, 9)


def test_what_a_normalisation_reads_and_keeps() -> None:
    """Its input in the forward function alone; deviations for the iteration, a copy while it derives."""
    orders = nntrainer_orders(normalised())
    # ticks: x 0, conv 1, bn 2, relu 3, mse 4; then mse 5-7, relu 8-10, bn 11-13, conv 14-16
    assert orders["bn@deviation"] == orders["bn@inverse_deviation"] == (2, 11, 12, 13)
    assert (orders["bn@full"], orders["bn@reduced"]) == ((12,), (2, 12))
    assert orders["gamma"] == (2, 11, 12, 13)
    assert orders["gamma@grad"] == (11, 13)
    assert orders["mean"] == (2,)
    kept = tensors(normalised())
    assert (kept["bn@deviation"].type.shape, kept["bn@full"].type.shape) == ((2, 4, 8, 8),) * 2
    assert kept["bn@variance"].type.shape == (4,)
    assert kept["bn@full"].kind is Kind.SCRATCH


def test_running_statistics_lie_with_the_weights_and_have_no_gradient() -> None:
    graph = normalised()
    assert list(weights(graph)) == ["k", "mean", "variance", "gamma", "beta"]
    assert weights(graph)["mean"].kind is Kind.STATE
    assert not {"mean@grad", "variance@grad"} & set(tensors(graph))
    frozen = nntrainer_orders(normalised(frozen=True))
    assert "gamma@grad" not in frozen
    assert frozen["bn@deviation"] == (2, 11)


def test_state_lives_with_the_weights_of_trained_layers_only() -> None:
    graph = chain((6, 5, 4), trainable=["w2", "b2"], optimizer="Adam")
    assert set(weights(graph)) == {"w1", "b1", "w2", "b2"} | {
        f"{w}@{state}" for w in ("w2", "b2") for state in ("first_moment", "second_moment")
    }
    assert {b.lifetime for b in weights(graph).values()} == {Lifetime.MAX}
    end = len(nntrainer_target(graph).steps)
    assert {b.lifespan for b in weights(graph).values()} == {Lifespan(0, end)}


def test_a_frozen_trunk_gets_no_derivatives_behind_the_earliest_trained_layer() -> None:
    graph = chain((6, 5, 4, 3), trainable=["w3", "b3"])
    assert [b for b in tensors(graph) if b.endswith("@grad")] == ["h3@grad", "w3@grad", "b3@grad", "h2@grad"]
    assert nntrainer_target(graph).steps[-1].id == "fc3:apply_gradient"


def test_nothing_to_train_leaves_the_forward_pass() -> None:
    target = nntrainer_target(chain(trainable=0, training=CLIPPED))
    assert [step.id.split(":")[1] for step in target.steps] == ["forward"] * 5


def test_clipping_keeps_all_gradients_for_one_more_step() -> None:
    graph = chain((6, 5, 4), optimizer="Adam", training=CLIPPED)
    target = nntrainer_target(graph)
    end = len(target.steps)
    assert target.steps[-1].kernel == CLIP
    assert {n for n in target.steps[-1].uses if n.endswith("@grad")} == {f"{w}@grad" for w in graph.trainable}
    assert {tensors(graph)[f"{w}@grad"].lifespan.end for w in graph.trainable} == {end}
    assert {t for t, step in enumerate(target.steps) if "w2" in step.defs} == {end - 1}


def test_shared_weights_are_requested_once_and_live_from_the_first_to_the_last() -> None:
    s = Sketch()
    w = s.parameter("w", 6, 6)
    x = s.op("Gemm", [s.input("x", 4, 6), w], "h", "fc1")
    graph = finish(s, s.op("Gemm", [x, w], "y", "fc2"), 4, 6)
    assert list(weights(graph)) == ["w"]
    assert nntrainer_orders(graph)["w@grad"] == (7, 9, 10, 12)
    assert tensors(graph)["w@grad"].lifespan == Lifespan(7, 13)


# ------------------------------------------------------------------------------------------- steps


def test_steps_read_and_write_what_the_functions_do() -> None:
    steps = {step.id: step for step in nntrainer_target(chain((6, 5, 4))).steps}
    assert steps["fc1:forward"].defs == ("h1",)
    assert set(steps["fc1:forward"].uses) == {"w1", "b1"}
    assert steps["fc2:calc_gradient"].defs == ("w2@grad", "b2@grad")
    assert {"h1", "h2@grad"} <= set(steps["fc2:calc_gradient"].uses)
    assert steps["fc2:calc_derivative"].defs == ("h1@grad",)
    assert steps["fc2:apply_gradient"].defs == ("w2", "b2")
    assert steps["fc1@activation:calc_derivative"].defs == ("h1@grad",)


GRAPHS: dict[str, Callable[[], TrainableGraph]] = {
    "chain": lambda: chain((6, 5, 4, 3)),
    "frozen": lambda: chain((6, 5, 4, 3), trainable=["w2", "b2"]),
    "residual": lambda: residual("Relu"),
    "classifier": classifier,
    "normalised": normalised,
    "normalised, channels last": lambda: normalised(layout="NHWC"),
    "frozen normalisation": lambda: normalised(frozen=True),
    "chain of activations": lambda: followed_by("Relu", "Gelu", "Flatten", "Softmax", branch=True),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_plans_are_right(name: str) -> None:
    made = plan(GRAPHS[name](), PlanOptions(target="nntrainer"))
    assert violations(GRAPHS[name](), made) == ()
    assert all(arena.certificate.proof is not None for arena in made.arenas)


@pytest.mark.parametrize("name", GRAPHS)
def test_what_a_step_uses_was_defined_before(name: str) -> None:
    target = nntrainer_target(GRAPHS[name]())
    defined = {buffer.id for buffer in target.pools[0].buffers}
    for step in target.steps:
        if ":calc_derivative" not in step.id and ":calc_gradient" not in step.id:
            assert set(step.uses) - set(step.defs) <= defined
        defined.update(step.defs)


def test_alignment_is_a_choice() -> None:
    target = nntrainer_target(chain(), 64)
    assert {b.size % 64 for pool in target.pools for b in pool.buffers} == {0}


# ---------------------------------------------------------------------------------------- refusals


def attributed(
    type_: str, output: tuple[int, ...], *inputs: tuple[int, ...], **attributes: object
) -> TrainableGraph:
    """A graph whose one layer has the given inputs: the first is the caller's, the others are parameters."""
    s = Sketch()
    names = [s.input("x", *inputs[0]), *(s.parameter(f"w{k}", *shape) for k, shape in enumerate(inputs[1:]))]
    return finish(s, s.op(type_, names, "y", "layer", **attributes), *output)


def two_losses() -> TrainableGraph:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    first = s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "first")
    s.op("Add", [first, s.op("MeanSquaredError", [h, s.label("u", 4, 6)], "second")], "loss")
    return s.graph()


def double() -> TrainableGraph:
    s = Sketch(dtype=DType.FLOAT64)
    return finish(s, s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "y"), 4, 6)


def unread() -> TrainableGraph:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h")
    s.op("Relu", [h], "aside", "aside")
    return finish(s, h, 4, 6)


def read_softmax() -> TrainableGraph:
    s = Sketch()
    z = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "z")
    s.op("CategoricalCrossEntropy", [z, s.label("t", 4, 6)], "loss", "cross")
    return s.graph()


def sparse() -> TrainableGraph:
    s = Sketch()
    z = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "z")
    label = s.label("t", 4, dtype=DType.INT64)
    s.op("CategoricalCrossEntropy", [z, label], "loss", "cross", from_logits=1, sparse=1)
    return s.graph()


REFUSED: dict[str, tuple[Callable[[], TrainableGraph], str]] = {
    "operator": (lambda: attributed("Transpose", (6, 4), (4, 6)), "of that type"),
    "activation": (
        lambda: attributed("Gemm", (4, 6), (4, 6), (6, 6), activation="Relu6"),
        "activation Relu6",
    ),
    "groups": (lambda: attributed("Conv", (2, 4, 8, 8), (2, 4, 8, 8), (4, 1, 1, 1), group=4), "groups"),
    "three dimensions": (
        lambda: attributed("Conv", (2, 1, 4, 4, 4), (2, 3, 4, 4, 4), (1, 3, 1, 1, 1)),
        "two-dim",
    ),
    "loss scale": (lambda: chain(training=TrainingRules(loss_scale=2.0)), "other than clip_global_norm"),
    "micro-batches": (lambda: chain(training=TrainingRules(accumulate=2)), "other than clip_global_norm"),
    "recurrent layers": (lambda: classifier_of_sequences("GRU"), "recurrent layers, unrolled .* 'one.0'"),
    "running statistics": (lambda: normalised(training_mode=0), "by running statistics"),
    "transposed": (lambda: attributed("Gemm", (6, 5), (4, 6), (4, 5), transA=1), "transposed"),
    "factor": (lambda: attributed("Gemm", (4, 5), (4, 6), (6, 5), alpha=2.0), "alpha or beta"),
    "parameter as data": (lambda: attributed("Add", (4, 6), (4, 6), (4, 6)), "not the output of a layer"),
    "part of a layer": (lambda: chain((6, 5), trainable=["b1"]), "freezes whole layers"),
    "losses": (two_losses, "2 loss operations"),
    "element type": (double, "float64"),
    "unread output": (unread, "nothing reads"),
    "cross entropy": (read_softmax, "anything but logits"),
    "sparse": (sparse, "int64"),
    "smoothing": (lambda: classifier(label_smoothing=0.1), "label smoothing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_name_the_culprit(case: str) -> None:
    build, what = REFUSED[case]
    with pytest.raises(OptionsError, match=what) as caught:
        nntrainer_target(build())
    assert caught.value.path == ("target",)
    assert "reference" in caught.value.remedy


# ---------------------------------------------------------------------------------------- orders of functions


def test_functions_are_single_bits_and_an_iteration_is_all_of_them() -> None:
    functions = [TensorLifespan.FORWARD, TensorLifespan.CALC_DERIV]
    functions += [TensorLifespan.CALC_GRAD, TensorLifespan.CALC_AGRAD]
    assert [function.value for function in functions] == [1, 2, 4, 8]
    assert TensorLifespan.ITERATION.value == 15


@pytest.mark.parametrize(
    ("lifespan", "ticks"),
    [
        (TensorLifespan.UNMANAGED, set()),
        (TensorLifespan.FORWARD, {1}),
        (TensorLifespan.FORWARD_INFER, {1}),
        (TensorLifespan.CALC_GRAD, {6}),
        (TensorLifespan.CALC_DERIV, {7}),
        (TensorLifespan.CALC_AGRAD, {8}),
        (TensorLifespan.FORWARD | TensorLifespan.CALC_GRAD, {1, 6}),
        (TensorLifespan.ITERATION, {1, 6, 7, 8}),
        (TensorLifespan.EPOCH, set()),
        (TensorLifespan.MAX, set()),
    ],
)
def test_ticks_of_a_lifespan(lifespan: TensorLifespan, ticks: set[int]) -> None:
    assert ExecutionOrder(1, 6, 7, 8).ticks(lifespan) == ticks


def test_trainable_layers_take_three_ticks() -> None:
    assert execution_orders([True, True]) == (ExecutionOrder(0, 5, 6, 7), ExecutionOrder(1, 2, 3, 4))


def test_frozen_layers_take_one() -> None:
    assert execution_orders([True, False, True]) == (
        ExecutionOrder(0, 7, 8, 9),
        ExecutionOrder(1, 6, 6, 6),
        ExecutionOrder(2, 3, 4, 5),
    )


def test_no_layers_have_no_orders() -> None:
    assert execution_orders([]) == ()


@pytest.mark.parametrize("pattern", range(32))
def test_every_tick_belongs_to_one_layer_and_none_is_skipped(pattern: int) -> None:
    trainable = [bool(pattern >> k & 1) for k in range(5)]
    ticks = [order.ticks(TensorLifespan.ITERATION) for order in execution_orders(trainable)]
    assert sorted(tick for each in ticks for tick in each) == list(range(5 + 5 + 2 * sum(trainable)))
