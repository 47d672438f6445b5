"""Counts the jobs that the service loses while its processes are killed: ``./run chaos``.

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
from solver.compile import load as load_compiled
from tests.chaos.deployments import Deployment, deployed, is_running
from tests.chaos.network import joined, why_there_is_no_network
from tests.support.server import PATIENCE, ROOT

#: How long jobs may take after the last kill of a worker until none is left. After the last kill of the API,
#: or of PostgreSQL, this time is printed and not judged: many jobs wait by then, for none could run.
DRAINED_SECONDS = 15.0
#: Unfinished jobs that are enough to go on killing.
ENOUGH = 20
#: How long a cancelled job may take until nothing of it runs.
CANCELLED_SECONDS = 1.0
#: Steps of a validation that is running when the network is cut.
LONG_STEPS = 10_000


@dataclass
class Load:
    """Jobs that callers send, again and again until they are acknowledged, as long as `more` says so.

    They are plans; of as many as `longer` says, one is a validation that takes seconds.
    """

    deployment: Deployment
    most: int
    longer: int | None = None
    more: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, str] = field(default_factory=dict)
    _numbers: Any = None

    def __post_init__(self) -> None:
        self._graph = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
        self._plan = json.loads(documents.dump_plan(pipeline.plan(documents.load_graph(self._graph))))
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
                    body = {"task": "plan", "request": {"graph": self.graph(name)}}
                    if self.longer is not None and self._sent % self.longer == 0:
                        request = {"graph": self._graph, "plan": self._plan, "steps": LONG_STEPS}
                        body = {"task": "validate", "request": request}
                self.acknowledged[self._send(http, body)] = name

    def _send(self, http: httpx.Client, body: dict[str, Any]) -> str:
        """The path of a job, once the service has said that it has it."""
        headers = {"Idempotency-Key": uuid.uuid4().hex}
        while True:
            with contextlib.suppress(httpx.TransportError):
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

    def left(self) -> int:
        """Jobs that are still to be sent or to end."""
        return max(0, self.most - len(self.acknowledged)) + (self.unfinished() or 0)

    def drained(self) -> None:
        """Returns when no job waits or runs, or when none has ended for a long time."""
        left, until = self.unfinished(), time.monotonic() + PATIENCE
        while left != 0 and time.monotonic() < until:
            time.sleep(0.05)
            if (now := self.unfinished()) != left:
                left, until = now, time.monotonic() + PATIENCE

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
                if job["task"] != "plan":
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
    drained_within: float | None = None,
) -> bool:
    """Kill so many times under so many jobs; whether nothing was lost, and all was done in time."""
    chance = random.Random(kills)
    with deployed(engine) as deployment:
        load = Load(deployment, jobs)
        with ThreadPoolExecutor(4) as callers:
            sending = [callers.submit(load.send_all) for _ in range(4)]
            for number in range(kills):
                time.sleep(chance.uniform(0.5, 1.5) * pause)
                # Spread over all jobs, so that few are left to be done when the last kill is over.
                until = time.monotonic() + 10 * pause
                while time.monotonic() < until and load.left() > jobs * (1 - number / kills):
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
    return lost == wrong == 0 and (drained_within is None or seconds <= drained_within)


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


@dataclass
class Watch:
    """The ends of jobs as callers see them: each end once, and never another one."""

    deployment: Deployment
    ends: dict[str, tuple[str, str]] = field(default_factory=dict)
    during: threading.Event = field(default_factory=threading.Event)

    def look(self) -> int:
        """Remember new ends, with the bytes of their results; how many differ from what was seen before."""
        changed = 0
        with self.deployment.client() as http:
            for job in http.get("/v1/jobs", params={"limit": 1000}).json()["jobs"]:
                path, seen = job["links"]["self"], self.ends.get(job["links"]["self"])
                told = json.dumps([job[name] for name in ("state", "finished", "attempts", "error")])
                if seen is not None and seen[0] != told:
                    print(f"    changed: {path} {seen[0]} {told}")
                    changed += 1
                elif seen is None and job["finished"] is not None:
                    self.ends[path] = told, self._result(http, path)
        return changed

    def changed(self) -> int:
        """How many results are not what they were."""
        with self.deployment.client() as http:
            return sum(self._result(http, path) != seen for path, (_, seen) in self.ends.items())

    def _result(self, http: httpx.Client, path: str) -> str:
        return hashlib.sha256(http.get(f"{path}/result").content).hexdigest()

    def keep_looking(self) -> int:
        changed = 0
        while not self.during.wait(0.5):
            changed += self.look()
        return changed + self.look()


def partitioned(jobs: int, seconds: float) -> bool:
    """Cut one of three machines off, then the other two; whether nothing was lost and no end seen twice."""
    title = f"three machines, cut off for {seconds:g} s"
    if reason := why_there_is_no_network():
        row(title, f"not run: {reason}")
        return False
    with joined(3) as network, deployed("cluster", network=network) as deployment:
        load, watch = Load(deployment, jobs, longer=15), Watch(deployment)
        taken = 0
        with ThreadPoolExecutor(5) as callers:
            sending = [callers.submit(load.send_all) for _ in range(4)]
            watching = callers.submit(watch.keep_looking)
            for cut in ({0}, {1, 2}):
                held: set[str] = set()
                for number in cut:
                    while not (jobs_there := deployment.held(number)):
                        time.sleep(0.02)
                    network.unplug(number)
                    held |= jobs_there
                time.sleep(seconds)
                taken += len(held - set().union(*map(deployment.held, cut)))
                for number in cut:
                    network.plug_in(number)
                time.sleep(seconds / 2)
            load.more.clear()
            for sent in sending:
                sent.result()
            load.drained()
            watch.during.set()
            changed = watching.result()
        changed += watch.changed()
        lost, wrong, most = load.verdict()
        if lost or wrong or changed:
            print(deployment.log.read_text(encoding="utf-8", errors="replace")[-4000:])
    row(
        title,
        f"{len(load.acknowledged):,} jobs, {lost} lost, {wrong} wrong, {taken} taken over, {changed} ends"
        f" changed, at most {most} attempts",
    )
    return lost == wrong == changed == 0


def row(test: str, found: str) -> None:
    print(f"{test:<42} {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run chaos", description=__doc__)
    parser.add_argument("rows", nargs="*", help="workers, api, postgres, partition, cancel; all without one")
    parser.epilog = (
        "Exits 1 where a job is lost or wrong, or leaves a process, where jobs are left"
        f" {DRAINED_SECONDS:g} s after the last kill of a worker, or a job is cancelled later than"
        f" {CANCELLED_SECONDS:g} s (p99)."
    )
    parser.add_argument("--engine", choices=["embedded", "cluster"], action="append", help="default: both")
    parser.add_argument("--kills", type=int, default=20, help="of each kind (default 20)")
    parser.add_argument("--jobs", type=int, default=300, help="under so many jobs at least (default 300)")
    parser.add_argument("--cut", type=float, default=30, help="seconds without a network (default 30)")
    parser.add_argument("--cancels", type=int, default=40, help="jobs that are cancelled (default 40)")
    parser.add_argument("--full", action="store_true", help="100 kills, 1,000 jobs, 200 cancels")
    chosen = parser.parse_args()
    if chosen.full:
        chosen.kills, chosen.jobs, chosen.cancels = 100, 1000, 200
    load_compiled()  # else each worker that is started anew would compile first, for a minute
    rows = chosen.rows or ["workers", "api", "postgres", "partition", "cancel"]
    passed = True
    for engine in chosen.engine or ["embedded", "cluster"]:
        for name in rows:
            if name == "workers":
                kill = Deployment.kill_worker
                kept = killing("workers", engine, chosen.jobs, chosen.kills, 0.3, kill, DRAINED_SECONDS)
            elif name == "api":
                kept = killing("the API", engine, chosen.jobs, chosen.kills, 2.0, lambda d, _: d.kill_api())
            elif name == "postgres" and engine == "cluster":
                kept = killing(
                    "PostgreSQL", engine, chosen.jobs, chosen.kills, 1.0, lambda d, _: d.kill_postgres()
                )
            elif name == "partition" and engine == "cluster":
                kept = partitioned(chosen.jobs, chosen.cut)
            elif name == "cancel":
                kept = cancelling(engine, chosen.cancels)
            else:
                continue
            passed = passed and kept
    raise SystemExit(0 if passed else 1)


if __name__ == "__main__":
    main()
