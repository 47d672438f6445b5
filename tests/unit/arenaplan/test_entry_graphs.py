"""From models to trainers of plans with entry points: what `deploy` and `entry_graphs` take and refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arenaplan
from examples.gallery import GALLERY
from service.http.examples import example
from tests.support.every import grid
from tests.support.graphs import chain

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MNIST = EXAMPLES / "mnist.json"
TINY: dict[str, Any] = example("tiny")["graph"]


def test_a_document_is_read_for_the_batch_of_each_entry_point() -> None:
    plan = arenaplan.deploy(MNIST, ["train:batch=4", "infer:batch=1"])
    graphs = arenaplan.entry_graphs(MNIST, plan)
    assert {name: graph.operands["image"].shape[0] for name, graph in graphs.items()} == {
        "train": 4,
        "infer": 1,
    }
    with arenaplan.Trainer(graphs, plan) as trainer:
        trainer.step(arenaplan.synthetic_batch(graphs["train"], 0, 0))
        (outputs,) = trainer.infer(arenaplan.synthetic_batch(graphs["infer"], 0, 0)).values()
        assert outputs.shape == (1, 10)
    assert arenaplan.validate(graphs, plan, steps=1).identical


def test_a_graph_has_one_batch() -> None:
    graph = chain()
    plan = arenaplan.deploy(graph, ["train", "evaluate"])
    assert arenaplan.validate(arenaplan.entry_graphs(graph, plan), plan, steps=2).identical


@pytest.mark.parametrize("name", ["lenet5", "autoencoder", "lstm_classifier", "transfer"])
def test_models_of_a_tape(name: str) -> None:
    model = GALLERY[name].model()
    plan = arenaplan.deploy(model, ["train", "infer", "evaluate"])
    assert arenaplan.validate(arenaplan.entry_graphs(model, plan), plan, steps=2).identical


def test_several_models_by_name() -> None:
    models = {"small": chain((6, 5, 4)), "large": chain((6, 7, 4))}
    plan = arenaplan.deploy(models, ["small.train", "large.infer", "large.train"])
    graphs = arenaplan.entry_graphs(models, plan)
    assert {*graphs} == {"small.train", "large.infer", "large.train"}
    assert arenaplan.validate(graphs, plan, steps=4).identical


BAD: list[tuple[Any, str]] = [
    ({"small": chain(), "chain": chain()}, "Model 'small' is not of the plan"),
    (
        EXAMPLES / "programs" / "momentum.json",
        "Entry point 'train': .*Give the model that the plan was made from",
    ),
    (arenaplan.inference(chain()), "Entry point 'train': Nothing of 'chain' is trained"),
]


@grid(("models", "words"), BAD)
def test_models_of_another_plan_are_refused(models: Any, words: str) -> None:
    plan = arenaplan.deploy(chain(), ["train", "infer"])
    with pytest.raises(arenaplan.OptionsError, match=words):
        arenaplan.entry_graphs(models, plan)


def test_a_batch_that_the_document_leaves_open() -> None:
    """It may come from an entry point, or from the options."""
    document = {**TINY, "batch": None}
    plan = arenaplan.deploy(document, ["train:batch=4", "infer:batch=1"])
    assert [*arenaplan.entry_graphs(document, plan)] == ["train", "infer"]
    assert arenaplan.deploy(document, ["train", "infer:batch=1"], batch=4).digest == plan.digest


@grid(
    ("models", "entries", "words"),
    [
        ({}, ["infer"], "There is no model"),
        ({"a": 3}, ["a.infer"], "Model 'a' is 3"),
        (TINY, "train", "'entries' of deploy"),
        (TINY, ["infer:name=\ud800"], "no name of an entry point"),
    ],
)
def test_what_only_python_can_say_is_refused(models: Any, entries: Any, words: str) -> None:
    with pytest.raises(arenaplan.OptionsError, match=words) as refused:
        arenaplan.deploy(models, entries)
    assert refused.value.remedy
