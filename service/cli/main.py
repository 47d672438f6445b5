"""The entry point: the script ``arenaplan``, and ``python -m service.cli``."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import NoReturn

from service.cli.console import (
    Exit,
    degrade_output,
    drop_output,
    drop_unwritable,
    end_for,
    ended_by,
    fail,
    fail_with_bug,
    is_closed_pipe,
)

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit; a traceback for bugs alone."""
    degrade_output()
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) == usual:
            signal.signal(number, end_for)
    try:
        _run()
    except KeyboardInterrupt:  # while modules are loaded
        _end_interrupted()
    except SystemExit as end:
        if end.code == Exit.INTERRUPTED:
            _end_interrupted()
        if is_closed_pipe(end):  # of a help text, say
            drop_output()
            raise SystemExit(int(Exit.OK)) from None
        raise
    except OSError as error:
        fail(f"{error.filename or 'standard output'}: {error.strerror or error}.", Exit.USAGE)
    except Exception as error:  # noqa: BLE001 - Python's own exit code for it, 1, means that a plan is wrong
        fail_with_bug(error)
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
