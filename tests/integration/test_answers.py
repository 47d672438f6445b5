"""Right requests to the real server: answers are those of the core, the same bytes again, and kept."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import httpx
import pytest

from clients import Client
from solver import documents
from solver.graph import inference
from solver.layout import Status, find_violations
from solver.pipeline import modelled_costs, plan
from solver.plan import Plan, PlanOptions
from solver.program import Record
from solver.reports.verdict import VerdictStatus
from tests.integration.test_bad_input import checked, example
from tests.support.every import every
from tests.support.graphs import chain
from tests.support.proofs import moved, violations
from tests.support.server import running_server
from tests.support.training_shaped import training_shaped

Document = dict[str, Any]

CHAIN = chain((16,) * 7, batch=64)
CHAINED = documents.parse_json(documents.dump_graph(CHAIN))


@pytest.fixture
def pairs() -> Document:
    """A program of two independent pairs of operations."""
    found: Document = example("parallel")["program"]
    return found


@pytest.fixture
def buffers() -> Document:
    """A problem whose best layout takes 12 bytes, its capacity."""
    found: Document = example("buffers")["problem"]
    return found


def post(http: httpx.Client, route: str, **request: Any) -> httpx.Response:
    return http.post(f"/v1/{route}", json=request)


def planned(http: httpx.Client, graph: Document, **options: Any) -> Plan:
    answer = post(http, "plan", graph=graph, options=options)
    assert answer.status_code == 200, answer.text
    return documents.load_plan(answer.content)


def placed(http: httpx.Client, problem: Any, **options: Any) -> httpx.Response:
    return post(http, "layout", problem=problem, options=options)


def validated(http: httpx.Client, graph: Document, made: Any, steps: int = 1) -> Document:
    answer = post(http, "validate", graph=graph, plan=made, steps=steps)
    assert answer.status_code == 200, answer.text
    report: Document = answer.json()
    return report


def as_json(made: Plan) -> Document:
    """The document of a plan that was changed, with its digest."""
    document: Document = json.loads(documents.dump_plan(documents.with_digest(made)))
    return document


# ----------------------------------------------------------------- the same bytes, kept and tagged


def test_the_same_request_has_the_same_bytes_and_is_kept(
    http: httpx.Client, tiny: Document, pairs: Document, buffers: Document
) -> None:
    buffers["buffers"][0]["id"] = "kept"
    with running_server(workers=1, cache_bytes=0) as other, other.client() as elsewhere, every() as case:
        for route, member, document, folder in (
            ("plan", "graph", {**tiny, "name": "kept"}, "plans"),
            ("program", "program", {**pairs, "name": "kept"}, "plans"),
            ("layout", "problem", buffers, "layouts"),
        ):
            with case(route):
                first, again = (post(http, route, **{member: document}) for _ in range(2))
                spelled = json.dumps({"options": {}, member: document}, indent=3).ljust(500_000)
                json_type = {"Content-Type": "application/json"}
                respelled = http.post(f"/v1/{route}", content=spelled, headers=json_type)
                former = "/plan" if route == "plan" else f"/v1/{route}"
                answers = (first, again, respelled, http.post(former, json={member: document}))
                assert [one.headers["x-cache"] for one in answers] == ["miss", "hit", "hit", "hit"]
                assert {one.content for one in answers} == {first.content}
                digest = first.json()["digest"]
                where = first.headers["content-location"]
                assert (where, first.headers["etag"]) == (f"/v1/{folder}/{digest}", f'"{digest}"')
                assert http.get(where).content == first.content
                tag = {"If-None-Match": first.headers["etag"]}
                assert http.get(where, headers=tag).status_code == 304
                body = {member: document, "options": {}}
                assert http.post(f"/v1/{route}", json=body, headers=tag).status_code == 304
                other_folder = {"plans": "layouts", "layouts": "plans"}[folder]
                assert http.get(f"/v1/{other_folder}/{digest}").status_code == 404
                for _ in range(2):
                    fresh = post(elsewhere, route, **{member: document})
                    assert (fresh.headers["x-cache"], fresh.content) == ("miss", first.content)
    for folder in ("plans", "layouts"):
        lost = http.get(f"/v1/{folder}/{'0' * 64}")
        assert (lost.status_code, lost.json()["type"]) == (404, f"/problems/{folder[:-1]}-not-found")


def test_what_one_route_answered_is_no_answer_of_the_other(http: httpx.Client, pairs: Document) -> None:
    """The same bytes sent to the wrong route are a mistake, however often they were right elsewhere."""
    body = {"program": pairs, "options": {}}
    assert http.post("/v1/program", json=body).status_code == 200
    checked(http.post("/v1/plan", json=body), "invalid-request", "")
    assert http.post("/v1/program", json=body).status_code == 200


def test_time_that_has_run_out_is_an_answer(http: httpx.Client, mnist: Document, pairs: Document) -> None:
    options = {"deadline_seconds": 0.0}
    made = planned(http, mnist, **options)
    assert made.certificates[0].status in (Status.FEASIBLE, Status.OPTIMAL)
    assert made.arena_bytes >= made.lower_bound > 0
    assert made.options.deadline_seconds == 0.0
    made = documents.load_plan(post(http, "program", program=pairs, options=options).content)
    assert violations(documents.load_program(pairs), made) == ()
    hard = json.loads(documents.dump_buffers(training_shaped(7, buffers=300)))
    layout = documents.load_layout(placed(http, hard, **options).content)
    assert find_violations(layout.problem, layout.layout) == ()
    curve = documents.load_tradeoff(post(http, "tradeoff", graph=mnist, options=options).content)
    assert (len(curve.points), curve.complete) == (1, False)
    asked = post(http, "explain", graph=mnist, options={**options, "capacity": 1})
    verdict = documents.load_verdict(asked.content)
    assert (verdict.status, verdict.complete) == (VerdictStatus.IMPOSSIBLE, False)


def test_the_service_has_a_longest_time_of_its_own(mnist: Document) -> None:
    with running_server(workers=1, deadline_max_seconds=0.001) as own, own.client() as http:
        response = post(http, "explain", graph=mnist, options={"capacity": 10**6})
        assert not documents.load_verdict(response.content).complete


# ------------------------------------------------------------------------------------------- plans


def test_an_inference_does_not_train(http: httpx.Client, mnist: Document) -> None:
    """Its plan and its report are rows of `tests/contract`."""
    graph = documents.load_graph(mnist, batch=2)
    sent = documents.parse_json(documents.dump_graph(inference(graph)))
    problem = post(http, "plan", graph={**sent, "trainable": [graph.trainable[0]]}).json()
    assert (problem["status"], problem["pointer"]) == (422, "/graph/loss")
    assert "no loss" in problem["detail"]
    assert "for an inference" in problem["remedy"]
    capacity = plan(inference(graph)).arena_bytes
    assert capacity < plan(graph).arena_bytes
    verdict = post(http, "explain", graph=sent, options={"capacity": capacity}).json()
    assert verdict["status"] == VerdictStatus.PLAN.value
    with Client(str(http.base_url)) as client:
        result = client.validate(sent, as_json(planned(http, sent)), steps=1)
    assert (result.identical, result.steps[0].loss) == (True, None)


def test_a_measure_of_its_own_is_named_where_it_was_sent(http: httpx.Client, tiny: Document) -> None:
    for name, words in (("order", '"only": ["order"]'), ("fit_scratch", '"scratch_budget": 65536')):
        answer = post(http, "plan", graph=tiny, options={name: True})
        problem = answer.json()
        assert (answer.status_code, problem["pointer"]) == (422, f"/options/{name}")
        assert words in problem["remedy"]
        assert ("rounding" in problem["detail"]) == (name == "fit_scratch")
    headers = {"content-type": "application/onnx"}
    problem = http.post("/v1/plan?in_place=true", content=b"no model", headers=headers).json()
    assert problem["pointer"] == "/query/in_place"
    assert problem["remedy"].endswith("only=in_place.")


def test_a_switch_of_before_leads_to_only(http: httpx.Client, tiny: Document) -> None:
    refused = post(http, "plan", graph=tiny, options={"recompute": True})
    problem = checked(refused, "invalid-document", "/options/recompute")
    assert '"only": ["recompute"]' in problem["remedy"]


def test_wrong_plans_are_named(http: httpx.Client, tiny: Document, mnist: Document) -> None:
    """Two live buffers at one offset are never run; a record or a replacement that is forged is no plan."""
    made = planned(http, tiny)
    first, second, *_ = made.arenas[0].buffers
    report = validated(http, tiny, as_json(moved(made, second.id, first.offset)))
    assert (report["identical"], report["steps"]) == (False, [])
    overlaps = [set(found["buffers"]) for found in report["violations"] if found["rule"] == "overlap"]
    assert {first.id, second.id} in overlaps

    made = plan(CHAIN, PlanOptions(capacity=35_000, recompute=True))
    (record,) = (record for record in made.records if record.name == "recompute")
    cheaper = {**record.facts, "extra_nanoseconds": int(record.facts["extra_nanoseconds"]) - 1}
    others = tuple(other for other in made.records if other is not record)
    report = validated(http, CHAINED, as_json(replace(made, records=(*others, Record("recompute", cheaper)))))
    assert (report["identical"], [found["rule"] for found in report["violations"]]) == (False, ["record"])
    assert "extra_nanoseconds" in report["violations"][0]["detail"]

    made = planned(http, mnist, rewrite=True)
    forged = as_json(replace(made, replacements=(replace(made.replacements[0], rule="fuse-bias"),)))
    refused = post(http, "validate", graph=mnist, plan=forged)
    assert (refused.status_code, "does not hold" in refused.text) == (422, True)


# ---------------------------------------------------------------------------------------- programs


def test_programs(http: httpx.Client, pairs: Document, tiny: Document) -> None:
    made = post(http, "program", program=pairs).json()
    checked(post(http, "validate", graph=tiny, plan=made), "invalid-plan", "/plan")
    pairs["blocks"][0]["bytes"] = 3 * 2**31
    large = documents.load_plan(post(http, "program", program=pairs).content)
    assert large.arena_bytes > 3 * 2**31
    assert violations(documents.load_program(pairs), large) == ()


# ----------------------------------------------------------------------------------------- layouts


def test_options_of_layouts(http: httpx.Client, buffers: Document) -> None:
    made = documents.load_layout(
        placed(http, buffers, solver="greedy", capacity="1MiB", alignment=64).content
    )
    assert (made.options.solver, made.problem.capacity) == ("greedy", 2**20)
    assert all(offset % 64 == 0 for offset in made.layout.offsets)
    search = {"work": 1000, "seed": 3, "threads": 1, "target_gap": 0.01, "rules": {"peel": False}}
    options = documents.load_layout(placed(http, buffers, **search).content).options
    assert (options.work, options.seed, options.threads, options.target_gap) == (1000, 3, 1, 0.01)
    assert (options.rules.peel, options.rules.span) == (False, True)
    # A size as text is the same request as a number of bytes, down to the digest.
    as_text = placed(http, buffers, capacity="1.5KiB")
    assert as_text.json()["options"]["capacity"] == 1536
    assert placed(http, buffers, capacity=1536).content == as_text.content


def test_buffers_that_do_not_fit(http: httpx.Client, buffers: Document) -> None:
    answer = placed(http, buffers, capacity=11)
    of_options = checked(answer, "capacity-exceeded", "/options/capacity")
    assert (of_options["required"], of_options["available"], of_options["excess"]) == (12, 11, 1)
    assert of_options["proved"] is True
    assert sum(live["bytes"] for live in of_options["live_at_peak"]) == 12
    with_deadline = placed(http, buffers, capacity=11, deadline_seconds=1)
    checked(with_deadline, "capacity-exceeded", "/options/capacity")
    checked(placed(http, {**buffers, "capacity": 4}), "capacity-exceeded", "/problem/capacity")
    # What is large is grouped in sentences, and a plain number in the fields.
    large = placed(http, {**buffers, "capacity": 4000}, alignment=4096)
    assert "8,196 bytes at least; the capacity is 4,000." in large.json()["detail"]
    assert (large.json()["required"], large.json()["proved"]) == (8196, True)
    # Bump never reuses a byte; that it finds nothing says nothing about other layouts.
    bump = checked(placed(http, buffers, solver="bump"), "capacity-exceeded", "/problem/capacity")
    assert bump["proved"] is False
    assert "12 bytes at least are proved" in bump["detail"]
    assert "is not known" in bump["detail"]
    buffers["buffers"][1]["size"] = 13
    of_one = checked(placed(http, buffers), "capacity-exceeded", "/problem/capacity")
    assert of_one["detail"] == "Buffer 'hidden' (row 2) alone has 13 bytes; the capacity is 12."


# ------------------------------------------------------------------------------ curves and verdicts


@pytest.mark.parametrize("route", ["tradeoff", "explain"])
def test_curves_and_verdicts_with_costs(http: httpx.Client, route: str) -> None:
    names = [name for name, _ in modelled_costs(CHAIN, PlanOptions()).nanoseconds]
    options = {"costs": {"nanoseconds": dict.fromkeys(names, 1_000_000)}, "capacity": 30_000}
    if route == "tradeoff":
        del options["capacity"]
    found = post(http, route, graph=CHAINED, options=options).json()
    assert found.get("update_nanoseconds", found.get("step_nanoseconds")) == 1_000_000 * len(names)


def test_a_capacity_that_is_not_kept_carries_a_verdict(http: httpx.Client, mnist: Document) -> None:
    with every() as case:
        for options, recompute in (
            ({"capacity": 17_000_000}, "impossible"),
            ({"capacity": 20_000_000, "as_written": True}, "open"),
            ({"capacity": 17_000_000, "only": ["recompute"]}, "impossible"),
        ):
            with case(options):
                refused = post(http, "plan", graph=mnist, options=options)
                assert checked(refused, "capacity-exceeded", "/options/capacity")["verdict"] == {
                    "floor": 17_035_072,
                    "floor_step": "conv2:calc_gradient",
                    "smallest": 21_613_184,
                    "recompute": recompute,
                }
    # Between the floor and the smallest plan.
    options = {"capacity": 17_100_000, "only": ["recompute"]}
    verdict = post(http, "plan", graph=mnist, options=options).json()["verdict"]
    assert verdict["recompute"] == "open"
    assert 17_100_000 < verdict["smallest"] < 21_613_184
    # Targets that run each step once have none.
    problem = post(http, "plan", graph=mnist, options={"capacity": 20_000_000, "target": "onert"}).json()
    assert problem["type"] == "/problems/capacity-exceeded"
    assert "verdict" not in problem
