"""Measures that could make a network fit a capacity: one row each, with its settings from the mildest on.

A setting changes a request: options of the plan, or how the graph is trained. So settings of different
measures combine by applying one after the other. A new measure is a function that lists its settings, and a
row in `MEASURES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from solver import documents
from solver.errors import BatchError
from solver.graph import Role, TrainableGraph
from solver.graph.types import OptimizerSpec
from solver.options import MEASURES as MEASURE_OPTIONS
from solver.plan import PlanOptions, RequestedOptions
from solver.program import Tier
from solver.reports.verdict import Changes, OptionValue
from solver.training.optimizers import optimizer_rules, state_names

if TYPE_CHECKING:
    from solver.pipeline import BlockProgram

__all__ = [
    "MEASURES",
    "Batches",
    "Measure",
    "Request",
    "Setting",
    "batches_of",
    "batches_of_model",
    "fields_of",
]

#: The smallest scratch budget, in bytes, that is tried where anything else is enough: with less, kernels are
#: much slower.
_LITTLE_SCRATCH = 64 * 1024

#: The most micro-batches of an update that are tried.
_MOST_MICRO_BATCHES = 64

#: The memory that paging is modelled with where none is named: room for everything, as fast as an SD card.
_SLOW_BYTES, _SLOW_RATE = 2**40, 100 * 10**6


@dataclass(frozen=True, slots=True)
class Batches:
    """The graph at other batches than its own of `size` examples; `at` raises ArenaplanError where it cannot
    be. `words` are the options and choices that ask for a batch, by name.
    """

    size: int
    at: Callable[[int], TrainableGraph]
    words: Callable[[int], Mapping[str, OptionValue]] = lambda batch: {"batch": batch}


def batches_of(document: bytes | Mapping[str, Any], options: PlanOptions) -> Batches | None:
    """How a graph document is read at other batches; None where its batch is not symbolic, or not given."""
    parsed = documents.parse_json(document) if isinstance(document, bytes) else document
    size = options.batch or parsed.get("batch")
    operands = parsed.get("operands")
    if not isinstance(size, int) or not isinstance(operands, list):
        return None
    symbolic = any("batch" in (operand.get("shape") or ()) for operand in operands)
    return Batches(size, lambda batch: documents.load_graph(parsed, batch=batch)) if symbolic else None


def batches_of_model(
    graph: TrainableGraph,
    choices: Mapping[str, Any],
    read: Callable[[int | None, Mapping[str, Any]], TrainableGraph],
) -> Batches | None:
    """How a model of another tool is read at other batches: the size of the first axis of its first input.

    `read` imports it at a batch, with choices; `graph` is what it gave for `choices`. None without that axis.
    """
    shapes = _input_shapes(graph)
    size = next((shape[0] for shape in shapes.values() if shape), 1)
    if size == 1:
        return None
    dims = choices.get("dim", ())
    dims = list(dims) if isinstance(dims, list | tuple) else [dims]
    named = [k for k, text in enumerate(dims) if str(text).rpartition("=")[2] == str(size)]

    def words(batch: int) -> Mapping[str, OptionValue]:
        if not named:
            return {"batch": batch}
        name = str(dims[named[0]]).rpartition("=")[0]
        return {"dim": (*dims[: named[0]], f"{name}={batch}", *dims[named[0] + 1 :])}

    def at(batch: int) -> TrainableGraph:
        smaller = read(None if named else batch, {**choices, **words(batch)} if named else choices)
        expected = {
            name: (batch, *shape[1:]) if shape[:1] == (size,) else shape for name, shape in shapes.items()
        }
        if _input_shapes(smaller) != expected:
            raise BatchError(
                f"The model {graph.name!r} has one batch only.", remedy="Export it with an open batch."
            )
        return smaller

    return Batches(size, at, words)


def _input_shapes(graph: TrainableGraph) -> dict[str, tuple[int, ...]]:
    return {name: one.shape for name, one in graph.operands.items() if one.role is Role.INPUT}


def fields_of(requested: RequestedOptions) -> dict[str, OptionValue]:
    """The fields of an options document for these options, without the deadline: no remedy has one."""
    usual, fields = (
        documents.parse_json(documents.dump_options(each)) for each in (RequestedOptions(), requested)
    )
    return {
        name: tuple(value) if name == "only" else value
        for name, value in fields.items()
        if name != "deadline_seconds" and (name not in usual or value != usual[name])
    }


@dataclass(frozen=True, slots=True)
class Request:
    """A graph or explicit program under options, and `fields`, the options document that asks for them;
    `choices` and `graph_fields` say how else a graph is trained: as choices for models, and as fields of its
    document.

    `batches` is None where the graph has one batch only. `note` is what a reader should know besides. One
    that `searches` may run steps again, or page: otherwise a plan takes what costs no time.
    """

    subject: TrainableGraph | BlockProgram
    requested: RequestedOptions
    batches: Batches | None = None
    fields: Mapping[str, OptionValue] = field(default_factory=dict)
    choices: Mapping[str, OptionValue] = field(default_factory=dict)
    graph_fields: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    searches: bool = False
    #: How many updates have the examples of one as it was asked for.
    updates: Fraction = Fraction(1)

    @property
    def options(self) -> PlanOptions:
        return self.requested.options

    @property
    def graph(self) -> TrainableGraph:
        """The subject, of measures that are for graphs alone."""
        assert isinstance(self.subject, TrainableGraph)
        return self.subject

    @property
    def iterations(self) -> int:
        """How many iterations an update takes."""
        return self.subject.training.accumulate if isinstance(self.subject, TrainableGraph) else 1

    def choosing(self, **options: OptionValue) -> Request:
        """With other options of the plan."""
        return replace(self, requested=self.requested.having(**options), fields={**self.fields, **options})

    def at_batch(self, batches: Batches, batch: int, note: str) -> Request:
        """With the graph at another batch, trained as this one is. Raises ArenaplanError."""
        spec = self.graph.spec
        graph = batches.at(batch).with_spec(
            rules=spec.rules, optimizer=spec.optimizer, trainable=spec.trainable
        )
        words = batches.words(batch)
        options = {name: value for name, value in words.items() if name == "batch"}
        choices = {name: value for name, value in words.items() if name != "batch"}
        chosen = self.choosing(**options)
        return replace(chosen, subject=graph, choices={**self.choices, **choices}, note=note)

    def training(self, graph: TrainableGraph, note: str, field: str, **choices: OptionValue) -> Request:
        """With a graph that is trained otherwise, as this field of its document and these choices say."""
        content = documents.parse_json(documents.dump_graph(graph)).get(field, {})
        return replace(
            self,
            subject=graph,
            note=note,
            choices={**self.choices, **choices},
            graph_fields={**self.graph_fields, field: content},
        )


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
    `alone` is not tried together with others. The `last` ones are tried where the others, but for those that
    stand alone or change the training, are not enough. One of `programs` is for explicit programs, too.
    """

    name: str
    changes: Changes
    settings: Callable[[Request], tuple[Setting, ...]]
    searches: bool = False
    alone: bool = False
    last: bool = False
    programs: bool = False


def _free(request: Request) -> tuple[Setting, ...]:
    """Measures that were chosen by hand, or none at all, leave some out that change no bit."""

    def apply(r: Request) -> Request:
        options = r.requested.having(**dict.fromkeys(MEASURE_OPTIONS, False)).options
        fields = {name: value for name, value in r.fields.items() if name not in ("only", "as_written")}
        return replace(r, requested=RequestedOptions(options), fields=fields)

    return () if request.requested.automatic else (Setting("measures that cost nothing", apply),)


def _one_at_a_time(request: Request) -> tuple[Setting, ...]:
    one = Setting("one step at a time", lambda r: r.choosing(parallelism=1))
    return (one,) if request.options.parallelism > 1 else ()


def _rewrite(request: Request) -> tuple[Setting, ...]:
    return () if request.options.rewrite else (Setting("rewrite", lambda r: r.choosing(rewrite=True)),)


def _chunked_head(request: Request) -> tuple[Setting, ...]:
    # The operators' kernels are loaded where a loss may have a head.
    losses = (operation.type == "CategoricalCrossEntropy" for operation in request.graph.operations)
    if request.options.chunked_head or not any(losses):
        return ()
    from solver.executor.arithmetic import KernelArithmetic
    from solver.preparations.rewriting import CHUNK_HEAD, Surroundings, edits_of

    if not edits_of(CHUNK_HEAD, Surroundings(request.graph, KernelArithmetic())):
        return ()
    return (Setting("a chunked head", lambda r: r.choosing(chunked_head=True)),)


def _scratch(request: Request) -> tuple[Setting, ...]:
    budgets = _smaller_scratch(request)
    return tuple(_scratch_of(budget) for budget in budgets if budget >= _LITTLE_SCRATCH)


def _little_scratch(request: Request) -> tuple[Setting, ...]:
    budgets = _smaller_scratch(request)
    return tuple(_scratch_of(budget) for budget in budgets if budget < _LITTLE_SCRATCH)


def _smaller_scratch(request: Request) -> list[int]:
    """The powers of two below the scratch budget, the largest first."""
    return [1 << k for k in reversed(range((request.options.scratch_budget - 1).bit_length()))]


def _scratch_of(budget: int) -> Setting:
    return Setting(f"{_binary(budget)} of scratch", _with_scratch(budget))


def _with_scratch(budget: int) -> Callable[[Request], Request]:
    note = "kernels work in smaller chunks, which the modelled time does not count"
    return lambda r: replace(r.choosing(scratch_budget=budget), note=note)


def _binary(size: int) -> str:
    if size < 2**10:
        return f"{size} bytes" if size > 1 else "1 byte"
    return f"{size // 2**20} MiB" if size >= 2**20 else f"{size // 2**10} KiB"


def _recompute(request: Request) -> tuple[Setting, ...]:
    subject = request.subject
    if not isinstance(subject, TrainableGraph) and not any(each.pure for each in subject.operations):
        return ()
    return (Setting("recompute", lambda r: replace(r, searches=True)),)


def _paging(request: Request) -> tuple[Setting, ...]:
    capacity = request.options.capacity
    if not capacity or request.options.tiers:
        return ()
    tiers = (Tier("fast", capacity), Tier("slow", _SLOW_BYTES, _SLOW_RATE, _SLOW_RATE))
    texts = (f"fast={capacity}", f"slow={_SLOW_BYTES},bandwidth={_SLOW_RATE}B/s")
    note = (
        f"paging is modelled with a second memory at {_SLOW_RATE // 10**6} MB/s; --tier says which one the"
        " device has"
    )

    def apply(r: Request) -> Request:
        fields = {**r.fields, "capacity": None, "tiers": texts}
        requested = r.requested.having(capacity=None, tiers=tiers)
        return replace(r, requested=requested, fields=fields, note=note, searches=True)

    return (Setting("paging", apply),)


def _storage(request: Request) -> tuple[Setting, ...]:
    note = "derivatives see rounded activations; float16 takes as many bytes, and wants loss_scale_growth"

    def apply(r: Request) -> Request:
        return replace(r.choosing(storage="bfloat16"), note=note)

    if request.options.storage or not request.graph.trainable:  # nothing waits for a backward pass
        return ()
    return (Setting("activations in bfloat16", apply),)


#: Storages of frozen weights that are proposed, the mildest first.
_FROZEN_STORAGES = ("bfloat16", "int8", "int4")


def _frozen_storage(request: Request) -> tuple[Setting, ...]:
    from solver.preparations import with_frozen_storage

    if request.options.frozen_storage or with_frozen_storage(request.graph, "bfloat16") is request.graph:
        return ()
    return tuple(Setting(f"frozen weights in {word}", _with_frozen(word)) for word in _FROZEN_STORAGES)


def _with_frozen(word: str) -> Callable[[Request], Request]:
    note = f"frozen weights are rounded to {word} once; results are those of the rounded weights"
    return lambda r: replace(r.choosing(frozen_storage=word), note=note)


def _micro_batches(request: Request) -> tuple[Setting, ...]:
    batches = request.batches
    if batches is None or request.options.costs is not None:  # costs are those of one batch
        return ()
    if not request.graph.trainable:
        return ()
    most = min(batches.size, _MOST_MICRO_BATCHES)
    return tuple(
        Setting(f"{k} micro-batches of {batches.size // k}", _in_micro_batches(batches, k))
        for k in range(2, most + 1)
        if batches.size % k == 0
    )


def _in_micro_batches(batches: Batches, count: int) -> Callable[[Request], Request]:
    def apply(request: Request) -> Request:
        note = "normalisation over a batch sees the smaller one" if _normalises_batches(request.graph) else ""
        smaller = request.at_batch(batches, batches.size // count, note)
        accumulate = request.graph.training.accumulate * count
        graph = smaller.graph.with_spec(rules=replace(request.graph.training, accumulate=accumulate))
        return smaller.training(graph, note, "training", micro_batches=accumulate)

    return apply


def _normalises_batches(graph: TrainableGraph) -> bool:
    """Whether an operation takes the mean and the variance of a batch, so that results depend on its size."""
    return any(
        operation.type == "BatchNormalization" and operation.attributes.get("training_mode", 0)
        for operation in graph.operations
    )


def _smaller_batch(request: Request) -> tuple[Setting, ...]:
    batches = request.batches
    if batches is None or request.options.costs is not None:  # costs are those of one batch
        return ()
    note = "each update sees fewer examples, so it is another one, and an epoch takes more of them"
    if not request.graph.trainable:
        note = ""

    def at(batch: int) -> Setting:
        def apply(request: Request) -> Request:
            return replace(request.at_batch(batches, batch, note), updates=Fraction(batches.size, batch))

        return Setting(f"a batch of {batch}", apply)

    return tuple(at(batch) for batch in range(batches.size - 1, 0, -1))


def _fewer_trained(request: Request) -> tuple[Setting, ...]:
    """The trainable operands by the operation that reads them first, in the order of the graph."""
    graph, seen, layers = request.graph, set[str](), list[frozenset[str]]()
    for operation in graph.operations:
        new = (graph.trained & set(operation.inputs)) - seen
        if new:
            layers.append(new)
            seen |= new
    parameters = {name for name, one in graph.operands.items() if one.role is Role.PARAMETER}
    owners = [read for operation in graph.operations if (read := parameters & set(operation.inputs))]

    def last(count: int) -> Setting:
        kept = seen.difference(*layers[:-count])
        # What `last:n` says is counted over all parameters, whoever else reads them.
        same = next((n for n in range(count, len(owners)) if set().union(*owners[-n:]) == kept), None)
        words = ",".join(sorted(kept)) if same is None else f"last:{same}"
        return Setting(f"train the last {count} of {len(layers)} layers", _training(kept, words))

    return tuple(last(count) for count in range(len(layers) - 1, 0, -1))


def _training(names: Set[str], words: str) -> Callable[[Request], Request]:
    def apply(request: Request) -> Request:
        chosen = tuple(name for name in request.graph.trainable if name in names)
        return request.training(request.graph.with_spec(trainable=chosen), "", "trainable", trainable=words)

    return apply


def _less_state(request: Request) -> tuple[Setting, ...]:
    optimizer = request.graph.optimizer
    if optimizer is None or not request.graph.trainable:
        return ()
    rate = optimizer_rules(optimizer)["learning_rate"]
    momentum = OptimizerSpec("SGD", {"learning_rate": rate, "momentum": 0.9})
    plain = OptimizerSpec("SGD", {"learning_rate": rate})
    named = (("SGD with momentum", momentum), ("SGD without momentum", plain))
    smaller = [(name, spec) for name, spec in named if len(state_names(spec)) < len(state_names(optimizer))]
    return tuple(Setting(name, _optimized_by(spec)) for name, spec in smaller)


def _optimized_by(spec: OptimizerSpec) -> Callable[[Request], Request]:
    note = "another optimizer needs a learning rate of its own"
    words = ",".join([spec.type.lower(), *(f"{name}={value}" for name, value in spec.attributes.items())])
    return lambda r: r.training(r.graph.with_spec(optimizer=spec), note, "optimizer", optimizer=words)


#: Every measure; those that change less come first. Adding one is a function above and its row here.
MEASURES: tuple[Measure, ...] = (
    Measure("free", Changes.NOTHING, _free, programs=True),
    Measure("parallelism", Changes.NOTHING, _one_at_a_time, programs=True),
    Measure("recompute", Changes.NOTHING, _recompute, searches=True, programs=True),
    Measure("rewrite", Changes.ROUNDING, _rewrite),
    Measure("chunked head", Changes.ROUNDING, _chunked_head),
    Measure("scratch", Changes.ROUNDING, _scratch),
    Measure("little scratch", Changes.ROUNDING, _little_scratch, last=True),
    Measure("paging", Changes.NOTHING, _paging, searches=True, alone=True, programs=True),
    Measure("micro-batches", Changes.TRAINING, _micro_batches),
    Measure("storage", Changes.TRAINING, _storage),
    Measure("frozen storage", Changes.TRAINING, _frozen_storage),
    Measure("batch", Changes.TRAINING, _smaller_batch),
    Measure("optimizer", Changes.TRAINING, _less_state),
    Measure("trained layers", Changes.TRAINING, _fewer_trained),
)
