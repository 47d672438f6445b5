"""Training for the command line: validation of plans, outputs for a batch, and logs of memory accesses."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from service.cli.answers import answer, read_sources
from service.cli.console import print_json, print_line, read_document, showing, write_document
from service.cli.tables import FittingTable, make_table
from solver import documents, executor
from solver.errors import ArenaplanError, DocumentError, OptionsError, PlanError
from solver.executor import MemoryAccess, StepReport, ValidationReport
from solver.graph import Array, Role
from solver.names import counted
from solver.pipeline import TrainableGraph
from solver.plan import Deployment, Plan, one_plan, split_ranges
from solver.requests import Follower, Request, Source

__all__ = [
    "check_log",
    "check_models",
    "read_batch",
    "read_log",
    "read_networks",
    "read_plan",
    "read_planned",
    "record_log",
    "run",
    "run_arguments",
    "write_outputs",
]

#: Bytes at the beginning of a document in which its format stands.
_HEAD: Final = 4096

#: Faults in a log that are printed; --json has all of them.
_MOST_PRINTED: Final = 20


def read_plan(path: Path) -> Plan:
    """The plan of one program. Raises OptionsError for one with entry points, none of which is rewritten."""
    planned = read_planned(path)
    if isinstance(planned, Plan):
        return planned
    raise OptionsError(
        "A plan with entry points is for the graphs as they are: nothing in it is rewritten.",
        remedy="Use the graph itself.",
    )


def read_planned(path: Path) -> Plan | Deployment:
    return documents.load_planned(read_document(path))


def check_models(models: Sequence[Path], plan: Plan | Deployment) -> None:
    """Raises OptionsError for several models of a plan of one."""
    if isinstance(plan, Plan) and len(models) > 1:
        raise OptionsError(
            f"The plan is of one graph, {plan.graph!r:.80}, and there are {len(models)} models.",
            remedy="Give that graph alone.",
        )


def read_networks(
    models: Sequence[Path], plan: Plan | Deployment, choices: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, TrainableGraph]:
    """The graph of each entry point of a plan by name; that of a plan of one program by none."""
    graphs: dict[str, TrainableGraph] = answer(Request("graphs", _sources(models, choices), plan=plan))
    return graphs


def _sources(models: Sequence[Path], choices: Mapping[str, Any]) -> dict[str, Source]:
    return read_sources(models, split_ranges(choices)[0])


def run(
    models: Sequence[Path],
    plan: Plan | Deployment,
    choices: Mapping[str, Any],
    *,
    steps: int,
    seed: int,
    settings: Mapping[str, Any],
    as_json: bool,
    server: str | None = None,
) -> bool:
    """Train, here or at `server`, and print the report; true when nothing differed and no rule was broken.

    `settings` are keywords of `executor.validate` that no service takes.
    """
    if server is not None and "kernels" in settings:
        raise OptionsError(
            "A service compiles no C.", remedy="Leave out --kernels, or --server.", path=("kernels",)
        )
    if server is not None and "paging_file" in settings:
        raise OptionsError(
            "A paging file would be one of the service's.",
            remedy="Leave out --paging-file, or --server.",
            path=("paging_file",),
        )
    request = Request(
        "validation", _sources(models, choices), plan=plan, steps=steps, seed=seed, settings=settings
    )
    runs = len(plan.entry_points) if isinstance(plan, Deployment) else 1
    with _progress(steps * runs, shown=server is None) as follow:
        report: ValidationReport = answer(request, as_json=as_json, server=server, follow=follow)
    with showing():
        if as_json:
            write_document(Path("-"), documents.dump_report(report) + b"\n")
        else:
            _print(report)
    return report.identical


def run_arguments(
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
    for candidate in sorted(path.parent.glob("*.json")) if str(path) != "-" else ():
        with contextlib.suppress(OSError, ArenaplanError):
            with candidate.open("rb") as stream:
                if b'"arenaplan.graph"' not in stream.read(_HEAD):
                    continue
            if _is_of(read_networks([candidate], plan), plan):
                return [candidate]
    return []


def _is_of(graphs: Mapping[str, TrainableGraph], plan: Plan | Deployment) -> bool:
    """Whether the plan was made from these graphs."""
    plans = {"": plan} if isinstance(plan, Plan) else {one.name: one.plan for one in plan.entry_points}
    return all(documents.graph_digest(graphs[name]) == of.graph_digest for name, of in plans.items())


def read_batch(graph: TrainableGraph, path: Path) -> dict[str, Array]:
    """The arrays of a file for the inputs and labels of a graph; labels that are missing are zeros."""
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


def write_outputs(
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
    if str(output) == "-":
        return
    facts = {name: {"dtype": array.dtype.name, "shape": list(array.shape)} for name, array in arrays.items()}
    if as_json:
        print_json({"outputs": facts})
        return
    shown = ", ".join(f"{name} {fact['dtype']} {fact['shape']}" for name, fact in facts.items())
    print_line(f"{output.name}: {shown}")


@contextlib.contextmanager
def _progress(steps: int, *, shown: bool) -> Iterator[Follower]:
    """A bar on standard error, if that is a terminal."""
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


def _print(report: ValidationReport) -> None:
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


# ------------------------------------------------------------------------------------ logs of accesses


def read_log(path: Path, plan: Plan) -> list[MemoryAccess]:
    """The accesses in a log of a runtime. Raises DocumentError."""
    return documents.load_accesses(read_document(path), plan)


def check_log(plan: Plan, log: Sequence[MemoryAccess], *, as_json: bool) -> bool:
    """Print the accesses that break the plan; true if there are none."""
    faults = executor.check_accesses(plan, log)
    if as_json:
        facts = [asdict(fault) | {"rule": fault.rule.value} for fault in faults]
        print_json({"accesses": len(log), "right": not faults, "faults": facts})
        return not faults
    for fault in faults[:_MOST_PRINTED]:
        again = f" ({fault.count:,} times)" if fault.count > 1 else ""
        print_line(f"line {fault.line}: {fault.rule.value}: {fault.detail}{again}")
    if len(faults) > _MOST_PRINTED:
        print_line(f"{len(faults) - _MOST_PRINTED} more")
    if faults:
        print_line(f"Wrong are {sum(fault.count for fault in faults):,} of {len(log):,} accesses.")
    else:
        print_line(f"All {len(log):,} accesses are as planned.")
    return not faults


def record_log(
    graphs: Mapping[str, TrainableGraph],
    plan: Plan | Deployment,
    output: Path,
    *,
    entry_point: str | None,
    steps: int,
    seed: int,
) -> None:
    """Run the plan, or one entry point of it, in its arena, and write a log of the accesses."""
    of = graphs if isinstance(plan, Deployment) else graphs[""]
    accesses = executor.logged_accesses(of, plan, entry_point=entry_point, steps=steps, seed=seed)
    write_document(output, b"".join(documents.dump_accesses(accesses, one_plan(plan, entry_point))))
