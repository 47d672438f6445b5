"""Errors and notes name flags on a command line, and parameters where a query chose.

The text of notes in a header is ASCII, bounded, and has whole notes only.
"""

from __future__ import annotations

import json

import pytest

from service.jobs.query import MOST_BYTES, in_flags, in_query, notes_headers, notes_text


@pytest.mark.parametrize(
    ("flags", "query"),
    [
        ("Give --dim batch=SIZE --dim x[1]=SIZE.", "Give dim=batch=SIZE dim=x[1]=SIZE."),
        ("Fix it with --input sr=16000 --input on=true.", "Fix it with input=sr=16000 input=on=true."),
        ("Leave out --input.", "Leave out the parameter input."),
        ("An inference, as no --loss says more.", "An inference, as no parameter loss says more."),
        ("Choose another with --output-name.", "Choose another with the parameter output."),
        ("Give --class-axis from -2 to 1.", "Give the parameter class_axis from -2 to 1."),
        ("`arenaplan operators --onnx` lists them.", "`arenaplan operators --onnx` lists them."),
        (
            "Take `plan --dim n=4`, or leave out --loss.",
            "Take `plan --dim n=4`, or leave out the parameter loss.",
        ),
        ("The tensor 'a--b' has 2 dimensions.", "The tensor 'a--b' has 2 dimensions."),
        ("", ""),
    ],
)
def test_there_and_back(flags: str, query: str) -> None:
    assert in_query(flags) == query
    assert in_flags(query) == flags


def test_flags_are_named_as_parameters() -> None:
    note = "Normalised by running statistics; --batch-norm train takes those of the batch."
    (said,) = json.loads(notes_text([note]))
    assert "the parameter batch_norm train" in said
    assert in_flags(said) == note


def test_every_character_can_stand_in_a_header() -> None:
    note = "not trained: größe, 重み, a\r\nb, \x7f, \ud800."
    text = notes_text([note])
    assert all(" " <= character <= "~" for character in text)
    assert json.loads(text) == [note]


def test_without_notes_there_is_no_header() -> None:
    assert notes_text([]) == ""
    assert notes_headers({"notes": ""}) == notes_headers({}) == {}
    assert notes_headers({"notes": '["a"]'}) == {"Arenaplan-Notes": '["a"]'}


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ([MOST_BYTES - 4], [0]),
        ([MOST_BYTES - 3], []),
        ([10, MOST_BYTES, 20], [0, 2]),
        ([20, 10, MOST_BYTES], [0, 1]),
        ([1000] * 5, [0, 4]),
        ([4] * 2000, None),
        ([MOST_BYTES // 2 - 4] * 2, [0, 1]),
        ([MOST_BYTES // 2 - 3] * 2, [1]),
    ],
)
def test_notes_that_do_not_fit_are_counted(lengths: list[int], kept: list[int] | None) -> None:
    notes = [f"{number:_>{length}}" for number, length in enumerate(lengths)]
    text = notes_text(notes)
    assert len(text) <= MOST_BYTES
    said = json.loads(text)
    if kept is not None:
        assert said[: len(kept)] == [notes[number] for number in kept]
        assert len(said) == len(kept) + (len(kept) < len(notes))
    left = len(notes) - (len(said) - 1)
    if len(said) != len(notes) or said != notes:
        assert said[-1].startswith("1 more note is" if left == 1 else f"{left:,} more notes are")
        assert set(said[:-1]) <= set(notes)
