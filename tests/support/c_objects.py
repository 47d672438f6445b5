"""Programs in C whose kernels are compiled once a test run for the same flags, whatever their number."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["FOLDER", "shared_library"]

#: Names, in the environment of all processes of a test run, the folder of its compiled kernels.
FOLDER = "TESTS_COMPILED_KERNELS"


def shared_library(
    library: Path,
    compiler: str,
    *flags: str,
    own: Iterable[Path],
    kernels: Iterable[Path],
    data: Iterable[Path] = (),
    own_flags: Sequence[str] = (),
) -> Path:
    """The library of the sources of one program and of its kernels, compiled with these flags; `own_flags`
    go behind them for the sources of the program. `data` are sources without code, the same for all flags.
    """
    program = shutil.which(compiler)
    assert program is not None
    command = [program, "-fPIC", *flags]
    # Kernels do not read the macros of a program.
    of_kernels = tuple(flag for flag in command if not flag.startswith("-DNET_"))
    of_data = tuple(flag for flag in of_kernels if not flag.startswith(("-D", "-O", "-m")))
    sources, objects = {of_kernels: kernels, of_data: data}, list[Path]()
    for how, source in ((how, source) for how, files in sources.items() for source in files):
        key = repr((*how, source.name, _whole_text(source)))
        place = Path(os.environ[FOLDER], f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.o")
        if not place.exists():  # another process may write the same meanwhile
            written = place.with_suffix(f".{os.getpid()}")
            subprocess.run([*how, "-c", source, "-o", written], check=True)
            written.rename(place)
        objects.append(place)
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
