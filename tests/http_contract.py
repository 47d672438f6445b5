"""Every check of schemathesis against a running service, seed by seed: ``./run contract``.

Requests are made from the service's own OpenAPI document: right ones, wrong ones, and sequences that its
links describe. Schemathesis has an environment of its own; its program is the first argument.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import time
from collections import Counter

from tests.support.server import NO_EVENT, ROOT, Server, running_server

#: Of the summary that schemathesis prints at the end.
_CASES = re.compile(r"^Test cases:\n +([\d,]+) generated", re.MULTILINE)


def examine(program: str, server: Server, seed: int, examples: int) -> tuple[int, bool]:
    """Cases of one seed, and whether all of them passed; what has failed is printed."""
    # All checks are on by themselves: named here, they would be on even where the file takes them out.
    command = [program, "--config-file", str(ROOT / "tests/schemathesis.toml"), "run"]
    command += [f"{server.url}/openapi.json", "--continue-on-failure"]
    command += ["--seed", str(seed), "--max-examples", str(examples), "--request-timeout", "120"]
    # Its own limits of time would make a slow machine a failure.
    command += ["--suppress-health-check", "all"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = _CASES.search(done.stdout)
    if done.returncode or found is None:
        print(done.stdout, done.stderr)
    return int(found[1].replace(",", "")) if found else 0, done.returncode == 0


def bugs(server: Server) -> Counter[str]:
    """The lines that a log should not have: errors, lost workers, and lines that are not events."""
    return Counter(
        str(event["event"])
        for event in server.log
        if event["event"] == NO_EVENT
        or event.get("level") == "error"
        or event.get("problem") == "worker-lost"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run contract", description=__doc__)
    parser.add_argument("program", help=argparse.SUPPRESS)
    parser.add_argument("--cases", type=int, default=50_000, help="at least so many (default 50,000)")
    parser.add_argument("--seeds", type=int, default=3, help="from at least so many seeds (default 3)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--examples", type=int, default=400, help="of each operation (default 400)")
    chosen = parser.parse_args()
    together, passed = 0, True
    with running_server(workers=2) as server:
        for number in itertools.count():
            if number >= chosen.seeds and together >= chosen.cases:
                break
            began = time.monotonic()
            cases, kept = examine(chosen.program, server, chosen.first + number, chosen.examples)
            together, passed = together + cases, passed and kept and cases > 0
            verdict = "passed" if kept else "FAILED"
            seconds = time.monotonic() - began
            print(f"seed {chosen.first + number}: {cases:,} cases {verdict}, {seconds:,.0f} s", flush=True)
            if not cases:
                break
        wrong = bugs(server)
    print(f"{together:,} cases; in the log: {dict(wrong) or 'no error'}")
    sys.exit(not passed or bool(wrong))


if __name__ == "__main__":
    main()
