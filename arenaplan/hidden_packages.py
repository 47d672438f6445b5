"""Whether the packages of this distribution that have generic names are those that Python finds."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NEIGHBOURS", "hidden"]

#: Packages that stand beside `arenaplan` in its distribution.
NEIGHBOURS = ("solver", "service", "clients")


def hidden(root: Path, names: Sequence[str]) -> dict[str, str]:
    """By name, a sentence for each package that Python finds outside of the folder `root`, or not at all.

    Looks at files and imports nothing. Cost: a search of Python's path for each name.
    """
    return {name: sentence for name in names if (sentence := _hidden(root, name))}


def _hidden(root: Path, name: str) -> str:
    try:
        spec = importlib.util.find_spec(name)
    except ValueError:  # a module without a spec, which somebody made by hand
        spec = None
    places = (
        [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])] if spec else []
    )
    if any(Path(place).resolve().is_relative_to(root.resolve() / name) for place in places):
        return ""
    cause = f"Python finds {places[0]} in its place" if places else "Python does not find it"
    return (
        f"arenaplan's package {name!r} is hidden: {cause}, so rename or remove that, or install arenaplan"
        " into an environment of its own."
    )
