"""The entry point: the script ``arenaplan``, and ``python -m service.cli``."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

from service.cli.console import Exit, degrade_output, drop_unwritable, end_for, ended_by, reporting

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit; a traceback for bugs alone."""
    degrade_output()
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) == usual:
            signal.signal(number, end_for)
    try:
        # What happens outside of every command: modules are loaded, a help text is written.
        with reporting(as_json=False, place="standard output"):
            _run()
    except SystemExit as end:
        if end.code == Exit.INTERRUPTED:
            _end_interrupted()
        raise
    finally:
        drop_unwritable()


def _end_interrupted() -> NoReturn:
    """At once: a solver may still be busy in a thread, and taking a large process apart takes a while, too.

    All that has to be put away has been, on the way of the exception to here.
    """
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(ended_by())


def _run() -> None:
    # Otherwise pydantic reads the metadata of every installed distribution, looking for plugins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Most commands end after one answer, and garbage collection would take a fifth of their time. Commands
    # that live longer enable it again.
    gc.disable()
    try:
        from service.cli.commands import app

        app(prog_name="arenaplan")
    finally:
        gc.freeze()
        gc.enable()
