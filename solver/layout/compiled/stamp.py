"""Tells one state of the compiled sources from another."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

__all__ = ["stamp"]

_IMPORTED = re.compile(rb"^ *from solver\.([\w.]+) import", re.MULTILINE)

_COMPILED = re.compile(rb"^@(compiled|inlined)$", re.MULTILINE)

#: The packages with compiled code.
_PACKAGES = ("layout", "schedules")


@cache
def stamp() -> str:
    """Changes whenever any compiled source does, or one that it takes constants from."""
    here, root = Path(__file__), Path(__file__).parents[2]
    sources = {
        ".".join(path.relative_to(root).with_suffix("").parts): path.read_bytes()
        for package in _PACKAGES
        for path in sorted((root / package).rglob("*.py"))
    }
    imports = {
        name: {found.decode() for found in _IMPORTED.findall(text)} & sources.keys()
        for name, text in sources.items()
    }
    jit, emit = (".".join((*here.parent.relative_to(root).parts, name)) for name in ("jit", "emit"))
    users = {name for name, text in sources.items() if _COMPILED.search(text)}
    used = users.union({jit, emit}, *(imports[name] for name in users))
    return hashlib.sha256(b"\0".join(sources[name] for name in sorted(used))).hexdigest()
