"""Measures that could make a network fit a capacity: one row each, with its settings from the mildest on.

A setting changes a request: options of the plan, or how the graph is trained. So settings of different
measures combine by applying one after the other. A new measure is a function that lists its settings, and a
row in `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Any

from solver import documents
from solver.graph import TrainableGraph
from solver.graph.types import OptimizerSpec
from solver.options import MEASURES as MEASURE_OPTIONS
from solver.plan import Changes, OptionValue, PlanOptions
from solver.program import Tier
from solver.training.optimizers import optimizer_rules, state_names

__all__ = ["MEASURES", "Batches", "Measure", "Request", "Setting", "batches_of", "fields_of"]

#: The smallest scratch budget that is tried, in bytes: below it kernels take one example at a time anyway.
_LEAST_SCRATCH = 64 * 1024

#: The most micro-batches of an update that are tried.
_MOST_MICRO_BATCHES = 64

#: The memory that paging is modelled with where none is named: room for everything, as fast as an SD card.
_SLOW_BYTES, _SLOW_RATE = 2**40, 100 * 10**6


@dataclass(frozen=True, slots=True)
class Batches:
    """The graph at other batches than its own of `size` examples; `at` raises GraphError where it cannot
    be.
    """

    size: int
    at: Callable[[int], TrainableGraph]


def batches_of(document: bytes | Mapping[str, Any], options: PlanOptions) -> Batches | None:
    """How a graph document is read at other batches; None where its batch is not symbolic, or not given."""
    parsed = documents.parse_json(document) if isinstance(document, bytes) else document
    size = options.batch or parsed.get("batch")
    operands = parsed.get("operands")
    if not isinstance(size, int) or not isinstance(operands, list):
        return None
    symbolic = any("batch" in (operand.get("shape") or ()) for operand in operands)
    return Batches(size, lambda batch: documents.load_graph(parsed, batch=batch)) if symbolic else None


def fields_of(options: PlanOptions) -> dict[str, OptionValue]:
    """The fields of an options document for these options, without the deadline: no remedy has one."""
    usual, fields = (documents.parse_json(documents.dump_options(each)) for each in (PlanOptions(), options))
    return {
        name: tuple(value) if name == "only" else value
        for name, value in fields.items()
        if name != "deadline_seconds" and (name not in usual or name == "only" or value != usual[name])
    }


@dataclass(frozen=True, slots=True)
class Request:
    """A graph under options, and `fields`, the options document that asks for them; `graph_fields` are those
    that have changed of the graph's own document.

    `batches` is None where the graph has one batch only. `note` is what a reader should know besides.
    """

    graph: TrainableGraph
    options: PlanOptions
    batches: Batches | None = None
    fields: Mapping[str, OptionValue] = field(default_factory=dict)
    graph_fields: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def choosing(self, **options: int | bool | str) -> Request:
        """With other options of the plan."""
        chosen = replace(self.options, **options)  # type: ignore[arg-type]  # options by name
        only = tuple(name for name in MEASURE_OPTIONS if getattr(chosen, name))
        plain = {name: value for name, value in options.items() if name not in MEASURE_OPTIONS}
        return replace(self, options=chosen, fields={**self.fields, **plain, "only": only})

    def training(self, graph: TrainableGraph, note: str, field: str) -> Request:
        """With a graph that is trained otherwise, as this field of its document says."""
        content = documents.parse_json(documents.dump_graph(graph)).get(field, {})
        return replace(self, graph=graph, note=note, graph_fields={**self.graph_fields, field: content})


@dataclass(frozen=True, slots=True)
class Setting:
    """One way to take a measure: what it is called, and the request that it makes of another."""

    name: str
    apply: Callable[[Request], Request]


@dataclass(frozen=True, slots=True)
class Measure:
    """`settings` lists, for a request, what there is to choose from: the mildest first, each taking fewer
    bytes than those before it or as many; nothing where the measure is taken already or cannot be. One that
    `searches` takes as long as a search does, and uses what capacity the others leave. One that stands
    `alone` is not tried together with others.
    """

    name: str
    changes: Changes
    settings: Callable[[Request], tuple[Setting, ...]]
    searches: bool = False
    alone: bool = False


def _in_place(request: Request) -> tuple[Setting, ...]:
    whole = Setting("in place", lambda r: r.choosing(in_place=True))
    parts = Setting("sub-ranges in place", lambda r: r.choosing(in_place=True, sub_ranges=True))
    if request.options.sub_ranges:
        return ()
    return (parts,) if request.options.in_place else (whole, parts)


def _one_at_a_time(request: Request) -> tuple[Setting, ...]:
    one = Setting("one step at a time", lambda r: r.choosing(parallelism=1))
    return (one,) if request.options.parallelism > 1 else ()


def _rewrite(request: Request) -> tuple[Setting, ...]:
    return () if request.options.rewrite else (Setting("rewrite", lambda r: r.choosing(rewrite=True)),)


def _scratch(request: Request) -> tuple[Setting, ...]:
    settings, budget = [], 1 << (request.options.scratch_budget - 1).bit_length()
    while (budget := budget // 2) >= _LEAST_SCRATCH:
        settings.append(Setting(f"{_binary(budget)} of scratch", _with_scratch(budget)))
    return tuple(settings)


def _with_scratch(budget: int) -> Callable[[Request], Request]:
    note = "kernels work in smaller chunks, which the modelled time does not count"
    return lambda r: replace(r.choosing(scratch_budget=budget), note=note)


def _binary(size: int) -> str:
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _recompute(request: Request) -> tuple[Setting, ...]:
    again = Setting("recompute", lambda r: r.choosing(recompute=True))
    return () if request.options.recompute else (again,)


def _paging(request: Request) -> tuple[Setting, ...]:
    capacity = request.options.capacity
    if not capacity or request.options.tiers:
        return ()
    tiers = (Tier("fast", capacity), Tier("slow", _SLOW_BYTES, _SLOW_RATE, _SLOW_RATE))
    texts = (f"fast={capacity}", f"slow={_SLOW_BYTES},bandwidth={_SLOW_RATE}B/s")
    note = f"paging is modelled with a second memory at {_SLOW_RATE // 10**6} MB/s; --tier says what yours is"

    def apply(r: Request) -> Request:
        fields = {**r.fields, "capacity": None, "tiers": texts}
        options = replace(r.options, capacity=None, tiers=tiers)
        return replace(r, options=options, fields=fields, note=note)

    return (Setting("paging", apply),)


def _storage(request: Request) -> tuple[Setting, ...]:
    note = "derivatives see rounded activations; float16 takes as many bytes, and wants loss_scale_growth"

    def apply(r: Request) -> Request:
        return replace(r.choosing(storage="bfloat16"), note=note)

    return () if request.options.storage else (Setting("activations in bfloat16", apply),)


def _micro_batches(request: Request) -> tuple[Setting, ...]:
    batches = request.batches
    if batches is None or request.options.costs is not None:  # costs are those of one batch
        return ()
    most = min(batches.size, _MOST_MICRO_BATCHES)
    return tuple(
        Setting(f"{k} micro-batches of {batches.size // k}", _in_micro_batches(batches, k))
        for k in range(2, most + 1)
        if batches.size % k == 0
    )


def _in_micro_batches(batches: Batches, count: int) -> Callable[[Request], Request]:
    def apply(request: Request) -> Request:
        batch = batches.size // count
        rules = replace(request.graph.training, accumulate=request.graph.training.accumulate * count)
        graph = batches.at(batch).with_spec(
            rules=rules, optimizer=request.graph.optimizer, trainable=request.graph.trainable
        )
        note = "normalisation over a batch sees the smaller one"
        return request.choosing(batch=batch).training(graph, note, "training")

    return apply


def _fewer_trained(request: Request) -> tuple[Setting, ...]:
    """The trainable operands by the operation that reads them first, in the order of the graph."""
    graph, seen, layers = request.graph, set[str](), list[frozenset[str]]()
    for operation in graph.operations:
        new = (graph.trained & set(operation.inputs)) - seen
        if new:
            layers.append(new)
            seen |= new
    return tuple(
        Setting(
            f"train the last {count} of {len(layers)} layers", _training(seen.difference(*layers[:-count]))
        )
        for count in range(len(layers) - 1, 0, -1)
    )


def _training(names: Set[str]) -> Callable[[Request], Request]:
    def apply(request: Request) -> Request:
        chosen = tuple(name for name in request.graph.trainable if name in names)
        return request.training(request.graph.with_spec(trainable=chosen), "", "trainable")

    return apply


def _less_state(request: Request) -> tuple[Setting, ...]:
    optimizer = request.graph.optimizer
    rate = optimizer_rules(optimizer)["learning_rate"]
    momentum = OptimizerSpec("SGD", {"learning_rate": rate, "momentum": 0.9})
    plain = OptimizerSpec("SGD", {"learning_rate": rate})
    named = (("SGD with momentum", momentum), ("SGD without momentum", plain))
    smaller = [(name, spec) for name, spec in named if len(state_names(spec)) < len(state_names(optimizer))]
    return tuple(Setting(name, _optimized_by(spec)) for name, spec in smaller)


def _optimized_by(spec: OptimizerSpec) -> Callable[[Request], Request]:
    note = "another optimizer needs a learning rate of its own"
    return lambda r: r.training(r.graph.with_spec(optimizer=spec), note, "optimizer")


#: Every measure; those that change less come first. Adding one is a function above and its row here.
MEASURES: tuple[Measure, ...] = (
    Measure("in place", Changes.NOTHING, _in_place),
    Measure("parallelism", Changes.NOTHING, _one_at_a_time),
    Measure("recompute", Changes.NOTHING, _recompute, searches=True),
    Measure("paging", Changes.NOTHING, _paging, searches=True, alone=True),
    Measure("rewrite", Changes.ROUNDING, _rewrite),
    Measure("scratch", Changes.ROUNDING, _scratch),
    Measure("storage", Changes.TRAINING, _storage),
    Measure("micro-batches", Changes.TRAINING, _micro_batches),
    Measure("trained layers", Changes.TRAINING, _fewer_trained),
    Measure("optimizer", Changes.TRAINING, _less_state),
)
