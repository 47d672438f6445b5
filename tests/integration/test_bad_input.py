"""Every bad request gets a 4xx with one clear problem and a pointer, never a 500, and the service goes on."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import httpx
import pytest

from service.problems import CATALOGUE, MEDIA_TYPE
from solver import documents
from solver.pipeline import modelled_costs
from solver.plan import PlanOptions
from tests.support.every import every
from tests.support.graphs import chain
from tests.support.refused_options import REFUSED
from tests.support.server import ROOT

Document = dict[str, Any]

#: Problem type, changes by their place in a request, words of detail or remedy, and the pointer.
Row = tuple[str, Document, str, str]

#: In the place of a value: the member is taken out.
GONE = object()


def row(code: str, changes: Document, words: str = "", *, at: str | None = None) -> Row:
    """`at` is the pointer of the problem, if it is not the place of the first change."""
    return code, changes, words, f"/{next(iter(changes))}" if at is None else at


def changed(request: Document, changes: Document) -> Document:
    """A copy with new values at places such as ``graph/operands/0/size``; ``+`` appends to a list."""
    result = copy.deepcopy(request)
    for path, value in changes.items():
        *outer, last = path.split("/")
        place: Any = result
        for part in outer:
            place = place[int(part)] if isinstance(place, list) else place[part]
        if value is GONE:
            del place[last]
        elif last == "+":
            place.extend(value)
        else:
            place[int(last) if isinstance(place, list) else last] = value
    return result


def checked(response: httpx.Response, code: str, pointer: str | None, words: str = "") -> Document:
    """The problem that a request was answered with."""
    document: Document = response.json()
    assert document["type"] == f"/problems/{code}", document
    assert response.status_code == CATALOGUE[code].status < 500, document
    assert response.headers["content-type"] == MEDIA_TYPE
    assert document.get("pointer") == pointer, document
    assert document["detail"]
    assert document["remedy"]
    assert words in f"{document['detail']} {document['remedy']}", document
    assert "Traceback" not in response.text
    return document


def post(http: httpx.Client, route: str, body: bytes | str) -> httpx.Response:
    return http.post(route, content=body, headers={"Content-Type": "application/json"})


def example(name: str) -> Document:
    document: Document = json.loads((ROOT / f"service/http/web/examples/{name}.json").read_bytes())
    return document


# ------------------------------------------------------------------------------------ not even JSON

TEXTS = {
    "empty": b"",
    "no JSON": b"graph: yes",
    "cut off": b'{"graph": {',
    "two values": b"{} {}",
    "NaN": b'{"graph": NaN}',
    "Infinity": b'{"graph": -Infinity}',
    "beyond float": b'{"graph": 1e999}',
    "duplicate key": b'{"graph": {}, "graph": {}}',
    "duplicate key inside": b'{"graph": {"name": "a", "name": "b"}}',
    "no UTF-8": b'{"graph": "\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "deep arrays": b"[" * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "endless digits": b'{"graph": ' + b"9" * 100_000 + b"}",
    "half a surrogate": b'{"graph": "\\ud800"}',
    "control character": b'{"graph": "\x00"}',
}


def test_no_strict_json(http: httpx.Client) -> None:
    with every() as case:
        for name, text in TEXTS.items():
            with case(name):
                code = post(http, "/plan", text).json()["type"].removeprefix("/problems/")
                assert code == "invalid-json"
        for route in ("/v1/program", "/v1/layout", "/v1/jobs"):
            with case(route):
                assert post(http, route, b"{").json()["type"] == "/problems/invalid-json"


def test_not_declared_as_json(http: httpx.Client) -> None:
    for route in ("/plan", "/v1/layout"):
        checked(http.post(route, content=b"{}"), "unsupported-media-type", None)


#: Bodies of a route that are no request of it.
INCOMPLETE: tuple[tuple[str, str, str], ...] = (
    ("/plan", "[]", ""),
    ("/plan", '"graph"', ""),
    ("/plan", "null", ""),
    ("/plan", "{}", ""),
    ("/plan", '{"graph": {}, "gaph": 1}', "/gaph"),
    ("/plan", '{"graph": {}, "plan": {}}', "/plan"),
    ("/plan", '{"graph": {}, "a/b~c": 1}', "/a~1b~0c"),
    ("/plan", '{"program": {}, "options": {}}', ""),
    ("/v1/program", "[]", ""),
    ("/v1/program", "{}", ""),
    ("/v1/program", '{"graph": {}}', ""),
    ("/v1/program", '{"program": {}, "graph": {}}', "/graph"),
    ("/v1/layout", "[]", ""),
    ("/v1/layout", "{}", ""),
    ("/v1/layout", '{"buffers": []}', ""),
    ("/v1/layout", '{"problem": {}, "graph": {}}', "/graph"),
    ("/v1/explain", '{"graph": {}}', ""),
)


def test_incomplete_requests(http: httpx.Client) -> None:
    with every() as case:
        for route, text, pointer in INCOMPLETE:
            with case((route, text)):
                checked(post(http, route, text), "invalid-request", pointer)


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
MANY = [operation(f"relu{k}", "Relu", f"r{k - 1}" if k else "h", f"r{k}") for k in range(101)]
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
    row("invalid-document", {"graph/operands/0/size": 1}),
    row("invalid-document", {"graph/operations": GONE}, "operations"),
    row("invalid-document", {"graph/operands": GONE}),
    row("invalid-document", {"graph/format": "onnx"}),
    row("invalid-document", {"graph/version": 2}),
    row("invalid-document", {"graph/operands": "none"}),
    row("unknown-operator", {"graph/operations/0/type": "Convolve"}, "Convolve"),
    row("invalid-document", {"graph/operands/0/dtype": "float99"}),
    row("invalid-attribute", {"graph/operations/0/attributes/strides": [1, 1]}, "strides"),
    row("invalid-attribute", {"graph/operations/0/attributes/activation": "Sine"}, "Sine"),
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
    row("duplicate-name", operand("x", "input", "batch", 16), "x", at="/graph/operands/6/name"),
    row("duplicate-name", {"graph/operations/+": [SAME_NAME]}, "dense1", at="/graph/operations/3/name"),
    row("invalid-trainable", operand("w9", "parameter", 2), "w9", at="/graph/operands/6"),
    row("invalid-trainable", {"graph/trainable": ["w9"]}, "w9", at="/graph/trainable/0"),
    row("invalid-loss", {"graph/loss": GONE, "graph/trainable": ["w1"]}, "loss", at="/graph/loss"),
    row("invalid-loss", {"graph/loss": GONE, "graph/outputs": []}, "loss", at="/graph/loss"),
    row("invalid-loss", {"graph/loss": ["loss.out", "y"]}),
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
    row("too-many-operations", {"graph/operations/+": MANY}, "100", at="/graph/operations"),
    row(
        "invalid-document",
        weights(base64.b64encode(bytes(4)).decode()),
        "128",
        at="/graph/operands/3/initializer/base64",
    ),
    row("invalid-document", weights("?"), at="/graph/operands/3/initializer/base64"),
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
    row("invalid-graph", {"graph/operands/0/name": "x@grad"}),
    row("invalid-graph", {"graph/operands/0/name": ""}),
    # Options that only documents can get wrong; those of the core are in `refused_options`.
    row("invalid-document", {"options/speed": 1}),
    row("invalid-document", {"options/capacity": "20,97"}),
    row("invalid-document", {"options/capacity": 1.5}),
    row("invalid-document", {"options/batch": True}),
    row("invalid-options", {"options/deadline_seconds": 1e6}),
    row("invalid-document", {"options/version": 7}),
    row("invalid-document", {"options": []}),
    row("invalid-document", {"options": "fast"}),
    row("invalid-document", {"options": 1}),
)

# ----------------------------------------------------------------------- costs, memories, storage

WORDS = ["sram=20kB", "flash=1MiB,read=45MB/s,write=20MB/s,latency=100us"]
CHAIN = chain((16,) * 7, batch=64)
COSTS = dict(modelled_costs(CHAIN, PlanOptions()).nanoseconds)

NANOSECONDS = "/options/costs/nanoseconds"


def costs(**changes: Any) -> Document:
    table = {**COSTS, **{name.replace("_", ":"): cost for name, cost in changes.items()}}
    return {
        "options/costs": {"nanoseconds": {name: cost for name, cost in table.items() if cost is not None}}
    }


def tiers(*tiers: Any) -> Document:
    return {"options/tiers": list(tiers)}


#: What goes together with no target, and the like, stands in `refused_options`.
SCHEDULES: tuple[Row, ...] = (
    row(
        "invalid-document",
        {"options/costs": "measured", "options/capacity": 35_000, "options/only": ["recompute"]},
        "where training runs",
    ),
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
    row("capacity-exceeded", tiers("sram=64", WORDS[1]), "needs 17,536 at once", at="/options/tiers/0/bytes"),
    row(
        "capacity-exceeded",
        tiers(WORDS[0], "flash=64,bandwidth=1MB/s"),
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
    row("invalid-options", {"options/tiers": WORDS[:1]}, "nothing to page out to"),
    row("invalid-options", {"options/storage": "float16", "options/capacity": 10**6}, "is for graphs"),
    row(
        "invalid-options",
        {"options/costs": {"nanoseconds": {}}, "options/capacity": 10**6},
        "name neither the step",
        at="/options/costs/nanoseconds",
    ),
    row(
        "too-many-operations",
        {"program/operations": [{"name": f"clean {k}", "writes": ["workspace 0"]} for k in range(101)]},
    ),
    row("invalid-document", {"program": example("tiny")["graph"]}, at="/program/format"),
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
    row("invalid-options", {"options/deadline_seconds": 1e6}),
    row("invalid-document", {"options/batch": 1}),
    row("invalid-options", {"options/seed": -1}),
    row("invalid-options", {"options/threads": 0}),
    row("invalid-options", {"options/target_gap": -1}),
    row("invalid-options", {"options/target_gap": 1e308}),
    row("invalid-document", {"options/rules": {"luck": True}}, at="/options/rules/luck"),
    row("invalid-document", {"problem": example("tiny")["graph"]}, at="/problem/format"),
    row("invalid-document", {"problem": [1]}),
)

# --------------------------------------------------------------- curves, verdicts and validations

TRADEOFFS: tuple[Row, ...] = (
    row("invalid-request", {"points": 1}, "a whole number from 2 to 100"),
    row("invalid-request", {"points": "ten"}, "a whole number"),
    row("invalid-request", {"steps": 3}, "Send one object"),
    row("invalid-options", {"options/target": "onert"}, "reference"),
    row("invalid-document", {"graph/operands": GONE}),
)

EXPLANATIONS: tuple[Row, ...] = (
    row("invalid-options", {"options": {}}, "Give a capacity", at="/options/capacity"),
    row("invalid-options", {"options/capacity": -1}),
    row("invalid-options", {"options/target": "nntrainer"}, "reference"),
    row("invalid-request", {"training": 1}, "true"),
    row("invalid-document", {"graph/operands": GONE}),
)

VALIDATIONS: tuple[Row, ...] = (
    row("invalid-request", {"plan": GONE}, at=""),
    row("invalid-request", {"steps": 0}),
    row("invalid-request", {"steps": 7}),
    row("invalid-request", {"steps": "five"}),
    row("invalid-request", {"steps": True}),
    row("invalid-request", {"seed": -1}),
    row("invalid-document", {"plan": {}}, at="/plan/format"),
    row("invalid-document", {"plan/version": 9}),
    row("invalid-plan", {"plan/values/0/2": 4096}),
    row("invalid-plan", {"graph/optimizer": {"type": "Adam"}}, at="/plan"),
    row("invalid-loss", {"graph/loss": "none"}),
)

#: Right requests by their route, and what is done to them.
CHAINED = documents.parse_json(documents.dump_graph(CHAIN))
REQUESTS: dict[str, tuple[str, Document, tuple[Row, ...]]] = {
    "graphs": ("plan", {**example("tiny"), "options": {}}, GRAPHS),
    "schedules": ("plan", {"graph": CHAINED, "options": {}}, SCHEDULES),
    "programs": ("program", {**example("parallel"), "options": {}}, PROGRAMS),
    "layouts": ("layout", {"problem": BUFFERS, "options": {}}, LAYOUTS),
    "tradeoffs": ("tradeoff", {**example("tiny"), "options": {}}, TRADEOFFS),
    "verdicts": ("explain", {**example("tiny"), "options": {"capacity": 10**6}}, EXPLANATIONS),
    "validations": ("validate", {**example("tiny"), "steps": 1}, VALIDATIONS),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_bad_requests(http: httpx.Client, kind: str) -> None:
    route, request, rows = REQUESTS[kind]
    if route == "validate":
        request = {**request, "plan": http.post("/v1/plan", json=example("tiny")).json()}
    assert http.post(f"/v1/{route}", json=request).status_code == 200
    with every() as case:
        for code, changes, words, pointer in rows:
            with case(str(changes)[:200]):
                checked(http.post(f"/v1/{route}", json=changed(request, changes)), code, pointer, words)


def test_options_that_no_plan_takes(http: httpx.Client) -> None:
    """That every task refuses them alike is tested without a server."""
    with every() as case:
        for refused in REFUSED:
            with case(refused):
                alone = {"tiers", "memories"} & refused.fields.keys()
                options = ({} if alone else {"capacity": 30_000}) | refused.fields
                answer = http.post("/v1/plan", json={"graph": CHAINED, "options": options})
                code = answer.json()["type"].removeprefix("/problems/")
                checked(answer, code, f"/options{refused.pointer}", refused.words)


# -------------------------------------------------------------------------------------- capacities


def test_capacity_below_the_bound(http: httpx.Client, tiny: Document) -> None:
    def plan(**options: object) -> httpx.Response:
        return http.post("/plan", json={"graph": tiny, "options": {"as_written": True, **options}})

    needed = documents.load_plan(plan().content).arena_bytes
    assert plan(capacity=needed).status_code == 200
    for capacity in (0, 1, 1000, needed - 1):
        response = plan(capacity=capacity)
        document = checked(response, "capacity-exceeded", "/options/capacity")
        assert document["available"] == capacity
        assert document["required"] - capacity == document["excess"] > 0
        live = document["live_at_peak"]
        assert sum(one["bytes"] for one in live) == document["required"]
        assert {"w1", "w1@momentum"} & {one["operand"] for one in live}


def test_the_service_is_none_the_worse(http: httpx.Client, tiny: Document) -> None:
    assert http.post("/plan", json={"graph": tiny}).status_code == 200
    assert http.get("/readyz").json()["workers"] == 2
