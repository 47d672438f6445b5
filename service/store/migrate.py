"""Bringing the tables to the form that this version reads, and back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from service.store.database import Store

__all__ = ["check_schema", "current_revision", "downgrade", "upgrade"]

# It says of each migration, and of each look at the revision, that it happens.
logging.getLogger("alembic").setLevel(logging.WARNING)

_MIGRATIONS: Final = Path(__file__).with_name("migrations")


def _config(store: Store | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["store"] = store
    return config


def upgrade(store: Store, revision: str = "head") -> None:
    """Migrate up, in one transaction: either all of it happens or nothing."""
    command.upgrade(_config(store), revision)


def downgrade(store: Store, revision: str) -> None:
    """Migrate down to `revision`, or ``base``, as `upgrade` does. What newer tables held is lost."""
    command.downgrade(_config(store), revision)


def current_revision(store: Store) -> str | None:
    """The revision of the tables; None where there are none."""
    with store.transaction(reads=True) as connection:
        return MigrationContext.configure(connection).get_current_revision()


def check_schema(store: Store) -> str | None:
    """None where the tables are those of this version, else one sentence that says what to do."""
    script = ScriptDirectory.from_config(_config())
    head = script.get_current_head()
    current = current_revision(store)
    if current == head:
        return None
    if current is None:
        return "The database is empty: run `arenaplan database upgrade`."
    if current in {one.revision for one in script.walk_revisions()}:
        return f"The database is at revision {current}, not {head}: run `arenaplan database upgrade`."
    return f"The database is at revision {current}, which a newer version has made: run that one."
