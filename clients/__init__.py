"""A typed client of the arenaplan service, for blocking and for asynchronous programs.

    with Client("http://127.0.0.1:8080") as client:
        result = client.plan(graph, batch=32)
        print(result.arena_bytes, result.proof)

It needs httpx and nothing else of this project.
"""

from clients.client import AsyncClient, Client
from clients.errors import (
    CapacityExceeded,
    ClientError,
    ConnectionFailed,
    JobCancelled,
    JobNotFinished,
    ProblemError,
    UnexpectedAnswer,
    WrongArgument,
)
from clients.jobs import (
    AsyncJob,
    AsyncJobs,
    Job,
    JobEvent,
    JobProgress,
    Jobs,
    JobStatus,
)
from clients.results import (
    ArenaResult,
    LayoutResult,
    PlanResult,
    RemedyResult,
    SavedPlan,
    StepResult,
    TradeOffPointResult,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
    ViolationResult,
)
from clients.retry import Retry
from clients.tasks import Entry, GraphLike

__all__ = [
    "ArenaResult",
    "AsyncClient",
    "AsyncJob",
    "AsyncJobs",
    "CapacityExceeded",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "Entry",
    "GraphLike",
    "Job",
    "JobCancelled",
    "JobEvent",
    "JobNotFinished",
    "JobProgress",
    "JobStatus",
    "Jobs",
    "LayoutResult",
    "PlanResult",
    "ProblemError",
    "RemedyResult",
    "Retry",
    "SavedPlan",
    "StepResult",
    "TradeOffPointResult",
    "TradeOffResult",
    "UnexpectedAnswer",
    "ValidationResult",
    "VerdictResult",
    "ViolationResult",
    "WrongArgument",
]
