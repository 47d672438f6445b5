"""The packages import exactly what pyproject.toml declares: nothing by accident, nothing unused."""

from __future__ import annotations

import ast
import re
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN = {"arenaplan", "clients", "service", "solver"}
#: Modules that are part of a declared package although they are distributed apart.
PART_OF = {"jwt": "pyjwt", "pydantic-core": "pydantic", "pil": "pillow"}
#: Packages that share a top-level name, by the modules that tell them apart; the API comes with the SDK.
SHARED = {
    "opentelemetry.exporter.otlp.proto.http": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry": "opentelemetry-sdk",
}


def imported(path: Path) -> set[str]:
    """Top-level names of all absolute imports of a file, at whatever depth; of shared names, the package."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    return {
        next((SHARED[one] for one in SHARED if f"{name}.".startswith(f"{one}.")), name.split(".")[0])
        for name in names
    }


@pytest.fixture(scope="module")
def used(root: Path) -> set[str]:
    files = (path for package in OWN for path in (root / package).rglob("*.py"))
    foreign = set().union(*map(imported, files)) - OWN - set(sys.stdlib_module_names)
    names = {canonicalize_name(name) for name in foreign}
    return {PART_OF.get(name, name) for name in names}


@pytest.fixture(scope="module")
def declared(pyproject: dict[str, Any]) -> set[str]:
    """The packages that are always there, and those of the extras; a rival in benchmarks is no part of us."""
    project = pyproject["project"]
    extras = (texts for name, texts in project["optional-dependencies"].items() if name != "bench")
    texts = [*project["dependencies"], *chain.from_iterable(extras)]
    return {canonicalize_name(Requirement(text).name) for text in texts}


def test_every_import_is_declared(used: set[str], declared: set[str]) -> None:
    assert used - declared == set()


def test_every_dependency_is_imported(used: set[str], declared: set[str]) -> None:
    assert declared - used == {"httptools"}  # uvicorn's protocol imports it, an extra of uvicorn


def remedies(path: Path) -> set[frozenset[str]]:
    """The requirements of each ``pip install 'NAME>=VERSION' ...`` in the texts of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    commands = [rest for text in texts for rest in re.findall(r"pip install((?: '[^']+')*)", text)]
    return {frozenset(re.findall(r"'([^']+)'", command)) for command in commands}


def test_remedies_install_what_the_extras_do(root: Path, pyproject: dict[str, Any]) -> None:
    """By the packages' own names: arenaplan itself is on no index, and may be a clone or a wheel."""
    extras = pyproject["project"]["optional-dependencies"]
    files = [path for package in OWN for path in (root / package).rglob("*.py")]
    offered = set().union(*map(remedies, files))
    assert offered == {frozenset(extras[name]) for name in extras if name != "bench"}


def test_no_page_promises_arenaplan_on_an_index(root: Path, tracked: tuple[Path, ...]) -> None:
    pages = [path for path in tracked if path.suffix == ".md" and path.name != "CHANGELOG.md"]
    promise = re.compile(r"pip install (?:-\S+ )*'?arenaplan\b")
    assert {str(path) for path in pages if promise.search((root / path).read_text(encoding="utf-8"))} == set()


def test_the_size_of_each_extra(root: Path, pyproject: dict[str, Any]) -> None:
    """As the comments and the page have it; `bench` is a rival's, and torch's size depends on its build."""
    comments = (root / "pyproject.toml").read_text(encoding="utf-8")
    page = (root / "docs/how-to/install.md").read_text(encoding="utf-8")
    sizes = dict(re.findall(r"^(\w+) = \[ # (\d+) MB", comments, re.MULTILINE))
    assert sizes == dict(re.findall(r"^\| `(\w+)` \|.*\| (\d+) MB", page, re.MULTILINE))
    assert set(sizes) == set(pyproject["project"]["optional-dependencies"]) - {"bench"}
