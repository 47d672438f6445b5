"""What the service keeps while its processes are killed: ``./run chaos``.

Each row runs real processes and prints what it counted. A job is acknowledged once the service has answered
202; it is lost if it does not end, and wrong if it ends otherwise than a plan made here does.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import httpx

from solver import documents, pipeline
from tests.chaos.deployments import Deployment, deployed, is_running
from tests.support.server import PATIENCE, ROOT

#: How long drained jobs may take after the last kill, and a cancelled one until nothing of it runs.
DRAINED_SECONDS = 15.0
#: Unfinished jobs that are enough to go on killing.
ENOUGH = 20
CANCELLED_SECONDS = 1.0


@dataclass
class Load:
    """Jobs that callers send, again and again until they are acknowledged, as long as `more` says so."""

    deployment: Deployment
    most: int
    more: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, str] = field(default_factory=dict)
    _numbers: Any = None

    def __post_init__(self) -> None:
        self._graph = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
        self._lock = threading.Lock()
        self._sent = 0
        self.more.set()

    def graph(self, name: str) -> dict[str, Any]:
        return {**self._graph, "name": name}

    def send_all(self) -> None:
        """At least `most` jobs; further ones, slowly, as long as there is more to be killed."""
        with self.deployment.client() as http:
            while True:
                with self._lock:
                    enough = self._sent >= self.most
                if enough:
                    if not self.more.is_set():
                        return
                    time.sleep(0.2)
                    if (self.unfinished() or 0) > ENOUGH:
                        continue
                with self._lock:
                    self._sent += 1
                    name = f"job-{self._sent}"
                self.acknowledged[self._send(http, name)] = name

    def _send(self, http: httpx.Client, name: str) -> str:
        """The path of a job, once the service has said that it has it."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            with contextlib.suppress(httpx.TransportError):
                body = {"task": "plan", "request": {"graph": self.graph(name)}}
                response = http.post("/v1/jobs", json=body, headers=headers)
                if response.is_success:
                    return str(response.headers["location"])
                assert response.status_code in (429, 503), response.text
            time.sleep(0.05)

    def unfinished(self) -> int | None:
        """Jobs that wait or run; None while nobody answers."""
        with contextlib.suppress(httpx.TransportError, KeyError), self.deployment.client() as http:
            states = ("queued", "running")
            return sum(
                len(http.get("/v1/jobs", params={"state": state, "limit": 1000}).json()["jobs"])
                for state in states
            )
        return None

    def drained(self) -> None:
        """Returns when no job waits or runs."""
        until = time.monotonic() + PATIENCE
        while self.unfinished() != 0 and time.monotonic() < until:
            time.sleep(0.05)

    def verdict(self) -> tuple[int, int, int]:
        """How many of the acknowledged jobs are lost, how many wrong, and the most attempts at one."""
        lost = wrong = most = 0
        with self.deployment.client() as http:
            for path, name in self.acknowledged.items():
                job = http.get(path).json()
                most = max(most, job.get("attempts", 0))
                if job.get("state") != "succeeded":
                    lost += 1
                    print(f"    lost: {path} {job.get('state')} {job.get('error')}")
                    continue
                result = http.get(f"{path}/result").content
                made = pipeline.plan(documents.load_graph(self.graph(name)))
                if hashlib.sha256(result).digest() != hashlib.sha256(documents.dump_plan(made)).digest():
                    wrong += 1
        return lost, wrong, most


def killing(
    what: str,
    engine: str,
    jobs: int,
    kills: int,
    pause: float,
    kill: Callable[[Deployment, random.Random], None],
) -> bool:
    """Kill so many times under so many jobs; whether nothing was lost."""
    chance = random.Random(kills)
    with deployed(engine) as deployment:
        load = Load(deployment, jobs)
        with ThreadPoolExecutor(4) as callers:
            sending = [callers.submit(load.send_all) for _ in range(4)]
            for number in range(kills):
                time.sleep(chance.uniform(0.5, 1.5) * pause)
                # Spread over all jobs, so that few are left to be done when the last kill is over.
                until = time.monotonic() + 10 * pause
                while time.monotonic() < until and (load.unfinished() or 0) > jobs * (1 - number / kills):
                    time.sleep(0.05)
                kill(deployment, chance)
            last = time.monotonic()
            load.more.clear()
            for sent in sending:
                sent.result()
        acknowledged = time.monotonic()
        load.drained()
        seconds = time.monotonic() - max(last, acknowledged)
        lost, wrong, most = load.verdict()
        if lost or wrong:
            print(deployment.log.read_text(encoding="utf-8", errors="replace")[-4000:])
    row(
        f"SIGKILL of {what} × {kills}, {engine}",
        f"{len(load.acknowledged):,} jobs, {lost} lost, {wrong} wrong, drained {seconds:.1f} s after the last"
        f" kill and job, at most {most} attempts",
    )
    return lost == wrong == 0 and seconds <= DRAINED_SECONDS


def cancelling(engine: str, count: int) -> bool:
    """Cancel jobs that work; whether nothing of them runs any more a second later."""
    seconds: list[float] = []
    orphans = 0
    with deployed(engine, workers=1) as deployment, deployment.client() as http:
        graph = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
        plan = http.post("/v1/plan", json={"graph": graph}).json()
        request = {"graph": graph, "plan": plan, "steps": 100_000}
        for _ in range(count):
            path = http.post("/v1/jobs", json={"task": "validate", "request": request}).headers["location"]
            while (job := http.get(path).json())["progress"] is None:
                assert job["state"] in ("queued", "running"), job
                time.sleep(0.02)
            pids = deployment.workers()
            began = time.monotonic()
            http.delete(path)
            while http.get(path).json()["state"] != "cancelled":
                time.sleep(0.005)
            orphans += all(map(is_running, pids))
            seconds.append(time.monotonic() - began)
    seconds.sort()
    p99 = seconds[min(count - 1, count * 99 // 100)]
    row(
        f"cancel × {count}, {engine}",
        f"median {seconds[count // 2] * 1e3:.0f} ms, p99 {p99 * 1e3:.0f} ms,"
        f" longest {seconds[-1] * 1e3:.0f} ms, {orphans} orphans",
    )
    return orphans == 0 and p99 <= CANCELLED_SECONDS


def row(test: str, found: str) -> None:
    print(f"{test:<42} {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__)
    parser.add_argument("rows", nargs="*", help="workers, api, postgres, cancel; all without one")
    parser.add_argument("--engine", choices=["embedded", "cluster"], action="append", help="default: both")
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default 20)")
    parser.add_argument("--jobs", type=int, default=300, help="under so many jobs at least (default 300)")
    parser.add_argument("--cancels", type=int, default=40, help="jobs that are cancelled (default 40)")
    parser.add_argument("--full", action="store_true", help="100 kills, 1,000 jobs, 200 cancels")
    chosen = parser.parse_args()
    if chosen.full:
        chosen.kills, chosen.jobs, chosen.cancels = 100, 1000, 200
    rows = chosen.rows or ["workers", "api", "postgres", "cancel"]
    passed = True
    for engine in chosen.engine or ["embedded", "cluster"]:
        for name in rows:
            if name == "workers":
                kept = killing("workers", engine, chosen.jobs, chosen.kills, 0.3, Deployment.kill_worker)
            elif name == "api":
                kept = killing("the API", engine, chosen.jobs, chosen.kills, 2.0, lambda d, _: d.kill_api())
            elif name == "postgres" and engine == "cluster":
                kept = killing(
                    "PostgreSQL", engine, chosen.jobs, chosen.kills, 1.0, lambda d, _: d.kill_postgres()
                )
            elif name == "cancel":
                kept = cancelling(engine, chosen.cancels)
            else:
                continue
            passed = passed and kept
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
