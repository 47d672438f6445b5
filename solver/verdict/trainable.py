"""The choice of what to train: the layers with the largest sum of scores that fit a capacity.

    all layers ──► do not fit ──► all but the least ──► ... ──► a plan, and no better set can fit

Branch and bound over sets of layers, those of large scores first. A branch ends where what is in already
takes more than there is, in every order and with any recomputation, or where all that is left adds too
little. Training one layer more adds steps and values and takes none away: what is too large stays too large.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from solver import pipeline
from solver.accounting import floor
from solver.collector import collector_paused
from solver.errors import CapacityError, OptionsError, TrainableError
from solver.graph import MAX_OPERATIONS, TrainableGraph, with_training
from solver.layout import Deadline
from solver.names import nearest_names
from solver.pipeline import until
from solver.pipeline.watch import Follower
from solver.plan import Plan, RequestedOptions
from solver.reports.verdict import Changes
from solver.verdict.measures import Measure, Request, Setting
from solver.verdict.subject import TRIAL, Subject, check_subject, with_more_scratch

__all__ = ["ChosenTrainable", "Layer", "choose_trainable", "chosen_layers", "layers_of"]

#: Sets whose bound or plan is looked at; then the search ends with the best that it has.
_MOST_SETS: Final = 2_000

#: The largest score, so that sums of scores are numbers.
_MOST_SCORE: Final = 1e300


@dataclass(frozen=True, slots=True)
class Layer:
    """Parameters that are trained together or not at all: those of an operation, or one by its name."""

    name: str
    parameters: tuple[str, ...]
    score: float


@dataclass(frozen=True, slots=True)
class ChosenTrainable:
    """The `layers` to train within `capacity` bytes, their `score` of `all_scores`, and the `plan` of that.

    There is no plan where not even the forward pass with its loss fits. A set with a larger score was either
    proved not to fit or is among the `open`, of which no plan was found. `complete` is false where the
    deadline, or the number of sets, cut in: then sets may be left that nothing is known of.
    """

    graph: str
    capacity: int
    layers: tuple[Layer, ...]
    score: float
    all_scores: float
    plan: Plan | None
    open: int
    sets: int
    complete: bool

    @property
    def trainable(self) -> tuple[str, ...]:
        """The parameters to train."""
        return tuple(name for layer in self.layers for name in layer.parameters)

    @property
    def exact(self) -> bool:
        """Whether it is proved that no set with a larger score fits."""
        return self.complete and not self.open


def layers_of(graph: TrainableGraph, scores: Mapping[str, float] | None = None) -> tuple[Layer, ...]:
    """The layers that a choice is among, in the order of the graph.

    With `scores`, by the name of an operation or of a parameter, those that are named; each parameter counts
    once, where it is named itself, else with the first operation that reads it. Without, the layers are all
    operations that read parameters which the graph trains, and their scores the bytes of these. Raises
    OptionsError for a name that is neither, and for a score that is negative or no number.
    """
    trained = set(graph.trainable)
    reads = {
        operation.id: [name for name in operation.inputs if name in trained] for operation in graph.operations
    }
    names = list(reads) if scores is None else list(scores)
    left = trained - set(scores or ())
    layers = []
    for name in names:
        read = [parameter for parameter in reads.get(name, ()) if parameter in left]
        own = (name,) if name in trained else tuple(dict.fromkeys(read))
        left -= set(own)
        if scores is None:
            if own:
                nbytes = sum(graph.operands[parameter].type.nbytes for parameter in own)
                layers.append(Layer(name, own, float(nbytes)))
            continue
        if not own:
            known = [*sorted(trained), *(operation for operation, each in reads.items() if each)]
            raise OptionsError(
                f"The scores name {name!r:.80}, which reads no parameter that the graph trains.",
                remedy=nearest_names(name, known),
                path=("choose_trainable", name),
            )
        score = scores[name]
        if not 0 <= score <= _MOST_SCORE:
            raise OptionsError(
                f"The score of {name!r:.80} is {score!r:.40}.",
                remedy=f"Give a number from zero to {_MOST_SCORE:g}.",
                path=("choose_trainable", name),
            )
        layers.append(Layer(name, own, float(score)))
    if not layers:
        raise OptionsError(
            f"There is nothing to choose from in {graph.name!r:.80}.",
            remedy="Give scores for layers whose parameters the graph trains.",
            path=("choose_trainable",),
        )
    return tuple(layers)


@collector_paused()
def choose_trainable(
    graph: TrainableGraph,
    requested: RequestedOptions,
    scores: Mapping[str, float] | None = None,
    *,
    observe: Callable[[str], None] | None = None,
    follow: Follower | None = None,
    deadline: Deadline | None = None,
) -> ChosenTrainable:
    """The layers with the largest sum of scores that can be trained within the capacity of the options.

    Layers and scores as of `layers_of`. Raises OptionsError without a capacity, for rewriting, which depends
    on what is trained, and as `explain` does. Where nothing can be trained, sets are tried with less scratch
    than was asked for. Cost: a plan for each set that may fit and is better than the best one so far; at
    most 2,000 sets are looked at.
    """
    capacity = requested.options.capacity
    if capacity is None:
        raise OptionsError(
            "Nothing says which capacity to fill.", remedy="Give a capacity.", path=("capacity",)
        )
    if requested.options.rewrite:
        raise OptionsError(
            "Which operations are rewritten depends on what is trained.",
            remedy="Leave rewriting out, choose, and plan the choice with it.",
            path=("rewrite",),
        )
    check_subject(graph, requested.options)
    layers = sorted(layers_of(graph, scores), key=lambda layer: -layer.score)
    deadline = deadline or until(requested.deadline_seconds)
    result = _Search(graph, requested, capacity, layers, deadline, observe, follow).result()
    if result.score or deadline.expired:
        return result
    least = requested.having(scratch_budget=1)
    other = _Search(graph, least, capacity, layers, deadline, observe, follow).result()
    if other.plan is None or (result.plan is not None and not other.score):
        return result if result.plan is not None else other
    chosen = _trained(graph, other.trainable)
    plan = with_more_scratch(chosen, requested, other.plan, deadline, follow)
    return replace(other, plan=plan)


def chosen_layers(scores: Mapping[str, float] | None = None, *, follow: Follower | None = None) -> Measure:
    """The measure of `explain` that trains the layers which `choose_trainable` chooses by these scores.

    It takes half of the time until a deadline, and leaves the other half to the plan.
    """
    settings: dict[int, tuple[Setting, ...]] = {}

    def choose(request: Request) -> tuple[Setting, ...]:
        seconds = request.requested.deadline_seconds
        asked = request.requested.having(deadline_seconds=None if seconds is None else seconds / 2)
        result = choose_trainable(request.graph, asked, scores, follow=follow)
        if not result.layers:
            return ()
        note = "no set with a larger score fits with this scratch budget, whatever steps run again that may"
        if not result.exact:
            note = "a set of layers with a larger score may fit: neither a plan nor a proof was found"

        def apply(other: Request) -> Request:
            words = ",".join(result.trainable)
            graph = other.graph.with_spec(trainable=result.trainable)
            if result.plan is not None and result.plan.options.scratch_budget < other.options.scratch_budget:
                other = other.choosing(scratch_budget=result.plan.options.scratch_budget)
            return replace(other.training(graph, note, "trainable", trainable=words), searches=True)

        names = ", ".join(layer.name for layer in result.layers)
        score = f"a score of {result.score:,.10g} of {result.all_scores:,.10g}"
        return (Setting(f"train {names}: {score}", apply),)

    def once(request: Request) -> tuple[Setting, ...]:
        if id(request) not in settings:
            settings[id(request)] = choose(request)
        return settings[id(request)]

    return Measure("chosen layers", Changes.TRAINING, once)


class _Search:
    """Plans and bounds by set; lives for one call. A set is of positions in the layers, by falling scores."""

    def __init__(
        self,
        graph: TrainableGraph,
        requested: RequestedOptions,
        capacity: int,
        layers: Sequence[Layer],
        deadline: Deadline,
        observe: Callable[[str], None] | None,
        follow: Follower | None,
    ) -> None:
        self.graph, self.requested, self.capacity, self.layers = graph, requested, capacity, layers
        self.observe, self.follow = observe, follow
        self.deadline = deadline
        self.best: tuple[float, frozenset[int], Plan] | None = None
        self.unknown: dict[frozenset[int], float] = {}
        self.sets = 0
        self.complete = True
        self._bounds: dict[frozenset[int], int] = {}

    def result(self) -> ChosenTrainable:
        self._explore(0, frozenset())
        score, members, plan = self.best or (0.0, frozenset(), None)
        order = {operation.id: t for t, operation in enumerate(self.graph.operations)}
        chosen = [self.layers[k] for k in members]
        chosen.sort(key=lambda layer: (order.get(layer.name, len(order)), layer.name))
        return ChosenTrainable(
            graph=self.graph.name,
            capacity=self.capacity,
            layers=tuple(chosen),
            score=score,
            all_scores=math.fsum(layer.score for layer in self.layers),
            plan=plan,
            open=sum(other > score for other in self.unknown.values()),
            sets=self.sets,
            complete=self.complete,
        )

    def _score(self, members: frozenset[int]) -> float:
        return math.fsum(self.layers[k].score for k in members)

    def _explore(self, first: int, members: frozenset[int]) -> None:
        """Sets of these members and some of the layers from `first` on."""
        whole = members.union(range(first, len(self.layers)))
        if self.best is not None and self._score(whole) <= self.best[0]:
            return
        if self.deadline.expired or self.sets >= _MOST_SETS:
            self.complete = False
            return
        if self._fits(whole) or first == len(self.layers):
            return
        with_it = members | {first}
        if with_it != whole and self._bound(with_it) <= self.capacity:
            self._explore(first + 1, with_it)
        self._explore(first + 1, members)

    def _fits(self, members: frozenset[int]) -> bool:
        """Whether a plan of this set is found, which then is the best one."""
        if self._bound(members) > self.capacity:
            return False
        graph = self._graph(members)
        if graph is None:
            return False
        if self.observe is not None:
            self.observe(f"{len(members)} of {len(self.layers)} layers")
        try:
            plan = pipeline.plan_requested(
                graph, self.requested, follow=self.follow, advise=False, deadline=self.deadline.within(TRIAL)
            )
        except CapacityError as error:
            if not error.proved:
                self.unknown[members] = self._score(members)
            return False
        self.best = (self._score(members), members, plan)
        return True

    def _bound(self, members: frozenset[int]) -> int:
        """Bytes that are live at once in every order and with any recomputation, scratch apart."""
        if members not in self._bounds:
            self.sets += 1
            graph = self._graph(members)
            if graph is None:
                self._bounds[members] = 0
            else:
                options = pipeline.free_measures(graph, self.requested)
                automatic = self.requested.automatic
                problem = Subject(graph, options, Deadline(), automatic=automatic).first_runs
                bare = replace(problem, scratch=(0,) * len(problem.scratch))
                self._bounds[members] = floor(bare).bytes
        return self._bounds[members]

    def _graph(self, members: frozenset[int]) -> TrainableGraph | None:
        """The graph that trains these layers; None where no gradient reaches one of them."""
        chosen = {name for k in members for name in self.layers[k].parameters}
        try:
            return _trained(self.graph, chosen)
        except TrainableError:
            return None


def _trained(graph: TrainableGraph, chosen: Collection[str]) -> TrainableGraph:
    """The graph that trains these parameters. Raises TrainableError."""
    return with_training(
        graph.graph,
        loss=graph.loss,
        optimizer=graph.optimizer if chosen else None,
        trainable=[name for name in graph.trainable if name in chosen],
        rules=graph.training if chosen else None,
        max_operations=MAX_OPERATIONS,
    )
