"""The command line. Heavy imports wait inside the commands, so that help and errors are quick."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.console import Exit, print_json, reporting, write_document
from service.cli.fast_path import usual_size

__all__ = ["app"]

_EXIT_CODES = """
Exit codes: 0 done and right; 1 the plan is wrong or training in it differs; 2 bad usage or input;
3 the arena does not fit the capacity or its budget; 4 a bug of ours; 130 interrupted.
"""


def _examples(*lines: str) -> str:
    """The end of a command's help: commands that work as they stand, one a line, then the exit codes."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines), "", _EXIT_CODES])


app = typer.Typer(
    name="arenaplan",
    help="Plan the memory of neural-network training, prove the plan, train inside it.",
    epilog=_examples(
        "arenaplan plan graph.json -o plan.json    plan the memory of a training graph",
        "arenaplan plan model.onnx --loss cross-entropy -o plan.json    the same of an ONNX model",
        "arenaplan show plan.json                  what is live at the peak, and where",
        "arenaplan tradeoff graph.json             what less memory costs in time",
        "arenaplan explain graph.json --capacity 16MB   whether that fits, and what would make it fit",
        "arenaplan validate graph.json plan.json   train in the planned arena, and compare",
        "arenaplan solve problem.csv -o out.csv    place buffers with known lifespans",
        "arenaplan --install-completion            complete commands and options in this shell",
    ),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _bytes(text: str) -> int:
    """``4096``, ``24MiB``, ``1.5GB``; whole bytes only."""
    if (size := usual_size(text)) is not None:
        return size
    from solver.documents import read_size

    try:
        return read_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


def _fraction(text: str) -> float:
    """``0.5%`` or ``0.005``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter("give a share of the lower bound, as 0.5% or 0.005.")
    return value


Graph = Annotated[
    Path,
    typer.Argument(
        help="Graph document, - for standard input; or a model: .onnx, .circle, .tflite, or nntrainer's .ini."
    ),
]
StorageOption = Annotated[
    str | None,
    typer.Option(
        "--storage",
        metavar="TYPE",
        help="What activations wait in for the backward pass, rounded: float16 or bfloat16.",
    ),
]
CostsOption = Annotated[
    str | None,
    typer.Option(
        "--costs",
        metavar="COSTS",
        help="What steps take: roofline (the default), measured (here and now), or a costs document.",
    ),
]
Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="Graph document, program document (explicit operations), or a model: ONNX (.onnx), Circle or"
        " TensorFlow Lite (.circle, .tflite), nntrainer's (.ini); - for standard input.",
    ),
]
# How a model of another tool, which holds no training, is trained.
Loss = Annotated[
    str | None,
    typer.Option(
        metavar="LOSS",
        help="Of a model: cross-entropy, soft-cross-entropy, binary-cross-entropy, kl-divergence, mse, l1 or"
        " huber, of its first output. Left out, an output of the model is the loss.",
    ),
]
ModelOutput = Annotated[
    str | None, typer.Option("--output-name", metavar="NAME", help="Of a model: which output the loss is of.")
]
ClassAxis = Annotated[
    int | None,
    typer.Option(metavar="AXIS", help="Of a model: the axis of classes; 1 of images, else the last one."),
]
Optimizer = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of a model: sgd, adam, adamw, rmsprop, adagrad; or sgd,momentum=0.9."),
]
LearningRate = Annotated[float | None, typer.Option(metavar="RATE", help="Of a model's optimizer.")]
TrainableSet = Annotated[
    str | None,
    typer.Option(
        "--trainable", metavar="SET", help="Of a model: all, last:2 operations, or names as head.*,fc.bias."
    ),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        "--dim",
        metavar="NAME=SIZE",
        help="Of a model: the size of a dimension that it leaves open; repeatable.",
    ),
]
BatchNorm = Annotated[
    str | None,
    typer.Option(metavar="MODE", help="Of a model: train or frozen; left out, as the model says."),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE",
        help="First values: reference (they stay in the model's file), none (drawn at random), or a"
        " .safetensors or .npz file that has them by name.",
    ),
]


def _choices(**given: Any) -> dict[str, Any]:
    """What is given of the options for models; an empty list is nothing."""
    return {name: value for name, value in given.items() if value not in (None, [])}


PlanFile = Annotated[Path, typer.Argument(help="Plan document, - for standard input.")]
ProblemFile = Annotated[Path, typer.Argument(help="CSV or buffers document, - for standard input.")]
Plot = Annotated[Path | None, typer.Option(help="Draw the layout over time, as .svg or .png.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
# Not from ARENAPLAN_SERVER, which clients obey: where a model goes, and who plans it, stands in the command.
Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Let this service do it; the key is ARENAPLAN_API_KEY."),
]
PlanServer = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A service; a plan that it keeps can be named by its digest."),
]


def _one_thread(costs: str | None = "measured") -> None:
    """What is measured is measured on one thread, which BLAS is told before it is loaded."""
    if costs == "measured":
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _show_version(wanted: bool) -> None:
    if wanted:
        from solver.version import version

        typer.echo(f"arenaplan {version()}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(
    epilog=_examples(
        "arenaplan plan graph.json -o plan.json",
        "arenaplan plan graph.json --batch 32 --capacity 24MiB -o plan.json",
        "arenaplan plan graph.json --rewrite --json -o plan.json",
        "arenaplan plan graph.json --batch 32 --capacity 18MiB --recompute -o plan.json",
        "arenaplan plan graph.json --batch 32 --tier ram=12MiB --tier flash=1GiB,bandwidth=45MB/s -o p.json",
        "arenaplan plan mnist.ini --batch 32 --target nntrainer -o plan.json",
        "arenaplan plan model.onnx --loss cross-entropy --optimizer adam --dim batch=32 -o plan.json",
    )
)
def plan(
    model: Model,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the plan goes; - is standard output.")
    ] = Path("-"),
    target: Annotated[
        str, typer.Option(help="Whose memory is planned: reference, onert, nntrainer, singa or singa-relu.")
    ] = "reference",
    solver: Annotated[str, typer.Option(help="Layout solver.")] = "portfolio",
    batch: Annotated[int | None, typer.Option(help="Value of the symbolic batch.")] = None,
    alignment: Annotated[int | None, typer.Option(help="Bytes; a power of two.")] = None,
    capacity: Annotated[
        int | None,
        typer.Option(parser=_bytes, metavar="SIZE", help="Fail beyond this, as 24MiB."),
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Search no longer than this.")
    ] = None,
    scratch_budget: Annotated[
        int | None, typer.Option(parser=_bytes, metavar="SIZE", help="Scratch of one kernel, as 256KiB.")
    ] = None,
    update: Annotated[str, typer.Option(help="When gradients are applied: immediate or end.")] = "immediate",
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Operands in the memory of others, where that is safe.")
    ] = False,
    sub_ranges: Annotated[
        bool, typer.Option("--sub-ranges", help="In place also what Slice, Split and Concat cut and join.")
    ] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Equivalent operations, where that lowers the peak.")
    ] = False,
    order: Annotated[
        bool, typer.Option("--order", help="Another order of the steps, where it lowers the peak.")
    ] = False,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Steps run again, where the capacity asks for it.")
    ] = False,
    tier: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TIER",
            help="A memory, as sram=512KiB or flash=1GiB,read=45MB/s,write=20MB/s,latency=100us; repeatable."
            " Kernels run in the first; what does not fit is paged out to the others.",
        ),
    ] = None,
    fit_scratch: Annotated[
        bool, typer.Option("--fit-scratch", help="Less scratch, where scratch would make the peak.")
    ] = False,
    storage: StorageOption = None,
    costs: CostsOption = None,
    parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="Steps that may run at the same time, on one concurrency level; 1 to 64."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(hidden=True, help="The former name of --parallelism.")
    ] = None,
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Plan the arena of a training graph, or of a program of explicit operations."""
    _one_thread(costs)
    with reporting(as_json=as_json, document=str(model)):
        from service.cli import planning

        given: dict[str, Any] = {"target": target, "solver": solver, "batch": batch, "alignment": alignment}
        given |= {"capacity": capacity, "deadline_seconds": deadline, "update": update, "in_place": in_place}
        given |= {"rewrite": rewrite, "sub_ranges": sub_ranges, "order": order, "recompute": recompute}
        given |= {"parallelism": parallelism, "workers": workers, "scratch_budget": scratch_budget}
        given |= {"tiers": tier or None, "costs": costs, "storage": storage, "fit_scratch": fit_scratch}
        given = {name: value for name, value in given.items() if value is not None}
        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        planning.run(model, given, output, chosen, as_json=as_json, server=server)


Target = Annotated[
    str, typer.Option(help="Whose memory is planned: reference, onert, nntrainer, singa or singa-relu.")
]
Batch = Annotated[int | None, typer.Option(help="Value of the symbolic batch.")]
Alignment = Annotated[int | None, typer.Option(help="Bytes; a power of two.")]
Seconds = Annotated[float | None, typer.Option(metavar="SECONDS", help="Search no longer than this.")]
Scratch = Annotated[
    int | None, typer.Option(parser=_bytes, metavar="SIZE", help="Scratch of one kernel, as 256KiB.")
]
Update = Annotated[str, typer.Option(help="When gradients are applied: immediate or end.")]
InPlace = Annotated[
    bool, typer.Option("--in-place", help="Operands in the memory of others, where that is safe.")
]
SubRanges = Annotated[
    bool, typer.Option("--sub-ranges", help="In place also what Slice, Split and Concat cut and join.")
]
Rewrite = Annotated[
    bool, typer.Option("--rewrite", help="Equivalent operations, where that lowers the peak.")
]
Parallelism = Annotated[
    int | None,
    typer.Option(
        metavar="COUNT", help="Steps that may run at the same time, on one concurrency level; 1 to 64."
    ),
]


@app.command(
    "import",
    epilog=_examples(
        "arenaplan import model.onnx --loss cross-entropy -o graph.json",
        "arenaplan import model.onnx --loss mse --optimizer adam --dim batch=32 -o graph.json",
        "arenaplan import model.onnx --loss cross-entropy --trainable last:2 --weights none -o graph.json",
        "arenaplan import model.onnx --loss cross-entropy --weights trained.safetensors -o graph.json",
    ),
)
def import_(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="ONNX model (.onnx), or nntrainer's (.ini).")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the graph document goes; - is standard output.")
    ] = Path("-"),
    batch: Annotated[int | None, typer.Option(help="Value of the first dimension, where it is open.")] = None,
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Write the graph document of a model of another tool, with how it is trained."""
    with reporting(as_json=as_json, document=str(model)):
        from service.cli import models

        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        models.run_import(model, output, batch, chosen, as_json=as_json, server=server)


@app.command(
    epilog=_examples("arenaplan operators", "arenaplan operators --onnx", "arenaplan operators --json")
)
def operators(
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Those of ONNX that are imported, and as what.")
    ] = False,
    as_json: Json = False,
) -> None:
    """List the operators of graphs by family, or those of ONNX that can be imported."""
    with reporting(as_json=as_json):
        from service.cli import models

        models.print_operators(onnx=onnx, as_json=as_json)


@app.command(
    epilog=_examples(
        "arenaplan tradeoff graph.json",
        "arenaplan tradeoff graph.json --batch 32 -o curve.svg",
        "arenaplan tradeoff graph.json --points 20 --json",
    )
)
def tradeoff(
    model: Graph,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Where the curve goes, as .svg, .png or .json.")
    ] = None,
    points: Annotated[int, typer.Option(metavar="COUNT", help="Budgets to search within, 2 to 100.")] = 10,
    target: Target = "reference",
    batch: Batch = None,
    alignment: Alignment = None,
    deadline: Seconds = None,
    scratch_budget: Scratch = None,
    update: Update = "immediate",
    in_place: InPlace = False,
    sub_ranges: SubRanges = False,
    rewrite: Rewrite = False,
    parallelism: Parallelism = None,
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    storage: StorageOption = None,
    costs: CostsOption = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Show what smaller peaks cost in extra time, with what is proved about that, down to the floor."""
    _one_thread(costs)
    with reporting(as_json=as_json, document=str(model)):
        from service.cli import verdicts

        given: dict[str, Any] = {"target": target, "batch": batch, "alignment": alignment, "update": update}
        given |= {"deadline_seconds": deadline, "scratch_budget": scratch_budget, "in_place": in_place}
        given |= {"sub_ranges": sub_ranges, "rewrite": rewrite, "parallelism": parallelism}
        given |= {"costs": costs, "storage": storage}
        given = {name: value for name, value in given.items() if value is not None}
        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        verdicts.tradeoff(model, given, output, points, chosen, as_json=as_json, server=server)


@app.command(
    epilog=_examples(
        "arenaplan explain graph.json --capacity 16MB",
        "arenaplan explain graph.json --capacity 8MB --training",
        "arenaplan explain graph.json --batch 32 --capacity 16MB --json",
    )
)
def explain(
    model: Graph,
    capacity: Annotated[
        int, typer.Option(parser=_bytes, metavar="SIZE", help="What the arena is to fit, as 16MB.")
    ],
    training: Annotated[
        bool,
        typer.Option("--training", help="Try also what changes what is learned, as micro-batches."),
    ] = False,
    target: Target = "reference",
    batch: Batch = None,
    alignment: Alignment = None,
    deadline: Seconds = None,
    scratch_budget: Scratch = None,
    update: Update = "immediate",
    in_place: InPlace = False,
    sub_ranges: SubRanges = False,
    rewrite: Rewrite = False,
    parallelism: Parallelism = None,
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    storage: StorageOption = None,
    costs: CostsOption = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Say whether a capacity is enough, why not, the smallest that is, and what would make it fit."""
    _one_thread(costs)
    with reporting(as_json=as_json, document=str(model)):
        from service.cli import verdicts

        given: dict[str, Any] = {"target": target, "batch": batch, "alignment": alignment, "update": update}
        given |= {"deadline_seconds": deadline, "scratch_budget": scratch_budget, "in_place": in_place}
        given |= {"sub_ranges": sub_ranges, "rewrite": rewrite, "parallelism": parallelism}
        given |= {"costs": costs, "storage": storage}
        given = {name: value for name, value in given.items() if value is not None}
        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        given |= {"capacity": capacity}
        verdicts.explain(model, given, chosen, training=training, as_json=as_json, server=server)


@app.command(
    epilog=_examples(
        "arenaplan costs graph.json -o costs.json",
        "arenaplan costs graph.json --batch 32 --repeats 20 -o costs.json",
        "arenaplan plan graph.json --capacity 18MiB --recompute --costs costs.json -o plan.json",
    )
)
def costs(
    model: Graph,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the costs go; - is standard output.")
    ] = Path("-"),
    repeats: Annotated[
        int, typer.Option(min=1, max=1000, metavar="COUNT", help="Iterations to take the median of.")
    ] = 5,
    roofline: Annotated[
        bool, typer.Option("--roofline", help="What plans without costs use, in the place of measuring.")
    ] = False,
    batch: Batch = None,
    scratch_budget: Scratch = None,
    update: Update = "immediate",
    in_place: InPlace = False,
    sub_ranges: SubRanges = False,
    rewrite: Rewrite = False,
    storage: StorageOption = None,
    as_json: Json = False,
) -> None:
    """Write what each training step takes on this machine, for plans to decide by and people to edit."""
    if not roofline:
        _one_thread()
    with reporting(as_json=as_json, document=str(model)):
        from service.cli import costs as writer

        given: dict[str, Any] = {"batch": batch, "scratch_budget": scratch_budget, "update": update}
        given |= {"in_place": in_place, "sub_ranges": sub_ranges, "rewrite": rewrite, "storage": storage}
        given = {name: value for name, value in given.items() if value is not None}
        writer.write(model, given, output, repeats, modelled=roofline, as_json=as_json)


@app.command(
    epilog=_examples(
        "arenaplan validate graph.json plan.json",
        "arenaplan validate graph.json plan.json --steps 20 --seed 7 --json",
        "arenaplan validate graph.json plan.json --paging-file /tmp/paged",
    )
)
def validate(
    graph: Graph,
    plan: PlanFile,
    steps: Annotated[int, typer.Option(min=1, help="Training steps.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random batches.")] = 0,
    paging_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A new file in the place of all memories but the first."),
    ] = None,
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Train in the planned arena and compare, bit for bit, with a run that shares no memory."""
    gc.enable()
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import training

        made = training.read_plan(plan)
    with reporting(as_json=as_json, document=str(graph)):
        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        read = training.read_graph if server is None else training.read_to_send
        network = read(graph, made, chosen)
    with reporting(as_json=as_json, document=str(plan)):
        right = training.run(
            network, made, steps=steps, seed=seed, paging_file=paging_file, as_json=as_json, server=server
        )
    if not right:
        raise typer.Exit(Exit.WRONG)


@app.command(
    epilog=_examples(
        "arenaplan offsets plan.json -o offsets.csv",
        "arenaplan offsets plan.json -o offsets.json",
    )
)
def offsets(
    plan: PlanFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the rows go, .csv or .json; - is standard output.")
    ] = Path("-"),
    server: PlanServer = None,
    as_json: Json = False,
) -> None:
    """Write where each value of a plan lies, and when it lives, for runtimes that want addresses alone."""
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import exporting
        from solver import exporters

        made = exporting.read_tables(plan, server)
        as_csv = output.suffix.lower() == ".csv" or (str(output) == "-" and not as_json)
        write_document(output, exporters.dump_offsets(made, as_csv=as_csv))


@app.command(
    epilog=_examples(
        "arenaplan export plan.json -o plan.h",
        "arenaplan export plan.json --to c-header --prefix net --split -o net.h",
        "arenaplan export plan.json -o plan.trace.json",
        "arenaplan export plan.json --to memory-viz -o plan.pickle",
        "arenaplan export plan.json --model model.circle --weights trained.npz -o trained.circle",
        "arenaplan export model.tflite --to tflm --capacity 64KiB -o planned.tflite",
    )
)
def export(
    plan: Annotated[
        Path, typer.Argument(help="Plan document; for tflm the .tflite model itself; - for standard input.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where it goes; its suffix says what is written.")
    ] = Path("-"),
    to: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What is written: c-header, report, perfetto, memory-viz, offsets-csv, offsets-json, circle"
            " or tflm.",
        ),
    ] = None,
    prefix: Annotated[
        str | None, typer.Option(help="What names in a C header begin with; else the name of the graph.")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split", help="A C header for each space, in files beside the first.")
    ] = False,
    model: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For circle: the model that the plan was made from."),
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="For circle: trained weights by name, as .safetensors or .npz, to put in."
        ),
    ] = None,
    capacity: Annotated[
        int | None,
        typer.Option(parser=_bytes, metavar="SIZE", help="For tflm: fail beyond this, as 64KiB."),
    ] = None,
    server: PlanServer = None,
    as_json: Json = False,
) -> None:
    """Write a plan for a device's runtime, a viewer or a table: as a C header, a trace, a snapshot, rows."""
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import exporting

        into = exporting.ModelFile(model, weights, capacity)
        exporting.export(plan, output, to, prefix, split=split, into=into, server=server, as_json=as_json)


@app.command(
    epilog=_examples(
        "arenaplan report plan.json -o plan.html",
        "arenaplan report old.json new.json -o change.html",
    )
)
def report(
    plan: PlanFile,
    new: Annotated[
        Path | None, typer.Argument(help="A second plan: the page shows what changed between them.")
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the page goes; - is standard output.")
    ] = Path("-"),
    server: PlanServer = None,
    as_json: Json = False,
) -> None:
    """Write a page that shows a plan: the arena over time, what lives when, why the peak is what it is."""
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import exporting

        first = exporting.read_tables(plan, server)
    with reporting(as_json=as_json, document=str(new or plan)):
        if new is None:
            exporting.report(first, None, output)
        else:
            exporting.report(exporting.read_tables(new, server), first, output)


def _allowance(text: str) -> Any:
    """``1%`` or ``64KiB``."""
    from solver.documents import read_allowance

    try:
        return read_allowance(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


Report = Annotated[
    str | None, typer.Option("--format", help="text, json, markdown (for a pull request) or junit.")
]
ReportFile = Annotated[
    Path, typer.Option("-o", "--output", help="Where the report goes; - is standard output.")
]


@app.command(
    epilog=_examples(
        "arenaplan diff old.json new.json",
        "arenaplan diff old.json new.json --max-growth 1%",
        "arenaplan diff old.json new.json --max-growth 64KiB --format markdown -o comment.md",
    )
)
def diff(
    old: Annotated[Path, typer.Argument(help="Plan document from before.")],
    new: Annotated[Path, typer.Argument(help="Plan document of now, - for standard input.")],
    max_growth: Annotated[
        Any,
        typer.Option(
            parser=_allowance, metavar="GROWTH", help="Exit with 3 if arenas grow beyond this: 1% or 64KiB."
        ),
    ] = None,
    form: Report = None,
    output: ReportFile = Path("-"),
    server: PlanServer = None,
    as_json: Json = False,
) -> None:
    """Compare two plans: what costs what, by operand, kind and layer, at the peak of each."""
    with reporting(as_json=as_json):
        from service.cli import exporting, gates

        chosen = gates.format_of(form, as_json=as_json)
    with reporting(as_json=as_json, document=str(old)):
        before = exporting.read_tables(old, server)
    with reporting(as_json=as_json, document=str(new)):
        code = gates.diff(before, exporting.read_tables(new, server), max_growth, chosen, output)
    raise typer.Exit(code)


@app.command(
    epilog=_examples(
        "arenaplan budget check budgets.toml",
        "arenaplan budget check budgets.toml --format junit -o budgets.xml",
    )
)
def budget(
    action: Annotated[str, typer.Argument(metavar="check", help="What to do with the budgets: check.")],
    file: Annotated[Path, typer.Argument(help="Budget file, TOML.")],
    form: Report = None,
    output: ReportFile = Path("-"),
    as_json: Json = False,
) -> None:
    """Plan many networks and see that each keeps its budget. Exit code 3: one does not."""
    if action != "check":
        raise typer.BadParameter(f"There is no action {action!r}. Choose check.", param_hint="ACTION")
    with reporting(as_json=as_json, document=str(file)):
        from service.cli import gates

        code = gates.check_budgets(file, gates.format_of(form, as_json=as_json), output)
    raise typer.Exit(code)


@app.command(
    epilog=_examples(
        "arenaplan accesses plan.json log.jsonl",
        "arenaplan accesses plan.json log.jsonl --json",
        "arenaplan accesses plan.json --record graph.json -o log.jsonl",
    )
)
def accesses(
    plan: PlanFile,
    log: Annotated[
        Path | None, typer.Argument(help="What a runtime touched, JSON lines; - for standard input.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(metavar="GRAPH", help="Train this graph in the plan, and write what the steps touch."),
    ] = None,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where a recorded log goes; - is standard output.")
    ] = Path("-"),
    steps: Annotated[int, typer.Option(min=1, help="Training steps to record.")] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random batches.")] = 0,
    as_json: Json = False,
) -> None:
    """Name the steps that read what no step wrote, or what was overwritten, in the log of a runtime."""
    if (log is None) == (record is None):
        raise typer.BadParameter("Give a log to check, or --record with a graph.", param_hint="LOG")
    gc.enable()
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import accesses as logs
        from service.cli import training

        made = training.read_plan(plan)
    right = True
    with reporting(as_json=as_json, document=str(log or record)):
        if record is not None:
            logs.record(record, made, output, steps=steps, seed=seed)
        elif log is not None:
            right = logs.check(made, logs.read_log(log, made), as_json=as_json)
    if not right:
        raise typer.Exit(Exit.WRONG)


@app.command(
    epilog=_examples(
        "arenaplan plan graph.json --rewrite -o plan.json",
        "arenaplan rewritten graph.json plan.json -o rewritten.json",
    )
)
def rewritten(
    graph: Graph,
    plan: PlanFile,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Where the graph goes; - is standard output.")
    ] = Path("-"),
    loss: Loss = None,
    output_name: ModelOutput = None,
    class_axis: ClassAxis = None,
    optimizer: Optimizer = None,
    learning_rate: LearningRate = None,
    trainable: TrainableSet = None,
    dim: Dim = None,
    batch_norm: BatchNorm = None,
    weights: Weights = None,
    as_json: Json = False,
) -> None:
    """Write the graph that a plan made with --rewrite is for, as a runtime elsewhere needs it."""
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import training
        from solver import documents, executor

        made = training.read_plan(plan)
    with reporting(as_json=as_json, document=str(graph)):
        chosen = _choices(
            loss=loss, output=output_name, class_axis=class_axis, optimizer=optimizer, dim=dim,
            learning_rate=learning_rate, trainable=trainable, batch_norm=batch_norm, weights=weights,
        )  # fmt: skip
        network = training.read_graph(graph, made, chosen)
    with reporting(as_json=as_json, document=str(plan)):
        found = executor.rewritten(network, made)
        write_document(output, documents.dump_graph(found, indent=2) + b"\n")


@app.command(
    epilog=_examples(
        "arenaplan show plan.json",
        "arenaplan show plan.json --width 132",
        "arenaplan show plan.json --json | jq .arena_bytes",
    )
)
def show(
    plan: PlanFile,
    server: PlanServer = None,
    as_json: Json = False,
    width: Annotated[
        int | None, typer.Option(min=40, help="Columns to fill; the terminal's if left out.")
    ] = None,
) -> None:
    """Show a plan: bytes by kind, certificate, what lives at the peak, a map of the arena."""
    with reporting(as_json=as_json, document=str(plan)):
        from service.cli import show as tables

        tables.run(plan, width, as_json=as_json, server=server)


@app.command(
    epilog=_examples(
        "arenaplan solve problem.csv -o layout.csv",
        "arenaplan solve problem.csv --capacity 1MiB -o layout.csv",
        "arenaplan solve buffers.json --deadline 10 --target-gap 0.5% --plot layout.svg -o layout.json",
    )
)
def solve(
    problem: ProblemFile,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", help="Where the layout goes, .csv or .json; - is standard output."),
    ] = Path("-"),
    capacity: Annotated[
        int | None,
        typer.Option(parser=_bytes, metavar="SIZE", help="What the peak must fit, as 1MiB; else minimise."),
    ] = None,
    alignment: Annotated[int | None, typer.Option(help="Least alignment of every buffer, in bytes.")] = None,
    solver: Annotated[str, typer.Option(help="Layout solver.")] = "portfolio",
    deadline: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Search no longer than this.")
    ] = None,
    work: Annotated[
        int | None, typer.Option(help="Search no further than this many buffers and sections looked at.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the search.")] = 0,
    threads: Annotated[int, typer.Option(help="Change the time, never the answer.")] = 2,
    race: Annotated[bool, typer.Option("--race", help="Take the first answer of any thread.")] = False,
    target_gap: Annotated[
        float | None,
        typer.Option(parser=_fraction, metavar="GAP", help="Stop this near to the bound: 0.5% or 0.005."),
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(metavar="RULE", help="Leave out a rule of the search; repeatable.")
    ] = None,
    plot: Plot = None,
    server: Server = None,
    as_json: Json = False,
) -> None:
    """Place buffers with known lifespans: MiniMalloc's CSV or a buffers document in, offsets out."""
    with reporting(as_json=as_json, document=str(problem)):
        from service.cli import layouts
        from solver.layout import LayoutOptions

        rules = layouts.rules_without(without or ())
        options = LayoutOptions(
            solver, capacity, alignment, deadline, work, seed, threads, race, target_gap or 0.0, rules
        )
        layouts.run(problem, options, output, plot, as_json=as_json, server=server)


@app.command(
    epilog=_examples(
        "arenaplan compare problem.csv --deadline 5",
        "arenaplan compare problem.csv --solver greedy --solver portfolio --json",
    )
)
def compare(
    problem: ProblemFile,
    solver: Annotated[
        list[str] | None, typer.Option(help="A solver to take part; may be given again. All, if left out.")
    ] = None,
    deadline: Annotated[float, typer.Option(metavar="SECONDS", help="Time of each solver.")] = 10.0,
    alignment: Annotated[int | None, typer.Option(help="Least alignment of every buffer, in bytes.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Let every layout solver pack the same buffers and rank what they make of it."""
    with reporting(as_json=as_json, document=str(problem)):
        from rich.console import Console

        from service.cli import comparing

        made = comparing.run(problem, solver or (), deadline, alignment, plot, Console(stderr=True))
        if as_json:
            print_json(comparing.facts(made))
        else:
            Console().print(comparing.table(made))


@app.command(
    epilog=_examples(
        "arenaplan serve",
        "arenaplan serve --port 9000 --workers 2 --log-format text",
        "ARENAPLAN_BODY_LIMIT_BYTES=16MiB arenaplan serve",
    )
)
def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="0 picks a free port.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Solver processes.")] = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous", help="Listen beyond loopback though nobody has to say who they are."
        ),
    ] = False,
    log_format: Annotated[str | None, typer.Option(help="json or text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --log-format json.")] = False,
) -> None:
    """Serve the same over HTTP. Every setting is an environment variable, ARENAPLAN_*; options win."""
    given = {"host": host, "port": port, "workers": workers, "log_format": "json" if as_json else log_format}
    given |= {"allow_anonymous": True} if allow_anonymous else {}
    gc.enable()
    with reporting(as_json=as_json):
        from service.cli import configuration, serving

        serving.run(
            configuration.settings({name: value for name, value in given.items() if value is not None})
        )


@app.command(
    epilog=_examples(
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker",
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker --workers 8",
    )
)
def worker(
    workers: Annotated[int | None, typer.Option(min=1, max=256, help="Solver processes.")] = None,
    log_format: Annotated[str | None, typer.Option(help="json or text.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --log-format json.")] = False,
) -> None:
    """Run the jobs of a PostgreSQL database, as many machines as there are. Settings are those of serve."""
    given = {"workers": workers, "log_format": "json" if as_json else log_format}
    gc.enable()
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.run_worker(
            configuration.settings({n: value for n, value in given.items() if value is not None})
        )


Database = typer.Typer(
    help="The database of jobs: bring its tables to this version, check, or go back.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=_examples(
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database upgrade",
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database check",
    ),
)
app.add_typer(Database, name="database")


@Database.command("upgrade")
def upgrade_database(as_json: Json = False) -> None:
    """Make the tables, or bring them to this version. All of it happens, or nothing."""
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.upgrade_database(configuration.settings({}))


@Database.command("check")
def check_database(as_json: Json = False) -> None:
    """Whether the tables are those of this version; exit code 1 where they are not."""
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.check_database(configuration.settings({}))


@Database.command("downgrade")
def downgrade_database(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="As 0001; base removes all tables.")],
    as_json: Json = False,
) -> None:
    """Bring the tables back to an older version. What newer ones held is lost."""
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.downgrade_database(configuration.settings({}), revision)


Keys = typer.Typer(
    help="API keys of a service: make, list, revoke.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=_examples(
        "arenaplan keys create --tenant acme --name build-farm",
        "arenaplan keys create --name prometheus --scopes metrics --expires never",
        "arenaplan keys list",
        "arenaplan keys revoke ap_0123456789abcdef",
    ),
)
Tenants = typer.Typer(
    help="Tenants of a service: what they have taken, and what they may.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=_examples(
        "arenaplan tenants list",
        "arenaplan tenants set acme --requests-per-minute 600 --stored-bytes 2GiB",
        "arenaplan tenants set acme --disabled",
    ),
)
app.add_typer(Keys, name="keys")
app.add_typer(Tenants, name="tenants")

OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant alone.")]


@Keys.command("create")
def create_key(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Who or what uses the key; the audit log says it.")
    ],
    tenant: Annotated[
        str, typer.Option(metavar="NAME", help="Whose plans and jobs the key is for.")
    ] = "default",
    scopes: Annotated[
        str,
        typer.Option(metavar="SCOPES", help="Of plan, jobs, metrics, admin; separated by commas."),
    ] = "plan,jobs",
    expires: Annotated[
        str, typer.Option(metavar="TIME", help="After what time it ends: 90d, 12h; or never.")
    ] = "365d",
    as_json: Json = False,
) -> None:
    """Make a key and print it. It is shown this once: the database keeps no more than its digest."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.create_key(tenant, name, scopes, expires, as_json=as_json)


@Keys.command("list")
def list_keys(tenant: OfTenant = None, as_json: Json = False) -> None:
    """Keys with their scopes, until when they hold, and when they were used last."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.list_keys(tenant, as_json=as_json)


@Keys.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As ap_0123456789abcdef.")], as_json: Json = False
) -> None:
    """Take no requests with this key any more."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.revoke_key(key, as_json=as_json)


@Tenants.command("list")
def list_tenants(as_json: Json = False) -> None:
    """Tenants with their quotas, what they have taken in the last day, and what is stored for them."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.list_tenants(as_json=as_json)


@Tenants.command("set")
def set_tenant(
    name: Annotated[str, typer.Argument(metavar="TENANT")],
    requests_per_minute: Annotated[
        str | None, typer.Option(metavar="N", help="A number; none: no limit; usual: that of the settings.")
    ] = None,
    cpu_seconds_per_hour: Annotated[str | None, typer.Option(metavar="N", help="The same.")] = None,
    stored_bytes: Annotated[str | None, typer.Option(metavar="SIZE", help="The same, or as 2GiB.")] = None,
    concurrent_requests: Annotated[str | None, typer.Option(metavar="N", help="The same.")] = None,
    disabled: Annotated[
        bool | None, typer.Option("--disabled/--enabled", help="Whether all its requests are refused.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what differs for a tenant from the quotas of the settings, or refuse it."""
    quotas = {
        "requests_per_minute": requests_per_minute,
        "cpu_seconds_per_hour": cpu_seconds_per_hour,
        "stored_bytes": stored_bytes,
        "concurrent_requests": concurrent_requests,
    }
    with reporting(as_json=as_json):
        from service.cli import users

        users.set_tenant(name, quotas, disabled, as_json=as_json)


@app.command(
    epilog=_examples(
        "arenaplan audit",
        "arenaplan audit --tenant acme --since 24h --limit 1000 --json",
    )
)
def audit(
    tenant: OfTenant = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Of the last 24h, 30d.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest of them.")] = 100,
    as_json: Json = False,
) -> None:
    """Who did what with the service, when, and what came of it."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.show_audit(tenant, since, limit, as_json=as_json)
