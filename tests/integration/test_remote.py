"""`--server`: commands whose work a real service does print, write and refuse what they do without one."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clients import Client, JobCancelled
from service.cli.commands import app
from service.cli.console import Exit
from tests.integration.test_cli import read_terminal
from tests.support.every import every
from tests.support.onnx_models import model_of, node
from tests.support.server import PATIENCE, ROOT, Server, die_with_parent, running_server

EXAMPLES = ROOT / "examples"
MNIST = EXAMPLES / "mnist.json"
CSV = "id,lower,upper,size\na,0,2,400\nb,1,3,400\nc,2,5,300\n"


@pytest.fixture
def url(server: Server) -> str:
    return server.url


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Holds a graph, a wrong one, and buffers; commands run in it."""
    monkeypatch.chdir(tmp_path)
    for name in ("ARENAPLAN_SERVER", "ARENAPLAN_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    Path("graph.json").write_text(json.dumps(tiny), encoding="utf-8")
    broken = {**tiny, "operations": [{**tiny["operations"][0], "type": "Nope"}, *tiny["operations"][1:]]}
    Path("wrong.json").write_text(json.dumps(broken), encoding="utf-8")
    Path("half.json").write_text(json.dumps(tiny)[:-2], encoding="utf-8")
    Path("p.csv").write_text(CSV, encoding="utf-8")
    budget = '[[budget]]\nmodel = "{}"\nmax_arena = "{}"\n'
    Path("kept.toml").write_text(budget.format("graph.json", "1MiB"), encoding="utf-8")
    both = [budget.format(*pair) for pair in (("graph.json", "10B"), ("wrong.json", "1MiB"))]
    Path("broken.toml").write_text("".join(both), encoding="utf-8")
    return tmp_path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], env={"COLUMNS": "160"})


def outcome(arguments: str, *more: str) -> tuple[int, str, str, list[bytes]]:
    """Exit code, both streams, and the file that was written."""
    for old in Path().glob("out.*"):
        old.unlink()
    done = run(*arguments.split(), *more)
    return done.exit_code, done.stdout, done.stderr, [path.read_bytes() for path in Path().glob("out.*")]


#: Commands and their exit codes.
COMMANDS = (
    ("plan graph.json -o out.json", Exit.OK),
    ("plan graph.json --only in-place --json -o out.json", Exit.OK),
    ("plan graph.json --capacity 200", Exit.TOO_LARGE),
    ("plan graph.json --capacity 200 --json", Exit.TOO_LARGE),
    ("plan graph.json --loss mse", Exit.USAGE),
    ("plan wrong.json --json", Exit.USAGE),
    ("plan half.json", Exit.USAGE),
    ("plan missing.json", Exit.USAGE),
    (f"plan {EXAMPLES}/programs/momentum.json -o out.json", Exit.OK),
    ("plan graph.json --entry train --entry infer:batch=1 -o out.json", Exit.OK),
    (f"plan graph.json {EXAMPLES}/programs/momentum.json --share --json -o out.json", Exit.OK),
    ("solve p.csv -o out.csv", Exit.OK),
    ("solve p.csv --json -o out.json", Exit.OK),
    ("solve p.csv --capacity 700", Exit.TOO_LARGE),
    ("tradeoff graph.json --points 2 -o out.json", Exit.OK),
    ("explain graph.json --capacity 200 --json", Exit.TOO_LARGE),
    ("budget check kept.toml --format junit -o out.xml", Exit.OK),
    ("budget check broken.toml --json", Exit.USAGE),
)


def test_as_if_done_here(url: str) -> None:
    with every() as case:
        for arguments, code in COMMANDS:
            with case(arguments):
                here = outcome(arguments)
                assert here[0] == code
                # Commands that lead on name the service as well.
                there = outcome(arguments, "--server", url)
                assert (there[0], there[1], there[2].replace(f" --server {url}", ""), there[3]) == here


def test_validate(url: str) -> None:
    assert run("plan", "graph.json", "-o", "plan.json").exit_code == Exit.OK
    for arguments in ("validate graph.json plan.json --steps 2", "validate graph.json plan.json --json"):
        assert outcome(arguments, "--server", url) == outcome(arguments)
    refused = run(*["validate", "graph.json", "plan.json", "--paging-file", "f", "--server", "http://x"])
    assert refused.exit_code == Exit.USAGE
    assert "--paging-file: A paging file would be one of the service's." in refused.stderr


def test_validate_entry_points(url: str) -> None:
    """Of one network, of several by name, and of a model of another tool."""
    weights = {"w": np.ones((6, 3), np.float32)}
    model = model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("n", 6)}, weights)
    Path("m.onnx").write_bytes(model.SerializeToString())
    Path("other.json").write_bytes(Path("graph.json").read_bytes())
    for models, options in (
        ("graph.json", "--entry train --entry infer:batch=1"),
        ("graph.json other.json", "--share --entry graph.train --entry other.infer:batch=1"),
        ("m.onnx", "--loss mse --batch 4 --entry train --entry infer:batch=1"),
    ):
        plan = f"plan {models} {options} -o plan.json".split()
        assert run(*plan).exit_code == Exit.OK
        choices = "--loss mse" if models == "m.onnx" else ""
        validate = f"validate {models} plan.json --steps 2 {choices}"
        here = outcome(validate)
        assert here[0] == Exit.OK
        assert outcome(validate, "--server", url) == here
    refused = run(*f"validate m.onnx graph.json plan.json --loss mse --server {url}".split())
    assert refused.exit_code == Exit.USAGE
    assert "'m.onnx' is a model of another tool, which a service takes alone." in refused.stderr
    assert "arenaplan import m.onnx -o m.json" in refused.stderr


def test_plans_by_their_digest(url: str) -> None:
    """A plan that the service keeps can be named instead of a file; files are still read as files."""
    assert run("plan", "graph.json", "-o", "plan.json", "--server", url).exit_code == Exit.OK
    digest = json.loads(Path("plan.json").read_bytes())["digest"]
    for command in (
        "show {}",
        "show {} --json",
        "report {}",
        "export {} --to c-header",
        "offsets {}",
        "diff {} {}",
    ):
        here = outcome(command.format("plan.json", "plan.json"))
        assert here[0] == Exit.OK
        assert outcome(command.format(digest, digest), "--server", url) == here
        assert outcome(command.format("plan.json", "plan.json"), "--server", url) == here
    assert "No such file" in run("show", digest).stderr


def test_models(url: str) -> None:
    """Imported here, so that only the graph is sent; or there, by `import`, under the name of the file."""
    weights = {"w": np.ones((8, 4), dtype=np.float32)}
    Path("net.onnx").write_bytes(with_unused_weight(weights))
    trained = "net.onnx --loss mse --dim n=4 --optimizer sgd,momentum=0.9 --learning-rate 0.5 -o out.json"
    trained += " --output-name y"
    for arguments in (
        f"plan {trained}",
        f"import {trained}",
        f"import {trained} --json",
        "import net.onnx",
        "import net.onnx --loss mse",
    ):
        assert outcome(arguments, "--server", url) == outcome(arguments)


UNUSED = "arenaplan: note: 1 tensor trained, 1 floating tensor not trained: v.\n"


def with_unused_weight(weights: dict[str, Any]) -> bytes:
    """x times w, and as another output x times v."""
    nodes = [node("MatMul", ["x", "w"], ["y"]), node("MatMul", ["x", "v"], ["z"])]
    weights = {**weights, "v": np.ones((8, 2), np.float32)}
    return bytes(model_of(nodes, {"x": ("n", 8)}, weights, outputs=("y", "z")).SerializeToString())


def test_a_model_is_validated_there_with_its_own_weights(url: str) -> None:
    """Its bytes are sent: a service opens no file that a graph names."""
    weights = {"w": np.random.default_rng(5).standard_normal((8, 4)).astype(np.float32)}
    Path("net.onnx").write_bytes(with_unused_weight(weights))
    trained = "--loss mse --output-name y --dim n=4 --optimizer sgd,momentum=0.9"
    assert run("plan", "net.onnx", *trained.split(), "-o", "plan.json").exit_code == Exit.OK
    arguments = f"validate net.onnx plan.json {trained} --steps 2 --json"
    here = outcome(arguments)
    assert (here[0], UNUSED in here[2]) == (Exit.OK, True)
    assert outcome(arguments, "--server", url) == here
    np.savez("w.npz", w=weights["w"])
    refused = outcome(arguments + " --weights w.npz", "--server", url)
    assert (refused[0], "A file of weights stays here." in refused[2]) == (Exit.USAGE, True)


def test_models_whose_package_is_not_here(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service imports them for every command, under the name of the file, with the same notes."""
    Path("net.onnx").write_bytes(with_unused_weight({"w": np.ones((8, 4), dtype=np.float32)}))
    trained = "net.onnx --loss mse --output-name y --dim n=4 --json"
    for arguments in (
        f"plan {trained} -o out.json",
        f"tradeoff {trained}",
        f"explain {trained} --capacity 1KiB",
    ):
        here = outcome(arguments)
        assert UNUSED in here[2]
        assert "--keep-outputs" in here[2]
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "onnx", None)
            assert outcome(arguments, "--server", url) == here
            assert "onnx" in outcome(arguments)[2]


def test_a_service_without_jobs_answers_at_once() -> None:
    with running_server(workers=1, database_url="off") as server:
        arguments = "solve p.csv --json -o out.json"
        assert outcome(arguments, "--server", server.url) == outcome(arguments)
        Path("net.onnx").write_bytes(b"\x08\x07\x12")
        refused = run("import", "net.onnx", "--server", server.url)
        assert (refused.exit_code, "keeps no jobs" in refused.stderr) == (Exit.USAGE, True)


def test_a_job_is_shown_on_a_terminal_and_ends_with_the_command(slow: dict[str, Any]) -> None:
    """The progress of the service is drawn; Ctrl-C cancels the job there."""
    Path("slow.json").write_text(json.dumps(slow), encoding="utf-8")
    with running_server(workers=1, validate_max_steps=10_000) as server:
        assert run("plan", "slow.json", "-o", "plan.json").exit_code == Exit.OK
        ours, theirs = pty.openpty()
        # More steps than anybody waits for: the job still runs when the command is interrupted.
        arguments = ["validate", "slow.json", "plan.json", "--steps", "10000", "--server", server.url]
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            [sys.executable, "-m", "service.cli", *arguments],
            env=environment,
            stderr=theirs,
            preexec_fn=die_with_parent,
        ) as process:
            os.close(theirs)
            seen = b""
            while re.search(rb": [a-z]+", seen.partition(b"at http")[2]) is None:  # state or stage
                assert select.select([ours], [], [], PATIENCE)[0]
                seen += os.read(ours, 65536)
            process.send_signal(signal.SIGINT)
            read_terminal(ours)
        os.close(ours)
        assert process.returncode == Exit.INTERRUPTED
        assert b"training slow, at http://" in seen
        with Client(server.url) as client:
            job = client.jobs.get(next(iter(client.jobs.list())).id)
            with pytest.raises(JobCancelled):
                job.wait()


def test_a_job_that_takes_too_long(slow: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes on, and the command says where."""
    Path("slow.json").write_text(json.dumps(slow), encoding="utf-8")
    arguments = ("validate", "slow.json", "plan.json", "--steps", "10000", "--server")
    with running_server(workers=1, validate_max_steps=10_000) as server:
        assert run("plan", "slow.json", "-o", "plan.json").exit_code == Exit.OK
        monkeypatch.setenv("ARENAPLAN_WAIT_SECONDS", "0.5")
        done = run(*arguments, server.url)
        assert done.exit_code == Exit.USAGE
        assert done.stderr.count("\n") == 1
        with Client(server.url) as client:
            (job,) = client.jobs.list()
            assert job.id in done.stderr
            assert not job.ended
        monkeypatch.setenv("ARENAPLAN_WAIT_SECONDS", "soon")
        assert "'soon', not a number" in run(*arguments, server.url).stderr


def test_what_only_a_service_says(url: str) -> None:
    unknown = "0" * 64
    done = run("show", unknown, "--server", url)
    assert done.exit_code == Exit.USAGE
    assert done.stderr.startswith(f"arenaplan: {url}: No plan '{unknown}' is kept here.")
    assert done.stderr.count("\n") == 1
    said = json.loads(run("show", unknown, "--server", url, "--json").stderr)
    assert (said["exit"], said["type"]) == (2, "/problems/plan-not-found")


@pytest.mark.parametrize("server", ["nowhere", "http://[::1", "ftp://host"])
def test_what_is_not_an_address(server: str) -> None:
    done = run("plan", "graph.json", "--server", server)
    assert done.exit_code == Exit.USAGE
    assert done.stderr.startswith("arenaplan: --server: ")


def test_only_the_option_sends_anything_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that clients obey does not send a model elsewhere behind the back of who plans it."""
    monkeypatch.setenv("ARENAPLAN_SERVER", "http://127.0.0.1:1")
    assert run("plan", "graph.json", "-o", "plan.json").exit_code == Exit.OK
