"""Training in planned arenas on the command line: validation of plans, outputs for a batch, rewritten graphs,
and logs of memory accesses.
"""

from __future__ import annotations

import contextlib
import gc
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from service.cli.answers import answer, read_sources
from service.cli.console import (
    Exit,
    print_json,
    print_line,
    print_written,
    read_document,
    reporting,
    showing,
    write_document,
)
from service.cli.options import AsJson, Commands, EntryPointName, ModelChoices, ModelFile, PlanFile, Server
from service.cli.plans import read_planned
from service.cli.tables import FittingTable, make_table
from solver import documents, requests
from solver.errors import ArenaplanError, DocumentError, OptionsError, PlanError
from solver.names import counted

if TYPE_CHECKING:
    from solver.executor import ValidationReport
    from solver.graph import Array
    from solver.pipeline import TrainableGraph
    from solver.plan import Deployment, Plan
    from solver.requests import Follower, Source

__all__ = ["app"]

app = Commands()

#: Bytes at the beginning of a document in which its format stands.
_HEAD: Final = 4096

#: Faults in a log that are printed; --json has all of them.
_MOST_PRINTED: Final = 20


def _sources(
    models: Sequence[Path], plan: Plan | Deployment, choices: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Source]:
    """The models of a plan by name. Raises OptionsError for several models of a plan of one."""
    from solver.plan import Plan, split_ranges

    if isinstance(plan, Plan) and len(models) > 1:
        raise OptionsError(
            f"The plan is of one graph, {plan.graph!r:.80}, and there are {len(models)} models.",
            remedy="Give that graph alone.",
        )
    return read_sources(models, split_ranges(choices)[0])


def _graphs(
    models: Sequence[Path], plan: Plan | Deployment, choices: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, TrainableGraph]:
    """The graph of each entry point of a plan by name; that of a plan of one program by none."""
    graphs: dict[str, TrainableGraph] = answer(
        requests.Request("graphs", _sources(models, plan, choices), plan=plan)
    )
    return graphs


# --------------------------------------------------------------------------------------- validation


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
    from solver.plan import Deployment

    with reporting(as_json=as_json, document=str(plan)):
        planned = read_planned(plan)
        sources = _sources(models, planned, choices)
        for option, value, remedy in (
            ("kernels", kernels if kernels != "numpy" else None, "A service compiles no C."),
            ("paging_file", paging_file, "A paging file would be one of the service's."),
        ):
            if server is not None and value is not None:
                flag = option.replace("_", "-")
                raise OptionsError(remedy, remedy=f"Leave out --{flag}, or --server.", path=(option,))
        settings = {"paging_file": paging_file, "kernels": kernels if kernels != "numpy" else None}
        settings = {name: value for name, value in settings.items() if value is not None}
        request = requests.Request(
            "validation", sources, plan=planned, steps=steps, seed=seed, settings=settings
        )
        runs = len(planned.entry_points) if isinstance(planned, Deployment) else 1
        with _progress(steps * runs, shown=server is None) as follow:
            report: ValidationReport = answer(request, as_json=as_json, server=server, follow=follow)
        with showing():
            if as_json:
                write_document(Path("-"), documents.dump_report(report) + b"\n")
            else:
                _print_report(report)
    return Exit.OK if report.identical else Exit.WRONG


@contextlib.contextmanager
def _progress(steps: int, *, shown: bool) -> Iterator[Follower]:
    """A bar on standard error, if that is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from solver.executor import StepReport

    console = Console(stderr=True)
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (shown and console.is_terminal)
    ) as bar:
        task = bar.add_task("", total=steps)

        def show(_stage: str, news: object) -> None:
            if isinstance(news, StepReport):
                bar.advance(task)

        yield show


def _print_report(report: ValidationReport) -> None:
    from rich.console import Console

    console = Console()
    for violation in report.violations:
        console.print(f"[red]broken rule {violation.rule}[/red]: {violation.detail}", soft_wrap=True)
    if any(step.loss is not None for step in report.steps):
        console.print(_losses(report))
    console.print(_verdict(report), soft_wrap=True, markup=False, highlight=False)
    if report.paged_in or report.paged_out:
        console.print(
            f"Paging file: {report.paged_in:,} bytes read, {report.paged_out:,} written.", highlight=False
        )


def _losses(report: ValidationReport) -> FittingTable:
    has_entries, has_sizes = (any(getattr(step, each) for step in report.steps) for each in ("entry", "size"))
    rows = [
        (
            str(step.step),
            *([step.entry] if has_entries else []),
            *([step.size] if has_sizes else []),
            _shown(step.loss),
            _shown(step.reference_loss),
            "identical" if step.identical else f"{len(step.differing)} differ",
        )
        for step in report.steps
    ]
    names = (*(("entry point",) if has_entries else ()), *(("size",) if has_sizes else ()))
    return make_table(None, (">step", *names, ">loss in the arena", ">reference loss", "bits"), rows)


def _shown(loss: float | None) -> str:
    return "" if loss is None else f"{loss:.9g}"


def _verdict(report: ValidationReport) -> str:
    if report.violations:
        return f"The plan is wrong: {len(report.violations)} broken rules; it was not run."
    is_inference = any(step.loss is None for step in report.steps)
    for step in report.steps:
        if not step.identical:
            run = f"{step.entry!r}" if step.entry else "Inference" if is_inference else "Training"
            named = step.differing[0] if step.differing else "the loss"
            return f"{run} differs: first at step {step.step}, in {named}."
    entries = {step.entry for step in report.steps}
    if "" not in entries:
        return (
            f"Identical: {_agreeing(report, 'run', alone=True)} of {counted(len(entries), 'entry point')} in"
            f" {report.arena_bytes:,} bytes."
        )
    compared = _agreeing(report, "inference" if is_inference else "step", alone=is_inference)
    return f"Identical: {'' if is_inference else 'loss and '}{compared} in {report.arena_bytes:,} bytes."


def _agreeing(report: ValidationReport, run: str, *, alone: bool) -> str:
    """``41 tensors agree bit for bit after each of 5 steps``; `alone` if there is no loss beside them."""
    agree = "agrees" if alone and report.compared == 1 else "agree"
    runs = counted(len(report.steps), run)
    each = "" if len(report.steps) == 1 else "each of "
    return f"{counted(report.compared, 'tensor')} {agree} bit for bit after {each}{runs}"


# ------------------------------------------------------------------------- outputs, rewritten graphs


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
    from solver.plan import one_plan

    planned = read_planned(plan)
    one_plan(planned, entry_point)  # refuses a name that is missing, or not there
    places, batch, given = _run_arguments(graph or (), planned, plan, choices)
    with reporting(as_json=as_json, document=str(places[0])):
        graphs = _graphs(places, planned, given)
    with reporting(as_json=as_json, document=str(batch)):
        arrays = _read_batch(graphs[entry_point or ""], batch)
    _write_outputs(graphs, planned, entry_point, arrays, output, checkpoint, as_json=as_json)


def _run_arguments(
    models: Sequence[Path], plan: Plan | Deployment, path: Path, choices: Mapping[str, Any]
) -> tuple[list[Path], Path, Mapping[str, Any]]:
    """The models to run, the file of the batch, and the other choices; `input` may fix inputs as well.

    Without `models` it is the graph document beside the plan's file `path` that the plan was made from.
    """
    found = [*models] or _graph_beside(plan, path)
    if not found:
        raise OptionsError(
            "A plan has no weights: they are in the graph or model that it was made from.",
            remedy="Give --graph graph.json, too.",
            path=("graph",),
        )
    inputs = choices.get("input", [])
    batches = [text for text in inputs if text.lower().endswith((".npz", ".safetensors"))]
    if len(batches) != 1:
        raise OptionsError(
            f"There {'is no batch' if not batches else f'are {len(batches)} batches'} to run.",
            remedy="Give one file of arrays by the names of the inputs: --input batch.npz.",
            path=("input",),
        )
    left = [text for text in inputs if text not in batches]
    others = {name: value for name, value in choices.items() if name != "input"}
    return found, Path(batches[0]), others | ({"input": left} if left else {})


def _graph_beside(plan: Plan | Deployment, path: Path) -> list[Path]:
    """The graph document in the folder of a plan's file whose digest the plan has; none if there is none."""
    from solver.plan import Plan

    for candidate in sorted(path.parent.glob("*.json")) if str(path) != "-" else ():
        with contextlib.suppress(OSError, ArenaplanError):
            with candidate.open("rb") as stream:
                if b'"arenaplan.graph"' not in stream.read(_HEAD):
                    continue
            graphs = _graphs([candidate], plan)
            plans = {"": plan} if isinstance(plan, Plan) else {e.name: e.plan for e in plan.entry_points}
            digests = {name: documents.graph_digest(graph) for name, graph in graphs.items()}
            if all(digests[name] == of.graph_digest for name, of in plans.items()):
                return [candidate]
    return []


def _read_batch(graph: TrainableGraph, path: Path) -> dict[str, Array]:
    """The arrays of a file for the inputs and labels of a graph; labels that are missing are zeros."""
    import numpy as np

    from solver import executor
    from solver.graph import Role
    from solver.importers.weights import read_arrays

    arrays = dict(read_arrays(path))
    fed = {o.id: o for o in graph.operands.values() if o.role in (Role.INPUT, Role.LABEL)}
    if unknown := [name for name in arrays if name not in fed]:
        raise DocumentError(
            f"{unknown[0]!r:.80} is not an input of the graph.",
            remedy=f"Its inputs are {', '.join(fed)}.",
        )
    sized = executor.graph_of_batch(graph, arrays)
    labels = [operand for operand in sized.operands.values() if operand.role is Role.LABEL]
    return {o.id: np.zeros(o.shape, o.dtype.numpy) for o in labels} | arrays


def _write_outputs(
    graphs: Mapping[str, TrainableGraph],
    plan: Plan | Deployment,
    entry_point: str | None,
    batch: Mapping[str, Array],
    output: Path,
    checkpoint: Path | None,
    *,
    as_json: bool,
) -> None:
    """Run one step in the arena of the plan, and write the outputs of the graph as an .npz file.

    Of a plan with entry points the one of this name runs.
    """
    import numpy as np

    from solver import executor
    from solver.graph import Role
    from solver.plan import Deployment

    graph = graphs[entry_point or ""]
    if not graph.outputs:
        raise PlanError(
            f"The graph {graph.name!r:.80} has no outputs that outlive a step.",
            remedy='Name them in its "outputs" or with --keep-outputs, of `plan` as well, and plan again.',
            path=("outputs",),
        )
    arrays: dict[str, Any]
    with executor.Trainer(graphs if isinstance(plan, Deployment) else graph, plan) as trainer:
        if checkpoint is not None:
            trainer.restore(checkpoint)
        if isinstance(plan, Deployment):
            arrays = dict[str, Any](trainer.run(entry_point or "", batch))
        else:
            roles = {name: graph.operands[name].role for name in graph.outputs}
            carried = [name for name, role in roles.items() if role in (Role.PARAMETER, Role.STATE)]
            learned = {name: trainer.read(name) for name in carried}  # before the step changes it
            (trainer.infer if graph.loss is None else trainer.step)(batch)
            arrays = {name: trainer.read(name) for name in graph.outputs} | learned
    written = io.BytesIO()
    np.savez(written, **arrays)
    write_document(output, written.getvalue())
    facts = {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}
    shown = ", ".join(f"{name} {fact['dtype']} {fact['shape']}" for name, fact in facts.items())
    print_written(output, {"outputs": facts}, f"{output.name}: {shown}", as_json=as_json)


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
    from solver import executor
    from solver.plan import Plan

    with reporting(as_json=as_json, document=str(plan)):
        planned = read_planned(plan)
        if not isinstance(planned, Plan):
            raise OptionsError(
                "A plan with entry points is for the graphs as they are: nothing in it is rewritten.",
                remedy="Use the graph itself.",
            )
    network = _graphs([graph], planned, choices)[""]
    with reporting(as_json=as_json, document=str(plan)):
        result = executor.rewritten(network, planned)
        write_document(output, documents.dump_graph(result, indent=2) + b"\n")


# ------------------------------------------------------------------------------------ logs of accesses


@app.add(
    "arenaplan accesses plan.json log.jsonl",
    "arenaplan accesses plan.json log.jsonl --json",
    "arenaplan accesses plan.json --record graph.json -o log.jsonl",
    "arenaplan accesses plan.json log.jsonl --entry-point infer",
    words={
        "log": "What a runtime touched, JSON lines; - for standard input.",
        "record GRAPH": "Train this graph or model in the plan, and write what the steps touch. Repeatable,"
        " for a plan of several models.",
        "output": "Where a recorded log goes; - is standard output.",
        "steps 1..": "Training steps to record.",
        "seed 0..": "Seed of the random batches.",
    },
)
def accesses(
    plan: PlanFile,
    log: Path | None = None,
    *,
    record: list[Path] | None = None,
    output: Path = Path("-"),
    steps: int = 2,
    seed: int = 0,
    entry_point: EntryPointName = None,
    choices: ModelChoices,
    as_json: AsJson = False,
) -> Exit:
    """Find stale reads in the log of a runtime.

    Names the steps that read what no step wrote, or what was overwritten.
    """
    if (log is None) == (not record):
        raise typer.BadParameter("Give a log to check, or --record with a graph.", param_hint="LOG")
    if log is not None and choices:
        raise typer.BadParameter("How a model is trained is for --record.", param_hint="LOG")
    gc.enable()
    from solver import executor
    from solver.plan import Deployment, one_plan

    planned = read_planned(plan)
    made = one_plan(planned, entry_point)
    if log is None:
        assert record
        with reporting(as_json=as_json, document=str(record[0])):
            graphs = _graphs(record, planned, choices)
            run = graphs if isinstance(planned, Deployment) else graphs[""]
            touched = executor.logged_accesses(run, planned, entry_point=entry_point, steps=steps, seed=seed)
            write_document(output, b"".join(documents.dump_accesses(touched, made)))
        return Exit.OK
    with reporting(as_json=as_json, document=str(log)):
        entries = documents.load_accesses(read_document(log), made)
        faults = executor.check_accesses(made, entries)
        if as_json:
            facts = [asdict(fault) | {"rule": fault.rule.value} for fault in faults]
            print_json({"accesses": len(entries), "right": not faults, "faults": facts})
        else:
            for fault in faults[:_MOST_PRINTED]:
                again = f" ({fault.count:,} times)" if fault.count > 1 else ""
                print_line(f"line {fault.line}: {fault.rule.value}: {fault.detail}{again}")
            if len(faults) > _MOST_PRINTED:
                print_line(f"{len(faults) - _MOST_PRINTED} more")
            wrong = sum(fault.count for fault in faults)
            print_line(
                f"Wrong are {wrong:,} of {len(entries):,} accesses."
                if faults
                else f"All {len(entries):,} accesses are as planned."
            )
    return Exit.WRONG if faults else Exit.OK
