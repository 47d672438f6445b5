"""``./run bench``: every figure of the documentation, as tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.benchmarks import (
    doubles,
    gallery,
    generators,
    greedies,
    interrupts,
    layout,
    layout_memory,
    levels,
    main_job,
    memory,
    micro,
    models,
    onert_losses,
    paging,
    partitioner,
    placers,
    planning,
    public_files,
    real_time,
    resnet50,
    same_step,
    schedules,
    service,
    shapes,
    tails,
)
from tests.benchmarks.measure import commit, machine

SUITES: dict[str, Callable[[Console], object]] = {
    "main": main_job.run,
    "planning": planning.run,
    "paging": paging.run,
    "examples": gallery.run,
    "layout": layout.run,
    "shapes": shapes.run,
    "layout-memory": layout_memory.run,
    "generators": generators.run,
    "greedies": greedies.run,
    "placers": placers.run,
    "tails": tails.run,
    "levels": levels.run,
    "resnet50": resnet50.run,
    "schedules": schedules.run,
    "partitioner": partitioner.run,
    "public-files": public_files.run,
    "real-time": real_time.run,
    "interrupts": interrupts.run,
    "onert": onert_losses.run,
    "micro": micro.run,
    "models": models.run,
    "same_step": same_step.run,
    "doubles": doubles.run,
    "memory": memory.run,
    "service": service.run,
}


def _seconds(text: str) -> float:
    """Of a duration as 90, 5m or 1h."""
    return float(text.rstrip("smh")) * {"m": 60, "h": 3600}.get(text[-1], 1)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run bench", description="Measure, and print tables.")
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], default=[], help="default: all")
    parser.add_argument("--output", type=argparse.FileType("w"), help="also write the tables to this file")
    parser.add_argument(
        "--publish", action="store_true", help="put the table of layout into docs/explanation/figures.md"
    )
    parser.add_argument("--python", default=sys.executable, help="interpreter of onert; default: this one")
    parser.add_argument("--torch", default=sys.executable, help="interpreter of PyTorch; default: this one")
    parser.add_argument("--micro", default=sys.executable, help="interpreter of TFLM; default: this one")
    parser.add_argument("--jax", default=sys.executable, help="interpreter of JAX; default: this one")
    parser.add_argument("--soak", default="0", help="service: only mixed requests for so long, as 5m or 1h")
    parser.add_argument(
        "--rate", type=float, help="service: so many requests a second of --soak; default: all"
    )
    parser.add_argument(
        "--part",
        help="service, schedules: only this table; or a network: resnet50@0.4; greedies, placers: only these "
        "shapes; public-files: only packages and paths with this in them",
    )
    parser.add_argument(
        "--buffers", type=int, nargs="+", default=[], help="generators, greedies, placers: only these sizes"
    )
    parser.add_argument(
        "--seconds", type=float, help="greedies: of the processor, for each problem; placers: at most"
    )
    parser.add_argument("--seed", type=int, help="greedies, placers: of all problems; default: the time")
    parser.add_argument("--wheels", type=Path, help="public-files: a folder of wheels; default: a new one")
    parser.add_argument("--open", action="store_true", help="generators: peers only where ours has a gap")
    arguments = parser.parse_args()
    chosen = {name: getattr(arguments, name) for name in ("seconds", "seed", "part")}
    chosen["sizes"] = arguments.buffers
    suites = SUITES | {
        "onert": partial(onert_losses.run, python=arguments.python),
        "memory": partial(memory.run, python=arguments.python, torch=arguments.torch),
        "micro": partial(micro.run, python=arguments.micro),
        "service": partial(
            service.run, soak=_seconds(arguments.soak), part=arguments.part, rate=arguments.rate
        ),
        "generators": partial(generators.run, sizes=arguments.buffers, only_open=arguments.open),
        "greedies": partial(greedies.run, **chosen),
        "placers": partial(placers.run, **chosen),
        "public-files": partial(public_files.run, wheels=arguments.wheels, part=arguments.part),
        "schedules": partial(schedules.run, part=arguments.part),
        "models": partial(models.run, python=arguments.torch),
        "partitioner": partial(partitioner.run, torch=arguments.torch),
        "doubles": partial(doubles.run, torch=arguments.torch),
        "same_step": partial(same_step.run, torch=arguments.torch, jax=arguments.jax),
    }
    console = Console(width=200, record=arguments.output is not None)
    console.print(f"{machine()}; commit {commit()}")
    for name in arguments.suites or suites:
        suites[name](console)
    if arguments.publish:
        layout.publish()
    if arguments.output:
        arguments.output.write(console.export_text())


if __name__ == "__main__":
    main()
