"""Tasks for a worker under test: the body of a request says what the worker shall do.

The first line of the body is a command; ``echo`` answers with the rest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Any

from service.jobs.worker import Channel, Task
from service.problems import Problem

__all__ = ["TASKS", "warm"]


def _facts(digest: str, *, deterministic: bool = True) -> dict[str, Any]:
    return {
        "key": f"key-{digest}",
        "digest": digest,
        "deterministic": deterministic,
        "arena_bytes": 64,
        "status": "optimal",
        "seconds": 0.0,
        "identical": True,
        "pid": os.getpid(),
    }


def _hang() -> None:
    threading.Event().wait()


def _do(head: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    command, _, rest = body.decode().partition("\n")
    match command:
        case "echo":
            channel.send("result", _facts("d" * 8), rest.encode())
        case "offer":
            if channel.offer("key-offered"):
                channel.send("result", {**_facts("offered"), "key": "key-offered"}, rest.encode())
            else:
                channel.send("result", {})
        case "late":
            channel.send("fallback", _facts("late", deterministic=False), rest.encode())
            _hang()
        case "hang":
            _hang()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "print":
            print("noise on standard output")  # noqa: T201 - that is what is tested
            sys.stdout.flush()
            channel.send("result", _facts("printed"), b"{}")
        case "problem":
            raise Problem("shape-mismatch", rest, pointer="/graph", extensions={"extra": 1})
        case _:
            raise RuntimeError(f"no such command: {command}")


def warm() -> None:
    """Nothing to warm up."""


TASKS: Mapping[str, Task] = {"plan": _do, "validate": _do}
