"""What code in a worker reaches: no secret, no network, no file but code and its own folder."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import structlog

from service.jobs.confinement import OPEN, worker_environment
from service.jobs.pool import Worker, WorkerPool

ROOT = str(Path(__file__).resolve().parents[4])
FAKE = "tests.support.fake_tasks"


@pytest_asyncio.fixture
async def worker(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Worker]:
    monkeypatch.setenv("ARENAPLAN_API_KEY", "ap_secret")
    monkeypatch.setenv("ARENAPLAN_DATABASE_URL", "postgresql://arenaplan:secret@db/arenaplan")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    structlog.reset_defaults()  # a command that ran in this process may have set up a log of its own
    pool = WorkerPool(FAKE, 1)
    pool.start()
    try:
        async with pool.lease() as leased:
            yield leased
    finally:
        await pool.close()


async def run(worker: Worker, code: str) -> Any:
    """The `answer` of code that runs in the worker; ``refused`` where the system does not let it."""
    indented = textwrap.indent(textwrap.dedent(code), "    ")
    guarded = f"try:\n{indented}\nexcept PermissionError:\n    answer = 'refused'\n"
    await worker.send("plan", {}, f"run\n{guarded}".encode())
    frame = await worker.receive()
    assert frame.kind == "result", frame.head
    return json.loads(frame.body)


def names(folder: str | Path) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]


def needs(worker: Worker, part: str) -> None:
    if worker.confinement[part] == OPEN:
        pytest.skip(f"the kernel has nothing to confine {part} with")


async def test_variables(worker: Worker) -> None:
    variables = await run(worker, "import os; answer = dict(os.environ)")
    assert "secret" not in json.dumps(variables).lower()
    assert not [name for name in variables if name.startswith(("ARENAPLAN_", "AWS_"))]
    assert variables["OMP_NUM_THREADS"] == "1"


@pytest.mark.parametrize("kind", ["SOCK_STREAM", "SOCK_DGRAM"])
async def test_no_connection(worker: Worker, kind: str) -> None:
    needs(worker, "network")
    with socket.socket(socket.AF_INET, getattr(socket, kind)) as server:
        server.bind(("127.0.0.1", 0))
        if kind == "SOCK_STREAM":
            server.listen()
        address = server.getsockname()
        connect = f"""
            import socket
            with socket.socket(socket.AF_INET, socket.{kind}) as one:
                one.connect({address})
                one.send(b"secret")
            answer = "sent"
        """
        assert await run(worker, connect) == "refused"


async def test_no_socket_of_this_machine(worker: Worker) -> None:
    if worker.confinement["network"] != "seccomp":
        pytest.skip("the kernel does not filter calls")
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{folder}/database")
        server.listen()
        connect = f"import socket; socket.socket(socket.AF_UNIX).connect('{folder}/database'); answer = 1"
        assert await run(worker, connect) == "refused"


@pytest.mark.parametrize(
    "code",
    [
        "answer = open({file!r}).read()",
        "open({file!r}, 'w').write('x'); answer = 'written'",
        "import os; os.remove({file!r}); answer = 'removed'",
        "import os; os.rename({file!r}, {file!r} + '2'); answer = 'renamed'",
        "import os; answer = os.listdir({folder!r})",
        "open({folder!r} + '/new', 'w'); answer = 'created'",
        "import os; os.mkdir({folder!r} + '/new'); answer = 'created'",
        "answer = open('/proc/{parent}/environ').read()",
        "answer = open('/proc/{parent}/mem', 'rb').read(1)",
        "answer = open({root!r} + '/pyproject.toml').read()",
        "answer = open('/etc/hostname').read()",
        "open({root!r} + '/service/jobs/worker.py', 'a'); answer = 'opened'",
        "import subprocess; answer = subprocess.run(['cat', {file!r}], capture_output=True).returncode or 0",
    ],
)
async def test_no_file_elsewhere(worker: Worker, tmp_path: Path, code: str) -> None:
    needs(worker, "files")
    file = tmp_path / "secret"
    file.write_text("secret", encoding="utf-8")
    places = {"file": str(file), "folder": str(tmp_path), "parent": os.getpid(), "root": ROOT}
    answer = await run(worker, code.format(**places))
    assert answer in ("refused", 1)  # or the exit code of a command
    assert names(tmp_path) == ["secret"]
    assert file.read_text(encoding="utf-8") == "secret"


async def test_files_in_memory(worker: Worker) -> None:
    """The values of a model are read from one."""
    use = """
        import os
        file = os.memfd_create("model")
        os.write(file, b"text")
        answer = open(f"/dev/fd/{file}").read()
    """
    assert await run(worker, use) == "text"


async def test_no_folder_for_temporary_files(worker: Worker) -> None:
    needs(worker, "files")
    with tempfile.TemporaryDirectory() as folder:
        create = f"open({folder!r} + '/../from-a-worker', 'w'); answer = 'created'"
        assert await run(worker, create) == "refused"


async def test_no_signal_to_the_service(worker: Worker) -> None:
    if not worker.confinement["files"].endswith(("6", "7", "8", "9")):
        pytest.skip("Landlock bounds signals from version 6 on")
    assert await run(worker, f"import os; os.kill({os.getpid()}, 0); answer = 'sent'") == "refused"


async def test_whoever_runs_the_service_may_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENAPLAN_API_KEY", "ap_secret")
    pool = WorkerPool(FAKE, 1, confined=False)
    pool.start()
    try:
        async with pool.lease() as worker:
            assert worker.confinement == {}
            assert await run(worker, "import os; answer = os.environ['ARENAPLAN_API_KEY']")
            assert await run(worker, "answer = bool(open('/etc/hostname').read())")
    finally:
        await pool.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system confines neither files nor network")
async def test_what_holds_is_logged(capfd: pytest.CaptureFixture[str], worker: Worker) -> None:
    """Once, by every kind of service, as all of them have a pool."""
    assert worker.confinement["variables"] == "allow-list"
    said = capfd.readouterr().out
    assert said.count("workers are confined") == 1
    assert f"files='{worker.confinement['files']}'" in said


def test_code_that_workers_compile_is_for_workers() -> None:
    home = worker_environment({"HOME": "/srv/x"})
    assert home["NUMBA_CACHE_DIR"] == "/srv/x/.cache/arenaplan/workers"
    chosen = worker_environment({"HOME": "/srv/x", "NUMBA_CACHE_DIR": "/code"})
    assert chosen["NUMBA_CACHE_DIR"] == os.pathsep.join(["/code/workers", "/code"])
    assert "NUMBA_CACHE_DIR" not in worker_environment({})
