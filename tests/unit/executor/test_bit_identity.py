"""Training in the arena gives the bits of memory of one's own: every kind of graph, in every way to plan."""

from __future__ import annotations

import threading
from typing import Any

from solver.documents import dump_plan, load_plan
from solver.executor import validate
from solver.graph import DType, TrainableGraph, TrainingRules
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.branching import heads, inception
from tests.support.every import grid
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent
from tests.support.proofs import violations
from tests.support.sequence_graphs import GATES, classifier


def dropped() -> TrainableGraph:
    """Two branches that drop elements: what is dropped must not depend on which comes first, or be kept."""
    s = Sketch("dropped")
    x = s.input("x", 4, 6)
    sides = []
    for k in range(2):
        h = s.op("Gemm", [x, s.parameter(f"w{k}", 6, 6)], f"h{k}", activation="Relu")
        sides.append(s.op("Dropout", [h], f"d{k}", ratio=0.5, seed=k))
    s.op("Add", sides, "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 6)], "loss")
    return s.graph()


GRAPHS: dict[str, TrainableGraph] = {
    "chain-sgd": chain(),
    "chain-momentum": chain((7, 6, 5), optimizer="SGD", momentum=0.9, nesterov=True),
    "chain-wide": chain((64, 32, 16), 8, training=TrainingRules(accumulate=3)),
    "residual-adam": residual(),
    "residual-adamw": residual(optimizer="AdamW", weight_decay=0.01),
    "residual-scaled": residual(16, 16, training=TrainingRules(loss_scale=65536.0, loss_scale_growth=5)),
    "convolutional": convolutional(),
    "convolutional-nchw": convolutional(layout="NCHW"),
    "last-layer": chain((6, 5, 4, 3), trainable=1),
    "elementwise": elementwise(DType.FLOAT32, optimizer="Adagrad"),
    "attention": attention(DType.FLOAT32, optimizer="RMSProp", centered=True, momentum=0.5),
    "recurrent": recurrent(DType.FLOAT32, optimizer="RMSProp"),
    "normalised-nchw": convolved("NCHW", DType.FLOAT32, optimizer="Adam"),
    "normalised-nhwc": convolved("NHWC", DType.FLOAT32, optimizer="Adagrad", learning_rate_decay=0.1),
    "batch-normalised": batch_normalised(),
    "batch-normalised-nhwc": batch_normalised(layout="NHWC"),
    "batch-frozen": batch_normalised(mode=0),
    "inception": inception(batch=2, side=6, width=2),
    "heads": heads(batch=2, length=3, width=4, count=2),
    "dropout": dropped(),
    **{
        f"{type_}-{direction}": classifier(type_, DType.FLOAT32, direction=direction, optimizer="Adam")
        for type_ in GATES
        for direction in ("forward", "bidirectional")
    },
}

RULES = {
    "clip": TrainingRules(clip_global_norm=0.1),
    "scale": TrainingRules(loss_scale=1000.0),
    "accumulate": TrainingRules(accumulate=3),
    "skip": TrainingRules(skip_non_finite=True),
    "dynamic": TrainingRules(loss_scale=1024.0, loss_scale_growth=2),
    "all": TrainingRules(clip_global_norm=0.1, loss_scale=256.0, accumulate=2, skip_non_finite=True),
    "all but clipping": TrainingRules(loss_scale=64.0, accumulate=3),
}

WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"update": "end"},
    {"in_place": True},
    {"parallelism": 2},
    {"parallelism": 4, "in_place": True},
    {"storage": "float16", "in_place": True, "parallelism": 2},
    {"storage": "bfloat16", "rewrite": True, "update": "end"},
)


def assert_identical(graph: TrainableGraph, way: dict[str, Any]) -> None:
    made = plan(graph, PlanOptions(**way))
    assert load_plan(dump_plan(made)) == made
    if way.get("parallelism", 1) > 1:
        assert made.duration < len(made.steps)
    if way.get("in_place"):
        assert made.lower_bound <= plan(graph, PlanOptions(**{**way, "in_place": False})).lower_bound
    report = validate(graph, made, steps=5)
    assert report.identical
    assert not report.violations
    assert [s.loss for s in report.steps] == [s.reference_loss for s in report.steps]
    assert len({s.loss for s in report.steps}) > 1
    assert not [t for t in threading.enumerate() if t.name.startswith("arenaplan-level")]


@grid("way", WAYS, turn=3)
@grid("name", GRAPHS)
def test_training_in_the_arena_is_bit_identical(name: str, way: dict[str, Any]) -> None:
    assert_identical(GRAPHS[name], way)


@grid("way", WAYS[:5], turn=1)
@grid("rules", RULES)
@grid("name", ["chain-momentum", "residual-adam", "convolutional", "batch-normalised"])
def test_it_is_so_under_rules_of_training(name: str, rules: str, way: dict[str, Any]) -> None:
    """Gradients that wait for the norm, or carry over, stand in the way of nothing."""
    graph = GRAPHS[name].with_spec(rules=RULES[rules])
    assert_identical(graph, way)
    if way.get("in_place"):
        assert not violations(graph, plan(graph, PlanOptions(target="singa", in_place=True)))
