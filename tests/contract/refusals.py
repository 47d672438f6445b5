"""Requests that are refused: base request, changes of it, and the problem: type, place, and words of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from service.http.examples import example
from solver import documents
from solver.pipeline import modelled_costs
from solver.plan import PlanOptions
from tests.contract.doors import Document, Request
from tests.contract.rows import CHAIN, PAIRS, TIERS, TINY
from tests.support.programs import CHAIN_DOCUMENT
from tests.support.refused_options import REFUSED as OPTIONS
from tests.support.refused_requests import GONE, Row, changed, row

__all__ = ["REFUSED", "Refused"]


@dataclass(frozen=True, slots=True)
class Refused:
    """`at` is the pointer of the problem in a request over HTTP."""

    request: Request
    problem: str
    at: str
    words: str
    name: str

    def __str__(self) -> str:
        return self.name

    @property
    def is_of_options(self) -> bool:
        """Whether an option, an entry point or a tie is at fault."""
        return self.at.startswith(("/options/", "/entries", "/ties"))


def request_of(task: str, body: Document) -> Request:
    """The request that is this body of a route."""
    members = dict(body)
    options = members.pop("options", {})
    if (models := members.pop("models", None)) is None:
        models = {
            "model": next(members.pop(name) for name in ("graph", "program", "problem") if name in body)
        }
    return Request(task, models, options, members)


# ------------------------------------------------------------------------------------------ graphs


def operand(name: str, role: str, *shape: int | str, **more: Any) -> Document:
    return {"graph/operands/+": [{"name": name, "role": role, "shape": shape, "dtype": "float32", **more}]}


def operation(name: str, kind: str, reads: str, writes: str, **more: Any) -> Document:
    return {"name": name, "type": kind, "inputs": reads.split(), "outputs": [writes], **more}


def weights(text: str) -> Document:
    return {"graph/operands/3/initializer": {"kind": "values", "base64": text}}


def stored(number: int, **fields: int) -> Document:
    return {f"graph/operands/{number}/storage": {"kind": "int4", **fields}}


CYCLE = [
    operation("there", "Add", "x back.out", "there.out"),
    operation("back", "Relu", "there.out", "back.out"),
]
AGAIN = operation("again", "Relu", "x", "h")
SAME_NAME = operation("dense1", "Relu", "y", "z")
#: Running statistics of role constant, which the operation would have to change.
STATISTICS = [
    {"name": n, "role": "constant", "shape": [32], "dtype": "float32", "initializer": {"kind": "ones"}}
    for n in ("scale", "shift", "mean", "variance")
]
NORM = operation(
    "norm", "BatchNormalization", "h scale shift mean variance", "normal", attributes={"training_mode": 1}
)

GRAPHS: tuple[Row, ...] = (
    row("invalid-document", {"graph/colour": 1}),
    row("invalid-document", {"graph/operations": GONE}, "operations"),
    row("unknown-operator", {"graph/operations/0/type": "Convolve"}, "Convolve"),
    row("invalid-attribute", {"graph/operations/0/attributes/strides": [1, 1]}, "strides"),
    row("shape-mismatch", {"graph/operands/2/shape": [17, 32]}, "w1", at="/graph/operations/0"),
    row(
        "cyclic-graph",
        {"graph/operations/+": CYCLE, "graph/operations/0/inputs/0": "there.out"},
        "there",
        at="/graph/operations/3",
    ),
    row("dangling-operand", {"graph/operations/1/inputs/0": "nowhere"}, "nowhere"),
    row("duplicate-def", {"graph/operations/+": [AGAIN]}, "h", at="/graph/operations/3/outputs/0"),
    row("dangling-operand", operand("unused", "input", 1), "unused", at="/graph/operands/6"),
    row("duplicate-name", {"graph/operations/+": [SAME_NAME]}, "dense1", at="/graph/operations/3/name"),
    row("invalid-trainable", operand("w9", "parameter", 2), "w9", at="/graph/operands/6"),
    row("invalid-loss", {"graph/loss": GONE, "graph/trainable": ["w1"]}, "loss", at="/graph/loss"),
    row("invalid-loss", {"graph/loss": GONE, "graph/outputs": []}, "loss", at="/graph/loss"),
    row("invalid-loss", {"graph/loss": "none"}, "none"),
    row("invalid-loss", {"graph/loss": "y"}, "y"),
    row("shape-mismatch", {"graph/operands/2/shape": [16, 0]}, at="/graph/operations/0"),
    row("invalid-dimension", {"graph/operands/2/shape": [-16, 32]}, at="/graph/operands/2/shape/0"),
    row("invalid-dimension", {"graph/operands/2/shape": [2**40, 2**40]}),
    row("invalid-dimension", {"graph/operands/2/shape": [2**70, 1]}, at="/graph/operands/2/shape/0"),
    row("invalid-dimension", {"graph/operands/2/shape": [2**61, 1]}),
    row("invalid-batch", {"graph/batch": GONE}, "batch", at="/graph/operands/0/shape/0"),
    row("invalid-batch", {"graph/batch": 0}),
    row("invalid-dimension", {"graph/batch": 2**62}, at="/graph/operands/0/shape"),
    row(
        "invalid-document",
        weights(base64.b64encode(bytes(4)).decode()),
        "128",
        at="/graph/operands/3/initializer/base64",
    ),
    row("invalid-graph", {"graph/optimizer/type": "Magic"}, "Magic"),
    row("invalid-storage", stored(2), '"axis": 1', at="/graph/operations/0/inputs/1"),
    row("invalid-storage", stored(2, axis=1), '"group": 16', at="/graph/operands/2/storage"),
    row("invalid-storage", stored(0), "'x' (input)", at="/graph/operands/0/storage"),
    row("invalid-document", stored(2, group=-1), "group", at="/graph/operands/2/storage/group"),
    row(
        "invalid-state",
        {"graph/operands/+": STATISTICS, "graph/operations/+": [NORM]},
        "constant",
        at="/graph/operations/3/inputs/3",
    ),
    row(
        "invalid-attribute",
        {"graph/training": {"clip_global_norm": 0}},
        "clip_global_norm",
        at="/graph/training/clip_global_norm",
    ),
    row(
        "invalid-attribute",
        {"graph/training": {"loss_scale_growth": 0}},
        "1 to",
        at="/graph/training/loss_scale_growth",
    ),
    # Options that only documents can get wrong; those of the core are in `refused_options`.
    row("invalid-document", {"options/speed": 1}),
    row("invalid-document", {"options/capacity": "20,97"}),
    row("invalid-document", {"options/capacity": 1.5}),
    row("invalid-document", {"options/batch": True}),
    row("invalid-document", {"options/version": 7}),
)

# ----------------------------------------------------------------------- costs, memories, storage

COSTS: Document = dict(modelled_costs(documents.load_graph(CHAIN), PlanOptions()).nanoseconds)

NANOSECONDS = "/options/costs/nanoseconds"


def costs(**changes: Any) -> Document:
    table = {**COSTS, **{name.replace("_", ":"): cost for name, cost in changes.items()}}
    return {
        "options/costs": {"nanoseconds": {name: cost for name, cost in table.items() if cost is not None}}
    }


#: Without a search for measures.
WRITTEN: Final[Document] = {"options/as_written": True}


def tiers(*tiers: Any) -> Document:
    return {"options/tiers": list(tiers)}


#: What goes together with no target, and the like, stands in `refused_options`.
SCHEDULES: tuple[Row, ...] = (
    row("invalid-document", tiers("sram"), "NAME=SIZE", at="/options/tiers/0"),
    row(
        "invalid-document",
        tiers("sram=9kB", "flash=1MiB,bandwith=1GB/s"),
        "'bandwith=1GB/s' is not",
        at="/options/tiers/1",
    ),
    row(
        "invalid-options", {"options/pins": {"no.such": 0}}, "No value is called", at="/options/pins/no.such"
    ),
    row("invalid-options", {"options/reserved": ["4..2"]}, "4..2 has no bytes", at="/options/reserved/0"),
    row("invalid-options", {"options/alignments": {"*": 3}}, "power of two", at="/options/alignments/*"),
    row("invalid-options", {"options/batch": "8..1"}, "upside down"),
    row("invalid-options", {"options/batch": "0..2"}, "positive"),
    row("invalid-document", {"options/batch": {"from": 1}}, "missing", at="/options/batch/to"),
    row("invalid-document", {"options/batch": "1.."}, "1..32"),
    row(
        "invalid-options",
        costs(fc1_forward=None),
        "neither the step 'fc1:forward'",
        at=NANOSECONDS,
    ),
    row("invalid-options", costs(fc1_forward=-1), "-1", at=NANOSECONDS + "/fc1:forward"),
    row("invalid-document", costs(fc1_forward=0.5), "integer", at=NANOSECONDS + "/fc1:forward"),
    row(
        "invalid-options",
        costs(fc1_foward=1),
        "Did you mean 'fc1:forward'",
        at=NANOSECONDS + "/fc1:foward",
    ),
    row(
        "invalid-document",
        tiers("sram=20kB", "flash=1MiB,bandwidth=0MB/s"),
        "above zero",
        at="/options/tiers/1",
    ),
    row("capacity-exceeded", tiers("sram=64", TIERS[1]) | WRITTEN, "at once", at="/options/tiers/0/bytes"),
    row(
        "capacity-exceeded",
        tiers("sram=12kB", "flash=64,bandwidth=1MB/s") | WRITTEN,
        "has 64",
        at="/options/tiers/1/bytes",
    ),
    row("invalid-options", tiers({"name": "sram", "bytes": 0}), "at least 1", at="/options/tiers/0/bytes"),
    row("invalid-document", tiers({"name": "sram"}), "bytes", at="/options/tiers/0/bytes"),
    row(
        "invalid-document",
        tiers({"name": "sram", "bytes": 64, "speed": 1}),
        "speed",
        at="/options/tiers/0/speed",
    ),
    row("invalid-document", {"options/tiers": "sram=20kB"}, "list"),
    row("invalid-document", {"options/memories": ["tcm"]}, "NAME=SIZE", at="/options/memories/0"),
    row(
        "invalid-options",
        {"options/memories": [{"name": "tcm", "bytes": 64, "read": 0}]},
        "at least 1",
        at="/options/memories/0/read",
    ),
    row("capacity-exceeded", {"options/memories": ["a=64", "b=64"]}, "a", at="/options/memories"),
    row(
        "capacity-exceeded",
        {"options/memories": ["a=8kB", "b=1MiB"], "options/place": ["*=a"]},
        "'a'",
        at="/options/memories/0/bytes",
    ),
    row(
        "invalid-options",
        {"options/memories": ["a=1MiB"], "options/place": ["fc99*=a"]},
        "names no value",
        at="/options/place/0",
    ),
    row("invalid-options", {"options/storage": "float32"}, "Unknown storage 'float32'"),
    row("invalid-document", {"options/storage": 16}, "16"),
    row("invalid-options", {"options/only": ["recompute"]}, "how many bytes", at="/options/capacity"),
    row(
        "capacity-exceeded",
        {"options/only": ["recompute"], "options/capacity": 10_000},
        "No order of the steps and no recomputation takes less",
        at="/options/capacity",
    ),
)

# ---------------------------------------------------------------------------- programs and buffers

PROGRAMS: tuple[Row, ...] = (
    row("capacity-exceeded", {"options/capacity": 1000}),
    row(
        "dangling-operand",
        {"program/operations/1/reads": ["workspace 7"]},
        at="/program/operations/1/reads/0",
    ),
    row(
        "duplicate-name", {"program/operations/1/reads": ["left", "left"]}, at="/program/operations/1/reads/1"
    ),
    row(
        "invalid-graph",
        {"program/operations/1/reads": [], "program/operations/1/writes": []},
        at="/program/operations/1",
    ),
    row("duplicate-name", {"program/operations/1/name": "clean 0"}),
    row("invalid-document", {"program/operations/1/name": 7}),
    row("invalid-document", {"program/operations/1/colour": 1}),
    row("invalid-dimension", {"program/blocks/0/bytes": -1}),
    row("invalid-dimension", {"program/blocks/0/bytes": 2**63}),
    row(
        "invalid-document",
        {"program/blocks/0/shape": [2], "program/blocks/0/dtype": "float32"},
        at="/program/blocks/0",
    ),
    row("use-before-def", {"program/blocks/0/fed": True}),
    row("invalid-options", {"options/batch": 2}),
    row("invalid-options", {"options/update": "end"}),
    row("invalid-options", {"options/target": "onert"}),
    row("invalid-options", {"options/parallelism": 0}),
    row("invalid-options", {"options/parallelism": 65}),
    row("invalid-document", {"options/parallelism": 1.5}),
    row("invalid-document", {"options/seed": 1}),
    row("invalid-options", {"options/only": ["recompute"], "options/capacity": 10**6}, '"pure": true'),
    row("invalid-document", {"program/operations/0/pure": True}, "of version 3"),
    row(
        "invalid-document",
        {"program/version": 3, "program/operations/0/cost": {"seconds": 1}},
        at="/program/operations/0/cost/seconds",
    ),
    row(
        "invalid-graph",
        {"program/version": 3, "program/operations/0/cost": {"nanoseconds": 1, "bytes": 1}},
        "flops or bytes besides",
        at="/program/operations/0/cost",
    ),
    row("invalid-options", {"options/only": ["order"], "options/capacity": 10**6}, '"any_order": true'),
    row("invalid-options", {"options/tiers": TIERS[:1]}, "nothing to page out to"),
    row("invalid-options", {"options/storage": "float16", "options/capacity": 10**6}, "is for graphs"),
    row(
        "invalid-options",
        {"options/costs": {"nanoseconds": {}}, "options/capacity": 10**6},
        "name neither the step",
        at="/options/costs/nanoseconds",
    ),
)

GOOD = {"id": "good", "size": 8, "start": 0, "end": 4, "offset": 0}
BUFFERS: Document = {"format": "arenaplan.buffers", "version": 1, "buffers": [GOOD, {**GOOD, "id": "bad"}]}
del BUFFERS["buffers"][1]["offset"]


def bad(field: str, code: str, **changes: Any) -> Row:
    """Changes of the second buffer, and the field at fault."""
    at = "problem/buffers/1/"
    return row(code, {at + name: value for name, value in changes.items()}, at=f"/{at}{field}")


LAYOUTS: tuple[Row, ...] = (
    bad("size", "invalid-document", size=4.5),
    bad("size", "invalid-document", size=4.0),
    bad("size", "invalid-document", size="4"),
    bad("size", "invalid-document", size=True),
    bad("size", "invalid-document", size=None),
    bad("size", "invalid-problem", size=-4),
    bad("size", "invalid-problem", size=2**63),
    bad("size", "invalid-problem", size=2**63 - 1),  # a sum beyond 63 bits
    bad("size", "invalid-problem", size=2**60),  # a sum that no solver can add up
    bad("start", "invalid-document", start=0.5),
    bad("lifespan", "invalid-problem", start=-1),
    bad("end", "invalid-problem", start=4),
    bad("end", "invalid-problem", start=5),
    bad("id", "invalid-problem", id="good"),
    bad("id", "invalid-document", id=7),
    bad("alignment", "invalid-problem", alignment=3),
    bad("alignment", "invalid-problem", alignment=0),
    bad("offset", "invalid-problem", offset=-8),
    bad("offset", "invalid-problem", offset=4),  # pins in conflict
    bad("offset", "invalid-problem", offset=24, alignment=16),
    bad("gaps", "invalid-problem", gaps=[{"start": 3, "end": 5}]),
    bad("gaps/0/end", "invalid-document", gaps=[{"start": 3}]),
    bad("gaps", "invalid-problem", gaps=[{"start": 1, "end": 2, "high": 9}]),
    bad("colour", "invalid-document", colour=1),
    row("invalid-options", {"options/solver": "magic"}),
    row("invalid-document", {"options/solver": 1}),
    row("invalid-options", {"options/capacity": -1}),
    row("invalid-document", {"options/capacity": "1 mile"}),
    row("invalid-options", {"options/alignment": 3}),
    row("invalid-options", {"options/deadline_seconds": -1}),
    row("invalid-document", {"options/batch": 1}),
    row("invalid-options", {"options/seed": -1}),
    row("invalid-options", {"options/threads": 0}),
    row("invalid-options", {"options/target_gap": -1}),
    row("invalid-options", {"options/target_gap": 1e308}),
    row("invalid-document", {"options/rules": {"luck": True}}, at="/options/rules/luck"),
    row("invalid-document", {"problem": example("tiny")["graph"]}, at="/problem/format"),
)

# --------------------------------------------------------------- curves, verdicts and validations

WRONG_CHAIN: Document = {
    **CHAIN_DOCUMENT,
    "operations": [
        {**CHAIN_DOCUMENT["operations"][0], "reads": ["nothing"]}, *CHAIN_DOCUMENT["operations"][1:]
    ],
}  # fmt: skip

TRADEOFFS: tuple[Row, ...] = (
    row("invalid-options", {"options/batch": "1..8"}, "is of one size"),
    row("dangling-operand", {"graph": WRONG_CHAIN}, at="/graph/operations/0/reads/0"),
    row("invalid-options", {"options/target": "onert"}, "reference"),
)

EXPLANATIONS: tuple[Row, ...] = (
    row("invalid-options", {"options/batch": "1..8"}, "is of one size"),
    row("invalid-options", {"options/capacity": -1}),
    row("invalid-options", {"options/target": "nntrainer"}, "reference"),
    row("invalid-document", {"graph/operands": GONE}),
)

FIXED: dict[str, Any] = json.loads(json.dumps({**TINY, "batch": None}).replace('"batch", ', "8, "))
MISSPELT: dict[str, Any] = json.loads(json.dumps(TINY).replace("Gemm", "Gem", 1))
UNLABELLED: dict[str, Any] = {
    **TINY,
    "operations": TINY["operations"][:2],
    "operands": [row for row in TINY["operands"] if row["name"] != "label"],
    "loss": None,
}


ENTRIES: dict[str, tuple[Document, str, str, str]] = {
    "a mistake in the second model": (
        {"models": {"a": TINY, "c~d": {**TINY, "batch": "x"}}},
        "invalid-document", "/models/c~0d/batch", "batch is 'x'",
    ),
    "an operator that is not there": (
        {"models": {"a": TINY, "b": MISSPELT}},
        "unknown-operator", "/models/b/operations/0/type", "Gem",
    ),
    "entries in a text": ({"graph": TINY, "entries": "train"}, "invalid-document", "/entries", "'train'"),
    "entries null": ({"graph": TINY, "entries": None}, "invalid-document", "/entries", "null"),
    "an entry that is a number": ({"graph": TINY, "entries": [3]}, "invalid-document", "/entries/0", "3"),
    "an entry that is null": ({"graph": TINY, "entries": [None]}, "invalid-document", "/entries/0", "null"),
    "an entry without purpose": (
        {"graph": TINY, "entries": ["train", {}]}, "invalid-document", "/entries/1/purpose", "missing",
    ),
    "another purpose": (
        {"graph": TINY, "entries": [{"purpose": "fit"}]}, "invalid-document", "/entries/0/purpose", "'fit'",
    ),
    "another purpose in text": ({"graph": TINY, "entries": ["fit"]}, "invalid-document", "/entries/0", "fit"),
    "a misspelt field": (
        {"graph": TINY, "entries": [{"purpose": "infer", "bach": 1}]},
        "invalid-document", "/entries/0/bach", "unknown field",
    ),
    "batch 0": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 0}]},
        "invalid-document", "/entries/0/batch", "batch is 0",
    ),
    "batch true": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": True}]},
        "invalid-document", "/entries/0/batch", "batch is true",
    ),
    "a batch beyond 64 bits": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 2**63}]},
        "invalid-document", "/entries/0/batch", "batch is",
    ),
    "a batch beyond all memory": (
        {"graph": TINY, "entries": [{"purpose": "infer", "batch": 2**62}]},
        "invalid-dimension", "/graph/operands/0/shape", "",
    ),
    "a batch that is fixed": (
        {"graph": FIXED, "entries": ["train", {"purpose": "infer", "batch": 1}]},
        "invalid-batch", "/entries/1/batch", "no shape of the graph is symbolic",
    ),
    "no batch": (
        {"graph": {**TINY, "batch": None}, "entries": ["infer"]},
        "invalid-batch", "/graph/operands/0/shape/0", "symbolic batch",
    ),
    "two of one name": (
        {"graph": TINY, "entries": ["infer", "infer:batch=1"]}, "invalid-options", "/entries/1/name", "Two",
    ),
    "a name with a control character": (
        {"graph": TINY, "entries": [{"purpose": "infer", "name": "a\x1b"}]},
        "invalid-document", "/entries/0/name", "name is",
    ),
    "a model that is not there": (
        {"graph": TINY, "entries": ["encoder.infer"]}, "invalid-options", "/entries/0", "which is not there",
    ),
    "of which model": (
        {"models": {"a": TINY, "b": TINY}, "entries": ["infer"]}, "invalid-options", "/entries/0", "several",
    ),
    "a graph is run": ({"graph": TINY, "entries": ["run"]}, "invalid-options", "/entries/0", "is a graph"),
    "a program is trained": (
        {"graph": PAIRS, "entries": ["train"]}, "invalid-options", "/entries/0", "explicit operations",
    ),
    "a batch of a program": (
        {"graph": PAIRS, "entries": ["run:batch=3"]}, "invalid-options", "/entries/0/batch", "has no batch",
    ),
    "a network without a loss is trained": (
        {"graph": UNLABELLED, "entries": ["train"]}, "invalid-options", "/entries/0", "Nothing of",
    ),
    "a network without a loss is evaluated": (
        {"graph": UNLABELLED, "entries": ["evaluate"]},
        "invalid-options", "/entries/0", "no loss to evaluate",
    ),
    "a tie of one side": ({"graph": TINY, "ties": ["a"]}, "invalid-document", "/ties/0", "'a'"),
    "a tie that joins nothing": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.nothing"]},
        "invalid-options", "/ties/0", "joins nothing",
    ),
    "a tie of optimizer variables": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1@*=b.w1@*"]},
        "invalid-options", "/ties/0", "joins nothing",
    ),
    "a tie with stars on one side": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.*=b.w1"]}, "invalid-options", "/ties/0", "stars",
    ),
    "a tie of other shapes": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.w2"]},
        "invalid-options", "/ties/0", "float32[32, 4]",
    ),
    "a tie of two values of a model": (
        {"models": {"a": TINY, "b": TINY}, "ties": ["a.w1=b.w1", "b.w1=a.w1", "a.b1=a.b2"]},
        "invalid-options", "/ties/2", "",
    ),
    "a range of batches": (
        {"graph": TINY, "entries": ["train"], "options": {"batch": "1..4"}},
        "invalid-options", "/options/batch", "of one size",
    ),
    "a range of batches of one": (
        {"graph": TINY, "entries": ["infer:batch=1..4"]}, "invalid-document", "/entries/0", "batch=1..4",
    ),
    "a pin of nothing": (
        {"graph": TINY, "entries": ["train"], "options": {"pins": ["nothing=4096"]}},
        "invalid-options", "/options/pins/nothing", "No value is called",
    ),
    "a model without an entry point": (
        {"models": {"a": TINY, "b": TINY}, "entries": ["a.train"]},
        "invalid-options", "/entries", "Model 'b' has no entry point",
    ),
    "a runtime of one program": (
        {"graph": TINY, "entries": ["train"], "options": {"target": "onert"}},
        "invalid-options", "/options/target", "runs one program alone",
    ),
    "tiers": (
        {"graph": TINY, "entries": ["train"], "options": {"tiers": TIERS}},
        "invalid-options", "/options/tiers", "take no tiers",
    ),
    "operations that are rewritten": (
        {"graph": TINY, "entries": ["train"], "options": {"rewrite": True}},
        "invalid-options", "/options/rewrite", "take no rewrite",
    ),
    "too small for the second": (
        {"graph": TINY, "entries": ["infer", "train"], "options": {"capacity": 9000}},
        "capacity-exceeded", "/options/capacity", "Entry point 'train' does not fit",
    ),
    "too small for what others keep": (
        {"graph": TINY, "entries": ["infer:batch=1", "train"], "options": {"capacity": 3000}},
        "capacity-exceeded", "/options/capacity", "2,704 bytes are values that other entry points keep",
    ),
}  # fmt: skip


#: Right requests by their task, and what is done to them.
REQUESTS: tuple[tuple[str, Document, tuple[Row, ...]], ...] = (
    ("plan", {"graph": TINY, "options": {}}, GRAPHS),
    ("plan", {"graph": CHAIN, "options": {}}, SCHEDULES),
    ("plan", {"program": PAIRS, "options": {}}, PROGRAMS),
    ("layout", {"problem": BUFFERS, "options": {}}, LAYOUTS),
    ("tradeoff", {"graph": TINY, "options": {}}, TRADEOFFS),
    ("explain", {"graph": TINY, "options": {"capacity": 10**6}}, EXPLANATIONS),
)


def of_options() -> Iterator[Refused]:
    """Options that no plan takes."""
    for one in OPTIONS:
        alone = {"tiers", "memories"} & one.fields.keys()
        options = ({} if alone else {"capacity": 30_000}) | one.fields
        code = "invalid-options"
        yield Refused(
            Request("plan", {"model": CHAIN}, options), code, f"/options{one.pointer}", one.words, str(one)
        )


REFUSED: Final[tuple[Refused, ...]] = (
    *(
        Refused(
            request_of(task, changed(body, changes)),
            code,
            at,
            words,
            f"{task} {code} {', '.join(changes)}"[:80],
        )
        for task, body, rows in REQUESTS
        for code, changes, words, at in rows
    ),
    *(
        Refused(request_of("plan", body), code, at, words, name)
        for name, (body, code, at, words) in ENTRIES.items()
    ),
    *of_options(),
)
