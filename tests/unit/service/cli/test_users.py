"""Keys and tenants from the command line, with an audit line for each change."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from service.auth.table import read_key
from service.cli.commands import app
from solver.removed import REMOVED


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path}/arenaplan.db"
    monkeypatch.setenv("ARENAPLAN_DATABASE_URL", url)
    return url


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where audit lines go."""
    folder = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


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
        (["audit", "--since", "24h"], REMOVED["arenaplan audit"]),
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


def test_changes_are_logged(state: Path) -> None:
    """On standard error and in a file, once they are done, without the secret."""
    made = run("keys", "create", "--name", "farm", "--tenant", "acme")
    key = made.stdout.strip()
    changes = [
        made,
        run("tenants", "set", "acme", "--disabled"),
        run("keys", "revoke", key),
        run("keys", "revoke", "ap_0123456789abcdef"),  # there is none
        run("keys", "list"),
    ]
    told = [line for change in changes for line in change.stderr.splitlines() if line.startswith("{")]
    file = state / "arenaplan/audit.log"
    written = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for lines in (written, [json.loads(line) for line in told]):
        assert [(line["event"], line["action"], line["target"], line["tenant"]) for line in lines] == [
            ("audit", "keys create", key[:19], "acme"),
            ("audit", "tenants set", "disabled", "acme"),
            ("audit", "keys revoke", key[:19], "acme"),
        ]
        assert {(line["result"], line["subject"].endswith(" (command line)")) for line in lines} == {
            ("done", True)
        }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert key.rpartition("_")[2] not in file.read_text(encoding="utf-8") + "".join(told)


def test_changes_are_done_where_the_file_cannot_be_written(state: Path) -> None:
    state.mkdir()
    (state / "arenaplan").touch()
    made = run("keys", "create", "--name", "farm")
    assert made.exit_code == 0
    assert read_key(made.stdout.strip()) is not None
    assert f"{state}/arenaplan/audit.log is not written" in made.stderr


def test_changes_are_not_logged_where_nothing_is_audited(
    monkeypatch: pytest.MonkeyPatch, state: Path
) -> None:
    monkeypatch.setenv("ARENAPLAN_AUDIT", "off")
    assert '"audit"' not in run("keys", "create", "--name", "farm").stderr
    assert not (state / "arenaplan").exists()


def test_names_move_no_cursor() -> None:
    run("keys", "create", "--name", "\x1b[2J\n[red]")
    assert "?[2J?[red]" in run("keys", "list").stdout
