"""Runs what the image runs: the Dockerfile's own command lines, from an installed wheel, as nobody.

No container engine is needed: the wheel is unpacked into an environment of its own beside the
installed packages, and the environment, the entry point and the health check are the Dockerfile's.
"""

from __future__ import annotations

import configparser
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.dockerfile import Stage, read_stages

NOBODY = 65534
#: Far beyond what a start takes on a loaded machine; only a failing test waits for it.
START_SECONDS = 120.0


@pytest.fixture(scope="module")
def final(root: Path) -> Stage:
    return read_stages(root / "Dockerfile")[-1]


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Iterator[Path]:
    """An environment that any user can read and only its owner can write."""
    place = Path(tempfile.mkdtemp(prefix="arenaplan-image-"))
    place.chmod(0o755)
    venv.create(place / "venv", with_pip=False)
    site = next((place / "venv/lib").glob("python*")) / "site-packages"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # The packages only: the path file of the development install lies deeper and is not followed.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    write_command(site, place / "venv/bin")
    yield place
    shutil.rmtree(place)


def write_command(site: Path, scripts: Path) -> None:
    """The console script, as an installer writes it."""
    (entry_points,) = site.glob("*.dist-info/entry_points.txt")
    parser = configparser.ConfigParser()
    parser.read(entry_points)
    ((name, target),) = parser["console_scripts"].items()
    module, function = target.split(":")
    script = scripts / name
    script.write_text(
        f"#!{scripts}/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    )
    script.chmod(0o755)


@pytest.fixture(scope="module")
def environment(final: Stage, installed: Path) -> dict[str, str]:
    """The image's, but on a free port of loopback, and with the image's one writable place."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    scratch = installed / "tmp"
    scratch.mkdir()
    scratch.chmod(0o1777)
    return final.environment() | {
        "PATH": f"{installed}/venv/bin:/usr/bin:/bin",
        "TMPDIR": str(scratch),
        "ARENAPLAN_HOST": "127.0.0.1",
        "ARENAPLAN_PORT": str(port),
        "ARENAPLAN_WORKERS": "1",
    }


def user(installed: Path) -> int | None:
    """Nobody, where this process may become that and the interpreter can be read by it."""
    if os.geteuid() != 0:
        return None
    python = str(installed / "venv/bin/python")
    try:
        subprocess.run([python, "-c", "import numpy"], user=NOBODY, cwd="/", check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return NOBODY


def exits(command: list[str], environment: dict[str, str], installed: Path) -> int:
    """Exit status of a command of the image; found on the image's path."""
    found = shutil.which(command[0], path=environment["PATH"])
    assert found
    run = subprocess.run(
        [found, *command[1:]],
        env=environment,
        cwd=environment["TMPDIR"],
        user=user(installed),
        capture_output=True,
        timeout=60,
        check=False,
    )
    return run.returncode


@pytest.fixture
def server(final: Stage, installed: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    command = final.only("ENTRYPOINT").command() + final.only("CMD").command()
    process = subprocess.Popen(
        [str(installed / "venv/bin" / command[0]), *command[1:]],
        env=environment,
        cwd=environment["TMPDIR"],
        user=user(installed),
        stdout=sys.stderr,
    )
    yield process
    process.kill()
    process.wait()


def test_starts_becomes_healthy_and_stops_when_asked(
    final: Stage, installed: Path, environment: dict[str, str], server: subprocess.Popen[bytes]
) -> None:
    healthcheck = final.only("HEALTHCHECK").command()
    deadline = time.monotonic() + START_SECONDS
    while exits(healthcheck, environment, installed) != 0:
        assert server.poll() is None, "the service ended by itself"
        assert time.monotonic() < deadline, "the service did not become healthy"
    server.send_signal(signal.Signals[final.only("STOPSIGNAL").arguments])
    assert server.wait(timeout=60) in (0, -signal.SIGTERM)
    assert exits(healthcheck, environment, installed) == 1


def test_wheel_alone_is_enough(installed: Path, environment: dict[str, str]) -> None:
    """Nothing outside the three packages is imported, and no bytecode is written."""
    assert exits(["arenaplan", "--help"], environment, installed) == 0
    site = next((installed / "venv/lib").glob("python*")) / "site-packages"
    assert list(site.rglob("*.pyc")) == []
