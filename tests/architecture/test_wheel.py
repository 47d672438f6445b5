"""The distribution holds exactly the four packages, whole."""

from __future__ import annotations

import email
import zipfile
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {"arenaplan", "clients", "service", "solver"}


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_top_level_is_the_four_packages(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names} == PACKAGES | {"arenaplan-0.1.0.dist-info"}


def test_every_tracked_file_of_the_packages_ships(names: set[str], tracked: tuple[Path, ...]) -> None:
    wanted = {path.as_posix() for path in tracked if path.parts[0] in PACKAGES}
    assert wanted - names == set()


def test_packages_are_typed_and_initialised(names: set[str]) -> None:
    folders = {name.rsplit("/", 1)[0] for name in names if name.endswith(".py")}
    assert {f"{package}/py.typed" for package in PACKAGES} - names == set()
    assert {f"{folder}/__init__.py" for folder in folders} - names == set()


def test_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        entry_points = archive.read("arenaplan-0.1.0.dist-info/entry_points.txt").decode()
    assert "arenaplan = service.cli.main:main" in entry_points


def test_metadata(pyproject: dict[str, Any]) -> None:
    project = pyproject["project"]
    assert "Private :: Do Not Upload" in project["classifiers"]
    assert project["requires-python"] == ">=3.11"


def test_metadata_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read("arenaplan-0.1.0.dist-info/METADATA").decode()
        licence = archive.read("arenaplan-0.1.0.dist-info/licenses/LICENSE").decode()
    metadata = email.message_from_string(text)
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"] == "arenaplan maintainers"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert readme.startswith("# arenaplan")
    assert "static memory layout" in metadata["Keywords"]
    assert "Version 2.0, January 2004" in licence
