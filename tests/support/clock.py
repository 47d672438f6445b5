"""The command line with a clock that tests set: ``python -m tests.support.clock FILE COMMAND ...``.

The clock is ahead of that of the machine by the seconds in FILE. Clocks that nobody can set stay as they are.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from unittest import mock

__all__: list[str] = []


def main() -> None:
    file, real = Path(sys.argv.pop(1)), time.time

    def shifted() -> float:
        return real() + float(file.read_text(encoding="utf-8"))

    with mock.patch("time.time", shifted):
        from service.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
