"""Bodies take room in memory, then on disk, then none; and give it back."""

from __future__ import annotations

import pytest

from service.http.intake import FREE_BYTES, Intake, IntakeBody
from service.jobs.frames import Spool, pieces
from service.jobs.requests import named_deadline
from service.problems import Problem

CHUNK = b"x" * FREE_BYTES


def filled(intake: Intake, chunks: int) -> IntakeBody:
    body = IntakeBody(intake)
    for _ in range(chunks):
        body.append(CHUNK)
    return body


def test_small_bodies_are_not_counted() -> None:
    intake = Intake(0, 0)
    body = filled(intake, 1)
    assert (body.whole(), intake.in_memory, intake.on_disk) == (CHUNK, 0, 0)


def test_memory_first_then_disk() -> None:
    intake = Intake(3 * FREE_BYTES, 4 * FREE_BYTES)
    first = filled(intake, 3)
    assert (intake.in_memory, intake.on_disk) == (3 * FREE_BYTES, 0)
    second = filled(intake, 4)
    assert (intake.in_memory, intake.on_disk) == (3 * FREE_BYTES, 4 * FREE_BYTES)
    assert first.whole() == CHUNK * 3
    spooled = second.whole()
    assert isinstance(spooled, Spool)
    assert (len(spooled), b"".join(pieces(spooled))) == (4 * FREE_BYTES, CHUNK * 4)
    for body in (first, second):
        body.close()
    assert (intake.in_memory, intake.on_disk) == (0, 0)


def test_a_body_moves_to_disk_as_a_whole() -> None:
    """What it took in memory is free for others again."""
    intake = Intake(4 * FREE_BYTES, 9 * FREE_BYTES)
    body = filled(intake, 5)
    assert (intake.in_memory, intake.on_disk) == (0, 5 * FREE_BYTES)
    body.close()
    assert intake.on_disk == 0


def test_no_room() -> None:
    intake = Intake(FREE_BYTES, 2 * FREE_BYTES)
    body = filled(intake, 2)
    with pytest.raises(Problem) as caught:
        body.append(CHUNK)
    assert (caught.value.kind.code, caught.value.kind.status) == ("too-many-bytes", 429)
    assert caught.value.headers["Retry-After"]
    body.close()
    assert (intake.in_memory, intake.on_disk) == (0, 0)


def test_a_declared_length_without_room() -> None:
    intake = Intake(2 * FREE_BYTES, 3 * FREE_BYTES)
    intake.expect(3 * FREE_BYTES)
    with pytest.raises(Problem, match="no room"):
        intake.expect(3 * FREE_BYTES + 1)


def test_a_disk_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Spool, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Spool, "append", full)
    intake = Intake(0, 9 * FREE_BYTES)
    body = IntakeBody(intake)
    body.append(CHUNK)
    with pytest.raises(Problem, match="no room"):
        body.append(CHUNK)
    body.close()
    assert intake.on_disk == 0


def test_the_deadline_in_a_file() -> None:
    spool = Spool()
    spool.append(b'{"options": {"deadline_seconds" : 2.5e0}}')
    assert named_deadline(spool) == 2.5
    assert named_deadline(b'"deadline_seconds": 1, "deadline_seconds":3') == 3.0
    assert named_deadline(b'"deadline_seconds": 1e, "deadline": 3') is None
    spool.close()
