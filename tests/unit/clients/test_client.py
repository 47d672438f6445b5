"""Both clients against a scripted service: what they send, return, raise and try again."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import clients
from clients import (
    AsyncClient,
    AsyncJob,
    AsyncJobs,
    CapacityExceeded,
    Client,
    ClientError,
    ConnectionFailed,
    Job,
    Jobs,
    LayoutResult,
    PlanResult,
    ProblemError,
    UnexpectedAnswer,
    WrongArgument,
)
from clients.connections import DEFAULT_TIMEOUT
from solver.documents import dump_deployment
from solver.plan import persistent_rows
from tests.support.entry_points import small_deployment
from tests.support.every import every
from tests.support.scripted_service import Open, Reply, Service, event, ok, problem, stream
from tests.unit.clients.test_jobs import ACCEPTED, DONE, job

GRAPH = {"name": "g"}
NETWORK = {"format": "arenaplan.graph", "name": "g"}
MODEL = b"\x08\x07\x12\x00"
CIRCLE = b"\x1c\x00\x00\x00CIR0"

PLAN: dict[str, Any] = {
    "digest": "abc",
    "deterministic": True,
    "spaces": [
        [
            "arena",
            64,
            True,
            120,
            {"status": "optimal", "proof": "max-load", "lower_bound": 120, "solver": "greedy"},
        ]
    ],
    "origins": ["x", "w"],
    "values": [["", 0, 0, 0, 0, 64], ["@grad", 0, 1, 1, 0, 0], ["", 0, 2, 1, 0, 0]],
    "labels": [[2, "seed"]],
}
DEPLOYMENT: dict[str, Any] = {
    "digest": "fed",
    "name": "g",
    "entry_points": [
        {"name": "train", "model": "g", "purpose": "train", "plan": PLAN},
        {
            "name": "camera",
            "model": "g",
            "purpose": "infer",
            "plan": {
                **PLAN,
                "spaces": [[*PLAN["spaces"][0][:3], 100, {**PLAN["spaces"][0][4], "lower_bound": 90}]],
            },
        },
    ],
    "persistent": [["w", [2, 2]]],
}
LAYOUT: dict[str, Any] = {
    "digest": "def",
    "deterministic": True,
    "peak": 120,
    "certificate": {
        "status": "feasible",
        "proof": None,
        "lower_bound": 100,
        "witness_step": 3,
        "solver": "greedy",
    },
    "buffers": [{"id": "a", "offset": 0}, {"id": "b", "offset": 64}],
}
CURVE: dict[str, Any] = {
    "floor": 80,
    "step_nanoseconds": 1000,
    "complete": True,
    "points": [
        {"peak": 120, "extra": 0, "bound": 0, "extra_flops": 0, "repeated_steps": 0},
        {"peak": 90, "extra": 50, "bound": 40, "extra_flops": 7, "repeated_steps": 1},
    ],
}
VERDICT: dict[str, Any] = {
    "status": "open",
    "capacity": 85,
    "peak": 120,
    "floor": 80,
    "smallest": 90,
    "extra": None,
    "update_nanoseconds": 1000,
    "complete": True,
    "remedies": [
        {
            "measures": ["recompute", "rewrite"],
            "changes": "rounding",
            "arena_bytes": 84,
            "extra": -20,
            "bound": None,
            "options": {"only": ["recompute"], "rewrite": True},
            "graph_fields": {},
            "note": "",
        }
    ],
}
REPORT: dict[str, Any] = {
    "identical": False,
    "compared": 3,
    "arena_bytes": 120,
    "steps": [{"step": 1, "loss": 0.5, "reference_loss": 0.25, "identical": False, "differing": ["w"]}],
    "violations": [{"rule": "overlap", "buffers": ["a", "b"], "detail": "They overlap."}],
}
CAPACITY: dict[str, Any] = {
    "type": "/problems/capacity-exceeded",
    "title": "The arena does not fit",
    "status": 409,
    "detail": "Too large.",
    "pointer": "/options/capacity",
    "remedy": "Give more.",
    "required": 120,
    "available": 100,
    "excess": 20,
    "live_at_peak": [{"operand": "w", "bytes": 80}],
}


Call = Callable[..., Any]

#: Method, arguments, what is answered, and the request: its path below /v1 and its body; None for a GET.
SENT: tuple[tuple[str, tuple[Any, ...], dict[str, Any], Any, str, Any], ...] = (
    (
        "plan", (GRAPH, {"solver": "greedy", "batch": 1}), {"batch": 32, "capacity": None}, PLAN,
        "plan", {"graph": GRAPH, "options": {"solver": "greedy", "batch": 32}},
    ),
    (
        "plan_program", ({"blocks": []}, {"parallelism": 2}), {"capacity": 120, "batch": None}, PLAN,
        "program", {"program": {"blocks": []}, "options": {"parallelism": 2, "capacity": 120}},
    ),
    (
        "layout", ({"buffers": []}, {"solver": "greedy"}), {"capacity": 120, "alignment": None}, LAYOUT,
        "layout", {"problem": {"buffers": []}, "options": {"solver": "greedy", "capacity": 120}},
    ),
    (
        "tradeoff", (GRAPH,), {"points": 2, "batch": 4}, CURVE,
        "tradeoff", {"graph": GRAPH, "options": {"batch": 4}, "points": 2},
    ),
    (
        "explain", (GRAPH, "85B", {"batch": 4}), {"training": True, "rewrite": False}, VERDICT,
        "explain",
        {"graph": GRAPH, "options": {"batch": 4, "rewrite": False, "capacity": "85B"}, "training": True},
    ),
    (
        "explain", (GRAPH, "1MiB"), {"training": False, "scores": {"fc": 2}}, VERDICT,
        "explain",
        {"graph": GRAPH, "options": {"capacity": "1MiB"}, "training": False, "scores": {"fc": 2}},
    ),
    (
        "validate", (GRAPH, PLAN), {"steps": 7, "seed": 3}, REPORT,
        "validate", {"graph": GRAPH, "plan": PLAN, "steps": 7, "seed": 3},
    ),
    (
        "validate", ({"a": NETWORK, "b": b'{"format": "b"}'}, PLAN), {}, REPORT,
        "validate",
        {"models": {"a": NETWORK, "b": {"format": "b"}}, "plan": PLAN, "steps": 5, "seed": 0},
    ),
    (
        "deploy", (NETWORK, ["train", {"purpose": "infer", "batch": 1}]), {"batch": 4}, DEPLOYMENT,
        "plan",
        {
            "graph": NETWORK, "options": {"batch": 4}, "ties": [],
            "entries": ["train", {"purpose": "infer", "batch": 1}],
        },
    ),
    (
        "deploy", ({"a": NETWORK, "b": b'{"format": "b"}'},), {"ties": ["a.*=b.*"], "capacity": 9},
        DEPLOYMENT, "plan",
        {
            "models": {"a": NETWORK, "b": {"format": "b"}}, "options": {"capacity": 9},
            "entries": [], "ties": ["a.*=b.*"],
        },
    ),
    ("stored_plan", ("abc",), {}, PLAN, "plans/abc", None),
    ("stored_plan", ("abc",), {"entry_point": "infer"}, PLAN, "plans/abc?entry_point=infer", None),
    ("stored_layout", ("def",), {}, LAYOUT, "layouts/def", None),
    ("export", ("abc", "c-header"), {}, b"/* */", "plans/abc/c-header", None),
    ("export", ("a/b", "report"), {"against": "x&y"}, b"<html>", "plans/a%2Fb/report?against=x%26y", None),
    ("export", ("abc", "c-training"), {"weights": "none"}, b"PK", "plans/abc/c-training?weights=none", None),
    (
        "export", ("abc", "report"), {"against": "x", "entry_point": "a/b c"}, b"<html>",
        "plans/abc/report?against=x&entry_point=a%2Fb%20c", None,
    ),
)  # fmt: skip


async def test_what_each_method_sends(call: Call) -> None:
    with every() as case:
        for method, arguments, more, answer, path, body in SENT:
            with case((method, path)):
                file = isinstance(answer, bytes)
                service = Service(httpx.Response(200, content=answer) if file else ok(answer, X_Cache="hit"))
                result = await call(service, method, *arguments, **more)
                (request,) = service.requests
                assert str(request.url) == f"http://test/base/v1/{path}"
                assert request.method == ("GET" if body is None else "POST")
                if body is not None:
                    assert request.headers["content-type"] == "application/json"
                    assert service.body == body
                assert (result if file else result.document) == answer
                assert getattr(result, "cached", True)


async def test_jobs_send_the_same(opened: Open) -> None:
    with every() as case:
        for method, arguments, more, _, path, body in SENT:
            if body is not None:
                with case((method, path)):
                    service = Service(ACCEPTED)
                    async with opened(service) as client:
                        await getattr(client.jobs, method)(*arguments, **more)
                    assert str(service.requests[0].url) == "http://test/base/v1/jobs"
                    assert service.body == {"task": path, "request": body}


#: Method, arguments, what is answered, and the request of a model: its path below /v1 and its query. Of
#: a plan only the digest is sent.
TRAINED = {"loss": "mse", "dim": ["n=2", "m=3"]}
QUERY = [("loss", "mse"), ("dim", "n=2"), ("dim", "m=3")]
SENT_MODELS: tuple[tuple[str, tuple[Any, ...], dict[str, Any], Any, str, list[tuple[str, str]]], ...] = (
    (
        "plan", ({"recompute": True, "solver": "greedy"},),
        {"batch": 4, "capacity": "24MiB", "learning_rate": 0.5}, PLAN, "plan",
        [
            ("recompute", "true"), ("solver", "greedy"), ("batch", "4"), ("capacity", "24MiB"),
            ("learning_rate", "0.5"), *QUERY,
        ],
    ),
    ("tradeoff", (), {"points": 4}, CURVE, "tradeoff", [*QUERY, ("points", "4")]),
    ("explain", ("24MiB",), {}, VERDICT, "explain", [*QUERY, ("capacity", "24MiB"), ("training", "true")]),
    (
        "validate", ({"digest": "abc"},), {"steps": 3}, REPORT, "validate",
        [*QUERY, ("steps", "3"), ("seed", "0"), ("plan", "abc")],
    ),
    (
        "deploy", (["train", {"purpose": "infer", "batch": 1}],), {"ties": ["a=b"]}, DEPLOYMENT, "plan",
        [
            *QUERY, ("entries", "train"), ("entries", '{"purpose": "infer", "batch": 1}'), ("ties", "a=b"),
        ],
    ),
)  # fmt: skip


async def test_models_are_sent_as_they_are(call: Call, tmp_path: Path) -> None:
    """Their bytes are the body; how they are trained, and options, stand in the query."""
    path = tmp_path / "model.onnx"
    path.write_bytes(MODEL)
    with every() as case:
        for method, arguments, more, answer, task, query in SENT_MODELS:
            for model, data in ((MODEL, MODEL), (path, MODEL), (CIRCLE, CIRCLE)):
                with case((method, model)):
                    service = Service(ok(answer))
                    result = await call(service, method, model, *arguments, **more, **TRAINED)
                    (request,) = service.requests
                    assert (request.url.path, request.content) == (f"/base/v1/{task}", data)
                    assert request.headers["content-type"] == "application/octet-stream"
                    assert request.url.params.multi_items() == query
                    assert result.document == answer


async def test_a_document_is_sent_as_it_is(call: Call, tmp_path: Path) -> None:
    """The service judges the very bytes of a file, and what is in a file that is called .json."""
    path = tmp_path / "graph.json"
    for text, graph in ((b'{"name": "g",  "name": "h"}', None), (b'{"name": 1 }', path), (MODEL, path)):
        path.write_bytes(text)
        service = Service(ok(PLAN))
        await call(service, "plan", graph or text)
        assert service.requests[0].headers["content-type"] == "application/json"
        assert service.requests[0].content == b'{"graph":' + text + b',"options":{}}'


#: Method, arguments, and the error that comes before anything is sent.
NEVER_SENT: tuple[tuple[str, tuple[Any, ...], dict[str, Any], type[Exception], str], ...] = (
    ("plan", ({"x": float("nan")},), {}, ValueError, "JSON compliant"),
    ("plan", (3,), {}, WrongArgument, r"type int .*\. Give "),
    ("plan", ("graph.json",), {}, WrongArgument, r"type str .*\. Give "),
    ("plan", ({},), {"batch": object()}, WrongArgument, r"type object .*\. Give "),
    ("plan_program", (None,), {}, WrongArgument, r"type NoneType .*\. Give "),
    ("plan_program", (MODEL,), {}, ValueError, "will not do here"),
    ("layout", ([],), {}, WrongArgument, r"type list .*\. Give "),
    ("explain", (3, 4), {}, WrongArgument, r"type int .*\. Give "),
    ("tradeoff", (3,), {}, WrongArgument, r"type int .*\. Give "),
    ("deploy", (b"\x08\x07",), {}, WrongArgument, "has no entry point"),
    ("deploy", (NETWORK, "train"), {}, WrongArgument, r"entries=\['train'\]"),
    ("deploy", (GRAPH, ["train"]), {}, WrongArgument, "type str"),
    ("deploy", ({"a": NETWORK, "b": MODEL},), {}, ValueError, "will not do here"),
    ("validate", ({}, MODEL), {}, ValueError, "in the place of a graph only"),
)


async def test_what_is_never_sent(opened: Open) -> None:
    service = Service(ok(PLAN))
    with every() as case:
        for method, arguments, more, error, words in NEVER_SENT:
            async with opened(service) as client:
                for door in (client, client.jobs):
                    with case((method, arguments, words)), pytest.raises(error, match=words):
                        await getattr(door, method)(*arguments, **more)
                with case("no digest"), pytest.raises(ValueError, match="no digest"):
                    await client.validate(MODEL, {})
    assert service.requests == []
    with pytest.raises(WrongArgument, match=r"type int\. Give "):
        Client(3)  # type: ignore[arg-type]


def test_what_results_hold() -> None:
    plan = PlanResult.of(PLAN)
    assert (plan.digest, plan.arena_bytes, plan.lower_bound) == ("abc", 120, 120)
    assert (plan.status, plan.proof, plan.gap, plan.deterministic) == ("optimal", "max-load", 0.0, True)
    assert plan.arenas[0].solver == "greedy"
    # A label is the origin with a suffix, unless the document has another one.
    assert plan.offsets == {"x": ("arena", 64), "w@grad": ("arena", 0), "seed": ("arena", 0)}
    assert PlanResult.of({**PLAN, "spaces": []}).gap == 0.0
    layout = LayoutResult.of(LAYOUT)
    assert (layout.digest, layout.peak, layout.lower_bound, layout.deterministic) == ("def", 120, 100, True)
    assert (layout.status, layout.proof, layout.witness_step, layout.solver) == (
        "feasible",
        None,
        3,
        "greedy",
    )
    assert layout.gap == pytest.approx(0.2)
    assert layout.offsets == {"a": 0, "b": 64}
    nothing = {**LAYOUT, "peak": 0, "certificate": {**LAYOUT["certificate"], "lower_bound": 0}}
    assert LayoutResult.of(nothing).gap == 0.0


async def test_what_curves_verdicts_and_reports_hold(call: Call) -> None:
    curve = await call(Service(ok(CURVE)), "tradeoff", GRAPH)
    assert (curve.floor, curve.complete) == (80, True)
    assert [(p.peak, p.extra, p.bound) for p in curve.points] == [(120, 0.0, 0.0), (90, 0.05, 0.04)]
    for extra, share in ((None, None), (30, 0.03)):
        verdict = await call(Service(ok(VERDICT | {"extra": extra})), "explain", GRAPH, 85)
        assert (verdict.status, verdict.capacity, verdict.floor, verdict.smallest) == ("open", 85, 80, 90)
        assert verdict.extra == share
    (remedy,) = verdict.remedies
    assert (remedy.measures, remedy.extra) == (("recompute", "rewrite"), -0.02)
    assert remedy.options == {"only": ["recompute"], "rewrite": True}
    report = await call(Service(ok(REPORT)), "validate", GRAPH, PLAN)
    assert not report.identical
    assert report.steps[0].differing == ("w",)
    assert report.violations[0].buffers == ("a", "b")
    assert (report.compared, report.arena_bytes) == (3, 120)


@pytest.mark.parametrize(
    ("header", "notes"),
    [
        ('["1 tensor trained.", "\\u91cd is not."]', ("1 tensor trained.", "重 is not.")),
        ("[]", ()),
        ("", ()),
        ('["1 tensor tr', ()),
        ('{"a": 1}', ()),
    ],
)
async def test_notes_on_a_model(call: Call, tmp_path: Path, header: str, notes: tuple[str, ...]) -> None:
    """A damaged header costs the notes only."""
    reply = httpx.Response(200, json=PLAN, headers={"Arenaplan-Notes": header})
    assert (await call(Service(reply), "plan", b"\x08\x07", loss="mse")).notes == notes
    path = tmp_path / "plan.json"
    assert (await call(Service(reply), "save_plan", b"\x08\x07", path, loss="mse")).notes == notes


async def test_fits(call: Call) -> None:
    service = Service(ok(PLAN))
    assert await call(service, "fits", GRAPH, 120, batch=2) is True
    assert service.body["options"] == {"batch": 2, "capacity": 120}
    assert await call(Service(problem(CAPACITY)), "fits", GRAPH, 100) is False
    with pytest.raises(ProblemError):
        await call(Service(problem({**CAPACITY, "type": "/problems/invalid-loss"})), "fits", GRAPH, 1)


async def test_capacity_exceeded(call: Call) -> None:
    with pytest.raises(CapacityExceeded) as caught:
        await call(Service(problem(CAPACITY)), "plan", GRAPH)
    error = caught.value
    assert (error.required, error.available, error.excess) == (120, 100, 20)
    assert error.live_at_peak == (("w", 80),)
    assert error.status == 409
    assert error.proved is False
    assert str(error) == "/options/capacity: Too large. Give more."
    with pytest.raises(CapacityExceeded) as proved:
        await call(Service(problem({**CAPACITY, "proved": True})), "plan", GRAPH)
    assert proved.value.proved is True


async def test_a_capacity_error_without_its_figures(call: Call) -> None:
    """From another version, or something in between: still a problem, with what it says."""
    with every() as case:
        for name, value in (
            ("required", None), ("required", ...), ("live_at_peak", None), ("live_at_peak", [{"bytes": 1}]),
            ("available", ...), ("excess", ...), ("live_at_peak", ...),
        ):  # fmt: skip
            with case((name, value)):
                document = {**CAPACITY, name: value}
                if value is ...:
                    del document[name]
                with pytest.raises(ProblemError, match="Too large") as caught:
                    await call(Service(problem(document)), "plan", GRAPH)
                assert not isinstance(caught.value, CapacityExceeded)
                assert (caught.value.status, caught.value.type) == (409, "/problems/capacity-exceeded")


async def test_problem(call: Call) -> None:
    document = {"type": "/problems/invalid-loss", "title": "No loss", "status": 422}
    service = Service(problem(document))
    with pytest.raises(ProblemError) as caught:
        await call(service, "plan", GRAPH)
    error = caught.value
    assert (error.type, error.status, error.detail) == ("/problems/invalid-loss", 422, "No loss")
    assert (error.pointer, error.remedy, error.instance) == (None, None, None)
    assert error.document == document
    assert str(error) == "No loss"
    assert len(service.requests) == 1
    odd = httpx.Response(409, json={"type": "/problems/x", "title": "Odd", "status": None})
    for method, arguments in (("plan", (GRAPH,)), ("export", ("abc", "c-header"))):
        with pytest.raises(ProblemError, match="Odd") as caught:
            await call(Service(odd), method, *arguments)
        assert caught.value.status == 0


async def test_another_service(call: Call) -> None:
    with every() as case:
        for reply in (
            httpx.Response(200, text="<html>"), httpx.Response(200, json=[1]),
            httpx.Response(500, json={"message": "proxy"}), httpx.Response(404, text="nginx"),
        ):  # fmt: skip
            with case(reply.text), pytest.raises(UnexpectedAnswer, match="http://test/base/v1/plan"):
                await call(Service(reply), "plan", GRAPH)
    with pytest.raises(UnexpectedAnswer, match="spaces"):
        await call(Service(ok({"digest": "abc"})), "plan", GRAPH)
    with pytest.raises(UnexpectedAnswer, match="of another form"):
        await call(Service(ok({**REPORT, "steps": 3})), "validate", GRAPH, PLAN)


async def test_tries_again(call: Call) -> None:
    busy = httpx.Response(
        503, json={"type": "/problems/overloaded", "status": 503}, headers={"Retry-After": "3"}
    )
    service = Service(httpx.ConnectError("refused"), busy, httpx.Response(502), ok(PLAN))
    assert (await call(service, "plan", GRAPH)).digest == "abc"
    assert service.pauses == [1.0, 3.0, 4.0]
    assert len({request.content for request in service.requests}) == 1


async def test_gives_up_with_the_last_problem(call: Call) -> None:
    service = Service(problem({"type": "/problems/overloaded", "title": "busy", "status": 503}))
    with pytest.raises(ProblemError, match="busy"):
        await call(service, "plan", GRAPH)
    assert len(service.requests) == 10


async def test_cannot_connect(call: Call) -> None:
    service = Service(httpx.ConnectError("refused"))
    with pytest.raises(ConnectionFailed, match=r"http://test/base/v1/plan.*refused") as caught:
        await call(service, "plan", GRAPH)
    assert isinstance(caught.value.__cause__, httpx.ConnectError)
    assert len(service.requests) == 10


def test_the_address_in_errors_is_whole_and_without_a_password() -> None:
    broken, other = Service(httpx.ReadTimeout("slow")), Service(httpx.Response(200, text="<html>"))
    for base in ("http://test", "http://test/", "http://me:secret@test"):
        for service, kind, words in (
            (broken, ConnectionFailed, r"^http://test/v1/plan: "),
            (other, UnexpectedAnswer, r"^http://test/v1/plan answered 200 "),
        ):
            with Client(base, transport=service.transport) as client, pytest.raises(kind, match=words):
                client.plan(GRAPH)


def test_timeouts() -> None:
    """Of a thousand calls at the same time, most wait for a connection longer than any may take by itself."""
    for timeout, pool in ((None, None), (3.0, None), (DEFAULT_TIMEOUT, None), (httpx.Timeout(4.0), 4.0)):
        seen = Service(ok(PLAN))
        with Client("http://test", timeout=timeout, transport=seen.transport) as client:
            client.plan(GRAPH)
            client.plan(GRAPH, timeout=7.0)
        assert seen.requests[0].extensions["timeout"]["pool"] == pool
        assert seen.requests[1].extensions["timeout"]["read"] == 7.0
        assert seen.body["options"] == {}


async def test_a_slow_answer_is_not_asked_for_again(call: Call) -> None:
    service = Service(httpx.ReadTimeout("slow"))
    with pytest.raises(ConnectionFailed):
        await call(service, "plan", GRAPH)
    assert len(service.requests) == 1


async def test_ready(call: Call) -> None:
    replies: tuple[tuple[Reply, bool], ...] = (
        (ok({}), True), (httpx.Response(503), False), (httpx.ConnectError("refused"), False)
    )  # fmt: skip
    for reply, ready in replies:
        service = Service(reply)
        assert await call(service, "ready") is ready
        assert len(service.requests) == 1


def test_the_weakest_arena_counts() -> None:
    certificate = {"status": "feasible", "proof": None, "lower_bound": 40, "solver": "greedy"}
    solved = {"status": "optimal", "proof": "solver", "lower_bound": 10, "solver": "cp-sat"}
    document = {**PLAN, "spaces": [*PLAN["spaces"], ["b", 64, True, 10, solved]]}
    assert PlanResult.of(document).proof == "solver"
    document["spaces"] = [*document["spaces"], ["c", 64, True, 50, certificate]]
    result = PlanResult.of(document)
    assert (result.arena_bytes, result.lower_bound) == (180, 170)
    assert (result.status, result.proof) == ("feasible", None)
    assert result.gap == pytest.approx(180 / 170 - 1)


def signatures(kind: type, ours: str) -> dict[str, str]:
    """The signatures of the public methods, with the name of the kind of job left out of results."""
    methods = {name: one for name, one in vars(kind).items() if not name.startswith("_")}
    return {
        name: str(inspect.signature(one)).replace(ours, "Job").replace("AsyncIterator", "Iterator")
        for name, one in methods.items()
    }


@pytest.mark.parametrize(("blocking", "awaited"), [(Client, AsyncClient), (Job, AsyncJob), (Jobs, AsyncJobs)])
def test_both_clients_offer_the_same(blocking: type, awaited: type) -> None:
    """Every method has the same arguments and the same docstring, and one of a kind has to be awaited."""
    assert signatures(blocking, "Job") == signatures(awaited, "AsyncJob")
    for name in signatures(blocking, "Job"):
        returning, coroutine = vars(blocking)[name], vars(awaited)[name]
        assert returning.__doc__ == coroutine.__doc__
        assert len(returning.__doc__) > 10
        assert returning.__qualname__ == f"{blocking.__name__}.{name}"
        assert not inspect.iscoroutinefunction(returning)
        assert inspect.iscoroutinefunction(coroutine) == (name not in {"events", "list"})


def test_jobs_have_the_tasks_of_clients() -> None:
    """The same arguments and docstrings, and a key; the result is a job with that of the client."""
    for kind, jobs_kind, result in ((Client, Jobs, "Job"), (AsyncClient, AsyncJobs, "AsyncJob")):
        ours, theirs = vars(kind), vars(jobs_kind)
        names = {name for name in ours.keys() & theirs.keys() if not name.startswith("_")}
        assert names == {"plan", "deploy", "plan_program", "layout", "tradeoff", "explain", "validate"}
        for name in names:
            assert ours[name].__doc__ == theirs[name].__doc__
            direct, submitted = inspect.signature(ours[name]), inspect.signature(theirs[name])
            assert submitted.return_annotation == f"{result}[{direct.return_annotation}]"
            added = submitted.parameters.keys() - direct.parameters.keys()
            assert (added, direct.parameters.keys() - submitted.parameters.keys()) == (
                {"idempotency_key"},
                set(),
            )


class Mine(Client):
    """A user's own client."""

    def plan(self, *arguments: Any, **more: Any) -> PlanResult:
        return super().plan(*arguments, batch=7, **more)


async def test_the_blocking_client_works_anywhere() -> None:
    """In the thread of a running event loop, in others, and as a base class."""
    news = stream(event("state", 1, job()), event("end", 2, DONE))
    service = Service(post_plan=ok(PLAN), post_jobs=ACCEPTED, get_events=news, get_result=ok(PLAN))
    with Mine("http://test", transport=service.transport) as client:
        for result in (client.plan(GRAPH), await asyncio.to_thread(client.plan, GRAPH)):
            assert result.digest == "abc"
        assert service.body["options"] == {"batch": 7}
        made = client.jobs.plan(GRAPH)
        assert made.wait().digest == "abc"
        assert [news.kind for news in made.events()] == ["state", "end"]
        assert next(made.events()).kind == "state"


def test_errors_have_one_root() -> None:
    raised = [getattr(clients, name) for name in clients.__all__ if inspect.isclass(getattr(clients, name))]
    errors = [kind for kind in raised if issubclass(kind, Exception)]
    assert len(errors) == 8
    assert all(issubclass(kind, ClientError) for kind in errors)


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def test_save_plan(call: Call, tmp_path: Path) -> None:
    """To a file as it comes; what breaks off is asked for again, and leaves nothing behind."""
    path = tmp_path / "plan.json"
    path.write_text("before", encoding="utf-8")
    reply = httpx.Response(200, json=PLAN, headers={"ETag": '"abc"', "X-Cache": "hit"})
    service = Service(httpx.ReadError("broken off"), reply)
    saved = await call(service, "save_plan", GRAPH, path, batch=2)
    assert service.body == {"graph": GRAPH, "options": {"batch": 2}}
    assert (saved.digest, saved.path, saved.cached) == ("abc", path, True)
    assert saved.size == len(path.read_bytes())
    assert json.loads(path.read_bytes()) == PLAN
    assert names_in(tmp_path) == ["plan.json"]


async def test_save_plan_that_does_not_fit(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(CapacityExceeded):
        await call(Service(problem(CAPACITY)), "save_plan", GRAPH, path)
    assert not path.exists()


def test_the_environment_says_where_and_who(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENAPLAN_SERVER", "http://elsewhere:9")
    monkeypatch.setenv("ARENAPLAN_API_KEY", "ap_1_secret")
    seen = Service(ok(PLAN))
    with Client(transport=seen.transport) as client:
        client.plan(GRAPH)
    assert str(seen.requests[-1].url) == "http://elsewhere:9/v1/plan"
    assert seen.requests[-1].headers["authorization"] == "Bearer ap_1_secret"
    with Client("http://test", api_key="mine", transport=seen.transport) as client:
        client.plan(GRAPH)
    assert str(seen.requests[-1].url) == "http://test/v1/plan"
    assert seen.requests[-1].headers["authorization"] == "Bearer mine"
    with Client("http://test", headers={"authorization": "Own x"}, transport=seen.transport) as client:
        client.plan(GRAPH)
    assert seen.requests[-1].headers.get_list("authorization") == ["Own x"]
    with Client("http://test", auth=httpx.BasicAuth("a", "b"), transport=seen.transport) as client:
        client.plan(GRAPH)
    assert seen.requests[-1].headers["authorization"].startswith("Basic ")
    monkeypatch.delenv("ARENAPLAN_API_KEY")
    with Client("http://test", transport=seen.transport) as client:
        client.plan(GRAPH)
    assert "authorization" not in seen.requests[-1].headers


async def test_a_plan_with_entry_points(call: Call) -> None:
    """Figures and places are those of the core."""
    deployment = small_deployment()
    document = json.loads(dump_deployment(deployment))
    result = await call(Service(ok(document)), "stored_plan", deployment.digest)
    assert (result.arena_bytes, result.lower_bound) == (deployment.arena_bytes, deployment.lower_bound)
    assert (result.status, result.proof, result.deterministic) == ("optimal", "max-load", True)
    assert list(result.entry_points) == ["train", "infer", "evaluate"]
    assert result.entry_points["infer"].arena_bytes == deployment["infer"].plan.arena_bytes
    rows = persistent_rows(deployment)
    assert dict(result.offsets) == {row.name: (row.space, row.offset) for row in rows}
