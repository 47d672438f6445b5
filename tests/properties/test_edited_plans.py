"""Every field of plan documents, edited in every way that its type allows, with the digest made anew.

An edit is named by the check; or it changes what stands in `UNCHECKED`, with its reason; or it leaves the
plan what it was; or the oracle, which was written separately, says that it changes no value and no figure."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import pytest

from solver.canonical import canonical_json
from solver.documents import (
    dump_graph,
    dump_plan,
    graph_digest,
    load_graph,
    load_plan,
    program_digest,
    with_digest,
)
from solver.documents.plan import PlanDocument, ProgramTables, to_plan
from solver.documents.read import read
from solver.documents.schema import generate
from solver.errors import ArenaplanError, InternalError, PlanError
from solver.executor import rewritten
from solver.executor.proved import check_plan, reference_program
from solver.exporters import EXPORTERS
from solver.graph import DType, Role, TrainableGraph, TrainingRules
from solver.layout import Alignment, Lifespan, Pin
from solver.pipeline import TARGETS, BlockProgram, plan, plan_like, plan_requested, reference_of
from solver.plan import Costs, Plan, PlanOptions, RequestedOptions, SizeRange
from solver.preparations import Prepared
from solver.program import Program, ReservedRange, Tier
from solver.reports.arenas import level_report, order_note, recycling, storage_note
from solver.reports.records import homes, paging, recomputation
from solver.training import BlockOperation, build_program
from solver.verify import FACTS, UNCHECKED, is_unchecked
from tests.support.every import grid
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual, tower
from tests.support.programs import AUTO_RECYCLE, block
from tests.support.programs import program as explicit
from tests.support.rewritable import mobile_block
from tests.support.sequence_graphs import classifier
from tests.support.sizes import with_symbolic_batch
from tests.support.stored_graphs import adapted
from tests.support.term_oracle import TermOracle

Path = tuple[str | int, ...]

#: Takes the place of what is left out.
_ABSENT: Any = object()

_MOST = 2**63 - 1


@dataclass(frozen=True)
class Edit:
    """The value at `path` becomes `value`; `name` says how."""

    path: Path
    name: str
    value: Any
    #: Whether the path goes by position through a table, as against the columns of a row.
    tables: tuple[bool, ...]

    @property
    def pattern(self) -> str:
        """The path with a star for each position in a table and each name that is not the schema's."""
        return pattern(self.path, self.tables)

    def applied(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of the document with the edit."""
        made = copy.deepcopy(dict(document))
        holder: Any = made
        for key in self.path[:-1]:
            holder = holder[key]
        if self.value is _ABSENT:
            del holder[self.path[-1]]
        else:
            holder[self.path[-1]] = self.value
        return made


def pattern(path: Path, tables: Sequence[bool]) -> str:
    text = ""
    for key, star in zip(path, tables, strict=True):
        if star:
            text += "[*]" if isinstance(key, int) else ".*"
        else:
            text += f"[{key}]" if isinstance(key, int) else f".{key}"
    return text.removeprefix(".")


def edits(document: Mapping[str, Any], schema: Mapping[str, Any], rng: random.Random) -> Iterator[Edit]:
    """Every edit of every value of the document and of every field that it leaves out, in its order."""
    return _walk(document, schema, schema["$defs"], (), (), rng, document)


def _walk(
    value: Any, schema: Any, defs: Any, path: Path, tables: tuple[bool, ...], rng: random.Random, whole: Any
) -> Iterator[Edit]:
    options = _alternatives(schema, defs)
    if path:
        seen = {_text(value)}
        for name, other in _changed(value, options, defs, rng):
            if _text(other) not in seen:
                seen.add(_text(other))
                yield Edit(path, name, other, tables)
    if isinstance(value, dict):
        known = [option for option in options if option.get("type") == "object"]
        fields = {name: each for option in known for name, each in option.get("properties", {}).items()}
        more = [each for option in known for each in option.get("patternProperties", {}).values()]
        for name in [*value, *(name for name in fields if name not in value)]:
            inner = fields.get(name) or (more[0] if more else {})
            free = name not in fields and bool(more)
            # Facts of records are known by name, those of attributes are not.
            free = free and "records" not in path
            yield from _walk(
                value.get(name, _ABSENT), inner, defs, (*path, name), (*tables, free), rng, whole
            )
            if name in value:
                yield Edit((*path, name), "left out", _ABSENT, (*tables, free))
        yield Edit((*path, "unknown!"), "a field more", 1, (*tables, True))
    elif isinstance(value, list):
        rows = [option for option in options if option.get("type") == "array"]
        columns = next((option["x-columns"] for option in rows if "x-columns" in option), None)
        items: Any = next((option["items"] for option in rows if "items" in option), {})
        for i, item in enumerate(value):
            inner = columns[i] if columns is not None else items
            yield from _walk(item, inner, defs, (*path, i), (*tables, columns is None), rng, whole)


def _text(value: Any) -> str:
    return "absent" if value is _ABSENT else json.dumps(value, sort_keys=True)


def _alternatives(schema: Any, defs: Any) -> list[dict[str, Any]]:
    """The alternatives of a schema, without references."""
    if "$ref" in schema:
        return _alternatives(defs[schema["$ref"].rpartition("/")[2]], defs)
    if "anyOf" in schema:
        return [each for option in schema["anyOf"] for each in _alternatives(option, defs)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": each} for each in schema["type"]]
    return [dict(schema)]


def _changed(
    value: Any, options: Sequence[Mapping[str, Any]], defs: Any, rng: random.Random
) -> Iterator[tuple[str, Any]]:
    """Other values: of the same type, of the other types that are allowed, and of types that are not."""
    if isinstance(value, bool):
        yield "negated", not value
        yield "as a number", int(value)
    elif isinstance(value, int):
        yield from ((f"{step:+}", value + step) for step in (1, -1, 64, -64))
        yield from (("sign", -value), ("doubled", 2 * value), ("zero", 0), ("one", 1), ("half", value // 2))
        yield from (("most", _MOST), ("least", -_MOST - 1), ("beyond", _MOST + 1))
        yield from (("floating", float(value)), ("a flag", bool(value)), ("text", str(value)))
        yield "any", rng.randrange(max(2 * abs(value), 16))
    elif isinstance(value, float):
        yield from (("sign", -value), ("doubled", 2 * value), ("zero", 0.0), ("negative zero", -0.0))
        yield from (("tiny", 5e-324), ("huge", 1.7e308), ("text", str(value)), ("nan", "NaN"))
        yield "next", value * (1 + 2**-52)
        if value == int(value):
            yield "whole", int(value)
    elif isinstance(value, str):
        yield from (("empty", ""), ("longer", f"{value}!"), ("cut", value[:-1]), ("other", "other"))
        yield from (("turned", value[::-1]), ("a number", 1), ("suffix", f"{value}@again1"))
        yield from (
            ("one character", f"{value[:-1]}{'0' if value[-1:] != '0' else '1'}"),
            ("control", "\x1b"),
        )
    elif isinstance(value, list):
        yield from _lists(value, rng)
    elif isinstance(value, dict):
        yield from (("emptied", {}), ("a list", []))
    for option in options:
        for word in (*option.get("enum", ()), *((option["const"],) if "const" in option else ())):
            yield f"the word {word}", word
        yield from (("made up", made) for made in _made(option, defs, 0))
    if value is not None and value is not _ABSENT:
        yield "null", None


def _lists(value: list[Any], rng: random.Random) -> Iterator[tuple[str, Any]]:
    yield "emptied", []
    count = len(value)
    for i in range(min(count, 3)):
        k = rng.randrange(count) if count > 3 else i
        yield f"without {k}", value[:k] + value[k + 1 :]
        yield f"{k} twice", value[: k + 1] + value[k:]
        yield f"{k} at the end again", [*value, value[k]]
        other = rng.randrange(count)
        swapped = list(value)
        swapped[k], swapped[other] = swapped[other], swapped[k]
        yield f"{k} and {other} swapped", swapped
        over = list(value)
        over[k] = over[other]
        yield f"{other} over {k}", over
    yield "turned round", value[::-1]
    yield "shuffled", rng.sample(value, count)
    yield "a number", 7


def _made(option: Mapping[str, Any], defs: Any, depth: int) -> Iterator[Any]:
    """A value or two of a type, whatever stands there."""
    kind = option.get("type")
    if kind == "integer":
        yield from (option.get("minimum", 0), 3)
    elif kind == "number":
        yield from (0.5, -0.0)
    elif kind == "boolean":
        yield from (True, False)
    elif kind == "string":
        yield option.get("enum", ["made"])[0]
    elif kind == "array" and "x-columns" in option and depth < 3:
        columns = [_alternatives(part, defs)[0] for part in option["x-columns"]]
        yield [next(_made(column, defs, depth + 1), None) for column in columns]
    elif kind == "array" and depth < 3:
        yield []
        inner = next(_made(_alternatives(option.get("items", {}), defs)[0], defs, depth + 1), None)
        yield [inner]
    elif kind == "object" and depth < 3:
        required = option.get("required", ())
        yield {
            name: next(_made(_alternatives(each, defs)[0], defs, depth + 1), None)
            for name, each in option.get("properties", {}).items()
            if name in required
        }


FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)
#: Edits of the long run, of all plans together.
LONG = 12 * FUZZ or 100
SCHEMA = generate("plan")

Subject = TrainableGraph | BlockProgram


# ------------------------------------------------------------------------------------------------ plans


def joined() -> TrainableGraph:
    """Cut out, taken apart and put together: views of parts."""
    s = Sketch("joined")
    x = s.input("x", 4, 16)
    a, b = (s.op("Gemm", [x, s.parameter(f"w{name}", 16, 16)], name) for name in "ab")
    c = s.op("Tanh", [s.op("Concat", [a, b], "c", axis=0)], "d")
    e = s.op("Slice", [c, s.integers("from", 1), s.integers("to", 7)], "e")
    s.op("MeanSquaredError", [e, s.label("t", 6, 16)], "loss")
    return s.graph(outputs=("x",))


def clipped() -> TrainableGraph:
    """Attributes that are zero, an axis, and an input that is an output."""
    s = Sketch("clipped")
    x = s.input("x", 2, 4)
    h = s.op("Clip", [s.op("Gemm", [x, s.parameter("w", 4, 4)], "h")], "a", min=0.0, max=6.0)
    h = s.op("Concat", [h, x], "b", axis=0)
    s.op("MeanSquaredError", [h, s.label("t", 4, 4)], "loss")
    return s.graph(outputs=("x", "b"), optimizer="Adam")


def word_model() -> TrainableGraph:
    """A frozen table that is read as an embedding and as the head, with a shift between that is trained."""
    s = Sketch("words")
    table = s.parameter("table", 10, 16, trainable=False)
    ids = s.add("ids", Role.INPUT, (3,), dtype=DType.INT64)
    h = s.op("Add", [s.op("Gather", [table, ids], "e"), s.parameter("shift", 16)], "h")
    z = s.op("Gemm", [h, table], "z", transB=1)
    classes = s.label("t", 3, dtype=DType.INT64)
    s.op("CategoricalCrossEntropy", [z, classes], "loss", from_logits=1, sparse=1, ignore_index=-1)
    return s.graph()


def free_program() -> BlockProgram:
    """Operations that may change places, and results that may lie where what they read lay."""
    operations = [
        BlockOperation("one", ("x",), ("a",), "mul"),
        BlockOperation("two", ("x",), ("b",), "mul", workspace=24),
        BlockOperation("three", ("a",), ("c",), "relu", overwrites=(("c", "a"),)),
        BlockOperation("four", ("b", "c", "w"), ("y",), "add"),
        BlockOperation("five", ("w", "y"), ("w",), "axpy"),
    ]
    blocks = [block(name, 32, fed=name == "x", kept=name == "y") for name in "xabcyw"]
    return build_program("free", blocks, operations, any_order=True)


_CAREFUL = TrainingRules(accumulate=2, clip_global_norm=0.1, loss_scale=8.0, skip_non_finite=True)
_FLASH = Tier("flash", 2**20, 400_000_000, 200_000_000, 100)
_DISK = Tier("disk", 2**24, 4_000_000, 2_000_000, 1000)


def _costs(graph: TrainableGraph) -> Costs:
    labels = reference_of(graph, PlanOptions()).step_labels
    return Costs(tuple((label, 300 + 50 * (t % 5)) for t, label in enumerate(labels)), "made up")


def _tiers(*slow: Tier, share: float = 0.8) -> tuple[Tier, ...]:
    return (Tier("sram", int(plan(_tower()).arena_bytes * share) // 64 * 64), *slow)


def _memories(fast: float, slow: float) -> tuple[Tier, ...]:
    whole = plan(_tower()).arena_bytes
    return (
        Tier("tcm", int(whole * fast) // 64 * 64, 4 * 10**9, 4 * 10**9),
        Tier("psram", int(whole * slow) // 64 * 64, 80 * 10**6, 60 * 10**6, 100),
    )


def _tower() -> TrainableGraph:
    return tower(4, rows=4, width=8, outputs=("h1",))


#: The model, the options, and the plan that the new one is to be like.
_Asked: TypeAlias = tuple[Subject, PlanOptions | RequestedOptions] | tuple[Subject, PlanOptions, Plan]

#: Every pass, preparation, target and rule at least once, as small as they can be.
SUBJECTS: Mapping[str, Callable[[], _Asked]] = {
    "plain": lambda: (chain((4, 3, 2), 2), PlanOptions()),
    "updates at the end": lambda: (
        residual(2, 3, 2, optimizer="SGD", momentum=0.9),
        PlanOptions(update="end"),
    ),
    "in place": lambda: (residual(2, 3, 2), PlanOptions(in_place=True)),
    "views of parts": lambda: (joined(), PlanOptions(in_place=True, sub_ranges=True)),
    "levels": lambda: (residual(2, 3, 2), PlanOptions(parallelism=3)),
    "levels in place": lambda: (convolutional(1), PlanOptions(parallelism=2, in_place=True, alignment=16)),
    "rewritten": lambda: (mobile_block(batch=1, size=4, channels=2), PlanOptions(rewrite=True)),
    "order": lambda: (residual(2, 3, 2), PlanOptions(order=True)),
    "recomputed": lambda: (
        _tower(),
        PlanOptions(recompute=True, capacity=int(plan(_tower()).arena_bytes * 0.85)),
    ),
    "order and recomputed": lambda: (
        _tower(),
        PlanOptions(order=True, recompute=True, capacity=int(plan(_tower()).arena_bytes * 0.85)),
    ),
    "paged": lambda: (_tower(), PlanOptions(tiers=_tiers(_FLASH))),
    "paged to two memories": lambda: (
        _tower(),
        PlanOptions(tiers=_tiers(replace(_FLASH, bytes=512), _DISK), parallelism=2),
    ),
    "paged and recomputed": lambda: (
        _tower(),
        PlanOptions(tiers=_tiers(_DISK, share=0.75), recompute=True, in_place=True),
    ),
    "in memories": lambda: (
        _tower(),
        PlanOptions(memories=_memories(0.3, 1.0), place=("*@grad=psram",), in_place=True),
    ),
    "in memories, paged": lambda: (
        _tower(),
        PlanOptions(memories=_memories(0.3, 0.55), tiers=(_FLASH,)),
    ),
    "kept in 16 bits": lambda: (_tower(), PlanOptions(storage="bfloat16")),
    "stored": lambda: (adapted(1), PlanOptions(scratch_budget=100, in_place=True)),
    "stored, in tiles": lambda: (adapted(1), PlanOptions(scratch_budget=100, tile_bytes=40)),
    "stored in tiles of a head in chunks": lambda: (
        word_model(),
        PlanOptions(frozen_storage="int8:16", tile_bytes=72, chunked_head=True),
    ),
    "scratch fitted": lambda: (convolutional(2), PlanOptions(fit_scratch=True)),
    "micro-batches": lambda: (
        chain((3, 3, 2), 2, optimizer="SGD", momentum=0.9, training=_CAREFUL),
        PlanOptions(),
    ),
    "micro-batches, paged": lambda: (
        tower(3, rows=4, width=8, training=_CAREFUL),
        PlanOptions(tiers=_tiers(_FLASH, share=0.95)),
    ),
    "dropout, Adam": lambda: (tower(2, rows=2, width=4, dropout=True, optimizer="Adam"), PlanOptions()),
    "batch normalised": lambda: (batch_normalised(), PlanOptions(in_place=True)),
    "LSTM": lambda: (classifier("LSTM"), PlanOptions()),
    "clipped": lambda: (clipped(), PlanOptions(alignment=8)),
    "constrained": lambda: (
        chain((4, 3, 2), 2),
        PlanOptions(
            pins=(Pin("w1", 4096),),
            alignments=(Alignment("b1", 128),),
            reserved=(ReservedRange(0, 100),),
        ),
    ),
    "costs": lambda: (_tower(), PlanOptions(tiers=_tiers(_FLASH), costs=_costs(_tower()))),
    "c": lambda: (chain((4, 3, 2), 2), PlanOptions(target="c")),
    "onert": lambda: (chain((4, 3, 2), 2), PlanOptions(target="onert")),
    "nntrainer": lambda: (chain((4, 3, 2), 2), PlanOptions(target="nntrainer")),
    "singa": lambda: (residual(2, 3, 2), PlanOptions(target="singa")),
    "singa-relu": lambda: (chain((4, 3, 2), 2), PlanOptions(target="singa-relu")),
    "explicit": lambda: (explicit(AUTO_RECYCLE, fed=("in",), kept=("dx",)), PlanOptions()),
    "explicit, in place and ordered": lambda: (free_program(), PlanOptions(in_place=True, order=True)),
    "explicit, levels": lambda: (free_program(), PlanOptions(parallelism=2)),
    "like another": lambda: (
        chain((4, 6, 2), 2),
        PlanOptions(pins=(Pin("b1", 4096),)),
        plan(chain((4, 3, 2), 2)),
    ),
    "for several batches": lambda: (
        with_symbolic_batch(chain((4, 3, 2), 4), 4),
        RequestedOptions(PlanOptions(), ranges=(SizeRange("batch", 1, 4),)),
    ),
}


class Made(NamedTuple):
    """A plan with what it was made for, its document, and the oracle for its reference."""

    subject: Subject
    plan: Plan
    document: dict[str, Any]
    oracle: TermOracle


@cache
def made(name: str) -> Made:
    subject, options, *other = SUBJECTS[name]()
    if not isinstance(subject, BlockProgram) and not subject.sizes:
        subject = load_graph(dump_graph(subject))
    requested = RequestedOptions(options, automatic=False) if isinstance(options, PlanOptions) else options
    found = plan_like(subject, requested, *other) if other else plan_requested(subject, requested)
    return Made(subject, found, json.loads(dump_plan(found)), TermOracle(_reference(subject, found)[0]))


# ------------------------------------------------------------------------------------------------ check


def _reference(subject: Subject, found: Plan) -> tuple[Program, Mapping[int, Lifespan]]:
    """The reference program of a plan, and what its target holds longer."""
    if isinstance(subject, BlockProgram):
        return reference_of(subject, found.options), {}
    target = TARGETS.get(found.options.target)
    graph = rewritten(subject, found)
    if target is None or (target.capabilities.trains and target.name != "c"):
        return reference_program(graph, found), {}
    prepared = Prepared(graph, found.options.scratch_budget, storage=found.options.storage)
    lowered = target.reference(prepared, found.options)
    return lowered.program, lowered.holds


def objections(subject: Subject, found: Plan, batch: int | None) -> str:
    """The objections of the check to a plan, as every entry point calls it; empty for an accepted plan."""
    if isinstance(subject, BlockProgram):
        digest = program_digest(subject)
    else:
        if found.options.batch != batch:
            subject = load_graph(dump_graph(subject), batch=found.options.batch)
        digest = graph_digest(subject)
    reference, holds = _reference(subject, found)
    violations = check_plan(reference, found, digest, holds)
    return f"{violations[0].rule}: {violations[0].detail}" if violations else ""


def sealed(document: Mapping[str, Any]) -> Plan:
    """The plan of a document with the digest that belongs to it."""
    value = read(PlanDocument, document, range_error=PlanError)
    return load_plan(dump_plan(with_digest(to_plan(value))))


def place(document: Mapping[str, Any], edit: Edit) -> str:
    """Where an edit is: facts of records have the name of the record."""
    if edit.path[0] == "records" and len(edit.path) > 3:
        return f"records[{document['records'][edit.path[1]][0]}].{edit.path[3]}"
    return edit.pattern


def places(document: Mapping[str, Any], edit: Edit) -> Iterator[str]:
    """Where the values are that an edit changes: inside of a row or an object that keeps its form."""
    value: Any = document
    for key in edit.path:
        value = value.get(key) if isinstance(value, dict) else value[key]
    other = edit.value
    if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
        pairs: dict[Any, tuple[Any, Any]] = dict(enumerate(zip(value, other, strict=True)))
    elif isinstance(value, dict) and isinstance(other, dict):
        pairs = {key: (value.get(key), other.get(key)) for key in value.keys() | other.keys()}
    else:
        yield place(document, edit)
        return
    for key, (before, inner) in pairs.items():
        if json.dumps(before) != json.dumps(inner):
            star = isinstance(key, int) and len(edit.path) != 2  # a row has columns
            yield from places(document, Edit((*edit.path, key), edit.name, inner, (*edit.tables, star)))


#: The program, its places and how good they are: all of that the oracle judges.
_JUDGED = frozenset(ProgramTables.model_fields)


def why_accepted(subject: Made, edit: Edit, found: Plan) -> str:
    """Why an edit that the check accepts does not matter; empty where it does."""
    old = subject.plan
    if dump_plan(replace(found, digest="")) == dump_plan(replace(old, digest="")):
        return "the same plan"
    changed = [*places(subject.document, edit)]
    if changed and all(map(is_unchecked, changed)):
        return "unchecked"
    solvers = [[certificate.solver for certificate in each.certificates] for each in (old, found)]
    if edit.path[0] in _JUDGED and solvers[0] == solvers[1] and subject.oracle.judge(found) is None:
        return "the oracle"
    if edit.path[0] == "records":
        # Reports take a number that is left out for zero.
        before, after = (
            [(r.name, {name: fact for name, fact in r.facts.items() if fact != 0}) for r in each.records]
            for each in (old, found)
        )
        before += [(name, {}) for name, _ in before]  # what says nothing claims nothing
        return "fewer claims" if all(record in before for record in after) else ""
    if edit.path[0] == "cost_bound" and old.cost_bound is not None:
        bound = found.cost_bound
        # Other rows that prove what is claimed, or nothing that is claimed.
        claims = (bound is None) or (bound.nanoseconds, bound.budget) == (
            old.cost_bound.nanoseconds,
            old.cost_bound.budget,
        )
        return "another proof of the same claim" if claims else ""
    return ""


def judged(name: str, edit: Edit) -> tuple[str, str]:
    """The outcome of an edit in a word, and the fault of that outcome; empty for a right one."""
    subject = made(name)
    document = edit.applied(subject.document)
    what = f"{name}: {place(subject.document, edit)} at {edit.path}, {edit.name} -> {edit.value!r:.60}"
    try:
        if edit.path == ("digest",):
            return "refused", "" if load_plan(canonical_json(document)) is None else f"{what}: accepted"
        found = sealed(document)
        said = objections(subject.subject, found, subject.plan.options.batch)
    except ArenaplanError as error:
        return "refused", f"{what}: {error!r}" if isinstance(error, InternalError) else ""
    except BaseException as error:
        error.add_note(what)
        raise
    if said:
        return "named", ""
    why = why_accepted(subject, edit, found)
    return why or "accepted", "" if why else f"{what}: accepted"


@cache
def all_edits(name: str) -> Mapping[str, list[Edit]]:
    """Every edit of a plan, by place and kind."""
    subject, found = made(name), dict[str, list[Edit]]()
    for edit in edits(subject.document, SCHEMA, random.Random(name)):
        found.setdefault(f"{edit.pattern} {edit.name.split()[-1]}", []).append(edit)
    return found


def sample(name: str, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """The outcomes of some edits, one of each kind and place before a second one; and the faults."""
    found, rng = all_edits(name), random.Random(seed)
    kinds = sorted(found)
    rng.shuffle(kinds)
    came, wrong = Counter[str](), []
    for k in range(count):
        word, fault = judged(name, rng.choice(found[kinds[k % len(kinds)]]))
        came[word] += 1
        wrong += [fault] * bool(fault)
    return came, wrong


def read_by_people(found: Plan) -> None:
    """Everything that shows or exports a plan, whether or not it was proved."""
    for report in (homes, paging, recomputation, level_report, recycling, order_note, storage_note):
        report(found)
    for exporter in EXPORTERS.values():
        with contextlib.suppress(ArenaplanError):
            exporter.dump(found)


# ------------------------------------------------------------------------------------------------ tests

#: Plans that are made in a fifth of a second or so, one for each kind of claim.
QUICK = (
    "constrained",
    "views of parts", "levels in place", "rewritten", "paged and recomputed", "micro-batches", "clipped",
    "nntrainer", "explicit, in place and ordered", "in memories", "stored",
    "stored in tiles of a head in chunks", "like another", "for several batches",
)  # fmt: skip


@pytest.mark.parametrize("name", ["onert", "nntrainer", "paged", "explicit"])
def test_a_plan_without_steps_can_be_shown(name: str) -> None:
    """Its values are held by the target, entered or left all the same."""
    subject = made(name)
    loaded = sealed({**subject.document, "steps": [], "aliases": []})
    assert not loaded.steps
    read_by_people(loaded)


def test_the_plans_have_every_claim() -> None:
    plans = [made(name).plan for name in SUBJECTS]
    assert len(plans) >= 20
    programs = [found.program for found in plans]
    assert {record.name for found in plans for record in found.records} == FACTS.keys()
    documents = [made(name).document for name in SUBJECTS]
    assert {name for document in documents for name in document} == PlanDocument.model_fields.keys()
    assert {found.options.target for found in plans} == {*TARGETS, "program"}
    assert any(found.cost_bound for found in plans)
    assert any(found.replacements for found in plans)
    assert any(found.holds for found in plans)
    assert any(any(program.runs) for program in programs)
    assert any(alias.offset for program in programs for alias in program.aliases)
    assert max(len(program.spaces) for program in programs) >= 3
    assert any(step.due for program in programs for step in program.steps)
    assert any(step.until > step.level for program in programs for step in program.steps)
    assert any(initial.sha256 for program in programs for initial in program.initial.values())
    assert any(initial.rows for program in programs for initial in program.initial.values())
    assert any(value.type.storage for program in programs for value in program.values)


@grid("name", QUICK)
def test_edits_of_a_plan_are_named_or_do_not_matter(name: str) -> None:
    subject = made(name)
    assert objections(subject.subject, subject.plan, subject.plan.options.batch) == ""
    assert subject.oracle.judge(subject.plan) is None
    came, wrong = sample(name, 60, 0)
    assert not wrong
    assert came["refused"] + came["named"] > 30


@pytest.mark.fuzz
@grid("name", SUBJECTS)
def test_many_edits_of_a_plan_are_named_or_do_not_matter(name: str) -> None:
    subject = made(name)
    assert objections(subject.subject, subject.plan, subject.plan.options.batch) == ""
    assert subject.oracle.judge(subject.plan) is None
    came, wrong = sample(name, -(-LONG // len(SUBJECTS)), 1)
    assert not wrong
    assert came.total() >= LONG // len(SUBJECTS)


@pytest.mark.fuzz
@grid("name", SUBJECTS)
def test_plans_that_were_edited_can_be_shown_and_exported(name: str) -> None:
    """Nobody proves a plan before showing it: what can be loaded is shown, or refused by a sentence."""
    subject, rng = made(name), random.Random(2)
    found = all_edits(name)
    for kind in rng.sample(sorted(found), min(len(found), max(FUZZ // 100, 3))):
        edit = rng.choice(found[kind])
        try:
            loaded = sealed(edit.applied(subject.document))
        except ArenaplanError:
            continue
        try:
            read_by_people(loaded)
        except BaseException as error:
            error.add_note(f"{name}: {edit.path}, {edit.name} -> {edit.value!r:.60}")
            raise


@pytest.mark.fuzz
def test_every_reason_is_about_a_place_that_there_is() -> None:
    places = {
        place(made(name).document, edit)
        for name in SUBJECTS
        for alike in all_edits(name).values()
        for edit in alike
    }
    names = {record.name for name in SUBJECTS for record in made(name).plan.records}
    for known in UNCHECKED.keys() - places:  # facts that a plan records only if it has reason to
        assert known.removeprefix("records[").partition("]")[0] in names
