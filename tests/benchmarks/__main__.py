"""``./run bench``: every figure of the documentation, as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from tests.benchmarks import (
    budget,
    c_steps,
    deployments,
    finetune,
    gallery,
    generators,
    homes,
    layout,
    main_job,
    onert_losses,
    paging,
    partitioner,
    planning,
    public_files,
    real_time,
    same_step,
    schedules,
    service,
    shapes,
    stages,
)
from tests.benchmarks.measure import commit, machine

#: Each prints its tables on a console; some read options of the command line.
SUITES: dict[str, Callable[[Console, argparse.Namespace], object]] = {
    "main": lambda console, _: main_job.run(console),
    "planning": lambda console, _: planning.run(console),
    "deployments": lambda console, _: deployments.run(console),
    "memories": lambda console, _: homes.run(console),
    "paging": lambda console, _: paging.run(console),
    "examples": lambda console, _: gallery.run(console),
    "layout": lambda console, asked: layout.run(console, publish=asked.publish),
    "shapes": lambda console, _: shapes.run(console),
    "stages": lambda console, asked: stages.run(console, asked.leave_out, full=asked.full, part=asked.part),
    "generators": lambda console, asked: generators.run(console, asked.buffers, only_open=asked.open),
    "schedules": lambda console, asked: schedules.run(console, asked.part),
    "partitioner": lambda console, asked: partitioner.run(console, asked.torch),
    "finetune": lambda console, asked: finetune.run(console, asked.torch, full=asked.full),
    "budget": lambda console, asked: budget.run(console, asked.torch, asked.part),
    "public-files": lambda console, asked: public_files.run(console, asked.wheels, asked.part),
    "real-time": lambda console, _: real_time.run(console),
    "onert": lambda console, asked: onert_losses.run(console, asked.python),
    "c": lambda console, asked: c_steps.run(console, asked.part, asked.python, asked.torch),
    "same_step": lambda console, asked: same_step.run(console, asked.torch, asked.jax),
    "service": lambda console, asked: service.run(console, _seconds(asked.soak), asked.part, asked.rate),
}


def _seconds(text: str) -> float:
    """Seconds of a duration such as 90, 5m or 1h."""
    return float(text.rstrip("smh")) * {"m": 60, "h": 3600}.get(text[-1], 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure, and print tables.")
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], default=[], help="default: all")
    parser.add_argument("--output", type=argparse.FileType("w"), help="also write the tables to this file")
    parser.add_argument(
        "--publish", action="store_true", help="put the table of layout into docs/explanation/more-figures.md"
    )
    for option, runtime in (("python", "onert"), ("torch", "PyTorch"), ("jax", "JAX")):
        parser.add_argument(
            f"--{option}", default=sys.executable, help=f"interpreter of {runtime}; default: this one"
        )
    parser.add_argument("--soak", default="0", help="service: only mixed requests for so long, as 5m or 1h")
    parser.add_argument("--rate", type=float, help="service: requests a second of --soak; default: no limit")
    parser.add_argument(
        "--part",
        help="service, schedules, c, budget: only this table; or a network: resnet50@0.4; public-files: only"
        " packages and paths with this in them; stages: only problems with this in their names",
    )
    parser.add_argument("--buffers", type=int, nargs="+", default=[], help="generators: only these sizes")
    parser.add_argument("--wheels", type=Path, help="public-files: a folder of wheels; default: a new one")
    parser.add_argument("--open", action="store_true", help="generators: peers only where ours has a gap")
    parser.add_argument("--leave-out", nargs="+", default=[], help="stages: leave out these, all at once")
    parser.add_argument(
        "--full",
        action="store_true",
        help="stages: all problems, which takes an hour; finetune: the real model",
    )
    asked = parser.parse_args()
    console = Console(width=200, record=asked.output is not None)
    console.print(f"{machine()}; commit {commit()}")
    for name in asked.suites or SUITES:
        SUITES[name](console, asked)
    if asked.output:
        asked.output.write(console.export_text())


if __name__ == "__main__":
    main()
