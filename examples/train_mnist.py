"""Trains the MNIST example inside its planned arena, on synthetic digits.

    python -m examples.train_mnist

Every batch is drawn afresh and predicted before its labels are learnt from, so the accuracy is
always that on digits the model has not seen. Stops when it exceeds the goal over the last
`WINDOW` batches.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples.digits import batches
from solver.documents import load_graph
from solver.errors import ArenaplanError
from solver.executor import Trainer
from solver.graph import TrainableGraph
from solver.pipeline import plan

__all__ = ["GOAL", "Report", "main", "mnist", "run", "train"]

#: Share of unseen digits that must be recognised.
GOAL = 0.95

#: Batches that the accuracy is taken over: 512 digits, a standard error of 1 % at the goal.
WINDOW = 16

#: Batches before giving up; a model that learns at all needs a quarter of them.
LIMIT = 200


@dataclass(frozen=True, slots=True)
class Report:
    """State after `step` batches; `accuracy` is over the last `WINDOW` batches, `reached` ends training."""

    step: int
    loss: float
    accuracy: float
    reached: bool


def mnist() -> TrainableGraph:
    """The graph of the example document beside this file."""
    return load_graph(Path(__file__).with_name("mnist.json").read_bytes())


def train(
    trainer: Trainer, *, goal: float = GOAL, limit: int = LIMIT, window: int = WINDOW, seed: int = 0
) -> Iterator[Report]:
    """Train until the goal is reached or `limit` batches are used up; one report for each batch."""
    size = trainer.graph.operands["image"].shape[0]
    recent: deque[float] = deque(maxlen=window)
    for step, (images, labels) in enumerate(batches(limit, size, seed), 1):
        loss = trainer.step({"image": images, "label": labels})
        predicted = trainer.read("softmax.out").argmax(axis=1)
        recent.append(float((predicted == labels.argmax(axis=1)).mean()))
        accuracy = sum(recent) / len(recent)
        reached = len(recent) == window and accuracy > goal
        yield Report(step, loss, accuracy, reached)
        if reached:
            return


def run(console: Console) -> bool:
    """The whole example; whether the goal was reached. Raises what `main` makes a message of."""
    graph = mnist()
    made = plan(graph)
    trainer = Trainer(graph, made)
    console.print(f"{graph.name}: everything that training needs, in one arena of {made.arena_bytes:,} bytes")
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=LIMIT)
        for report in train(trainer, goal=GOAL, limit=LIMIT):
            text = f"loss {report.loss:.4f}  accuracy {report.accuracy:.1%}"
            progress.update(task, completed=report.step, description=text)
            if report.step % 10 == 0 or report.reached:
                progress.console.print(f"batch {report.step:4}  {text}")
    verdict = "above" if report.reached else "not above"
    console.print(
        f"{report.accuracy:.1%} of unseen digits after {report.step} batches: {verdict} {GOAL:.0%}."
    )
    return report.reached


def main() -> int:
    """Exit code: 0 when the goal is reached, 1 when it is not, 130 after Ctrl-C."""
    console = Console()
    try:
        return 0 if run(console) else 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except (ArenaplanError, OSError) as error:
        console.print(f"train_mnist: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
