"""The real command on a pseudo-terminal: what a person sees, without the codes that colour and move it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

#: Seconds after which a silent command is taken for one that hangs.
PATIENCE: Final = 120

_CODES: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a terminal shows at the end, in lines, and the exit code of the command."""

    lines: tuple[str, ...]
    exit_code: int

    @property
    def text(self) -> str:
        """All words with one space between, wherever lines were broken."""
        return " ".join(" ".join(self.lines).split())


def on_terminal(
    *arguments: str | Path,
    folder: Path,
    columns: int = 80,
    until: Callable[[str], bool] | None = None,
    shows_errors: bool = True,
    **environment: str,
) -> Seen:
    """Run ``arenaplan`` with these arguments in a terminal of so many columns, its input included.

    A command that does not end by itself gets SIGTERM when `until` is true of the text so far. Without
    `shows_errors` standard error, and with it progress, goes nowhere.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    usual = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", *map(str, arguments)],
        cwd=folder,
        env={**usual, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **environment},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if shows_errors else subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(theirs)
    written = b""
    try:
        while select.select([ours], [], [], PATIENCE)[0]:
            written += os.read(ours, 1 << 16)
            if until is not None and until(_plain(written)):
                process.terminate()
                until = None
    except OSError:  # how Linux says that the other side has closed
        pass
    finally:
        os.close(ours)
    return Seen(tuple(_plain(written).split("\n")), process.wait(PATIENCE))


def _plain(written: bytes) -> str:
    """The text that stays: a carriage return begins its line again."""
    text = _CODES.sub("", written.decode("utf-8", "replace")).replace("\r\n", "\n")
    return "\n".join(line.rpartition("\r")[2] for line in text.split("\n"))
