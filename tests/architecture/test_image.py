"""Builds and runs what the image holds: the Dockerfile's own command lines, in order, without an engine.

The builder's RUN lines are run as they stand, except that /opt, /src and /tmp lie in a directory of the test,
that the packages from the network are those installed here, and that most of what was compiled for this user
before is not compiled again. Then the tree is made read-only, and what the
final stage runs (its check, its entry point, its health check) is run by a user without rights.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.dockerfile import Stage, read_stages, stage_named

NOBODY = 65534
#: Far beyond what a start takes on a loaded machine; only a failing test waits for it.
START_SECONDS = 120.0
#: Compiling takes half a minute; only a failing test waits longer.
BUILD_SECONDS = 900.0


@pytest.fixture(scope="module")
def stages(root: Path) -> list[Stage]:
    return read_stages(root / "Dockerfile")


@pytest.fixture(scope="module")
def final(stages: list[Stage]) -> Stage:
    return stage_named(stages, "service")


def site_of(environment: Path) -> Path:
    return next((environment / "lib").glob("python*")) / "site-packages"


class Image:
    """A directory that stands for the root of both stages."""

    def __init__(self, place: Path, builder: Stage) -> None:
        self.place, self._builder = place, builder
        self.venv = place / "opt/venv"
        self.scratch = place / "scratch"

    def adapted(self, text: str) -> str:
        """A command line of the Dockerfile with its absolute paths in this directory."""
        return re.sub(r"(?<![\w./])/(opt|src|tmp)(?=/|\b)", rf"{self.place}/\1", text)

    def prepare(self, root: Path) -> None:
        """Does all before the first command without network: copies sources, provides packages."""
        for name in ("src", "tmp", "opt/build/bin", "scratch"):
            (self.place / name).mkdir(parents=True)
        self.scratch.chmod(0o1777)
        for copy in self._builder.all("COPY"):
            *sources, target = copy.arguments.split()
            for source in sources:
                name = source if target in (".", "./") else target
                into = self.place / "src" / name / (Path(source).name if name.endswith("/") else "")
                into.parent.mkdir(parents=True, exist_ok=True)
                if (root / source).is_dir():
                    unwanted = shutil.ignore_patterns("__pycache__", "*.pyc")
                    shutil.copytree(root / source, into, ignore=unwanted)
                else:
                    shutil.copy(root / source, into)
        script = self.place / "src/deploy/fill-environment"
        lines = script.read_text(encoding="utf-8").splitlines()
        # Not what needs the network, nor what copies the interpreter of the base.
        kept = [line for line in lines if "--require-hashes" not in line and "fill-root" not in line]
        script.write_text(self.adapted("\n".join(kept)), encoding="utf-8")
        venv.create(self.place / "opt/build", with_pip=True)
        # The packages only: the path file of the development install lies deeper and is not followed.
        packages = sysconfig.get_path("purelib") + "\n"
        (site_of(self.place / "opt/build") / "packages.pth").write_text(packages, encoding="utf-8")
        # One function is left to compile: all of them take half a minute.
        compiled = site_of(self.place / "opt/build") / "solver/native/__pycache__"
        compiled.mkdir(parents=True)
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "arenaplan")
        for library in cache.glob("*.so"):
            if not library.name.startswith("sweep."):
                shutil.copy(library, compiled)
        backend = self.place / "opt/build/bin/hatchling"
        backend.write_text(f'#!/bin/sh\nexec {sys.executable} -m hatchling "$@"\n', encoding="utf-8")
        backend.chmod(0o755)

    @property
    def site(self) -> Path:
        return site_of(self.venv)

    def build(self) -> None:
        """The builder's commands in order, but for those that fetch locked packages."""
        environment = {
            **self._builder.environment(),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "HOME": str(self.place / "tmp"),
        }
        for run in self._builder.all("RUN"):
            if "--require-hashes" in run.arguments or "apt-get" in run.arguments:
                continue
            ran = subprocess.run(
                ["/bin/sh", "-c", self.adapted(run.arguments)],
                cwd=self.place / "src",
                env=environment,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=BUILD_SECONDS,
                check=False,
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
        packages = sysconfig.get_path("purelib") + "\n"
        (self.site / "packages.pth").write_text(packages, encoding="utf-8")

    def freeze(self) -> None:
        """As on a read-only root file system, also for the owner; the sources stay behind in the builder."""
        shutil.rmtree(self.place / "src")
        for path in [self.place / "opt", *(self.place / "opt").rglob("*")]:
            if not path.is_symlink():
                path.chmod(path.stat().st_mode & ~0o222)


@pytest.fixture(scope="module")
def image(root: Path, stages: list[Stage]) -> Iterator[Image]:
    place = Path(tempfile.mkdtemp(prefix="arenaplan-image-"))
    place.chmod(0o755)
    made = Image(place, stage_named(stages, "builder-service"))
    made.prepare(root)
    made.build()
    assert list((place / "src").rglob("*.so")) == [], "the sources were compiled, not the installed package"
    made.freeze()
    yield made
    for path in [place, *place.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def environment(final: Stage, image: Image) -> dict[str, str]:
    """The image's, but on a free port of loopback, and with the image's one writable place."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return final.environment() | {
        "PATH": f"{image.venv}/bin:/usr/bin:/bin",
        "TMPDIR": str(image.scratch),
        "HOME": "/nonexistent",
        "ARENAPLAN_HOST": "127.0.0.1",
        "ARENAPLAN_PORT": str(port),
        "ARENAPLAN_WORKERS": "1",
    }


def user(image: Image) -> int | None:
    """Nobody, where this process may become that and the interpreter can be read by it."""
    if os.geteuid() != 0:
        return None
    python = str(image.venv / "bin/python")
    try:
        subprocess.run([python, "-c", "import numpy"], user=NOBODY, cwd="/", check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return NOBODY


def exits(command: list[str], environment: dict[str, str], image: Image) -> int:
    """Exit status of a command of the image; found on the image's path."""
    found = shutil.which(command[0], path=environment["PATH"])
    assert found
    run = subprocess.run(
        [found, *command[1:]],
        env=environment,
        cwd=environment["TMPDIR"],
        user=user(image),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return run.returncode


def test_the_final_stage_checks_compiled_code_as_its_user(
    final: Stage, image: Image, environment: dict[str, str]
) -> None:
    """The last RUN stands behind USER, loads what was compiled, and fails where that does not load."""
    keywords = [instruction.keyword for instruction in final.instructions]
    (check,) = (i for i in final.instructions[keywords.index("USER") :] if i.keyword == "RUN")
    command = check.command()
    assert exits(command, environment, image) == 0
    libraries = {path.name.partition("-")[0] for path in image.site.rglob("solver/**/*.so")}
    assert {"skyline_kernel.race", "index_kernel.place_some", "order_kernel.walk"} <= libraries


@pytest.fixture
def server(final: Stage, image: Image, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = final.only("ENTRYPOINT").command() + final.all("CMD")[-1].command()
    process = subprocess.Popen(
        [str(image.venv / "bin" / command[0]), *command[1:]],
        env=environment,
        cwd=environment["TMPDIR"],
        user=user(image),
        stdout=sys.stderr,
    )
    yield process
    process.kill()
    process.wait()


def test_becomes_healthy_plans_with_compiled_code_and_stops_when_asked(
    final: Stage, image: Image, environment: dict[str, str], server: subprocess.Popen[bytes]
) -> None:
    healthcheck = final.only("HEALTHCHECK").command()
    deadline = time.monotonic() + START_SECONDS
    while exits(healthcheck, environment, image) != 0:
        assert server.poll() is None, "the service ended by itself"
        assert time.monotonic() < deadline, "the service did not become healthy"
    ready: dict[str, object] = {}
    while "compiled_search" not in ready:
        assert time.monotonic() < deadline, f"no worker has reported what loads: {ready}"
        ready = httpx.get(f"http://127.0.0.1:{environment['ARENAPLAN_PORT']}/readyz", timeout=60).json()
    assert ready["compiled_search"] is True
    server.send_signal(signal.Signals[final.only("STOPSIGNAL").arguments])
    assert server.wait(timeout=60) in (0, -signal.SIGTERM)
    assert exits(healthcheck, environment, image) == 1


def test_wheel_alone_is_enough(image: Image, environment: dict[str, str]) -> None:
    """Nothing outside the three packages is imported, and all that is imported was turned into bytecode."""
    assert exits(["arenaplan", "--help"], environment, image) == 0
    packages = [image.site / name for name in ("arenaplan", "clients", "service", "solver")]
    sources = [path for package in packages for path in package.rglob("*.py")]
    assert all(list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc")) for path in sources)
