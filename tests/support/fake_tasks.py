"""Tasks for a worker under test: the body of a request says what the worker shall do.

The first line of the body is a command; ``echo`` answers with the rest. Environment variables say how the
process starts: FAKE_FAILURES names a file with the number of starts that fail, FAKE_HOLD a directory in which
the process leaves its number before it holds the interpreter's lock for ever, FAKE_HANG lets the import wait,
and FAKE_WARM is the report of `warm` as JSON, or no JSON to make it fail. Confined workers get none of them.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.jobs.query import notes_text
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
            channel.send("progress", {"stage": "hang", "seconds": 0.0, "pid": os.getpid()})
            _hang()
        case "die-once":
            if not Path(rest).exists():
                Path(rest).touch()
                os.kill(os.getpid(), signal.SIGKILL)
            channel.send("result", _facts("survived"), b"{}")
        case "progress":
            channel.send("progress", {"stage": "layout", "seconds": 0.1})
            threading.Event().wait(1.0)  # so long that somebody can see it
            channel.send("result", _facts("progressed"), b"{}")
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "allocate":
            bytearray(int(rest))
            channel.send("result", _facts("allocated"), b"{}")
        case "abort":
            os.abort()
        case "spin":
            while True:
                pass
        case "garble":
            channel.send("log", {})
        case "print":
            print("noise on standard output")  # noqa: T201 - that is what is tested
            sys.stdout.flush()
            channel.send("result", _facts("printed"), b"{}")
        case "log":
            logging.getLogger("library").warning("careful: %s", rest)
            warnings.warn("old", stacklevel=1)
            channel.send("result", _facts("logged"), b"{}")
        case "run":  # code that a model has smuggled in
            answers: dict[str, Any] = {}
            exec(rest, answers)
            channel.send("result", _facts("ran"), json.dumps(answers["answer"]).encode())
        case "problem":
            raise Problem("shape-mismatch", rest, pointer="/graph", extensions={"extra": 1})
        case _:
            raise RuntimeError(f"no such command: {command}")


def warm() -> Mapping[str, bool]:
    report: Mapping[str, bool] = json.loads(os.environ.get("FAKE_WARM", "{}"))
    return report


def _start() -> None:
    if "FAKE_HANG" in os.environ:
        _hang()
    if hold := os.environ.get("FAKE_HOLD"):
        Path(hold, str(os.getpid())).touch()
        ctypes.PyDLL(None).pause()  # unlike CDLL, keeps the lock of the interpreter
    if failures := os.environ.get("FAKE_FAILURES"):
        left = int(Path(failures).read_text(encoding="utf-8"))
        Path(failures).write_text(str(max(0, left - 1)), encoding="utf-8")
        if left:
            raise RuntimeError("this start fails")


_start()


def _echo(_head: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    channel.send("result", _facts("whole"), body)


def _model(_head: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """All models have one plan; the text of a model is the note on its import, and no capacity is enough."""
    query, _, note = body.decode().partition("\n")
    channel.notes = notes_text([note] if note else [])
    if "capacity" in json.loads(query):
        raise Problem("shape-mismatch", "no")
    if channel.offer("key-modelled"):
        channel.send("result", _facts("modelled"), b"{}")
    else:
        channel.send("result", {})


TASKS: Mapping[str, Task] = {"plan": _do, "validate": _do, "program": _echo, "model": _model}
