"""Training on synthetic digits in a planned arena, with a model small enough for a unit test."""

from __future__ import annotations

import pytest
from rich.console import Console

from arenaplan.builder import Tape, layers, ops
from examples import train_mnist
from examples.models import classifier
from solver.documents import load_graph
from solver.errors import PlanError
from solver.executor import Trainer
from solver.graph import TrainableGraph
from solver.pipeline import plan


def small() -> TrainableGraph:
    """One hidden layer; the operands that training names are those of the MNIST example."""
    tape = Tape("small", batch=32)
    image, label = tape.input("image", 28, 28, 1), tape.label("label", 10)
    x = layers.dense(ops.flatten(image), 32, activation="Relu")
    return load_graph(classifier(layers.dense(x, 10), label))


@pytest.fixture
def trainer() -> Trainer:
    graph = small()
    return Trainer(graph, plan(graph))


def test_stops_at_the_goal(trainer: Trainer) -> None:
    reports = list(train_mnist.train(trainer, goal=0.6, limit=200, window=8))
    assert [report.reached for report in reports] == [False] * (len(reports) - 1) + [True]
    assert reports[-1].accuracy > 0.6
    assert reports[-1].loss < reports[0].loss
    assert len(reports) < 200


def test_stops_at_the_limit(trainer: Trainer) -> None:
    reports = list(train_mnist.train(trainer, goal=1.0, limit=5, window=2))
    assert [report.step for report in reports] == [1, 2, 3, 4, 5]
    assert not any(report.reached for report in reports)


def test_a_full_window_is_needed(trainer: Trainer) -> None:
    reports = list(train_mnist.train(trainer, goal=-1.0, limit=10, window=4))
    assert [report.step for report in reports] == [1, 2, 3, 4]


def test_the_same_seed_gives_the_same_losses() -> None:
    graph = small()
    made = plan(graph)
    runs = [[r.loss for r in train_mnist.train(Trainer(graph, made), limit=3, seed=5)] for _ in range(2)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(("limit", "code", "words"), [(400, 0, ": above 60%"), (2, 1, "not above")])
def test_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit: int, code: int, words: str
) -> None:
    monkeypatch.setattr(train_mnist, "mnist", small)
    monkeypatch.setattr(train_mnist, "GOAL", 0.6)
    monkeypatch.setattr(train_mnist, "LIMIT", limit)
    assert train_mnist.main() == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [(KeyboardInterrupt(), 130, "Stopped."), (PlanError("No such plan."), 1, "train_mnist: No such plan.")],
)
def test_command_ends_with_one_message(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    words: str,
) -> None:
    def fail(_console: Console) -> bool:
        raise error

    monkeypatch.setattr(train_mnist, "run", fail)
    assert train_mnist.main() == code
    assert capsys.readouterr().out.strip() == words


def test_the_example_is_mnist() -> None:
    assert train_mnist.mnist().name == "mnist"
