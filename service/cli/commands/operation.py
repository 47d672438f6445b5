"""Commands for those who run the service: its processes, its database, its users."""

from __future__ import annotations

import gc
from typing import Annotated

import typer

from service.cli.console import reporting
from service.cli.options import AsJson, Commands, examples

__all__ = ["app"]

app = Commands()


@app.command(
    epilog=examples(
        "arenaplan serve",
        "arenaplan serve --port 9000 --workers 2 --log-format json",
        "ARENAPLAN_BODY_LIMIT_BYTES=16MiB arenaplan serve",
    )
)
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="0 picks a free port.")] = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Solver processes.")
    ] = None,
    allow_anonymous: Annotated[
        bool,
        typer.Option(
            "--allow-anonymous", help="Listen beyond loopback though nobody has to say who they are."
        ),
    ] = False,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", help="json or text; left out, text on a terminal and json elsewhere."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --log-format json.")] = False,
) -> None:
    """Serve all of this over HTTP. Every setting is an environment variable, ARENAPLAN_*; options win."""
    given = {"host": host, "port": port, "workers": workers, "log_format": "json" if as_json else log_format}
    given |= {"allow_anonymous": True} if allow_anonymous else {}
    gc.enable()
    with reporting(as_json=as_json):
        from service.cli import configuration, serving

        serving.run(
            configuration.settings({name: value for name, value in given.items() if value is not None})
        )


@app.command(
    epilog=examples(
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker",
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan worker --workers 8",
    )
)
def worker(
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=256, help="Solver processes.")
    ] = None,
    health_port: Annotated[
        int | None,
        typer.Option("--health-port", min=1, max=65535, help="Answer /healthz and /readyz here, for probes."),
    ] = None,
    log_format: Annotated[
        str | None,
        typer.Option("--log-format", help="json or text; left out, text on a terminal and json elsewhere."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --log-format json.")] = False,
) -> None:
    """Run the jobs of a PostgreSQL database.

    On as many machines as there are. Settings are those of serve.
    """
    given = {
        "workers": workers,
        "worker_health_port": health_port,
        "log_format": "json" if as_json else log_format,
    }
    gc.enable()
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.run_worker(
            configuration.settings({n: value for n, value in given.items() if value is not None})
        )


Database = typer.Typer(
    help="The service's database: upgrade, check, recover, downgrade.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database upgrade",
        "ARENAPLAN_DATABASE_URL=postgresql://... arenaplan database check",
        "arenaplan database recover",
    ),
)
app.add_typer(Database, name="database")


@Database.command("upgrade")
def upgrade_database(as_json: AsJson = False) -> None:
    """Make the tables, or bring them to this version. All of it happens, or nothing."""
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.upgrade_database(configuration.settings({}))


@Database.command("check")
def check_database(as_json: AsJson = False) -> None:
    """Whether the service can use the database. Exit code 1: it cannot.

    It must be whole, and have the tables of this version. The message says what to do.
    """
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.check_database(configuration.settings({}))


@Database.command("recover")
def recover_database(as_json: AsJson = False) -> None:
    """Save what can be read of a damaged SQLite file.

    It goes into a new file in the place of the damaged one, which is kept. The service need not be stopped.
    """
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.recover_database(configuration.settings({}))


@Database.command("downgrade")
def downgrade_database(
    revision: Annotated[str, typer.Argument(metavar="REVISION", help="As 0001; base removes all tables.")],
    as_json: AsJson = False,
) -> None:
    """Bring the tables back to an older version. What newer ones held is lost."""
    with reporting(as_json=as_json):
        from service.cli import configuration, working

        working.downgrade_database(configuration.settings({}), revision)


Keys = typer.Typer(
    help="API keys of a service: make, list, revoke.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "arenaplan keys create --tenant acme --name build-farm",
        "arenaplan keys create --name prometheus --scopes metrics --expires never",
        "arenaplan keys list",
        "arenaplan keys revoke ap_0123456789abcdef",
    ),
)
Tenants = typer.Typer(
    help="Tenants of a service: what they have taken, and may take.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "arenaplan tenants list",
        "arenaplan tenants set acme --requests-per-minute 600 --stored-bytes 2GiB",
        "arenaplan tenants set acme --disabled",
    ),
)
app.add_typer(Keys, name="keys")
app.add_typer(Tenants, name="tenants")

OfTenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Of this tenant alone.")]


@Keys.command("create")
def create_key(
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Who or what uses the key; audit lines of the log say it."
        ),
    ],
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose plans and jobs the key is for.")
    ] = "default",
    scopes: Annotated[
        str,
        typer.Option(
            "--scopes", metavar="SCOPES", help="Of plan, jobs, metrics, admin; separated by commas."
        ),
    ] = "plan,jobs",
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="After what time it ends: 90d, 12h; or never.")
    ] = "365d",
    as_json: AsJson = False,
) -> None:
    """Make a key and print it. It is shown this once: the database keeps no more than its digest."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.create_key(tenant, name, scopes, expires, as_json=as_json)


@Keys.command("list")
def list_keys(tenant: OfTenant = None, as_json: AsJson = False) -> None:
    """List keys. With their scopes, until when they hold, and when they were used last."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.list_keys(tenant, as_json=as_json)


@Keys.command("revoke")
def revoke_key(
    key: Annotated[str, typer.Argument(metavar="KEY", help="As ap_0123456789abcdef.")],
    as_json: AsJson = False,
) -> None:
    """Take no requests with this key any more."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.revoke_key(key, as_json=as_json)


@Tenants.command("list")
def list_tenants(as_json: AsJson = False) -> None:
    """List tenants. With their quotas, what they took in the last day, and what is stored for them."""
    with reporting(as_json=as_json):
        from service.cli import users

        users.list_tenants(as_json=as_json)


@Tenants.command("set")
def set_tenant(
    name: Annotated[str, typer.Argument(metavar="TENANT")],
    requests_per_minute: Annotated[
        str | None,
        typer.Option(
            "--requests-per-minute",
            metavar="N",
            help="A number; none: no limit; usual: that of the settings.",
        ),
    ] = None,
    cpu_seconds_per_hour: Annotated[
        str | None, typer.Option("--cpu-seconds-per-hour", metavar="N", help="The same.")
    ] = None,
    stored_bytes: Annotated[
        str | None, typer.Option("--stored-bytes", metavar="SIZE", help="The same, or as 2GiB.")
    ] = None,
    concurrent_requests: Annotated[
        str | None, typer.Option("--concurrent-requests", metavar="N", help="The same.")
    ] = None,
    disabled: Annotated[
        bool | None, typer.Option("--disabled/--enabled", help="Whether all its requests are refused.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set quotas of one tenant, or refuse it. They replace those of the settings."""
    quotas = {
        "requests_per_minute": requests_per_minute,
        "cpu_seconds_per_hour": cpu_seconds_per_hour,
        "stored_bytes": stored_bytes,
        "concurrent_requests": concurrent_requests,
    }
    with reporting(as_json=as_json):
        from service.cli import users

        users.set_tenant(name, quotas, disabled, as_json=as_json)
