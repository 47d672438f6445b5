"""`./run` as a new user meets it: help, mistakes, a machine without Python, an environment that is there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import LONGEST

COMMANDS = (
    "setup",
    "demo",
    "serve",
    "test",
    "parity",
    "lowest",
    "lint",
    "bench",
    "chaos",
    "device",
    "fuzz",
    "report",
    "mutate",
    "schema",
    "docs",
    "lock",
)
TOOLS = ("bash", "cat", "cksum", "dirname", "env", "find", "flock", "mkdir", "rm", "touch")


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    """Environment of a machine that has a shell and its basic tools, and no Python."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found is not None:
            (tools / name).symlink_to(found)
    return {"PATH": str(tools), "HOME": str(tmp_path), "ARENAPLAN_VENV": str(tmp_path / "venv")}


def run(root: Path, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(root / "run"), *arguments]
    return subprocess.run(
        command,
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        encoding="utf-8",
    )


def script(path: Path, body: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def add_python(environment: dict[str, str], body: str) -> None:
    """Puts a python3 that is a shell script on the path."""
    script(Path(environment["PATH"]) / "python3", body)


#: Files that an environment depends on.
RUNTIME = ("requirements/runtime.lock", "requirements/build.lock", "pyproject.toml")
TOOLS_OF_DEVELOPERS = ("requirements/project.lock", "requirements/runtime.lock", "pyproject.toml")


def stamp(root: Path, venv: Path, name: str, files: tuple[str, ...]) -> None:
    """As `run` writes it after it has made an environment."""
    text = b"".join((root / file).read_bytes() for file in files)
    sums = subprocess.run(["cksum"], input=text, capture_output=True, check=True).stdout.decode().strip()
    venv.mkdir(exist_ok=True)
    (venv / name).write_text(f"{sums} {root} {venv}\n", encoding="utf-8")


@pytest.mark.parametrize("arguments", [(), ("help",), ("--help",)])
def test_help_lists_every_command(root: Path, bare: dict[str, str], arguments: tuple[str, ...]) -> None:
    answer = run(root, bare, *arguments)
    assert answer.returncode == 0
    assert set(COMMANDS) <= set(re.findall(r"^  (\w+)", answer.stdout, re.MULTILINE))


def test_unknown_command(root: Path, bare: dict[str, str]) -> None:
    answer = run(root, bare, "destroy")
    assert answer.returncode == 2
    assert "usage" in answer.stderr


@pytest.mark.parametrize("body", [None, "exit 127", "exit 1"], ids=["none", "shim", "old-or-no-venv"])
@pytest.mark.parametrize("command", ["setup", "demo", "test"])
def test_missing_python_is_one_line(root: Path, bare: dict[str, str], body: str | None, command: str) -> None:
    if body is not None:
        add_python(bare, body)
    answer = run(root, bare, command)
    assert answer.returncode == 1
    complaint = answer.stderr.splitlines()[-1]
    assert complaint.startswith("run: Python 3.11 or newer")
    assert "apt-get install python3 python3-venv" in complaint


def test_missing_uv_for_lock(root: Path, bare: dict[str, str]) -> None:
    answer = run(root, bare, "lock")
    assert answer.returncode == 1
    assert "uv is needed" in answer.stderr


@pytest.mark.parametrize(
    ("command", "last"),
    [("parity", "nothing was compared with PyTorch"), ("lowest", "nothing was run with the lowest versions")],
)
def test_without_an_environment(root: Path, bare: dict[str, str], command: str, last: str) -> None:
    """A machine that cannot have the packages fails, unless it is asked to go on without."""
    assert run(root, bare, command).returncode == 1
    answer = run(root, bare, command, "--if-installable")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert answer.stderr.splitlines()[-1].startswith(f"run: {last}")


def test_present_environment_is_used_at_once(root: Path, bare: dict[str, str]) -> None:
    """The stamp that `setup` wrote is all it reads: no interpreter is started, nothing is installed."""
    venv = Path(bare["ARENAPLAN_VENV"])
    stamp(root, venv, ".stamp", RUNTIME)
    (venv / "bin").mkdir()
    (venv / "bin/python").symlink_to("/bin/false")
    answer = run(root, bare, "setup")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")


def test_tools_come_with_the_commands_that_need_them(root: Path, bare: dict[str, str]) -> None:
    """An environment that can serve is not one that can test: its packages are installed into it first."""
    venv = Path(bare["ARENAPLAN_VENV"])
    stamp(root, venv, ".stamp", RUNTIME)
    (venv / "bin").mkdir()
    script(venv / "bin/python", 'echo "python $@"')
    script(venv / "bin/arenaplan", 'echo "arenaplan $@"')
    serving = run(root, bare, "serve")
    assert (serving.returncode, serving.stdout, serving.stderr) == (0, "arenaplan serve\n", "")
    first, second = (run(root, bare, "report") for _ in range(2))
    assert (first.returncode, second.returncode) == (0, 0)
    assert "requirements/project.lock" in first.stderr
    assert "requirements/runtime.lock" not in first.stderr
    assert "pip install" in first.stdout
    assert (second.stdout, second.stderr) == ("python -m tests.reports.sizes\n", "")


def test_a_command_with_packages_of_its_own_has_an_environment_beside(
    root: Path, bare: dict[str, str]
) -> None:
    """`docs` reads its own stamp; where it is fresh, nothing is installed and the builder starts."""
    venv = Path(bare["ARENAPLAN_VENV"])
    beside = Path(f"{venv}-docs")
    stamp(root, venv, ".stamp-tools", TOOLS_OF_DEVELOPERS)
    stamp(root, beside, ".stamp", ("requirements/docs.lock",))
    for place in (venv, beside):
        (place / "bin").mkdir()
        for name in ("python", "mkdocs"):
            script(place / "bin" / name, f'echo {place.name} {name} "$@"')
    answer = run(root, bare, "docs")
    said = f"run: the documentation is in {root}/site/index.html\n"
    assert (answer.returncode, answer.stderr) == (0, said)
    assert answer.stdout.splitlines() == [
        "venv python -m docs.generator build/docs",
        "venv-docs mkdocs build --strict --quiet",
    ]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        ("setup", ""),
        ("test", ""),
        ("docs", "-docs"),
        ("parity", "-parity"),
        ("parity --if-installable", "-parity"),
    ],
)
@pytest.mark.parametrize("found", ["another tree's", "made by hand", "other files"])
def test_nothing_is_removed_that_run_did_not_make(
    root: Path, bare: dict[str, str], tmp_path: Path, command: str, suffix: str, found: str
) -> None:
    """The message names the place and a way on."""
    venv, elsewhere = Path(bare["ARENAPLAN_VENV"] + suffix), tmp_path / "other" / ".venv"
    if suffix:
        stamp(root, Path(bare["ARENAPLAN_VENV"]), ".stamp-tools", TOOLS_OF_DEVELOPERS)
        (Path(bare["ARENAPLAN_VENV"]) / "bin").mkdir()
        script(Path(bare["ARENAPLAN_VENV"]) / "bin/python", "true")
    (elsewhere / "bin").mkdir(parents=True)
    (elsewhere / "bin/tool").write_text("mine", encoding="utf-8")
    if found == "another tree's":
        (elsewhere / ".stamp").write_text(f"1 2 {elsewhere.parent} {elsewhere}\n", encoding="utf-8")
        venv.symlink_to(elsewhere)
    else:
        elsewhere.rename(venv)
        (venv / ("pyvenv.cfg" if found == "made by hand" else "letter")).write_text("home", encoding="utf-8")
    before = contents(tmp_path)
    add_python(bare, "exit 0")
    answer = run(root, bare, *command.split())
    assert (answer.returncode, answer.stdout) == (1, "")
    complaint = answer.stderr.splitlines()[-1]
    assert complaint.startswith(f"run: {venv} is ")
    assert complaint.endswith(": remove it yourself, or name another place by ARENAPLAN_VENV")
    after = contents(tmp_path)
    after.pop("bin/python3")
    assert after == before


@pytest.mark.parametrize("found", ["moved", "cut short"])
def test_what_run_made_is_made_again(root: Path, bare: dict[str, str], tmp_path: Path, found: str) -> None:
    """In a tree that was moved, and after an attempt that failed when packages were installed."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("run", "pyproject.toml", "requirements"):
        copy = shutil.copytree if (root / name).is_dir() else shutil.copy
        copy(root / name, tree / name)
    del bare["ARENAPLAN_VENV"]
    venv = tree / ".venv"
    if found == "moved":
        (venv / "bin").mkdir(parents=True)
        (venv / ".stamp").write_text("1 2 /old/tree /old/tree/.venv\n", encoding="utf-8")
        (venv / "bin/tool").write_text("old", encoding="utf-8")
    add_python(bare, '[ "$2" != venv ] || { mkdir -p "$3/bin"; echo making "$3"; }')
    for _ in range(2):
        answer = run(tree, bare, "setup")
        assert answer.returncode == 1
        assert answer.stdout == f"making {venv}\n"
        assert "the packages could not be installed" in answer.stderr
    assert not (venv / "bin/tool").exists()


def test_docs_takes_serve_and_nothing_else(root: Path, bare: dict[str, str]) -> None:
    answer = run(root, bare, "docs", "publish")
    assert answer.returncode == 2
    assert "not publish" in answer.stderr


def test_scripts_are_executable(root: Path) -> None:
    assert all(os.access(root / name, os.X_OK) for name in ("run", ".ci/run"))


@pytest.mark.parametrize("failing", ["lint", "parity", ""])
def test_ci_runs_every_command_and_names_those_that_fail(root: Path, tmp_path: Path, failing: str) -> None:
    """Tests come behind lint; the others run beside both, and what they print is shown."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(root / ".ci/run", tmp_path / ".ci/run")
    script(tmp_path / "run", f'echo "$*" >>calls; echo "of $1"; [ "$1" != "{failing}" ]')
    script(tmp_path / "chromium", "")
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    answer = subprocess.run(
        [tmp_path / ".ci/run"], env=environment, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert calls.index("lint") < calls.index("test")
    beside = {"docs", "lowest --if-installable", "parity --if-installable -q"}
    assert {*calls} == {"lint", "test", *beside}
    assert answer.returncode == (1 if failing else 0)
    assert answer.stderr == (f"failed: {failing}\n" if failing else "")
    assert {f"of {call.split()[0]}" for call in calls} <= {*answer.stdout.splitlines()}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), r" python -m pytest -n \d+ --dist loadfile --no-loadscope-reorder\n"),
        (("--all",), r"yes python -m pytest -n \d+ --dist loadfile --no-loadscope-reorder\n"),
        (("tests/unit/layout", "-q"), " python -m pytest tests/unit/layout -q\n"),
    ],
)
def test_tests_are_dealt_out_unless_arguments_choose(
    root: Path, bare: dict[str, str], arguments: tuple[str, ...], expected: str
) -> None:
    venv = Path(bare["ARENAPLAN_VENV"])
    stamp(root, venv, ".stamp-tools", TOOLS_OF_DEVELOPERS)
    (venv / "bin").mkdir()
    script(
        venv / "bin/python", 'if [ "$1" = -c ]; then echo 2; else echo "${TESTS_TAKE_ALL:-} python $*"; fi'
    )
    answer = run(root, bare, "test", *arguments)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert re.fullmatch(expected, answer.stdout)


def test_the_files_that_are_dealt_out_first_are_there(root: Path) -> None:
    assert [name for name in LONGEST if not (root / "tests" / name).is_file()] == []
