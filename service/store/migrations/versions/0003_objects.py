"""Objects: large results outside of the database."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("blobs", sa.Column("object", sa.Text))
    op.create_table(
        "removals",
        sa.Column("object", sa.Text, primary_key=True),
        sa.Column("due", sa.Double, nullable=False),
    )
    op.create_index("removals_due", "removals", ["due"])


def downgrade() -> None:
    # What is not in the database is lost to it: jobs say that such a result has expired.
    op.execute("delete from blobs where object is not null")
    op.drop_column("blobs", "object")
    op.drop_table("removals")
