"""Requests to the service, and reading of its answers. Nothing here uses the network."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import httpx

from clients.errors import CapacityExceeded, ProblemError, UnexpectedAnswer, WrongArgument
from clients.results import (
    LayoutResult,
    PlanResult,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
)

T = TypeVar("T")

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
#: In the place of a graph, the bytes or the path of a model of another tool will do: ONNX, Circle and others.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: The types of documents. No value of a graph document has one of them but those of its rules.
_DOCUMENTS: Final = (Mapping, bytes, PathLike)

#: The value of an option: a number, a text as "24MiB", a list of texts; None leaves it to the service.
Option = int | float | str | Sequence[str] | Mapping[str, Any] | None

#: Options by name. Those that a call has as keywords win over those of the mapping.
Options = Mapping[str, Any] | None

#: Scores of layers by the name of an operation or parameter, or "bytes".
Scores = Mapping[str, float] | Literal["bytes"] | None

#: An entry point: text as ``infer:batch=1,name=camera``, or its fields, ``purpose``, ``model``, ``batch`` and
#: ``name``.
Entry = str | Mapping[str, Any]

#: Of one call, in the place of the client's; None keeps that.
Timeout = httpx.Timeout | float | None

#: Graphs of more bytes are stored under their digest before a job names them: a job that is sent again does
#: not send them again.
INLINE_BYTES: Final = 1 << 20

_JSON_TYPE: Final = "application/json"
_MODEL_TYPE: Final = "application/octet-stream"
_MODEL_SUFFIXES: Final = (".onnx", ".circle", ".tflite", ".ini")

#: Parameters of a query that are sent as plain text: how a model is trained, and the digest of a plan. The
#: values of all others are sent as JSON.
_TEXTS: Final = frozenset({
    "loss", "output", "class_axis", "optimizer", "learning_rate", "trainable", "frozen", "batch_norm",
    "weights", "freeze_before", "keep_outputs", "plan",
})  # fmt: skip
#: Parameters that may be given several times.
_REPEATED: Final = ("dim", "input", "freeze_before", "entries", "ties")

#: The member of a request that holds the document; a graph unless it is named here.
_SUBJECTS: Final = {"program": "program", "layout": "problem"}

#: The member that holds several networks by name.
_MODELS: Final = "models"


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request; `path` follows the address of the client. Without a `timeout`: the client's."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: Timeout = None


@dataclass(frozen=True, slots=True)
class Payload:
    """The bytes of a document, or of a model of another tool."""

    data: bytes
    is_model: bool = False

    @property
    def media_type(self) -> str:
        return _MODEL_TYPE if self.is_model else _JSON_TYPE


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """Work for the service: a route does it at once (`request`), or a job does it later (`job_fields`).

    `read` makes the result from the response, which is the same in both cases.
    """

    name: str
    subject: Payload
    options: Mapping[str, Any]
    read: Callable[[httpx.Response], T]
    members: Mapping[str, Any] = field(default_factory=dict)
    member: str = ""

    def request(self, timeout: Timeout = None) -> Request:
        """The request that is answered with the result."""
        path = f"/v1/{self.name}"
        if not self.subject.is_model:
            # Validation takes only options of models, so its documents have no member for options.
            options = self.options if self.name == "validate" else {"options": self.options}
            return json_request(path, {self._member: self.subject.data, **options, **self.members}, timeout)
        query = {**self.options, **self.members}
        if "plan" in query:
            query["plan"] = _digest_of(query["plan"])
        pairs = [pair for name, value in query.items() for pair in _query_pairs(name, value)]
        target = f"{path}?{urlencode(pairs)}" if pairs else path
        return Request("POST", target, self.subject.data, {"Content-Type": _MODEL_TYPE}, timeout)

    @property
    def is_stored_first(self) -> bool:
        """Whether a job names its graph or model by a digest, under which it has to be stored before."""
        if self._member == _MODELS:
            return False
        return self.subject.is_model or len(self.subject.data) > INLINE_BYTES or self.name == "import"

    def job_fields(self, digest: str | None) -> dict[str, Any]:
        """The members of a job's document; `digest` is that of a stored graph or model."""
        members = dict(self.members) if self.name == "validate" else {"options": self.options, **self.members}
        if self.name == "validate" and self.options:
            members["options"] = self.options
        if digest is not None:
            return {"task": self.name, "graph": digest, "request": json_body(members)}
        return {"task": self.name, "request": json_body({self._member: self.subject.data, **members})}

    @property
    def _member(self) -> str:
        return self.member or _SUBJECTS.get(self.name, "graph")


# --------------------------------------------------------------------------------------------- tasks


def plan(graph: GraphLike, options: Options, more: Mapping[str, Option]) -> Task[PlanResult]:
    return Task("plan", payload(graph), merged(options, more), read_plan)


def deploy(
    models: GraphLike | Mapping[str, GraphLike],
    entries: Sequence[Entry],
    ties: Sequence[str],
    options: Options,
    more: Mapping[str, Option],
) -> Task[PlanResult]:
    members = {"entries": _listed(entries, "entries"), "ties": _listed(ties, "ties")}
    chosen = merged(options, more)
    if not isinstance(models, Mapping) or "format" in models:
        network = payload(models)
        if network.is_model and not entries:
            raise WrongArgument(
                "A model of another tool has no entry point by itself. Give entries=['train']."
            )
        return Task("plan", network, chosen, read_plan, members)
    return Task("plan", _by_name(models), chosen, read_plan, members, _MODELS)


def _by_name(models: Mapping[str, GraphLike]) -> Payload:
    """Several networks by name."""
    return Payload(json_body({name: _document(model).data for name, model in models.items()}))


def _listed(values: Sequence[Any], name: str) -> list[Any]:
    """Raises WrongArgument for a text, whose letters would be sent."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise WrongArgument(f"{name} is {values!r:.80}. Give a list, as {name}=[{values!r:.80}].")
    return list(values)


def program(document: GraphLike, options: Options, more: Mapping[str, Option]) -> Task[PlanResult]:
    return Task("program", _document(document), merged(options, more), read_plan)


def layout(problem: GraphLike, options: Options, more: Mapping[str, Option]) -> Task[LayoutResult]:
    return Task("layout", _document(problem), merged(options, more), read_layout)


def tradeoff(
    graph: GraphLike, options: Options, more: Mapping[str, Option], points: int
) -> Task[TradeOffResult]:
    return Task("tradeoff", payload(graph), merged(options, more), read_tradeoff, {"points": points})


def explain(
    graph: GraphLike,
    capacity: int | str,
    options: Options,
    more: Mapping[str, Option],
    training: bool,
    scores: Scores,
) -> Task[VerdictResult]:
    chosen = merged(options, {**more, "capacity": capacity})
    members: dict[str, Any] = {"training": training}
    if scores is not None:
        members["scores"] = scores
    return Task("explain", payload(graph), chosen, read_verdict, members)


def validate(
    graph: GraphLike | Mapping[str, GraphLike],
    planned: GraphLike,
    steps: int,
    seed: int,
    more: Mapping[str, Option],
) -> Task[ValidationResult]:
    members = {"steps": steps, "seed": seed, "plan": _document(planned).data}
    options = merged(None, more)
    if isinstance(graph, Mapping) and all(isinstance(one, _DOCUMENTS) for one in graph.values()):
        return Task("validate", _by_name(graph), options, read_report, members, _MODELS)
    return Task("validate", payload(graph), options, read_report, members)


def import_model(model: GraphLike, more: Mapping[str, Option]) -> Task[dict[str, Any]]:
    return Task("import", payload(model), merged(None, more), read_answer)


def merged(options: Options, more: Mapping[str, Any]) -> dict[str, Any]:
    """Both together; `more` wins. Options that are None are left to the service."""
    return {name: value for name, value in {**(options or {}), **more}.items() if value is not None}


def payload(graph: GraphLike) -> Payload:
    """The bytes to send. They are not read as JSON here, since the service judges them.

    Raises OSError for a file that cannot be read, WrongArgument for anything but a document.
    """
    if isinstance(graph, bytes):
        return Payload(graph, _looks_like_a_model(graph))
    if isinstance(graph, PathLike):
        path = Path(graph)
        data, suffix = path.read_bytes(), path.suffix.lower()
        return Payload(data, suffix in _MODEL_SUFFIXES or (suffix != ".json" and _looks_like_a_model(data)))
    if not isinstance(graph, Mapping):
        raise WrongArgument(
            f"A document of type {type(graph).__name__} cannot be sent. Give its JSON values as a mapping,"
            " its bytes, or a pathlib.Path of its file."
        )
    return Payload(_json_bytes(graph))


def _document(document: GraphLike) -> Payload:
    found = payload(document)
    if found.is_model:
        raise ValueError("A model of another tool will not do here: it stands in the place of a graph only.")
    return found


def _looks_like_a_model(data: bytes) -> bool:
    """A FlatBuffers file with an identifier of Circle or TensorFlow Lite, or a protobuf such as ONNX's."""
    return data.startswith(b"\x08") or data[4:8] in {b"CIR0", b"TFL3"}


def _digest_of(plan: bytes) -> str:
    document = json.loads(plan)
    if not isinstance(document, dict) or not isinstance(document.get("digest"), str):
        raise ValueError("This is not the document of a plan: it has no digest.")
    return str(document["digest"])


def _json_bytes(value: Any) -> bytes:
    """Raises ValueError for NaN and infinities, which JSON does not have, WrongArgument for other types."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise WrongArgument(f"{error}. Give numbers, text, lists or mappings of these.") from None


def json_body(members: Mapping[str, Any]) -> bytes:
    """One JSON object; members that are bytes are JSON already."""
    texts = (
        b"%b:%b" % (_json_bytes(name), value if isinstance(value, bytes) else _json_bytes(value))
        for name, value in members.items()
    )
    return b"{%b}" % b",".join(texts)


def json_request(
    path: str, members: Mapping[str, Any], timeout: Timeout, headers: Mapping[str, str] | None = None
) -> Request:
    """A POST of one JSON object."""
    return Request("POST", path, json_body(members), {"Content-Type": _JSON_TYPE, **(headers or {})}, timeout)


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if name in _REPEATED:
        values = [value] if isinstance(value, str) else value
        return [(name, json.dumps(one) if isinstance(one, Mapping) else str(one)) for one in values]
    if name in _TEXTS:
        return [(name, str(value))]
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:  # the service takes text that is not JSON as it is
            return [(name, value)]
    return [(name, json.dumps(value, allow_nan=False))]


def plan_request(digest: str, entry_point: str | None, timeout: Timeout) -> Request:
    """A GET of a kept plan, or of the plan of one of its entry points."""
    return Request(
        "GET", f"/v1/plans/{quote(digest, safe='')}{_query(entry_point=entry_point)}", timeout=timeout
    )


def export_request(digest: str, format_: str, timeout: Timeout, **parameters: str | None) -> Request:
    """A GET of a kept plan as another file, with those of the parameters that have a value."""
    path = f"/v1/plans/{quote(digest, safe='')}/{quote(format_, safe='')}"
    return Request("GET", path + _query(**parameters), timeout=timeout)


def _query(**parameters: str | None) -> str:
    """``?name=value`` for the parameters that have one."""
    words = [f"{name}={quote(value, safe='')}" for name, value in parameters.items() if value is not None]
    return f"?{'&'.join(words)}" if words else ""


# ----------------------------------------------------------------------------------------- responses


def address(base: httpx.URL, path: str) -> str:
    """The address of a request as a person may read it: without a password."""
    return f"{str(base.copy_with(username=None, password=None)).rstrip('/')}{path}"


def _answered(response: httpx.Response) -> str:
    return f"{address(response.request.url, '')} answered {response.status_code}"


def is_cached(response: httpx.Response) -> bool:
    """Whether the service had the answer already."""
    return bool(response.headers.get("X-Cache") == "hit")


def notes_of(response: httpx.Response) -> tuple[str, ...]:
    """Notes on the import of the model that was sent. Empty for graphs, and where the header is damaged."""
    try:
        notes = json.loads(response.headers.get("Arenaplan-Notes", "[]"))
    except ValueError:
        return ()
    return tuple(map(str, notes)) if isinstance(notes, list) else ()


def read_file(response: httpx.Response) -> bytes:
    """The body of a success. Raises the error of any other answer."""
    if not response.is_success:
        read_answer(response)
    return response.content


def read_answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a success. Raises ProblemError or UnexpectedAnswer."""
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnexpectedAnswer(f"{_answered(response)} with something other than a JSON object.")
    if response.is_success:
        return document
    if "type" not in document:
        raise UnexpectedAnswer(f"{_answered(response)} without saying why.")
    raise problem_of(document)


@contextlib.contextmanager
def reading(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The document of an answer; UnexpectedAnswer for one that lacks a member, of another version say."""
    document = read_answer(response)
    try:
        yield document
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnexpectedAnswer(
            f"{_answered(response)} with a document of another form: {error!r}."
        ) from error


def read_plan(response: httpx.Response) -> PlanResult:
    with reading(response) as document:
        return PlanResult.of(document, notes_of(response), cached=is_cached(response))


def read_layout(response: httpx.Response) -> LayoutResult:
    with reading(response) as document:
        return LayoutResult.of(document, cached=is_cached(response))


def read_tradeoff(response: httpx.Response) -> TradeOffResult:
    with reading(response) as document:
        return TradeOffResult.of(document, notes_of(response))


def read_verdict(response: httpx.Response) -> VerdictResult:
    with reading(response) as document:
        return VerdictResult.of(document, notes_of(response))


def read_report(response: httpx.Response) -> ValidationResult:
    with reading(response) as document:
        return ValidationResult.of(document, notes_of(response))


#: How results are read, by the name of the task.
READERS: Final[Mapping[str, Callable[[httpx.Response], Any]]] = {
    "plan": read_plan, "program": read_plan, "layout": read_layout, "tradeoff": read_tradeoff,
    "explain": read_verdict, "validate": read_report, "import": read_answer,
}  # fmt: skip


def problem_of(document: Mapping[str, Any]) -> ProblemError:
    """The error that a problem document describes; CapacityExceeded only where it has all figures."""
    if str(document["type"]).endswith("/capacity-exceeded"):
        with contextlib.suppress(ValueError):
            return CapacityExceeded(document)
    return ProblemError(document)
