"""Choices for a model are flags of a command line, ``--dim n=4``, and parameters of a query, ``dim=n=4``.

The core speaks of flags, as most of its callers have a command line; callers of a service hear of parameters.
"""

from __future__ import annotations

import re
from typing import Final

__all__ = ["in_flags", "in_query"]

_DIM_FLAG: Final = re.compile(r"(?<![\w-])--(dim|input) (?=\S+=)")
_FLAG: Final = re.compile(r"(?<![\w-])(no )?--([a-z]+(?:-[a-z]+)*)")
_DIM: Final = re.compile(r"(?<!\S)(dim|input)=(?=\S+=)")
_PARAMETER: Final = re.compile(r"\b(the|no) parameter ([a-z]+(?:_[a-z]+)*)")
#: Of a model; --output of a command line is the file that is written.
_OUTPUT_FLAG, _OUTPUT = "output-name", "output"


def in_query(text: str) -> str:
    """A sentence about flags as one about parameters; commands, between backticks, stay as they are."""
    parts = text.split("`")
    parts[::2] = [
        _FLAG.sub(
            lambda flag: f"{'no' if flag[1] else 'the'} parameter {_parameter(flag[2])}",
            _DIM_FLAG.sub(r"\1=", part),
        )
        for part in parts[::2]
    ]
    return "`".join(parts)


def in_flags(text: str) -> str:
    """The inverse of `in_query`, for a command line that has asked a service."""
    parts = text.split("`")
    parts[::2] = [
        _PARAMETER.sub(
            lambda name: f"{'no ' if name[1] == 'no' else ''}--{_flag(name[2])}", _DIM.sub(r"--\1 ", part)
        )
        for part in parts[::2]
    ]
    return "`".join(parts)


def _parameter(flag: str) -> str:
    return _OUTPUT if flag == _OUTPUT_FLAG else flag.replace("-", "_")


def _flag(parameter: str) -> str:
    return _OUTPUT_FLAG if parameter == _OUTPUT else parameter.replace("_", "-")
