"""The nntrainer target against what the runtime computes: execution orders to the tick, and pool sizes.

Orders are those of ``input, fc1, activation, fc2, activation, fc3, activation, mse`` with all layers
trainable and with one of them frozen. Sizes are MiB; the lower bound is the largest load of any tick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import pytest

from solver.graph import TrainableGraph, TrainingRules
from solver.layout import Proof, max_load
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.targets import Pool
from solver.targets.nntrainer import nntrainer_orders, nntrainer_target
from tests.support.every import every
from tests.support.graphs import Sketch

FROZEN = (None, "fc1", "fc2", "fc3")

#: Tensor -> ticks, one column for each element of `FROZEN`; "-" where there is no such tensor.
ORDERS = """
fc1.weight      | 1,26,27,28     | 1              | 1,24,25,26     | 1,24,25,26
fc1.weight@grad | 26,28          | -              | 24,26          | 24,26
fc1.out         | 1,2,3,20,24    | 1,2,3,20,24    | 1,2,3,22       | 1,2,3,18,22
fc1.out@grad    | 21,23,24,26,27 | 21,23,24,26    | 20,21,22,24,25 | 19,21,22,24,25
fc2.weight      | 3,20,21,22     | 3,20,21,22     | 3,20           | 3,18,19,20
fc2.weight@grad | 20,22          | 20,22          | -              | 18,20
fc2.out         | 3,4,5,14,18    | 3,4,5,14,18    | 3,4,5,14,18    | 3,4,5,16
fc2.out@grad    | 15,17,18,20,21 | 15,17,18,20,21 | 15,17,18,20    | 14,15,16,18,19
fc3.weight      | 5,14,15,16     | 5,14,15,16     | 5,14,15,16     | 5,14
fc3.weight@grad | 14,16          | 14,16          | 14,16          | -
fc3.out         | 5,6,7,9,12     | 5,6,7,9,12     | 5,6,7,9,12     | 5,6,7,9,12
fc3.out@grad    | 9,11,12,14,15  | 9,11,12,14,15  | 9,11,12,14,15  | 9,11,12,14
in              | 0,1,26         | 0,1            | 0,1,24         | 0,1,24
"""


@cache
def three_layers(frozen: str | None, *, fused: bool) -> TrainableGraph:
    s = Sketch("three layers")
    x = s.input("in", 8, 5)
    for layer in ("fc1", "fc2", "fc3"):
        weight = s.parameter(f"{layer}.weight", 5, 5, trainable=layer != frozen)
        x = s.op("Gemm", [x, weight], f"{layer}.out", layer, activation="Sigmoid" if fused else "None")
        x = x if fused else s.op("Sigmoid", [x], f"{layer}.act")
    s.op("MeanSquaredError", [x, s.label("label", 8, 5)], "loss", "mse")
    return s.graph()


@pytest.mark.parametrize("fused", [False, True], ids=["own operation", "fused"])
def test_execution_orders(*, fused: bool) -> None:
    found = {frozen: nntrainer_orders(three_layers(frozen, fused=fused)) for frozen in FROZEN}
    with every() as case:
        for row in ORDERS.strip().splitlines():
            tensor, *columns = (cell.strip() for cell in row.split("|"))
            for frozen, cell in zip(FROZEN, columns, strict=True):
                with case((tensor, frozen)):
                    ticks = None if cell == "-" else tuple(map(int, cell.split(",")))
                    assert found[frozen].get(tensor) == ticks


@pytest.mark.parametrize("frozen", FROZEN)
def test_activations_have_no_memory_of_their_own(frozen: str | None) -> None:
    tensors = {row.split("|")[0].strip() for row in ORDERS.strip().splitlines()}
    assert set(nntrainer_orders(three_layers(frozen, fused=False))) <= tensors | {"loss"}


@pytest.mark.parametrize("frozen", [None, "fc2", "fc3"])
def test_tensors_are_valid_from_their_first_to_their_last_tick(frozen: str | None) -> None:
    """With fc1 trainable every tick comes; what happens when it is frozen is tested below."""
    graph = three_layers(frozen, fused=True)
    orders = nntrainer_orders(graph)
    for buffer in nntrainer_target(graph).pools[1].buffers:
        assert (buffer.lifespan.start, buffer.lifespan.end) == (
            orders[buffer.id][0],
            orders[buffer.id][-1] + 1,
        )


def test_the_backward_pass_ends_with_the_earliest_layer_that_trains() -> None:
    target = nntrainer_target(three_layers("fc1", fused=True))
    assert target.steps[-1].id == "fc2:apply_gradient"
    assert len(target.steps) == 23
    spans = {buffer.id: buffer.lifespan.end for buffer in target.pools[1].buffers}
    assert (spans["fc1.out"], spans["fc1.out@grad"]) == (21, 22)


# ------------------------------------------------------------------------------------------- sizes


def fully_connected(widths: Sequence[int], batch: int, activation: str = "None") -> Sketch:
    s = Sketch("fully connected")
    x = s.input("x", batch, widths[0])
    for i, (a, b) in enumerate(pairwise(widths), 1):
        weights = [s.parameter(f"w{i}", b, a), s.parameter(f"b{i}", b)]
        x = s.op("Gemm", [x, *weights], f"h{i}", transB=1, activation=activation)
    return s


def with_error(s: Sketch, output: str, *shape: int) -> TrainableGraph:
    s.op("MeanSquaredError", [output, s.label("t", *shape)], "loss")
    return s.graph()


def linear() -> TrainableGraph:
    return with_error(fully_connected((150528, 300), 64), "h1", 64, 300)


def model_a_linear() -> TrainableGraph:
    return with_error(fully_connected((784, 4096, 2048, 100), 2048), "h3", 2048, 100)


def model_c_linear() -> TrainableGraph:
    s = fully_connected((150528, 10), 64, "Relu")
    return with_error(s, s.op("Flatten", ["h1"], "flat"), 64, 10)


def convolutions(count: int) -> TrainableGraph:
    s = Sketch("convolutions")
    x, side = s.input("x", 64, 3, 224, 224), 224
    for i in range(count):
        weights = [s.parameter(f"w{i}", 3, 3, 3, 3), s.parameter(f"b{i}", 3)]
        x = s.op("Conv", [x, *weights], f"h{i}", strides=(2, 2), auto_pad="SAME_UPPER")
        side //= 2
    return with_error(s, x, 64, 3, side, side)


def mnist() -> TrainableGraph:
    s = Sketch("mnist")
    x, channels = s.input("x", 32, 1, 28, 28), 1
    for i, filters in enumerate((6, 12), 1):
        weights = [s.parameter(f"k{i}", filters, channels, 5, 5), s.parameter(f"c{i}", filters)]
        x = s.op("Conv", [x, *weights], f"conv{i}", activation="Sigmoid")
        x = s.op("AveragePool", [x], f"pool{i}", kernel_shape=(2, 2), strides=(2, 2))
        channels = filters
    x = s.op("Flatten", [x], "flat")
    x = s.op("Gemm", [x, s.parameter("w", 192, 10), s.parameter("b", 10)], "fc")
    x = s.op("Softmax", [x], "p")
    s.op("CategoricalCrossEntropy", [x, s.label("t", 32, 10)], "loss")
    return s.graph(optimizer="Adam")


#: A graph, whether gradients are clipped; weights and state, tensors without reuse, lower bound, in MiB.
CASES: dict[str, tuple[Callable[[], TrainableGraph], bool, float | None, float, float]] = {
    "Linear": (linear, False, 172.27, 172.49, 172.34),
    "Conv": (lambda: convolutions(1), False, None, 27.56, 18.38),
    "Model_A_Conv": (lambda: convolutions(3), False, None, 24.69, 12.63),
    "Model_A_Linear": (model_a_linear, False, 45.06, 143.40, 80.01),
    "Model_A_Linear, clipped": (model_a_linear, True, 45.06, 143.40, 80.79),
    "Model_C_Linear": (model_c_linear, False, 5.74, 5.75, 5.74),
    "MNIST, Adam": (mnist, False, None, 1.31, 0.95),
}


def is_mebibytes(figure: float, bytes_: int) -> bool:
    """Equal to two decimals, as the table rounds."""
    return abs(bytes_ / 2**20 - figure) <= 0.005


def load(pool: Pool) -> int:
    return max_load(pool.problem()).bytes


def test_pool_sizes_and_bounds() -> None:
    """Without clipping, which needs no other tensors, plans reach the bound."""
    with every() as case:
        for name, (build, clips, state, no_reuse, bound) in CASES.items():
            with case(name):
                rules = TrainingRules(clip_global_norm=1.0 if clips else None)
                weights, tensors = nntrainer_target(build().with_spec(rules=rules)).pools
                assert state is None or is_mebibytes(state, load(weights))
                assert is_mebibytes(no_reuse, sum(buffer.size for buffer in tensors.buffers))
                assert is_mebibytes(bound, load(tensors))
                if not clips:
                    made = plan(build(), PlanOptions(target="nntrainer"))
                    assert [arena.name for arena in made.arenas] == ["weights", "tensors"]
                    assert {arena.certificate.proof for arena in made.arenas} == {Proof.MAX_LOAD}
                    assert is_mebibytes(bound, made.arenas[1].size)


def test_what_the_bounds_are_made_of() -> None:
    """Not only how large the peaks are, but which tensors make them up."""
    assert peak(linear()) == {"h1@grad", "w1@grad", "b1@grad"}
    assert peak(convolutions(3)) == {"h0", "h1", "h2", "loss"}
    assert peak(model_a_linear()) == {"h1", "h2@grad", "w2@grad", "b2@grad"}
    assert peak(mnist()) == {"conv1", "conv1@grad", "pool1@grad"}


def peak(graph: TrainableGraph) -> set[str]:
    tensors = nntrainer_target(graph).pools[1]
    step = max_load(tensors.problem()).witness_step
    assert step is not None
    return {b.id for b in tensors.buffers if b.lifespan.start <= step < b.lifespan.end}
