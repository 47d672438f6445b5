"""The lock files: hashed, complete, in agreement, and silent on where the packages came from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

LOCKS = (
    "project.lock",
    "runtime.lock",
    "build.lock",
    "contract.lock",
    "deploy.lock",
    "docs.lock",
    "image-client.lock",
    "image-plan.lock",
    "image.lock",
    "parity.lock",
    "lowest.lock",
)

#: Locks of environments beside the project's own: they share some of its packages, not all.
BESIDE = (
    "contract.lock",
    "deploy.lock",
    "docs.lock",
    "image-plan.lock",
    "image.lock",
    "parity.lock",
)

#: Extras that no environment of the project's own has: a rival, and what is heavy.
APART = {"bench", "executorch", "jax", "torch"}

Pins = dict[str, list[Requirement]]


def read(path: Path) -> Pins:
    """Pinned requirements by name; several where the version depends on the machine."""
    pins: Pins = {}
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            requirement, *hashes = re.split(r"\s+--hash=", line.strip())
            assert hashes, f"{line} has no hash"
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)
            parsed = Requirement(requirement)
            pins.setdefault(canonicalize_name(parsed.name), []).append(parsed)
    return pins


@pytest.fixture(scope="module")
def locks(root: Path) -> dict[str, Pins]:
    return {name: read(root / "requirements" / name) for name in LOCKS}


@pytest.mark.parametrize("name", LOCKS)
def test_only_exact_pins(locks: dict[str, Pins], name: str) -> None:
    pins = [pin for several in locks[name].values() for pin in several]
    assert all([spec.operator for spec in pin.specifier] == ["=="] for pin in pins)
    assert all(pin.url is None for pin in pins)


@pytest.mark.parametrize("name", LOCKS)
def test_one_version_for_every_python(locks: dict[str, Pins], name: str) -> None:
    several = [package for package, pins in locks[name].items() if len(pins) > 1]
    several_are_right = {"parity.lock": ["torch"], "lowest.lock": ["ml-dtypes", "pandas"]}
    assert several == several_are_right.get(name, [])


def test_one_torch_for_every_machine(locks: dict[str, Pins]) -> None:
    """Without CUDA where such a build is locked; its libraries are asked for with the other one only."""
    machines = [
        {
            "sys_platform": system,
            "platform_machine": machine,
            "python_version": python,
            "python_full_version": full,
        }
        for system, machine in (("linux", "x86_64"), ("linux", "aarch64"), ("darwin", "arm64"))
        for python, full in (("3.11", "3.11.7"), ("3.12", "3.12.1"), ("3.13", "3.13.0"))
    ]
    pins = locks["parity.lock"]
    for machine in machines:
        meant = {
            name: [
                str(pin.specifier) for pin in several if pin.marker is None or pin.marker.evaluate(machine)
            ]
            for name, several in pins.items()
        }
        (torch,) = meant["torch"]
        assert torch.endswith("+cpu") == (list(machine.values())[:3] == ["linux", "x86_64", "3.11"])
        cuda = machine["sys_platform"] == "linux" and not torch.endswith("+cpu")
        assert bool(meant["nvidia-cublas"]) == cuda


@pytest.mark.parametrize("name", LOCKS)
def test_no_address_and_no_path(root: Path, name: str) -> None:
    text = (root / "requirements" / name).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^\s*-(?!-hash)", text, re.MULTILINE)


def requirements(pyproject: dict[str, Any], *groups: str) -> list[Requirement]:
    return [Requirement(text) for group in groups for text in pyproject["dependency-groups"][group]]


def missing(wanted: list[Requirement], pins: Pins) -> set[str]:
    """Names whose pins do not all satisfy what pyproject.toml asks for."""
    return {
        one.name
        for one in wanted
        for found in [pins.get(canonicalize_name(one.name), [])]
        if not found or not all(one.specifier.contains(next(iter(pin.specifier)).version) for pin in found)
    }


def test_locks_satisfy_pyproject(locks: dict[str, Pins], pyproject: dict[str, Any]) -> None:
    runtime = [Requirement(text) for text in pyproject["project"]["dependencies"]]
    build = requirements(pyproject, "build")
    optional = pyproject["project"]["optional-dependencies"]
    assert [text.partition("==")[1] for text in optional["bench"]] == ["=="]  # a rival, installed by hand
    extras = [Requirement(text) for name, texts in optional.items() if name not in APART for text in texts]
    assert missing(extras, locks[LOCKS[0]]) == set()
    groups = requirements(pyproject, "test", "pages", "lint", "build")
    assert missing(runtime + groups, locks[LOCKS[0]]) == set()
    readers = [Requirement(text) for name in ("onnx", "circle") for text in optional[name]]
    assert missing(runtime + readers, locks[LOCKS[1]]) == set()
    assert missing(build, locks[LOCKS[2]]) == set()
    parity = requirements(pyproject, "test") + runtime
    assert missing(parity, locks["parity.lock"]) == set()
    assert missing(requirements(pyproject, "docs"), locks["docs.lock"]) == set()


def test_the_lowest_versions_are_those_of_pyproject(
    locks: dict[str, Pins], pyproject: dict[str, Any]
) -> None:
    groups = requirements(pyproject, "lowest")
    for asked in [*map(Requirement, pyproject["project"]["dependencies"]), *groups]:
        (pin,) = locks["lowest.lock"][canonicalize_name(asked.name)]
        (least,), (locked,) = ([Version(s.version).release for s in r.specifier] for r in (asked, pin))
        assert locked[: len(least)] == least, asked


@pytest.mark.parametrize("part", [name for name in LOCKS[1:] if name != "lowest.lock"])
def test_parts_agree_with_the_whole(locks: dict[str, Pins], part: str) -> None:
    whole = locks[LOCKS[0]]
    apart = set(locks[part]) - set(whole)
    assert part in BESIDE or not apart
    for name, pins in locks[part].items():
        if name not in apart:
            assert {str(pin.specifier) for pin in pins} <= {str(pin.specifier) for pin in whole[name]}


def test_the_site_adds_nothing_to_the_environment_of_the_project(locks: dict[str, Pins]) -> None:
    assert {"mkdocs", "mkdocs-material", "mkdocstrings"} & set(locks[LOCKS[0]]) == set()


def test_image_installs_no_test_tools(locks: dict[str, Pins]) -> None:
    assert {"pytest", "mypy", "hypothesis", "ruff", "hatchling"} & set(locks[LOCKS[1]]) == set()
