"""Recomputation: what a budget costs in modelled time and products, how near to its bound, in which CPU time.

Then Chen et al.'s heuristics on the same problems, published models beside the search on the graphs of their
papers' kind, and orders that are free. Schedules are the same on every machine, so only the seconds are
measured: processor time of this process, of one search each, after a first search that has loaded compiled
code and CP-SAT.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from arenaplan.builder import adam
from examples.gallery import GALLERY
from examples.resnet50 import resnet50
from solver.accounting import ScheduleProblem, floor, flops_of, order_bound, roofline, schedule_problem
from solver.compile import load as load_compiled
from solver.documents import load_graph
from solver.graph import TrainableGraph
from solver.passes import Order
from solver.program import dependencies, loads
from solver.schedules.order.search import Orders, best_order
from solver.schedules.recompute.cut_costs import least_cost
from solver.schedules.recompute.joint import order_to_repeat
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.simulate import Simulator
from solver.training import derive
from tests.benchmarks import chen
from tests.benchmarks.milp import Answer, checkmate, moccasin, vgg16_cifar
from tests.support.deep_graphs import DEEP
from tests.support.other_networks import gpt, unet
from tests.support.schedule_problems import layered
from tests.support.schedule_problems import problem as problem_of

_EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

#: Shares of the peak, or bytes where they are more than 1.
BUDGETS: dict[str, tuple[float, ...]] = {
    "mnist": (0.95, 0.9, 0.85, 0.793),
    "mobilenet_v2": (0.9, 0.8, 0.7, 0.6, 201_325_433, 178_198_784, 165_000_000),
    "resnet50": (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 609_260_517, 470_000_000),
    "transformer": (0.9, 0.8, 0.7, 0.6),
    "lstm_classifier": (0.8, 0.6, 0.45, 0.35, 0.25),
    "mobilenet_v2_bn": (0.8, 0.6, 0.5, 0.45),
    "resnet18": (0.95, 0.9, 0.87),
    "lenet5": (0.95, 0.9, 0.85),
    "autoencoder": (0.97, 0.955),
    "unet": (0.9, 0.8, 0.7),
    "gpt": (0.9, 0.8, 0.7, 0.6, 0.45),
}


#: Shares of the peak at which every order is bounded.
EVERY_ORDER: dict[str, tuple[float, ...]] = {
    "mobilenet_v2": (0.8, 0.6),
    "resnet50": (0.8, 0.6),
    "transformer": (0.8, 0.7, 0.6),
    "gpt": (0.6,),
    "lstm_classifier": (0.6, 0.25),
}

#: Networks that Chen et al.'s heuristics are tried on.
CHEN = ("mnist", "mobilenet_v2", "resnet50", "transformer", "mobilenet_v2_bn")

#: Shares of the peak at which the published models are solved, how many seconds CBC gets, and CP-SAT's
#: deterministic time.
PEERS, CBC_SECONDS, MOCCASIN_WORK = (0.9, 0.8), 600.0, 30.0

#: Networks of so many operations, with batches so large that weights are not most of their bytes.
DEEP_OPERATIONS, DEEP_NETWORKS, DEEP_SHARE = 10_000, {"residual": 256, "transformer": 16}, 0.6

#: Random layered graphs: their steps, seeds, and the share of steps that read one from further back. Layers
#: have half as many steps as the root of all.
LAYERED = ((100, 1, 0.5), (250, 1, 0.2), (250, 2, 0.2), (250, 1, 0.5), (1000, 1, 0.2), (1000, 1, 0.5))

#: Seeds of graphs of the kind that Moccasin's model is solved on.
MOCCASIN_SEEDS = (1, 2, 3)


def run(console: Console, part: str | None = None) -> None:
    """Print all tables, or one: `part` is its name in `TABLES`, or a network of `BUDGETS`, with one of its
    budgets behind an @ or without. All take some minutes, most of them near floors.
    """
    load_compiled()
    if part is None:
        _networks(console, BUDGETS)
    for name, table in TABLES.items():
        if part in (None, name):
            console.print(table())
    if part is None or part in TABLES:
        return
    name, _, share = part.partition("@")
    shares = tuple(each for each in BUDGETS.get(name, ()) if share in ("", f"{each:g}", str(each)))
    if not shares:
        raise SystemExit(
            f"--part {part}: neither a table ({', '.join(TABLES)}) nor a network ({', '.join(BUDGETS)}), "
            "with one of its budgets or without, as in resnet50@0.4"
        )
    _networks(console, {name: shares})


def _networks(console: Console, budgets: dict[str, tuple[float, ...]]) -> None:
    bounds = Table("network", "steps", "peak", "fixed", "order bound", "floor", "step that needs it",
                   title="Bounds on the peak, over all orders; share of the peak as given")  # fmt: skip
    found = Table("network", "of peak", "budget", "peak", "extra time", "bound", "gap", "products", "again",
                  "CPU s", title="Recomputation in the given order; share of the step")  # fmt: skip
    cheapest(layered(9, 1), 1)
    for name, shares in budgets.items():
        program = Order().run(derive(_graph(name)))
        problem = schedule_problem(program, roofline(program))
        peak = max(loads(program)[0])
        bounds.add_row(name, f"{len(program.steps):,}", *_bounds(problem, peak))
        flops = [flops_of(program, step) for step in program.steps]
        for share in shares:
            budget = int(peak * share) if share <= 1 else int(share)
            found.add_row(name, f"{budget / peak:.1%}", f"{budget:,}", *_row(problem, budget, flops))
    console.print(bounds)
    console.print(found)


def _every_order() -> Table:
    table = Table("network", "of peak", "given order", "proved", "every order", "moments", "CPU s",
                  title="What every order of the steps costs at least; share of the step")  # fmt: skip
    for name, shares in EVERY_ORDER.items():
        program = Order().run(derive(_graph(name)))
        problem = schedule_problem(program, roofline(program))
        load, before, total = loads(program)[0], dependencies(program.touches()), sum(problem.cost)
        for share in shares:
            budget = int(max(load) * share)
            ours = cheapest(problem, budget)
            began = time.process_time()
            least = least_cost(problem, before, budget, load)
            seconds = time.process_time() - began
            costs = (f"{cost / total:.3%}" for cost in (ours.extra, ours.bound, least.bound))
            moments = ", ".join(problem.steps[t] for t in least.steps)
            table.add_row(name, f"{share:.0%}", *costs, moments, f"{seconds:.1f}")
    return table


def _against_chen() -> Table:
    table = Table("network", "heuristic", "of peak", "peak", "its extra time", "ours at that peak", "bound",
                  title="Chen et al., 2016, on the same problems")  # fmt: skip
    for name in CHEN:
        program = Order().run(derive(_graph(name)))
        problem = schedule_problem(program, roofline(program))
        peak, total = max(loads(program)[0]), sum(problem.cost)
        front = chen.greedy(problem)
        rows = [("sqrt(n)", chen.square_root(problem))]
        rows += [("greedy", each) for each in (front[0], front[len(front) // 2])]
        for heuristic, its in rows:
            ours = cheapest(problem, its.peak)
            table.add_row(
                name, heuristic, f"{its.peak / peak:.1%}", f"{its.peak:,}", f"+{its.extra / total:.2%}",
                f"+{ours.extra / total:.2%}" if ours.fits else "not found", f"{ours.bound / total:.2%}",
            )  # fmt: skip
    return table


def _deep() -> Table:
    headings = "network, batch, steps, of peak, budget, peak, extra time, bound, gap, products, again, CPU s"
    table = Table(*headings.split(", "), title=f"Recomputation in networks of {DEEP_OPERATIONS:,} operations")
    for name, batch in DEEP_NETWORKS.items():
        graph = load_graph(json.dumps(DEEP[name](DEEP_OPERATIONS)).encode(), batch=batch)
        program = Order().run(derive(graph))
        problem = schedule_problem(program, roofline(program))
        budget = int(max(loads(program)[0]) * DEEP_SHARE)
        row = _row(problem, budget, [flops_of(program, step) for step in program.steps])
        about = (name, str(batch), f"{len(program.steps):,}", f"{DEEP_SHARE:.0%}", f"{budget:,}")
        table.add_row(*about, *row)
    return table


def _beside_models() -> Table:
    headings = "graph, steps, of peak, model, its extra, proved, CPU s, ours, bound, CPU s, times as fast"
    table = Table(*headings.split(", "), title="Published models on the same problems; share of the step")
    for share in PEERS:
        found = problem_of(*vgg16_cifar())
        row = _beside(found, share, lambda p, budget: checkmate(p, budget, CBC_SECONDS))
        table.add_row("POET's VGG-16, energy", str(len(found.steps)), f"{share:.0%}", "Checkmate, CBC", *row)
        for seed in MOCCASIN_SEEDS:
            found = layered(100, seed, width=5.0)
            row = _beside(found, share, lambda p, budget: moccasin(p, budget, MOCCASIN_WORK))
            table.add_row(f"layered, {seed}", str(len(found.steps)), f"{share:.0%}", "Moccasin, CP-SAT", *row)
    return table


def _beside(
    problem: ScheduleProblem, share: float, solve: Callable[[ScheduleProblem, int], Answer]
) -> tuple[str, ...]:
    budget, total = int(_peak(problem) * share), sum(problem.cost)
    began = time.process_time()
    ours = cheapest(problem, budget)
    fast = time.process_time() - began
    began = time.process_time()
    its = solve(problem, budget)
    slow = time.process_time() - began
    return (
        "none" if its.extra is None else f"+{its.extra / total:.4%}",
        "yes" if its.proved else "no",
        f"{slow:.1f}",
        f"+{ours.extra / total:.4%}",
        f"{ours.bound / total:.4%}",
        f"{fast:.2f}",
        f"{slow / fast:,.0f}",
    )


def _free_orders() -> Table:
    headings = "steps, edges, seed, lower, bound, s, of peak, order given, order free, proved, any order, s"
    title = "Random layered graphs: extra time, the order free as well; CPU s"
    table = Table(*headings.split(", "), title=title)
    for count, seed, skip in LAYERED:
        given = layered(count, seed, width=count**0.5 / 2, skip=skip)
        before = [frozenset(values) for values in given.reads]
        peak, total = _peak(given), sum(given.cost)
        began = time.process_time()
        order = best_order(given, before)
        seconds = time.process_time() - began
        about = (str(count), str(sum(map(len, given.reads))), str(seed), f"{order.peak / peak - 1:+.1%}",
                 f"{order.bound / peak - 1:+.1%}", f"{seconds:.1f}")  # fmt: skip
        load = [0] * count
        for t, bytes_ in zip(order.order, Orders(given, before).loads(order.order), strict=True):
            load[t] = int(bytes_)
        for share in PEERS:
            budget = int(peak * share)
            kept = cheapest(given, budget)
            began = time.process_time()
            least, free = 0, order
            if order.peak > budget:
                least = least_cost(given, before, budget, load).bound
                free = order_to_repeat(given, before, budget, bound=order.bound, least=least)
            found = cheapest(given.in_order(free.order), budget)
            seconds = time.process_time() - began
            extra = [f"+{each.extra / total:.3%}" if each.fits else "not found" for each in (kept, found)]
            proved = f"{found.bound / total:.3%}"
            table.add_row(*about, f"{share:.0%}", *extra, proved, f">= {least / total:.3%}", f"{seconds:.1f}")
    return table


def _peak(problem: ScheduleProblem) -> int:
    simulator = Simulator(problem)
    return simulator.run(simulator.start()).peak


def _graph(name: str) -> TrainableGraph:
    if name == "resnet50":
        return resnet50(16).graph
    if name == "unet":
        return unet()
    if name == "gpt":
        return gpt(length=256, heads=4, words=1024, optimizer=adam(0.001))
    if name in GALLERY:
        return GALLERY[name].model().graph
    batch = 32 if name == "mnist" else 10
    return load_graph((_EXAMPLES / f"{name}.json").read_bytes(), batch=batch)


def _bounds(problem: ScheduleProblem, peak: int) -> tuple[str, ...]:
    high, low = order_bound(problem), floor(problem)
    shares = (problem.fixed / peak, high.bytes / peak)
    return (
        f"{peak:,}",
        *(f"{share:.1%}" for share in shares),
        f"{low.bytes:,} ({low.bytes / peak:.1%})",
        problem.steps[low.step],
    )


def _row(problem: ScheduleProblem, budget: int, flops: list[int]) -> tuple[str, ...]:
    began = time.process_time()
    schedule = cheapest(problem, budget)
    seconds = time.process_time() - began
    if not schedule.fits:
        return (f"{schedule.peak:,}", "not found", "", "", "", "", f"{seconds:.2f}")
    total = sum(problem.cost)
    gap = (schedule.extra - schedule.bound) / total
    more = sum(flops[t] for t in schedule.sequence) / max(sum(flops), 1) - 1
    return (
        f"{schedule.peak:,}",
        f"+{schedule.extra / total:.3%}",
        f"{schedule.bound / total:.3%}",
        "proved" if schedule.optimal else f"{gap:.3%}",
        f"+{more:.2%}",
        str(len(schedule.sequence) - len(problem.steps)),
        f"{seconds:.2f}",
    )


#: All tables but those of the networks, by their names for ``--part``.
TABLES: dict[str, Callable[[], Table]] = {
    "every": _every_order,
    "chen": _against_chen,
    "deep": _deep,
    "models": _beside_models,
    "free": _free_orders,
}
