"""The gallery: every example fits its bound, trains bit-identically in its arena, and learns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest

from arenaplan.builder import Model
from examples.gallery import GALLERY, Example, mobilenet_v2_bn, resnet, transfer
from examples.gallery.__main__ import main
from examples.gallery.data import shape_batches
from solver.documents import load_graph
from solver.errors import PlanError
from solver.executor import synthetic_batch, validate
from solver.graph import Role
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid, some
from tests.support.one_operation import allocated

#: Examples that take too long for a test, thinner and on smaller images; the benchmark trains them whole.
LARGE: dict[str, Callable[[int], Model]] = {
    "resnet18": partial(resnet.build, depth=18, side=32, width=16),
    "resnet50": partial(resnet.build, depth=50, side=32, width=16),
    "mobilenet_v2_bn": partial(mobilenet_v2_bn.build, side=32),
}

#: Parameters as published, less what the examples' fewer classes and colours leave out.
PARAMETERS = {
    "lenet5": 61_706,
    "resnet18": 11_689_512 - 996 * 513,
    "resnet50": 25_557_032 - 996 * 2049,
    "mobilenet_v2_bn": 3_504_872 - 996 * 1281,
}


@grid("name", GALLERY)
def test_arena_is_as_small_as_the_bound_and_smaller_than_buffers_of_their_own(name: str) -> None:
    """Least so where most of it is weights and optimizer state, which are never free."""
    made = GALLERY[name].model().plan()
    assert made.arena_bytes == made.lower_bound
    (arena,) = made.arenas
    assert arena.certificate.proof is not None
    share = 0.75 if name in ("resnet50", "resnet18", "transfer", "last_layers") else 0.6
    assert arena.size < share * sum(buffer.size for buffer in arena.buffers)


@grid("name", GALLERY)
def test_training_in_the_arena_is_bit_identical(name: str) -> None:
    model = LARGE[name](4) if name in LARGE else GALLERY[name].model()
    report = model.validate(steps=2)
    assert report.identical
    assert not report.violations
    assert [step.loss for step in report.steps] == [step.reference_loss for step in report.steps]


#: Networks whose kind another one has: what changes with the kind alone is looked at without them by default.
ALIKE = ("resnet18", "last_layers", "bias_only")


@grid("name", some([name for name in GALLERY if name not in ALIKE], beside=ALIKE))
def test_all_options_together_change_no_bit(name: str) -> None:
    graph = (LARGE[name](4) if name in LARGE else GALLERY[name].model()).graph
    made = plan(graph, PlanOptions(in_place=True, rewrite=True, parallelism=2, update="end"))
    assert made.arena_bytes == made.lower_bound
    assert validate(graph, made, steps=2).identical


@grid("name", some([name for name in GALLERY if name not in ALIKE], beside=ALIKE))
def test_a_step_allocates_next_to_nothing(name: str) -> None:
    model = LARGE[name](4) if name in LARGE else GALLERY[name].model()
    trainer, batch = model.trainer(), synthetic_batch(model.graph, 0, 1)
    assert allocated(lambda: trainer.step(batch)) < 64 * 1024


@grid("name", some([name for name in GALLERY if name not in {*LARGE, *ALIKE}], beside=ALIKE[1:]))
def test_learns(name: str) -> None:
    example = GALLERY[name]
    losses = list(example.train(example.prepare(example.model())))
    assert len(losses) == example.steps
    assert example.learned(losses)
    assert not example.learned(losses[:10])


@pytest.mark.parametrize("name", LARGE)
def test_large_ones_learn_a_batch_by_heart(name: str) -> None:
    batch = next(shape_batches(0, 4, 32))
    losses = list(LARGE[name](4).train([batch] * 8))
    assert losses[-1] < 0.4 * losses[0]


@grid("name", GALLERY)
def test_batches_repeat_with_their_seed_and_are_fresh(name: str) -> None:
    example = GALLERY[name]
    first, again = (list(islice(example.batches(seed, 3), 2)) for seed in (5, 5))
    other = next(example.batches(6, 3))
    inputs = [o.id for o in example.model().graph.operands.values() if o.role in (Role.INPUT, Role.LABEL)]
    assert sorted(first[0]) == sorted(inputs)
    for key in inputs:
        np.testing.assert_array_equal(first[1][key], again[1][key])
    assert any((first[0][key] != first[1][key]).any() for key in inputs)
    assert any((first[0][key] != other[key]).any() for key in inputs)


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_as_published(name: str) -> None:
    assert GALLERY[name].model().parameters == PARAMETERS[name]


def test_resnets_take_the_published_size() -> None:
    model = resnet.build(2, depth=50, side=224, classes=1000)
    assert model.parameters == 25_557_032
    assert model.graph.operands["stage3.block2.add.out"].shape == (2, 7, 7, 2048)
    assert resnet.build(2, depth=18, side=224, classes=1000).parameters == 11_689_512


class TestFineTuning:
    def test_only_the_head_is_trained(self) -> None:
        example = GALLERY["transfer"]
        model = example.prepare(example.model())
        assert model.graph.trainable == ("head.weight", "head.bias")
        trainer = model.trainer()
        before = {name: trainer.read(name) for name in ("trunk.conv1.weight", "head.weight")}
        trainer.step(next(example.batches(0, example.batch)))
        np.testing.assert_array_equal(trainer.read("trunk.conv1.weight"), before["trunk.conv1.weight"])
        assert (trainer.read("head.weight") != before["head.weight"]).any()

    def test_a_frozen_trunk_takes_no_gradients_and_less_memory(self) -> None:
        example = GALLERY["transfer"]
        frozen, whole = example.model().plan(), transfer.source(example.batch).plan()
        assert not any(step.id.startswith("trunk") and "calc" in step.id for step in frozen.steps)
        assert frozen.arena_bytes < 0.7 * whole.arena_bytes

    def test_biases_alone_need_no_weight_gradients(self) -> None:
        buffers = [buffer.id for _, buffer in GALLERY["bias_only"].model().plan().buffers()]
        assert "conv1.bias@grad" in buffers
        assert "conv1.weight@grad" not in buffers

    def test_the_last_two_layers(self) -> None:
        trainable = GALLERY["last_layers"].model().graph.trainable
        assert trainable == ("dense1.weight", "dense1.bias", "dense2.weight", "dense2.bias")


class TestShared:
    def test_tied_embedding_has_two_readers_and_one_gradient(self) -> None:
        graph = GALLERY["transformer"].model().graph
        readers = [operation.type for operation in graph.operations if "table" in operation.inputs]
        assert readers == ["Gather", "Gemm"]
        steps = [step.id for step in GALLERY["transformer"].model().plan().steps if "table@grad" in step.defs]
        assert len(steps) == 2  # the first partial, and its sum with the second

    def test_lstm_cells_share_their_weights(self) -> None:
        graph = GALLERY["lstm_classifier"].model().graph
        cells = [operation for operation in graph.operations if operation.type == "LSTMCell"]
        assert len(cells) == 24
        assert {operation.inputs[3:6] for operation in cells} == {("lstm1.w", "lstm1.r", "lstm1.b")}

    def test_future_is_hidden(self) -> None:
        """Later tokens of a sequence change no earlier prediction: the mask leaves them no weight."""
        example = GALLERY["transformer"]
        model = example.model()
        document = model.document | {"outputs": ["logits.out"]}
        batch = dict(next(example.batches(0, example.batch)))
        logits = []
        for last in (0, 1):
            trainer = type(model).of(document).trainer()
            token = batch["token"].copy()
            token[:, -1] = last
            trainer.step(batch | {"token": token})
            logits.append(trainer.read("logits.out").reshape(example.batch, 16, 16))
        np.testing.assert_array_equal(logits[0][:, :-1], logits[1][:, :-1])
        assert (logits[0][:, -1] != logits[1][:, -1]).any()


class TestCommand:
    def test_lists_without_a_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([]) == 0
        listed = capsys.readouterr().out
        assert all(name in listed for name in GALLERY)

    def test_runs_an_example(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["lstm_classifier"]) == 0
        printed = capsys.readouterr().out
        assert "identical to training without shared memory" in printed
        assert ": below 0.3" in printed
        assert "max-load" in printed

    @pytest.mark.parametrize("name", ["transformer", "bias_only", "lstm_classifier"])
    def test_prints_the_document(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["--document", name]) == 0
        assert load_graph(capsys.readouterr().out.encode()) == GALLERY[name].model().graph

    def test_one_that_does_not_learn(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        short = replace(GALLERY["lstm_classifier"], steps=3)
        monkeypatch.setattr("examples.gallery.__main__.GALLERY", {"short": short})
        assert main(["short"]) == 1
        assert "NOT below" in capsys.readouterr().out

    def test_unknown_name(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["lenet6"])
        assert ended.value.code == 2
        assert "there is no example 'lenet6'" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("error", "code", "words"),
        [(KeyboardInterrupt(), 130, "Stopped."), (PlanError("No such plan."), 1, "gallery: No such plan.")],
    )
    def test_ends_with_one_message(
        self,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        error: BaseException,
        code: int,
        words: str,
    ) -> None:
        def build(_batch: int) -> None:
            raise error

        broken: Example = replace(GALLERY["lenet5"], build=build)  # type: ignore[arg-type]  # it never returns
        monkeypatch.setattr("examples.gallery.__main__.GALLERY", {"broken": broken})
        assert main(["broken"]) == code
        assert words in capsys.readouterr().out
