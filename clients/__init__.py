"""A typed client of the arenaplan service, for blocking and for asynchronous programs.

    with Client("http://127.0.0.1:8080") as client:
        result = client.plan(graph, batch=32)
        print(result.arena_bytes, result.proof)

It needs httpx and nothing else of this project.
"""

from clients.client import AsyncClient, AsyncJob, AsyncJobs, Client, Entry, GraphLike, Job, Jobs
from clients.connections import Retry
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
from clients.results import (
    ArenaResult,
    JobEvent,
    JobProgress,
    JobStatus,
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
