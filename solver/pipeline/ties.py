"""Ties between persistent values of different models: ``a.encoder.*=b.encoder.*``."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from solver.errors import OptionsError
from solver.plan import Tie

__all__ = ["joined_names", "texts_of_stars", "tie_between"]


def joined_names(names: Collection[str], ties: Sequence[Tie]) -> dict[str, str]:
    """For each name the first of those that it is tied to, directly or by way of others. Linear for each tie.

    Raises OptionsError for a tie that joins nothing, and for one whose sides differ in their number of stars.
    """
    joined = {name: name for name in names}
    order = {name: k for k, name in enumerate(names)}

    def first_of(name: str) -> str:
        while joined[name] != name:
            name = joined[name]
        return name

    for k, tie in enumerate(ties):
        if tie.left.count("*") != tie.right.count("*"):
            raise OptionsError(
                f"The tie {tie.text!r} has another number of stars on each side.",
                remedy="Write as many on the right as on the left: each stands for the same text.",
                path=("ties", k),
            )
        pairs = []
        for name in names:
            texts = None if "@" in name else texts_of_stars(tie.left, name)
            other = None if texts is None else _filled(tie.right, texts)
            if other and other in joined and other != name:
                pairs.append((name, other))
        if not pairs:
            known = ", ".join(repr(name) for name in names if "@" not in name)
            raise OptionsError(
                f"The tie {tie.text!r} joins nothing: no two persistent values match its sides.",
                remedy=f"Name values of two models. There are {known:.300}.",
                path=("ties", k),
            )
        for name, other in pairs:
            one, two = sorted((first_of(name), first_of(other)), key=order.__getitem__)
            joined[two] = one
    return {name: first_of(name) for name in names}


def tie_between(names: Collection[str], ties: Sequence[Tie], one: str, other: str) -> int:
    """The number of the first tie with which the two names are joined. They are joined by all ties."""
    for k in range(len(ties)):
        joined = joined_names(names, ties[: k + 1])
        if joined[one] == joined[other]:
            return k
    return len(ties)


def texts_of_stars(pattern: str, name: str) -> list[str] | None:
    """The text that each star of the pattern stands for in the name, each as short as the ones before it
    permit; None where the name does not match. Linear in the name for each part of the pattern.
    """
    first, *others = pattern.split("*")
    if not others:
        return [] if name == first else None
    *middle, last = others
    begin, end = len(first), len(name) - len(last)
    if begin > end or not (name.startswith(first) and name.endswith(last)):
        return None
    texts = []
    for part in middle:
        at = name.find(part, begin, end)
        if at < 0:
            return None
        texts.append(name[begin:at])
        begin = at + len(part)
    return [*texts, name[begin:end]]


def _filled(pattern: str, texts: Sequence[str]) -> str:
    """The pattern with a text for each of its stars."""
    first, *others = pattern.split("*")
    return first + "".join(text + part for text, part in zip(texts, others, strict=True))
