"""The table of tails: its problems, and the cells of a row."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from solver.layout import LayoutProblem, max_load
from tests.benchmarks import peers
from tests.benchmarks.tails import FAMILIES, Taken, summary
from tests.support.buffers import problem
from tests.support.streams import recut, stream


def area(of: LayoutProblem) -> int:
    return sum(b.size * (b.lifespan.end - b.lifespan.start) for b in of.buffers)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_problems_are_tight_and_repeatable(family: str) -> None:
    made = FAMILIES[family](1)
    assert made == FAMILIES[family](1) != FAMILIES[family](2)
    assert made.capacity is not None
    assert 0.9 * made.capacity < max_load(made).bytes <= made.capacity


def test_a_stream_fills_the_capacity_at_every_step() -> None:
    full = stream(3, buffers=60, steps=20, live=8)
    assert full.capacity == max_load(full).bytes
    assert area(full) == 20 * full.capacity


def test_moved_cuts_leave_the_load_as_it_is() -> None:
    before = stream(5, buffers=60, steps=20, live=8, free=0.1)
    after = recut(5, buffers=60, steps=20, live=8, free=0.1)
    assert (area(before), max_load(before).bytes) == (area(after), max_load(after).bytes)
    assert before.buffers != after.buffers


def test_a_row_has_its_quantiles() -> None:
    taken = [Taken(seconds / 1000, solved=seconds < 100) for seconds in range(1, 101)]
    assert summary(taken) == ("100", "99%", "50", "90", "99", "100", "5.05")


@pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
def test_what_minimalloc_finds_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "minimalloc"
    program.write_text(
        '#!/bin/sh\nfor a in "$@"; do case $a in --output=*) out=${a#--output=};; esac; done\n'
        'printf "id,lower,upper,size,offset\\n0,0,1,4,0\\n1,0,1,4,4\\n" >"$out"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(peers, "MINIMALLOC", str(program))
    two = problem((4, 0, 1), (4, 0, 1))
    assert peers.minimalloc(two, 1)[0] == 8
    program.write_text(program.read_text(encoding="utf-8").replace("4,0\\n", "4,1\\n"), encoding="utf-8")
    assert peers.minimalloc(two, 1)[0] is None
