"""The options of the command line: each says its flag, whatever Typer makes of a parameter's name."""

from __future__ import annotations

import ast
from pathlib import Path


def test_each_option_says_its_flag(root: Path) -> None:
    """A version of Typer took the metavar for the name: ``export --LOSS``."""
    options = [
        (file.name, node)
        for file in sorted((root / "service/cli").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Option"
    ]
    assert len(options) >= 70  # the search itself works
    without = [
        f"{file}:{option.lineno}"
        for file, option in options
        if not (option.args and ast.unparse(option.args[0]).lstrip("'\"").startswith(("-", "flag_of(")))
    ]
    assert without == []
