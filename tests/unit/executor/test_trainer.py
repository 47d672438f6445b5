"""Trainers: what a batch may be, states in which nothing goes on, checkpoints, and pickled plans."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import ArenaplanError, GraphError, OptionsError, PlanError
from solver.executor import KernelSet, Trainer, synthetic_batch
from solver.graph import Array, DType, Role, TrainableGraph, TrainingRules
from solver.importers.weights import read_arrays
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Tier
from tests.support.every import grid
from tests.support.graphs import Sketch, chain, residual, tower
from tests.support.resumed_training import network
from tests.support.sizes import planned_over, with_symbolic_batch

GRAPH = chain()
PLAN = plan(GRAPH)


def classifier() -> TrainableGraph:
    """Cross entropy with classes that the graph computes: one that is no class stops a step halfway."""
    s = Sketch("classifier")
    h = s.op("Gemm", [s.input("x", 4, 3), s.parameter("w", 5, 3)], "h", transB=1)
    classes = s.op("Cast", [s.op("Abs", [s.label("t", 4)], "positive")], "classes", to=7)
    s.op("CategoricalCrossEntropy", [h, classes], "loss", from_logits=1, sparse=1)
    return s.graph(optimizer="Adam")


def state_of(trainer: Trainer, path: Path) -> dict[str, bytes]:
    trainer.save(path)
    return {name: array.tobytes() for name, array in read_arrays(path).items()}


# ------------------------------------------------------------------------------------------- batches


def test_lists_are_arrays() -> None:
    batch = synthetic_batch(GRAPH, seed=0, step=0)
    with Trainer(GRAPH, PLAN) as first, Trainer(GRAPH, PLAN) as second:
        assert first.step(batch) == second.step({name: array.tolist() for name, array in batch.items()})


BAD: list[tuple[Any, str]] = [
    (np.ma.masked_array(np.zeros((3, 6), np.float32), mask=False), "a masked array"),
    ([[1.0, 2.0], [1.0]], "no array"),
    (None, "missing"),
    (np.zeros((3, 7), np.float32), r"of shape \[3, 7\]"),
    ([["a"] * 6] * 3, "<U1"),
    (np.zeros((3, 6), complex), "complex128"),
    (np.full((3, 6), None), "object"),
    ({"a": 1}, r"of shape \[\]"),
]


@grid(("value", "named"), BAD)
def test_what_is_no_fitting_array_is_refused_by_name(value: Any, named: str) -> None:
    with Trainer(GRAPH, PLAN) as trainer:
        with pytest.raises(PlanError, match=f"'x' is {named}"):
            trainer.step({**synthetic_batch(GRAPH, seed=0, step=0), "x": value})
        assert trainer.iteration == 0


@pytest.mark.parametrize("batch", [[1, 2], None, np.zeros(3)], ids=["list", "none", "array"])
def test_a_batch_that_is_no_mapping_is_refused(batch: Any) -> None:
    with Trainer(GRAPH, PLAN) as trainer, pytest.raises(PlanError, match="mapping from names to arrays"):
        trainer.step(batch)


def test_a_refused_batch_changes_nothing() -> None:
    """Results of the step before can still be read, and training goes on as if it had not been there."""
    graph = chain(outputs=("h1",))
    own = plan(graph)
    batches = [synthetic_batch(graph, seed=0, step=step) for step in range(2)]
    with Trainer(graph, own) as first, Trainer(graph, own) as second:
        first.step(batches[0])
        second.step(batches[0])
        with pytest.raises(PlanError, match="'t' is missing"):
            second.step({"x": np.full((3, 6), 7, np.float32)})
        assert first.read("h1").tobytes() == second.read("h1").tobytes()
        assert first.step(batches[1]) == second.step(batches[1])


def reader(batch: int, *, cuts: bool, ignore_index: int | None = None) -> TrainableGraph:
    """Tokens, of each row all or all but the last, as an embedding reads them; a class for each."""
    s, count = Sketch("reader"), 4 if cuts else 5
    tokens = s.add("tokens", Role.INPUT, (batch, 5), dtype=DType.INT64)
    if cuts:
        ends = [s.integers("zero", 0), s.integers("last", -1), s.integers("axis", 1)]
        tokens = s.op("Slice", [tokens, *ends], "cut")
    rows = s.op("Gather", [s.parameter("table", 6, 3), tokens], "rows")
    h = s.op("Reshape", [rows, s.integers("matrix", -1, 3)], "h")
    labels = s.op("Reshape", [s.label("t", batch, count, dtype=DType.INT32), s.integers("row", -1)], "t.row")
    ignores: dict[str, Any] = {} if ignore_index is None else {"ignore_index": ignore_index}
    s.op("CategoricalCrossEntropy", [h, labels], "loss", from_logits=1, sparse=1, **ignores)
    return s.graph(optimizer="Adam", training=TrainingRules(accumulate=2))


OUT_OF_RANGE: list[tuple[str, int, str]] = [
    ("tokens", 6, r"An index of operation 'rows\.op' is 6, in the batch's 'tokens'\."),
    ("tokens", -7, "is -7, in the batch's 'tokens'"),
    ("t", 3, r"A class label of operation 'loss\.op' is 3, in the batch's 't'\."),
    ("t", -1, "is -1, in the batch's 't'"),
    ("t", 2**31 - 1, "is 2147483647"),
]


@pytest.mark.parametrize("kernels", ["numpy", "c"])
@pytest.mark.parametrize("ignore_index", [None, -100])
def test_integers_out_of_range_are_refused_before_anything_changes(
    kernels: KernelSet, ignore_index: int | None, tmp_path: Path
) -> None:
    """Of a smaller batch its own rows are looked at; the last tokens are if they are read."""
    cuts = kernels == "numpy"
    graph = with_symbolic_batch(reader(3, cuts=cuts, ignore_index=ignore_index), 3)
    own = planned_over(graph, 1, 3, target="c" if kernels == "c" else "reference")
    batches = [synthetic_batch(graph.at(batch=size), seed=0, step=size) for size in (3, 2, 1, 2)]
    batches[1]["tokens"][0] = [0, -6, 5, -1, 9 if cuts else 1]
    if ignore_index is not None:
        batches[1]["t"][0, 0] = ignore_index
    with Trainer(graph, own, kernels=kernels) as steady, Trainer(graph, own, kernels=kernels) as trainer:
        for step, batch in enumerate(batches):
            for name, value, message in OUT_OF_RANGE:
                wrong = {key: array.copy() for key, array in batch.items()}
                wrong[name][-1, 3] = value
                with pytest.raises(GraphError, match=message):
                    trainer.step(wrong)
                assert trainer.iteration == step
            assert trainer.step(batch) == steady.step(batch)
        assert state_of(trainer, tmp_path / "a") == state_of(steady, tmp_path / "b")


# -------------------------------------------------------------------------------- a step that was cut short


def cut_short(trainer: Trainer) -> None:
    batch = synthetic_batch(trainer.graph, seed=0, step=0)
    with pytest.raises(GraphError, match="class label"):
        trainer.step({**batch, "t": np.array([0.0, 1.0, 9.0, 2.0])})


def test_after_an_exception_in_a_step_nothing_goes_on_until_restored(tmp_path: Path) -> None:
    graph = classifier()
    own = plan(graph)
    batches = [synthetic_batch(graph, seed=0, step=step) for step in range(4)]
    with Trainer(graph, own) as steady, Trainer(graph, own) as trainer:
        for batch in batches[:2]:
            steady.step(batch)
            trainer.step(batch)
        trainer.save(tmp_path / "saved")
        cut_short(trainer)
        for use in (
            lambda: trainer.step(batches[2]),
            lambda: trainer.read("w"),
            lambda: trainer.save(tmp_path / "other"),
        ):
            with pytest.raises(PlanError, match=r"cut short by an exception.*Restore a checkpoint"):
                use()
        trainer.restore(tmp_path / "saved")
        assert trainer.iteration == 2
        for batch in batches[2:]:
            assert steady.step(batch) == trainer.step(batch)
        assert state_of(steady, tmp_path / "a") == state_of(trainer, tmp_path / "b")


def test_an_interrupt_counts_as_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    with Trainer(GRAPH, PLAN) as trainer:
        run = trainer.runner.run

        def interrupted() -> None:
            run()
            raise KeyboardInterrupt

        monkeypatch.setattr(trainer.runner, "run", interrupted)
        batch = synthetic_batch(GRAPH, seed=0, step=0)
        with pytest.raises(KeyboardInterrupt):
            trainer.step(batch)
        with pytest.raises(PlanError, match="cut short"):
            trainer.step(batch)


# -------------------------------------------------------------------------------------- closed, and forked


def test_a_closed_trainer_says_so_and_can_be_read(tmp_path: Path) -> None:
    trainer = Trainer(GRAPH, PLAN)
    batch = synthetic_batch(GRAPH, seed=0, step=0)
    trainer.step(batch)
    weight = trainer.read("w1")
    trainer.save(tmp_path / "saved")
    trainer.close()
    trainer.close()
    uses: list[Callable[[], object]] = [
        lambda: trainer.step(batch),
        lambda: trainer.restore(tmp_path / "saved"),
    ]
    for use in uses:
        with pytest.raises(PlanError, match="The trainer is closed"):
            use()
    assert trainer.read("w1").tobytes() == weight.tobytes()


def test_what_lay_in_a_paging_file_is_gone_with_it(tmp_path: Path) -> None:
    graph = tower(3)
    arena = plan(graph).arena_bytes
    tiers = (Tier("sram", arena * 7 // 10), Tier("flash", 2**22, 10**9, 10**9))
    trainer = Trainer(graph, plan(graph, PlanOptions(tiers=tiers)), paging_file=tmp_path / "paging")
    trainer.step(synthetic_batch(graph, seed=0, step=0))
    trainer.close()
    uses: list[Callable[[], object]] = [lambda: trainer.read("w0"), lambda: trainer.save(tmp_path / "saved")]
    for use in uses:
        with pytest.raises(PlanError, match="The trainer is closed"):
            use()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system does not fork")
def test_a_fork_is_noticed() -> None:
    """In a process of its own: what runs tests has threads, and should not be forked."""
    program = """
import os, sys
from solver.errors import PlanError
from solver.executor import Trainer, synthetic_batch
from solver.pipeline import plan
from tests.support.graphs import chain

graph = chain()
trainer = Trainer(graph, plan(graph))
batch = synthetic_batch(graph, seed=0, step=0)
child = os.fork()
if not child:
    try:
        trainer.step(batch)
    except PlanError as error:
        trainer.close()
        os._exit("another process" not in str(error))
    os._exit(2)
status = os.waitpid(child, 0)[1]
trainer.step(batch)
sys.exit(os.waitstatus_to_exitcode(status))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# -------------------------------------------------------------------------------------------- checkpoints


def options(graph: TrainableGraph) -> dict[str, PlanOptions]:
    arena = plan(graph).arena_bytes
    tiers = (Tier("sram", arena * 9 // 10), Tier("flash", 2**22, 10**9, 10**9))
    return {
        "plain": PlanOptions(),
        "in place": PlanOptions(in_place=True),
        "threads": PlanOptions(parallelism=2),
        "half": PlanOptions(storage="bfloat16"),
        "paged": PlanOptions(tiers=tiers),
    }


@pytest.mark.parametrize("kind", ["plain", "in place", "threads", "half", "paged"])
@pytest.mark.parametrize("when", [0, 1, 4])
def test_resumed_training_is_training_that_never_stopped(kind: str, when: int, tmp_path: Path) -> None:
    """Statistics, moments, accumulated gradients, loss scale and dropout are what they would have been."""
    graph = network()
    own = plan(graph, options(graph)[kind])
    batches = [synthetic_batch(graph, seed=1, step=step) for step in range(8)]
    with Trainer(graph, own) as trainer:
        losses = [trainer.step(batch) for batch in batches[:when]]
        trainer.save(tmp_path / "saved.safetensors")
        losses += [trainer.step(batch) for batch in batches[when:]]
        expected = state_of(trainer, tmp_path / "end")
    with Trainer(graph, own) as trainer:
        trainer.step(synthetic_batch(graph, seed=9, step=0))
        trainer.restore(tmp_path / "saved.safetensors")
        assert [trainer.step(batch) for batch in batches[when:]] == losses[when:]
        assert state_of(trainer, tmp_path / "resumed") == expected


def test_a_checkpoint_goes_through_a_paging_file(tmp_path: Path) -> None:
    graph = tower(3, optimizer="Adam")
    arena = plan(graph).arena_bytes
    own = plan(graph, PlanOptions(tiers=(Tier("sram", arena * 6 // 10), Tier("flash", 2**22, 10**9, 10**9))))
    batches = [synthetic_batch(graph, seed=1, step=step) for step in range(4)]
    with Trainer(graph, own, paging_file=tmp_path / "first") as trainer:
        trainer.step(batches[0])
        trainer.save(tmp_path / "saved")
        losses = [trainer.step(batch) for batch in batches[1:]]
    with Trainer(graph, own, paging_file=tmp_path / "second") as trainer:
        trainer.restore(tmp_path / "saved")
        assert [trainer.step(batch) for batch in batches[1:]] == losses


def test_a_checkpoint_has_the_weights_under_their_names(tmp_path: Path) -> None:
    graph = residual()
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step(synthetic_batch(graph, seed=0, step=0))
        trainer.save(tmp_path / "saved")
        arrays = read_arrays(tmp_path / "saved")
        for name in graph.trainable:
            np.testing.assert_array_equal(arrays[name], trainer.read(name))
    assert len(arrays) == 3 * len(graph.trainable)  # Adam has two variables for each


def test_training_killed_at_random_ends_in_the_same_bits(tmp_path: Path) -> None:
    steps, rng, kills = 40, random.Random(5), 0
    graph = network()
    with Trainer(graph, plan(graph, PlanOptions(in_place=True))) as trainer:
        for step in range(steps):
            trainer.step(synthetic_batch(graph, seed=3, step=step))
        expected = state_of(trainer, tmp_path / "expected")
    checkpoint = tmp_path / "saved"
    command = [sys.executable, "-m", "tests.support.resumed_training", str(checkpoint), str(steps)]
    while True:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            for _ in range(rng.randrange(1, 25)):
                last = int(next(lines, steps))
            process.kill()
        kills += process.returncode != 0
        if last == steps:
            break
    assert kills > 1
    assert {name: array.tobytes() for name, array in read_arrays(checkpoint).items()} == expected
    assert {path.name for path in tmp_path.iterdir()} == {"saved", "expected"}


def damages() -> dict[str, Callable[[bytes], bytes]]:
    def table(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
        def damage(data: bytes) -> bytes:
            end = 8 + int.from_bytes(data[:8], "little")
            document = json.loads(data[8:end])
            change(document)
            text = json.dumps(document).encode()
            return len(text).to_bytes(8, "little") + text + data[end:]

        return damage

    return {
        "empty": lambda data: b"",
        "cut": lambda data: data[:-1],
        "longer": lambda data: data + b"\0",
        "a bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
        "length": lambda data: b"\xff" * 8 + data[8:],
        "text": lambda data: data[:8] + b"}" + data[9:],
        "no metadata": table(lambda t: t.pop("__metadata__")),
        "metadata is a list": table(lambda t: t.update(__metadata__=[])),
        "another format": table(lambda t: t["__metadata__"].update(format="pt")),
        "no number": table(lambda t: t["__metadata__"].update(iteration="soon")),
        "offsets": table(lambda t: t["w1"].update(data_offsets=[-4, 1])),
        "a tensor less": table(lambda t: t.pop("w1")),
        "element type": table(lambda t: t["w1"].update(dtype="I32")),
        "shape": table(lambda t: t["w1"].update(shape=[5, 6, 1])),
        "entry": table(lambda t: t.update(w1=3)),
    }


def of_version_1(data: bytes) -> bytes:
    """The same checkpoint as earlier versions wrote it: a digest of the tensors alone, behind the rest."""
    end = 8 + int.from_bytes(data[:8], "little")
    table = json.loads(data[8:end])
    del table["__metadata__"]["sha256"]
    table["__metadata__"] |= {"version": "1", "sha256": hashlib.sha256(data[end:]).hexdigest()}
    text = json.dumps(table, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + data[end:]


@pytest.mark.parametrize("written", [bytes, of_version_1])
@pytest.mark.parametrize("kind", damages())
def test_a_damaged_checkpoint_is_refused_and_training_goes_on(
    kind: str, written: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "saved"
    batches = [synthetic_batch(GRAPH, seed=0, step=step) for step in range(2)]
    with Trainer(GRAPH, PLAN) as steady, Trainer(GRAPH, PLAN) as trainer:
        steady.step(batches[0])
        trainer.step(batches[0])
        trainer.save(path)
        path.write_bytes(damages()[kind](written(path.read_bytes())))
        with (
            pytest.raises(PlanError, match=r"saved' (is damaged|has 'w1'|lacks)"),
            warnings.catch_warnings(action="ignore"),
        ):
            trainer.restore(path)
        assert steady.step(batches[1]) == trainer.step(batches[1])


def test_a_flipped_bit_is_refused_wherever_it_is(tmp_path: Path) -> None:
    """Also a file that is cut short, or longer; nothing has changed then."""
    graph, path = tower(1, width=2, rows=1, optimizer="Adam"), tmp_path / "saved"
    own, batches = plan(graph), [synthetic_batch(graph, seed=0, step=step) for step in range(2)]
    with Trainer(graph, own) as trainer:
        trainer.step(batches[0])
        trainer.save(path)
        data = path.read_bytes()
        trainer.step(batches[1])
        before = state_of(trainer, tmp_path / "before")
        whole, count = int.from_bytes(data, "little"), len(data)
        changed = ((whole ^ 1 << bit).to_bytes(count, "little") for bit in range(8 * count))
        for damaged in (*changed, *(data[:size] for size in range(len(data))), data + b"\0", data + data):
            path.write_bytes(damaged)
            with pytest.raises(PlanError, match="damaged"):
                trainer.restore(path)
        assert trainer.iteration == 2
        assert state_of(trainer, tmp_path / "after") == before
        path.write_bytes(data)
        trainer.restore(path)
        assert trainer.iteration == 1


def test_a_checkpoint_of_an_earlier_version_is_read_with_a_warning(tmp_path: Path) -> None:
    batches = [synthetic_batch(GRAPH, seed=0, step=step) for step in range(2)]
    with Trainer(GRAPH, PLAN) as trainer, Trainer(GRAPH, PLAN) as other:
        trainer.step(batches[0])
        trainer.save(tmp_path / "saved")
        (tmp_path / "old").write_bytes(of_version_1((tmp_path / "saved").read_bytes()))
        with pytest.warns(UserWarning, match=r"old' is of an earlier version.*Save it again"):
            other.restore(tmp_path / "old")
        assert other.iteration == 1
        assert other.step(batches[1]) == trainer.step(batches[1])


def test_a_checkpoint_of_another_plan_is_refused(tmp_path: Path) -> None:
    with Trainer(GRAPH, PLAN) as trainer:
        trainer.save(tmp_path / "saved")
    another = plan(GRAPH, PlanOptions(update="end"))
    with Trainer(GRAPH, another) as other, pytest.raises(PlanError, match="written with another plan"):
        other.restore(tmp_path / "saved")
    with Trainer(GRAPH, PLAN) as trainer:
        with pytest.raises(PlanError, match="cannot be read"):
            trainer.restore(tmp_path / "missing")
        with pytest.raises(PlanError, match="cannot be written"):
            trainer.save(tmp_path / "missing" / "saved")
        with pytest.raises(PlanError, match="cannot be written"):
            trainer.save("")
        nothing: Any = None
        for use in (trainer.save, trainer.restore):
            with pytest.raises(OptionsError, match=r"'path' of Trainer\.\w+\(\) is None"):
                use(nothing)


@pytest.mark.parametrize("pair", [(None, None), (GRAPH, None), (PLAN, GRAPH)])
def test_a_trainer_is_made_of_a_graph_and_a_plan(pair: Any) -> None:
    with pytest.raises(
        OptionsError, match=r"of Trainer\(\) is .*of type (TrainableGraph or Mapping|Plan or Deployment)\."
    ):
        Trainer(*pair)


# -------------------------------------------------------------------------------------------- pickling


@pytest.mark.parametrize(
    "send", [lambda o: pickle.loads(pickle.dumps(o)), copy.deepcopy], ids=["pickle", "copy"]
)
def test_graphs_and_plans_are_sent_to_other_processes(send: Callable[[Any], Any]) -> None:
    graph = network()
    own = plan(graph, options(graph)["paged"])
    sent_graph: TrainableGraph = send(graph)
    sent_plan: Plan = send(own)
    assert (sent_graph, sent_plan) == (graph, own)
    batch: dict[str, Array] = synthetic_batch(graph, seed=0, step=0)
    with Trainer(graph, own) as here, Trainer(sent_graph, sent_plan) as there:
        assert here.step(batch) == there.step(batch)


def test_errors_are_pickled_with_what_they_say() -> None:
    with Trainer(GRAPH, PLAN) as trainer, pytest.raises(ArenaplanError) as caught:
        trainer.step({})
    sent = pickle.loads(pickle.dumps(caught.value))
    assert (str(sent), sent.path) == (str(caught.value), caught.value.path)


def test_a_trainer_is_not_pickled() -> None:
    with Trainer(GRAPH, PLAN) as trainer, pytest.raises(TypeError, match=r"save\(\) its state"):
        pickle.dumps(trainer)
