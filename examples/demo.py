"""The demonstration behind ``./run demo``: plan the MNIST example, compare, train in the arena.

Starts a service on loopback, asks it for a plan, shows the plan beside what the onert runtime
allocates for the same model, then trains in the planned arena and compares each step with a run
in which no two tensors share memory.
"""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from rich.columns import Columns
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from clients import Client, ClientError
from examples.local_service import ServiceFailed, running_service
from solver.documents import load_graph, load_plan
from solver.errors import ArenaplanError
from solver.executor import StepReport, ValidationReport, validate
from solver.graph import TrainableGraph
from solver.layout import solve
from solver.plan import Plan
from solver.targets.onert import POOLS, Management, onert_pools

__all__ = ["comparison", "main", "onert_bytes", "onert_table", "plan_table", "run", "steps_table", "train"]

DOCUMENT = Path(__file__).with_name("mnist.json")
STEPS = 5


def main() -> int:
    """Exit code: 0 when every step was identical, 1 otherwise, 130 after Ctrl-C."""
    console = Console()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        return 0 if run(console) else 1
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    except (ServiceFailed, ClientError, ArenaplanError, OSError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False, soft_wrap=True)
        return 1


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def run(console: Console) -> bool:
    """The whole demonstration; whether every step was identical. Raises what `main` makes a message of."""
    graph = load_graph(DOCUMENT.read_bytes())
    made, seconds = _plan(console)
    stages = {management: onert_bytes(graph, management) for management in Management}
    console.print()
    console.print(Columns([plan_table(made, seconds), onert_table(stages)], padding=(0, 4)))
    console.print(comparison(made, sum(stages[Management.WIC])))
    console.print()
    return train(console, graph, made).identical


def _plan(console: Console) -> tuple[Plan, float]:
    """The plan as the service answers it, and the seconds from request to answer."""
    with console.status("starting the service on loopback"), running_service() as url:
        console.print(f"The service is ready at {url}; POST /v1/plan: {DOCUMENT.name}")
        started = time.perf_counter()
        with Client(url) as client:
            result = client.plan(DOCUMENT)
        return load_plan(result.document), time.perf_counter() - started


# ------------------------------------------------------------------------------------------ tables


def plan_table(plan: Plan, seconds: float) -> Table:
    """Bytes of each kind of buffer, as if nothing were shared; then the arena that holds them all."""
    table = Table(title=f"{plan.graph}: one arena", title_justify="left", show_footer=False)
    table.add_column("kind")
    table.add_column("buffers", justify="right")
    table.add_column("bytes", justify="right")
    buffers = [buffer for _, buffer in plan.buffers()]
    counts = Counter(buffer.kind.value for buffer in buffers)
    for kind, count in counts.items():
        size = sum(buffer.size for buffer in buffers if buffer.kind.value == kind)
        table.add_row(kind.replace("_", " "), str(count), f"{size:,}")
    table.add_section()
    table.add_row("without reuse", str(len(buffers)), f"{sum(buffer.size for buffer in buffers):,}")
    table.add_row("arena", "", f"{plan.arena_bytes:,}", style="bold")
    table.add_row("lower bound", "", f"{plan.lower_bound:,}")
    certificate = plan.arenas[0].certificate
    proof = certificate.proof.value if certificate.proof else "none"
    for name, value in (("proof", proof), ("solver", certificate.solver), ("time", f"{seconds:.2f} s")):
        table.add_row(name, "", value)
    return table


def onert_bytes(graph: TrainableGraph, management: Management) -> tuple[int, ...]:
    """Bytes of the seven pools, in the order of `POOLS`, as onert's own planner lays them out."""
    outcomes = [solve(pool.problem(), solver=pool.solver or "wic") for pool in onert_pools(graph, management)]
    return tuple(outcome.layout.peak if outcome.layout else 0 for outcome in outcomes)


def onert_table(stages: dict[Management, tuple[int, ...]]) -> Table:
    """The seven pools of onert at each stage of its memory management."""
    titles = {
        Management.BUMP: "no reuse",
        Management.RELEASED: "release 0.1.0",
        Management.WIC: "and extra planned",
    }
    table = Table(title="the same model in onert: seven pools", title_justify="left")
    table.add_column("pool")
    for management in stages:
        table.add_column(titles[management], justify="right")
    for k, name in enumerate(POOLS):
        table.add_row(name, *(f"{sizes[k]:,}" for sizes in stages.values()))
    table.add_section()
    table.add_row("sum", *(f"{sum(sizes):,}" for sizes in stages.values()), style="bold")
    return table


def comparison(plan: Plan, pools: int) -> str:
    """One sentence on the arena beside so many bytes of pools."""
    saved = 1 - plan.arena_bytes / pools
    change = "less" if saved >= 0 else "more"
    return f"One arena takes {abs(saved):.1%} {change} than the seven pools at their best."


def steps_table(report: ValidationReport) -> Table:
    """Losses of both runs, digit for digit."""
    title = f"{report.compared} tensors compared bit by bit after each step"
    table = Table(title=title, title_justify="left")
    for heading in ("step", "loss in the arena", "loss without sharing", "identical"):
        table.add_column(heading, justify="right")
    for step in report.steps:
        verdict = "yes" if step.identical else f"no: {', '.join(step.differing)}"
        table.add_row(str(step.step), repr(step.loss), repr(step.reference_loss), verdict)
    return table


# ---------------------------------------------------------------------------------------- training


def train(console: Console, graph: TrainableGraph, plan: Plan) -> ValidationReport:
    """Trains `STEPS` steps, shows their losses and every violation, and says whether they are identical."""
    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=STEPS)

        def advance(step: StepReport) -> None:
            progress.update(task, completed=step.step)

        report = validate(graph, plan, steps=STEPS, on_step=advance)
    console.print(steps_table(report))
    for violation in report.violations:
        console.print(f"{violation.rule}: {violation.detail}", style="red", markup=False)
    verdict = "identical to" if report.identical else "DIFFERENT from"
    console.print(f"Training in {plan.arena_bytes:,} bytes is {verdict} training without shared memory.")
    return report


if __name__ == "__main__":
    sys.exit(main())
