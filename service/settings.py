"""Settings of the service: one environment variable each, checked at start."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from solver.documents import Size

__all__ = ["Settings", "state_folder", "unknown_settings"]

#: Variables of this project that are no settings of the service: of `run`, of the compose file, of tests, of
#: clients.
_OTHERS: Final = frozenset({"API_KEY", "FUZZ", "OMNIMALLOC", "PUBLISH", "SERVER", "VENV", "WAIT_SECONDS"})
#: What Kubernetes sets in every container for a Service of the name of this one.
_OF_KUBERNETES: Final = re.compile(r"SERVICE_(HOST|PORT)(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?")


def _processors() -> int:
    """Processors this process may use, at least one."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1  # where processes cannot be tied to processors


def state_folder() -> Path:
    """Where this user's state of the service is (XDG Base Directory Specification)."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "arenaplan"


class Settings(BaseSettings):
    """Every field is read from ``ARENAPLAN_`` + its name in capitals; sizes are bytes, or text as 64MiB."""

    model_config = SettingsConfigDict(env_prefix="ARENAPLAN_", extra="forbid", frozen=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=8080, description="Port to listen on; 0 picks a free one."
    )
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        default_factory=_processors,
        description="Solver processes, each works on one request at a time; default: one a processor.",
    )
    queue_limit: Annotated[int, Field(ge=0)] = Field(
        default=64, description="Requests that may wait for a free worker; more are answered 503."
    )
    queue_seconds: Annotated[float, Field(gt=0)] = Field(
        default=30.0, description="Longest wait for a free worker, then 503."
    )
    body_limit_bytes: Annotated[Size, Field(ge=1)] = Field(
        default=64 * 1024 * 1024, description="Largest request body; a larger one is answered 413."
    )
    connection_limit: Annotated[int, Field(ge=1)] = Field(
        default=1_000,
        description="Most connections; fewer where the process may open fewer files. Requests on others are "
        "answered 503.",
    )
    intake_memory_bytes: Size = Field(
        default=64 * 1024 * 1024, description="Memory for the bodies of all requests together."
    )
    intake_disk_bytes: Size = Field(
        default=1024 * 1024 * 1024,
        description="Room in the directory of temporary files for bodies that do not fit into memory; "
        "beyond it 429.",
    )
    max_operations: Annotated[int, Field(ge=1)] = Field(
        default=10_000, description="Most operations in one graph."
    )
    max_operands: Annotated[int, Field(ge=1)] = Field(
        default=1_000, description="Most inputs, and most outputs, of one operation."
    )
    max_buffers: Annotated[int, Field(ge=1)] = Field(
        default=200_000, description="Most buffers of one layout."
    )
    deadline_default_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="Search time of requests that name none. "
        "Unset: budgets count work and plans are deterministic.",
    )
    deadline_max_seconds: Annotated[float, Field(gt=0)] = Field(
        default=60.0, description="Longest deadline a request may name, and the time limit of every request."
    )
    deadline_floor_seconds: Annotated[float, Field(ge=0)] = Field(
        default=5.0,
        description="How long reading a request and its first plan may take, however short its deadline; "
        "then 422.",
    )
    deadline_grace_seconds: Annotated[float, Field(ge=0)] = Field(
        default=1.0,
        description="How far a solve may overrun its deadline before its worker is killed "
        "and the greedy plan is the answer.",
    )
    validate_max_steps: Annotated[int, Field(ge=1)] = Field(
        default=20, description="Most training steps of one validation."
    )
    validate_max_seconds: Annotated[float, Field(gt=0)] = Field(
        default=120.0, description="Time limit of one validation."
    )
    validate_max_bytes: Annotated[Size, Field(ge=1)] = Field(
        default=2 * 1024 * 1024 * 1024,
        description="Most tensor memory of one validation: the arena, and the reference run without reuse.",
    )
    worker_memory_bytes: Annotated[Size, Field(ge=64 * 1024 * 1024)] = Field(
        default=2 * 1024 * 1024 * 1024,
        description="Most address space that one request may take in its worker, beside what a validation "
        "may; a request that needs more is answered 422.",
    )
    worker_cpu_seconds: Annotated[float, Field(ge=1)] = Field(
        default=600.0, description="Most processor time of one request, over all threads of its worker."
    )
    confine_workers: bool = Field(
        default=True,
        description="Whether workers, which read the models of callers, have no secrets, no network, and no "
        "files but code, as far as the kernel can see to it.",
    )
    cache_bytes: Size = Field(
        default=256 * 1024 * 1024, description="Memory for finished plans; 0 keeps none."
    )
    database_url: str = Field(
        default_factory=lambda: f"sqlite:///{state_folder() / 'arenaplan.db'}",
        description="Where jobs, results and graphs are kept: `sqlite:///PATH`, `postgresql://...` for "
        "workers on many machines, or `off`; default: a file in `$XDG_STATE_HOME/arenaplan`.",
    )
    database_connections: Annotated[int, Field(ge=2, le=64)] = Field(
        default=4,
        description="Most connections of one process to PostgreSQL for reading and writing. `arenaplan "
        "serve` has 2 more, for the tickets and the news of jobs, and `arenaplan worker` 3 more.",
    )
    database_seconds: Annotated[float, Field(ge=1)] = Field(
        default=5.0,
        description="How long the database may take to answer; then what needs it is answered 503. Plans are "
        "made without it after half a second.",
    )
    job_limit: Annotated[int, Field(ge=1)] = Field(
        default=10_000, description="Most jobs that are not finished; more are answered 429."
    )
    job_ttl_seconds: Annotated[float, Field(gt=0)] = Field(
        default=7 * 24 * 3600.0,
        description="How long results of jobs are kept, and stored graphs that nobody stores or uses again.",
    )
    job_max_attempts: Annotated[int, Field(ge=1)] = Field(
        default=8, description="How often a job is begun whose worker, or whose machine, dies; then it fails."
    )
    job_max_seconds: Annotated[float, Field(gt=0)] = Field(
        default=3600.0, description="Longest deadline a job may name, and the time limit of every job."
    )
    auth: Literal["off", "keys", "oidc", "keys+oidc"] = Field(
        default="off",
        description="How callers say who they are: by API keys, by tokens of an OpenID Connect provider, by "
        "either, or not at all. Both need the database.",
    )
    allow_anonymous: bool = Field(
        default=False,
        description="Whether to listen beyond loopback while `auth` is off: everybody who reaches the port "
        "may then do everything.",
    )
    auth_outage_seconds: Annotated[float, Field(ge=0)] = Field(
        default=3600.0,
        description="How long callers are let in by what is known of their keys while the database does not "
        "answer; then they are answered 503.",
    )
    oidc_issuer: str | None = Field(
        default=None,
        description="The provider, as its tokens name it; its keys are found by OpenID Connect Discovery.",
    )
    oidc_audience: str | None = Field(
        default=None,
        description="What tokens must name as their audience; those for other services are refused.",
    )
    oidc_algorithms: str = Field(
        default="RS256,PS256,ES256,EdDSA",
        pattern=r"^((RS|PS|ES)(256|384|512)|EdDSA)(,((RS|PS|ES)(256|384|512)|EdDSA))*$",
        description="Algorithms that tokens may be signed with, separated by commas.",
    )
    oidc_tenant_claim: str = Field(
        default="tenant",
        description="The claim that names the tenant; a JSON pointer, as `/group/id`, leads further down.",
    )
    oidc_scope_claim: str = Field(
        default="scope",
        description="The claim with the scopes, a list or words with spaces between; or a JSON pointer.",
    )
    oidc_scope_prefix: str = Field(
        default="",
        description="What stands before the scopes of this service, as `arenaplan:` in `arenaplan:plan`.",
    )
    quota_requests_per_minute: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most requests of a tenant in a minute, for each process of the API; then 429. "
        "Unset: no limit.",
    )
    quota_cpu_seconds_per_hour: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most processor time of workers for a tenant in an hour, over all processes; then 429. "
        "Unset: no limit.",
    )
    quota_stored_bytes: Annotated[Size, Field(ge=1)] | None = Field(
        default=None,
        description="Most bytes that are stored for a tenant; then nothing more may be. Unset: no limit.",
    )
    quota_concurrent_requests: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Most requests of a tenant at the same time, for each process of the API; then 429. "
        "Unset: no limit.",
    )
    audit: Literal["off", "changes", "all"] = Field(
        default="changes",
        description="Which requests have an `audit` line in the log while `auth` is on: all, or all but "
        "those that only read and were not refused. `off` leaves out changes by the command line as well.",
    )
    usage_days: Annotated[float, Field(gt=0)] = Field(
        default=90.0, description="How many days the usage of tenants is kept."
    )
    allowed_hosts: str = Field(
        default="",
        description="Names that the Host header may have, separated by commas; `*.example.com` for those "
        "below, `*` for all. Unset: on loopback `localhost` and addresses, else all.",
    )
    tls_certificate: Path | None = Field(
        default=None, description="Certificate chain (PEM) to serve HTTPS with; with TLS 1.2 or newer."
    )
    tls_key: Path | None = Field(default=None, description="The private key of the certificate (PEM).")
    guides: Path | None = Field(
        default=None,
        description="Folder with the documentation, which `./run docs` builds as `site`, to show at "
        "`/guides/`. Unset: that page says where it is.",
    )
    shutdown_seconds: Annotated[int, Field(ge=1)] = Field(
        default=30, description="How long running requests may finish after SIGTERM."
    )
    drain_seconds: Annotated[float, Field(ge=0)] = Field(
        default=2.0,
        description="How long after SIGTERM `/readyz` says 503 before the port is closed, so that a load "
        "balancer sends nothing any more.",
    )
    metrics: bool = Field(
        default=True, description="Whether `/metrics` answers, in Prometheus's text format."
    )
    worker_metrics_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="Port where `arenaplan worker` answers `/metrics`, at the address of `ARENAPLAN_HOST`. "
        "Unset: nowhere.",
    )
    worker_health_port: Annotated[int, Field(ge=1, le=65535)] | None = Field(
        default=None,
        description="Port where `arenaplan worker` answers `/healthz` and `/readyz`, for probes, at the "
        "address of `ARENAPLAN_HOST`. Unset: nowhere.",
    )
    otlp_endpoint: str | None = Field(
        default=None,
        description="Where traces are sent, as `http://collector:4318` (OTLP over HTTP; needs the extra "
        "`telemetry`). Unset: what `OTEL_EXPORTER_OTLP_ENDPOINT` says, or nowhere.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least severe event that is logged."
    )
    log_format: Literal["json", "text"] | None = Field(
        default=None,
        description="`json`: one object a line; `text`: for people. Unset: text on a terminal, else JSON.",
    )
    root_path: str = Field(
        default="", description="Path prefix that a reverse proxy strips, as in `/arenaplan`."
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if "oidc" in self.auth and not (self.oidc_issuer and self.oidc_audience):
            raise ValueError("ARENAPLAN_AUTH=oidc needs ARENAPLAN_OIDC_ISSUER and ARENAPLAN_OIDC_AUDIENCE")
        if self.auth != "off" and self.database_url == "off":
            raise ValueError("ARENAPLAN_AUTH needs a database, for keys and quotas")
        if self.auth == "off" and any(
            getattr(self, name) is not None for name in type(self).model_fields if name.startswith("quota_")
        ):
            raise ValueError("quotas are those of tenants, and need ARENAPLAN_AUTH")
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("ARENAPLAN_TLS_CERTIFICATE and ARENAPLAN_TLS_KEY need each other")
        if self.guides is not None and not (self.guides / "index.html").is_file():
            raise ValueError(f"ARENAPLAN_GUIDES={self.guides} has no index.html: build it with `./run docs`")
        return self


def unknown_settings(environment: Iterable[str]) -> dict[str, str | None]:
    """Variables that look like settings and are none, each with the setting that it may stand for."""
    prefix = "ARENAPLAN_"
    known = {name.upper() for name in Settings.model_fields} | _OTHERS
    names = (
        name.removeprefix(prefix) for name in sorted(map(str.upper, environment)) if name.startswith(prefix)
    )
    unknown = [name for name in names if name not in known and not _OF_KUBERNETES.fullmatch(name)]
    return {
        prefix + name: next((prefix + near for near in difflib.get_close_matches(name, known, 1)), None)
        for name in unknown
    }
