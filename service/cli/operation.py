"""The service on the command line: its processes, its settings, its database."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from service.cli.console import Exit, fail, print_line
from service.cli.options import AsJson, Commands
from service.problems import Problem
from solver.removed import removed

if TYPE_CHECKING:
    from service.settings import Settings
    from service.store import Store

__all__ = ["app", "database_errors", "settings"]

app = Commands()


def settings(**given: Any) -> Settings:
    """Settings from the environment, with those of `given` on top that are not None; ends with a message when
    one is wrong or unknown.
    """
    from pydantic import ValidationError

    from service.settings import Settings, unknown_settings

    for name, near in unknown_settings(os.environ).items():
        meant = f"; did you mean {near}?" if near else ". The page Settings of the documentation lists them."
        sentence = removed(name)
        fail(f"{name}: {sentence}" if sentence else f"{name} is not a setting{meant}", Exit.USAGE)
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        if not name:  # settings that do not fit together
            fail(f"{first['msg'].removeprefix('Value error, ')}.", Exit.USAGE)
        wrong = f"must be {first['msg']}" if first["type"] == "wanted" else first["msg"]
        fail(f"Setting {name} (ARENAPLAN_{name.upper()}): {wrong}.", Exit.USAGE)


@app.add(
    "arenaplan serve",
    "arenaplan serve --port 9000 --workers 2 --log-format json",
    "ARENAPLAN_BODY_LIMIT_BYTES=16MiB arenaplan serve",
    words={
        "host": "Address to listen on.",
        "port 0..65535": "0 picks a free port.",
        "workers 1..256": "Solver processes.",
        "allow_anonymous": "Listen beyond loopback though nobody has to say who they are.",
        "log_format": "json or text; left out, text on a terminal and json elsewhere.",
        "as_json --json": "Same as --log-format json.",
    },
)
def serve(
    *,
    host: str | None = None,
    port: int | None = None,
    workers: int | None = None,
    allow_anonymous: bool = False,
    log_format: str | None = None,
    as_json: bool = False,
) -> None:
    """Serve all of this over HTTP. Every setting is an environment variable, ARENAPLAN_*; options win."""
    gc.enable()
    chosen = settings(
        host=host,
        port=port,
        workers=workers,
        allow_anonymous=allow_anonymous or None,
        log_format="json" if as_json else log_format,
    )
    from service.cli import serving

    serving.run(chosen)


@app.add(
    "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker",
    "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker --workers 8",
    words={
        "workers 1..256": "Solver processes.",
        "health_port 1..65535": "Answer /healthz and /readyz here, for probes.",
        "log_format": "json or text; left out, text on a terminal and json elsewhere.",
        "as_json --json": "Same as --log-format json.",
    },
)
def worker(
    *,
    workers: int | None = None,
    health_port: int | None = None,
    log_format: str | None = None,
    as_json: bool = False,
) -> None:
    """Run the jobs of a PostgreSQL database.

    On as many machines as there are. Settings are those of serve.
    """
    gc.enable()
    text = "json" if as_json else log_format
    chosen = settings(workers=workers, worker_health_port=health_port, log_format=text)
    from service.cli import working

    with database_errors():
        working.run_worker(chosen)


# ----------------------------------------------------------------------------------------- database


Database = app.group(
    "database",
    "The service's database: upgrade, check, recover, downgrade.",
    "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database upgrade",
    "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database check",
    "arenaplan database recover",
)


@contextlib.contextmanager
def database_errors() -> Iterator[None]:
    """Turn errors of the database into messages of one line."""
    try:
        yield
    except Problem as problem:
        fail(f"{problem.detail} Run `arenaplan database check`: it names the remedy.", Exit.WRONG)
    except ValueError as error:
        fail(str(error), Exit.USAGE)


@contextlib.contextmanager
def _opened(seconds: float | None = None) -> Iterator[Store]:
    from service.store import open_store
    from service.store.migrate import COMMAND_SECONDS

    url = settings().database_url
    with database_errors():
        if url == "off":
            raise ValueError("There is no database: ARENAPLAN_DATABASE_URL is off.")
        with contextlib.closing(open_store(url, seconds=seconds or COMMAND_SECONDS)) as store:
            yield store


@Database.add(name="upgrade")
def upgrade_database(*, as_json: AsJson = False) -> None:
    """Make the tables, or bring them to this version. All of it happens, or nothing."""
    from service.store import current_revision, upgrade

    with _opened() as store:
        upgrade(store)
        print_line(f"The database is at revision {current_revision(store)}.")


@Database.add(name="check")
def check_database(*, as_json: AsJson = False) -> None:
    """Whether the service can use the database. Exit code 1: it cannot.

    It must be whole, and have the tables of this version. The message says what to do.
    """
    from service.store import current_revision
    from service.store.repair import examine

    with _opened(settings().database_seconds) as store:
        if wrong := examine(store):
            fail(wrong, Exit.WRONG)
        print_line(f"The database is at revision {current_revision(store)}, as this version needs it.")


@Database.add(name="recover")
def recover_database(*, as_json: AsJson = False) -> None:
    """Save what can be read of a damaged SQLite file.

    It goes into a new file in the place of the damaged one, which is kept. The service need not be stopped.
    """
    from service.store.repair import recover

    with _opened() as store:
        if not store.is_sqlite:
            fail(
                "PostgreSQL is recovered by its own tools: restore a backup (pg_restore, or its WAL), then"
                " run `arenaplan database check`.",
                Exit.USAGE,
            )
        for line in recover(store.file):
            print_line(line)


@Database.add(name="downgrade", words={"revision REVISION": "As 0001; base removes all tables."})
def downgrade_database(revision: str, *, as_json: AsJson = False) -> None:
    """Bring the tables back to an older version. What newer ones held is lost."""
    from service.store import current_revision, downgrade

    with _opened() as store:
        downgrade(store, revision)
        now = current_revision(store)
        print_line(f"The database is at revision {now}." if now else "The database has no tables any more.")
