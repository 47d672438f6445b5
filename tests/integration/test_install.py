"""Installing the project by pip, from the clone and from a wheel, into an environment of its own.

The packages that it needs are those of the environment that runs the tests, so nothing is fetched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import arenaplan
from tests.support.server import PATIENCE, ROOT

MNIST = ROOT / "examples" / "mnist.json"


def run(*command: str | Path, folder: Path) -> str:
    hidden = ("PYTHONPATH", "PIP_REQUIRE_VIRTUALENV", "PIP_USER")
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [*map(str, command)],
        cwd=folder,
        env=environment | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter of a new environment, which finds the packages of this one, but not the project."""
    pytest.importorskip("pip", reason="this environment was made by uv, without pip")
    venv.create(tmp_path / "venv", symlinks=True)
    interpreter = tmp_path / "venv" / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run(interpreter, "-c", code, folder=tmp_path).strip())
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return interpreter


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pytest.importorskip("hatchling")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder, folder=ROOT)
    (built,) = folder.glob("*.whl")
    return built


@pytest.mark.parametrize("extra", ["", "[onnx]"])
@pytest.mark.parametrize("source", ["clone", "wheel"])
def test_install(python: Path, wheel: Path, tmp_path: Path, source: str, extra: str) -> None:
    subject = f"{wheel}{extra}" if source == "wheel" else f".{extra}"
    offline = ("--quiet", "--no-index", "--no-build-isolation", "--no-compile")
    run(python, "-m", "pip", "install", *offline, subject, folder=ROOT)
    place = run(python, "-c", "import arenaplan, solver; print(arenaplan.__file__)", folder=tmp_path)
    assert Path(place.strip()).is_relative_to(python.parents[1])
    command = python.with_name("arenaplan")
    run(command, "plan", MNIST, "-o", "plan.json", folder=tmp_path)
    assert arenaplan.load_plan(tmp_path / "plan.json") == arenaplan.plan(MNIST)
    if extra:
        assert "Conv" in run(command, "operators", "--onnx", folder=tmp_path)


@pytest.mark.parity
def test_the_extra_for_pytorch() -> None:
    """The tests of `arenaplan.torch` run with what it asks for, which is too large to install in a test."""
    import torch

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = map(Requirement, project["optional-dependencies"]["torch"])
    assert requirement.name == "torch"
    assert requirement.specifier.contains(torch.__version__, prereleases=True)
