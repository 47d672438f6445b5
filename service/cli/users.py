"""``arenaplan keys`` and ``tenants``: the users of a service, straight in its database.

The database is the one that the settings name, as for ``arenaplan serve``. A running service hears of a
change within seconds.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli.console import Exit, fail, print_json, print_line
from service.cli.operation import database_errors, settings
from service.cli.options import AsJson, Commands
from service.cli.tables import aligned

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from service.auth.table import Key

__all__ = ["app"]

app = Commands()

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Keys = app.group(
    "keys",
    "API keys of a service: make, list, revoke.",
    "arenaplan keys create --tenant acme --name build-farm",
    "arenaplan keys create --name prometheus --scopes metrics --expires never",
    "arenaplan keys list",
    "arenaplan keys revoke ap_0123456789abcdef",
)
Tenants = app.group(
    "tenants",
    "Tenants of a service: what they have taken, and may take.",
    "arenaplan tenants list",
    "arenaplan tenants set acme --requests-per-minute 600 --stored-bytes 2GiB",
    "arenaplan tenants set acme --disabled",
)

OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant alone.")]


@contextlib.contextmanager
def _database() -> Iterator[Connection]:
    """One transaction in the database of the service."""
    from service.store import open_database

    url = settings().database_url
    if url == "off":
        fail("There is no database: ARENAPLAN_DATABASE_URL is off.", Exit.USAGE)
    with (
        database_errors(),
        contextlib.closing(open_database(url)) as store,
        store.transaction() as connection,
    ):
        yield connection


def _log_change(action: str, tenant: str, target: str) -> None:
    """Write an audit line of a change that is done to standard error and to ``audit.log`` of this user."""
    import getpass

    from service.logs import log_line
    from service.settings import state_folder

    chosen = settings()
    if chosen.audit == "off":
        return
    user = str(os.getuid())
    with contextlib.suppress(KeyError, OSError):  # in a container whose user has no name
        user = getpass.getuser()
    facts = {
        "action": action, "target": target, "result": "done", "tenant": tenant,
        "subject": f"{user} (command line)",
    }  # fmt: skip
    print_line(log_line(chosen.log_format, "audit", **facts), to_errors=True)
    file = state_folder() / "audit.log"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)
        with file.open("a", encoding="utf-8") as log:
            log.write(log_line("json", "audit", **facts) + "\n")
    except OSError as error:
        print_line(
            f"arenaplan: {file} is not written: {error.strerror}. Keep the line above.", to_errors=True
        )


def _named(tenant: str) -> str:
    from service.auth.principal import is_tenant

    if not is_tenant(tenant):
        fail(f"{tenant!r} is not the name of a tenant: letters, digits and ._@|:+=/- in ASCII.", Exit.USAGE)
    return tenant


def _seconds(text: str, option: str) -> float:
    match = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if not match:
        fail(f"{option} {text!r} is not a time: give a number and a unit, as 90d, 12h, 30m.", Exit.USAGE)
    return int(match[1]) * _UNITS[match[2]]


def _number(text: str, quota: str) -> int:
    from solver.documents import read_size

    read, form = (read_size, "bytes, as 2GiB") if quota == "stored_bytes" else (int, "a number")
    try:
        return read(text)
    except ValueError:
        fail(f"--{quota.replace('_', '-')} {text!r}: give {form}; or none, or usual.", Exit.USAGE)


@Keys.add(
    name="create",
    words={
        "name NAME": "Who or what uses the key; the audit log says it.",
        "tenant NAME": "Whose plans and jobs the key is for.",
        "scopes SCOPES": "Of plan, jobs, metrics, admin; separated by commas.",
        "expires TIME": "After what time it ends: 90d, 12h; or never.",
    },
)
def create_key(
    *,
    name: str,
    tenant: str = "default",
    scopes: str = "plan,jobs",
    expires: str = "365d",
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once: the database keeps no more than its digest."""
    from service.auth import table
    from service.auth.principal import ALL_SCOPES
    from service.auth.table import Key, new_key

    chosen_scopes = frozenset(filter(None, re.split(r"[,\s]+", scopes)))
    if not chosen_scopes or chosen_scopes - ALL_SCOPES:
        fail(f"--scopes {scopes!r}: choose of {', '.join(sorted(ALL_SCOPES))}.", Exit.USAGE)
    now, new = time.time(), new_key()
    until = None if expires == "never" else now + _seconds(expires, "--expires")
    key = Key(new.id, _named(tenant), name, chosen_scopes, new.digest, now, until)
    with _database() as connection:
        table.add_key(connection, key)
    _log_change("keys create", tenant, f"ap_{new.id}")
    if as_json:
        print_json({**_facts(key), "key": new.text})
        return
    print_line(
        f"arenaplan: this key is shown once and kept nowhere; it ends {_moment(until, 'never')}.",
        to_errors=True,
    )
    print_line(new.text)


@Keys.add(name="list")
def list_keys(*, tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """List keys. With their scopes, until when they hold, and when they were used last."""
    from service.auth import table

    with _database() as connection:
        keys = table.list_keys(connection, tenant)
    if as_json:
        print_json({"keys": [_facts(key) for key in keys]})
        return
    rows = []
    for facts in map(_facts, keys):
        facts["scopes"] = " ".join(facts["scopes"])
        columns = ("id", "tenant", "name", "scopes", "expires", "used", "state")
        rows.append(["never" if facts[column] is None else facts[column] for column in columns])
    _print(("key", "tenant", "name", "scopes", "ends", "used", "state"), rows)


@Keys.add(name="revoke", words={"key KEY": "As ap_0123456789abcdef."})
def revoke_key(key: str, *, as_json: AsJson = False) -> None:
    """Take no requests with this key any more."""
    from service.auth import table
    from service.auth.registry import SYNC_SECONDS

    # It may be the whole key, of which no more than the id is looked at.
    short = (re.findall(r"^(?:ap_)?([0-9a-f]{16})", key) or [key])[0]
    with _database() as connection:
        revoked = table.revoke_key(connection, short, time.time())
        if revoked is None:
            fail(
                f"There is no key ap_{short[:16]}; `arenaplan keys list` shows all.",
                Exit.USAGE,
                as_json=as_json,
            )
    _log_change("keys revoke", revoked.tenant, f"ap_{short}")
    if as_json:
        print_json({**_facts(revoked), "state": "was revoked"})
        return
    print_line(
        f"ap_{short} of {revoked.tenant} is revoked; running services hear of it within {SYNC_SECONDS:g} s."
    )


@Tenants.add(name="list")
def list_tenants(*, as_json: AsJson = False) -> None:
    """List tenants. With their quotas, what they took in the last day, and what is stored for them."""
    from service.auth import table
    from service.auth.quotas import hour_of
    from service.auth.table import Tenant

    with _database() as connection:
        known = {one.name: one for one in table.list_tenants(connection)}
        used = {one.tenant: one for one in table.usage_since(connection, hour_of(time.time()) - 23)}
        owners = {key.tenant for key in table.list_keys(connection)}
    names = sorted(known.keys() | used.keys() | owners)
    tenants = [known.get(name) or Tenant(name) for name in names]
    none = dict.fromkeys(("requests", "cpu_seconds", "stored_bytes"), 0)
    usage = [
        {k: v for k, v in asdict(used[n]).items() if k != "tenant"} if n in used else none for n in names
    ]
    if as_json:
        facts = [{**asdict(one), "usage": taken} for one, taken in zip(tenants, usage, strict=True)]
        print_json({"tenants": facts})
        return
    _print(
        ("tenant", "own settings", "requests a day", "processor seconds a day", "bytes stored"),
        [
            (
                one.name,
                " ".join(f"{k}={'none' if v is None else f'{v:,}'}" for k, v in one.quotas.items())
                or "usual",
                f"{taken['requests']:,}",
                f"{taken['cpu_seconds']:,.1f}",
                f"{taken['stored_bytes']:,}",
            )
            for one, taken in zip(tenants, usage, strict=True)
        ],
    )


@Tenants.add(
    name="set",
    words={
        "name TENANT": "",
        "requests_per_minute N": "A number; none: no limit; usual: that of the settings.",
        "cpu_seconds_per_hour N": "The same.",
        "stored_bytes SIZE": "The same, or as 2GiB.",
        "concurrent_requests N": "The same.",
        "disabled --disabled/--enabled": "Whether all its requests are refused.",
    },
)
def set_tenant(
    name: str,
    *,
    requests_per_minute: str | None = None,
    cpu_seconds_per_hour: str | None = None,
    stored_bytes: str | None = None,
    concurrent_requests: str | None = None,
    disabled: bool | None = None,
    as_json: AsJson = False,
) -> None:
    """Set quotas of one tenant, or refuse it. They replace those of the settings."""
    from service.auth import table
    from service.auth.registry import SYNC_SECONDS
    from service.auth.table import Tenant

    quotas = {
        "requests_per_minute": requests_per_minute,
        "cpu_seconds_per_hour": cpu_seconds_per_hour,
        "stored_bytes": stored_bytes,
        "concurrent_requests": concurrent_requests,
    }
    with _database() as connection:
        before = next(
            (one for one in table.list_tenants(connection) if one.name == name), Tenant(_named(name))
        )
        changed = dict(before.quotas)
        for quota, text in quotas.items():
            if text == "usual":
                changed.pop(quota, None)
            elif text is not None:
                changed[quota] = None if text == "none" else _number(text, quota)
        now = Tenant(name, before.disabled if disabled is None else disabled, changed)
        table.set_tenant(connection, now)
    # The differences from the settings, in one line.
    words = [f"{quota}={'none' if value is None else value}" for quota, value in changed.items()]
    words = ["disabled", *words] if now.disabled else words
    _log_change("tenants set", name, " ".join(words) or "as usual")
    if as_json:
        print_json(asdict(now))
        return
    print_line(f"{name} is set; running services hear of it within {SYNC_SECONDS:g} s.")


def _facts(key: Key) -> dict[str, Any]:
    """The facts of a key that may be shown."""
    return {
        "id": f"ap_{key.id}",
        "tenant": key.tenant,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created": _moment(key.created, ""),
        "expires": _moment(key.expires, "") or None,
        "used": _moment(key.used, "") or None,
        "state": key.refusal(time.time()) or "good",
    }


def _moment(seconds: float | None, otherwise: str) -> str:
    if seconds is None:
        return otherwise
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _print(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table whose cells stay whole, for eyes and for grep."""
    # What callers have sent is text, and moves no cursor.
    shown = [["".join(c if c.isprintable() else "?" for c in cell) for cell in row] for row in rows]
    for line in aligned([columns, *shown]):
        print_line(line)
