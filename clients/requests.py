"""What is sent to the service, and how its answers are read; nothing here waits."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

import httpx

from clients.errors import CapacityExceeded, ProblemError, UnexpectedAnswer
from clients.steps import Request, Steps, do

__all__ = [
    "DEFAULT_LIMITS",
    "DEFAULT_TIMEOUT",
    "GraphLike",
    "Loaded",
    "Option",
    "Timeout",
    "address",
    "digest_of",
    "document",
    "export_path",
    "given_options",
    "is_cached",
    "json_body",
    "json_bytes",
    "json_request",
    "loaded",
    "model_request",
    "notes_of",
    "problem_of",
    "read_answer",
    "read_file",
    "reading",
    "timeout_of",
]

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
#: Where a graph is meant, the bytes or the path of a model of another tool will do: ONNX, Circle and others.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: The value of an option: a number, a text as "24MiB", a list of texts; None leaves it to the service.
Option = int | float | str | Sequence[str] | Mapping[str, Any] | None

#: Of one call, in the place of the client's; None keeps that.
Timeout = httpx.Timeout | float | None

#: Connecting succeeds soon or not at all; a solve may use the service's whole time limit of a minute, and
#: wait for a worker before that. Calls beyond `DEFAULT_LIMITS` wait for their turn as long as it takes.
DEFAULT_TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0, read=120.0, pool=None)

#: Fewer connections than requests may wait at the service, so that one client alone cannot overload it.
DEFAULT_LIMITS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=32)

_JSON_TYPE: Final = "application/json"
_MODEL_TYPE: Final = "application/octet-stream"

#: What `arenaplan plan --help` calls "of a model": how it is trained; and a plan's digest. Sent as text; all
#: else as JSON.
_CHOICES: Final = frozenset(
    {
        "loss",
        "output",
        "class_axis",
        "optimizer",
        "learning_rate",
        "trainable",
        "frozen",
        "batch_norm",
        "weights",
        "freeze_before",
        "keep_outputs",
        "plan",
    }
)

_MODEL_SUFFIXES: Final = (".onnx", ".circle", ".tflite", ".ini")


# ---------------------------------------------------------------------------------------- what is sent


@dataclass(frozen=True, slots=True)
class Loaded:
    """The bytes of a document, or of a model of another tool."""

    data: bytes
    is_model: bool = False

    @property
    def media_type(self) -> str:
        return _MODEL_TYPE if self.is_model else _JSON_TYPE


def loaded(given: GraphLike) -> Steps[Loaded]:
    """What is sent of a document: files are not read as JSON here, the service is the judge."""
    if isinstance(given, bytes):
        return Loaded(given, _looks_like_a_model(given))
    if isinstance(given, PathLike):
        path = Path(given)
        data = yield from do(path.read_bytes)
        suffix = path.suffix.lower()
        return Loaded(data, suffix in _MODEL_SUFFIXES or (suffix != ".json" and _looks_like_a_model(data)))
    return Loaded(json_bytes(given))


def document(given: GraphLike) -> Steps[bytes]:
    """The same where only a document will do. Raises ValueError for a model of another tool."""
    found = yield from loaded(given)
    if found.is_model:
        raise ValueError("A model of another tool will not do here: it stands in the place of a graph only.")
    return found.data


def digest_of(plan: bytes) -> str:
    """The digest that a plan says it has. Raises ValueError where the document says none."""
    found = json.loads(plan)
    if not isinstance(found, dict) or not isinstance(found.get("digest"), str):
        raise ValueError("This is not the document of a plan: it has no digest.")
    return str(found["digest"])


def _looks_like_a_model(data: bytes) -> bool:
    """A FlatBuffers file with an identifier of Circle or TensorFlow Lite, or a protobuf such as ONNX's."""
    return data.startswith(b"\x08") or data[4:8] in {b"CIR0", b"TFL3"}


def given_options(options: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """Both together, `more` wins; what is None is left to the service."""
    return {name: value for name, value in {**(options or {}), **more}.items() if value is not None}


def json_bytes(value: Any) -> bytes:
    """Raises ValueError for NaN and infinities, which JSON has not."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def json_body(members: Mapping[str, Any]) -> bytes:
    """One JSON object; members that are bytes are JSON already."""
    texts = (
        b"%b:%b" % (json_bytes(name), value if isinstance(value, bytes) else json_bytes(value))
        for name, value in members.items()
    )
    return b"{%b}" % b",".join(texts)


def json_request(
    path: str, members: Mapping[str, Any], timeout: Timeout, headers: Mapping[str, str] = MappingProxyType({})
) -> Request:
    """A POST of such an object."""
    return Request("POST", path, json_body(members), {"Content-Type": _JSON_TYPE, **headers}, timeout)


def model_request(path: str, model: bytes, options: Mapping[str, Any], timeout: Timeout) -> Request:
    """A POST of a model's bytes; options, and how it is trained, stand in the query."""
    pairs: list[tuple[str, str]] = []
    for name, value in options.items():
        if name in ("dim", "input", "freeze_before"):
            pairs += [(name, str(one)) for one in ([value] if isinstance(value, str) else value)]
        else:
            pairs.append((name, str(value) if name in _CHOICES else _as_query(value)))
    query = f"?{urlencode(pairs)}" if pairs else ""
    return Request("POST", path + query, model, {"Content-Type": _MODEL_TYPE}, timeout)


def _as_query(value: Any) -> str:
    """The service takes JSON for what it says, and other text as it is."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            json.loads(value)
            return json.dumps(value)
        return value
    return json.dumps(value, allow_nan=False)


def export_path(digest: str, format_: str, against: str | None) -> str:
    """Where a plan is written as another file."""
    path = f"/v1/plans/{quote(digest, safe='')}/{quote(format_, safe='')}"
    return path if against is None else f"{path}?against={quote(against, safe='')}"


def timeout_of(timeout: httpx.Timeout | float | None) -> httpx.Timeout:
    """A number bounds each wait for the service, not the wait for one of the client's own connections."""
    return timeout if isinstance(timeout, httpx.Timeout) else httpx.Timeout(timeout, pool=None)


# --------------------------------------------------------------------------------------------- answers


def address(base: httpx.URL, path: str) -> str:
    """Where a request went, as a person may read it: without a password."""
    return f"{str(base.copy_with(username=None, password=None)).rstrip('/')}{path}"


def is_cached(response: httpx.Response) -> bool:
    """Whether the service had the answer already."""
    return bool(response.headers.get("X-Cache") == "hit")


def notes_of(response: httpx.Response) -> tuple[str, ...]:
    """The notes on the import of the model that was sent; none of a graph, or where the header is damaged."""
    try:
        notes = json.loads(response.headers.get("Arenaplan-Notes", "[]"))
    except ValueError:
        return ()
    return tuple(map(str, notes)) if isinstance(notes, list) else ()


def read_file(response: httpx.Response) -> bytes:
    """The bytes of a 200. Raises what `read_answer` raises."""
    if not response.is_success:
        read_answer(response)
    return response.content


def read_answer(response: httpx.Response) -> dict[str, Any]:
    """The JSON object of a 200. Raises `ProblemError` or `UnexpectedAnswer`."""
    try:
        document = response.json()
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise UnexpectedAnswer(f"{_place(response)} with something other than a JSON object.")
    if response.is_success:
        return document
    if "type" not in document:
        raise UnexpectedAnswer(f"{_place(response)} without saying why.")
    raise problem_of(document)


def _place(response: httpx.Response) -> str:
    return f"{address(response.request.url, '')} answered {response.status_code}"


@contextlib.contextmanager
def reading(response: httpx.Response) -> Iterator[dict[str, Any]]:
    """The document of an answer. What it lacks makes it an `UnexpectedAnswer`: of another version, say."""
    document = read_answer(response)
    try:
        yield document
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnexpectedAnswer(f"{_place(response)} with a document of another form: {error!r}.") from error


def problem_of(document: Mapping[str, Any]) -> ProblemError:
    """A capacity error without its figures is a problem like any other: it says what it says."""
    if str(document["type"]).endswith("/capacity-exceeded"):
        with contextlib.suppress(ValueError):
            return CapacityExceeded(document)
    return ProblemError(document)
