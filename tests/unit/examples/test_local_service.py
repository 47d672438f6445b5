"""The child process behind the demonstration, with scripts in the place of the service."""

from __future__ import annotations

import sys

import pytest

from clients import Client
from examples.local_service import LocalService, ServiceFailed

#: Says where it listens, answers everything with 200, ends at SIGTERM with its default action.
READY = """
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response({status})
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("no JSON", file=sys.stderr)
print(json.dumps(["no event"]), file=sys.stderr)
event = dict(event="listening", url="http://127.0.0.1:%d" % server.server_port)
print(json.dumps(event), file=sys.stderr, flush=True)
server.serve_forever()
"""


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_gives_the_address_and_stops_the_child() -> None:
    with LocalService(script(READY.replace("{status}", "200"))) as service:
        assert service.url.startswith("http://127.0.0.1:")
    assert service.stop() == -15


def test_child_that_ends_is_reported_with_its_last_words() -> None:
    with pytest.raises(ServiceFailed, match="ended with code 3: no memory"):
        LocalService(script("import sys; print('no memory', file=sys.stderr); sys.exit(3)")).__enter__()


def test_silent_end_is_reported() -> None:
    with pytest.raises(ServiceFailed, match=r"ended with code 0\.$"):
        LocalService(script("")).__enter__()


def test_child_that_is_never_ready_is_stopped() -> None:
    service = LocalService(script(READY.replace("{status}", "503")), start_seconds=0.2)
    with pytest.raises(ServiceFailed, match=r"not ready in 0\.2 s"):
        service.__enter__()
    assert service.stop() == -15


def test_interrupted_start_leaves_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    service = LocalService(script(READY.replace("{status}", "200")))

    def interrupt(_client: Client) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(Client, "ready", interrupt)
    with pytest.raises(KeyboardInterrupt):
        service.__enter__()
    assert service.stop() == -15


def test_stubborn_child_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("examples.local_service.STOP_SECONDS", 0.2)
    ignore = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    with LocalService(script(ignore + READY.replace("{status}", "200"))) as service:
        pass
    assert service.stop() == -9


def test_no_address_before_it_is_known() -> None:
    service = LocalService(script("import time; time.sleep(60)"))
    with pytest.raises(ServiceFailed, match="not listening"):
        _ = service.url
    service.stop()
