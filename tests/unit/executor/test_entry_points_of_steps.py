"""Entry points of explicit operations beside those of graphs: functions of blocks in the memory of all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import ArenaplanError, BatchError, PlanError
from solver.executor import BlockRunner, BlockViews, Trainer, synthetic_batch, validate
from solver.executor.blocks import Steps
from solver.graph import DType, inference
from solver.importers.traced import Placed, TracedStep
from solver.pipeline import EntryRequest, plan_deployment, plan_program
from solver.plan import Deployment, Tie
from solver.training import BlockProgram
from tests.support.every import grid
from tests.support.graphs import chain
from tests.support.programs import program

#: Momentum on one weight, and what uses the weight: both know it as w.
MOMENTUM = program((("w x", "g"), ("m g", "m"), ("w m", "w")), fed=("x",), dtype=DType.FLOAT32)
USE = program((("w x", "y"),), fed=("x",), kept=("y",), dtype=DType.FLOAT32)


def _gradient(v: BlockViews) -> None:
    np.multiply(v["w"], v["x"], out=v["g"])


def _momentum(v: BlockViews) -> None:
    v["m"][:] = np.float32(0.5) * v["m"] + v["g"]


def _update(v: BlockViews) -> None:
    v["w"][:] -= np.float32(0.25) * v["m"]


def _use(v: BlockViews) -> None:
    np.multiply(v["w"], v["x"], out=v["y"])


TRAINS = Steps(MOMENTUM, {"op0": _gradient, "op1": _momentum, "op2": _update})
USES = Steps(USE, {"op0": _use})
GRAPH = chain()


def requests(program_model: str = "p") -> list[EntryRequest]:
    return [
        EntryRequest("fit", "p", "run", MOMENTUM),
        EntryRequest("use", program_model, "run", USE),
        EntryRequest("train", "g", "train", GRAPH),
        EntryRequest("infer", "g", "infer", inference(GRAPH)),
    ]


RUNS: dict[str, Any] = {"fit": TRAINS, "use": USES, "train": GRAPH, "infer": inference(GRAPH)}
PLAN = plan_deployment("both", requests())


def one(value: float) -> np.ndarray[Any, Any]:
    return np.array([value], np.float32)


def begun(trainer: Trainer, w: float = 2, m: float = 0) -> None:
    for name, value in (("w", w), ("m", m)):
        trainer.blocks("fit").block(name)[:] = value


def test_steps_and_graphs_agree_with_memory_of_their_own() -> None:
    assert [row.name for row in PLAN.persistent if "." in row.name][:2] == ["p.w", "p.m"]
    for seed in range(20):
        report = validate(RUNS, PLAN, steps=3, seed=seed)
        assert report.identical, report.steps


def test_what_one_program_leaves_another_one_uses() -> None:
    """Beside the program in an arena of its own."""
    alone = BlockRunner(MOMENTUM, plan_program(MOMENTUM), TRAINS.functions)
    alone.block("w")[:], alone.block("m")[:] = 2, 0
    with Trainer(RUNS, PLAN) as trainer:
        begun(trainer)
        for step in range(4):
            alone.block("x")[:] = step
            alone.run()
            assert trainer.run("fit", {"x": one(step)}) == {}
            trainer.step(synthetic_batch(GRAPH, 0, step))
            assert trainer.read("p.w") == alone.block("w")
            assert trainer.run("use", {"x": one(3)})["y"] == alone.block("w") * np.float32(3)
        assert trainer.iterations == {"fit": 4, "use": 4, "train": 4, "infer": 0}


def test_a_checkpoint_has_their_persistent_blocks(tmp_path: Path) -> None:
    with Trainer(RUNS, PLAN) as trainer:
        begun(trainer)
        trainer.run("fit", {"x": one(1)})
        trainer.save(tmp_path / "saved")
        expected = trainer.run("use", {"x": one(3)})
        trainer.run("fit", {"x": one(5)})
        trainer.restore(tmp_path / "saved")
        assert trainer.run("use", {"x": one(3)}) == expected
    with Trainer(RUNS, PLAN) as trainer:
        trainer.restore(tmp_path / "saved")
        assert trainer.run("use", {"x": one(3)}) == expected


def test_a_step_that_is_cut_short() -> None:
    """One that changes persistent blocks ends all entry points, one that reads them ends nothing."""

    def fails(_: BlockViews) -> None:
        raise ZeroDivisionError

    broken = {**RUNS, "use": Steps(USE, {"op0": fails})}
    with Trainer(broken, PLAN) as trainer:
        begun(trainer)
        with pytest.raises(ZeroDivisionError):
            trainer.run("use", {"x": one(1)})
        trainer.run("fit", {"x": one(1)})
    broken = {**RUNS, "fit": Steps(MOMENTUM, {**TRAINS.functions, "op2": fails})}
    with Trainer(broken, PLAN) as trainer:
        begun(trainer)
        with pytest.raises(ZeroDivisionError):
            trainer.run("fit", {"x": one(1)})
        with pytest.raises(PlanError, match="cut short by an exception"):
            trainer.run("use", {"x": one(1)})


def traced(made: BlockProgram, functions: Any, argument: str, result: str) -> TracedStep:
    """A step as PyTorch's is: it has first values, and says where arguments and results lie."""
    place = Placed(argument, "x", 0, (1,), (4,), "float32")
    values = {"w": one(2), "m": one(0)}
    results = (Placed(result, "y", 0, (1,), (4,), "float32"),) if "y" in made.blocks else ()
    return TracedStep(made, functions, values, results, {argument: place})


def test_traced_steps_have_first_values_and_names_for_what_they_take_and_return() -> None:
    tied = [
        EntryRequest("fit", "a", "run", MOMENTUM),
        EntryRequest("use", "b", "run", USE),
    ]
    deployment: Deployment = plan_deployment("steps", tied, [Tie("a.w", "b.w")])
    assert [row.name for row in deployment.persistent] == ["a.w", "a.m"]
    runs = {
        "fit": traced(MOMENTUM, TRAINS.functions, "inputs", ""),
        "use": traced(USE, USES.functions, "image", "['score']"),
    }
    assert validate(runs, deployment, steps=5).identical
    with Trainer(runs, deployment) as trainer:
        trainer.run("fit", {"inputs": one(1)})
        (weight,) = trainer.read("b.w")
        assert weight == 2 - np.float32(0.25) * 2
        assert trainer.run("use", {"image": one(4)}) == {"['score']": weight * 4}
        for batch, words in (({}, "'image' is missing"), ({"image": one(1), "q": one(1)}, "no argument 'q'")):
            with pytest.raises(ArenaplanError, match=words):
                trainer.run("use", batch)
        with pytest.raises(BatchError, match="was traced with"):
            trainer.run("use", {"image": np.zeros(2, np.float32)})


CALLS: list[tuple[Callable[[Trainer], object], str]] = [
    (lambda t: t.run("use", {}), "'x' is missing"),
    (lambda t: t.run("use", {"x": one(1), "w": one(1)}), r"'w' is no block that is fed.*: x"),
    (lambda t: t.run("use", {"x": np.zeros(2, np.float32)}), r"the block is float32\[1\]"),
    (lambda t: t.run("use", {"x": np.zeros(1, complex)}), "complex128"),
    (lambda t: t.infer({"x": one(1)}, entry="use"), r"'use' is there to run, not to infer.*Call `run\(entry"),
    (lambda t: t.blocks("train"), "'train' is there to train"),
]


@grid(("use", "words"), CALLS)
def test_wrong_calls_are_refused(use: Callable[[Trainer], object], words: str) -> None:
    with Trainer(RUNS, PLAN) as trainer:
        begun(trainer)
        with pytest.raises(PlanError, match=words):
            use(trainer)
        assert trainer.run("use", {"x": one(3)}) == {"y": one(6)}


BAD: list[tuple[dict[str, Any], str]] = [
    ({"use": GRAPH}, "'use' runs explicit operations, and nothing has functions for them"),
    ({"use": Steps(USE, {})}, "Entry point 'use': Operation 'op0' has no function"),
    ({"use": TRAINS}, "Entry point 'use': Plan and graph do not belong together"),
    ({"train": USES}, "A Steps is no graph for entry point 'train'"),
]


@grid(("changes", "words"), BAD)
def test_what_does_not_belong_to_the_plan_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Trainer({**RUNS, **changes}, PLAN)
