"""Pools of the onert target on small graphs; the published tables are in tests/golden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.graph import TrainableGraph
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
from tests.support.graphs import Sketch, chain, convolutional


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
