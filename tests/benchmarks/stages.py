"""The stages of the portfolio, each left out in turn: what a stage is worth on real problems.

A stage stays in the portfolio if some problem here loses 0.1 % of its peak, a proof or 20 % of the processor
time without it. Problems that an earlier stage settles say nothing about a later one, so only the stages that
ran are left out.

Seconds are of the processor, on one thread. Public instances are read from beside the project where they are.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from rich.console import Console
from rich.table import Table

from examples.gallery import GALLERY
from examples.resnet50 import resnet50
from solver.compile import load as load_compiled
from solver.documents import load_graph
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.layout import Buffer, Deadline, Hole, LayoutProblem, Outcome, SolveOptions
from solver.layout.portfolio import STAGES, Portfolio, Stage
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Tier
from tests.benchmarks.generators import SOURCES, Allowance
from tests.benchmarks.measure import ROOT
from tests.benchmarks.peers import generated, installed
from tests.support.buffers import DATA, read_csv
from tests.support.deep_graphs import DEEP
from tests.support.shapes import SHAPES
from tests.support.training_shaped import training_columns

__all__ = ["Instance", "instances", "run"]

#: A loss that keeps a stage: fractions of the peak and of the processor time, and the seconds below which a
#: difference of times is noise.
PEAK_LOSS: Final = 0.001
TIME_LOSS: Final = 0.2
NOISE_SECONDS: Final = 0.02

#: Fractions of the arena that paging and recomputation leave, and the models that do so in the default set.
LESS_MEMORY: Final = 0.8
SQUEEZED: Final = ("autoencoder", "lenet5", "transformer")

#: What the how-to guide of paging plans: a batch of 10 in 200 MB, with flash behind it.
GUIDE: Final = PlanOptions(
    batch=10, tiers=(Tier("ram", 200_000_000), Tier("flash", 2**30, 45_000_000, 24_000_000))
)

#: Processor seconds for a problem of OmniMalloc's generators, and where MiniMalloc's capacity is asked for.
GENERATOR_SECONDS: Final = 1.0
FIT_SECONDS: Final = 5.0

TARGETS: Final = ("onert", "nntrainer", "singa")
UNTRAINABLE: Final = (("mobilenet_v2", "nntrainer"), ("resnet50", "nntrainer"), ("resnet50", "onert"))
VARIANTS: Final = {
    "": PlanOptions(),
    ", in place": PlanOptions(in_place=True),
    ", reordered": PlanOptions(order=True),
    ", sub-ranges": PlanOptions(in_place=True, sub_ranges=True),
}


@dataclass(frozen=True, slots=True)
class Instance:
    """A named problem; processor seconds at most (None: the solver's own budgets)."""

    name: str
    problem: LayoutProblem
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An outcome, its processor seconds, and the stages that ran before it was settled."""

    outcome: Outcome
    cpu: float
    ran: tuple[str, ...]

    @property
    def peak(self) -> int:
        return self.outcome.layout.peak if self.outcome.layout else 0

    @property
    def gap(self) -> float:
        return self.peak / self.outcome.lower_bound - 1


def run(
    console: Console, leave_out: Sequence[str] = (), *, full: bool = False, part: str | None = None
) -> None:
    """Print a row for each problem, a line for each loss, and at the end what each stage is worth.

    With `leave_out` these stages are left out together, else each that ran by itself. `part`: only problems
    whose names have it.
    """
    known = [stage.name for stage in STAGES]
    if unknown := [name for name in leave_out if name not in known]:
        raise SystemExit(f"There is no stage {unknown[0]!r}: choose among {', '.join(known)}.")
    load_compiled()
    losses = {name: list[str]() for name in known}
    for instance in instances(full=full, part=part):
        answer = solved(instance, STAGES)
        console.print(_line(instance, answer), highlight=False)
        if leave_out:
            _compare(console, instance, answer, tuple(leave_out), losses)
            continue
        for name in answer.ran:
            _compare(console, instance, answer, (name,), losses)
    table = Table("stage", "problems that lose without it", title="portfolio: what each stage is worth")
    for name, lost in losses.items():
        table.add_row(name, "; ".join(lost) or "none")
    console.print(table)


def _line(instance: Instance, answer: Answer) -> str:
    proof = answer.outcome.proof.value if answer.outcome.proof else "no proof"
    last = answer.outcome.solver.removeprefix("portfolio/")
    return (
        f"{instance.name}: {len(instance.problem.buffers):,} buffers, gap {answer.gap:.3%}, {proof}, "
        f"{answer.cpu:.2f} s; by {last}; ran {', '.join(answer.ran) or 'none'}"
    )


def _compare(
    console: Console, instance: Instance, answer: Answer, names: tuple[str, ...], losses: dict[str, list[str]]
) -> None:
    """Prints the loss without these stages, and notes it where it is large enough to keep a stage."""
    less = solved(instance, tuple(stage for stage in STAGES if stage.name not in names))
    peak, seconds = less.peak / answer.peak - 1, less.cpu - answer.cpu
    slower = seconds > NOISE_SECONDS and seconds > TIME_LOSS * answer.cpu and instance.seconds is None
    proof = answer.outcome.proof is not None and less.outcome.proof is None
    console.print(
        f"    without {names[0] if len(names) == 1 else 'them'}: "
        f"peak {peak:+.3%}, {less.cpu:.2f} s{', no proof' if proof else ''}",
        highlight=False,
    )
    if peak >= PEAK_LOSS or proof or slower:
        cost = f"{peak:+.2%}" if peak >= PEAK_LOSS else "proof" if proof else f"{seconds:+.2f} s"
        for name in names:
            losses[name].append(f"{instance.name} {cost}")


def solved(instance: Instance, stages: tuple[Stage, ...]) -> Answer:
    """The answer of the portfolio of these stages."""
    ran: list[str] = []

    def recorded(stage: Stage) -> Stage:
        def noted(*arguments: object) -> None:
            ran.append(stage.name)
            stage.run(*arguments)  # type: ignore[arg-type]

        return replace(stage, run=noted)

    gc.collect()
    problem, seconds = instance.problem, instance.seconds
    options = SolveOptions(
        threads=1, fit=problem.capacity is not None, work=None if seconds else SolveOptions().work
    )
    solver = Portfolio(options, tuple(map(recorded, stages)))
    began = time.process_time()
    deadline = Deadline() if seconds is None else Allowance(until=began + seconds)
    outcome = solver.solve(problem, deadline)
    return Answer(outcome, time.process_time() - began, tuple(dict.fromkeys(ran)))


def instances(*, full: bool = False, part: str | None = None) -> Iterator[Instance]:
    """Made when it is their turn. Without `full`, those that need no search before they can be placed."""
    for name, make in _makers(full=full):
        if part is None or part in name:
            for k, instance in enumerate(make()):
                yield replace(instance, name=f"{name} #{k}" if k else name)


def _makers(*, full: bool) -> Iterator[tuple[str, Callable[[], Iterator[Instance]]]]:
    for path in sorted(DATA.glob("minimalloc/*.csv")):
        name = path.name.split(".")[0]
        yield f"MiniMalloc {name} in 1 MiB", partial(_read, f"minimalloc/{path.stem}", capacity=2**20)
        yield f"MiniMalloc {name} minimised", partial(_read, f"minimalloc/{path.stem}")
    for path in sorted(DATA.glob("executorch/*.csv")):
        yield f"ExecuTorch {path.stem}", partial(_read, f"executorch/{path.stem}", alignment=16)
    for path in sorted(DATA.glob("idealloc/*.csv")):
        yield f"idealloc {path.stem}", partial(_read, f"idealloc/{path.stem}")
    for model in ("mnist", "mobilenet_v2", "resnet50"):
        for target in TARGETS:
            if (model, target) not in UNTRAINABLE:
                yield f"{model}, {target}", partial(_planned, model, PlanOptions(target=target))
    for model in (*GALLERY, "mnist", "mobilenet_v2"):
        for variant, options in VARIANTS.items():
            if full or not options.order:
                yield f"{model}{variant}", partial(_planned, model, options)
        if full or model in SQUEEZED:
            yield f"{model}, recomputed", partial(_squeezed, model, paged=False)
            yield f"{model}, paged", partial(_squeezed, model, paged=True)
    yield "mobilenet_v2 of batch 10 in 200 MB", partial(_planned, "mobilenet_v2", GUIDE)
    yield "40 buffers with gaps", partial(_gaps, 40)
    for name in DEEP:
        for operations in (1_000, 10_000):
            yield (
                f"{name}, {operations:,} operations",
                partial(_planned, f"{name} {operations}", PlanOptions()),
            )
    for buffers in (20_000, 100_000):
        yield f"training-shaped {buffers:,}", partial(_training_shaped, buffers)
    if installed():
        for buffers in (2_000, 20_000) if full else (2_000,):
            for source in SOURCES:
                yield f"OmniMalloc {source} {buffers:,}", partial(_generated, source, buffers)


def _read(name: str, alignment: int = 1, capacity: int | None = None) -> Iterator[Instance]:
    problem = replace(read_csv(DATA / f"{name}.csv", alignment), capacity=capacity)
    yield Instance("", problem, None if capacity is None else FIT_SECONDS)


def _planned(model: str, options: PlanOptions) -> Iterator[Instance]:
    yield from _of(plan(_graph(model, options.batch), options))


def _squeezed(model: str, *, paged: bool) -> Iterator[Instance]:
    """With less memory than the plain plan takes; nothing where that is too little."""
    graph = _graph(model)
    room = int(plan(graph, PlanOptions()).arena_bytes * LESS_MEMORY)
    tiers = (Tier("ram", room), Tier("flash", 2**30, 45_000_000, 24_000_000))
    options = PlanOptions(tiers=tiers) if paged else PlanOptions(capacity=room, recompute=True)
    try:
        yield from _of(plan(graph, options))
    except CapacityError:
        return


def _gaps(buffers: int) -> Iterator[Instance]:
    yield Instance("", SHAPES["gaps"](buffers, 1))


def _training_shaped(buffers: int) -> Iterator[Instance]:
    yield Instance("", training_columns(0, buffers=buffers).problem())


def _generated(source: str, buffers: int) -> Iterator[Instance]:
    problem = generated(source, buffers, seed=1)
    if problem is not None:
        yield Instance("", problem, GENERATOR_SECONDS)


def _graph(model: str, batch: int | None = None) -> TrainableGraph:
    kind, _, operations = model.rpartition(" ")
    if kind in DEEP:
        return load_graph(json.dumps(DEEP[kind](int(operations))).encode())
    if model == "resnet50":
        return load_graph(resnet50().document)
    if model in GALLERY:
        return load_graph(GALLERY[model].model().document)
    return load_graph((ROOT / f"examples/{model}.json").read_bytes(), batch=batch)


def _of(made: Plan) -> Iterator[Instance]:
    """A problem for each space of a plan, as the planner places it."""
    program = made.program
    for number, space in enumerate(program.spaces):
        buffers = tuple(
            Buffer(
                program.values[r.members[0]].label, r.size, r.lifespan, space.alignment, None,
                tuple(map(Hole, r.lent)),
            )
            for r in made.regions
            if r.space == number
        )  # fmt: skip
        if buffers:
            yield Instance("", LayoutProblem(buffers))
