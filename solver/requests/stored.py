"""Requests as bytes: what jobs store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from solver.errors import DocumentError

__all__ = ["Stored"]

#: The version of the serialized form, and what each serialized request begins with.
VERSION: Final = 1
_HEAD: Final = b'{"format":"arenaplan.request",'


@dataclass(frozen=True, slots=True)
class Stored:
    """The serialized form of a request: a header line of JSON, then the bytes of its models.

    `members` are by name those of a request in JSON: options, entries, points and others. If `inline`,
    `content` is more of them as one JSON object, in which the documents of models stand. Otherwise it is the
    bytes of the only model: a document, or with `choices` another tool's, whose options and members are texts
    by name among the choices.
    """

    wanted: str
    members: Mapping[str, Any] = field(default_factory=dict)
    choices: Mapping[str, Sequence[str]] | None = None
    content: bytes = b""
    inline: bool = False

    def dump(self) -> bytes:
        fields = {"wanted": self.wanted, "inline": self.inline, "members": self.members}
        head = {"format": "arenaplan.request", "version": VERSION, **fields, "choices": self.choices}
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.content

    @staticmethod
    def is_one(data: bytes) -> bool:
        """Whether these bytes are a request in this form, of any version."""
        return data.startswith(_HEAD)

    @classmethod
    def load(cls, data: bytes) -> Stored:
        """The inverse of `dump`. Raises DocumentError for another version."""
        line, _, content = data.partition(b"\n")
        head = json.loads(line)
        if head["version"] != VERSION:
            raise DocumentError(
                f"Version {head['version']} of 'arenaplan.request' is not known.",
                remedy=f"Known versions: {VERSION}. A newer service has stored it.",
                path=("version",),
            )
        return cls(head["wanted"], head["members"], head["choices"], content, head["inline"])
