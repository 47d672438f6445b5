"""Plans of the target `c` that train here: compiled C in memory that Python sees."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.c_kernels import SOURCES
from solver.documents import load_graph
from solver.errors import CapacityError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import TrainableGraph, TrainingRules
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions, Tie
from solver.program import EntryKind, Tier
from tests.support.deployments import MODELS, deployed, entries
from tests.support.graphs import chain, convolutional, residual, tower
from tests.support.proofs import moved, offset_of
from tests.support.random_graphs import random_graphs
from tests.support.sizes import hand_over, planned_over, state_of

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def planned(graph: TrainableGraph, **options: object) -> Plan:
    return plan_requested(graph, RequestedOptions(PlanOptions(target="c", **options)))  # type: ignore[arg-type]  # options by name


def wrong_relu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From now on the C files have a Relu that halves what is negative."""
    shutil.copytree(SOURCES, folder / "sources")
    source = folder / "sources/activation.c"
    right = source.read_text(encoding="ascii")
    wrong = right.replace("x[i] <= 0.0f ? 0.0f : x[i]", "x[i] <= 0.0f ? 0.5f * x[i] : x[i]")
    assert wrong != right
    source.write_text(wrong, encoding="ascii")
    monkeypatch.setattr("solver.c_training.SOURCES", folder / "sources")


@pytest.mark.parametrize(
    "graph",
    [convolutional(), chain(training=TrainingRules(accumulate=3))],
    ids=["convolutions", "micro-batches"],
)
def test_a_plan_leaves_the_bits_of_values_apart_and_nearly_those_of_numpy(graph: TrainableGraph) -> None:
    report = validate(graph, planned(graph), steps=4, kernels="c")
    assert report.identical
    assert len(report.steps) == 4
    assert report.compared > len(graph.trainable)


def test_slower_memories_are_arrays() -> None:
    graph = chain((64, 64, 64), batch=2)
    floor = planned(graph).arena_bytes
    made = planned(graph, tiers=(Tier("sram", floor * 3 // 4), Tier("flash", 2**24, 45_000_000, 20_000_000)))
    assert any(not space.addressable for space in made.program.spaces)
    assert validate(graph, made, steps=3, kernels="c").identical


def test_bytes_that_are_reused_too_early_are_named_and_noticed() -> None:
    graph = chain((6, 6, 6))
    made = planned(graph)
    wrong = moved(made, "h2", offset_of(made, "h1"))
    assert not validate(graph, wrong, steps=1, kernels="c").steps
    report = validate(graph, wrong, steps=1, kernels="c", run_wrong_plans=True)
    assert "w2" in report.steps[0].differing


def test_a_wrong_kernel_is_noticed_beside_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Both runs in C agree bit for bit: they have the same Relu, which halves what is negative."""
    graph = chain((6, 6, 6))
    wrong_relu(monkeypatch, tmp_path)
    report = validate(graph, planned(graph), steps=1, kernels="c")
    assert not report.identical
    (differing,) = report.steps[0].differing
    assert "with NumPy's kernels" in differing


def test_training_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    graph = residual()
    made = planned(graph)
    with Trainer(graph, made, kernels="c") as trainer, Trainer(graph, plan_requested(graph)) as numpy:
        assert trainer.step(synthetic_batch(graph, 0, 0)) == pytest.approx(
            numpy.step(synthetic_batch(graph, 0, 0)), rel=1e-5
        )
        trainer.save(tmp_path / "saved.safetensors")
        expected = trainer.step(synthetic_batch(graph, 0, 1))
        trainer.step(synthetic_batch(graph, 0, 2))
        trainer.restore(tmp_path / "saved.safetensors")
        assert trainer.iteration == 1
        assert trainer.step(synthetic_batch(graph, 0, 1)) == expected
        for weight in graph.trainable:
            numpy.step(synthetic_batch(graph, 0, 1)) if numpy.iteration == 1 else None
            np.testing.assert_allclose(trainer.read(weight), numpy.read(weight), rtol=1e-3, atol=1e-5)
    assert trainer.read(graph.trainable[0]).shape == graph.operands[graph.trainable[0]].shape
    with pytest.raises(PlanError, match="is closed"):
        trainer.step(synthetic_batch(graph, 0, 3))


def test_a_batch_that_does_not_fit_changes_nothing() -> None:
    graph = chain()
    with Trainer(graph, planned(graph), kernels="c") as trainer:
        before = trainer.read("w1")
        with pytest.raises(PlanError, match="missing"):
            trainer.step({})
        assert trainer.iteration == 0
        assert np.array_equal(trainer.read("w1"), before)


def test_kernels_and_targets_belong_together() -> None:
    graph = chain()
    with pytest.raises(PlanError, match="target 'c'") as caught:
        Trainer(graph, planned(graph))
    assert "kernels='c'" in caught.value.remedy
    with pytest.raises(PlanError, match="target 'reference'") as caught:
        Trainer(graph, plan_requested(graph), kernels="c")
    assert "target 'c'" in caught.value.remedy
    with pytest.raises(PlanError, match="target 'c'"):
        validate(graph, planned(graph))


@pytest.mark.parametrize("name", ["chain", "convolutional", "dropout"])
def test_entry_points_leave_the_bits_of_values_apart_and_nearly_those_of_numpy(name: str) -> None:
    graphs, deployment = deployed(entries(MODELS[name]), target="c")
    report = validate(graphs, deployment, steps=4, kernels="c")
    assert report.identical
    assert sorted(step.entry for step in report.steps) == sorted([*graphs] * 4)


@pytest.mark.parametrize("name", ["chain", "residual", "dropout"])
def test_entry_points_compute_what_separate_trainers_do(name: str) -> None:
    """Each program in an arena of its own, under a plan of its own; persistent values are copied between."""
    graphs, deployment = deployed(entries(MODELS[name]), target="c")
    alone = {entry: Trainer(graph, planned(graph), kernels="c") for entry, graph in graphs.items()}
    rng = random.Random(name)

    def hand_over(target: str) -> None:
        for entry in alone[target].runner.program.entry:
            label = alone[target].runner.program.values[entry.value].label
            if entry.kind is not EntryKind.FED:
                alone[target].runner.value(label)[...] = alone["train"].runner.value(label)

    with Trainer(graphs, deployment, kernels="c") as trainer:
        for step in range(400):
            entry = rng.choice([*graphs])
            batch = synthetic_batch(graphs[entry], 0, step)
            if entry != "train":
                hand_over(entry)
            if entry == "infer":
                outputs, expected = trainer.infer(batch), alone[entry].infer(batch)
                assert {k: v.tobytes() for k, v in outputs.items()} == {
                    k: v.tobytes() for k, v in expected.items()
                }
            elif entry == "evaluate":
                assert trainer.evaluate(batch) == alone[entry].evaluate(batch)
            else:
                assert trainer.step(batch) == alone[entry].step(batch)
        for parameter in graphs["train"].trainable:
            assert trainer.read(parameter).tobytes() == alone["train"].read(parameter).tobytes()


def test_entry_points_go_on_where_they_were_saved(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(MODELS["dropout"]), target="c")
    with Trainer(graphs, deployment, kernels="c") as trainer:
        trainer.step(synthetic_batch(graphs["train"], 0, 0))
        trainer.infer(synthetic_batch(graphs["infer"], 0, 0))
        trainer.save(tmp_path / "saved.safetensors")
        expected = trainer.step(synthetic_batch(graphs["train"], 0, 1))
    with Trainer(graphs, deployment, kernels="c") as trainer:
        trainer.restore(tmp_path / "saved.safetensors")
        assert trainer.iterations == {"train": 1, "infer": 1, "evaluate": 0}
        assert trainer.step(synthetic_batch(graphs["train"], 0, 1)) == expected


def test_several_models_share_an_arena_in_c() -> None:
    requests = [*entries(MODELS["chain"], "a", "a."), *entries(MODELS["chain"], "b", "b.")]
    graphs, deployment = deployed(requests, [Tie("a.w1", "b.w1")], target="c")
    assert validate(graphs, deployment, steps=3, kernels="c").identical


def test_short_batches_leave_the_bits_of_values_apart_and_of_plans_of_their_own(tmp_path: Path) -> None:
    graph = load_graph(GALLERY["lenet5"].model().document, batch=4)
    made = planned_over(graph, 1, 4, target="c")
    report = validate(graph, made, steps=2, kernels="c")
    assert report.identical
    assert len({step.size for step in report.steps}) > 1
    with Trainer(graph, made, kernels="c") as trainer:
        for step, size in enumerate((4, 1, 3)):
            alone = graph.at(batch=size)
            own_plan, batch = planned(alone), synthetic_batch(alone, 0, step)
            with Trainer(alone, own_plan, kernels="c") as own:
                hand_over(trainer, made, own, own_plan, tmp_path)
                assert trainer.step(batch) == own.step(batch)
                assert state_of(trainer, tmp_path) == state_of(own, tmp_path)


def test_a_wrong_inference_is_noticed_beside_numpy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wrong_relu(monkeypatch, tmp_path)
    graphs, deployment = deployed(entries(lambda batch: chain((6, 6, 6), batch=batch))[1:2], target="c")
    report = validate(graphs, deployment, steps=2, kernels="c")
    assert not report.identical
    assert all("with NumPy's kernels" in step.differing[0] for step in report.steps)


def test_a_paging_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no file"):
        Trainer(chain(), planned(chain()), kernels="c", paging_file=tmp_path / "paged")


def test_a_machine_without_a_compiler_is_told_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = planned(chain())
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlanError, match="no C compiler") as caught:
        Trainer(chain(), made, kernels="c")
    assert "gcc" in caught.value.remedy
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\necho 'net.c:1: error: no such thing' >&2\nexit 1\n", encoding="ascii")
    compiler.chmod(0o755)
    with pytest.raises(PlanError, match=r"cannot compile .* error: no such thing"):
        Trainer(chain(), made, kernels="c")


def test_what_is_compiled_once_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same plan compiles nothing again, another one with the same kernels its own steps alone."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kept"))
    log, commands = tmp_path / "log", tmp_path / "bin"
    commands.mkdir()
    (commands / "cc").write_text(f'#!/bin/sh\necho "$*" >> {log}\nexec {shutil.which("cc")} "$@"\n')
    (commands / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}:{os.environ['PATH']}")

    def compiled(graph: TrainableGraph) -> set[str]:
        log.unlink(missing_ok=True)
        with Trainer(graph, planned(graph), kernels="c") as trainer:
            trainer.step(synthetic_batch(graph, 0, 0))
        return set(re.findall(r"-c \S*/(\w+)\.c", log.read_text(encoding="utf-8")))

    first = compiled(chain())
    assert {"net", "linear", "product"} < first
    assert compiled(chain()) == set()
    assert compiled(chain((5, 4, 3))) == {"net"}
    for path in (tmp_path / "kept").glob("c-linear-*"):
        path.write_bytes(path.read_bytes()[:-1])
    assert compiled(chain()) == {"linear"}


# -------------------------------------------------------------------------- each kind of training and of plan


#: Each optimizer with all that changes its formula.
OPTIMIZERS: list[dict[str, Any]] = [
    {"optimizer": "SGD", "weight_decay": 0.1},
    {"optimizer": "SGD", "momentum": 0.9, "weight_decay": 0.1},
    {"optimizer": "SGD", "momentum": 0.9, "nesterov": True},
    {"optimizer": "Adam", "weight_decay": 0.1},
    {"optimizer": "Adam", "epsilon": 0.01, "epsilon_hat": True, "beta1": 0.5, "beta2": 0.9},
    {"optimizer": "AdamW", "weight_decay": 0.1},
    {"optimizer": "RMSProp"},
    {"optimizer": "RMSProp", "centered": True, "momentum": 0.5, "weight_decay": 0.1},
    {"optimizer": "Adagrad", "learning_rate_decay": 0.1, "weight_decay": 0.1},
]

RULES = [
    TrainingRules(clip_global_norm=0.05),
    TrainingRules(loss_scale=64.0),
    TrainingRules(accumulate=2, clip_global_norm=0.05, loss_scale=8.0),
    TrainingRules(accumulate=2, skip_non_finite=True),
]


def planned_alone(graph: TrainableGraph, **options: Any) -> Plan:
    """The plan with these measures and no other."""
    return plan_requested(graph, RequestedOptions(PlanOptions(target="c", **options), automatic=False))


def assert_weights_of_numpy(graph: TrainableGraph) -> None:
    """After four steps weights and losses are those of NumPy's kernels, but for last bits."""
    with (
        Trainer(graph, planned_alone(graph), kernels="c") as ours,
        Trainer(graph, plan_requested(graph)) as theirs,
    ):
        before = {weight: ours.read(weight) for weight in graph.trainable}
        for step in range(4):
            batch = synthetic_batch(graph, 0, step)
            assert ours.step(batch) == pytest.approx(theirs.step(batch), rel=1e-5)
        for weight in graph.trainable:
            np.testing.assert_allclose(ours.read(weight), theirs.read(weight), rtol=1e-4, atol=1e-6)
            assert not np.array_equal(ours.read(weight), before[weight])


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=str)
def test_each_optimizer_trains_as_in_numpy(optimizer: dict[str, Any]) -> None:
    assert_weights_of_numpy(chain(**optimizer))


@pytest.mark.parametrize("rules", RULES, ids=str)
def test_rules_of_training_are_those_of_numpy(rules: TrainingRules) -> None:
    assert_weights_of_numpy(chain(optimizer="Adam", training=rules))


def test_a_gradient_that_is_no_number_is_left_out() -> None:
    graph = chain(training=TrainingRules(skip_non_finite=True))
    batch = {name: np.array(values) for name, values in synthetic_batch(graph, 0, 0).items()}
    batch["x"][0, 0] = np.nan
    with Trainer(graph, planned_alone(graph), kernels="c") as trainer:
        before = trainer.read("w1")
        assert np.isnan(trainer.step(batch))
        assert np.array_equal(trainer.read("w1"), before)
        trainer.step(synthetic_batch(graph, 0, 1))
        assert not np.array_equal(trainer.read("w1"), before)


PLANS: list[dict[str, Any]] = [
    {"update": "end"},
    {"in_place": True, "sub_ranges": True},
    {"order": True},
    {"recompute": True, "ratio": 0.8},
    {"tiers": True, "ratio": 0.75},
    {"tiers": True, "ratio": 0.75, "recompute": True, "order": True, "update": "end"},
]


@pytest.mark.parametrize("options", PLANS, ids=str)
def test_each_kind_of_plan_leaves_the_bits_of_values_apart(options: dict[str, Any]) -> None:
    rules = TrainingRules(accumulate=1 if "update" in options else 2)  # of two, the second one updates
    graph = tower(dropout=True, tied="update" not in options, optimizer="Adam", training=rules)
    options, usual = dict(options), planned_alone(graph)
    size = int(usual.arena_bytes * options.pop("ratio", 1))
    if options.pop("tiers", False):
        options["tiers"] = (Tier("sram", size), Tier("flash", 1 << 24, 10**7, 10**7))
    elif options.get("recompute"):
        options["capacity"] = size
    made = planned_alone(graph, **options)
    assert (made.program, made.offsets) != (usual.program, usual.offsets)
    report = validate(graph, made, steps=4, kernels="c")
    assert report.identical, report.steps


@settings(max_examples=6)
@given(random_graphs(), st.booleans(), st.booleans(), st.sampled_from(["at once", "end"]), st.booleans())
def test_random_graphs_leave_the_bits_of_values_apart(
    graph: TrainableGraph, in_place: bool, order: bool, update: str, paged: bool
) -> None:
    options: dict[str, Any] = {"in_place": in_place, "order": order}
    if update == "end":
        options["update"] = update
    made = planned_alone(graph, **options)
    if paged:
        tiers = (Tier("sram", made.arena_bytes - 64), Tier("flash", 1 << 24, 10**7, 10**7))
        with contextlib.suppress(CapacityError):  # one step may need all of them
            made = planned_alone(graph, **options, tiers=tiers)
    assert validate(graph, made, steps=3, kernels="c").identical
