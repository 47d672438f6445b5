"""Settings come from the environment, are checked, and each says what it is."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from service.cli import operation
from service.settings import Settings
from solver.removed import REMOVED
from tests.support.every import every


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ARENAPLAN_{name.upper()}", raising=False)


def test_defaults_are_safe() -> None:
    settings = Settings()
    assert settings.host == "127.0.0.1"
    assert settings.workers >= 1
    assert settings.deadline_default_seconds is None


def test_every_setting_is_described() -> None:
    assert [
        n for n, field in Settings.model_fields.items() if not (field.description or "").endswith(".")
    ] == []


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENAPLAN_PORT", "9000")
    monkeypatch.setenv("ARENAPLAN_DEADLINE_DEFAULT_SECONDS", "2.5")
    assert Settings().port == 9000
    assert Settings().deadline_default_seconds == 2.5
    assert Settings(port=9001).port == 9001


BAD = {
    "port": "65536",
    "workers": "0",
    "queue_limit": "-1",
    "queue_seconds": "0",
    "body_limit_bytes": "many",
    "connection_limit": "0",
    "intake_memory_bytes": "-1",
    "intake_disk_bytes": "-1",
    "drain_seconds": "-1",
    "max_operations": "0",
    "max_operands": "0",
    "max_buffers": "0",
    "deadline_floor_seconds": "-1",
    "deadline_default_seconds": "-1",
    "deadline_max_seconds": "0",
    "deadline_grace_seconds": "-1",
    "validate_max_steps": "0",
    "validate_max_seconds": "0",
    "validate_max_bytes": "0",
    "worker_memory_bytes": "1",
    "worker_cpu_seconds": "0",
    "cache_bytes": "-1",
    "auth": "maybe",
    "allow_anonymous": "perhaps",
    "oidc_algorithms": "RS256,HS256",
    "quota_requests_per_minute": "0",
    "quota_cpu_seconds_per_hour": "0",
    "quota_stored_bytes": "0",
    "quota_concurrent_requests": "0",
    "audit": "some",
    "usage_days": "0",
    "shutdown_seconds": "0",
    "log_level": "loud",
    "log_format": "xml",
}


#: A variable and its value, or arguments of a command, and words of the refusal. A misspelt setting would be
#: ignored otherwise, and the service would run with a default.
REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    *(({f"ARENAPLAN_{name.upper()}": value}, f"ARENAPLAN_{name.upper()}") for name, value in BAD.items()),
    ({"ARENAPLAN_WORKER": "4"}, "ARENAPLAN_WORKER is not a setting; did you mean ARENAPLAN_WORKERS?"),
    ({"ARENAPLAN_COLOUR": "4"}, "ARENAPLAN_COLOUR is not a setting."),
    *(({name: "4"}, REMOVED[name]) for name in REMOVED if name.startswith("ARENAPLAN_")),
    ({"auth": "oidc"}, "ARENAPLAN_OIDC_ISSUER and ARENAPLAN_OIDC_AUDIENCE"),
    ({"auth": "keys", "database_url": "off"}, "needs a database"),
    ({"quota_stored_bytes": 5}, "need ARENAPLAN_AUTH"),
    ({"tls_key": "key.pem"}, "need each other"),
    ({"guides": "nowhere"}, "has no index.html: build it with `./run docs`"),
)


def test_checked_at_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with every() as case:
        for chosen, words in REFUSED:
            with case(chosen), monkeypatch.context() as patch:
                variables = {name: value for name, value in chosen.items() if name.isupper()}
                for name, value in variables.items():
                    patch.setenv(name, value)
                if variables.keys() & {f"ARENAPLAN_{name.upper()}" for name in BAD}:
                    with pytest.raises(ValidationError):
                        Settings()
                with pytest.raises(SystemExit) as caught:
                    operation.settings(**({} if variables else chosen))
                assert caught.value.code == 2
                assert words in " ".join(capsys.readouterr().err.split())


def test_sizes_with_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("body_limit_bytes", "validate_max_bytes", "cache_bytes"):
        for text, size in (("64MiB", 2**26), ("1.5GB", 1_500_000_000), ("65536", 65536)):
            monkeypatch.setenv(f"ARENAPLAN_{name.upper()}", text)
            assert getattr(Settings(), name) == size, name


def test_options_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARENAPLAN_PORT", "9000")
    assert operation.settings(port=0).port == 0


def test_what_others_set_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FUZZ", "VENV", "SERVICE_HOST", "SERVICE_PORT_HTTP", "PORT_8080_TCP_ADDR"):
        monkeypatch.setenv(f"ARENAPLAN_{name}", "4")
    monkeypatch.setenv("ARENAPLAN", "4")
    assert operation.settings().port == 8080
