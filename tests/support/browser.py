"""A headless Chromium that tests drive as a person would: pages, pointer, keys, screenshots.

It speaks the DevTools protocol over a pair of pipes (--remote-debugging-pipe: messages of JSON, a zero byte
behind each), so no port is opened and no library is needed.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.server import PATIENCE, die_with_parent

__all__ = ["Browser", "Page", "chromium", "running_browser"]

#: No start page, no updates, no look at the network; as root there is no sandbox to be had.
_ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--disable-dev-shm-usage", "--force-device-scale-factor=1", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def chromium() -> str | None:
    """The browser of this machine, if there is one."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


class Browser:
    """A running browser; `ask` sends a command and waits for its answer."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._buffer = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []

    def ask(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._writing, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self._last:
                assert "error" not in answer, answer["error"]
                result: dict[str, Any] = answer["result"]
                return result

    def receive(self) -> dict[str, Any]:
        """The next message; events are kept as well."""
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reading], [], [], PATIENCE)
            assert ready, f"the browser says nothing for {PATIENCE:g} s"
            data = os.read(self._reading, 1 << 20)
            assert data, "the browser has ended"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message

    def page(self, width: int = 1400, height: int = 1000) -> Page:
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Network", "Log"):
            page.ask(f"{domain}.enable")
        page.resize(width, height)
        return page


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser, self._session = browser, session

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self._browser.ask(method, self._session, **parameters)

    def resize(self, width: int, height: int) -> None:
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, *, scheme: str = "light", kind: str = "") -> None:
        """Sets the reader's preferences, and whether the page is on a screen or on paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=kind, features=features)

    def open(self, address: str) -> None:
        """Load a page, and wait until it has been drawn."""
        done = len(self._browser.events)
        self.ask("Page.navigate", url=address)
        while not any(e["method"] == "Page.loadEventFired" for e in self._browser.events[done:]):
            self._browser.receive()
        self.settle()

    def settle(self) -> None:
        """Wait for two frames: what was asked for is on the screen."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def run(self, script: str) -> Any:
        """The value of an expression, awaited."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_for(self, condition: str) -> None:
        """Until an expression of the page is true; a browser that is silent for too long ends the test."""
        look = f"const look = () => ({condition}) ? ready(1) : setTimeout(look, 20); look();"
        self.run(f"new Promise(ready => {{ {look} }})")
        self.settle()

    def text(self, selector: str) -> str:
        found = self.run(f"document.querySelector({json.dumps(selector)}).innerText")
        return str(found)

    def point(self, selector: str, x: float = 0.5, y: float = 0.5) -> tuple[float, float]:
        """A place inside an element, in shares of its width and height; scrolls to it."""
        box = self.run(
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const b = e.getBoundingClientRect();"
            f" return [b.left, b.top, b.width, b.height]; }})(document.querySelector({json.dumps(selector)}))"
        )
        left, top, width, height = map(float, box)
        return left + x * width, top + y * height

    def mouse(self, kind: str, at: tuple[float, float], **more: Any) -> None:
        self.ask("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], **more)

    def click(self, selector: str, x: float = 0.5, y: float = 0.5) -> None:
        at = self.point(selector, x, y)
        self.mouse("mouseMoved", at)
        self.mouse("mousePressed", at, button="left", clickCount=1, buttons=1)
        self.mouse("mouseReleased", at, button="left", clickCount=1)
        self.settle()

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        self.mouse("mousePressed", start, button="left", clickCount=1, buttons=1)
        for share in (0.3, 0.6, 1.0):
            between = (start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1]))
            self.mouse("mouseMoved", between, button="left", buttons=1)
        self.mouse("mouseReleased", end, button="left", clickCount=1)
        self.settle()

    def press(self, key: str, *, shift: bool = False) -> None:
        """One key, as ``ArrowLeft``, ``Tab`` or ``p``."""
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        code = {"Tab": 9, "Enter": 13, " ": 32}.get(key, 0)
        more = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **more, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **more)
        self.settle()

    def spoken(self) -> list[tuple[str, str]]:
        """Role and name of each element that a screen reader comes to, in its order."""
        self.ask("Accessibility.enable")
        nodes = self.ask("Accessibility.getFullAXTree")["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in nodes
            if not node["ignored"] and node["role"]["value"] not in ("none", "generic", "InlineTextBox")
        ]

    def write(self, text: str) -> None:
        self.ask("Input.insertText", text=text)
        self.settle()

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        data = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def complaints(self) -> list[str]:
        """The browser's messages so far: errors, warnings, requests of other things than the page."""
        found = []
        for event in self._browser.events:
            if event.get("sessionId") != self._session:
                continue
            about = event["params"]
            match event["method"]:
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(about["exceptionDetails"]))
                case "Log.entryAdded":
                    found.append(about["entry"]["text"])
                case "Runtime.consoleAPICalled":
                    found.append(json.dumps(about["args"]))
                case "Network.requestWillBeSent":
                    url = about["request"]["url"]
                    if about["type"] != "Document" and not url.startswith("data:"):
                        found.append(f"asked for {url}")
        return found


@contextmanager
def running_browser() -> Iterator[Browser]:
    """A browser with an empty profile. The caller has seen to it that there is one."""
    command = chromium()
    assert command is not None
    theirs, writing = os.pipe()
    reading, answers = os.pipe()

    def wired() -> None:
        die_with_parent()
        # They may have the very numbers that the browser expects: out of the way first.
        far = [fcntl.fcntl(end, fcntl.F_DUPFD, 20) for end in (theirs, answers)]
        for number, end in zip((3, 4), far, strict=True):
            os.dup2(end, number)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [command, *_ARGUMENTS[:-1], f"--user-data-dir={profile}", _ARGUMENTS[-1]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(3, 4),
            preexec_fn=wired,
        )
        for end in (theirs, answers):
            os.close(end)
        browser = Browser(reading, writing)
        try:
            yield browser
        finally:
            with contextlib.suppress(AssertionError, OSError):
                browser.ask("Browser.close")  # its own processes end with it
            process.kill()
            process.wait(PATIENCE)
            for end in (reading, writing):
                os.close(end)
