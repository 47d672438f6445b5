"""How the process of the command line ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: A command that leaves a thread in native code behind, and ends as is said.
LEFT_ALONE = """
import sys
from threading import Event, Thread
from service.cli import commands, main

def command(prog_name):
    Thread(target=Event().wait).start()
    print("said before")
    raise {error}

commands.app = command
sys.stdout.reconfigure(line_buffering=False)
main.main()
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(130)"])
def test_an_interrupted_command_does_not_wait_for_its_threads(error: str) -> None:
    code = LEFT_ALONE.format(error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "said before\n", "")


#: A command that is ended while it writes, and says how a write was ended.
ENDED = """
import os, signal, sys
from pathlib import Path
from service.cli import commands, console, main

def command(prog_name):
    sync = os.fsync
    os.fsync = lambda handle: (sync(handle), os.kill(os.getpid(), signal.{name}))
    with console.reporting(as_json=False):
        console.write_document(Path(sys.argv[1]), b"half")

commands.app = command
main.main()
"""


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_nothing_half_written_is_left_behind(name: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("old")
    words = [sys.executable, "-c", ENDED.format(name=name), str(tmp_path / "plan.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("plan.json", "old")]
