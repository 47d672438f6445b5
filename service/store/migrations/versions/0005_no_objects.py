"""No objects outside of the database: results in them have expired; the objects stay where they are."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # What referred to these bytes says that they are not kept any more, and plans are made again.
    op.execute("delete from blobs where object is not null")
    op.drop_column("blobs", "object")
    op.drop_table("removals")


def downgrade() -> None:
    op.add_column("blobs", sa.Column("object", sa.Text))
    op.create_table(
        "removals",
        sa.Column("object", sa.Text, primary_key=True),
        sa.Column("due", sa.Double, nullable=False),
    )
    op.create_index("removals_due", "removals", ["due"])
