"""Bringing the tables to the form that this version reads, and back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError

from service.store.database import Store, open_store
from service.store.trouble import Reason, problem_of

__all__ = ["check_schema", "current_revision", "downgrade", "open_database", "prepare", "upgrade"]

# It says of each migration, and of each look at the revision, that it happens.
logging.getLogger("alembic").setLevel(logging.WARNING)

#: How long the database may take to answer a command, for which no caller waits.
COMMAND_SECONDS: Final = 60.0

_MIGRATIONS: Final = Path(__file__).with_name("migrations")


def _config(store: Store | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["store"] = store
    return config


def upgrade(store: Store, revision: str = "head") -> None:
    """Migrate up, in one transaction: either all of it happens or nothing.

    Raises ValueError for tables of a revision that this version does not know.
    """
    try:
        command.upgrade(_config(store), revision)
    except CommandError:
        raise ValueError(check_schema(store)) from None


def downgrade(store: Store, revision: str) -> None:
    """Migrate down to `revision`, or ``base``, as `upgrade` does. What newer tables held is lost.

    Raises ValueError for a revision that the tables cannot be brought back to.
    """
    try:
        command.downgrade(_config(store), revision)
    except CommandError:
        choices = ", ".join(("base", *reversed(known_revisions())))
        raise ValueError(
            f"The database is at revision {current_revision(store) or 'base'}, and {revision!r:.80} is no"
            f" older one: choose one before it of {choices}."
        ) from None


def current_revision(store: Store) -> str | None:
    """The revision of the tables; None where there are none. Several, which is an error, are joined."""
    with store.transaction(reads=True) as connection:
        heads = MigrationContext.configure(connection).get_current_heads()
    return " and ".join(sorted(map(str, heads))) or None


def check_schema(store: Store) -> str | None:
    """None where the tables are those of this version, else one sentence that says what to do."""
    current, known = current_revision(store), known_revisions()
    if store.is_sqlite:  # a name that is not UTF-8 would fail some later statement
        with store.transaction(reads=True) as connection:
            connection.exec_driver_sql("select * from sqlite_master").all()
    if current == known[0]:
        return None
    if current is None:
        return "The database is empty: run `arenaplan database upgrade`."
    if current in known:
        return f"The database is at revision {current}, not {known[0]}: run `arenaplan database upgrade`."
    return f"The database is at revision {current}, which a newer version has made: run that one."


def known_revisions() -> list[str]:
    """All revisions of this version, the newest first."""
    return [one.revision for one in ScriptDirectory.from_config(_config()).walk_revisions()]


def prepare(store: Store) -> None:
    """Have the tables of this version: an SQLite file is brought to it.

    Raises ValueError for another database that is not, `Problem` for one that cannot be used.
    """
    wrong = check_schema(store)
    if wrong is None:
        return
    if not store.is_sqlite:
        raise ValueError(wrong)
    if current_revision(store) not in (None, *known_revisions()):
        raise problem_of(Reason.TABLES, wrong)
    upgrade(store)


def open_database(url: str) -> Store:
    """The database at `url` for a command, with the tables of this version.

    Raises ValueError for a URL that is none and as `prepare` does.
    """
    store = open_store(url, seconds=COMMAND_SECONDS)
    try:
        prepare(store)
    except BaseException:
        store.close()
        raise
    return store
