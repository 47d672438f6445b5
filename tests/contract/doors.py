"""The doors of the project, each of which takes the same `Request` and gives an `Outcome`.

A door returns None for a request that it has no words for.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

import arenaplan
from solver import documents
from solver.errors import ArenaplanError, CapacityError, json_pointer
from solver.options import IMPORT_OPTIONS, LAYOUT_OPTIONS, REQUEST_OPTIONS, requested_as
from tests.support import commands
from tests.support.server import ROOT, die_with_parent

__all__ = ["ANY_PROBLEM", "CODES", "DOORS", "USAGE", "Document", "Outcome", "Request", "place"]

Document = dict[str, Any]

#: Options and members that flags repeat, item by item.
_REPEATED: Final = frozenset({"tiers", "memories", "place", "entries", "ties", "only", "dim"})

#: Stands for the type of a problem that the parser of the command line has.
USAGE: Final = "usage"

#: Exit code and HTTP status of problems; `ANY_PROBLEM` has those of all other types.
CODES: Final = {"invalid-json": (2, 400), "capacity-exceeded": (3, 409)}
ANY_PROBLEM: Final = (2, 422)

#: Exit codes of verdicts.
_VERDICT_CODES: Final = {"plan": 0, "impossible": 3, "open": 3}

_SUFFIXES: Final = {
    "c-header": ".h", "report": ".html", "perfetto": ".trace.json", "memory-viz": ".pickle",
    "offsets-csv": ".csv",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Request:
    """What is wanted of which models.

    `task` is ``plan``, ``layout``, ``tradeoff``, ``explain``, ``validate``, ``import`` or ``export``. A model
    is the value of a document, the text of one that may be damaged, or the bytes of another tool's file.
    `options` are those of an options document, and for other tools' files those of imports. `more` are
    members beside them as HTTP names them; a plan among them is the Request that makes it.
    """

    task: str
    models: Mapping[str, Document | str | bytes]
    options: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Document | str | bytes:
        """The first model."""
        return next(iter(self.models.values()))

    @property
    def is_deployment(self) -> bool:
        return len(self.models) > 1 or bool({"entries", "ties"} & self.more.keys())

    @property
    def is_sayable(self) -> bool:
        """Whether flags can say it: all that is repeated is a list of texts."""
        members = {**self.options, **self.more}
        return all(
            isinstance(members[name], list) and all(isinstance(text, str) for text in members[name])
            for name in members.keys() & _REPEATED
        )

    @property
    def is_import(self) -> bool:
        return any(isinstance(model, bytes) for model in self.models.values())

    @property
    def is_program(self) -> bool:
        return isinstance(self.model, dict) and self.model.get("format") == "arenaplan.program"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a door: the document or exported bytes, or the type of a problem with its place.

    The command line has no type for words that its own parser or reader refuses: `USAGE`.
    """

    answer: Any = None
    problem: str | None = None
    pointer: str = ""
    text: str = ""
    code: int = 0


def place(pointer: str) -> str:
    """The part of a pointer that every door has: inside of the model, or inside of the options."""
    _, *parts = pointer.split("/")
    if parts[:1] == ["models"]:
        parts = parts[2:]
    elif parts and parts[0] in ("graph", "program", "problem", "model", "query", "options", "plan"):
        del parts[0]
    return "".join(f"/{part}" for part in parts)


def _text(model: Document | str) -> str:
    return model if isinstance(model, str) else json.dumps(model)


def _chosen(answer: Any, request: Request) -> Any:
    """Of a choice of what to train the facts that every door has: the names, and the bytes of the plan."""
    if "scores" not in request.more:
        return answer
    if "remedies" in answer:
        (remedy,) = answer["remedies"]
        return {"trainable": remedy["graph_fields"]["trainable"], "arena_bytes": remedy["arena_bytes"]}
    return {name: answer[name] for name in ("trainable", "arena_bytes")}


# -------------------------------------------------------------------------------------------- HTTP


def over_http(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """``POST /v1/{task}``, answered at once."""
    if request.task == "import":
        return None
    if request.task == "export":
        return _exported(request, http)
    body = _model_body(request, http) if request.is_import else _json_body(request, http)
    return _of_answer(http.post(**body), request)


def as_job(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """``POST /v1/jobs``, followed to its end."""
    if request.task == "export":
        return None
    if request.is_import:
        order = _model_order(request, http)
    else:
        body = _json_body(request, http)
        order = f'{{"task": "{body["url"].rpartition("/")[2]}", "request": {body["content"]}}}'
    if order is None:
        return None
    accepted = http.post("/v1/jobs", content=order, headers={"content-type": "application/json"})
    if accepted.status_code != 202:
        return _of_answer(accepted, request)
    job = accepted.json()["links"]
    http.get(job["events"])  # ends with the job
    answer = http.get(job["result"])
    if answer.status_code == 409 and "problem" in answer.json():
        problem = answer.json()["problem"]
        return _of_problem(problem, problem["status"])
    return _of_answer(answer, request)


def _json_body(request: Request, http: httpx.Client) -> dict[str, Any]:
    route = "program" if request.task == "plan" and request.is_program else request.task
    if request.is_deployment:
        route = request.task
    members = {name: json.dumps(_sent(value, http)) for name, value in request.more.items()}
    if request.options:
        members["options"] = json.dumps(request.options)
    texts = {name: _text(model) for name, model in request.models.items()}  # type: ignore[arg-type]  # no bytes
    if len(texts) > 1:
        members["models"] = _object(texts)
    else:
        member = {"program": "program", "layout": "problem"}.get(route, "graph")
        (members[member],) = texts.values()
    return {
        "url": f"/v1/{route}",
        "content": _object(members),
        "headers": {"content-type": "application/json"},
    }


def _object(members: Mapping[str, str]) -> str:
    """A JSON object of members that are text already, and may be damaged."""
    return "{" + ", ".join(f"{json.dumps(name)}: {text}" for name, text in members.items()) + "}"


def _sent(value: Any, http: httpx.Client) -> Any:
    """The document of a plan that a request names; other members as they are."""
    if not isinstance(value, Request):
        return value
    answer = http.post(**(_model_body(value, http) if value.is_import else _json_body(value, http)))
    assert answer.status_code == 200, answer.text
    return answer.json()


def _model_fields(request: Request, http: httpx.Client) -> dict[str, Any]:
    more = {
        name: _sent(value, http)["digest"] if isinstance(value, Request) else value
        for name, value in request.more.items()
    }
    return {**request.options, **more}


def _model_body(request: Request, http: httpx.Client) -> dict[str, Any]:
    assert len(request.models) == 1, "a query is about one model"
    params = {
        name: value if isinstance(value, str | list) else json.dumps(value)
        for name, value in _model_fields(request, http).items()
    }
    return {
        "url": f"/v1/{request.task}", "params": params, "content": request.model,
        "headers": {"content-type": "application/octet-stream"},
    }  # fmt: skip


def _model_order(request: Request, http: httpx.Client) -> str | None:
    assert isinstance(request.model, bytes)
    digest = hashlib.sha256(request.model).hexdigest()
    headers = {"content-type": "application/octet-stream"}
    assert http.put(f"/v1/graphs/{digest}", content=request.model, headers=headers).is_success
    more = {name: _sent(value, http) for name, value in request.more.items()}
    return json.dumps({"task": request.task, "graph": digest, "options": request.options, "request": more})


def _exported(request: Request, http: httpx.Client) -> Outcome:
    digest = _sent(request.more["of"], http)["digest"]
    query = {name: value for name, value in request.more.items() if name == "entry_point"}
    answer = http.get(f"/v1/plans/{digest}/{request.more['to']}", params=query)
    return Outcome(answer.content) if answer.is_success else _of_answer(answer, request)


def _of_answer(answer: httpx.Response, request: Request) -> Outcome:
    if answer.is_success:
        document = answer.json()
        if "digest" in document:
            assert answer.headers["ETag"] == f'"{document["digest"]}"'
        return Outcome(_chosen(document, request))
    return _of_problem(answer.json(), answer.status_code)


def _of_problem(problem: Document, code: int) -> Outcome:
    assert problem["status"] == code
    text = f"{problem['detail']} {problem.get('remedy', '')}"
    return Outcome(
        problem=problem["type"].removeprefix("/problems/"),
        pointer=problem.get("pointer", ""),
        text=text,
        code=code,
    )


# ------------------------------------------------------------------------------------ command line


def on_the_command_line(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """The command, in this process."""
    return _command(request, folder, (), _in_process)


def in_a_process(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """The command, as a process of its own."""
    return _command(request, folder, (), _as_process)


def through_a_server(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """The command with ``--server``."""
    if "scores" in request.more or "like" in request.more:
        return None
    if isinstance(request.options.get("batch"), str) and request.is_import:
        return None
    return _command(request, folder, ("--server", str(http.base_url)), _in_process)


_Run = Callable[[list[str], Path], tuple[int, str, str]]


def _in_process(words: list[str], folder: Path) -> tuple[int, str, str]:
    done = commands.run(*words)
    return done.exit_code, done.stdout, done.stderr


def _as_process(words: list[str], folder: Path) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "service.cli", *words]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=die_with_parent
    )
    return done.returncode, done.stdout, done.stderr


def _command(request: Request, folder: Path, where: tuple[str, ...], run: _Run) -> Outcome | None:
    models = [str(path) for path in _files(request, folder)]
    output = folder / "out.json"
    more = request.more
    if not request.is_sayable:
        return None
    words = list(_words(request.options, folder))
    match request.task:
        case "export":
            plan = _planned(more["of"], folder)
            output = output.with_suffix(_SUFFIXES[more["to"]])
            words = ["export", plan, "--to", more["to"], "-o", str(output)]
            if "entry_point" in more:
                words += ["--entry-point", more["entry_point"]]
        case "validate":
            plan = _planned(more["plan"], folder)
            words = ["validate", *models, plan, *words, "--steps", str(more.get("steps", 5))]
            words += ["--seed", str(more.get("seed", 0))]
        case "plan":
            words = ["plan", *models, *words, *_shared(request), "-o", str(output)]
            if "like" in more:
                words += ["--like", _planned(more["like"], folder)]
        case "tradeoff":
            words = ["tradeoff", *models, *words, *_given("points", more)]
        case "explain":
            words = ["explain", *models, *words]
            if "capacity" not in request.options:
                return None  # a required option
            if more.get("training") is False:
                words.append("--keep-training")
            if "scores" in more:
                scores = more["scores"]
                if not isinstance(scores, str):
                    (folder / "scores.json").write_text(json.dumps(scores), encoding="utf-8")
                    scores = str(folder / "scores.json")
                words += ["--choose-trainable", scores]
        case "layout":
            words = ["solve", *models, *words, "-o", str(output)]
        case "import":
            words = ["import", *models, *words, "-o", str(output)]
    code, printed, errors = run([*words, "--json", *where], folder)
    return _of_command(request, output, code, printed, errors)


def _of_command(request: Request, output: Path, code: int, printed: str, errors: str) -> Outcome:
    if errors.rpartition("\n{")[2].startswith(("{", '"error"')):
        facts = json.loads("{" + errors.rpartition("\n{")[2].removeprefix("{"))
        assert facts["exit"] == code, facts
        assert not output.exists(), "a refused request has written a file"
        return Outcome(
            problem=facts.get("type", "").removeprefix("/problems/"),
            pointer=facts.get("pointer", ""),
            text=f"{facts.get('detail', facts['error'])} {facts.get('remedy', '')}",
            code=code,
        )
    if code == 2 and not printed:
        assert not output.exists()
        return Outcome(problem=USAGE, text=errors, code=code)
    if request.task == "export":
        assert code == 0, errors
        return Outcome(output.read_bytes())
    written = request.task in ("plan", "layout", "import")
    try:
        answer = json.loads(output.read_bytes() if written else printed)
    except (OSError, ValueError):
        raise AssertionError(f"exit code {code}, no document: {printed}{errors}") from None
    expected = 0
    if request.task == "explain":
        has_remedy = bool(answer.get("remedies"))
        expected = (
            5 if has_remedy and answer["status"] != "plan" else _VERDICT_CODES.get(answer.get("status"), 0)
        )
    if request.task == "validate" and not answer["identical"]:
        expected = 1
    assert code == expected, f"exit code {code} of {answer}"
    return Outcome(_chosen(answer, request))


def _files(request: Request, folder: Path) -> Iterator[Path]:
    for name, model in request.models.items():
        if isinstance(model, bytes):
            path = folder / f"{name}{'.tflite' if model[4:8] == b'TFL3' else '.onnx'}"
            path.write_bytes(model)
        else:
            path = folder / f"{name}.json"
            path.write_text(_text(model), encoding="utf-8")
        yield path


def _planned(request: Request, folder: Path) -> str:
    """The path of the plan that `request` makes."""
    digest = hashlib.sha256(repr(request).encode()).hexdigest()[:12]
    path = folder / f"plan-{digest}.json"
    below = folder / digest
    below.mkdir()
    words = ["plan", *map(str, _files(request, below)), *_words(request.options, below), "-o", str(path)]
    words += _shared(request)
    code, _, errors = _in_process(words, folder)
    assert code == 0, errors
    return str(path)


def _shared(request: Request) -> list[str]:
    """The flags of entry points, ties, and several models."""
    words = ["--share"] * (len(request.models) > 1)
    words += [word for entry in request.more.get("entries", ()) for word in ("--entry", entry)]
    return words + [word for tie in request.more.get("ties", ()) for word in ("--tie", tie)]


def _given(name: str, members: Mapping[str, Any]) -> list[str]:
    return [f"--{name}", str(members[name])] if name in members else []


def _words(options: Mapping[str, Any], folder: Path) -> Iterator[str]:
    """The flags of options; costs are in a file of `folder`."""
    declared = {**LAYOUT_OPTIONS, **IMPORT_OPTIONS, **REQUEST_OPTIONS}
    for name, value in options.items():
        option = declared.get(name)
        flag = f"--{(option.flag if option else '') or name.replace('_', '-')}"
        match value:
            case True:
                yield flag
            case False:
                continue
            case list() if name == "only":
                yield from (flag, ",".join(value).replace("_", "-"))
            case list():
                yield from (word for item in value for word in (flag, str(item)))
            case dict() if name == "costs":
                (folder / "costs.json").write_text(
                    json.dumps({"format": "arenaplan.costs", "version": 1, **value}), encoding="utf-8"
                )
                yield from (flag, str(folder / "costs.json"))
            case dict():
                yield from (word for key, item in value.items() for word in (flag, f"{key}={item}"))
            case _:
                yield from (flag, str(value))


# ------------------------------------------------------------------------------------------ Python


def from_python(request: Request, http: httpx.Client, folder: Path) -> Outcome | None:
    """The function of `arenaplan`."""
    if request.task == "layout":
        return None
    try:
        return _called(request, folder)
    except ArenaplanError as error:
        return Outcome(
            problem=error.code,
            pointer=json_pointer((*map(requested_as, map(str, error.path[:1])), *error.path[1:])),
            text=f"{error.message} {error.remedy}",
            code=3 if isinstance(error, CapacityError) else 2,
        )


def _called(request: Request, folder: Path) -> Outcome | None:
    options, more = dict(request.options), dict(request.more)
    models: dict[str, Any] = dict(zip(request.models, _files(request, folder), strict=True))
    if request.is_import:
        choices = {name: options.pop(name) for name in IMPORT_OPTIONS if name in options}
        batch = options.pop("batch", None)
        models = {name: arenaplan.load_graph(path, batch=batch, **choices) for name, path in models.items()}
    model = next(iter(models.values()))
    match request.task:
        case "import":
            return Outcome(json.loads(documents.dump_graph(model)))
        case "plan" if request.is_deployment:
            if not request.is_sayable:
                return None
            several = models if len(models) > 1 else model
            made: Any = arenaplan.deploy(several, **more, **options)
            return Outcome(json.loads(documents.dump_deployment(made)))
        case "plan":
            if "like" in more:
                more["like"] = _planned(more["like"], folder)
            return Outcome(json.loads(documents.dump_plan(arenaplan.plan(model, **more, **options))))
        case "tradeoff":
            curve = arenaplan.tradeoff(model, **more, **options)
            return Outcome(json.loads(documents.dump_tradeoff(curve)))
        case "explain" if "scores" in more:
            scores = None if more["scores"] == "bytes" else more["scores"]
            chosen = arenaplan.choose_trainable(model, scores, **options)
            assert chosen.plan is not None
            return Outcome({"trainable": list(chosen.trainable), "arena_bytes": chosen.plan.arena_bytes})
        case "explain":
            verdict = arenaplan.explain(model, **more, **options)
            return Outcome(json.loads(documents.dump_verdict(verdict)))
        case "validate":
            planned: Any = arenaplan.load_plan(_planned(more["plan"], folder))
            subject = model
            if isinstance(planned, arenaplan.Deployment):
                subject = arenaplan.entry_graphs(models if len(models) > 1 else model, planned)
            elif not request.is_import:
                subject = arenaplan.load_graph(model, batch=planned.options.batch)
            report = arenaplan.validate(
                subject, planned, steps=more.get("steps", 5), seed=more.get("seed", 0)
            )
            return Outcome(json.loads(documents.dump_report(report)))
        case "export":
            planned = arenaplan.load_plan(_planned(more["of"], folder))
            if "entry_point" in more:
                planned = planned[more["entry_point"]].plan
            output = folder / f"exported{_SUFFIXES[more['to']]}"
            arenaplan.save(planned, output)
            return Outcome(output.read_bytes())
    return None


#: By name; a door of processes is slow, and takes few requests.
DOORS: Final[Mapping[str, Callable[[Request, httpx.Client, Path], Outcome | None]]] = {
    "http": over_http,
    "job": as_job,
    "command line": on_the_command_line,
    "server": through_a_server,
    "python": from_python,
    "process": in_a_process,
}
