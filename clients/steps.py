"""The clients without their input and output: what to do next, as generators say it.

A method of a client is a generator. It yields actions, is sent what came of each, and returns the result of
the call: `Steps`. Nothing in it waits or talks to the network, so it is the same for a blocking and an
asynchronous program; a shell (`clients.shells`) carries the actions out.

    Send     a request                    -> its response, read
    Open     a request                    -> its response, of which a success is not read yet
    Read     what was opened              -> the next piece, empty at the end
    Close    what was opened
    Pause    seconds
    Do       a function that takes time, as reading a file does -> what it returns
    Emit     a value, to who iterates over the call

Where an action fails, the generator gets the exception in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import httpx

__all__ = [
    "Action",
    "Close",
    "Do",
    "Emit",
    "Emitting",
    "Machine",
    "Open",
    "Opened",
    "Pause",
    "Read",
    "Request",
    "Send",
    "Steps",
    "do",
    "listen",
    "open_stream",
    "read",
    "send",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent to the service; `path` follows the address of the client. `timeout` None: the client's.

    Whichever it is, no wait takes longer than `at_most` seconds.
    """

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout: httpx.Timeout | float | None = None
    at_most: float | None = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A response whose body comes piece by piece; `pieces` are the shell's own."""

    response: httpx.Response
    pieces: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class Send:
    request: Request


@dataclass(frozen=True, slots=True)
class Open:
    request: Request


@dataclass(frozen=True, slots=True)
class Read:
    opened: Opened


@dataclass(frozen=True, slots=True)
class Close:
    opened: Opened


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


@dataclass(frozen=True, slots=True)
class Do:
    work: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Emit(Generic[T]):
    value: T


Action = Send | Open | Read | Close | Pause | Do

#: A call that will come to a T.
Steps = Generator[Action, Any, T]

#: A call that emits values of type T on its way.
Emitting = Generator[Action | Emit[T], Any, None]


def send(request: Request) -> Steps[httpx.Response]:
    response: httpx.Response = yield Send(request)
    return response


def open_stream(request: Request) -> Steps[Opened]:
    opened: Opened = yield Open(request)
    return opened


def read(opened: Opened) -> Steps[bytes]:
    piece: bytes = yield Read(opened)
    return piece


def do(work: Callable[[], T]) -> Steps[T]:
    done: T = yield Do(work)
    return done


def listen(emitting: Emitting[T], listener: Callable[[T], None]) -> Steps[None]:
    """The same call, which tells `listener` what it would emit."""
    machine = Machine(emitting)
    while (action := machine.action) is not None:
        if isinstance(action, Emit):
            listener(action.value)
            machine.done(None)
            continue
        try:
            outcome = yield action
        except Exception as error:  # noqa: BLE001 - any error is raised again in the step that waits
            machine.failed(error)
        else:
            machine.done(outcome)


class Machine(Generic[T]):
    """Steps on their way: `action` is what has to be done now, None once there is a `result`."""

    action: Action | Emit[Any] | None
    result: T

    def __init__(self, steps: Generator[Action | Emit[Any], Any, T]) -> None:
        self._steps = steps
        self._resume(lambda: next(steps))

    def done(self, outcome: Any) -> None:
        """The action has come to this. Raises what the call raises."""
        self._resume(lambda: self._steps.send(outcome))

    def failed(self, error: Exception) -> None:
        """The action has failed. Raises the same error, unless the call knows what to do about it."""
        self._resume(lambda: self._steps.throw(error))

    def close(self) -> None:
        """Nobody waits for the result any more."""
        self._steps.close()

    def _resume(self, resume: Callable[[], Action | Emit[Any]]) -> None:
        try:
            self.action = resume()
        except StopIteration as end:
            self.action, self.result = None, end.value
