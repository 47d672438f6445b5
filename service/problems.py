"""Every way a request can fail, as RFC 9457 problem details.

A problem type is a path that this service answers itself: ``/problems/shape-mismatch``. Types are
stable; titles and explanations may be reworded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from solver.errors import ArenaplanError, CapacityError, OptionsError, json_pointer
from solver.options import requested_as

__all__ = ["CATALOGUE", "MEDIA_TYPE", "Problem", "ProblemType", "out_of_memory", "problem_from"]

MEDIA_TYPE: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class ProblemType:
    """`explanation` tells a person what the problem means and what to do about it."""

    code: str
    status: int
    title: str
    explanation: str

    @property
    def uri(self) -> str:
        return f"/problems/{self.code}"

    def facts(self) -> dict[str, str | int]:
        """The type as `GET /problems/{code}` answers it in JSON."""
        return {
            "type": self.uri, "title": self.title, "status": self.status, "explanation": self.explanation
        }  # fmt: skip


_TYPES: Final = (
    ProblemType(
        "invalid-json", 400, "Not strict JSON",
        "The body must be one JSON value in UTF-8: no NaN or Infinity, no key twice in one object, no "
        "nesting beyond what the documents need. The detail says where it breaks.",
    ),
    ProblemType(
        "invalid-document", 422, "Not a document of this kind and version",
        "The JSON is well formed, but a field is missing, unknown or of the wrong type, or the version is "
        "one that is not read here. The pointer leads to the field; /v1/schemas lists the JSON Schemas.",
    ),
    ProblemType(
        "invalid-graph", 422, "The graph is not trainable as it stands",
        "The document is well formed, the graph it describes is not. The detail names the culprit.",
    ),
    ProblemType(
        "unknown-operator", 422, "Unknown operator",
        "An operation has a type that this version does not know. Operators carry their ONNX names.",
    ),
    ProblemType(
        "invalid-attribute", 422, "Unknown or wrong attribute",
        "An operation has an attribute that its operator does not take, or with a value out of its range.",
    ),
    ProblemType(
        "shape-mismatch", 422, "Shapes do not fit together",
        "The inputs of an operation have shapes that its operator cannot combine. The detail names the "
        "operation, the operands and their shapes.",
    ),
    ProblemType(
        "invalid-dimension", 422, "A dimension or size out of range",
        "Every dimension is at least 1, and no tensor may have more than 2**63 - 1 elements or bytes.",
    ),
    ProblemType(
        "invalid-batch", 422, "The batch is missing or not positive",
        "Shapes that say \"batch\" need a positive number, from the graph's `batch` or the options' "
        "`batch`.",
    ),
    ProblemType(
        "cyclic-graph", 422, "The graph has a cycle",
        "Operations depend on each other in a circle, which the detail prints. Training needs an acyclic "
        "graph.",
    ),
    ProblemType(
        "use-before-def", 422, "An operand is used before it is defined",
        "An operation reads an operand that no earlier operation defines and no role provides.",
    ),
    ProblemType(
        "duplicate-def", 422, "An operand is defined twice",
        "Each operand is written by one operation at most. Give one of the outputs a name of its own.",
    ),
    ProblemType(
        "duplicate-name", 422, "A name is taken",
        "Operations and operands each need names of their own.",
    ),
    ProblemType(
        "dangling-operand", 422, "An operand that nothing uses or defines",
        "An operand is declared or written, yet no operation, loss or output ever reads it. Remove or "
        "connect it.",
    ),
    ProblemType(
        "invalid-trainable", 422, "A trainable that cannot be trained",
        "A parameter in the trainable set does not exist, is not used, or has no path to the loss.",
    ),
    ProblemType(
        "invalid-loss", 422, "No loss, several, or not a scalar",
        "`loss` must name exactly one operand, with a single element, that an operation defines.",
    ),
    ProblemType(
        "invalid-state", 422, "A state that is not updated in one place",
        "What an operation updates in place must have the role state, and no other operation may read or "
        "update it.",
    ),
    ProblemType(
        "invalid-storage", 422, "A stored weight does not fit its shape, its bytes or an operator",
        "Only parameters that are not trained, and constants, are stored: as float16 or bfloat16, or as int8 "
        "or int4 in groups that divide their rows. Operators that cannot read a storage are named.",
    ),
    ProblemType(
        "too-many-operations", 422, "More operations or operands than allowed",
        "The graph has more operations (ARENAPLAN_MAX_OPERATIONS), or one of them more inputs or outputs "
        "(ARENAPLAN_MAX_OPERANDS), than this service was started to take.",
    ),
    ProblemType(
        "too-many-buffers", 422, "More buffers than allowed",
        "The layout exceeds the limit that this service was started with (ARENAPLAN_MAX_BUFFERS).",
    ),
    ProblemType(
        "invalid-options", 422, "An option out of its range",
        "The pointer leads to the option; the remedy says which values it takes.",
    ),
    ProblemType(
        "invalid-problem", 422, "Buffers that cannot be placed",
        "The buffers contradict each other, for instance by pinned offsets that overlap.",
    ),
    ProblemType(
        "capacity-exceeded", 409, "The arena does not fit the capacity",
        "`required` bytes are needed, `available` were given, `excess` is the difference, and "
        "`live_at_peak` lists what is live at the worst step. With `proved` nothing can fit; without it, "
        "nothing that fits was found, and `required` is what the best layout found takes. Take a smaller "
        "batch, train fewer parameters, or give more memory or time.",
    ),
    ProblemType(
        "invalid-plan", 422, "The plan is wrong or belongs to another graph",
        "The plan's digest, its graph digest or one of its rules does not hold. Plan the graph again.",
    ),
    ProblemType(
        "invalid-request", 422, "The request is incomplete",
        "A part of the request is missing, unknown or of the wrong type. /docs shows what it must look "
        "like.",
    ),
    ProblemType(
        "not-found", 404, "No such page",
        "Nothing is served under this path. /docs lists what is.",
    ),
    ProblemType(
        "plan-not-found", 404, "No such plan at hand",
        "Plans are kept in memory and leave it when space is short or the service restarts. Send the "
        "graph again: the same request gives the same plan and digest.",
    ),
    ProblemType(
        "layout-not-found", 404, "No such layout at hand",
        "Layouts are kept in memory and leave it when space is short or the service restarts. Send the "
        "buffers again: the same request gives the same layout and digest.",
    ),
    ProblemType(
        "method-not-allowed", 405, "Method not allowed",
        "The Allow header lists the methods of this path.",
    ),
    ProblemType(
        "body-too-large", 413, "The body is too large",
        "The limit is a setting of the service (ARENAPLAN_BODY_LIMIT_BYTES). Planning needs no weights: "
        "leave out inline values, or use named initializers.",
    ),
    ProblemType(
        "too-many-bytes", 429, "Too many bytes are on their way",
        "The bodies of all requests together exceed what this service holds at a time "
        "(ARENAPLAN_INTAKE_MEMORY_BYTES, ARENAPLAN_INTAKE_DISK_BYTES). Try again after the seconds in the "
        "Retry-After header.",
    ),
    ProblemType(
        "validation-too-large", 422, "Too much memory for a validation here",
        "A validation holds the arena and a reference run in memory. The limit is a setting of the "
        "service (ARENAPLAN_VALIDATE_MAX_BYTES); `arenaplan validate` has none.",
    ),
    ProblemType(
        "unsupported-media-type", 415, "Not declared as JSON",
        "Send `Content-Type: application/json` and no Content-Encoding.",
    ),
    ProblemType(
        "overloaded", 503, "All workers are busy",
        "Try again after the seconds in the Retry-After header.",
    ),
    ProblemType(
        "stopping", 503, "The service stops",
        "It was asked to stop, and this request was not finished in time (ARENAPLAN_SHUTDOWN_SECONDS). Send "
        "it again after the seconds in the Retry-After header: another instance, or the next one, answers.",
    ),
    ProblemType(
        "worker-lost", 503, "The working process died",
        "A new one has taken its place; nothing else was lost. Try again after the seconds in the "
        "Retry-After header. With the `reason` memory the machine had none left: the same request may "
        "need more than there is.",
    ),
    ProblemType(
        "time-limit", 422, "Not finished within the time limit",
        "The service's time limit ran out before there was any valid answer. Ask for the `greedy` solver "
        "or name a deadline, take a smaller graph, or run the command line, which has no limit.",
    ),
    ProblemType(
        "memory-limit", 422, "More memory than a request may take",
        "Reading the request, or searching, needed more memory than one worker may have "
        "(ARENAPLAN_WORKER_MEMORY_BYTES). The same request fails again: take a smaller one or the `greedy` "
        "solver, or run the command line, which has no limit.",
    ),
    ProblemType(
        "bad-request", 400, "Bad request",
        "The request breaks the rules of HTTP; the detail says how.",
    ),
    ProblemType(
        "database-unavailable", 503, "The database does not answer",
        "What is stored can be neither read nor written now: jobs, their results, graphs. `reason` says why: "
        "silent, unreachable, damaged, full, read-only, tables or replaced. Try again after the seconds in "
        "the Retry-After header. Plans are made all the same: send the request to its own route.",
    ),
    ProblemType(
        "jobs-off", 503, "This service has no jobs",
        "It was started without a database (ARENAPLAN_DATABASE_URL). Plans are made all the same: send the "
        "request to its own route.",
    ),
    ProblemType(
        "job-not-found", 404, "No such job here",
        "There is no job with this id, or it has been removed: finished jobs are kept for "
        "ARENAPLAN_JOB_TTL_SECONDS.",
    ),
    ProblemType(
        "job-not-finished", 409, "The job has no result yet",
        "Ask for the job until its state is `succeeded` or `failed`, or follow its events.",
    ),
    ProblemType(
        "job-cancelled", 409, "The job was cancelled",
        "It has no result. Send it again to have one.",
    ),
    ProblemType(
        "job-failed", 409, "The job has failed",
        "It has no result, and will have none. `problem` is the one that it has failed with, as the "
        "synchronous route would have answered it; its remedy says what to change.",
    ),
    ProblemType(
        "job-expired", 410, "The result of the job has been removed",
        "Results are kept for ARENAPLAN_JOB_TTL_SECONDS after the job has finished. Send it again: the same "
        "request gets the same plan.",
    ),
    ProblemType(
        "too-many-jobs", 429, "Too many jobs wait",
        "The service keeps ARENAPLAN_JOB_LIMIT jobs that are not finished. Send it again after the seconds "
        "in the Retry-After header.",
    ),
    ProblemType(
        "idempotency-conflict", 422, "The Idempotency-Key belongs to another request",
        "The same key with the same body gives the first job again. Take a new key for another request.",
    ),
    ProblemType(
        "graph-not-found", 404, "No such graph here",
        "Nothing is stored under this digest. PUT it to /v1/graphs/{digest} first.",
    ),
    ProblemType(
        "digest-mismatch", 422, "The bytes have another digest",
        "A graph is stored under the SHA-256 of its bytes, in lower-case hexadecimal digits.",
    ),
    ProblemType(
        "unauthorized", 401, "The caller is not known",
        "Send an API key or a token of the identity provider as `Authorization: Bearer ...`. The detail says "
        "what is wrong with the one that was sent.",
    ),
    ProblemType(
        "forbidden", 403, "Not for this key or token",
        "The key or token is good, but lacks the scope that the request needs, or its tenant is not served.",
    ),
    ProblemType(
        "quota", 429, "A quota of the tenant is used up",
        "`quota` says which: requests, cpu, concurrency or storage; the RateLimit-Policy header says what is "
        "allowed. Try again after the seconds in the Retry-After header.",
    ),
    ProblemType(
        "unknown-host", 421, "Not a host of this service",
        "The Host header names a host that this service does not answer for (ARENAPLAN_ALLOWED_HOSTS).",
    ),
    ProblemType(
        "issuer-unavailable", 503, "The identity provider does not answer",
        "Its keys are needed to check a token, and are not known here. Try again after the seconds in the "
        "Retry-After header.",
    ),
    ProblemType(
        "internal-error", 500, "A bug",
        "Something that must not happen happened. The log holds the details under the request id.",
    ),
)  # fmt: skip

#: Problem types by code.
CATALOGUE: Final[Mapping[str, ProblemType]] = MappingProxyType({kind.code: kind for kind in _TYPES})


class Problem(Exception):
    """One failed request. `pointer` (RFC 6901) leads to the culprit in the request body."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        remedy: str = "",
        pointer: str | None = None,
        extensions: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = CATALOGUE.get(code, CATALOGUE["internal-error"])
        self.detail = detail
        self.remedy = remedy
        self.pointer = pointer
        self.extensions = dict(extensions or {})
        self.headers = dict(headers or {})

    def facts(self) -> dict[str, Any]:
        """The problem as plain values for another process, where `Problem(**facts)` restores it."""
        return {
            "code": self.kind.code,
            "detail": self.detail,
            "remedy": self.remedy,
            "pointer": self.pointer,
            "extensions": self.extensions,
            "headers": self.headers,
        }

    def document(self, instance: str | None = None) -> dict[str, Any]:
        """The RFC 9457 object; `instance` identifies this one occurrence."""
        document: dict[str, Any] = {
            "type": self.kind.uri,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        optional = {"instance": instance, "pointer": self.pointer, "remedy": self.remedy or None}
        document |= {name: value for name, value in optional.items() if value is not None}
        return document | self.extensions


def out_of_memory() -> Problem:
    """Of a request that one worker's memory is too small for."""
    return Problem(
        "memory-limit",
        "The request needs more memory than one request may take here.",
        remedy='Take a smaller one, or ask for the "greedy" solver.',
        extensions={"reason": "memory"},
    )


#: What a deployment has beside the options of its plans.
_BESIDE: Final = (("entries",), ("ties",), ("models",))


def problem_from(error: ArenaplanError, prefix: Sequence[str | int] = ()) -> Problem:
    """The problem that `error` is to a caller; `prefix` is where its document sits in the request.

    Options stand beside a document, and in the query beside a model.
    """
    options = "query" if prefix and prefix[0] in ("query", "model") else "options"
    if isinstance(error, CapacityError):
        pointer = json_pointer((options, *(error.path or ("capacity",))))
        return Problem(
            error.code, error.message, remedy=error.remedy, pointer=pointer, extensions=_sizes(error)
        )
    path = (*prefix, *error.path)
    if error.path[:1] in _BESIDE and tuple(prefix) != ("options",):
        path = (*(("query",) if options == "query" else ()), *error.path)
    elif isinstance(error, OptionsError):
        path = (options, *(requested_as(str(name)) for name in error.path[:1]), *error.path[1:])
    return Problem(error.code, error.message, remedy=error.remedy, pointer=json_pointer(path))


def _sizes(error: CapacityError) -> dict[str, Any]:
    return {
        "required": error.required,
        "available": error.available,
        "excess": error.excess,
        "proved": error.proved,
        "live_at_peak": [{"operand": name, "bytes": size} for name, size in error.live_at_peak],
        **({} if error.entry_point is None else {"entry_point": error.entry_point, "held": error.held}),
    }
