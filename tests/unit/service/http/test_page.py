"""Scripts of the page: read by a JavaScript engine; they ask for routes and tasks that the service has."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files

import pytest
from fastapi import FastAPI

from service.jobs.requests import KINDS

PAGE = files("service.http.web").joinpath("page")


def test_routes_and_tasks_exist(app: FastAPI) -> None:
    """Each request of the page, with names in the place of what it fills in."""
    script = PAGE.joinpath("page.js").read_text(encoding="utf-8")
    calls = re.findall(r"service\.(?:ask|stream)\(\s*\"(\w+)\", (.+)", script)
    requests = {
        (method.lower(), re.sub(r"\$\{[^}]*\}", "{}", path))
        for method, arguments in calls
        for path in re.findall(r"[\"`](/v1/[^\"`]*)[\"`]", arguments)
    }
    paths = app.openapi()["paths"]
    routes = {(method, re.sub(r"\{[^}]*\}", "{}", path)) for path in paths for method in paths[path]}
    assert len(requests) == 7
    assert requests <= routes
    (choice,) = re.findall(r"const task = (.+);", script)
    assert set(re.findall(r"\"(\w+)\"", choice)) <= set(KINDS)


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript engine is installed here")
@pytest.mark.parametrize("name", ["page.js", "service.js"])
def test_an_engine_reads_it(name: str) -> None:
    command = ["node", "--check", "--input-type=module"]
    done = subprocess.run(
        command, input=PAGE.joinpath(name).read_bytes(), capture_output=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
