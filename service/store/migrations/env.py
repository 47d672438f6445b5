"""The script that Alembic runs for migrations: all steps in one transaction of the store."""

from __future__ import annotations

from alembic import context
from sqlalchemy import text

from service.store.database import Store
from service.store.schema import METADATA

#: The number of an advisory lock, arbitrary but fixed: two processes migrate one after the other.
_LOCK = 4_077_001

store: Store = context.config.attributes["store"]
with store.transaction() as connection:
    if not store.is_sqlite:
        for timeout in ("statement_timeout", "lock_timeout"):  # of requests; large tables take longer
            connection.execute(text(f"set local {timeout} = 0"))
        connection.execute(text("select pg_advisory_xact_lock(:number)"), {"number": _LOCK})
    context.configure(connection=connection, target_metadata=METADATA, transactional_ddl=True)
    context.run_migrations()
