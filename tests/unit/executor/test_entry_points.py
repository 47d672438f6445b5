"""Entry points in one arena: bits as in runs of their own, one counter a model, and what may be read when."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import GraphError, OptionsError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.executor.memory import POISON
from solver.executor.proved import entry_programs
from solver.executor.runs import Runs
from solver.graph import Array, Initializer, Role, TrainableGraph, TrainingRules, inference
from solver.importers.weights import read_arrays
from solver.pipeline import EntryRequest, plan, plan_deployment
from solver.plan import Deployment, Tie
from solver.program import EntryKind
from solver.verify import prove_deployment
from tests.support.deployments import MODELS, classifier, deployed, entries, held_reference
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, tower

GRAPHS, PLAN = deployed(entries(MODELS["chain"]))


def batch_of(graph: TrainableGraph, step: int = 0) -> dict[str, Array]:
    return synthetic_batch(graph, seed=0, step=step)


def state_of(trainer: Trainer, path: Path) -> dict[str, bytes]:
    trainer.save(path)
    return {name: array.tobytes() for name, array in read_arrays(path).items()}


# ---------------------------------------------------------------------------------- the bits of separate runs


@pytest.mark.parametrize("name", MODELS)
def test_entry_points_compute_what_separate_trainers_do(name: str) -> None:
    """Each program in an arena of its own, under a plan of its own; persistent values are copied between."""
    graphs, deployment = deployed(entries(MODELS[name]))
    alone = {entry: Trainer(graph, plan(graph)) for entry, graph in graphs.items()}
    rng = random.Random(name)

    def hand_over(source: str, target: str) -> None:
        for entry in alone[target].runner.program.entry:
            label = alone[target].runner.program.values[entry.value].label
            if entry.kind is not EntryKind.FED:
                alone[target].runner.value(label)[...] = alone[source].runner.value(label)

    with Trainer(graphs, deployment) as trainer:
        for step in range(60):
            entry = rng.choice([*graphs])
            batch = batch_of(graphs[entry], step)
            if entry != "train":
                hand_over("train", entry)
            if entry == "infer":
                outputs = trainer.infer(batch)
                assert {k: v.tobytes() for k, v in outputs.items()} == {
                    k: v.tobytes() for k, v in alone[entry].infer(batch).items()
                }
            elif entry == "evaluate":
                assert trainer.evaluate(batch) == alone[entry].evaluate(batch)
            else:
                assert trainer.step(batch) == alone[entry].step(batch)
        for parameter in graphs["train"].trainable:
            assert trainer.read(parameter).tobytes() == alone["train"].read(parameter).tobytes()


def test_what_infers_in_between_changes_no_bit_of_the_training(tmp_path: Path) -> None:
    """Dropout draws by the number of the training step, and Adam counts its updates."""
    graphs, deployment = deployed(entries(MODELS["dropout"]))
    with Trainer(graphs, deployment) as steady, Trainer(graphs, deployment) as trainer:
        for step in range(5):
            losses = [one.step(batch_of(graphs["train"], step)) for one in (steady, trainer)]
            assert losses[0] == losses[1]
            for _ in range(3):
                trainer.infer(batch_of(graphs["infer"], step))
                trainer.evaluate(batch_of(graphs["evaluate"], step))
        assert trainer.iterations == {"train": 5, "infer": 15, "evaluate": 15}
        assert state_of(steady, tmp_path / "a") == state_of(trainer, tmp_path / "b")


def test_first_contents_are_written_once() -> None:
    """The second program would begin with the graph's weights: those are trained already."""
    order = [*reversed(entries(MODELS["chain"]))]
    graphs, deployment = deployed(order)
    with Trainer(graphs, deployment) as trainer:
        first = trainer.read("w1")
        trainer.step(batch_of(graphs["train"]))
        trained = trainer.read("w1")
        trainer.infer(batch_of(graphs["infer"]))
        assert first.tobytes() != trained.tobytes() == trainer.read("w1").tobytes()


def test_the_arena_is_that_of_the_largest_entry_point() -> None:
    assert PLAN.arena_bytes == max(entry_point.plan.arena_bytes for entry_point in PLAN.entry_points)
    report = validate(GRAPHS, PLAN, steps=2)
    assert (report.identical, report.arena_bytes) == (True, PLAN.arena_bytes)
    assert sorted(step.entry for step in report.steps) == sorted([*GRAPHS] * 2)
    held = {row.name for row in PLAN.persistent}
    assert held == {"w1", "b1", "w2", "b2"} | {f"{name}@momentum" for name in ("w1", "b1", "w2", "b2")}
    assert report.compared == len(held) + len(("loss", "h2", "loss"))


# --------------------------------------------------------------------------------------------- one counter


def test_programs_that_train_one_model_count_together() -> None:
    """Their optimizer variables are the same ones, and Adam's bias follows from the number of updates."""
    requests = [
        EntryRequest("large", "m", "train", MODELS["dropout"](4)),
        EntryRequest("small", "m", "train", MODELS["dropout"](1)),
    ]
    graphs, deployment = deployed(requests)
    assert validate(graphs, deployment, steps=6).identical
    with Trainer(graphs, deployment) as trainer:
        with pytest.raises(PlanError, match=r"2 entry points to train\. Name one: entry='large'"):
            trainer.step(batch_of(graphs["large"]))
        trainer.step(batch_of(graphs["large"]), entry="large")
        trainer.step(batch_of(graphs["small"]), entry="small")
        assert trainer.iterations == {"large": 2, "small": 2}
        assert trainer.iteration == 2


def test_programs_that_train_one_model_update_after_as_many_micro_batches() -> None:
    requests = [
        EntryRequest("large", "m", "train", chain()),
        EntryRequest("small", "m", "train", chain(training=TrainingRules(accumulate=2))),
    ]
    words = "'small' updates weights after 2 micro-batches, 'large' of the same model after 1"
    with pytest.raises(OptionsError, match=words):
        plan_deployment("device", requests)


def test_micro_batches_are_counted_past_inferences(tmp_path: Path) -> None:
    rules = TrainingRules(accumulate=3)
    graphs, deployment = deployed(entries(partial(chain, (6, 5, 4), training=rules, optimizer="Adam")))
    assert validate(graphs, deployment, steps=7).identical
    with Trainer(graphs, deployment) as steady, Trainer(graphs, deployment) as trainer:
        for step in range(6):
            assert steady.step(batch_of(graphs["train"], step)) == trainer.step(
                batch_of(graphs["train"], step)
            )
            trainer.infer(batch_of(graphs["infer"]))
        assert state_of(steady, tmp_path / "a") == state_of(trainer, tmp_path / "b")


# ------------------------------------------------------------------------------------------- several models


def two_models(ties: list[Tie]) -> tuple[dict[str, TrainableGraph], Deployment]:
    requests = [
        EntryRequest("a.train", "a", "train", chain()),
        EntryRequest("a.infer", "a", "infer", inference(chain(batch=1))),
        EntryRequest("b.infer", "b", "infer", inference(chain((6, 5, 2)))),
    ]
    return deployed(requests, ties)


def test_tied_values_of_two_models_are_one() -> None:
    graphs, deployment = two_models([Tie("a.w1", "b.w1"), Tie("a.b1", "b.b1")])
    assert validate(graphs, deployment, steps=5).identical
    with Trainer(graphs, deployment) as trainer:
        for step in range(3):
            trainer.step(batch_of(graphs["a.train"], step))
        assert trainer.read("b.w1").tobytes() == trainer.read("a.w1").tobytes()
        outputs = trainer.infer(batch_of(graphs["b.infer"]), entry="b.infer")
        weights = {name: trainer.read(f"b.{name}") for name in ("w1", "b1", "w2", "b2")}
    inputs = batch_of(graphs["b.infer"])
    with Trainer(graphs["b.infer"], plan(graphs["b.infer"])) as alone:
        for name, value in weights.items():
            alone.runner.value(name)[...] = value
        assert alone.infer(inputs)["h2"].tobytes() == outputs["h2"].tobytes()


def test_values_that_are_not_tied_are_of_one_model() -> None:
    graphs, deployment = two_models([])
    assert validate(graphs, deployment, steps=5).identical
    with Trainer(graphs, deployment) as trainer:
        before = trainer.read("b.w1")
        trainer.step(batch_of(graphs["a.train"]))
        assert trainer.read("b.w1").tobytes() == before.tobytes() != trainer.read("a.w1").tobytes()
        for name in ("w1", "c.w1", "b.h1"):
            with pytest.raises(PlanError, match="does not outlive"):
                trainer.read(name)


# ------------------------------------------------------------------------- constants, and what never changes


def scaled(batch: int, factor: float, rows: int = 1, role: Role = Role.CONSTANT) -> TrainableGraph:
    """A linear layer whose results are scaled by a constant, or by a parameter that is not trained."""
    s = Sketch("scaled")
    h = s.op("Gemm", [s.input("x", batch, 3), s.parameter("w", 4, 3)], "h", transB=1)
    first = Initializer("values", np.full((rows, 4), factor, np.float32).tobytes())
    h = s.op("Mul", [h, s.add("c", role, (rows, 4), initializer=first)], "y")
    s.op("MeanSquaredError", [h, s.label("t", batch, 4)], "loss")
    return s.graph(trainable=["w"])


@pytest.mark.parametrize("rows", [1, 4])
def test_constants_that_depend_on_the_batch_are_values_of_their_own(rows: int) -> None:
    requests = [
        EntryRequest("train", "m", "train", scaled(4, 2, rows)),
        EntryRequest("infer", "m", "infer", inference(scaled(1, 3))),
        EntryRequest("again", "m", "infer", inference(scaled(2, 3))),
    ]
    graphs, deployment = deployed(requests)
    assert [row.name for row in deployment.persistent] == ["w", "c", "c@infer"]
    assert validate(graphs, deployment, steps=3).identical
    with Trainer(graphs, deployment) as trainer:
        for name in ("infer", "again"):
            trainer.step(batch_of(graphs["train"]))
            inputs = batch_of(graphs[name])
            outputs = trainer.infer(inputs, entry=name)
            np.testing.assert_allclose(outputs["y"], inputs["x"] @ trainer.read("w").T * 3, rtol=1e-5)


def test_what_never_changes_has_the_same_contents_everywhere() -> None:
    def requests(*factors: int, role: Role) -> list[EntryRequest]:
        graphs = [scaled(4, factor, role=role) for factor in factors]
        return [EntryRequest(f"{m}.train", m, "train", graph) for m, graph in zip("ab", graphs, strict=True)]

    for role in (Role.CONSTANT, Role.PARAMETER):
        words = "'a.c' begins with other values in entry point 'a.train' than in 'b.train'"
        with pytest.raises(OptionsError, match=words):
            deployed(requests(2, 3, role=role), [Tie("a.c", "b.c")])
        graphs, deployment = deployed(requests(2, 2, role=role), [Tie("a.c", "b.c")])
        assert validate(graphs, deployment, steps=2).identical
    references = [held_reference(graphs, deployment, k) for k in range(2)]
    assert prove_deployment(deployment, references) == ()
    initial = references[1].by_label["c"]
    other = replace(references[1].initial[initial], sha256="0" * 64)
    changed = replace(references[1], initial={**references[1].initial, initial: other})
    found = prove_deployment(deployment, [references[0], changed])
    assert [violation.rule for violation in found] == ["initial"]


# ---------------------------------------------------------------------------------------- reading results


def test_results_are_there_until_the_next_run() -> None:
    with Trainer(GRAPHS, PLAN) as trainer:
        with pytest.raises(PlanError, match=r"'h2' is a result of 'infer', which is not what ran last"):
            trainer.read("h2")
        outputs = trainer.infer(batch_of(GRAPHS["infer"]))
        assert trainer.read("h2").tobytes() == outputs["h2"].tobytes()
        loss = trainer.evaluate(batch_of(GRAPHS["evaluate"]))
        assert trainer.read("loss") == np.float32(loss)
        with pytest.raises(PlanError, match=r"Read it behind a run of 'infer', before the next run\."):
            trainer.read("h2")
        assert trainer.read("w1").shape == (5, 6)


def test_any_entry_point_can_be_run_by_name() -> None:
    with Trainer(GRAPHS, PLAN) as one, Trainer(GRAPHS, PLAN) as other:
        ran = {name: one.run(name, batch_of(graph)) for name, graph in GRAPHS.items()}
        assert ran["train"]["loss"] == np.float32(other.step(batch_of(GRAPHS["train"])))
        assert ran["infer"]["h2"].tobytes() == other.infer(batch_of(GRAPHS["infer"]))["h2"].tobytes()
        assert ran["evaluate"].keys() == {"loss"}


# --------------------------------------------------------------------------------------- what is cut short


def test_an_evaluation_that_is_cut_short_leaves_the_training_as_it_was(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(classifier))
    no_class = {"t": np.array([0, 9])}
    with Trainer(graphs, deployment) as steady, Trainer(graphs, deployment) as trainer:
        for step in range(3):
            assert steady.step(batch_of(graphs["train"], step)) == trainer.step(
                batch_of(graphs["train"], step)
            )
            with pytest.raises(GraphError, match="class label"):
                trainer.evaluate(batch_of(graphs["evaluate"]) | no_class)
            with pytest.raises(PlanError, match="'loss' is a result of"):
                trainer.read("loss")
        assert trainer.iterations["evaluate"] == 0
        assert state_of(steady, tmp_path / "a") == state_of(trainer, tmp_path / "b")


def test_a_training_step_that_is_cut_short_ends_all_entry_points_until_restored(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(classifier))
    with Trainer(graphs, deployment) as trainer:
        trainer.step(batch_of(graphs["train"]))
        expected = state_of(trainer, tmp_path / "saved")
        with pytest.raises(GraphError, match="class label"):
            trainer.step(batch_of(graphs["train"]) | {"t": np.array([0, 1, 9, 2])})
        for use in (
            lambda: trainer.infer(batch_of(graphs["infer"])),
            lambda: trainer.evaluate(batch_of(graphs["evaluate"])),
            lambda: trainer.read("w"),
        ):
            with pytest.raises(PlanError, match="cut short by an exception"):
                use()
        trainer.restore(tmp_path / "saved")
        trainer.infer(batch_of(graphs["infer"]))
        assert state_of(trainer, tmp_path / "again") == expected


# --------------------------------------------------------------------------------------------- checkpoints


def test_a_restored_trainer_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(MODELS["batch normalised"]))
    with Trainer(graphs, deployment) as trainer:
        for step in range(3):
            trainer.step(batch_of(graphs["train"], step))
            trainer.infer(batch_of(graphs["infer"], step))
        trainer.save(tmp_path / "saved")
        results: list[Any] = [trainer.infer(batch_of(graphs["infer"], 9))["e"].tobytes()]
        results += [trainer.step(batch_of(graphs["train"], step)) for step in range(3, 6)]
        expected = state_of(trainer, tmp_path / "end")
    with Trainer(graphs, deployment) as trainer:
        trainer.step(batch_of(graphs["train"], 8))
        trainer.restore(tmp_path / "saved")
        assert trainer.iterations == {"train": 3, "infer": 3, "evaluate": 0}
        with pytest.raises(PlanError, match="not what ran last"):
            trainer.read("loss")
        again: list[Any] = [trainer.infer(batch_of(graphs["infer"], 9))["e"].tobytes()]
        again += [trainer.step(batch_of(graphs["train"], step)) for step in range(3, 6)]
        assert (again, state_of(trainer, tmp_path / "resumed")) == (results, expected)


def test_another_process_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The plan goes there as a document, the persistent values and counters in the checkpoint."""
    graphs, deployment = deployed(entries(MODELS["dropout"]))
    with Trainer(graphs, deployment) as trainer:
        trainer.step(batch_of(graphs["train"]))
        trainer.infer(batch_of(graphs["infer"]))
        trainer.save(tmp_path / "saved")
        losses = [trainer.step(batch_of(graphs["train"], step)) for step in (1, 2)]
    program = f"""
from solver.executor import Trainer, synthetic_batch
from tests.support.deployments import MODELS, deployed, entries

graphs, deployment = deployed(entries(MODELS["dropout"]))
with Trainer(graphs, deployment) as trainer:
    trainer.restore({str(tmp_path / "saved")!r})
    print([trainer.step(synthetic_batch(graphs["train"], seed=0, step=step)) for step in (1, 2)])
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(losses)


def test_a_checkpoint_of_another_deployment_is_refused(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(MODELS["chain"])[:2])
    with Trainer(graphs, deployment) as trainer, Trainer(GRAPHS, PLAN) as other:
        trainer.save(tmp_path / "saved")
        with pytest.raises(PlanError, match="written with another plan"):
            other.restore(tmp_path / "saved")


# -------------------------------------------------------------------------------------------------- refused


def refused() -> dict[str, tuple[Callable[[Trainer], object], str]]:
    batch = batch_of(GRAPHS["train"])
    return {
        "no such entry point": (
            lambda t: t.run("camera", batch),
            r"no entry point 'camera'\. There are 'train'",
        ),
        "another purpose": (
            lambda t: t.step(batch, entry="infer"),
            r"'infer' is there to infer, not to train",
        ),
        "another batch": (
            lambda t: t.infer(batch),
            r"'x' is of shape \[4, 6\]; the graph takes float32\[1, 6\]",
        ),
        "nothing": (lambda t: t.evaluate({}), "'x' is missing"),
    }


@pytest.mark.parametrize("kind", refused())
def test_a_wrong_call_is_refused_and_changes_nothing(kind: str) -> None:
    use, words = refused()[kind]
    with Trainer(GRAPHS, PLAN) as trainer:
        outputs = trainer.infer(batch_of(GRAPHS["infer"]))
        with pytest.raises(PlanError, match=words):
            use(trainer)
        assert trainer.read("h2").tobytes() == outputs["h2"].tobytes()


def test_a_plan_without_such_a_program_says_what_it_has() -> None:
    graphs, deployment = deployed(entries(MODELS["chain"])[:2])
    words = r"no program to evaluate; it has 'train' \(train\), 'infer'"
    with Trainer(graphs, deployment) as trainer, pytest.raises(PlanError, match=words):
        trainer.evaluate(batch_of(GRAPHS["evaluate"]))
    graph = inference(chain())
    words = r"no program to train.*Call `infer\(inputs\)`, or plan a graph"
    with Trainer(graph, plan(graph)) as trainer, pytest.raises(PlanError, match=words):
        trainer.step(batch_of(graph))


BAD: list[tuple[Any, str]] = [
    (chain(), r"one graph for the entry points 'train', 'infer', 'evaluate'"),
    ({name: GRAPHS[name] for name in ("train", "infer")}, "There is no graph for entry point 'evaluate'"),
    (GRAPHS | {"camera": chain()}, r"no entry point 'camera'\. Its entry points are train, infer, evaluate"),
    (
        GRAPHS | {"infer": inference(chain(batch=2))},
        "Entry point 'infer': Plan and graph do not belong together",
    ),
    (GRAPHS | {"infer": chain(batch=1)}, "'infer' is there to infer, its graph to train"),
    (GRAPHS | {"infer": 3}, "A int is no graph for entry point 'infer'"),
    (GRAPHS | {"train": tower()}, "Entry point 'train': Plan and graph do not belong together"),
]


@grid(("graphs", "words"), BAD)
def test_graphs_of_another_plan_are_refused_by_the_entry_point(graphs: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Trainer(graphs, PLAN)
    with pytest.raises(PlanError, match=words):
        validate(graphs, PLAN)


def test_a_plan_of_one_program_takes_one_graph() -> None:
    with pytest.raises(PlanError, match="has no entry points, and there are graphs"):
        Trainer(GRAPHS, PLAN["train"].plan)
    with pytest.raises(PlanError, match="Plan and graph do not belong together"):
        Trainer(GRAPHS["infer"], PLAN["infer"].plan)


def test_a_paging_file_of_a_plan_with_one_memory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no slower memory"):
        Trainer(GRAPHS, PLAN, paging_file=tmp_path / "file")


# ----------------------------------------------------------------------------------------------------- poison


def test_between_two_runs_everything_is_poison_but_what_stays() -> None:
    programs, violations = entry_programs(GRAPHS, PLAN)
    assert violations == ()
    runs = Runs(programs, PLAN)
    infer, train = (runs.runners[name] for name in ("infer", "train"))
    before = {name: raw.copy() for name, raw in train.carried().items()}
    runs.poison()
    program = PLAN["infer"].plan.program
    kept = {row.values[1] for row in PLAN.persistent}
    for number, value in enumerate(program.values):
        raw = infer.value(value.label).reshape(-1).view(np.uint8)
        assert (raw == POISON).all() == (number not in kept), value.label
    assert all((raw == before[name]).all() for name, raw in train.carried().items())
