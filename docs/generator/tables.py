"""Tables of what the code declares: options, settings, operators, errors."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from docs.generator.documents import bounds
from docs.generator.markdown import code, page, table
from service.problems import CATALOGUE
from service.settings import Settings
from solver import errors as error_module
from solver.documents import SCHEMAS
from solver.documents.options import ImportFields
from solver.errors import ArenaplanError
from solver.graph.ops import FAMILIES, SEQUENCES, signature
from solver.layout import Rules, SolveOptions
from solver.options import IMPORT_OPTIONS, LAYOUT_OPTIONS, REQUEST_OPTIONS, Option
from solver.pipeline import TARGETS
from solver.training.optimizers import OPTIMIZER_NAMES

__all__ = ["errors", "operators", "options", "settings"]


def options() -> str:
    """Options of a plan and of a layout, from the schemas of their documents."""
    return page(
        "Options",
        "The same options everywhere: `--scratch-budget 1MiB` on the command line, "
        '`{"options": {"scratch_budget": 1048576}}` over HTTP, `arenaplan.plan(model, scratch_budget=2**20)` '
        "in Python. Together with the graph they decide the plan, whose own options (`PlanOptions`) say "
        "which measures it takes. Sizes are bytes, an alignment is a power of two, and what is left out is "
        "the choice of the target or the planner.",
        "## Of a plan",
        f"Targets: {', '.join(map(code, TARGETS))}.",
        _properties(SCHEMAS["options"], REQUEST_OPTIONS),
        "## Of a model of another tool",
        "Flags of the command line, keywords of `arenaplan.load_graph`, and parameters of the query of a "
        "posted model. A query has a list as a parameter for each of its values.",
        _properties(ImportFields.model_json_schema(), IMPORT_OPTIONS),
        "## Of a layout",
        _properties(SCHEMAS["layout_options"], LAYOUT_OPTIONS),
        "## Rules of the exact search",
        "`arenaplan solve --without RULE` leaves one out. No rule changes what is feasible; each "
        "only saves work.",
        inspect.cleandoc(Rules.__doc__ or "").partition("\n\n")[2],
        f"Rules: {', '.join(code(field.name) for field in fields(Rules))}.",
        "## In Python",
        inspect.cleandoc(SolveOptions.__doc__ or ""),
    )


def _properties(schema: Mapping[str, Any], options: Mapping[str, Option]) -> str:
    """Options with what a JSON Schema says of them."""
    rules = schema["properties"]
    rows = [
        (
            code(name),
            _default(rules[name]),
            "yes or no, each"
            if "$ref" in rules[name]
            else bounds(rules[name]) + (option.unit and f"; {option.unit}"),
            "" if option.kind == "rules" else code(json.dumps(option.example)),
            ", ".join(option.changes),
            option.help,
        )
        for name, option in options.items()
    ]
    return table(("option", "default", "values", "example", "results", "meaning"), rows)


def _default(rule: Mapping[str, Any]) -> str:
    default = rule.get("default")
    if default is None or default == "":
        return "none"
    if isinstance(default, bool):
        return "yes" if default else "no"
    return "see below" if isinstance(default, Mapping) else code(default)


def settings() -> str:
    """Environment variables of the service, from its settings."""
    rows = []
    for name, field in Settings.model_fields.items():
        default = "one a processor" if field.default_factory else _default({"default": field.default})
        rows.append((code(f"ARENAPLAN_{name.upper()}"), default, field.description or ""))
    return page(
        "Settings of the service",
        "Environment variables, checked when the service starts: a value that is wrong stops it with a line "
        "that says why. Options of `arenaplan serve` win over them. Sizes are bytes.",
        table(("variable", "default", "meaning"), rows),
        "`ARENAPLAN_VENV` is a setting of `./run`, `ARENAPLAN_PUBLISH` one of the compose file, and "
        "`ARENAPLAN_FUZZ` one of the tests.",
    )


def operators() -> str:
    """Every operator by family, with its attributes."""
    sections = [f"## {family.replace('_', ' ')}\n\n{_operators(names)}" for family, names in FAMILIES.items()]
    return page(
        "Operators",
        "Names and semantics are those of ONNX. Operators that list `activation` can apply one to their own "
        "output. An attribute without a default must be given or may be left out, as its operator says.",
        *sections,
        "## sequences\n\nUnrolled into the cells of the family *recurrent* when a graph is built: "
        f"{', '.join(map(code, sorted(SEQUENCES)))}.",
        _operators(sorted(SEQUENCES)),
        f"## Optimizers\n\n{', '.join(map(code, sorted(OPTIMIZER_NAMES)))}.",
    )


def _operators(names: tuple[str, ...] | list[str]) -> str:
    rows = []
    for name in names:
        found = signature(name)
        least, most = found.arity
        inputs = f"{least}" if least == most else f"{least} to {most}" if most < 1000 else f"{least} or more"
        rules = (
            f"{code(key)} {rule.kind}"
            + (" (required)" if rule.required else "" if rule.default is None else f" = {rule.default}")
            for key, rule in found.rules().items()
        )
        rows.append((code(name), inputs, found.outputs or "1 or more", ", ".join(rules)))
    return table(("operator", "inputs", "outputs", "attributes"), rows)


def errors() -> str:
    """Every error that the core raises on purpose, with the status that the service answers."""
    rows = []
    for name in error_module.__all__:
        kind = getattr(error_module, name)
        if isinstance(kind, type) and issubclass(kind, ArenaplanError):
            problem = CATALOGUE.get(kind.code)
            link = f"[{kind.code}](problems.md#{kind.code})" if problem else code(kind.code)
            parent = kind.__mro__[1].__name__
            rows.append((code(name), code(parent), link, problem.status if problem else ""))
    return page(
        "Errors",
        "Every error names the culprit, says what to do about it, and carries a JSON pointer (RFC "
        "6901) into the "
        "document that it came from. The command line prints one line and exits with the code of its "
        "kind; the "
        "service answers an RFC 9457 problem; Python raises the class.",
        table(("class", "kind of", "code", "HTTP status"), rows),
        f"```text\n{inspect.cleandoc(error_module.__doc__ or '')}\n```",
    )
