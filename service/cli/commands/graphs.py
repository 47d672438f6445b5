"""Commands that take a graph or a model: plan it, say what less memory costs, train in a plan of it."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Annotated, Literal

import typer

from service.cli.console import Exit, reporting, write_document
from service.cli.options import (
    AsJson,
    Commands,
    EntryPointName,
    ModelChoices,
    ModelFile,
    PlaceOptions,
    PlanFile,
    RuntimeOptions,
    ScheduleOptions,
    SearchOptions,
    Server,
    StepOptions,
    on_one_thread,
    read_bytes,
)
from solver.options import DEPLOYMENT_OPTIONS

__all__ = ["app"]

app = Commands()


@app.add(
    "arenaplan plan graph.json -o plan.json",
    "arenaplan plan graph.json --batch 32 --capacity 24MiB -o plan.json",
    "arenaplan plan graph.json --rewrite --json -o plan.json",
    "arenaplan plan graph.json --batch 1..32 -o plan.json",
    "arenaplan plan graph.json --as-written -o plan.json",
    "arenaplan plan graph.json --batch 32 --tier ram=12MiB --tier flash=1GiB,bandwidth=45MB/s -o p.json",
    "arenaplan plan graph.json --entry train --entry infer:batch=1 -o plan.json",
    "arenaplan plan graph.json --like old.json -o plan.json",
    "arenaplan plan graph.json --pin conv1.weight=8KiB --align 'conv*=64' --reserve 0..8KiB -o plan.json",
    "arenaplan plan mnist.ini --batch 32 --target nntrainer -o plan.json",
    "arenaplan plan model.onnx --loss cross-entropy --optimizer adam --dim batch=32 -o plan.json",
    words={
        "models MODEL...": "Graph document, program document (explicit operations), or a model: ONNX (.onnx),"
        " Circle or TensorFlow Lite (.circle, .tflite), nntrainer's (.ini); - for standard input. Several"
        " with --share.",
        "entry ENTRY": DEPLOYMENT_OPTIONS["entries"].help,
        "share": "Several models in one arena, one at a time.",
        "tie NAMES=NAMES": DEPLOYMENT_OPTIONS["ties"].help,
        "like PLAN": "A plan whose persistent values stay at their places, as far as they can: a firmware"
        " update keeps its weights.",
        "output": "Where the plan goes; - is standard output, which is also taken without -o. A terminal"
        " shows the summary in its place.",
    },
)
def plan(
    models: list[Path],
    *,
    entry: list[str] | None = None,
    share: bool = False,
    tie: list[str] | None = None,
    like: Path | None = None,
    output: Path | None = None,
    schedule: ScheduleOptions,
    places: PlaceOptions,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Plan the arena of a training graph or of a program.

    A program consists of explicit operations. The plan is proved before it is written.
    """
    # Importing another tool's model computes its constants, which takes matrix products.
    if search.get("costs") == "measured" or all(model.suffix in ("", ".json") for model in models):
        on_one_thread()
    options = {**steps, **search, **schedule, **places}
    if entry or share or tie or len(models) > 1:
        from service.cli import deploying

        deploying.check_request(models, share=share, like=like)
        deploying.run(
            models, entry or (), tie or (), options, output, choices, as_json=as_json, server=server
        )
        return
    from service.cli import planning

    planning.run(models[0], options, output, choices, as_json=as_json, server=server, like=like)


@app.add(
    "arenaplan import model.onnx --loss cross-entropy -o graph.json",
    "arenaplan import model.onnx --loss mse --optimizer adam --dim batch=32 -o graph.json",
    "arenaplan import model.onnx --loss cross-entropy --trainable last:2 --weights none -o graph.json",
    "arenaplan import model.onnx --loss cross-entropy --weights trained.safetensors -o graph.json",
    name="import",
    words={
        "model MODEL": "Of another tool: .onnx, .circle, .tflite, or nntrainer's .ini; - for standard input.",
        "output": "Where the graph document goes; - is standard output.",
        "batch": "Value of the first dimension, where it is open.",
    },
)
def import_(
    model: Path,
    *,
    output: Path = Path("-"),
    batch: int | None = None,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Write the graph document of a model of another tool.

    It says how the model is trained as well.
    """
    from service.cli import models

    models.run_import(model, output, batch, choices, as_json=as_json, server=server)


@app.add(
    "arenaplan operators",
    "arenaplan operators --onnx",
    "arenaplan operators --target c",
    "arenaplan operators --json",
    words={
        "onnx": "Those of ONNX, and what becomes of each when it is imported.",
        "target NAME": "Of the target c those that have a kernel in C.",
    },
)
def operators(
    *,
    onnx: bool = False,
    target: str | None = None,
    as_json: AsJson = False,
) -> None:
    """List the operators of graphs, or those of ONNX."""
    from service.cli import models

    models.print_operators(onnx=onnx, target=target, as_json=as_json)


@app.add(
    "arenaplan tradeoff graph.json",
    "arenaplan tradeoff graph.json --batch 32 -o curve.svg",
    "arenaplan tradeoff graph.json --points 20 --json",
    words={
        "output": "Where the curve goes, as .svg, .png or .json.",
        "points COUNT": "Budgets to search within, 2 to 100.",
    },
)
def tradeoff(
    model: ModelFile,
    *,
    output: Path | None = None,
    points: int = 10,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what less memory costs in extra time.

    Beside each cost stands what is proved about it. The curve goes down to the floor.
    """
    if search.get("costs") == "measured":
        on_one_thread()
    from service.cli import verdicts

    options = {**steps, **search}
    verdicts.tradeoff(model, options, output, points, choices, as_json=as_json, server=server)


@app.add(
    "arenaplan explain graph.json --capacity 16MB",
    "arenaplan explain graph.json --capacity 8MB --keep-training",
    "arenaplan explain model.onnx --loss cross-entropy --batch 8 --capacity 512KiB",
    "arenaplan explain graph.json --batch 32 --capacity 16MB --json",
    "arenaplan explain graph.json --capacity 16MB --largest batch -o plan.json",
    "arenaplan explain graph.json --capacity 16MB --choose-trainable scores.json -o plan.json",
    words={
        "keep_training": "Try nothing that changes what is learned, such as smaller batches.",
        "largest NAME": "Find the largest batch that fits, or size of another dimension.",
        "choose_trainable FILE": "Choose the layers to train by the scores in a file; bytes: by the bytes of"
        " each.",
        "output": "Where the plan of the largest size, or of the choice, goes.",
    },
)
def explain(
    model: ModelFile,
    *,
    capacity: Annotated[
        int,
        typer.Option(
            "--capacity", parser=read_bytes, metavar="SIZE", help="What the arena is to fit, as 16MB."
        ),
    ],
    keep_training: bool = False,
    largest: str | None = None,
    choose_trainable: str | None = None,
    output: Path | None = None,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> Exit:
    """Say whether a network fits, and what would make it fit.

    Each way to make it fit is a whole command, those that change no bit first. Where there is none, says why,
    and how near each measure came. With --largest, says how large a batch fits;
    with --choose-trainable, which layers can be trained. Exit code 0: it fits; 5: it
    fits after a change; 3: nothing makes it fit.
    """
    if search.get("costs") == "measured":
        on_one_thread()
    from service.cli import verdicts

    options = {**steps, **search, "capacity": capacity}
    training = not keep_training
    verdicts.check_largest(largest, choose_trainable, output, server)
    if largest is not None:
        return verdicts.largest(model, options, largest, output, choices, training=training, as_json=as_json)
    if choose_trainable is not None:
        from service.cli.choosing import choose

        return choose(model, options, choose_trainable, output, choices, as_json=as_json)
    return verdicts.explain(model, options, choices, training=training, as_json=as_json, server=server)


@app.add(
    "arenaplan costs graph.json -o costs.json",
    "arenaplan costs graph.json --batch 32 --repeats 20 -o costs.json",
    "arenaplan costs model.onnx --loss cross-entropy --dim batch=32 -o costs.json",
    "arenaplan plan graph.json --capacity 18MiB --costs costs.json -o plan.json",
    short_help="Write what each training step takes on this machine.",
    words={
        "output": "Where the costs go; - is standard output.",
        "repeats COUNT 1..1000": "Iterations to take the median of.",
        "roofline": "What plans without costs use, in the place of measuring.",
    },
)
def costs(
    model: ModelFile,
    *,
    output: Path = Path("-"),
    repeats: int = 5,
    roofline: bool = False,
    schedule: ScheduleOptions,
    runtime: RuntimeOptions,
    steps: StepOptions,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> None:
    """Write what each training step takes on this machine, for plans to decide by and people to edit.

    Takes the options of `plan`, since it depends on them which steps there are. Those that schedule are left
    aside while it is measured.
    """
    if not roofline:
        on_one_thread()
    from service.cli import costs as writer

    options = {**steps, **runtime, **schedule}
    writer.write(model, options, output, 0 if roofline else repeats, choices, as_json=as_json)


@app.add(
    "arenaplan validate graph.json plan.json",
    "arenaplan validate graph.json plan.json --steps 20 --seed 7 --json",
    "arenaplan validate graph.json plan.json --paging-file /tmp/paged",
    "arenaplan validate graph.json plan.json --kernels c",
    "arenaplan validate encoder.json head.onnx plan.json",
    words={
        "models MODEL...": "Graph document, - for standard input; or a model: .onnx, .circle, .tflite, or"
        " nntrainer's .ini. Of a plan of several models, each of them.",
        "steps 1..": "Training steps; runs of each entry point.",
        "seed 0..": "Seed of the random batches.",
        "paging_file PATH": "A new file in the place of all memories but the first.",
        "kernels": "Those that run a plan of the target c are compiled here, with the system's cc.",
    },
)
def validate(
    models: list[Path],
    plan: PlanFile,
    *,
    steps: int = 5,
    seed: int = 0,
    paging_file: Path | None = None,
    kernels: Literal["numpy", "c"] = "numpy",
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> Exit:
    """Train in the planned arena, and compare bit for bit.

    It is compared with a run in which no two tensors share memory. Entry points run in a random order.
    """
    gc.enable()
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import training

        document = training.read_planned(plan)
        training.check_models(models, document)
        settings = {"paging_file": paging_file, "kernels": kernels if kernels != "numpy" else None}
        right = training.run(
            models,
            document,
            choices,
            steps=steps,
            seed=seed,
            settings={name: value for name, value in settings.items() if value is not None},
            as_json=as_json,
            server=server,
        )
    return Exit.OK if right else Exit.WRONG


@app.add(
    "arenaplan run plan.json --graph graph.json --input batch.npz -o outputs.npz",
    "arenaplan run plan.json --graph model.onnx --loss mse --keep-outputs all --input batch.npz -o o.npz",
    "arenaplan run plan.json --graph graph.json --checkpoint t.safetensors --input batch.npz -o o.npz",
    "arenaplan run plan.json --entry-point infer --graph graph.json --input batch.npz -o outputs.npz",
    words={
        "graph MODEL": "Graph document or model that the plan was made from; else the one beside it."
        " Repeatable, for a plan of several models.",
        "output": "Where the outputs go, as .npz; - is standard output.",
        "checkpoint PATH": "Trained weights, as `Trainer.save` writes them; else the first values.",
    },
)
def run(
    plan: PlanFile,
    *,
    graph: list[Path] | None = None,
    entry_point: EntryPointName = None,
    output: Path = Path("-"),
    checkpoint: Path | None = None,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> None:
    """Compute the outputs of a graph for a batch, in the planned arena.

    An inference, or the forward half of a training step. It changes nothing.
    `--input batch.npz` is the batch: arrays by the names of inputs. Labels that it lacks are zeros.
    """
    gc.enable()
    from service.cli import training
    from solver.plan import one_plan

    document = training.read_planned(plan)
    one_plan(document, entry_point)  # refuses a name that is missing, or not there
    places, batch, given = training.run_arguments(graph or (), document, plan, choices)
    training.check_models(places, document)
    with reporting(as_json=as_json, document=str(places[0])):
        networks = training.read_networks(places, document, given)
    with reporting(as_json=as_json, document=str(batch)):
        arrays = training.read_batch(networks[entry_point or ""], batch)
    training.write_outputs(networks, document, entry_point, arrays, output, checkpoint, as_json=as_json)


@app.add(
    "arenaplan plan graph.json --rewrite -o plan.json",
    "arenaplan rewritten graph.json plan.json -o rewritten.json",
    words={
        "output": "Where the graph goes; - is standard output.",
    },
)
def rewritten(
    graph: ModelFile,
    plan: PlanFile,
    *,
    output: Path = Path("-"),
    choices: ModelChoices,
    as_json: AsJson = False,
) -> None:
    """Write the graph that a plan with replacements is for.

    A runtime elsewhere needs it: the plan names its operations.
    """
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import training
        from solver import documents, executor

        document = training.read_plan(plan)
    network = training.read_networks([graph], document, choices)[""]
    with reporting(as_json=as_json, document=str(plan)):
        result = executor.rewritten(network, document)
        write_document(output, documents.dump_graph(result, indent=2) + b"\n")
