"""Several entry points in one arena: its bytes beside its bound, its processor time beside separate plans."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console

from examples.gallery import GALLERY
from solver import documents
from solver.graph import TrainableGraph
from solver.pipeline import EntryRequest, entry_requests, plan_deployment, plan_requested
from solver.plan import Deployment, RequestedOptions, Tie, read_entry
from tests.benchmarks.measure import figure_table, in_pairs

__all__ = ["CASES", "Case", "Figures", "figures", "run"]

_EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"

#: Pairs of a deployment and of its plans one by one; the ratio is the median.
_PAIRS: Final = 15


@dataclass(frozen=True, slots=True)
class Case:
    """Entry points of networks, which are read for a batch by name."""

    name: str
    networks: dict[str, Callable[[int | None], TrainableGraph]]
    entries: tuple[str, ...] = ("train", "evaluate", "infer")
    ties: tuple[Tie, ...] = ()

    def requests(self) -> list[EntryRequest]:
        return entry_requests(self.networks, [read_entry(text) for text in self.entries], RequestedOptions())


@dataclass(frozen=True, slots=True)
class Figures:
    """Sizes are bytes, times processor seconds; `ratio` is the median over pairs."""

    deployment: Deployment
    apart_bytes: int
    together: float
    apart: float
    ratio: float


def _gallery(name: str) -> Callable[[int | None], TrainableGraph]:
    example = GALLERY[name]

    def read(batch: int | None) -> TrainableGraph:
        model = example.model()
        return model.graph if batch is None else documents.load_graph(model.document, batch=batch)

    return read


def _file(name: str, batch: int) -> Callable[[int | None], TrainableGraph]:
    data = (_EXAMPLES / f"{name}.json").read_bytes()
    return lambda other: documents.load_graph(data, batch=other or batch)


def _cases() -> Iterator[Case]:
    for name in GALLERY:
        yield Case(name, {name: _gallery(name)})
    mnist, mobilenet = _file("mnist", 32), _file("mobilenet_v2", 32)
    yield Case("LeNet", {"lenet5": _gallery("lenet5")}, ("train:batch=32", "infer:batch=1"))
    three = ("train", "evaluate:batch=64", "infer:batch=1")
    yield Case("mnist", {"mnist": mnist}, three)
    yield Case("MobileNet v2", {"mobilenet_v2": mobilenet}, three)
    two = {"mnist": mnist, "lenet5": _gallery("lenet5")}
    yield Case(
        "mnist and lenet5", two, ("mnist.train", "mnist.infer:batch=1", "lenet5.train", "lenet5.infer")
    )
    tied = {"a": mnist, "b": mnist}
    yield Case(
        "two mnist, tied", tied, ("a.train", "b.train:batch=8", "b.infer:batch=1"), (Tie("a.*", "b.*"),)
    )


CASES: Final = tuple(_cases())


def figures(case: Case, pairs: int = _PAIRS) -> Figures:
    """The deployment of a case, and what its entry points take one by one."""
    requests = case.requests()

    def together() -> Deployment:
        return plan_deployment(case.name, requests, case.ties)

    def apart() -> int:
        return sum(plan_requested(entry.subject, entry.requested).arena_bytes for entry in requests)

    times = in_pairs(together, apart, pairs, time.process_time)
    return Figures(
        together(),
        apart(),
        median(one for one, _ in times),
        median(other for _, other in times),
        median(one / other for one, other in times),
    )


def run(console: Console) -> None:
    """Print the table."""
    sizes = "persistent B, largest transient B, arena B, bound B, gap, apart B"
    headings = f"{sizes}, together ms, apart ms, ratio"
    table = figure_table("Entry points in one arena", "networks, entry points", headings)
    for case in CASES:
        measured = figures(case)
        deployment = measured.deployment
        arena, persistent = deployment.arena_bytes, deployment.persistent_bytes
        table.add_row(
            case.name,
            ", ".join(case.entries),
            *(f"{size:,}" for size in (persistent, arena - persistent, arena, deployment.lower_bound)),
            f"{deployment.gap_bytes / deployment.lower_bound:.3%}" if deployment.gap_bytes else "0",
            f"{measured.apart_bytes:,}",
            f"{measured.together * 1e3:.1f}",
            f"{measured.apart * 1e3:.1f}",
            f"{measured.ratio:.2f}",
        )
    console.print(table)
