"""The limits of requests and of jobs, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from service.jobs.protocol import Limits
from service.jobs.runner import JobLimits
from service.settings import Settings

__all__ = ["job_limits", "search_limits", "worker_limits"]


def worker_limits(settings: Settings) -> Mapping[str, Any]:
    """The settings that a worker has to obey."""
    return settings.model_dump(
        include={
            "max_operations",
            "max_operands",
            "max_buffers",
            "deadline_default_seconds",
            "deadline_max_seconds",
            "deadline_floor_seconds",
            "validate_max_steps",
            "validate_max_bytes",
            "worker_memory_bytes",
            "worker_cpu_seconds",
        }
    )


def search_limits(settings: Settings) -> Limits:
    """When a search must have answered."""
    grace = settings.deadline_grace_seconds
    return Limits(settings.deadline_max_seconds + grace, grace, settings.deadline_floor_seconds)


def job_limits(settings: Settings) -> JobLimits:
    """The limits of synchronous requests, with the time of jobs, which bounds processor time as well."""
    longest, search = settings.job_max_seconds, search_limits(settings)
    head = {**worker_limits(settings), "deadline_max_seconds": longest, "worker_cpu_seconds": None}
    return JobLimits(head, replace(search, total=longest + search.after_fallback))
