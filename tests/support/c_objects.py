"""Programs in C whose kernels are compiled once a process for the same flags, whatever their number."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["shared_library"]

_FOLDER = tempfile.TemporaryDirectory(prefix="arenaplan-objects-")

#: By compiler, flags, name of the source, and all of its text.
_OBJECTS: dict[tuple[object, ...], Path] = {}


def shared_library(
    library: Path,
    compiler: str,
    *flags: str,
    own: Iterable[Path],
    kernels: Iterable[Path],
    own_flags: Sequence[str] = (),
) -> Path:
    """The library of the sources of one program and of its kernels, compiled with these flags; `own_flags`
    go behind them for the sources of the program.
    """
    program = shutil.which(compiler)
    assert program is not None
    command = [program, "-fPIC", *flags]
    objects = []
    for source in kernels:
        key = (*command, source.name, _whole_text(source))
        if key not in _OBJECTS:
            place = Path(_FOLDER.name, f"{len(_OBJECTS)}.o")
            subprocess.run([*command, "-c", source, "-o", place], check=True)
            _OBJECTS[key] = place
        objects.append(_OBJECTS[key])
    subprocess.run([*command, *own_flags, "-shared", *own, *objects, "-o", library], check=True)
    return library


def _whole_text(source: Path) -> str:
    """The text of a source, then that of the headers beside it that it includes."""
    texts, left = dict[Path, str](), [source]
    while left:
        path = left.pop()
        if path not in texts:
            text = texts[path] = path.read_text(encoding="ascii")
            left += [path.parent / name for name in re.findall(r'^#include "(.*)"', text, re.MULTILINE)]
    return "".join(texts.values())
