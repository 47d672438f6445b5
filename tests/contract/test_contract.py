"""One request behind every door: the same document, or the same problem with the code that belongs to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from solver import documents
from tests.contract.doors import ANY_PROBLEM, CODES, DOORS, USAGE, Outcome, Request, place
from tests.contract.refusals import REFUSED, Refused
from tests.contract.rows import ANSWERED, Answered
from tests.support.every import every

#: Doors whose codes are HTTP statuses; the others have exit codes.
HTTP = ("http", "job")
COMMANDS = ("command line", "server", "process")


def outcomes(
    request: Request, http: httpx.Client, folder: Path, *without: str
) -> Iterator[tuple[str, Outcome]]:
    """What each door answers that has words for the request."""
    for name, door in DOORS.items():
        if name not in without:
            below = folder / name.replace(" ", "-")
            below.mkdir(parents=True)
            if (outcome := door(request, http, below)) is not None:
                yield name, outcome


@pytest.mark.parametrize("row", ANSWERED, ids=str)
def test_every_door_gives_the_same_document(row: Answered, http: httpx.Client, tmp_path: Path) -> None:
    without = row.without if row.process else (*row.without, "process")
    answers = {}
    for name, outcome in outcomes(row.request, http, tmp_path, *without):
        assert outcome.problem is None, f"{name}: {outcome}"
        answers[name] = outcome.answer
    first, *others = answers
    assert others, "one door alone is no contract"
    for name in others:
        assert answers[name] == answers[first], f"{name} differs from {first}"
    assert row.fact == fact_of(answers[first])
    if row.places or row.reserved:
        plan = documents.load_plan(answers[first])
        assert {label: plan.offsets[plan.program.by_label[label]] for label in row.places} == row.places
        lying = zip(plan.program.values, plan.offsets, strict=True)
        assert all(start >= row.reserved.stop or not value.type.nbytes for value, start in lying)


def fact_of(answer: object) -> object:
    """What a row says of a document: the bytes of a plan, the verdict, or how much there is."""
    if not isinstance(answer, dict):
        return None
    match answer:
        case {"identical": identical}:
            return identical
        case {"status": str(status), "remedies": remedies}:
            return status, len(remedies)
        case {"points": points}:
            return [point["peak"] for point in points]
        case {"peak": peak}:
            return peak
        case {"trainable": names, "operations": operations}:
            return len(names), len(operations)
        case {"trainable": names, "arena_bytes": size}:
            return names, size
        case {"spaces": spaces}:
            return [space[3] for space in spaces]
        case {"entry_points": entry_points}:
            return [(entry["name"], fact_of(entry["plan"])) for entry in entry_points]
    return sorted(answer)


def check(row: Refused, name: str, outcome: Outcome) -> None:
    exit_code, status = CODES.get(row.problem, ANY_PROBLEM)
    assert outcome.code == (status if name in HTTP else exit_code), outcome
    if outcome.problem == USAGE:
        assert name in COMMANDS
        assert exit_code == 2
        assert outcome.text.strip()
        return
    types = {row.problem}
    if name not in HTTP and row.is_of_options:  # a text, where JSON has a document
        types |= {"invalid-options"}
    assert outcome.problem in types, outcome
    assert row.words in outcome.text, outcome
    if name in HTTP:
        assert outcome.pointer in (row.at, f"/request{row.at}"), outcome
    elif name in COMMANDS or row.at.startswith(("/entries", "/ties")):  # the flag, without its number
        assert place(row.at).startswith(place(outcome.pointer) if name in COMMANDS else outcome.pointer), (
            outcome
        )
    else:
        assert outcome.pointer in (row.at, place(row.at)), outcome


def test_every_door_refuses_alike(http: httpx.Client, tmp_path: Path) -> None:
    with every() as case:
        for number, row in enumerate(REFUSED):
            with case(row):
                for name, outcome in outcomes(row.request, http, tmp_path / str(number), "process"):
                    with case(f"{row}: {name}"):
                        check(row, name, outcome)
