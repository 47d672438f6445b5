"""Reading and writing all or nothing; errors as one line with an exit code."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from service.cli.console import (
    Exit,
    end_for,
    ended_by,
    fail,
    heed,
    note_end,
    progress_text,
    read_document,
    reporting,
    write_document,
)
from solver.errors import ArenaplanError, CapacityError, InternalError, LossError, OptionsError


def test_figures_of_a_search_in_words() -> None:
    assert progress_text("prove", {}) == "prove"
    assert progress_text("layout", {"peak_bytes": 12_345, "bound_bytes": 8, "done": None}) == (
        "layout, 12,345 bytes, at least 8"
    )
    times = {"extra_nanoseconds": 50, "bound_nanoseconds": 25, "step_nanoseconds": 1000}
    said = "recompute, 7 bytes, +5.00 % of time, at least 2.50 %"
    assert progress_text("recompute", {"peak_bytes": 7, **times}) == said
    assert progress_text("recompute", {"extra_nanoseconds": 0, "step_nanoseconds": 0}) == "recompute"
    assert progress_text("paging", {"moved_bytes": 1_000}) == "paging, 1,000 bytes moved"


def test_a_bound_of_nothing_is_not_told() -> None:
    assert progress_text("layout", {"peak_bytes": 9, "bound_bytes": 0}) == "layout, 9 bytes"
    for bound in (0, 9):
        times = {"extra_nanoseconds": 50_000, "bound_nanoseconds": bound, "step_nanoseconds": 100_000}
        assert progress_text("recompute", times) == "recompute, +50.00 % of time"


def test_an_interruption_that_was_swallowed_is_heeded_later() -> None:
    heed()
    try:
        with contextlib.suppress(KeyboardInterrupt):
            end_for(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            heed()
        assert ended_by() == 143
    finally:
        note_end(0)
    heed()
    assert ended_by() == 130


def test_write_and_read(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_document(path, b"{}")
    assert read_document(path) == b"{}"
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_of_a_new_file(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_document(tmp_path / "new", b"")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_permissions_of_a_replaced_file(tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_document(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(b"precious")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space") as refused:
        write_document(path, b"new")
    assert refused.value.filename == str(path)
    assert path.read_bytes() == b"precious"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write_document(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


def test_devices_are_written_to() -> None:
    write_document(Path("/dev/null"), b"gone")
    assert Path("/dev/null").is_char_device()


def test_standard_streams(capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"in"), encoding="utf-8"))
    assert read_document(Path("-")) == b"in"


CASES = [
    (LossError("No loss.", remedy="Name one.", path=("loss",)), Exit.USAGE),
    (CapacityError("Too large.", required=2, available=1, live_at_peak=[("w", 2)]), Exit.TOO_LARGE),
    (InternalError("Impossible."), Exit.BUG),
]


@pytest.mark.parametrize(("error", "code"), CASES)
def test_one_line(capsys: pytest.CaptureFixture[str], error: ArenaplanError, code: Exit) -> None:
    with pytest.raises(SystemExit) as caught, reporting(as_json=False, document="g.json"):
        raise error
    assert caught.value.code == code
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert error.message in lines[0]
    assert error.remedy in lines[0]


@pytest.mark.parametrize(
    ("error", "place"),
    [
        (LossError("No loss.", path=("loss",)), "g.json#/loss: No loss."),
        (LossError("No loss."), "g.json: No loss."),
        (OptionsError("Bad.", path=("deadline_seconds",)), "--deadline: Bad."),
        (OptionsError("Bad.", path=("scratch_budget",)), "--scratch-budget: Bad."),
        (CapacityError("Too large.", required=2, available=1, live_at_peak=[]), "Too large."),
        (
            CapacityError("Too large.", required=9, available=1, live_at_peak=[(n, 4000) for n in "abcd"]),
            "Too large. Largest at the peak: a (4,000), b (4,000), c (4,000).",
        ),
    ],
)
def test_the_place_of_the_culprit(
    capsys: pytest.CaptureFixture[str], error: ArenaplanError, place: str
) -> None:
    with pytest.raises(SystemExit), reporting(as_json=False, document="g.json"):
        raise error
    assert capsys.readouterr().err == f"arenaplan: {place}\n"


def test_interrupted_while_a_compiled_module_is_initialized(capsys: pytest.CaptureFixture[str]) -> None:
    error = ImportError("initialization failed")
    error.__cause__ = KeyboardInterrupt()
    with pytest.raises(SystemExit) as end, reporting(as_json=False):
        raise error
    assert end.value.code == Exit.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_interrupted() -> None:
    with pytest.raises(SystemExit) as caught, reporting(as_json=False):
        raise KeyboardInterrupt
    assert caught.value.code == 130


@pytest.mark.parametrize(("error", "code"), CASES)
def test_json(capsys: pytest.CaptureFixture[str], error: ArenaplanError, code: Exit) -> None:
    with pytest.raises(SystemExit), reporting(as_json=True, document="g.json"):
        raise error
    facts = json.loads(capsys.readouterr().err)
    assert facts["exit"] == code
    assert facts["type"] == f"/problems/{error.code}"
    assert facts["detail"] == error.message
    if isinstance(error, CapacityError):
        assert facts["excess"] == 1


def test_missing_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught, reporting(as_json=False, document="x"):
        read_document(tmp_path / "missing.json")
    assert caught.value.code == Exit.USAGE
    assert capsys.readouterr().err == f"arenaplan: {tmp_path}/missing.json: No such file or directory.\n"


def test_messages_of_many_lines_become_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        fail("two\nlines", Exit.USAGE)
    assert capsys.readouterr().err == "arenaplan: two lines\n"
