"""Users: tenants, their keys, what they have used, and what was done."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "tenants",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("disabled", sa.Boolean, nullable=False),
        sa.Column("quotas", sa.JSON, nullable=False),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
        sa.Column("used", sa.Double),
    )
    op.create_index("api_keys_of_tenant", "api_keys", ["tenant"])
    op.create_table(
        "usage",
        sa.Column("tenant", sa.Text, primary_key=True),
        sa.Column("hour", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("requests", sa.BigInteger, nullable=False),
        sa.Column("cpu_seconds", sa.Double, nullable=False),
    )
    op.create_index("usage_by_hour", "usage", ["hour"])
    op.create_table(
        "audit",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("at", sa.Double, nullable=False),
        sa.Column("tenant", sa.Text, nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("client", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("result", sa.Text, nullable=False),
        sa.Column("request_id", sa.Text),
        sa.Column("times", sa.Integer, nullable=False),
    )
    op.create_index("audit_of_tenant", "audit", ["tenant", "id"])


def downgrade() -> None:
    for table in ("audit", "usage", "api_keys", "tenants"):
        op.drop_table(table)
