"""No table of what was done: the log has it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.drop_table("audit")


def downgrade() -> None:
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
