"""Fail a build when a network can no longer be trained on the device it is meant for.

    python -m examples.build_pipeline --capacity 24MiB --url http://127.0.0.1:8080 graph.json [graph.json ...]

Exit code 0: every graph fits; 1: one does not, or is not a trainable graph; 2: the service cannot be
reached or something else went wrong, so that nothing is known about the graphs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from clients import CapacityExceeded, Client, ClientError, ProblemError
from solver.documents import read_size

__all__ = ["main"]

#: Operands named when a graph does not fit: enough to see what to shrink.
MOST_NAMED = 5


def size(text: str) -> int:
    """Bytes of ``1048576``, ``1024KiB`` or ``1.5MB``; argparse names this function in its message."""
    return read_size(text)


def check(client: Client, graph: Path, capacity: int) -> bool:
    """Whether `graph` fits, with the reason printed either way."""
    try:
        plan = client.plan(graph, capacity=capacity)
    except CapacityExceeded as error:
        print(f"FAIL {graph}: needs {error.required:,} bytes, {error.excess:,} more than {capacity:,}.")
        for operand, nbytes in error.live_at_peak[:MOST_NAMED]:
            print(f"     live at the peak: {operand} ({nbytes:,} bytes)")
        return False
    except ProblemError as error:
        if error.status >= 500:
            raise
        print(f"FAIL {graph}: {error}")
        return False
    print(
        f"ok   {graph}: {plan.arena_bytes:,} of {capacity:,} bytes ({plan.status}, plan {plan.digest[:12]})"
    )
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fail when a graph does not fit a capacity.")
    parser.add_argument("graphs", nargs="+", type=Path, metavar="graph.json")
    parser.add_argument("--capacity", type=size, required=True, help="bytes, or as 24MiB or 1.5GB")
    parser.add_argument("--url", default="http://127.0.0.1:8080", help="where the service listens")
    given = parser.parse_args(arguments)
    try:
        with Client(given.url) as client:
            fitting = [check(client, graph, given.capacity) for graph in given.graphs]
    except (ClientError, OSError) as error:
        print(f"cannot tell: {error}", file=sys.stderr)
        return 2
    return 0 if all(fitting) else 1


if __name__ == "__main__":
    sys.exit(main())
