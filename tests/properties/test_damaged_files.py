"""Inputs of every kind with something wrong in them: read and used, or refused by an error of ours."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import pytest

from service.problems import Problem
from solver.errors import ArenaplanError, InternalError
from tests.support.damaged_kinds import KINDS, Kind

#: Cases of each kind. ./run fuzz has 2,000, of all kinds together more than 50,000.
CASES = int(os.environ.get("ARENAPLAN_FUZZ") or 12)
#: Of other cases; a seed says where a piece of a long run begins.
SEED = os.environ.get("ARENAPLAN_FUZZ_SEED", "13")
#: Bytes that all cases of a kind together may add to the process.
MOST_MEMORY = 512 << 20
#: Seconds of processor time for one case: all are small, whatever they claim.
MOST_SECONDS = 60


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_refused_by_an_error_of_ours(kind: str, tmp_path: Path) -> None:
    of, random = KINDS[kind], Random(f"{SEED} {kind}")
    sources = of.sources()
    begin = peak()
    refusals: list[tuple[str, str]] = []  # not the errors: each keeps what its functions had in hand
    for i in range(max(5, round(CASES * of.share))):
        data = of.damage(sources[i % len(sources)], random)
        (tmp_path / "case").write_bytes(data)  # to look at, should it fail
        with bounded(MOST_SECONDS):
            refusal = refused(of, data, tmp_path)
        if refusal is not None:
            refusals.append(refusal)
    assert refusals
    assert all(message and remedy for message, remedy in refusals)
    assert peak() - begin < MOST_MEMORY


def refused(kind: Kind, data: bytes, folder: Path) -> tuple[str, str] | None:
    """Message and remedy of what refuses an input, None where nothing does. Bugs are raised."""
    try:
        kind.use(data, folder)
    except InternalError:
        raise
    except ArenaplanError as error:
        return error.message, error.remedy
    except Problem as problem:
        if problem.kind.status >= 500:
            raise
        return problem.detail, problem.remedy
    return None


@contextmanager
def bounded(seconds: int) -> Iterator[None]:
    """Raises TimeoutError where what is inside takes more of the processor, however busy the machine is."""

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"longer than {seconds} s")

    before = signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
