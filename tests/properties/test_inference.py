"""Random graphs and their inferences: the same forward values, under any options of a plan."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from solver.documents import dump_graph, load_graph
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Initializer, Operation, Role, TrainableGraph, build_graph, evaluation, inference
from solver.pipeline import plan
from solver.plan import PlanOptions, purpose_of_plan
from tests.support.graphs import Sketch
from tests.support.random_graphs import PLANNED, random_graphs

OPTIONS = st.builds(
    PlanOptions,
    parallelism=st.sampled_from([1, 1, 2, 3]),
    in_place=st.booleans(),
    order=st.booleans(),
    rewrite=st.booleans(),
    solver=st.just("greedy"),
)


def fed(graph: TrainableGraph, batch: dict[str, Any]) -> dict[str, Any]:
    """What an inference takes of a batch."""
    return {name: array for name, array in batch.items() if name in graph.operands}


@PLANNED
@given(random_graphs(), st.integers(0, 3))
def test_outputs_are_the_forward_values_of_the_training_step(graph: TrainableGraph, seed: int) -> None:
    """Bit for bit, where no operation computes otherwise in training; so is the loss of an evaluation."""
    infers, evaluates = inference(graph), evaluation(graph)
    trains = graph.with_graph(outputs=infers.outputs)
    batch = synthetic_batch(graph, seed, 1)
    with Trainer(trains, plan(trains)) as training, Trainer(infers, plan(infers)) as inferring:
        loss = training.step(batch)
        for name, array in inferring.infer(fed(infers, batch)).items():
            assert array.tobytes() == training.read(name).tobytes()
    with Trainer(evaluates, plan(evaluates)) as evaluating:
        assert evaluating.evaluate(batch) == loss


@PLANNED
@given(random_graphs(), OPTIONS)
def test_plans_of_inferences_are_proved_and_run_under_any_options(
    graph: TrainableGraph, options: PlanOptions
) -> None:
    for subject, purpose in ((inference(graph), "infer"), (evaluation(graph), "evaluate")):
        made = plan(subject, options)
        assert purpose_of_plan(made) == purpose
        assert not any("grad" in value.label for value in made.program.values)
        assert validate(subject, made, steps=2).identical
        assert load_graph(dump_graph(subject)) == subject
    assert purpose_of_plan(plan(graph, options)) == "train"


@PLANNED
@given(random_graphs(), OPTIONS)
def test_an_inference_takes_no_more_memory_than_the_training_step(
    graph: TrainableGraph, options: PlanOptions
) -> None:
    options = replace(options, order=False, rewrite=False, solver="portfolio")
    infers = inference(graph)
    trains = graph.with_graph(outputs=infers.outputs)
    assert plan(infers, options).lower_bound <= plan(trains, options).lower_bound


@st.composite
def networks(draw: st.DrawFn) -> tuple[TrainableGraph, TrainableGraph]:
    """A network that trains with dropout and batch norm, and its inference as somebody would write it."""
    batch, width = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    trains, infers = Sketch("network"), Sketch("network")
    #: The operand of the inference for each one of the training.
    counterpart = {"x": "x"}
    h = trains.input("x", batch, width)
    for k in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["Gemm", "Dropout", "BatchNormalization", "Add", "RandomUniform"]))
        inputs, attributes, name = [h], dict[str, Any](), f"h{k}"
        counterpart[name], untrained = name, dict[str, Any]()
        if kind == "Gemm":
            inputs += [trains.parameter(f"w{k}", width, width), trains.parameter(f"b{k}", width)]
        elif kind == "Add":
            inputs.append(draw(st.sampled_from(sorted(counterpart.keys() - {name}))))
        elif kind == "Dropout":
            attributes = {"ratio": draw(st.sampled_from([0.0, 0.2, 0.7])), "seed": k}
            counterpart[name] = counterpart[h]
        elif kind == "BatchNormalization":
            inputs += [trains.parameter(f"scale{k}", width), trains.parameter(f"shift{k}", width)]
            attributes = {"training_mode": 1, "momentum": 0.7}
            if draw(st.booleans()):
                ones = Initializer("ones")
                inputs += [trains.state(f"m{k}", width), trains.state(f"v{k}", width, initializer=ones)]
                untrained = {"training_mode": 0}
        else:
            for sketch in (trains, infers):
                sketch.op(kind, [f"shape{k}"], f"noise{k}", seed=k)
            trains.integers(f"shape{k}", batch, width)
            kind, inputs = "Add", [h, f"noise{k}"]
        h = trains.op(kind, inputs, name, **attributes)
        if kind != "Dropout":
            there = [counterpart.get(source, source) for source in inputs]
            infers.op(kind, there, name, **{**attributes, **untrained})
    weight = trains.parameter("w", width, 2)
    trains.op("Gemm", [h, weight], "y")
    infers.op("Gemm", [counterpart[h], weight], "y")
    trains.op("MeanSquaredError", ["y", trains.label("t", batch, 2)], "loss")
    graph = trains.graph(outputs=draw(st.sampled_from([["y"], ["loss"], []])), trainable=["w"])
    return graph, _as_inference(infers, trains)


def _as_inference(sketch: Sketch, trains: Sketch) -> TrainableGraph:
    """The operations of the sketch that lead to y, with the operands of the training graph that they read."""
    needed, operations = {"y"}, list[Operation]()
    for operation in reversed(sketch.operations):
        if operation.outputs[0] in needed:
            operations.insert(0, operation)
            needed |= {*operation.inputs}
    declared = [operand for operand in trains.operands if operand.id in needed]
    return build_graph(sketch.name, declared, operations, loss=None, optimizer=None, outputs=["y"])


@given(networks())
def test_an_inference_is_what_somebody_would_write(pair: tuple[TrainableGraph, TrainableGraph]) -> None:
    graph, by_hand = pair
    assert inference(graph) == by_hand
    evaluates = evaluation(graph)
    assert evaluates.operations[: len(by_hand.operations)] == by_hand.operations
    assert evaluates.operations[len(by_hand.operations) :] == graph.operations[-1:]


@given(networks(), st.integers(1, 3))
def test_evaluation_after_training_changes_nothing(
    pair: tuple[TrainableGraph, TrainableGraph], steps: int
) -> None:
    """Weights and statistics as training left them give the same loss twice, and stay as they are."""
    graph = pair[0]
    with Trainer(graph, plan(graph)) as trainer:
        for step in range(steps):
            trainer.step(synthetic_batch(graph, 0, step))
        kept = [o for o in graph.operands.values() if o.role in (Role.PARAMETER, Role.STATE)]
        learned = {o.id: Initializer("values", trainer.read(o.id).tobytes()) for o in kept}
    operands = {
        name: replace(o, initializer=learned.get(name, o.initializer)) for name, o in graph.operands.items()
    }
    subject = evaluation(graph.with_graph(operands=operands))
    batch = synthetic_batch(graph, 1, 1)
    with Trainer(subject, plan(subject)) as trainer:
        first = trainer.evaluate(batch)
        assert trainer.evaluate(batch) == first or _draws(subject)
        for name, initializer in learned.items():
            if name in subject.operands:
                assert trainer.read(name).tobytes() == initializer.data


def _draws(graph: TrainableGraph) -> bool:
    return any(operation.type == "RandomUniform" for operation in graph.operations)
