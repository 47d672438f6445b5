"""Tests the promises of the Dockerfile, the compose file and the unit file."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings
from tests.support.dockerfile import Stage, read_stages, stage_named


@pytest.fixture(scope="module")
def stages(root: Path) -> list[Stage]:
    return read_stages(root / "Dockerfile")


@pytest.fixture(scope="module")
def final(stages: list[Stage]) -> Stage:
    return stage_named(stages, "service")


@pytest.fixture(scope="module")
def compose(root: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((root / "deploy/compose.yaml").read_text(encoding="utf-8"))
    service: dict[str, Any] = document["services"]["arenaplan"]
    return service


class TestDockerfile:
    #: Compilers, what stands in for pandas, and what only Windows needs.
    LEFT_OUT = ("colorama", "llvmlite", "numba", "pandas", "tzdata")

    def test_base_is_a_pinned_build_argument(self, stages: list[Stage]) -> None:
        arguments = dict(one.arguments.split("=", 1) for one in stages[0].all("ARG"))
        assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", arguments["PYTHON_IMAGE"])
        assert arguments["PYTHON_DIGEST"] == ""
        names = {stage.base.rpartition(" AS ")[2] for stage in stages}
        bases = {stage.base.split()[0] for stage in stages[1:]}
        assert bases - names == {"${PYTHON_IMAGE}${PYTHON_DIGEST}", "scratch"}

    def test_the_service_is_built_by_default(self, stages: list[Stage]) -> None:
        assert stages[-1].base.endswith(" AS service")

    def test_packages_come_from_hashed_locks_only(self, root: Path, stages: list[Stage]) -> None:
        script = (root / "deploy/fill-environment").read_text(encoding="utf-8")
        commands = [command.strip() for run in stages[1].all("RUN") for command in run.arguments.split("&&")]
        installs = [line for line in commands + script.splitlines() if "pip install" in line]
        assert len(installs) == 5
        assert all("--no-deps" in one for one in installs)
        assert all("--require-hashes" in one or "--no-index" in one for one in installs)

    @pytest.mark.parametrize("lock", ["", "-plan", "-client"])
    def test_image_lock(self, root: Path, lock: str) -> None:
        """The bill of materials and the image are made of the same lines: all, but what stays behind."""
        file = root / f"requirements/image{lock}.lock"
        ran = subprocess.run([root / "deploy/image-lock", file], capture_output=True, text=True, check=True)
        # A package is a line that begins with its name, and indented lines with its hashes.
        whole, printed = (
            set(re.split(r"\n(?=[a-z#])", text.strip()))
            for text in (file.read_text(encoding="utf-8"), ran.stdout)
        )
        assert printed < whole
        left_out = {one.partition("==")[0] for one in whole - printed}
        assert left_out == {one.partition("==")[0] for one in whole} & {*self.LEFT_OUT}

    def test_final_stage_installs_nothing(self, final: Stage) -> None:
        commands = " ".join(run.arguments for run in final.all("RUN"))
        assert not re.search(r"\b(pip|apt-get|curl|wget)\b", commands)
        copied = [copy.arguments for copy in final.all("COPY")]
        assert copied == ["--from=builder-service /opt/root /", "--from=builder-service /opt/venv /opt/venv"]
        # There is no shell in the image that could run anything else.
        assert all(run.command()[0] == "python" for run in final.all("RUN"))

    @pytest.mark.parametrize("name", ["client", "plan", "service"])
    def test_every_image_has_a_user_without_rights(self, stages: list[Stage], name: str) -> None:
        stage = stage_named(stages, name)
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", stage.only("USER").arguments)
        for label in ("version", "revision", "source", "licenses"):
            assert f"org.opencontainers.image.{label}=" in stage.only("LABEL").arguments

    def test_final_stage_is_not_root_and_writes_nothing(self, final: Stage) -> None:
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", final.only("USER").arguments)
        assert final.environment()["PYTHONDONTWRITEBYTECODE"] == "1"
        assert final.all("VOLUME") == []

    def test_process(self, final: Stage) -> None:
        assert final.only("ENTRYPOINT").command() == ["arenaplan"]
        assert final.all("CMD")[-1].command() == ["serve"]
        assert final.only("STOPSIGNAL").arguments == "SIGTERM"
        assert final.only("EXPOSE").arguments == final.environment()["ARENAPLAN_PORT"]

    def test_labels_state_the_version(self, final: Stage, pyproject: dict[str, Any]) -> None:
        assert f'image.version="{pyproject["project"]["version"]}"' in final.only("LABEL").arguments

    def test_every_copied_path_passes_dockerignore(self, root: Path, stages: list[Stage]) -> None:
        passed = {
            line[1:]
            for line in (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
            if line[:1] == "!"
        }
        copied = {
            source
            for stage in stages
            for copy in stage.all("COPY")
            if not copy.arguments.startswith("--from")
            for source in copy.arguments.split()[:-1]
        }
        assert copied == passed
        assert all((root / source).exists() for source in copied)


class TestCompose:
    def test_hardened(self, compose: dict[str, Any]) -> None:
        assert compose["read_only"] is True
        assert compose["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in compose["security_opt"]
        assert "privileged" not in compose
        assert compose["volumes"] == ["state:/var/lib/arenaplan"], "jobs, and nothing else"
        assert [mount.split(":")[0] for mount in compose["tmpfs"]] == ["/tmp"]

    def test_bounded(self, compose: dict[str, Any]) -> None:
        assert {"mem_limit", "memswap_limit", "cpus", "pids_limit"} <= set(compose)

    def test_published_on_loopback_only(self, compose: dict[str, Any]) -> None:
        assert all(port.startswith("127.0.0.1:") for port in compose["ports"])

    def test_agrees_with_the_image(self, compose: dict[str, Any], final: Stage) -> None:
        assert compose["healthcheck"]["test"] == ["CMD", *final.only("HEALTHCHECK").command()]
        assert compose["user"] == final.only("USER").arguments
        assert compose["ports"][0].endswith(":" + final.only("EXPOSE").arguments)

    def test_base_defaults_agree(self, compose: dict[str, Any], stages: list[Stage]) -> None:
        arguments = dict(one.arguments.split("=", 1) for one in stages[0].all("ARG"))
        assert {name: default(text) for name, text in compose["build"]["args"].items()} == arguments

    def test_waits_for_running_requests(self, compose: dict[str, Any]) -> None:
        shutdown = float(default(compose["environment"]["ARENAPLAN_SHUTDOWN_SECONDS"]))
        assert float(compose["stop_grace_period"].removesuffix("s")) > shutdown


def default(text: str) -> str:
    """The value of ``${NAME:-value}`` where NAME is not set."""
    found = re.fullmatch(r"\$\{\w+:-(.*)\}", text)
    assert found, text
    return found[1]


def names(settings: dict[str, str]) -> set[str]:
    return {name.removeprefix("ARENAPLAN_").lower() for name in settings if name.startswith("ARENAPLAN_")}


def test_settings_exist(compose: dict[str, Any], final: Stage) -> None:
    """A misspelt variable would be ignored in silence."""
    assert names(compose["environment"]) | names(final.environment()) <= set(Settings.model_fields)


def test_settings_are_valid(compose: dict[str, Any], final: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    given = {name: default(text) for name, text in compose["environment"].items()}
    for name, value in (final.environment() | given).items():
        if name.startswith("ARENAPLAN_"):
            monkeypatch.setenv(name, value)
    assert (Settings().host, Settings().port) == ("0.0.0.0", 8080)


def test_the_unit_is_installed_with_compiled_code(root: Path) -> None:
    """Compiled where it was installed, with the sources out of the way, then checked by another user."""
    text = (root / "deploy/README.md").read_text(encoding="utf-8").partition("## systemd")[2]
    steps = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    (install,) = (k for k, line in enumerate(steps) if line.endswith("/tmp/arenaplan/*.whl"))
    compiling = "/opt/arenaplan/bin/python -P -m solver.compile"
    assert steps[install + 1] == f"{compiling} --in-package"
    checking = rf"\(cd / && setpriv --reuid=65534 .* {re.escape(compiling)} --check\)"
    assert re.fullmatch(checking, steps[install + 2])
    assert "systemctl" in steps[-1]


def test_unit(root: Path) -> None:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # the documented way to keep capitals
    parser.read(root / "deploy/systemd/arenaplan.service", encoding="utf-8")
    unit = parser["Service"]
    assert unit["ExecStart"].endswith("/bin/arenaplan serve")
    assert unit["DynamicUser"] == unit["NoNewPrivileges"] == "yes"
    assert unit["ProtectSystem"] == "strict"
    # A worker that is ended for its memory must not take the service with it.
    assert unit["OOMPolicy"] == "continue"


class TestFillRoot:
    """The root directory of the images."""

    @pytest.fixture
    def script(self, root: Path) -> Any:
        loader = SourceFileLoader("fill_root", str(root / "deploy/fill-root"))
        spec = spec_from_loader("fill_root", loader)
        assert spec is not None
        module = module_from_spec(spec)
        loader.exec_module(module)
        return module

    def test_no_file_gives_the_rights_of_another(self, script: Any, tmp_path: Path) -> None:
        source = tmp_path.resolve() / "from/tool"
        source.parent.mkdir()
        source.write_bytes(b"x")
        source.chmod(0o6755)
        link = source.with_name("link")
        link.symlink_to("tool")
        script.copy(link, tmp_path / "to")
        copied = tmp_path / "to" / source.relative_to("/")
        assert copied.stat().st_mode & 0o7777 == 0o755
        assert copied.with_name("link").readlink() == Path("tool")

    def test_what_is_left_out(self, script: Any, tmp_path: Path) -> None:
        for name in (
            "os.py",
            "test/a.py",
            "json/tool.py",
            "idlelib/b.py",
            "lib-dynload/_tkinter.so",
            "__pycache__/c.pyc",
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        kept = {str(path.relative_to(tmp_path)) for path in script.files(tmp_path)}
        assert kept == {"os.py", "json/tool.py"}


def test_ortools_plans_with_what_stands_for_pandas(root: Path) -> None:
    code = """
import pandas
from solver.layout import Buffer, LayoutProblem, Lifespan, solve
problem = LayoutProblem((Buffer("a", 4, Lifespan(0, 1), 1, 100), Buffer("b", 4, Lifespan(0, 1))))
assert solve(problem, solver="cp-sat").lower_bound == 104
from ortools.linear_solver import pywraplp
try:
    pandas.DataFrame
except ImportError as error:
    print(error)
"""
    environment = {**os.environ, "PYTHONPATH": str(root / "deploy/stand-in")}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "pandas is not in this image" in done.stdout
