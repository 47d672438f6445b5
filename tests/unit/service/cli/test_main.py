"""How the process of the command line ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A command that leaves a thread in native code behind, and ends as is said.
LEFT_ALONE = """
import sys
from threading import Event, Thread
from service.cli import main

def command(_arguments):
    Thread(target=Event().wait).start()
    print("said before")
    raise {error}

main.read_fast = command
sys.stdout.reconfigure(line_buffering=False)
main.main()
"""


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SystemExit(130)"])
def test_an_interrupted_command_does_not_wait_for_its_threads(error: str) -> None:
    code = LEFT_ALONE.format(error=error)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "said before\n", "")
