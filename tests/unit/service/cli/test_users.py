"""Keys, tenants and the audit log from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.auth.keys import read_key
from service.cli.commands import app


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/arenaplan.db"
    monkeypatch.setenv("ARENAPLAN_DATABASE_URL", url)
    return url


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_a_key_is_printed_once() -> None:
    made = run("keys", "create", "--name", "farm", "--tenant", "acme", "--scopes", "plan")
    key = made.stdout.strip()
    assert read_key(key) is not None
    secret = key.rpartition("_")[2]
    for again in (made.stderr, run("keys", "list").output, run("keys", "list", "--json").output):
        assert secret not in again
    (known,) = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert (known["id"], known["tenant"], known["scopes"], known["state"]) == (
        key[:19], "acme", ["plan"], "good"
    )  # fmt: skip
    assert json.loads(run("keys", "list", "--tenant", "other", "--json").stdout)["keys"] == []


def test_a_key_is_revoked_by_its_id_or_as_a_whole() -> None:
    for whole in (False, True):
        key = run("keys", "create", "--name", "x", "--json", "--expires", "never")
        facts = json.loads(key.stdout)
        assert facts["expires"] is None
        assert run("keys", "revoke", facts["key"] if whole else facts["id"]).exit_code == 0
    listed = json.loads(run("keys", "list", "--json").stdout)["keys"]
    assert [one["state"] for one in listed] == ["was revoked"] * 2
    told = run("audit").stdout
    assert facts["key"].rpartition("_")[2] not in told
    assert told.count("keys revoke") == 2


def test_what_is_said_of_a_tenant() -> None:
    assert (
        run("tenants", "set", "acme", "--stored-bytes", "2GiB", "--requests-per-minute", "none").exit_code
        == 0
    )
    assert run("tenants", "set", "acme", "--disabled").exit_code == 0
    (known,) = json.loads(run("tenants", "list", "--json").stdout)["tenants"]
    assert (known["disabled"], known["quotas"]) == (
        True,
        {"stored_bytes": 2 << 30, "requests_per_minute": None},
    )
    assert run("tenants", "set", "acme", "--enabled", "--stored-bytes", "usual").exit_code == 0
    (known,) = json.loads(run("tenants", "list", "--json").stdout)["tenants"]
    assert (known["disabled"], known["quotas"]) == (False, {"requests_per_minute": None})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["keys", "create", "--name", "x", "--scopes", "root"], "--scopes 'root'"),
        (["keys", "create", "--name", "x", "--scopes", ""], "--scopes"),
        (["keys", "create", "--name", "x", "--expires", "soon"], "--expires 'soon'"),
        (["keys", "create", "--name", "x", "--tenant", "a b"], "'a b'"),
        (["keys", "revoke", "ap_0123456789abcdef"], "ap_0123456789abcdef"),
        (["tenants", "set", "acme", "--requests-per-minute", "many"], "--requests-per-minute 'many'"),
        (["tenants", "set", "acme", "--stored-bytes", "2 cows"], "--stored-bytes '2 cows'"),
        (["audit", "--since", "yesterday"], "--since 'yesterday'"),
    ],
)
def test_mistakes_are_named(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr


def test_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENAPLAN_DATABASE_URL", "off")
    result = run("keys", "list")
    assert (result.exit_code, "no database" in result.stderr) == (2, True)


def test_what_callers_have_sent_moves_no_cursor(database: str) -> None:
    from service.auth import table
    from service.store import open_database

    store = open_database(database)
    with store.transaction() as connection:
        table.add_entries(connection, [table.Entry("a", "b", "GET", "/\x1b[2J\n[red]", "404")])
    store.close()
    assert "/?[2J?[red]" in run("audit").stdout
