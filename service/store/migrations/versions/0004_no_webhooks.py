"""No webhooks: jobs that have one run without it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.drop_table("deliveries")
    op.drop_column("jobs", "webhook")


def downgrade() -> None:
    op.add_column("jobs", sa.Column("webhook", sa.Text))
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
