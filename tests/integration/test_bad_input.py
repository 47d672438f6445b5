"""Whatever is sent: a 4xx with one clear problem and a pointer, never a 500, and the service goes on."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from service.problems import MEDIA_TYPE
from solver import documents

Graph = dict[str, Any]


def post(http: httpx.Client, body: bytes | str) -> httpx.Response:
    return http.post("/plan", content=body, headers={"Content-Type": "application/json"})


def checked(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = response.json()
    assert document["type"] == f"/problems/{code}", document
    assert document["detail"]
    assert "Traceback" not in response.text
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


@pytest.mark.parametrize("text", list(TEXTS.values()), ids=list(TEXTS))
def test_no_strict_json(http: httpx.Client, text: bytes) -> None:
    document = checked(post(http, text), 400, "invalid-json")
    assert document["remedy"]


REQUESTS = {
    "an array": ("[]", ""),
    "a string": ('"graph"', ""),
    "null": ("null", ""),
    "no graph": ("{}", ""),
    "an unknown member": ('{"graph": {}, "gaph": 1}', "/gaph"),
    "a plan": ('{"graph": {}, "plan": {}}', "/plan"),
    "an escaped name": ('{"graph": {}, "a/b~c": 1}', "/a~1b~0c"),
}


@pytest.mark.parametrize(("text", "pointer"), list(REQUESTS.values()), ids=list(REQUESTS))
def test_incomplete_requests(http: httpx.Client, text: str, pointer: str) -> None:
    assert checked(post(http, text), 422, "invalid-request")["pointer"] == pointer


# -------------------------------------------------------------------------------------- bad graphs


def _set(*path: str | int, value: Any) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        place: Any = graph
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value

    return change


def _delete(*path: str | int) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        place: Any = graph
        for part in path[:-1]:
            place = place[part]
        del place[path[-1]]

    return change


def _add_operand(**operand: Any) -> Callable[[Graph], None]:
    return lambda graph: graph["operands"].append({"dtype": "float32", **operand})


def _add_operation(name: str, kind: str, inputs: list[str], outputs: list[str]) -> Callable[[Graph], None]:
    operation = {"name": name, "type": kind, "inputs": inputs, "outputs": outputs}
    return lambda graph: graph["operations"].append(operation)


def _cycle(graph: Graph) -> None:
    _add_operation("there", "Add", ["x", "back.out"], ["there.out"])(graph)
    _add_operation("back", "Relu", ["there.out"], ["back.out"])(graph)
    graph["operations"][0]["inputs"][0] = "there.out"


def _many(graph: Graph) -> None:
    for number in range(101):
        source = "h" if number == 0 else f"r{number - 1}"
        _add_operation(f"relu{number}", "Relu", [source], [f"r{number}"])(graph)


def _stateless(graph: Graph) -> None:
    """Running statistics of role constant, which the operation would have to change."""
    names = ("scale", "shift", "mean", "variance")
    for name in names:
        _add_operand(name=name, role="constant", shape=[32], initializer={"kind": "ones"})(graph)
    _add_operation("norm", "BatchNormalization", ["h", *names], ["normal"])(graph)
    graph["operations"][-1]["attributes"] = {"training_mode": 1}


def _base64(data: bytes) -> dict[str, str]:
    return {"kind": "values", "base64": base64.b64encode(data).decode()}


GRAPHS: dict[str, tuple[Callable[[Graph], None], str, str, list[str]]] = {
    # name: change, problem type, pointer (start of it), words of the detail
    "unknown field": (_set("colour", value=1), "invalid-document", "/graph/colour", []),
    "unknown field inside": (
        _set("operands", 0, "size", value=1),
        "invalid-document",
        "/graph/operands/0/size",
        [],
    ),
    "missing field": (_delete("operations"), "invalid-document", "/graph", ["operations"]),
    "wrong format": (_set("format", value="onnx"), "invalid-document", "/graph/format", []),
    "wrong version": (_set("version", value=2), "invalid-document", "/graph/version", []),
    "wrong type": (_set("operands", value="none"), "invalid-document", "/graph/operands", []),
    "unknown operator": (
        _set("operations", 0, "type", value="Convolve"),
        "unknown-operator",
        "/graph/operations/0/type",
        ["Convolve"],
    ),
    "unknown dtype": (
        _set("operands", 0, "dtype", value="float99"),
        "invalid-document",
        "/graph/operands/0/dtype",
        [],
    ),
    "unknown attribute": (
        _set("operations", 0, "attributes", "strides", value=[1, 1]),
        "invalid-attribute",
        "/graph/operations/0/attributes/strides",
        ["strides"],
    ),
    "attribute out of range": (
        _set("operations", 0, "attributes", "activation", value="Sine"),
        "invalid-attribute",
        "/graph/operations/0/attributes/activation",
        ["Sine"],
    ),
    "shape mismatch": (
        _set("operands", 2, "shape", value=[17, 32]),
        "shape-mismatch",
        "/graph/operations/0",
        ["dense1", "w1", "17", "16"],
    ),
    "cycle": (_cycle, "cyclic-graph", "/graph/operations", ["there", "back"]),
    "undefined operand": (
        _set("operations", 1, "inputs", 0, value="nowhere"),
        "",
        "/graph/operations/1",
        ["nowhere"],
    ),
    "two defs": (
        _add_operation("again", "Relu", ["x"], ["h"]),
        "duplicate-def",
        "/graph/operations/3",
        ["h"],
    ),
    "dangling input": (
        _add_operand(name="unused", role="input", shape=[1]),
        "dangling-operand",
        "/graph/operands/6",
        ["unused"],
    ),
    "duplicate operand": (
        _add_operand(name="x", role="input", shape=["batch", 16]),
        "duplicate-name",
        "/graph/operands/6",
        ["x"],
    ),
    "duplicate operation": (
        _add_operation("dense1", "Relu", ["y"], ["z"]),
        "duplicate-name",
        "/graph/operations/3",
        ["dense1"],
    ),
    "unused trainable": (_add_operand(name="w9", role="parameter", shape=[2]), "", "/graph", ["w9"]),
    "unknown trainable": (_set("trainable", value=["w9"]), "invalid-trainable", "/graph/trainable", ["w9"]),
    "no loss": (_delete("loss"), "", "/graph", ["loss"]),
    "several losses": (_set("loss", value=["loss.out", "y"]), "", "/graph/loss", []),
    "unknown loss": (_set("loss", value="none"), "invalid-loss", "/graph/loss", ["none"]),
    "a loss of many elements": (_set("loss", value="y"), "invalid-loss", "/graph/loss", ["y"]),
    "zero dimension of one operand": (
        _set("operands", 2, "shape", value=[16, 0]),
        "shape-mismatch",
        "/graph/operations/0",
        [],
    ),
    "negative dimension": (
        _set("operands", 2, "shape", value=[-16, 32]),
        "invalid-dimension",
        "/graph/operands/2/shape",
        [],
    ),
    "too many elements": (
        _set("operands", 2, "shape", value=[2**40, 2**40]),
        "invalid-dimension",
        "/graph/operands/2",
        [],
    ),
    "a dimension beyond 64 bits": (
        _set("operands", 2, "shape", value=[2**70, 1]),
        "invalid-dimension",
        "/graph/operands/2",
        [],
    ),
    "too many bytes": (
        _set("operands", 2, "shape", value=[2**61, 1]),
        "invalid-dimension",
        "/graph/operands/2",
        [],
    ),
    "no batch": (_delete("batch"), "invalid-batch", "/graph", ["batch"]),
    "zero batch": (_set("batch", value=0), "", "/graph/batch", []),
    "a batch beyond bytes": (_set("batch", value=2**62), "invalid-dimension", "/graph", []),
    "too many operations": (_many, "too-many-operations", "/graph/operations", ["100"]),
    "base64 too short": (
        _set("operands", 3, "initializer", value=_base64(bytes(4))),
        "",
        "/graph/operands/3/initializer",
        ["4", "128"],
    ),
    "no base64": (
        _set("operands", 3, "initializer", value={"kind": "values", "base64": "?"}),
        "",
        "/graph/operands/3/initializer",
        [],
    ),
    "unknown optimizer": (_set("optimizer", "type", value="Magic"), "", "/graph/optimizer", ["Magic"]),
    "a constant that is updated": (
        _stateless,
        "invalid-state",
        "/graph/operations/3/inputs/3",
        ["norm", "mean", "constant"],
    ),
    "clipping to nothing": (
        _set("training", value={"clip_global_norm": 0}),
        "invalid-attribute",
        "/graph/training/clip_global_norm",
        ["clip_global_norm"],
    ),
    "forbidden name": (_set("operands", 0, "name", value="x@grad"), "", "/graph/operands/0/name", []),
    "a name without letters": (_set("operands", 0, "name", value=""), "", "/graph/operands/0/name", []),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_bad_graphs(http: httpx.Client, tiny: Graph, case: str) -> None:
    change, code, pointer, words = GRAPHS[case]
    change(tiny)
    response = post(http, json.dumps({"graph": tiny}))
    document = checked(response, 422, code or response.json()["type"].removeprefix("/problems/"))
    assert document["pointer"].startswith(pointer), document
    assert [word for word in words if word not in document["detail"]] == [], document


# ------------------------------------------------------------------------------------- bad options

OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown option": ({"speed": 1}, "/options/speed"),
    "alignment no power of two": ({"alignment": 48}, "/options/alignment"),
    "alignment zero": ({"alignment": 0}, "/options/alignment"),
    "negative capacity": ({"capacity": -1}, "/options/capacity"),
    "a size that is not one": ({"capacity": "20,971,520"}, "/options/capacity"),
    "capacity as a fraction": ({"capacity": 1.5}, "/options/capacity"),
    "unknown target": ({"target": "moon"}, "/options/target"),
    "unknown solver": ({"solver": "magic"}, "/options/solver"),
    "unknown update": ({"update": "never"}, "/options/update"),
    "batch zero": ({"batch": 0}, "/options/batch"),
    "batch true": ({"batch": True}, "/options/batch"),
    "negative deadline": ({"deadline_seconds": -1}, "/options/deadline_seconds"),
    "deadline beyond the limit": ({"deadline_seconds": 1e6}, "/options/deadline_seconds"),
    "wrong version": ({"version": 7}, "/options/version"),
}


@pytest.mark.parametrize("case", OPTIONS)
def test_bad_options(http: httpx.Client, tiny: Graph, case: str) -> None:
    options, pointer = OPTIONS[case]
    response = post(http, json.dumps({"graph": tiny, "options": options}))
    code = response.json()["type"].removeprefix("/problems/")
    assert checked(response, 422, code)["pointer"] == pointer


@pytest.mark.parametrize("options", ["[]", '"fast"', "1"])
def test_options_are_an_object(http: httpx.Client, tiny: Graph, options: str) -> None:
    response = post(http, f'{{"graph": {json.dumps(tiny)}, "options": {options}}}')
    assert checked(response, 422, "invalid-document")["pointer"] == "/options"


@pytest.mark.parametrize("capacity", [0, 1, 1000])
def test_capacity_below_the_bound(http: httpx.Client, tiny: Graph, capacity: int) -> None:
    response = post(http, json.dumps({"graph": tiny, "options": {"capacity": capacity}}))
    document = checked(response, 409, "capacity-exceeded")
    assert document["available"] == capacity
    assert document["required"] - capacity == document["excess"] > 0
    assert document["pointer"] == "/options/capacity"
    assert document["remedy"]
    live = document["live_at_peak"]
    assert sum(one["bytes"] for one in live) == document["required"]
    assert {"w1", "w1@momentum"} & {one["operand"] for one in live}


def test_a_capacity_that_is_just_enough(http: httpx.Client, tiny: Graph) -> None:
    needed = documents.load_plan(post(http, json.dumps({"graph": tiny})).content).arena_bytes
    assert post(http, json.dumps({"graph": tiny, "options": {"capacity": needed}})).status_code == 200
    short = post(http, json.dumps({"graph": tiny, "options": {"capacity": needed - 1}}))
    assert checked(short, 409, "capacity-exceeded")["excess"] >= 1


# --------------------------------------------------------------------------------- bad validations

VALIDATIONS: dict[str, tuple[Callable[[Graph], None], str]] = {
    "no plan": (_delete("plan"), ""),
    "no steps": (_set("steps", value=0), "/steps"),
    "too many steps": (_set("steps", value=7), "/steps"),
    "steps as text": (_set("steps", value="five"), "/steps"),
    "steps true": (_set("steps", value=True), "/steps"),
    "negative seed": (_set("seed", value=-1), "/seed"),
    "a plan that is none": (_set("plan", value={}), "/plan"),
    "a plan of another version": (_set("plan", "version", value=9), "/plan/version"),
    "a plan that was changed": (_set("plan", "values", 0, -1, value=4096), "/plan"),
    "another graph": (_set("graph", "optimizer", value={"type": "Adam"}), "/plan"),
    "a bad graph": (_set("graph", "loss", value="none"), "/graph/loss"),
}


@pytest.mark.parametrize("case", VALIDATIONS)
def test_bad_validations(http: httpx.Client, tiny: Graph, case: str) -> None:
    change, pointer = VALIDATIONS[case]
    request = {"graph": tiny, "plan": post(http, json.dumps({"graph": tiny})).json(), "steps": 1}
    change(request)
    response = http.post("/v1/validate", json=request)
    code = response.json()["type"].removeprefix("/problems/")
    assert checked(response, 422, code)["pointer"].startswith(pointer)


# ------------------------------------------------------------------------------------- and after all


def test_the_service_is_none_the_worse(http: httpx.Client, tiny: Graph) -> None:
    assert post(http, json.dumps({"graph": tiny})).status_code == 200
    assert http.get("/readyz").json()["workers"] == 2
