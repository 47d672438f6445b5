"""``./run bench service``: what the service takes and gives, with real processes.

Rates are compared within one run: of processes on the same machine, with the same load generator, in turn.
Processor time of the serving process for each request is shown beside them: with other work on the machine it
is steadier.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
from rich.console import Console

from clients import AsyncClient
from examples.resnet50 import resnet50
from solver.documents import dump_graph
from tests.benchmarks.measure import ROOT, figure_table
from tests.support.deep_graphs import DEEP
from tests.support.server import Server, running_server

__all__ = ["run"]

#: Seconds of each measurement of a rate, and how often the candidates take turns.
SECONDS: Final = 3.0
TURNS: Final = 3
CONNECTIONS: Final = 8

#: How busy processors are kept on average, so that callers need not wait long at peaks.
BUSY: Final = 0.7
#: AWS Fargate, Linux on x86, us-east-1, as of 2026: one vCPU for an hour.
DOLLARS_AN_HOUR: Final = 0.04048

#: What answers are compared with: uvicorn as the service runs it, with nothing behind it, and FastAPI.
_RIVALS: Final = """
import sys
import uvicorn
from fastapi import FastAPI
from service.http.schemas import PlanRequest

app = FastAPI()

@app.get("/hello")
async def hello() -> dict[str, str]:
    return {"hello": "world"}

@app.post("/echo")
async def echo(body: PlanRequest) -> PlanRequest:
    return body

async def bare(scope, receive, send):
    if scope["type"] != "http" or scope["path"] != "/bare":
        return await app(scope, receive, send)
    await receive()
    headers = [(b"content-type", b"application/json"), (b"content-length", b"17")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"hello":"world"}'})

uvicorn.run(bare, port=int(sys.argv[1]), access_log=False, log_level="error", loop="uvloop", http="httptools")
"""

Graph = dict[str, Any]


def run(console: Console, soak: float = 0.0, part: str | None = None, rate: float | None = None) -> None:
    """Print all tables, or one by its name; or `soak` seconds of mixed requests, at most `rate` a second."""
    if soak:
        soaked(console, soak, rate)
        return
    parts = {one.__name__: one for one in (rates, workers, costs)}
    for name, one in parts.items():
        if part in (None, name):
            one(console)


# ------------------------------------------------------------------------------------------ requests


def _mnist(batch: int = 32) -> Graph:
    graph: Graph = json.loads((ROOT / "examples/mnist.json").read_bytes())
    return {**graph, "batch": batch}


def _tiny(name: str) -> Graph:
    document = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())
    return {**document["graph"], "name": name}


def _megabyte(name: str = "chain") -> bytes:
    """A plan request of about 1 MB: a chain of activations with long names."""
    operations = [
        {
            "name": f"operation_number_{k}",
            "type": "Relu",
            "inputs": [f"some_value_number_{k}"],
            "outputs": [f"some_value_number_{k + 1}"],
        }
        for k in range(6_500)
    ]
    loss = {"name": "last", "type": "ReduceMean", "inputs": ["some_value_number_6500"], "outputs": ["loss"]}
    first = {"name": "some_value_number_0", "dtype": "float32", "shape": [8], "role": "parameter"}
    graph = {
        "format": "arenaplan.graph", "version": 1, "name": name, "operands": [first], "batch": 1,
        "operations": [*operations, {**loss, "attributes": {"keepdims": 0}}],
        "loss": "loss", "optimizer": {"type": "SGD"},
    }  # fmt: skip
    return json.dumps({"graph": graph}).encode()


def _request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    fields = {
        "Host": "localhost",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        **headers,
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


# ----------------------------------------------------------------------------------------- processes


def _cpu(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> int:
    """Resident bytes of a process."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0


def _files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _port(server: Server) -> int:
    return httpx.URL(server.url).port or 0


def _warm(server: Server) -> None:
    """Until the workers have loaded what they load in idle time."""
    server.wait_for(lambda event: event["event"] == "worker warmed up")


@contextlib.contextmanager
def _rivals() -> Iterator[tuple[int, int]]:
    """Process and port of what the service is compared with."""
    port = _free_port()
    command = [sys.executable, "-c", _RIVALS, str(port)]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        try:
            while process.poll() is None:
                with contextlib.suppress(httpx.TransportError):
                    httpx.get(f"http://127.0.0.1:{port}/hello")
                    break
                time.sleep(0.1)
            yield process.pid, port
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class _Rate:
    each_second: float
    cpu_microseconds: float
    p99_milliseconds: float


def _rate(pid: int, port: int, request: bytes, connections: int = CONNECTIONS) -> _Rate:
    """By the load generator, in a process of its own. Raises AssertionError for an answer but 200."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(request)
        file.flush()
        before = _cpu(pid)
        arguments = [str(port), file.name, str(connections), str(SECONDS)]
        command = [sys.executable, "-m", "tests.benchmarks.service_load", *arguments]
        made = json.loads(
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        )
    assert set(made["statuses"]) == {"200"}, made["statuses"]
    count = made["statuses"]["200"]
    used = (_cpu(pid) - before) / count * 1e6
    return _Rate(count / made["seconds"], used, made["milliseconds"]["p99"])


# -------------------------------------------------------------------------------------------- tables


def rates(console: Console) -> None:
    """Requests a second of answers that are known, beside a hello world and an echo by the same server."""
    small, middle = (json.dumps({"graph": one}).encode() for one in (_mnist(), DEEP["deep MLP"](57)))
    big = _megabyte()
    with _rivals() as (rival, rival_port), running_server(workers=1, deadline_max_seconds=600) as server:
        _warm(server)
        with server.client() as http:
            headers = {"Content-Type": "application/json"}
            plans = [http.post("/v1/plan", content=one, headers=headers) for one in (small, middle, big)]
            assert {plan.status_code for plan in plans} == {200}
        own, own_port = server.process.pid, _port(server)
        hello, echo = "FastAPI, hello world", "FastAPI, echo of 1 MB"
        kept = [f"kept plan of {len(plan.content):,} B" for plan in plans]
        candidates: list[tuple[str, int, int, bytes, str]] = [
            ("uvicorn, nothing behind it", rival, rival_port, _request("GET", "/bare"), ""),
            (hello, rival, rival_port, _request("GET", "/hello"), ""),
            (kept[0], own, own_port, _request("POST", "/v1/plan", small), hello),
            (kept[1], own, own_port, _request("POST", "/v1/plan", middle), hello),
            (echo, rival, rival_port, _request("POST", "/echo", big), ""),
            ("kept plan, 1 MB asked", own, own_port, _request("POST", "/v1/plan", big), echo),
        ]  # fmt: skip
        found: dict[str, list[_Rate]] = {name: [] for name, *_ in candidates}
        for _ in range(TURNS):
            for name, pid, port, request, _base in candidates:
                found[name].append(_rate(pid, port, request))
    headings = "requests/s, CPU of the process each in µs, p99 ms, rate to base, CPU of base to CPU"
    table = figure_table(
        f"Requests a second, {CONNECTIONS} connections, median of {TURNS} turns", "", headings
    )

    def median(name: str, of: Callable[[_Rate], float]) -> float:
        return statistics.median(of(one) for one in found[name])

    for name, *_, base in candidates:
        cells = [
            f"{median(name, lambda r: r.each_second):,.0f}",
            f"{median(name, lambda r: r.cpu_microseconds):,.0f}",
        ]
        cells.append(f"{median(name, lambda r: r.p99_milliseconds):,.1f}")
        if base:
            ratio = statistics.median(
                one.each_second / other.each_second
                for one, other in zip(found[name], found[base], strict=True)
            )
            cpu = min(r.cpu_microseconds for r in found[base]) / min(r.cpu_microseconds for r in found[name])
            cells += [f"{ratio:.2f}", f"{cpu:.2f}"]
        table.add_row(name, *cells)
    console.print(table)


def workers(console: Console) -> None:
    """Plans a second that were never asked for, with 1, 2 and 4 workers."""
    processors = len(os.sched_getaffinity(0))
    headings = (
        "workers, plans/s, ms of the API a plan, ms of workers a plan, plans/s with a processor for each"
    )
    table = figure_table(
        f"New plans a second (mnist, another batch each), {processors} processors", None, headings
    )
    for count in (1, 2, 4):
        with running_server(workers=count) as server:
            plans, api, work, seconds = asyncio.run(_plan_new(server, 4 * count))
        table.add_row(
            str(count), f"{plans / seconds:.1f}", f"{api / plans * 1000:.2f}", f"{work / plans * 1000:.1f}",
            f"{min(count * plans / work, plans / api):.0f}",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"Workers are the first bottleneck up to {work / api:.1f} of them; then the one process of the API."
    )


async def _plan_new(server: Server, callers: int) -> tuple[int, float, float, float]:
    """Plans, CPU seconds of the API and of the workers, and seconds."""
    async with AsyncClient(server.url) as client:
        await asyncio.gather(*(client.plan(_mnist(), batch=1000 + k) for k in range(callers)))  # warm
        pids = server.worker_pids()
        before, api = sum(map(_cpu, pids)), _cpu(server.process.pid)
        began, done = time.perf_counter(), 0
        numbers = iter(range(1, 900))

        async def ask() -> None:
            nonlocal done
            while time.perf_counter() < began + 4 * SECONDS:
                await client.plan(_mnist(), batch=next(numbers))
                done += 1

        await asyncio.gather(*(ask() for _ in range(callers)))
        seconds = time.perf_counter() - began
        return done, _cpu(server.process.pid) - api, sum(map(_cpu, pids)) - before, seconds


def costs(console: Console, plans: int = 24) -> None:
    """The processors that a million new plans a day take, model by model, and their price."""
    shapes = [
        ("mnist", _mnist()),
        ("MobileNet v2", json.loads((ROOT / "examples/mobilenet_v2.json").read_bytes())),
        ("ResNet-50", json.loads(dump_graph(resnet50().graph))),
        ("transformer, 931 operations", DEEP["transformer"](1_000)),
    ]
    headings = (
        f"request kB, plan kB, CPU of API ms, of a worker ms, CPU-hours, processors, at {BUSY:.0%} busy"
    )
    headings += ", US$ a day, workers that fill an API"
    table = figure_table("A million new plans a day", "model", headings)
    for name, graph in shapes:
        with running_server(workers=1, body_limit_bytes="64MiB") as server, server.client() as http:
            _warm(server)

            def ask(number: int, name: str = name, graph: Any = graph, http: Any = http) -> tuple[int, int]:
                """Bytes of the request, and of a plan that nobody has asked for before."""
                body = json.dumps({"graph": {**graph, "name": f"{name} {number}"}}).encode()
                answer = http.post("/v1/plan", content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 200, answer.text
                assert answer.headers["x-cache"] == "miss"
                return len(body), len(answer.content)

            for number in range(4):
                ask(1_000 + number)
            (worker,) = server.worker_pids()
            before, api = _cpu(worker), _cpu(server.process.pid)
            asked, answered = ask(1)
            for number in range(2, plans + 1):
                ask(number)
            api, work = (_cpu(server.process.pid) - api) / plans, (_cpu(worker) - before) / plans
        hours = (api + work) * 1e6 / 3600
        table.add_row(
            name, f"{asked / 1e3:,.0f}", f"{answered / 1e3:,.0f}", f"{api * 1e3:.1f}", f"{work * 1e3:.1f}",
            f"{hours:,.1f}", f"{hours / 24:.2f}", f"{hours / 24 / BUSY:.2f}",
            f"{hours / BUSY * DOLLARS_AN_HOUR:,.2f}", f"{work / api:.1f}",
        )  # fmt: skip
    console.print(table)
    console.print(
        f"US$ {DOLLARS_AN_HOUR} for the hour of a processor; memory, traffic and the database not counted."
    )


def _counted(statuses: Counter[int]) -> str:
    return ", ".join(f"{status}: {count:,}" for status, count in sorted(statuses.items()))


def soaked(console: Console, seconds: float, rate: float | None = None) -> None:
    """Mixed requests for so long, at most `rate` a second: memory and files of API and workers must stay.

    Memory is compared with that of a service that has seen everything once: from a fifth of the time on.
    """
    with running_server(workers=2, cache_bytes="1MiB") as server, server.client() as http:
        _warm(server)
        chance = random.Random(11)
        outcomes: Counter[int] = Counter()
        samples: list[tuple[int, int, int, int]] = []
        began, number, told = time.perf_counter(), 0, 0.0
        while (now := time.perf_counter() - began) < seconds:
            number += 1
            outcomes[_mixed(http, chance, number)] += 1
            if now >= told or now >= seconds:
                told += seconds / 20
                pid, pids = server.process.pid, server.worker_pids()
                one = _memory(pid), _files(pid), sum(map(_memory, pids)), sum(map(_files, pids))
                samples.append(one)
                console.print(
                    f"minute {now / 60:.1f}: {number:,} requests; API {one[0] / 2**20:.1f} MiB, {one[1]}"
                    f" files; {len(pids)} workers {one[2] / 2**20:.1f} MiB, {one[3]} files"
                )
            if rate is not None:
                time.sleep(max(0.0, number / rate - (time.perf_counter() - began)))
        events = Counter(event["event"] for event in server.log if event.get("level") in ("warning", "error"))
    settled = samples[len(samples) // 5 :]
    base, last = settled[0], settled[-1]
    console.print(
        f"{seconds / 60:g} minutes, answers: {_counted(outcomes)}; warnings in the log: {dict(events)}"
    )
    console.print(
        f"From a fifth of the time on: memory of the API {last[0] / base[0] - 1:+.1%}, of the workers"
        f" {last[2] / base[2] - 1:+.1%}; files of the API {last[1] - base[1]:+d}, of the workers"
        f" {last[3] - base[3]:+d}"
    )


def _mixed(http: httpx.Client, chance: random.Random, number: int) -> int:
    match chance.randrange(10):
        case 0:
            return http.post(
                "/v1/plan", json={"graph": _mnist(), "options": {"batch": chance.randrange(1, 500)}}
            ).status_code
        case 1:
            return http.post(
                "/v1/plan", content=b'{"graph":', headers={"Content-Type": "application/json"}
            ).status_code
        case 2:
            return http.get("/metrics").status_code
        case 3:
            return http.post("/v1/plan", json={"graph": {**_tiny("wrong"), "loss": "nothing"}}).status_code
        case 4:
            return http.post(
                "/v1/jobs", json={"task": "plan", "request": {"graph": _tiny(f"job {number % 50}")}}
            ).status_code
        case 5:
            return http.get("/v1/jobs").status_code
        case 6:
            tiny = _tiny("trained")
            plan = http.post("/v1/plan", json={"graph": tiny}).json()
            return http.post("/v1/validate", json={"graph": tiny, "plan": plan, "steps": 1}).status_code
        case _:
            return http.post("/v1/plan", json={"graph": _tiny(f"plan {chance.randrange(300)}")}).status_code
