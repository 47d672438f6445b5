"""All tables. Every row that belongs to somebody names its tenant; times are seconds since 1970.

    blobs      bytes under their SHA-256: requests, graphs and results
    graphs     ──► blobs      what PUT /v1/graphs has stored
    results    ──► blobs      what a request is answered with, by the key of the request
    jobs       ──► blobs      request, graph and result of each
    tenants, api_keys         who may do what, and how much of it
    usage                     what tenants have taken

What nothing refers to any more is removed (`service.jobs.table`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

__all__ = [
    "METADATA",
    "api_keys",
    "blobs",
    "graphs",
    "jobs",
    "results",
    "tenants",
    "usage",
]

METADATA: Final = MetaData()

blobs: Final = Table(
    "blobs",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("size", BigInteger, nullable=False),
    # Set again before a row is about to refer to the bytes, so that they are not removed in that moment.
    Column("touched", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

graphs: Final = Table(
    "graphs",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("digest", Text, primary_key=True),
    Column("media_type", Text, nullable=False),
    Column("created", Double, nullable=False),
)

results: Final = Table(
    "results",
    METADATA,
    Column("tenant", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    # Collection and digest under which HTTP knows the answer: plans/1f0c…
    Column("name", Text, nullable=False),
    Column("blob", Text, nullable=False),
    Column("touched", Double, nullable=False),
    Index("results_by_name", "tenant", "name"),
    Index("results_by_blob", "tenant", "blob"),
)

jobs: Final = Table(
    "jobs",
    METADATA,
    # Begins with the time, so that the order of ids is the order of creation.
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("task", Text, nullable=False),
    # What the worker calls the task, which depends on what is sent: a model is read otherwise than a graph.
    Column("work", Text, nullable=False),
    Column("state", Text, nullable=False),
    # Grows with every change that a caller can see.
    Column("revision", BigInteger, nullable=False),
    Column("created", Double, nullable=False),
    Column("started", Double),
    Column("finished", Double),
    Column("expires", Double),
    Column("attempts", Integer, nullable=False),
    Column("request", Text),
    Column("graph", Text),
    Column("size", BigInteger, nullable=False),
    Column("progress", JSON(none_as_null=True)),
    Column("error", JSON(none_as_null=True)),
    Column("result", Text),
    # What the worker said of the result beside its bytes.
    Column("facts", JSON(none_as_null=True)),
    Column("idempotency_key", Text),
    Column("fingerprint", Text),
    Column("cancel", Boolean, nullable=False),
    # Who runs it, and until when that holds unless it is renewed.
    Column("owner", Text),
    Column("lease", Double),
    # W3C trace context of the request.
    Column("trace", Text),
    UniqueConstraint("tenant", "idempotency_key", name="jobs_idempotency"),
    CheckConstraint("state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="jobs_state"),
    Index("jobs_by_state", "state", "tenant", "id"),
    Index("jobs_of_tenant", "tenant", "id"),
)

tenants: Final = Table(
    "tenants",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("created", Double, nullable=False),
    Column("disabled", Boolean, nullable=False),
    # What differs from the settings, by the names of `service.auth.quotas.Quotas`; null there: no limit.
    Column("quotas", JSON, nullable=False),
)

api_keys: Final = Table(
    "api_keys",
    METADATA,
    Column("id", Text, primary_key=True),
    Column("tenant", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("scopes", Text, nullable=False),
    # SHA-256 of the secret.
    Column("digest", LargeBinary, nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
    Column("used", Double),
    Index("api_keys_of_tenant", "tenant"),
)

usage: Final = Table(
    "usage",
    METADATA,
    Column("tenant", Text, primary_key=True),
    # Hours since 1970.
    Column("hour", Integer, primary_key=True, autoincrement=False),
    Column("requests", BigInteger, nullable=False),
    Column("cpu_seconds", Double, nullable=False),
    Index("usage_by_hour", "hour"),
)
