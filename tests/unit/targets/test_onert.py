"""Pools of the onert target on small graphs, what layers read backward, and graphs that onert refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.errors import OptionsError
from solver.graph import DType, TensorType, TrainableGraph, TrainingRules
from solver.graph.nodes import graph_nodes
from solver.layout import Lifespan
from solver.program import Kind, Lifetime
from solver.targets import Pool, TargetBuffer
from solver.targets.onert import (
    POOLS,
    Management,
    essential_backward_order,
    onert_pools,
    onert_target,
)
from solver.targets.onert.rules import DEPTHWISE_THREADS, backward_reads, extra_tensors, runtime_type
from tests.support.graphs import Sketch, chain, convolutional, residual


def branching(**options: object) -> TrainableGraph:
    """h has two consumers, w2 is tied, two reshapes have equal constants."""
    s = Sketch("branching")
    w2 = s.parameter("w2", 6, 6)
    x = s.op("Reshape", [s.input("x", 4, 6), s.integers("shape1", -1, 6)], "flat", "reshape1")
    h = s.op("Gemm", [x, s.parameter("w1", 6, 6)], "h", "fc1", transB=1, activation="Relu")
    u = s.op("Gemm", [h, w2], "u", "fc2", transB=1)
    v = s.op("Add", [h, u], "v", "join")
    v = s.op("Reshape", [v, s.integers("shape2", -1, 6)], "flat2", "reshape2")
    y = s.op("Gemm", [v, w2], "y", "fc3", transB=1)
    s.op("MeanSquaredError", [y, s.label("t", 4, 6)], "loss", "mse")
    return s.graph(optimizer="Adam", **options)  # type: ignore[arg-type]  # passed on as it came


def by_name(graph: TrainableGraph, management: Management = Management.WIC) -> dict[str, Pool]:
    return {pool.name: pool for pool in onert_pools(graph, management)}


def buffers(
    graph: TrainableGraph, pool: str, management: Management = Management.WIC
) -> dict[str, TargetBuffer]:
    return {buffer.id: buffer for buffer in by_name(graph, management)[pool].buffers}


# ------------------------------------------------------------------------------------------- steps


def test_backward_order_is_depth_first_from_the_loss() -> None:
    order = [operation.id for operation in essential_backward_order(branching())]
    assert order == ["mse", "fc3", "reshape2", "join", "fc2", "fc1"]


def test_operations_that_lead_to_no_trainable_are_dropped() -> None:
    order = [operation.id for operation in essential_backward_order(chain((6, 5, 4, 3), trainable=["w3"]))]
    assert order == ["mse", "fc3"]


def test_nothing_to_train_leaves_no_backward_pass() -> None:
    graph = chain(trainable=0)
    assert [step.id for step in onert_target(graph).steps] == ["fc1:forward", "fc2:forward", "mse:forward"]
    assert not buffers(graph, "back-prop")


def test_backward_step_names_all_it_touches() -> None:
    steps = {step.id: step for step in onert_target(chain(optimizer="Adam")).steps}
    step = steps["fc1:backward"]
    assert step.kernel == "Gemm"
    moments = tuple(f"{w}@{moment}" for w in ("w1", "b1") for moment in ("first_moment", "second_moment"))
    assert step.uses == ("h1@grad", "x", "w1", "h1", "b1", *moments)
    assert step.defs == ("x@grad", "w1@grad", "b1@grad", "w1", "b1", *moments)
    names = ("transposed_weights", "transposed_input", "transposed_back_prop", "activation_gradient")
    assert step.scratch == tuple(f"fc1@backward.{name}" for name in names)


def test_loss_starts_the_backward_pass() -> None:
    steps = {step.id: step for step in onert_target(chain()).steps}
    assert steps["mse:backward"].uses == ("h2", "t")
    assert steps["mse:backward"].defs == ("h2@grad", "t@grad")


# --------------------------------------------------------------------------------------- lifespans


def test_values_live_from_def_to_last_use() -> None:
    # steps: fc1 fc2 mse | mse fc2 fc1
    found = {name: b.lifespan for name, b in buffers(chain(), "non-const").items()}
    assert found == {
        "x": Lifespan(0, 6),
        "t": Lifespan(0, 4),
        "h1": Lifespan(0, 6),
        "h2": Lifespan(1, 4),
        "loss": Lifespan(2, 6),
    }


def test_derivatives_nobody_reads_live_to_the_end() -> None:
    found = {name: b.lifespan for name, b in buffers(chain(), "back-prop").items()}
    assert found == {
        "h2@grad": Lifespan(3, 5),
        "t@grad": Lifespan(3, 6),
        "h1@grad": Lifespan(4, 6),
        "x@grad": Lifespan(5, 6),
    }


def test_gradients_live_inside_one_step() -> None:
    found = {name: b.lifespan for name, b in buffers(chain(), "gradient").items()}
    assert found["w2@grad"] == found["b2@grad"] == Lifespan(4, 5)
    assert found["w1@grad"] == Lifespan(5, 6)


def test_arg_max_is_kept_from_forward_to_backward() -> None:
    graph = convolutional()
    steps = [step.id for step in onert_target(graph).steps]
    arg_max = buffers(graph, "extra")["pool1@backward.arg_max"]
    assert arg_max.lifespan == Lifespan(steps.index("pool1:forward"), steps.index("pool1:backward") + 1)
    assert arg_max.kind is Kind.SAVED


@pytest.mark.parametrize("management", Management)
@pytest.mark.parametrize("build", [chain, branching, convolutional])
def test_every_touch_falls_into_a_lifespan(
    build: Callable[[], TrainableGraph], management: Management
) -> None:
    target = onert_target(build(), management=management)
    spans = {buffer.id: buffer.lifespan for pool in target.pools for buffer in pool.buffers}
    for t, step in enumerate(target.steps):
        for name in (*step.uses, *step.defs, *step.scratch):
            assert spans[name].start <= t < spans[name].end, (step.id, name)
    assert all(0 <= span.start < span.end <= len(target.steps) for span in spans.values())


def test_buffers_stand_in_the_order_of_requests() -> None:
    for pool in onert_pools(convolutional()):
        starts = [buffer.lifespan.start for buffer in pool.buffers]
        assert starts == sorted(starts)


# ------------------------------------------------------------------------------------------- pools


@pytest.mark.parametrize("management", Management)
def test_seven_pools_without_a_shared_name(management: Management) -> None:
    pools = onert_pools(branching(), management)
    assert tuple(pool.name for pool in pools) == POOLS
    names = [buffer.id for pool in pools for buffer in pool.buffers]
    assert len(set(names)) == len(names)


def test_planner_of_each_stage() -> None:
    stages = {m: {pool.solver for pool in onert_pools(chain(), m)} for m in Management}
    assert stages == {Management.BUMP: {"bump"}, Management.RELEASED: {"wic"}, Management.WIC: {"wic"}}


def test_sizes_are_multiples_of_the_alignment() -> None:
    assert {b.size % 16 for pool in onert_pools(branching()) for b in pool.buffers} == {0}
    wide = onert_target(branching(), 128)
    assert {b.size % 128 for pool in wide.pools for b in pool.buffers} == {0}


def test_loss_has_one_element_for_each_example() -> None:
    loss = buffers(chain(batch=7), "non-const")["loss"]
    assert (loss.type.shape, loss.size) == ((7,), 32)


def test_branch_has_one_disposable_buffer_for_each_def() -> None:
    found = buffers(branching(), "disposable")
    assert sorted(found) == ["h@grad.fc2", "h@grad.join"]
    assert {b.kind for b in found.values()} == {Kind.PARTIAL}
    assert all(b.lifespan.end - b.lifespan.start == 1 for b in found.values())


def test_bump_has_one_disposable_buffer_of_the_largest_derivative() -> None:
    (buffer,) = by_name(branching(), Management.BUMP)["disposable"].buffers
    assert buffer.type.shape == (4, 6)


def test_tied_weights_are_copied() -> None:
    assert sorted(buffers(branching(), "trainable")) == ["shape1", "w1", "w2", "w2@copy.fc3"]
    assert {"w2@grad", "w2@copy.fc3@grad"} <= buffers(branching(), "gradient").keys()


@pytest.mark.parametrize(("management", "count"), [(Management.RELEASED, 5), (Management.WIC, 4)])
def test_equal_constants_share_bytes_in_the_draft(management: Management, count: int) -> None:
    assert len(by_name(branching(), management)["trainable"].buffers) == count
    assert len(by_name(branching(), management)["optimizer variables"].buffers) == 2 * count


def test_index_constants_are_stored_as_int32() -> None:
    assert buffers(branching(), "trainable")["shape1"].type.nbytes == 8


def test_optimizer_variables_stay_whatever_is_frozen() -> None:
    whole, part = branching(), branching(trainable=["w1"])
    assert len(buffers(whole, "optimizer variables")) == len(buffers(part, "optimizer variables"))
    assert sorted(buffers(part, "gradient")) == ["w1@grad"]


def test_sgd_has_no_optimizer_variables() -> None:
    assert not buffers(chain(), "optimizer variables")


def test_bump_never_releases() -> None:
    target = onert_target(branching(), management=Management.BUMP)
    spans = {buffer.lifespan for pool in target.pools for buffer in pool.buffers}
    assert spans == {Lifespan(0, len(target.steps))}
    values = buffers(branching(), "non-const", Management.BUMP)
    derivatives = buffers(branching(), "back-prop", Management.BUMP)
    assert set(derivatives) == {f"{name}@grad" for name in values if name != "loss"}


def test_release_keeps_extra_tensors() -> None:
    extra = buffers(convolutional(), "extra", Management.RELEASED)
    assert {b.lifetime for b in extra.values()} == {Lifetime.MAX}
    assert "conv2@backward.padded_filter" in extra
    assert "conv2@backward.padded_filter" not in buffers(convolutional(), "extra")


# ------------------------------------------------------------------------------------------------------ rules


def network(extend: Callable[[Sketch, str], str]) -> TrainableGraph:
    """x -> fc -> what `extend` adds -> mean squared error, all [4, 6]."""
    s = Sketch("network")
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [extend(s, h), s.label("t", 4, 6)], "loss", "mse")
    return s.graph()


def reads(graph: TrainableGraph) -> dict[str, tuple[str, ...]]:
    return {name: backward_reads(node) for name, node in graph_nodes(graph).items()}


def extras(graph: TrainableGraph) -> dict[str, dict[str, tuple[int, ...]]]:
    return {
        name: {extra.name: extra.type.shape for extra in extra_tensors(node)}
        for name, node in graph_nodes(graph).items()
    }


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("Add", ("h", "h")),
        ("Mul", ("h", "h")),
        ("Relu", ("y",)),
        ("Softmax", ("y",)),
    ],
)
def test_reads_of_elementwise_layers(type_: str, expected: tuple[str, ...]) -> None:
    inputs = 2 if type_ in ("Add", "Mul") else 1
    graph = network(lambda s, h: s.op(type_, [h] * inputs, "y", "layer"))
    assert reads(graph)["layer"] == expected


def test_fully_connected_reads_its_output_with_an_activation_only() -> None:
    graph = network(
        lambda s, h: s.op("Gemm", [h, s.parameter("w2", 6, 6)], "y", "layer", transB=1, activation="Relu6")
    )
    assert reads(graph)["fc"] == ("x", "w")
    assert reads(graph)["layer"] == ("h", "w2", "y")
    assert "activation_gradient" not in extras(graph)["fc"]
    assert extras(graph)["layer"]["activation_gradient"] == (4, 6)


def test_movement_pooling_and_loss() -> None:
    found = reads(convolutional())
    assert found["pool1"] == found["pool2"] == found["flatten"] == ()
    assert found["cce"] == ("f", "t")
    assert found["conv1"] == ("x", "k1", "a")


def test_extra_tensors_of_layers() -> None:
    found = extras(convolutional())
    assert found["conv1"] == {
        "transposed_weights": (4, 3, 3, 3),
        "conv_back_prop": (2, 8, 8, 4),
        "transposed_gradient": (4, 3, 3, 3),
        "activation_gradient": (2, 8, 8, 4),
    }
    assert found["pool1"] == {"arg_max": (2, 4, 4, 4)}
    assert found["pool2"] == found["flatten"] == found["cce"] == {}
    assert found["fc"] == {
        "transposed_weights": (5, 16),
        "transposed_input": (2, 16),
        "transposed_back_prop": (2, 5),
    }


def test_depthwise_convolution_keeps_a_filter_for_each_example_and_thread() -> None:
    assert extras(convolutional())["conv2"] == {
        "activation_gradient": (2, 4, 4, 4),
        "padded_filter": (2, 4, 3, 3, 1),
        "filter_buffers": (DEPTHWISE_THREADS, 4, 3, 3, 1),
        "filter_dim_buffers": (DEPTHWISE_THREADS, 4),
    }


def test_runtime_types() -> None:
    assert runtime_type(TensorType((3,), DType.INT64)) == TensorType((3,), DType.INT32)
    assert runtime_type(TensorType((3,), DType.FLOAT32)) == TensorType((3,), DType.FLOAT32)


# ---------------------------------------------------------------------------------------- refusals


def refusal(graph: TrainableGraph) -> str:
    with pytest.raises(OptionsError) as caught:
        onert_target(graph)
    assert caught.value.path == ("target",)
    return str(caught.value)


def test_refuses_operators_that_it_cannot_train() -> None:
    assert "'layer' (Sigmoid)" in refusal(network(lambda s, h: s.op("Sigmoid", [h], "y", "layer")))


def test_refuses_other_fused_activations() -> None:
    assert "Tanh" in refusal(residual())


def test_refuses_other_optimizers() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss", "mse")
    assert "AdamW" in refusal(s.graph(optimizer="AdamW"))


@pytest.mark.parametrize(
    "rules", [TrainingRules(clip_global_norm=1.0), TrainingRules(loss_scale=2.0), TrainingRules(accumulate=2)]
)
def test_refuses_training_rules(rules: TrainingRules) -> None:
    assert "training rules" in refusal(convolutional(training=rules))


def test_refuses_a_loss_that_no_loss_operation_defines() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    for k in range(2):
        s.op("MeanSquaredError", [h, s.label(f"t{k}", 4, 6)], f"part{k}", f"mse{k}")
    s.op("Add", ["part0", "part1"], "loss", "sum")
    assert "2 loss operations" in refusal(s.graph())


def test_refuses_double_precision() -> None:
    s = Sketch(dtype=DType.FLOAT64)
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss", "mse")
    assert "float64" in refusal(s.graph())


def test_refuses_to_pad_with_anything_but_a_constant() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    h = s.op("Pad", [h, s.integers("pads", 0, 1, 0, 1)], "p", "pad", mode="reflect")
    s.op("MeanSquaredError", [h, s.label("t", 4, 8)], "loss")
    assert "operation 'pad' (Pad) in mode 'reflect'" in refusal(s.graph())


def test_refuses_sparse_labels() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op(
        "CategoricalCrossEntropy",
        [h, s.label("t", 4, dtype=DType.INT64)],
        "loss",
        "cce",
        sparse=1,
        from_logits=1,
    )
    assert "sparse labels" in refusal(s.graph())


@pytest.mark.parametrize(
    ("attributes", "channels", "word"),
    [({"dilations": (2, 2)}, 4, "dilation"), ({"group": 2}, 2, "groups")],
)
def test_refuses_convolutions(attributes: dict[str, object], channels: int, word: str) -> None:
    s = Sketch()
    k = s.parameter("k", 4, 3, 3, channels)
    x = s.input("x", 2, 8, 8, 4)
    y = s.op("Conv", [x, k], "y", "conv", data_layout="NHWC", auto_pad="SAME_UPPER", **attributes)
    s.op("MeanSquaredError", [y, s.label("t", 2, 8, 8, 4)], "loss", "mse")
    assert word in refusal(s.graph())
