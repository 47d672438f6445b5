"""Entry points and ties as users name them: ``infer:batch=1,name=camera`` and ``a.encoder.*=b.encoder.*``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, cast, get_args

from solver.errors import OptionsError
from solver.plan.deployment import Purpose

__all__ = ["MAX_ENTRIES", "MAX_TIES", "PURPOSES", "EntrySpec", "Tie", "check_name", "read_entry", "read_tie"]

PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)

#: Entry points of one deployment: far more than devices have, and few enough to be planned one by one.
MAX_ENTRIES: Final = 1024

#: Ties of one deployment: each looks at the names of all persistent values.
MAX_TIES: Final = 1024

#: Characters of a name.
_MAX_NAME: Final = 1024

#: Digits of the largest batch, 2**63 - 1.
_MAX_DIGITS: Final = 19

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """An entry point as it is asked for. Without a name it is called as its purpose is, behind the name of
    its model where there are several; without a batch it takes that of the options.
    """

    purpose: Purpose
    model: str = ""
    batch: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class Tie:
    """Values whose names match `right` are those whose names match `left`, with the same text for each ``*``.

    Values that the planner derives, as optimizer variables, have an ``@`` in their names; none of them is
    tied: each model that trains has its own.
    """

    left: str
    right: str

    @property
    def text(self) -> str:
        return f"{self.left}={self.right}"


def read_entry(text: str) -> EntrySpec:
    """The entry point that a text names: ``train``, ``infer:batch=1,name=camera``, ``encoder.infer``.

    Raises OptionsError for another text.
    """
    head, *words = text.replace(":", ",", 1).split(",")
    model, _, purpose = head.rpartition(".")
    pairs = [word.partition("=") for word in words]
    fields = {key: value for key, _, value in pairs if value}
    batch, name = fields.get("batch"), fields.get("name", "")
    wrong = (
        purpose not in PURPOSES
        or not fields.keys() <= {"batch", "name"}
        or len(fields) < len(words)  # an empty word, or one that comes twice
        or (batch is not None and not _is_batch(batch))
    )
    if wrong:
        raise OptionsError(
            f"{text!r:.200} is no entry point.",
            remedy=f"Write one of {', '.join(PURPOSES)}, with a batch or a name if it needs one, as"
            " infer:batch=1,name=camera; of several models its name in front, as encoder.infer.",
            path=("entries",),
        )
    return EntrySpec(cast("Purpose", purpose), model, int(batch) if batch else None, name)


def _is_batch(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) > 0


def read_tie(text: str) -> Tie:
    """The tie that a text names, ``a.encoder.*=b.encoder.*``. Raises OptionsError for another text."""
    left, equals, right = text.partition("=")
    if not (left and equals and right) or "=" in right:
        raise OptionsError(
            f"{text!r:.200} ties nothing.",
            remedy="Write two names of persistent values, as a.encoder.*=b.encoder.*.",
            path=("ties",),
        )
    return Tie(left, right)


def check_name(name: str, of: str, path: tuple[str | int, ...]) -> None:
    """Raises OptionsError for a name that documents and tables cannot show; `of` says what it names."""
    if not name or len(name) > _MAX_NAME or _UNPRINTABLE.search(name):
        raise OptionsError(
            f"{name!r:.80} is no name of {of}.",
            remedy=f"Give 1 to {_MAX_NAME:,} characters without control characters.",
            path=path,
        )
