"""Problem types: one for every error of the core, stable, and complete documents."""

from __future__ import annotations

import json
from collections.abc import Iterator

from service.http.web.pages import problems_page
from service.problems import CATALOGUE, Problem, problem_from
from solver import errors
from solver.errors import ArenaplanError, CapacityError, OptionsError, ShapeMismatchError

#: Problem types that clients may rely on; removing one breaks them.
STABLE = {
    "invalid-json": 400, "bad-request": 400, "not-found": 404, "plan-not-found": 404,
    "layout-not-found": 404,
    "method-not-allowed": 405,
    "capacity-exceeded": 409, "body-too-large": 413, "unsupported-media-type": 415, "invalid-document": 422,
    "invalid-graph": 422, "unknown-operator": 422, "invalid-attribute": 422, "shape-mismatch": 422,
    "invalid-dimension": 422, "invalid-batch": 422, "cyclic-graph": 422, "use-before-def": 422,
    "duplicate-def": 422, "duplicate-name": 422, "dangling-operand": 422, "invalid-trainable": 422,
    "invalid-loss": 422, "invalid-state": 422, "invalid-storage": 422,
    "too-many-operations": 422, "invalid-options": 422,
    "invalid-problem": 422, "invalid-plan": 422, "invalid-request": 422, "validation-too-large": 422,
    "unauthorized": 401,
    "forbidden": 403,
    "quota": 429,
    "unknown-host": 421,
    "issuer-unavailable": 503,
    "internal-error": 500, "overloaded": 503, "worker-lost": 503, "time-limit": 422,
    "memory-limit": 422, "too-many-buffers": 422, "too-many-bytes": 429,
    "stopping": 503,
    "database-unavailable": 503, "jobs-off": 503, "job-not-found": 404,
    "job-not-finished": 409, "job-failed": 409, "job-cancelled": 409,
    "job-expired": 410, "too-many-jobs": 429,
    "idempotency-conflict": 422, "graph-not-found": 404, "digest-mismatch": 422,
}  # fmt: skip


def kinds(base: type[ArenaplanError] = ArenaplanError) -> Iterator[type[ArenaplanError]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_stable() -> None:
    assert {code: kind.status for code, kind in CATALOGUE.items()} == STABLE


def test_every_error_of_the_core_has_a_type() -> None:
    unknown = [kind for kind in kinds() if kind.code not in CATALOGUE or not hasattr(errors, kind.__name__)]
    assert unknown == []


def test_every_type_is_explained() -> None:
    for code, kind in CATALOGUE.items():
        assert kind.title.strip("."), code
        assert kind.explanation.endswith("."), code


def test_document() -> None:
    problem = Problem(
        "shape-mismatch", "They differ.", remedy="Fix it.", pointer="/graph", extensions={"x": 1}
    )
    assert problem.document("urn:request:1") == {
        "type": "/problems/shape-mismatch",
        "title": "Shapes do not fit together",
        "status": 422,
        "detail": "They differ.",
        "instance": "urn:request:1",
        "pointer": "/graph",
        "remedy": "Fix it.",
        "x": 1,
    }


def test_what_is_not_known_is_left_out() -> None:
    assert set(Problem("overloaded", "Busy.").document()) == {"type", "title", "status", "detail"}


def test_the_whole_document_is_a_pointer_too() -> None:
    assert Problem("invalid-json", "No.", pointer="").document()["pointer"] == ""


def test_an_unknown_code_is_a_bug() -> None:
    assert Problem("made-up", "?").kind.status == 500


def test_facts_cross_a_process_border() -> None:
    problem = Problem(
        "overloaded",
        "Busy.",
        remedy="Wait.",
        pointer="/a",
        extensions={"n": [1]},
        headers={"Retry-After": "1"},
    )
    again = Problem(**json.loads(json.dumps(problem.facts())))
    assert again.facts() == problem.facts()
    assert again.document() == problem.document()


def test_pointers_are_prefixed() -> None:
    error = ShapeMismatchError("They differ.", remedy="Fix it.", path=("operations", 3, "a/b"))
    problem = problem_from(error, ("graph",))
    assert problem.pointer == "/graph/operations/3/a~1b"
    assert (problem.kind.code, problem.detail, problem.remedy) == (
        "shape-mismatch",
        "They differ.",
        "Fix it.",
    )


def test_options_point_into_the_options() -> None:
    assert problem_from(OptionsError("Bad.", path=("solver",)), ("graph",)).pointer == "/options/solver"


def test_capacity() -> None:
    error = CapacityError("Too large.", required=12, available=10, live_at_peak=[("w", 8), ("x", 4)])
    problem = problem_from(error, ("graph",))
    assert problem.kind.status == 409
    assert problem.pointer == "/options/capacity"
    assert problem.extensions == {
        "required": 12,
        "available": 10,
        "excess": 2,
        "proved": False,
        "live_at_peak": [{"operand": "w", "bytes": 8}, {"operand": "x", "bytes": 4}],
    }


def test_pages_show_code_as_code() -> None:
    page = problems_page("")
    assert "<code>live_at_peak</code> lists" in page
    assert "`" not in page
