"""The JavaScript client: committed as the OpenAPI document has it, and read by a JavaScript engine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from fastapi import FastAPI

from service.http import javascript

PAGE = Path(javascript.__file__).with_name("web") / "page"


@pytest.mark.parametrize(
    ("name", "made"), [("client.js", javascript.client), ("client.d.ts", javascript.types)]
)
def test_committed_as_it_is_written(name: str, made: object) -> None:
    """`./run schema` writes both."""
    assert callable(made)
    assert (PAGE / name).read_text(encoding="utf-8") == made()


def test_written_anew(tmp_path: Path) -> None:
    javascript.write(tmp_path)
    assert (tmp_path / "client.js").read_bytes() == (PAGE / "client.js").read_bytes()


def test_every_route_is_a_method_with_a_type(app: FastAPI) -> None:
    document = app.openapi()
    wanted = sorted(
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/v1/")
    )
    client, types = javascript.client(), javascript.types()
    assert sorted(re.findall(r"/\*\* .*: ([A-Z]+ /\S+) \*/", client)) == wanted
    methods = re.findall(r"^  (\w+)\(", client, re.MULTILINE)
    assert len(set(methods)) == len(wanted)
    assert re.findall(r"^  (\w+)\(", types, re.MULTILINE) == methods


def test_all_types_are_there() -> None:
    types = javascript.types()
    declared = set(re.findall(r"^export (?:interface|type|class) (\w+)", types, re.MULTILINE))
    plain = re.sub(r"/\*\*.*?\*/|\"[^\"]*\"|^//.*$", "", types, flags=re.MULTILINE)
    known = {
        "Array",
        "ArrayBuffer",
        "AsyncGenerator",
        "Blob",
        "Options",
        "Promise",
        "Record",
        "Service",
        "ServerEvent",
    }
    assert set(re.findall(r"\b[A-Z]\w+", plain)) - known <= declared


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript engine is installed here")
@pytest.mark.parametrize("name", ["client.js", "page.js", "service.js"])
def test_an_engine_reads_it(name: str) -> None:
    command = ["node", "--check", "--input-type=module"]
    done = subprocess.run(
        command, input=(PAGE / name).read_bytes(), capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
