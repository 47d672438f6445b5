"""What `service.http.connections` uses of uvicorn beyond what uvicorn documents, and of which version."""

from __future__ import annotations

import ast
import inspect
from importlib.metadata import version

import pytest
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from service.http.connections import GuardedProtocol, PacedFlow

#: The version that `service.http.connections` was read against: `flow_control.py` and `httptools_impl.py`.
VERSION = "0.54.0"


def attributes(cls: type, of: str, *, stored: bool = False) -> set[str]:
    """Names behind `of` in the source of a class; with `stored` those that are assigned to."""
    tree = ast.parse(inspect.getsource(cls))
    return {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and ast.unparse(node.value) == of
        and (not stored or isinstance(node.ctx, ast.Store))
    }


def test_the_version_is_the_one_that_was_read() -> None:
    assert version("uvicorn") == VERSION, (
        f"uvicorn {version('uvicorn')} is not the version whose internals are used. Compare its "
        f"flow_control.py and httptools_impl.py with those of {VERSION}, then write the new version here."
    )


@pytest.mark.parametrize(
    ("ours", "of", "theirs", "some"),
    [
        (GuardedProtocol, "self", HttpToolsProtocol, {"cycle", "connections", "flow", "server_state"}),
        (GuardedProtocol, "super()", HttpToolsProtocol, {"on_headers_complete", "data_received"}),
        (GuardedProtocol, "self.cycle", RequestResponseCycle, {"more_body", "message_event", "disconnected"}),
        (PacedFlow, "self", FlowControl, {"_transport", "read_paused"}),
        (PacedFlow, "super()", FlowControl, {"pause_reading", "resume_reading"}),
    ],
)
def test_what_is_used_is_there(ours: type, of: str, theirs: type, some: set[str]) -> None:
    """Every name that our class does not define itself is one that uvicorn defines or assigns to."""
    own = set() if of == "super()" else set(vars(ours)) | attributes(ours, "self", stored=True)
    there = set(dir(theirs)) | attributes(theirs, "self", stored=True)
    used = attributes(ours, of)
    assert used >= some
    assert there >= some
    assert used - own - there == set()


def test_what_is_overridden_is_there() -> None:
    """uvicorn's parser calls these; under another name they would never be called."""
    overridden = {name for name in vars(GuardedProtocol) if name.startswith("on_")}
    assert {"on_body", "on_headers_complete", "on_message_begin", "on_message_complete"} <= overridden
    for name in (*overridden, "connection_made", "connection_lost", "data_received", "send_400_response"):
        assert inspect.isfunction(getattr(HttpToolsProtocol, name)), name
