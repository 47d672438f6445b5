"""An option is declared once: classes, documents, HTTP and the command line have it with the same help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import click
import pytest
from typer.main import get_command

from arenaplan import plan
from service.cli.commands import app
from service.http.app import create_app
from service.settings import Settings
from solver.documents.schema import generate
from solver.errors import DocumentError, OptionsError
from solver.importers.options import import_options
from solver.layout import Rules
from solver.options import (
    IMPORT_OPTIONS,
    LAYOUT_OPTIONS,
    LAYOUT_RULES,
    PLAN_OPTIONS,
    REQUEST_OPTIONS,
    Option,
    flag_of,
)
from solver.plan import LayoutOptions, PlanOptions

CLASSES = pytest.mark.parametrize(
    ("kind", "options"),
    [(PlanOptions, PLAN_OPTIONS), (LayoutOptions, LAYOUT_OPTIONS), (Rules, LAYOUT_RULES)],
)


@CLASSES
def test_classes_have_the_declared_fields_defaults_and_help(kind: Any, options: Mapping[str, Option]) -> None:
    assert [field.name for field in fields(kind)] == list(options)
    for field in fields(kind):
        assert f"{field.name}: {options[field.name].help}" in kind.__doc__
        if field.default is not MISSING:
            assert getattr(kind(), field.name) == options[field.name].default


def helps(schema: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: field.get("description", "")
        for name, field in schema["properties"].items()
        if name not in ("format", "version")
    }


@pytest.mark.parametrize(
    ("document", "request_", "options"),
    [
        ("options", "PlanRequestOptions", REQUEST_OPTIONS),
        ("layout_options", "LayoutRequestOptions", LAYOUT_OPTIONS),
    ],
)
def test_documents_and_http_say_the_same(document: str, request_: str, options: Mapping[str, Option]) -> None:
    declared = {name: option.help for name, option in options.items()}
    assert helps(generate(document)) == declared
    api = create_app(Settings(database_url="off")).openapi()
    assert helps(api["components"]["schemas"][request_]) == declared


def test_requests_with_a_model_list_the_options_of_imports() -> None:
    api = create_app(Settings(database_url="off")).openapi()
    for path in ("/v1/plan", "/v1/tradeoff", "/v1/explain", "/v1/validate"):
        text = api["paths"][path]["post"]["requestBody"]["description"]
        assert [line for line in text.splitlines() if line.startswith("* ")] == [
            f"* `{option.name}`: {option.help}" for option in IMPORT_OPTIONS.values()
        ]


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("plan", [*REQUEST_OPTIONS.values(), *IMPORT_OPTIONS.values()]),
        ("import", IMPORT_OPTIONS.values()),
        ("solve", [option for option in LAYOUT_OPTIONS.values() if option.kind != "rules"]),
    ],
)
def test_the_command_line_has_them(command: str, options: list[Option]) -> None:
    commands: dict[str, click.Command] = vars(get_command(app))["commands"]
    shown = {
        flag: vars(p)["help"] for p in commands[command].params for flag in p.opts if vars(p).get("help")
    }
    declared = {flag_of(option.name): option.help for option in options}
    assert declared.items() <= shown.items()


def test_python_takes_them_by_name_and_no_others(tmp_path: Any) -> None:
    wrong: Any = {"colour": "blue"}
    for name in REQUEST_OPTIONS:
        with pytest.raises(OSError, match=r"missing\.json"):
            plan(tmp_path / "missing.json", **{name: REQUEST_OPTIONS[name].default})
    with pytest.raises(DocumentError, match="unknown field"):
        plan(tmp_path / "missing.json", **wrong)
    words = {
        "loss": "mse", "output": "y", "class_axis": "1", "optimizer": "adam", "learning_rate": "0.1",
        "trainable": "last:2", "frozen": "head.*", "dim": "n=2", "input": "rate=16000",
        "batch_norm": "frozen", "weights": "none", "freeze_before": "features", "keep_outputs": "all",
            "micro_batches": 2,
    }  # fmt: skip
    assert set(words) == set(IMPORT_OPTIONS)
    assert import_options(words).dims == {"n": 2}
    with pytest.raises(OptionsError, match="no option 'colour'"):
        import_options({"colour": "blue"})
