"""The kernels are C11 and C++17, and compilers have nothing to say about them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from solver.c_kernels import SOURCES

STRICT = ("-std=c11", "-Wextra", "-Wconversion", "-Wpedantic", "-Wshadow", "-Wundef", "-Wcast-qual")
#: Arrays of vectors begin with compound literals, which compilers know in C++ as an extension.
PLUS_PLUS = ("-xc++", "-std=c++17")


@pytest.mark.parametrize(
    ("compiler", "flags"),
    [
        ("gcc", STRICT),
        ("gcc", (*STRICT, "-DAP_PLAIN")),
        ("clang", STRICT),
        ("g++", PLUS_PLUS),
        ("g++", (*PLUS_PLUS, "-DAP_PLAIN")),
    ],
    ids=["gcc", "gcc, loops", "clang", "g++", "g++, loops"],
)
def test_every_source_compiles(compiler: str, flags: tuple[str, ...]) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    sources = sorted(str(path) for path in SOURCES.glob("*.c"))
    command = [compiler, *flags, "-Wall", "-Werror", "-ffreestanding", "-fsyntax-only", *sources]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr[-2000:]
