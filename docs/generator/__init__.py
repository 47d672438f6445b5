"""The generated half of the reference: pages written from the code that they describe.

`PAGES` has every page by its place in the site. `./run docs` writes them into ``build/docs``, from where
`docs/generator/hook.py` adds them to the pages of this folder. They are not committed, so they are never
stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from docs.generator import commands, documents, http, python, tables

__all__ = ["PAGES"]

#: Path of a page inside ``docs`` -> its Markdown, made when it is asked for.
PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "reference/cli.md": commands.command_line,
        "reference/run.md": commands.run_script,
        "reference/http.md": http.routes,
        "reference/problems.md": http.problems,
        "reference/options.md": tables.options,
        "reference/settings.md": tables.settings,
        "reference/operators.md": tables.operators,
        "reference/errors.md": tables.errors,
        **documents.pages(),
        **python.pages(),
    }
)
