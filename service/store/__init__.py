"""The database of the service: SQLite in a file of its own, or PostgreSQL.

Read `schema` for the tables, `database` for how they are reached, `migrate` for how they come to be,
`trouble` for errors, `repair` for damage.
"""

from __future__ import annotations

from service.store.database import Store, open_store
from service.store.migrate import (
    check_schema,
    current_revision,
    downgrade,
    open_database,
    prepare,
    upgrade,
)

__all__ = [
    "Store",
    "check_schema",
    "current_revision",
    "downgrade",
    "open_database",
    "open_store",
    "prepare",
    "upgrade",
]
