"""Errors name flags on a command line, and parameters where a query chose."""

from __future__ import annotations

import pytest

from service.jobs.query import in_flags, in_query


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
