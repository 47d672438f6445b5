"""Jobs, what they refer to, and on PostgreSQL the queue that hands them out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "blobs",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("touched", sa.Double, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "graphs",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, primary_key=True),
        sa.Column("media_type", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "results",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("blob", sa.Text, nullable=False),
        sa.Column("touched", sa.Double, nullable=False),
    )
    op.create_index("results_by_name", "results", ["tenant", "name"])
    op.create_index("results_by_blob", "results", ["tenant", "blob"])
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("work", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("started", sa.Double),
        sa.Column("finished", sa.Double),
        sa.Column("expires", sa.Double),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("request", sa.Text),
        sa.Column("graph", sa.Text),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("progress", sa.JSON),
        sa.Column("error", sa.JSON),
        sa.Column("result", sa.Text),
        sa.Column("facts", sa.JSON),
        sa.Column("webhook", sa.Text),
        sa.Column("idempotency_key", sa.Text),
        sa.Column("fingerprint", sa.Text),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("lease", sa.Double),
        sa.Column("trace", sa.Text),
        sa.UniqueConstraint("tenant", "idempotency_key", name="jobs_idempotency"),
        sa.CheckConstraint(
            "state in ('queued', 'running', 'succeeded', 'failed', 'cancelled')", name="jobs_state"
        ),
    )
    op.create_index("jobs_by_state", "jobs", ["state", "tenant", "id"])
    op.create_index("jobs_of_tenant", "jobs", ["tenant", "id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.Double),
        sa.Column("failure", sa.Text),
    )
    op.create_index("deliveries_due", "deliveries", ["due"])
    if op.get_bind().dialect.name == "postgresql":
        _create_queue()


def _create_queue() -> None:
    """The tables and functions of Procrastinate, apart from ours, so that all of them can go again."""
    from procrastinate.schema import SchemaManager

    connection = op.get_bind()
    before = connection.exec_driver_sql("show search_path").scalar_one()
    connection.exec_driver_sql("create schema procrastinate")
    connection.exec_driver_sql("set local search_path to procrastinate")
    # Without parameters, psycopg takes several statements, and a per cent sign for what it is.
    cursor = connection.connection.cursor()
    cursor.execute(SchemaManager.get_schema())
    cursor.close()
    connection.exec_driver_sql(f"set local search_path to {before}")


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute("drop schema procrastinate cascade")
    for table in ("deliveries", "jobs", "results", "graphs", "blobs"):
        op.drop_table(table)
