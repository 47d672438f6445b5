"""One request behind every door: what is wanted of which models, and the answer.

    sources    where a model comes from, and what is read of it: `Source`, `Model`
    request    what is wanted: `Request`
    stored     its serialized form, which jobs store: `Stored`
    handling   the answer, by a table of what can be wanted: `handle`, `Work`

The command line, HTTP, jobs and `arenaplan` parse into a `Request` and print from a `Result`; they add words
and codes. Stands above all other rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late

if TYPE_CHECKING:
    from solver.requests.handling import Follower, Limits, ReadModel, Result, Trying, Work, handle
    from solver.requests.request import Request, Wanted
    from solver.requests.sources import Model, Source
    from solver.requests.stored import Stored

__all__ = [
    "Follower",
    "Limits",
    "Model",
    "ReadModel",
    "Request",
    "Result",
    "Source",
    "Stored",
    "Trying",
    "Wanted",
    "Work",
    "handle",
]

__getattr__ = loaded_late(
    __name__,
    {
        "handling": "Follower Limits ReadModel Result Trying Work handle",
        "request": "Request Wanted",
        "sources": "Model Source",
        "stored": "Stored",
    },
)
