"""Every public function of arenaplan in one script: copy lines of it.

    python -m examples.every_function

`main` runs what needs no other framework and no service; the other functions only show. mypy --strict and
pyright check the script (`./run lint`), one test runs it, and another looks for every public name in it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import arenaplan
from arenaplan import layers, ops
from solver.graph import Array, DType
from solver.importers.options import ImportOptions

HERE = Path(__file__).parent


def files(folder: Path) -> arenaplan.TrainableGraph:
    """Graphs, programs and plans in files."""
    graph: arenaplan.TrainableGraph = arenaplan.load_graph(HERE / "mnist.json", batch=8)
    program: arenaplan.BlockProgram = arenaplan.load_program(HERE / "programs" / "momentum.json")
    step: arenaplan.Plan = arenaplan.plan(program)
    arenaplan.save(step, folder / "plan.json")
    arenaplan.save(step, folder / "plan.h")
    print(arenaplan.load_plan(folder / "plan.json") == step)
    return graph


def plans(graph: arenaplan.TrainableGraph) -> arenaplan.Plan:
    """Plans, and what a capacity comes to."""
    arenaplan.plan(graph, as_written=True)  # no measure is taken; `only` chooses some by hand
    arenaplan.plan(graph, only=["in_place", "order"], target="reference", deadline_seconds=10)
    plan: arenaplan.Plan = arenaplan.plan(graph, capacity="12 MiB")
    print(plan, plan.arena_bytes, plan.lower_bound)
    curve: arenaplan.TradeOff = arenaplan.tradeoff(graph, points=3)
    print([point.peak for point in curve.points])
    verdict: arenaplan.Verdict = arenaplan.explain(graph, capacity="8 MiB", training=True)
    print(verdict.status, [remedy.names for remedy in verdict.remedies])
    choice = arenaplan.choose_trainable(graph, {"dense1": 1, "dense2": 2}, capacity="8 MiB")
    print(choice.trainable, choice.score)
    report: arenaplan.ValidationReport = arenaplan.validate(graph, plan, steps=2)
    print(report.identical)
    ranged = arenaplan.plan(HERE / "mnist.json", batch="1..4")
    print(arenaplan.plan_at(ranged, HERE / "mnist.json", batch=3).arena_bytes)
    return plan


def training(graph: arenaplan.TrainableGraph, plan: arenaplan.Plan, folder: Path) -> None:
    """Training in the arena."""
    with arenaplan.Trainer(graph, plan) as trainer:
        loss: float = trainer.step(arenaplan.synthetic_batch(graph, seed=0, step=0))
        trainer.save(folder / "checkpoint.safetensors")
        trainer.restore(folder / "checkpoint.safetensors")
        print(loss, trainer.iteration, trainer.read("conv1.weight").shape)


def entry_points() -> None:
    """Training, inference and evaluation in one arena."""
    model = HERE / "mnist.json"
    plan: arenaplan.Deployment = arenaplan.deploy(model, ["train:batch=8", "infer:batch=1", "evaluate"])
    graphs = arenaplan.entry_graphs(model, plan)
    with arenaplan.Trainer(graphs, plan) as trainer:
        trainer.step(arenaplan.synthetic_batch(graphs["train"], seed=0, step=0))
        outputs = trainer.infer(arenaplan.synthetic_batch(graphs["infer"], seed=0, step=0))
        loss = trainer.evaluate(arenaplan.synthetic_batch(graphs["evaluate"], seed=0, step=0))
        print(loss, outputs["softmax.out"].shape, trainer.iterations)
    graph = arenaplan.load_graph(model, batch=2)
    alone = (arenaplan.inference(graph), arenaplan.evaluation(graph))
    print([arenaplan.plan(one).arena_bytes for one in alone])


def networks() -> None:
    """A network in Python."""
    tape = arenaplan.Tape("two towers", batch=4)
    image: arenaplan.Tensor = tape.input("image", 8, 8, 3)
    with tape.scope("tower"):
        x = layers.conv(image, 8, 3, activation="Relu")
        x = layers.batch_norm(layers.depthwise(x))
        x = ops.pool(ops.add(ops.relu(x), ops.gelu(x)), 2)
        x = ops.clip(layers.upsample(ops.pad(x, [0] * 8), 4), -1.0, 1.0)
    table = tape.parameter("table", [100, 5], "normal", scale=0.1)
    words = layers.embedding(tape.input("words", 6, dtype=DType.INT64), table)
    y = layers.layer_norm(layers.project(layers.lstm(words, 10), 12))
    x = layers.dense(ops.flatten(x), 12) * 0.5 + y
    model: arenaplan.Model = tape.minimise(
        ops.mean_squared_error(ops.softmax(x), tape.label("target", 12)), arenaplan.adam(0.01)
    )
    print(model.parameters, model.plan().arena_bytes, model.validate(steps=1).identical)
    batch: dict[str, Array] = {
        "image": np.zeros((4, 8, 8, 3), np.float32),
        "words": np.zeros((4, 6), np.int64),
        "target": np.ones((4, 12), np.float32),
    }
    print(list(model.train([batch])), arenaplan.sgd(0.1, momentum=0.9))

    x, y = tape.input("logit", 1), tape.label("answer", 1)
    print(ops.binary_cross_entropy(x, y).shape, ops.cross_entropy(x, y).shape)


def errors() -> None:
    """One tree of errors; each names the culprit and a remedy."""
    try:
        arenaplan.plan(HERE / "mnist.json", capacity="1 MiB")
    except arenaplan.CapacityError as error:
        print(error.required, error.available, error.remedy)
    except (arenaplan.DocumentError, arenaplan.GraphError, arenaplan.OptionsError) as error:
        print(error.message, error.pointer)
    except arenaplan.ArenaplanError as error:
        print(error)


def service(address: str) -> None:
    """The same from a service."""
    with arenaplan.Client(address) as client:
        print(client.plan(HERE / "mnist.json", capacity="24 MiB").arena_bytes)


async def asynchronous_service(address: str) -> None:
    """The same in an asynchronous program."""
    async with arenaplan.AsyncClient(address) as client:
        print((await client.plan(HERE / "mnist.json", capacity="24 MiB")).arena_bytes)


def pytorch(module: Any, images: Any, targets: Any, optimizer: Any) -> None:
    """Modules and training steps of PyTorch."""
    captured: arenaplan.torch.Captured = arenaplan.torch.graph(
        module, images, loss="cross-entropy", targets=targets, optimizer=optimizer
    )
    print(list(arenaplan.torch.LOSSES))
    loss: float = next(captured.train([(images, targets)]))
    weights: dict[str, Any] = captured.state_dict()
    document: dict[str, Any] = arenaplan.torch.document(module, images, loss="mse", targets=targets)
    step: arenaplan.torch.TracedStep = arenaplan.torch.program(module, images, optimizer=optimizer)
    arenaplan.torch.runner(step).run()
    train: arenaplan.torch.TrainStep = arenaplan.torch.train_step(
        module, None, optimizer, images, capacity="2 GB"
    )
    print(train(images), train.planned_bytes)
    budget: arenaplan.torch.Budget = arenaplan.torch.budget("300 MB")
    partitions: list[arenaplan.torch.Partition] = (
        budget.partitions
    )  # of torch.compile(options=budget.options)
    print(len(budget.options), len(partitions))
    traced = arenaplan.torch.trace(lambda tensors: tensors["x"].sum(), {"x": images})
    print(loss, len(weights), arenaplan.plan(document, batch=16), arenaplan.plan(traced))


def other_frameworks(train_step: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Training steps of JAX, models in ONNX, the memory of ExecuTorch's programs."""
    step: arenaplan.jax.TracedStep = arenaplan.jax.program(train_step, arguments)
    arenaplan.jax.runner(step).run()
    graph: arenaplan.TrainableGraph = arenaplan.load_graph("model.onnx", loss="cross-entropy")
    options = ImportOptions(loss="cross-entropy", dims={"batch": 8})
    notes: tuple[str, ...] = arenaplan.onnx.load_onnx(Path("model.onnx").read_bytes(), options=options).notes
    print(graph.name, notes, len(arenaplan.onnx.IMPORTED_OPERATORS))
    algorithm = arenaplan.executorch.plan_memory
    planning = arenaplan.executorch.ProgramMemoryPlanningPass()
    print(algorithm, planning)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        mnist = files(Path(name))
        training(mnist, plans(mnist), Path(name))
    entry_points()
    networks()
    errors()


if __name__ == "__main__":
    main()
