"""Requests to the service, and reading of its answers. Nothing here uses the network."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import httpx

from clients.connections import Request, Timeout, address, document_of
from clients.errors import UnexpectedAnswer, WrongArgument, problem_of

T = TypeVar("T")

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
#: In the place of a graph, the bytes or the path of a model of another tool will do: ONNX, Circle and others.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: The types of documents. No value of a graph document has one of them but those of its rules.
DOCUMENTS: Final = (Mapping, bytes, PathLike)

#: The value of an option: a number, a text as "24MiB", a list of texts; None leaves it to the service.
Option = int | float | str | Sequence[str] | Mapping[str, Any] | None

#: Options by name. Those that a call has as keywords win over those of the mapping.
Options = Mapping[str, Any] | None

#: Scores of layers by the name of an operation or parameter, or "bytes".
Scores = Mapping[str, float] | Literal["bytes"] | None

#: An entry point: text as ``infer:batch=1,name=camera``, or its fields, ``purpose``, ``model``, ``batch`` and
#: ``name``.
Entry = str | Mapping[str, Any]

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


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """Work for the service: a route does it at once (`request`), or a job does it later (`job_requests`).

    `of` makes the result, as `read` says. The subject is a graph or a model of another tool, unless `member`,
    which holds it in a request, is that of another document, or of several ``models`` by name.

    The methods read files and write JSON. They raise OSError for a file that cannot be read, WrongArgument
    and ValueError for what cannot be sent.
    """

    name: str
    of: Callable[..., T]
    subject: Any
    options: dict[str, Any]
    members: Mapping[str, Any] = field(default_factory=dict)
    member: str = "graph"

    def request(self, timeout: Timeout) -> Request:
        """The request that is answered with the result."""
        path, members = f"/v1/{self.name}", self._read_members()
        data, is_model = self._read_subject()
        if not is_model:
            # Validation takes only options of models, so its documents have no member for options.
            options = self.options if self.name == "validate" else {"options": self.options}
            return _json_request(path, {self.member: data, **options, **members}, timeout)
        if "plan" in members:
            members["plan"] = _digest_of(members["plan"])
        query = {**self.options, **members}
        pairs = [pair for name, value in query.items() for pair in _query_pairs(name, value)]
        target = f"{path}?{urlencode(pairs)}" if pairs else path
        return Request("POST", target, data, {"Content-Type": _MODEL_TYPE}, timeout)

    def job_requests(self, timeout: Timeout) -> tuple[Request | None, Request]:
        """The request that stores a large graph or a model, None for others, and that which submits the job.

        An option called `idempotency_key` is that of the job; without it, each call makes a new one.
        """
        options, members = dict(self.options), self._read_members()
        headers = {"Idempotency-Key": options.pop("idempotency_key", None) or uuid.uuid4().hex}
        data, is_model = self._read_subject()
        if options or self.name != "validate":
            members["options"] = options
        # Several models are sent in the job itself.
        if self.member == "models" or not (is_model or len(data) > INLINE_BYTES or self.name == "import"):
            document = {"task": self.name, "request": _json_body({self.member: data, **members})}
            return None, _json_request("/v1/jobs", document, timeout, headers)
        digest, kind = hashlib.sha256(data).hexdigest(), _MODEL_TYPE if is_model else _JSON_TYPE
        store = Request("PUT", f"/v1/graphs/{digest}", data, {"Content-Type": kind}, timeout)
        document = {"task": self.name, "graph": digest, "request": _json_body(members)}
        return store, _json_request("/v1/jobs", document, timeout, headers)

    def _read_members(self) -> dict[str, Any]:
        return {name: _document(value) if name == "plan" else value for name, value in self.members.items()}

    def _read_subject(self) -> tuple[bytes, bool]:
        """The bytes to send, and whether they are a model of another tool."""
        if self.member == "models":
            return _json_body({name: _document(model) for name, model in self.subject.items()}), False
        if self.member != "graph":
            return _document(self.subject), False
        data, is_model = _read(self.subject)
        if is_model and self.members.get("entries") == []:
            raise WrongArgument(
                "A model of another tool has no entry point by itself. Give entries=['train']."
            )
        return data, is_model


# ----------------------------------------------------------------------------------------- arguments


def _read(graph: GraphLike) -> tuple[bytes, bool]:
    """The bytes of a graph or model, and whether it is a model of another tool.

    They are not read as JSON here, since the service judges them.
    """
    if isinstance(graph, bytes):
        return graph, _looks_like_a_model(graph)
    if isinstance(graph, PathLike):
        path = Path(graph)
        data, suffix = path.read_bytes(), path.suffix.lower()
        return data, suffix in _MODEL_SUFFIXES or (suffix != ".json" and _looks_like_a_model(data))
    if not isinstance(graph, Mapping):
        raise WrongArgument(
            f"A document of type {type(graph).__name__} cannot be sent. Give its JSON values as a mapping,"
            " its bytes, or a pathlib.Path of its file."
        )
    return _json_bytes(graph), False


def _document(document: GraphLike) -> bytes:
    data, is_model = _read(document)
    if is_model:
        raise ValueError("A model of another tool will not do here: it stands in the place of a graph only.")
    return data


def listed(values: Sequence[Any], name: str) -> list[Any]:
    """Raises WrongArgument for a text, whose letters would be sent."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise WrongArgument(f"{name} is {values!r:.80}. Give a list, as {name}=[{values!r:.80}].")
    return list(values)


def merged(options: Options, more: Mapping[str, Any]) -> dict[str, Any]:
    """Both together; `more` wins. Options that are None are left to the service."""
    return {name: value for name, value in {**(options or {}), **more}.items() if value is not None}


def path_of(*parts: str, **query: str | None) -> str:
    """A path below ``/v1``, with those of the parameters that have a value."""
    path = "/".join(["/v1", *(quote(part, safe="") for part in parts)])
    pairs = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(pairs, quote_via=quote, safe='')}" if pairs else path


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


def _json_body(members: Mapping[str, Any]) -> bytes:
    """One JSON object; members that are bytes are JSON already."""
    texts = (
        b"%b:%b" % (_json_bytes(name), value if isinstance(value, bytes) else _json_bytes(value))
        for name, value in members.items()
    )
    return b"{%b}" % b",".join(texts)


def _json_request(
    path: str, members: Mapping[str, Any], timeout: Timeout, headers: Mapping[str, str] | None = None
) -> Request:
    """A POST of one JSON object."""
    headers = {"Content-Type": _JSON_TYPE, **(headers or {})}
    return Request("POST", path, _json_body(members), headers, timeout)


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


# ----------------------------------------------------------------------------------------- responses


def notes_of(response: httpx.Response) -> tuple[str, ...]:
    """Notes on the import of the model that was sent. Empty for graphs, and where the header is damaged."""
    try:
        notes = json.loads(response.headers.get("Arenaplan-Notes", "[]"))
    except ValueError:
        return ()
    return tuple(map(str, notes)) if isinstance(notes, list) else ()


def is_cached(response: httpx.Response) -> bool:
    """Whether the service had the answer already."""
    return bool(response.headers.get("X-Cache") == "hit")


def check(response: httpx.Response) -> httpx.Response:
    """The response, if it is a success. Raises as `read` for any other."""
    if not response.is_success:
        read(response, dict)
    return response


def read(response: httpx.Response, of: Callable[..., T]) -> T:
    """The result that `of` makes of a successful answer: its document, its notes, and whether it was cached.

    Raises ProblemError for what the service declines, and UnexpectedAnswer for anything else: a document
    that lacks a member, of another version say.
    """
    document = document_of(response)
    if document is None:
        raise UnexpectedAnswer(f"{_answered(response)} with something other than a JSON object.")
    if not response.is_success and "type" not in document:
        raise UnexpectedAnswer(f"{_answered(response)} without saying why.")
    if not response.is_success:
        raise problem_of(document)
    try:
        return of(document, notes_of(response), is_cached(response))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        words = f"{_answered(response)} with a document of another form: {error!r}."
        raise UnexpectedAnswer(words) from error


def _answered(response: httpx.Response) -> str:
    return f"{address(response.request.url, '')} answered {response.status_code}"
