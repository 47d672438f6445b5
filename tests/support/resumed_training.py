"""Trains to a given step, from a checkpoint where there is one, and saves one after each step.

    python -m tests.support.resumed_training CHECKPOINT STEPS

It prints the number of each step that it has saved; a test reads some of them and kills it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph, TrainingRules
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.graphs import Sketch

__all__ = ["main", "network"]


def network() -> TrainableGraph:
    """Everything that one iteration may leave to the next: statistics, moments, gradients, a loss scale."""
    s = Sketch("resumed")
    h = s.input("x", 8, 12)
    for k in range(2):
        h = s.op("Gemm", [h, s.parameter(f"w{k}", 12, 12), s.parameter(f"b{k}", 12)], f"h{k}", transB=1)
        names = [s.parameter(f"scale{k}", 12), s.parameter(f"shift{k}", 12)]
        names += [s.state(f"mean{k}", 12), s.state(f"variance{k}", 12)]
        h = s.op("BatchNormalization", [h, *names], f"n{k}", training_mode=1)
        h = s.op("Dropout", [s.op("Relu", [h], f"a{k}")], f"d{k}", ratio=0.3)
    s.op("MeanSquaredError", [h, s.label("t", 8, 12)], "loss")
    rules = TrainingRules(accumulate=3, loss_scale=1024.0, loss_scale_growth=2)
    return s.graph(optimizer="Adam", training=rules)


def main(checkpoint: Path, steps: int) -> None:
    graph = network()
    with Trainer(graph, plan(graph, PlanOptions(in_place=True))) as trainer:
        if checkpoint.exists():
            trainer.restore(checkpoint)
        while trainer.iteration < steps:
            trainer.step(synthetic_batch(graph, seed=3, step=trainer.iteration))
            trainer.save(checkpoint)
            sys.stdout.write(f"{trainer.iteration}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
