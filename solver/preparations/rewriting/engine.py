"""Rewriting to a fixpoint, and again from its record.

Rule by rule, all places where a rule holds are replaced together. A group stays if no arena has to be
larger for it; else its halves are tried, so one bad place costs a logarithm of trials:

    bound 900      {a b c d} -> 950      refused, halves
                   {a b}     -> 840      taken
                   {c d}     -> 910      refused, halves
                   {c} -> 840 taken      {d} -> 910 refused

Rules are taken in turn until none finds a place that it may keep; a place refused by itself is not
tried again. Then come the rules that add operations, at the operations that run while most bytes are
live, and have to lower the bound; where one does, the others follow once more. The order of rules and of
operations is fixed, hence so is the result.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby

from solver.errors import PlanError
from solver.graph import output_types
from solver.graph.types import Operand, Operation, Role, TrainableGraph
from solver.preparations.rewriting.rule import Edit, Rule
from solver.preparations.rewriting.rules import CHUNK_HEAD, RULES
from solver.preparations.rewriting.surroundings import Arithmetic, Surroundings
from solver.program import Replacement
from solver.removed import removed

__all__ = ["TRIAL_WORK", "Footprint", "Rewriting", "apply", "edits_of", "replay", "rewrite"]


#: Trials times operations: a graph of 150 operations may try 200 groups, one of 3,000 ten. A trial derives
#: and orders the whole program, which takes about a tenth of a millisecond an operation.
TRIAL_WORK = 30_000


@dataclass(frozen=True, slots=True, order=True)
class Footprint:
    """The cost of a graph: the bytes that every arena needs, then those of all buffers without reuse.

    `at_peak` names the operations that run while as many bytes as anywhere are live; it compares as equal.
    """

    bound: int
    total: int
    at_peak: frozenset[str] = field(default=frozenset(), compare=False)


@dataclass(frozen=True, slots=True)
class Rewriting:
    """`graph` is the very object that was given where nothing was replaced.

    `complete` is false when the caller stopped it.
    """

    graph: TrainableGraph
    applied: tuple[Replacement, ...] = ()
    complete: bool = True


def rewrite(
    graph: TrainableGraph,
    arithmetic: Arithmetic,
    cost: Callable[[TrainableGraph], Footprint],
    rules: Sequence[Rule] = RULES,
    stop: Callable[[], bool] = lambda: False,
) -> Rewriting:
    """An equivalent graph whose footprint is not larger.

    Greedy: a group that leaves the bound as it is stays where it takes no more bytes in all. Names of
    parameters that are read, of outputs and of the loss survive. `cost` is asked once a trial, `stop`
    before each whether to end with what there is.
    """
    return _Rewriting(graph, arithmetic, cost, rules, stop).run()


class _Rewriting:
    def __init__(
        self,
        graph: TrainableGraph,
        arithmetic: Arithmetic,
        cost: Callable[[TrainableGraph], Footprint],
        rules: Sequence[Rule],
        stop: Callable[[], bool],
    ) -> None:
        self.graph = graph
        self.around = Surroundings(graph, arithmetic)
        self.cost = cost
        self.rules = rules
        self.stop = stop
        self.complete = True
        self.applied: list[Replacement] = []
        self.groups = 0
        self.refused: set[tuple[str, str]] = set()
        self.trials = max(len(rules), TRIAL_WORK // len(graph.operations))
        self.footprint: Footprint | None = None
        self.last_refused: tuple[TrainableGraph, Footprint] | None = None

    def run(self) -> Rewriting:
        reducing = [rule for rule in self.rules if not rule.adds_operations]
        adding = [rule for rule in self.rules if rule.adds_operations]
        self._settle(reducing)
        while self._add(adding):
            self._settle(reducing)
        return Rewriting(self.graph, tuple(self.applied), self.complete)

    def _settle(self, rules: Sequence[Rule]) -> None:
        while self._round(rules):
            pass

    def _add(self, rules: Sequence[Rule]) -> bool:
        if not any(edits_of(rule, self.around) for rule in rules):
            return False
        return self._round(rules, self._measured().at_peak)

    def _measured(self) -> Footprint:
        self.footprint = self.footprint or self.cost(self.graph)
        return self.footprint

    def _round(self, rules: Sequence[Rule], places: Collection[str] | None = None) -> bool:
        """Whether any rule found a place that it kept."""
        kept = False
        for rule in rules:
            edits = edits_of(rule, self.around, places)
            kept |= self._try(rule, [e for e in edits if (rule.name, e.anchor) not in self.refused])
        return kept

    def _try(self, rule: Rule, edits: Sequence[Edit]) -> bool:
        """Whether any of `edits` was kept."""
        if not edits or not self.trials:
            return False
        self.complete = self.complete and not self.stop()
        if not self.complete:
            return False
        if self._keep(rule, edits):
            return True
        if len(edits) == 1:
            self.refused.add((rule.name, edits[0].anchor))
            return False
        places, half = [edit.anchor for edit in edits], len(edits) // 2
        kept = False
        for part in (places[:half], places[half:]):
            # Asked again: what the first half renamed, the second half must not read.
            kept |= self._try(rule, edits_of(rule, self.around, frozenset(part)))
        return kept

    def _keep(self, rule: Rule, edits: Sequence[Edit]) -> bool:
        before = self._measured()
        self.trials -= 1
        candidate = apply(self.graph, edits)
        if self.last_refused is not None and candidate == self.last_refused[0]:
            # A second half whose first half was kept makes the graph of both, which was refused.
            after = self.last_refused[1]
        else:
            after = self.cost(candidate)
        if after > before or (rule.adds_operations and after.bound == before.bound):
            self.last_refused = candidate, after
            return False
        for edit in edits:
            into = tuple(op.id for op in edit.operations)
            self.applied.append(
                Replacement(rule.name, edit.replaced, into, self.groups, before.bound, after.bound)
            )
        self.groups += 1
        self.graph, self.footprint = candidate, after
        self.around = Surroundings(candidate, self.around.arithmetic)
        return True


def edits_of(rule: Rule, around: Surroundings, places: Collection[str] | None = None) -> list[Edit]:
    """Edits at `places`, or wherever the rule holds, that replace different operations; the first wins."""
    taken: set[str] = set()
    edits = []
    for operation in around.graph.operations:
        if places is not None and operation.id not in places:
            continue
        edit = rule.edit(around, operation)
        if edit is not None and taken.isdisjoint(edit.replaced):
            taken.update(edit.replaced)
            edits.append(edit)
    return edits


def replay(graph: TrainableGraph, applied: Sequence[Replacement], arithmetic: Arithmetic) -> TrainableGraph:
    """The graph that `applied` led to from `graph`; every rule looks for itself whether it holds.

    Raises PlanError where one does not, would do something else, or is a rule of an earlier version.
    """
    rules = {rule.name: rule for rule in (*RULES, CHUNK_HEAD)}
    for _, members in groupby(applied, key=lambda replacement: replacement.group):
        group = list(members)
        rule = rules.get(group[0].rule)
        edits: list[Edit] = []
        if rule is not None:
            around = Surroundings(graph, arithmetic)
            edits = edits_of(rule, around, {one.operations[-1] for one in group if one.operations})
        held = [(group[0].rule, edit.replaced, tuple(op.id for op in edit.operations)) for edit in edits]
        if held != [(one.rule, one.operations, one.into) for one in group]:
            raise _refused(group[0])
        graph = apply(graph, edits)
    return graph


def _refused(replacement: Replacement) -> PlanError:
    return PlanError(
        f"The plan's replacement {replacement.rule!r} of {', '.join(replacement.operations)} "
        + (removed(replacement.rule) or "does not hold in this graph."),
        remedy="Plan this graph again with this version.",
    )


def apply(graph: TrainableGraph, edits: Sequence[Edit]) -> TrainableGraph:
    """`graph` with edits that replace different operations; linear.

    Operations stay in a topological order: what is new stands where the anchor stood, behind all that
    it reads.
    """
    operations = tuple(_operations(graph, edits))
    new = {operand.id: operand for edit in edits for operand in edit.constants}
    return graph.with_graph(operands=_operands(graph, operations, new), operations=operations)


def _operations(graph: TrainableGraph, edits: Sequence[Edit]) -> Iterable[Operation]:
    gone = {name for edit in edits for name in edit.replaced}
    standing = {edit.anchor: edit.operations for edit in edits}
    renamed = dict(chain.from_iterable(edit.renamed.items() for edit in edits))
    for operation in graph.operations:
        kept = () if operation.id in gone else (operation,)
        for one in standing.get(operation.id, kept):
            inputs = tuple([_final(name, renamed) for name in one.inputs])
            yield one if inputs == one.inputs else replace(one, inputs=inputs)


def _final(name: str, renamed: Mapping[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def _operands(
    graph: TrainableGraph, operations: Sequence[Operation], new: Mapping[str, Operand]
) -> dict[str, Operand]:
    """Operands in the order that a graph has: those that are given, then those that are computed.

    Where an operation stays with all that it reads, its results stay.
    """
    read = {name for operation in operations for name in operation.inputs}
    sources = [
        operand
        for operand in (*graph.operands.values(), *new.values())
        if operand.role is not Role.INTERMEDIATE and operand.id in read
    ]
    operands = {operand.id: operand for operand in sources}
    before, standing = graph.operands, set(map(id, graph.operations))
    for operation in operations:
        if id(operation) in standing and all(operands[n] is before[n] for n in operation.inputs if n):
            operands.update((name, before[name]) for name in operation.outputs)
            continue
        types = output_types(operation, operands)
        for name, type_ in zip(operation.outputs, types, strict=True):
            operands[name] = Operand(name, type_, Role.INTERMEDIATE)
    return operands
