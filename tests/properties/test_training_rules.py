"""Random graphs with states, dropout and training rules: the arena and memory of their own train alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import dump_graph, load_graph
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Initializer, TrainableGraph, TrainingRules
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import CLIP, Kind
from tests.support.graphs import Sketch
from tests.support.proofs import violations
from tests.support.random_graphs import PLANNED, random_graphs

RULES = st.builds(
    TrainingRules,
    clip_global_norm=st.none() | st.sampled_from([0.01, 1.0, 100.0]),
    loss_scale=st.sampled_from([1.0, 3.0, 1024.0]),
    accumulate=st.integers(1, 3),
    skip_non_finite=st.booleans(),
)

OPTIONS = st.builds(
    PlanOptions,
    update=st.sampled_from(["immediate", "end"]),
    parallelism=st.sampled_from([1, 1, 2, 3, 4]),
    in_place=st.booleans(),
    solver=st.just("greedy"),
)


@st.composite
def layered(draw: st.DrawFn) -> TrainableGraph:
    """A chain of layers with random masks and running statistics in between, and a branch around some."""
    batch, width = draw(st.integers(2, 5)), draw(st.integers(1, 5))
    s = Sketch("layered")
    h = s.input("x", batch, width)
    ones = Initializer("ones")
    for k in range(draw(st.integers(1, 5))):
        around, kind = h, draw(st.sampled_from(["Gemm", "Dropout", "BatchNormalization", "Relu"]))
        inputs, attributes = [h], dict[str, Any]()
        if kind == "Gemm":
            inputs += [s.parameter(f"w{k}", width, width), s.parameter(f"b{k}", width)]
        elif kind == "Dropout":
            attributes = {"ratio": draw(st.sampled_from([0.0, 0.2, 0.7])), "seed": draw(st.integers(0, 9))}
        elif kind == "BatchNormalization":
            inputs += [s.parameter(f"scale{k}", width, initializer=ones), s.parameter(f"shift{k}", width)]
            inputs += [s.state(f"mean{k}", width), s.state(f"variance{k}", width, initializer=ones)]
            attributes = {"training_mode": draw(st.integers(0, 1))}
        h = s.op(kind, inputs, f"h{k}", **attributes)
        if draw(st.booleans()):
            h = s.op("Add", [h, around], f"r{k}")
    h = s.op("Gemm", [h, s.parameter("w", width, 2)], "y")
    s.op("MeanSquaredError", [h, s.label("t", batch, 2)], "loss")
    return s.graph(optimizer=draw(st.sampled_from(["SGD", "Adam", "AdamW"])))


def proved(graph: TrainableGraph, options: PlanOptions) -> Plan:
    made = plan(graph, options)
    assert violations(graph, made) == ()
    assert validate(graph, made, steps=graph.training.accumulate + 1).identical
    return made


@PLANNED
@given(random_graphs(), RULES, OPTIONS, st.booleans())
def test_rules_train_to_the_same_bits(
    graph: TrainableGraph, rules: TrainingRules, options: PlanOptions, rewrite: bool
) -> None:
    ruled = graph.with_spec(rules=rules)
    assert load_graph(dump_graph(ruled)) == ruled
    made = proved(ruled, replace(options, rewrite=rewrite))
    kernels = [step.kernel for step in made.steps]
    assert kernels.count(CLIP) == (rules.joins_gradients and bool(graph.trainable))


@given(layered(), RULES, OPTIONS)
def test_states_and_masks_train_to_the_same_bits(
    graph: TrainableGraph, rules: TrainingRules, options: PlanOptions
) -> None:
    made = proved(graph.with_spec(rules=rules), options)
    states = [b for _, b in made.buffers() if b.kind is Kind.STATE]
    assert all((b.lifespan.start, b.lifespan.end) == (0, made.duration) for b in states)


@given(layered(), OPTIONS, st.integers(1, 3))
def test_what_a_run_holds_does_not_depend_on_the_options(
    graph: TrainableGraph, options: PlanOptions, accumulate: int
) -> None:
    """Order of updates, threads and shared memory change no bit of what carries over."""
    graph = graph.with_spec(rules=TrainingRules(accumulate=accumulate, clip_global_norm=0.5))
    found = []
    for chosen in (PlanOptions(solver="greedy"), options):
        with Trainer(graph, plan(graph, chosen)) as trainer:
            for step in range(1, 2 * accumulate + 1):
                trainer.step(synthetic_batch(graph, 0, step))
            found.append({value: raw.tobytes() for value, raw in trainer.runner.kept().items()})
            assert np.isfinite(trainer.read("w")).all()
    assert found[0] == found[1]
