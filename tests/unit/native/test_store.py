"""Compiled code on disk: kept, found again, and where it cannot be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from solver.native import store

ROOT = Path(__file__).resolve().parents[3]

_NOTHING_COMPILES = """
import sys
{before}
from solver.compile import load
print(load(), [name for name in ("numba", "llvmlite") if name in sys.modules])
"""

_COMPILE = """
import numpy as np
from solver.native import compiled, compiling_after, runs_compiled

def one(row) -> int:
    return row[0] + 1

one = compiled(one)
with compiling_after(0):
    print(one(np.ones(1, np.int64)), runs_compiled(one))
"""

_WITHOUT_NUMBA = "sys.modules['numba'] = sys.modules['llvmlite'] = None  # importing them fails"


def run(script: str, *, root: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_that_was_compiled_runs_without_numba_and_llvmlite() -> None:
    """As in an image."""
    assert run(_NOTHING_COMPILES.format(before="")).returncode == 0  # compiles what is not there yet
    done = run(_NOTHING_COMPILES.format(before=_WITHOUT_NUMBA))
    assert (done.returncode, done.stdout, done.stderr) == (0, "True ['numba', 'llvmlite']\n", "")


_SWEEP = """
import numpy as np
from pathlib import Path
from solver.native import store
store.PACKAGE_CACHE = Path.home() / "empty"  # this tree may hold compiled code of other tests
from solver.layout.check.sweep import disjoint
from solver.native import compiling_after, deadline_of
zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
with {when}:
    print(disjoint(zero, one, zero, one))
"""


def test_the_first_search_on_a_machine_says_that_it_compiles(tmp_path: Path) -> None:
    """The process beside it, which compiles the other kernels, ends with it."""
    script = _SWEEP.format(when="compiling_after(0)")
    first, second = (run(script, HOME=str(tmp_path), XDG_CACHE_HOME="", NUMBA_CACHE_DIR="") for _ in range(2))
    note = "Compiling the searches, once on this machine: up to half a minute.\n"
    assert (first.returncode, first.stdout, first.stderr) == (0, "True\n", note)
    assert (second.returncode, second.stdout, second.stderr) == (0, "True\n", "")
    assert list((tmp_path / ".cache/arenaplan").glob("sweep.sweep-*"))


def test_a_short_deadline_on_a_new_machine_names_the_remedy(tmp_path: Path) -> None:
    script = _SWEEP.format(when="deadline_of(5)")
    done = run(script, HOME=str(tmp_path), XDG_CACHE_HOME="", NUMBA_CACHE_DIR="")
    assert (done.returncode, done.stdout) == (0, "True\n")
    assert done.stderr == (
        "The searches are not compiled yet, and with a deadline of 60 s or less they run as Python: for"
        " better answers run `python -m solver.compile` once.\n"
    )


def test_where_there_is_no_linker_llvmlite_loads_an_object_file(tmp_path: Path) -> None:
    path = tmp_path / "bin"
    path.mkdir()
    for _ in range(2):
        done = run(_COMPILE, NUMBA_CACHE_DIR=str(tmp_path / "cache"), PATH=str(path))
        assert (done.returncode, done.stdout, done.stderr) == (0, "2 True\n", "")
    (file,) = (tmp_path / "cache").glob("*-*")
    assert file.suffix == ".o"


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("ld") is None, reason="no linker here")
def test_a_damaged_file_is_compiled_again(tmp_path: Path) -> None:
    for _ in range(2):
        assert run(_COMPILE, NUMBA_CACHE_DIR=str(tmp_path)).stdout == "2 True\n"
        (file,) = tmp_path.glob("*-*")
        assert file.suffix == ".so"
        file.write_bytes(file.read_bytes()[:-1])


def test_places_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that is named, then the user's cache; one that cannot be written is passed over."""
    file, home = tmp_path / "file", tmp_path / "home"
    file.touch()
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    store.keep("function", "key", b"code")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(file / "below a file"))
    store.keep("function", "key", b"code")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    store.keep("function", "key", b"code")
    for place in ("named", "home/.cache/arenaplan", "xdg/arenaplan"):
        assert [path.name.partition("-")[0] for path in (tmp_path / place).iterdir()] == ["function"], place
    assert store.load("function", "another key") is None


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("ld") is None, reason="no linker here")
def test_code_is_read_from_several_directories_and_kept_in_the_first(tmp_path: Path) -> None:
    """So workers use what others have compiled, and keep apart what they compile."""
    theirs, own = tmp_path / "theirs", tmp_path / "own"
    assert run(_COMPILE, NUMBA_CACHE_DIR=str(theirs)).stdout == "2 True\n"
    both = os.pathsep.join([str(own), str(theirs)])
    assert run(_COMPILE, NUMBA_CACHE_DIR=both).stdout == "2 True\n"
    assert not own.exists()
    for file in theirs.glob("*-*"):
        file.unlink()
    assert run(_COMPILE, NUMBA_CACHE_DIR=both).stdout == "2 True\n"
    assert len(list(own.glob("*-*"))) == 1
    assert list(theirs.glob("*-*")) == []


def test_few_states_of_a_function_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for key in range(40):
        store.keep("function", str(key), b"code")
        store.keep("function_2", str(key // 20), b"code")
    assert len(list(tmp_path.glob("function-*"))) == 16
    assert len(list(tmp_path.glob("function_2-*"))) == 2


def test_compiling_for_an_image_looks_into_no_users_cache(tmp_path: Path) -> None:
    """What the installing user has compiled does not load for others. Remedies are those that help."""
    site, home = tmp_path / "site", tmp_path / "home"
    shutil.copytree(ROOT / "solver", site / "solver", ignore=shutil.ignore_patterns("__pycache__"))
    home.mkdir()

    def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "solver.compile", *options]
        kept = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        return subprocess.run(
            command, env={**kept, "PYTHONPATH": str(site), **environment}, cwd=tmp_path,
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    inside = run("--in-package", "--check")
    assert (inside.returncode, inside.stdout) == (1, "")
    cache = site / "solver" / "native" / "__pycache__"
    shutil.rmtree(cache, ignore_errors=True)
    cache.write_text("no directory", encoding="utf-8")
    closed = run("--in-package")
    assert (closed.returncode, f"{cache} cannot be written" in closed.stderr) == (1, True)
    other = run("--check", HOME="/proc/nowhere", XDG_CACHE_HOME="")
    assert other.returncode == 1
    assert "--in-package" in other.stderr
