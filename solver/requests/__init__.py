"""One request behind every door: what is wanted of which models, and the answer.

    sources    where a model comes from, and what is read of it: `Source`, `Model`
    request    what is wanted: `Request`
    handle     the answer, by a table of what can be wanted: `handle`, `Work`

The command line, HTTP, jobs and `arenaplan` parse into a `Request` and print from a `Result`; they add words
and codes. Stands above all other rooms.
"""

from solver.requests.handle import Follower, Limits, ReadModel, Result, Trying, Work, handle
from solver.requests.request import Request, RequestError, Wanted
from solver.requests.sources import Model, Source, source_of_file

__all__ = [
    "Follower",
    "Limits",
    "Model",
    "ReadModel",
    "Request",
    "RequestError",
    "Result",
    "Source",
    "Trying",
    "Wanted",
    "Work",
    "handle",
    "source_of_file",
]
