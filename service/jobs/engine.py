"""The port to whatever runs jobs: work that outlives its request.

    submit ──► queued ──► running ──► succeeded, failed or cancelled
                  ▲           │
                  └───────────┘ its worker, or the whole machine, has died

What an engine promises, whichever it is (``tests/unit/service/jobs/test_engines.py`` holds all to it):

* a job that `submit` has returned survives the death of every process;
* each job ends, and its end is seen once: late results of an attempt that was given up are dropped;
* a cancelled job is not worked on any more a second later;
* no tenant sees the jobs of another one.
"""

from __future__ import annotations

from typing import Protocol

from service.jobs.model import Answer, Job, NewJob, State

__all__ = ["JobEngine"]


class JobEngine(Protocol):
    """Jobs by tenant and id. Every method raises `Problem` ``database-unavailable`` in bad times."""

    async def start(self) -> None:
        """Begin to work on what is there."""

    async def close(self) -> None:
        """Stop; jobs that run here are queued again, for another process to run."""

    async def submit(self, job: NewJob) -> tuple[Job, bool]:
        """Accept a job; and whether it is new: the same idempotency key with the same request is not.

        Raises `Problem` ``idempotency-conflict`` for another request, ``too-many-jobs``, ``graph-not-found``.
        """

    async def get(self, tenant: str, job: str) -> Job:
        """Raises `Problem` ``job-not-found``."""

    async def page(
        self, tenant: str, *, state: State | None = None, limit: int = 50, after: str | None = None
    ) -> list[Job]:
        """Jobs of a tenant, the newest first; `after` is the last one that is known already."""

    async def answer(self, tenant: str, job: str) -> Answer:
        """The result of the job.

        Raises `Problem` ``job-not-found``, ``job-not-finished``, ``job-failed``, ``job-cancelled`` or
        ``job-expired``.
        """

    async def cancel(self, tenant: str, job: str) -> Job:
        """Ask for the end of a job; one that is finished stays as it is. Raises ``job-not-found``."""

    async def changed(self, job: Job, seconds: float) -> Job:
        """The job once its revision is beyond `job.revision`, or its present state after `seconds`.

        Raises `Problem` ``job-not-found`` where it has been removed.
        """
