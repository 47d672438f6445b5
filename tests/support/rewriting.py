"""Rewriting in tests: with the real footprint or none, and training before and after side by side."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

import numpy as np

from solver.executor import Trainer, synthetic_batch
from solver.executor.arithmetic import KernelArithmetic
from solver.graph import Array, OptimizerSpec, TrainableGraph
from solver.passes import Order
from solver.pipeline import plan
from solver.preparations.rewriting import RULES, Footprint, Rewriting, rewrite
from solver.program import loads, regions
from solver.training import derive

__all__ = [
    "everywhere", "footprint", "gradients", "only", "outputs", "same_after", "same_training", "types",
    "weight",
]  # fmt: skip


def footprint(graph: TrainableGraph) -> Footprint:
    """The footprint by which rewriting is judged, of the program with default options."""
    program = Order().run(derive(graph))
    placed = regions(program)
    (curve,) = loads(program, placed=placed)
    at_peak = frozenset(
        program.operations[step.operation].operation.id
        for step in program.steps
        if curve[step.level] == max(curve)
    )
    return Footprint(max(curve), sum(region.size for region in placed), at_peak)


def everywhere(graph: TrainableGraph, *names: str) -> Rewriting:
    """Rewritten by the rules named, or all that add no operations, wherever they hold, whatever it costs."""
    rules = [rule for rule in RULES if rule.name in names or not (names or rule.adds_operations)]
    bounds = count(0, -1)

    def cost(candidate: TrainableGraph) -> Footprint:
        """Everything lowers it, and everywhere is its peak."""
        return Footprint(next(bounds), 0, frozenset(op.id for op in candidate.operations))

    return rewrite(graph, KernelArithmetic(), cost, rules)


def only(graph: TrainableGraph, name: str) -> TrainableGraph:
    """Rewritten by one rule alone; the names of the graph have to survive."""
    found = everywhere(graph, name).graph
    assert (found.loss, found.outputs, found.trainable) == (graph.loss, graph.outputs, graph.trainable)
    assert {*found.trainable, *found.outputs, found.loss} <= set(found.operands)
    return found


def same_after(
    graph: TrainableGraph, name: str, *, bitwise: bool = False, rtol: float = 1e-5
) -> TrainableGraph:
    """Rewritten by one rule alone, after which it trains alike."""
    found = only(graph, name)
    same_training(graph, found, bitwise=bitwise, rtol=rtol)
    return found


def types(graph: TrainableGraph) -> list[str]:
    return [operation.type for operation in graph.operations]


def weight(graph: TrainableGraph) -> tuple[int, int, int]:
    """A weight that every use of a rule that adds no operations lowers, compared from left to right."""
    activations = ("Clip", "Relu", "Sigmoid", "Tanh")
    weights = {"Reshape": 1, **dict.fromkeys(activations, 0)}
    bent = {
        name
        for operation in graph.operations
        for name in operation.outputs
        if operation.type in activations or operation.attributes.get("activation", "None") != "None"
    }
    pooled = sum(op.type == "MaxPool" and op.inputs[0] in bent for op in graph.operations)
    return sum(weights.get(op.type, 2) for op in graph.operations), pooled, len(graph.operations)


def gradients(
    graph: TrainableGraph, batch: Mapping[str, Array] | None = None
) -> tuple[float, dict[str, Array]]:
    """Loss and gradients of one plain step of gradient descent, from the graph's first values."""
    plain = graph.with_spec(optimizer=OptimizerSpec("SGD", {"learning_rate": 1.0}))
    trainer = Trainer(plain, plan(plain))
    before = {name: trainer.read(name) for name in plain.trainable}
    loss = trainer.step(synthetic_batch(graph, 5, 1) if batch is None else batch)
    return loss, {name: before[name] - trainer.read(name) for name in plain.trainable}


def outputs(graph: TrainableGraph) -> dict[str, Array]:
    """The outputs of the first step."""
    trainer = Trainer(graph, plan(graph))
    trainer.step(synthetic_batch(graph, 5, 1))
    return {name: trainer.read(name) for name in graph.outputs}


def same_training(
    before: TrainableGraph, after: TrainableGraph, *, bitwise: bool = False, rtol: float = 1e-5
) -> None:
    """Loss and every gradient agree for one batch, bit for bit or to `rtol` of the largest element."""
    batch = synthetic_batch(before, 5, 1)
    (loss, old), (other_loss, new) = gradients(before, batch), gradients(after, batch)
    assert old.keys() == new.keys()
    old["loss"], new["loss"] = np.array(loss), np.array(other_loss)
    for name, one in old.items():
        if bitwise:
            assert one.tobytes() == new[name].tobytes(), name
        else:
            scale = max(float(np.abs(one).max()), 1e-30)
            np.testing.assert_allclose(new[name], one, rtol=rtol, atol=rtol * scale, err_msg=name)
