"""Entry points in C: a function for each, over one set of persistent values in one arena."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from solver.c_training import c_training_files
from solver.errors import OptionsError
from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph, inference
from solver.pipeline import EntryRequest, plan_requested
from solver.plan import Deployment, PlanOptions, RequestedOptions
from tests.support.c_programs import CProgram, written
from tests.support.deployments import MODELS, deployed, entries
from tests.support.graphs import Sketch, chain

compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

FLAGS = (("-O0", "-DNET_POISON"), ("-O2", "-march=native"), ("-Os", "-DAP_PLAIN"))


def batch_of(graph: TrainableGraph, step: int) -> Mapping[str, object]:
    return synthetic_batch(graph, 0, step)


def named(**renamed: str) -> tuple[dict[str, TrainableGraph], Deployment]:
    """The entry points of a network, with other names."""
    requests = [replace(each, name=renamed.get(each.name, each.name)) for each in entries(MODELS["chain"])]
    return deployed(requests, target="c")


def header_of(deployment: Deployment) -> str:
    return c_training_files(deployment)["net.h"].decode()


@compiles
@pytest.mark.parametrize("name", ["chain", "convolutional", "dropout"])
def test_every_compiler_leaves_the_bits_of_the_trainer(name: str, tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(MODELS[name]), target="c")
    folder = written(graphs, deployment, tmp_path)
    programs = [CProgram(folder, *flags) for flags in FLAGS]
    order = random.Random(name).choices([*graphs], k=30)
    with Trainer(graphs, deployment, kernels="c") as trainer:
        for step, entry in enumerate(order):
            graph, batch = graphs[entry], synthetic_batch(graphs[entry], 0, step)
            if entry == "train":
                expected = trainer.step(batch)
                assert [program.step(graph, batch) for program in programs] == [expected] * len(programs)
            elif entry == "evaluate":
                expected = trainer.evaluate(batch)
                assert [program.evaluate(graph, batch) for program in programs] == [expected] * len(programs)
            else:
                outputs = {name: array.tobytes() for name, array in trainer.infer(batch).items()}
                for program in programs:
                    inferred = program.infer(graph, batch)
                    assert {name: array.tobytes() for name, array in inferred.items()} == outputs
    assert len({program.hash() for program in programs}) == 1


@compiles
def test_all_that_stays_is_saved_once(tmp_path: Path) -> None:
    graphs, deployment = deployed(entries(MODELS["dropout"]), target="c")
    program = CProgram(written(graphs, deployment, tmp_path), "-O2").having(deployment)
    program.step(graphs["train"], synthetic_batch(graphs["train"], 0, 0))
    program.infer(graphs["infer"], synthetic_batch(graphs["infer"], 0, 0))
    state = program.saved()
    size = re.search(r"NET_STATE_BYTES (\d+)u", header_of(deployment))
    assert size is not None
    assert len(state) == 76 + 3 * 4 + int(size[1]) + 4
    expected = [program.step(graphs["train"], synthetic_batch(graphs["train"], 0, 1)), program.hash()]
    program.restart()
    assert program.load(state) == 0
    again = [program.step(graphs["train"], synthetic_batch(graphs["train"], 0, 1)), program.hash()]
    assert again == expected


@compiles
def test_the_self_test_runs_every_entry_point(tmp_path: Path) -> None:
    """A Relu that inferences alone have wrong: nothing that stays notices it."""
    graphs, deployment = deployed(entries(MODELS["chain"]), target="c")
    folder = written(graphs, deployment, tmp_path)
    right = CProgram(folder, "-O1").self_hash()
    source = folder / "net.c"
    text = source.read_text(encoding="ascii")
    head, infer, rest = text.partition("int net_infer(void)")
    broken = re.sub("ap_relu_forward", "ap_tanh_forward", rest, count=1)
    assert broken != rest
    source.write_text(head + infer + broken, encoding="ascii")
    assert CProgram(folder, "-O2").self_hash() != right


@compiles
def test_an_inference_alone(tmp_path: Path) -> None:
    graph = inference(chain(batch=2))
    made = plan_requested(graph, RequestedOptions(PlanOptions(target="c")))
    header = c_training_files(made)["net.h"].decode()
    assert "int net_infer(void);" in header
    assert "MICRO_BATCHES" not in header
    hashes = {CProgram(written(graph, made, tmp_path), *flags).self_hash() for flags in FLAGS}
    assert len(hashes) == 1


def test_the_entry_point_train_has_the_short_names() -> None:
    header = header_of(named()[1])
    for line in (
        "void net_feed_x(const float *values);",
        "float net_step(void);",
        "uint32_t net_iteration(void);",
        "void net_feed_infer_x(const float *values);",
        "int net_infer(void);",
        "const float *net_output_infer_h2(void);",
        "float net_evaluate(void);",
        "uint32_t net_iteration_evaluate(void);",
    ):
        assert line in header


def test_names_are_spelled_in_c() -> None:
    header = header_of(named(infer="camera-1.infer", evaluate="9")[1])
    assert "int net_camera_1_infer(void);" in header
    assert "void net_feed_camera_1_infer_x(" in header
    assert "float net_9(void);" in header


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({"infer": "step"}, "'step' needs the name net_step in C, which another function has"),
        ({"infer": "save"}, "'save' needs the name net_save"),
        ({"infer": "a.b", "evaluate": "a-b"}, "'a.b' and 'a-b' are both net_a_b in C"),
        ({"infer": "größe"}, "'größe' cannot be spelled in C"),
        ({"infer": "iteration_evaluate", "evaluate": "evaluate"}, "needs the name net_iteration_evaluate"),
    ],
)
def test_names_that_collide_are_refused(names: dict[str, str], message: str) -> None:
    _, deployment = named(**names)
    with pytest.raises(OptionsError, match=re.escape(message)) as caught:
        c_training_files(deployment)
    assert "name=" in caught.value.remedy


def test_models_that_train_count_by_themselves() -> None:
    requests = [
        EntryRequest("train", "m", "train", chain()),
        EntryRequest("small", "m", "train", chain(batch=1)),
        EntryRequest("other", "n", "train", chain()),
    ]
    source = c_training_files(deployed(requests, target="c")[1])["net.c"].decode()
    assert re.findall(r"net_iteration\w*\(void\) \{ return iterations\[(\d)\]; \}", source) == ["0", "0", "1"]


def test_an_operator_without_a_kernel_is_named_with_its_entry_point() -> None:
    s = Sketch("odd")
    y = s.op("Sin", [s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 3, 3)], "h")], "y")
    s.op("MeanSquaredError", [y, s.label("t", 2, 3)], "loss")
    odd = inference(s.graph())
    requests = [EntryRequest("a.train", "a", "train", chain()), EntryRequest("b.infer", "b", "infer", odd)]
    with pytest.raises(OptionsError, match=r"Entry point 'b\.infer': .* no kernel for 1 step: .*Sin"):
        deployed(requests, target="c")


def test_a_plan_of_another_target_is_refused() -> None:
    _, deployment = deployed(entries(MODELS["chain"]))
    with pytest.raises(OptionsError, match="is for target 'reference'"):
        c_training_files(deployment)
