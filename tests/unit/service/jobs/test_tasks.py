"""Workers handle requests in this process: limits, keys, fallbacks, memory."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.http.examples import example
from service.http.schemas import Progress
from service.http.state import State
from service.jobs.tasks import TASKS, warm
from service.problems import Problem
from service.settings import Settings
from solver import documents, executor, pipeline
from solver.canonical import canonical_json
from solver.compile import load
from solver.program import EntryKind
from solver.verdict import choose_trainable
from tests.support.every import every
from tests.support.graphs import chain
from tests.support.programs import CHAIN_DOCUMENT
from tests.support.rewritable import mobile_block
from tests.support.server import ROOT

TINY: dict[str, Any] = example("tiny")["graph"]


class Recorder:
    """The worker's side of a conversation; `known` answers every offer."""

    def __init__(self, *, known: bool = False) -> None:
        self.sent: list[tuple[str, dict[str, Any], bytes]] = []
        self.offered: list[str] = []
        self.followed: list[tuple[str, dict[str, Any]]] = []
        self.stages: list[str] = []
        self._known = known

    def send(self, kind: str, head: Mapping[str, Any], body: bytes = b"") -> None:
        self.sent.append((kind, dict(head), body))

    def offer(self, key: str) -> bool:
        self.offered.append(key)
        return not self._known

    def stage(self, name: str, seconds: float) -> None:
        self.stages.append(name)

    def progress(self, stage: str, **facts: Any) -> None:
        self.followed.append((stage, facts))

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _, _ in self.sent]


def limits(**settings: Any) -> Mapping[str, Any]:
    state: Any = State(Settings(workers=1, **settings), pool=None, cache=None)  # type: ignore[arg-type]  # unused
    chosen: Mapping[str, Any] = state.limits
    return chosen


def run(task: str, request: Any, *, known: bool = False, **settings: Any) -> Recorder:
    channel = Recorder(known=known)
    body = request if isinstance(request, bytes) else json.dumps(request).encode()
    TASKS[task](limits(**settings), body, channel)  # type: ignore[arg-type]  # stands in for a Channel
    return channel


def plan(known: bool = False, settings: Mapping[str, Any] | None = None, **options: Any) -> Recorder:
    return run("plan", {"graph": TINY, "options": options}, known=known, **(settings or {}))


@pytest.mark.parametrize("task", ["plan", "explain", "tradeoff"])
def test_searches_for_what_runs_again_are_told(task: str) -> None:
    graph = json.loads(documents.dump_graph(chain((16,) * 7, batch=64)))
    options = {
        "plan": {"only": ["recompute"], "capacity": 33_000},
        "explain": {"capacity": 33_000},
        "tradeoff": {},
    }
    followed = run(task, {"graph": graph, "options": options[task]}).followed
    told = [facts for stage, facts in followed if stage == "recompute" and facts]
    assert {"peak_bytes", "extra_nanoseconds", "bound_nanoseconds", "step_nanoseconds"} <= told[-1].keys()
    assert None not in told[-1].values()
    Progress.model_validate({"stage": "recompute", "seconds": 0.5, **told[-1]})


def test_a_program() -> None:
    """Planned in its own task; with a deadline the greedy plan goes ahead, under the target of programs."""
    request = {"program": example("parallel")["program"], "options": {"parallelism": 2}}
    (kind, head, body), *rest = run("program", request).sent
    made = documents.load_plan(body)
    assert (kind, rest, head["digest"]) == ("result", [], made.digest)
    assert made.times == (0, 0, 1, 1)
    assert run("program", request, known=True).sent == [("result", {}, b"")]
    late = run("program", {**request, "options": {"deadline_seconds": 0.0}})
    assert late.kinds == ["fallback", "result"]
    fallback = documents.load_plan(late.sent[0][2])
    assert (fallback.options.target, fallback.deterministic) == ("program", False)


def test_what_to_train_is_chosen_by_scores() -> None:
    """The only remedy: the choice of `choose_trainable`, planned; by bytes without scores of one's own."""
    network = chain((16, 24, 8, 12), 8)
    graph = json.loads(documents.dump_graph(network))
    scores = {"fc1": 1.0, "fc3": 9.0}
    usual = pipeline.plan_requested(network).arena_bytes
    options = {"capacity": usual * 4 // 5}
    for given, by_name in ((scores, scores), ("bytes", None)):
        (_, _, body), *_ = run("explain", {"graph": graph, "options": options, "scores": given}).sent
        verdict = documents.load_verdict(body)
        chosen = choose_trainable(network, documents.load_options(options), by_name)
        (remedy,) = verdict.remedies
        assert chosen.plan is not None
        assert remedy.graph_fields == {"trainable": list(chosen.trainable)}
        assert (remedy.arena_bytes, remedy.changes.value) == (chosen.plan.arena_bytes, "training")
        assert ("no set with a larger score fits" in remedy.note) == chosen.exact
        again = {**graph, **remedy.graph_fields}
        (_, head, _), *_ = run("plan", {"graph": again, "options": dict(remedy.options)}).sent
        assert head["arena_bytes"] == remedy.arena_bytes


@pytest.mark.parametrize(
    ("scores", "pointer", "words"),
    [
        ({"nobody": 1}, "/scores/nobody", "reads no parameter"),
        ({"nobody": -1}, "/scores/nobody", "reads no parameter"),
        ([1], "/scores", r'"scores" is \[1\]'),
        ({"a": "1"}, "/scores", '"scores" is'),
        ({}, "/scores", "nothing to choose from"),
    ],
)
def test_scores_that_are_none(scores: object, pointer: str, words: str) -> None:
    with pytest.raises(Problem, match=words) as caught:
        run("explain", {"graph": TINY, "options": {"capacity": 1000}, "scores": scores})
    assert caught.value.pointer == pointer


def test_a_program_has_no_layers() -> None:
    with pytest.raises(Problem, match="neither dimensions nor layers") as caught:
        run("explain", {"graph": CHAIN_DOCUMENT, "options": {"capacity": 1000}, "scores": "bytes"})
    assert caught.value.pointer == "/scores"


def test_a_plan() -> None:
    (kind, head, body), *rest = plan().sent
    made = documents.load_plan(body)
    assert (kind, rest) == ("result", [])
    assert head["digest"] == made.digest
    assert head["deterministic"] is True
    assert head["arena_bytes"] == made.arena_bytes
    assert head["status"] == "optimal"


def test_keys() -> None:
    """Equal requests have equal ones; another option, title or kind of document has another."""
    known = plan(known=True)
    assert known.sent == [("result", {}, b"")]
    (key,) = known.offered
    assert plan(known=True, solver="portfolio", batch=None).offered == [key]
    others = [
        plan(known=True, **options)
        for options in ({"batch": 4}, {"solver": "greedy"}, {"alignment": 128}, {"capacity": 10**9})
    ]
    others.append(run("plan", {"graph": {**TINY, "name": "renamed"}}, known=True))
    parallel = example("parallel")["program"]
    others += [run("program", {"program": one}) for one in (parallel, {**parallel, "name": "another"})]
    assert len({key, *(channel.offered[0] for channel in others)}) == 1 + len(others)


def test_a_plan_is_like_another_one() -> None:
    """Under another key; with a deadline as well it keeps the places of weights."""
    first = plan(reserved=["0..4KiB"])
    like = {"graph": TINY, "like": documents.parse_json(first.sent[-1][2])}
    assert run("plan", like, known=True).offered not in ([], first.offered)
    late = run("plan", {**like, "options": {"deadline_seconds": 30}})
    places = [_places_of_weights(channel.sent[-1][2]) for channel in (first, run("plan", like), late)]
    assert places[0] == places[1] == places[2]
    assert min(places[0].values()) >= 4096


def _places_of_weights(body: bytes) -> dict[str, int]:
    made = documents.load_plan(body)
    numbers = [entry.value for entry in made.program.entry if entry.kind is EntryKind.CARRIED]
    return {made.program.values[number].label: made.offsets[number] for number in numbers}


def test_a_deadline_has_a_fallback_first() -> None:
    channel = plan(deadline_seconds=30.0)
    assert channel.kinds == ["fallback", "result"]
    assert channel.offered == []
    _, head, body = channel.sent[0]
    late = documents.load_plan(body)
    assert late.deterministic is False
    assert late.options.deadline_seconds == 30.0
    assert late.options.solver == "portfolio"
    assert head["seconds"] == 30.0


def test_a_fallback_does_not_wait_for_rewriting() -> None:
    """It asked for rewriting all the same, and validates as a plan that found nothing to replace."""
    graph = json.loads(documents.dump_graph(mobile_block()))
    channel = run("plan", {"graph": graph, "options": {"deadline_seconds": 30.0, "rewrite": True}})
    late, made = (documents.load_plan(body) for _, _, body in channel.sent)
    assert late.options == made.options
    assert (late.replacements, len(made.replacements) > 0) == ((), True)
    assert executor.validate(mobile_block(), late, steps=1).identical


def test_a_fallback_beyond_the_capacity_is_none() -> None:
    tight = pipeline.plan(documents.load_graph(TINY)).arena_bytes
    channel = plan(deadline_seconds=30.0, capacity=tight)
    assert set(channel.kinds) <= {"fallback", "result"}
    for _, _, body in channel.sent:
        assert documents.load_plan(body).arena_bytes <= tight


def test_recomputation_and_a_capacity_that_nothing_keeps() -> None:
    graph = json.loads((ROOT / "examples/mnist.json").read_bytes())
    options = {"capacity": "17.2MB", "only": ["recompute"]}
    (kind, _, body), *rest = run("plan", {"graph": graph, "options": options}).sent
    assert (kind, rest) == ("result", [])
    made = documents.load_plan(body)
    assert made.arena_bytes == 17_135_488
    assert made.options.recompute
    late = run("plan", {"graph": graph, "options": {**options, "deadline_seconds": 30.0}})
    assert late.kinds == ["result"]  # what is found at once exceeds the capacity
    with pytest.raises(Problem) as caught:
        run("plan", {"graph": graph, "options": {**options, "capacity": "16MB"}})
    assert caught.value.pointer == "/options/capacity"
    assert "takes less than 17,035,072 bytes" in caught.value.detail
    assert caught.value.extensions["required"] == 17_035_072


def test_the_default_deadline() -> None:
    channel = plan(settings={"deadline_default_seconds": 20.0})
    assert channel.kinds == ["fallback", "result"]
    assert documents.load_plan(channel.sent[1][2]).options.deadline_seconds == 20.0


@pytest.mark.parametrize("seconds", [61.0, 1.7e308])
def test_the_longest_deadline(seconds: float) -> None:
    with pytest.raises(Problem) as caught:
        plan(deadline_seconds=seconds)
    assert caught.value.pointer == "/options/deadline_seconds"
    assert "60" in caught.value.remedy


def test_reading_ends_at_the_deadline() -> None:
    """The search gets the time left after reading; a request that takes longer to read is given up."""
    buffers = [{"id": str(k), "size": 1, "start": 0, "end": 1} for k in range(20_000)]
    request = {"problem": {"buffers": buffers}, "options": {"deadline_seconds": 0.0}}
    with pytest.raises(Problem, match="not read within") as caught:
        run("layout", request, deadline_floor_seconds=0.0)
    assert caught.value.kind.code == "time-limit"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_a_deadline_is_recorded_as_it_was_asked_for() -> None:
    channel = run("layout", {**example("buffers"), "options": {"deadline_seconds": 20.0}})
    assert channel.kinds == ["fallback", "result"]
    documented = [documents.load_layout(body).options.deadline_seconds for _, _, body in channel.sent]
    assert documented == [20.0, 20.0]


def test_the_most_of_everything() -> None:
    """Work on one operation may grow with the square of its operands, which take few bytes of a request."""
    many: dict[str, Any] = json.loads(json.dumps(TINY))
    many["operations"][1]["inputs"] = ["h"] * 6
    wide: dict[str, Any] = json.loads(json.dumps(TINY))
    wide["operations"][1]["outputs"] = ["h"] * 6
    program = json.loads(json.dumps(example("parallel")["program"]))
    program["operations"][0]["reads"] = ["a"] * 6
    explain = {"options": {"capacity": 9}}
    inputs, outputs = ("/graph/operations/1/inputs", "6 inputs"), ("/graph/operations/1/outputs", "6 outputs")
    rows: tuple[tuple[str, Any, dict[str, Any], str, str, str], ...] = (
        *(
            (task, {"graph": graph, **more}, {"max_operands": 5}, "too-many-operations", *said)
            for task, more in (("plan", {}), ("tradeoff", {}), ("explain", explain))
            for graph, said in ((many, inputs), (wide, outputs))
        ),
        (
            "program", {"program": program}, {"max_operands": 5},
            "too-many-operations", "/program/operations/0/reads", "6 reads",
        ),
        ("layout", example("buffers"), {"max_buffers": 4}, "too-many-buffers", "/problem/buffers", "buffers"),
        (
            "plan", {"graph": TINY}, {"max_operations": 2},
            "too-many-operations", "/graph/operations", "operations",
        ),
    )  # fmt: skip
    with every() as case:
        for task, request, settings, code, pointer, words in rows:
            with case((task, pointer)):
                with pytest.raises(Problem, match=words) as caught:
                    run(task, request, **settings)
                assert (caught.value.kind.code, caught.value.pointer) == (code, pointer)


def validate(**more: Any) -> Recorder:
    made = json.loads(documents.dump_plan(pipeline.plan(documents.load_graph(TINY))))
    settings = more.pop("settings", {})
    return run("validate", {"graph": TINY, "plan": made, **more}, **settings)


def test_default_steps_stay_within_the_limit() -> None:
    ((_, _, body),) = validate(settings={"validate_max_steps": 3}).sent
    assert len(documents.load_report(body).steps) == 3


def test_the_memory_of_a_validation() -> None:
    with pytest.raises(Problem) as caught:
        validate(settings={"validate_max_bytes": 1000})
    problem = caught.value
    assert problem.kind.code == "validation-too-large"
    assert problem.extensions["excess"] == problem.extensions["required"] - 1000 > 0


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("kernels", 0, 1, "transB"), 0.0, "the attribute 'transB' is 0.0, not 0"),
        (("kernels", 0, 1, "alpha"), -1.0, "the attribute 'alpha' is -1.0, not 1.0"),
        (("kernels", 0, 1, "beta"), [1.0], "the attribute 'beta'"),
        (("initial", 0, 2), -0.0, "begins with other values"),
        (("graph_digest",), "0" * 64, "digest"),
        (("values", 0, 0), "@lost", "the value of this name is another one"),
    ],
)
def test_a_forged_plan_is_refused_without_training(path: tuple[Any, ...], value: Any, words: str) -> None:
    """Its digest was made anew; what changed has another type, other bits, or another name."""
    document = json.loads(documents.dump_plan(pipeline.plan(documents.load_graph(TINY))))
    holder = document
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    content = {name: each for name, each in document.items() if name != "digest"}
    document["digest"] = hashlib.sha256(canonical_json(content)).hexdigest()
    with pytest.raises(Problem) as caught:
        validate(plan=document)
    assert caught.value.kind.status in (400, 422)
    assert words in caught.value.detail


_ON_A_NEW_MACHINE = """
import sys
from tests.unit.service.jobs.test_tasks import run
buffers = [
    {"id": str(i), "size": 9 * i % 97 + 1, "start": i, "end": i + 9, "gaps": [{"start": i + 3, "end": i + 6}]}
    for i in range(400)
]
problem = {"format": "arenaplan.buffers", "version": 1, "buffers": buffers}
sent = run("layout", {"problem": problem, "options": {"deadline_seconds": 0.5}}).sent
first, last = (head["arena_bytes"] for _, head, _ in sent)
print([kind for kind, _, _ in sent], "numba" in sys.modules, first >= last)
"""


def test_a_layout_on_a_new_machine_does_not_wait_for_what_compiles(tmp_path: Path) -> None:
    empty = {"HOME": str(tmp_path), "XDG_CACHE_HOME": "", "NUMBA_CACHE_DIR": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", _ON_A_NEW_MACHINE],
        cwd=ROOT,
        env={**os.environ, **empty},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "['fallback', 'result'] False True\n", done.stderr


def test_warming_up_loads_what_is_optional() -> None:
    assert load()
    assert warm() == {"compiled_search": True, "cp_sat": True}
    assert "ortools.sat.python.cp_model" in sys.modules


def test_warming_up_without_ortools(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "ortools.sat.python.cp_model", None)
    assert load()
    assert warm() == {"compiled_search": True, "cp_sat": False}
    assert "Layouts are made without CP-SAT" in caplog.text
