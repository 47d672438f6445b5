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
from solver.documents import load_layout_options, load_options
from solver.documents.schema import generate
from solver.errors import DocumentError, OptionsError
from solver.importers.options import LOSSES, NO_LOSS, import_options
from solver.layout import SOLVERS, Rules
from solver.options import (
    DEPLOYMENT_OPTIONS,
    IMPORT_OPTIONS,
    LAYOUT_OPTIONS,
    LAYOUT_RULES,
    PLAN_OPTIONS,
    REQUEST_OPTIONS,
    Option,
    flag_of,
)
from solver.pipeline import PROGRAM
from solver.plan import LayoutOptions, PlanOptions, split_ranges
from solver.targets import TARGETS

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


@pytest.mark.parametrize(
    ("path", "result", "members"),
    [
        ("/v1/plan", "plan", {"like", *DEPLOYMENT_OPTIONS}),
        ("/plan", "plan", {"like", *DEPLOYMENT_OPTIONS}),
        ("/v1/tradeoff", "curve", {"points"}),
        ("/v1/explain", "verdict", {"training", "scores"}),
        ("/v1/validate", "validation", {"plan", "steps", "seed"}),
    ],
)
def test_a_posted_model_has_its_options_as_parameters(path: str, result: str, members: set[str]) -> None:
    api = create_app(Settings(database_url="off")).openapi()
    parameters = {
        name: api["components"]["parameters"][name]
        for one in api["paths"][path]["post"]["parameters"]
        for name in [one.get("$ref", "").rpartition("/")[2]]
        if name
    }
    options = {n: o for n, o in {**IMPORT_OPTIONS, **REQUEST_OPTIONS}.items() if result in o.changes}
    options.pop("dims", None)  # of documents
    assert set(parameters) == {*options, *members}
    for name, option in options.items():
        schema = parameters[name]["schema"]
        assert parameters[name]["description"] == option.help
        assert schema["examples"] == [option.example]
        words = schema.get("items", schema).get("enum", [])
        assert option.kind == "power of two" or words == [*option.words]
        assert (schema.get("type") == "array") == (option.is_list or option.kind == "measures")


def test_words_are_those_of_the_code() -> None:
    assert {*REQUEST_OPTIONS["target"].words} == {*TARGETS, PROGRAM}
    assert REQUEST_OPTIONS["solver"].words == LAYOUT_OPTIONS["solver"].words == tuple(SOLVERS)
    assert IMPORT_OPTIONS["loss"].words == (*LOSSES, NO_LOSS)
    for option in (*REQUEST_OPTIONS.values(), *LAYOUT_OPTIONS.values(), *IMPORT_OPTIONS.values()):
        assert all(word in option.help for word in option.words if word != PROGRAM)


@pytest.mark.parametrize("option", REQUEST_OPTIONS.values(), ids=lambda option: option.name)
def test_examples_of_options_are_read(option: Option) -> None:
    requested = load_options({option.name: option.example})
    assert option.kind == "costs" or requested != load_options({})  # the example of costs is the default


@pytest.mark.parametrize("option", LAYOUT_OPTIONS.values(), ids=lambda option: option.name)
def test_examples_of_options_of_layouts_are_read(option: Option) -> None:
    if option.kind != "rules":
        assert load_layout_options({option.name: option.example}) != load_layout_options({})


@pytest.mark.parametrize("option", IMPORT_OPTIONS.values(), ids=lambda option: option.name)
def test_examples_of_options_of_models_are_read(option: Option) -> None:
    choices, ranges = split_ranges({option.name: option.example})
    assert ranges or import_options(choices) != import_options({})


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
