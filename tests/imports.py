"""The import contracts of pyproject.toml, which hold imports by name as well: python -m tests.imports.

A module may be loaded by a string: an argument of `import_module`, a registry, a table of names that are
loaded late. A string constant that is the dotted name of one of our modules, with an attribute behind a colon
or without, counts as an import of that module.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["imports_by_name"]

ROOT: Final = Path(__file__).parent.parent


def imports_by_name(importer: str, source: str, modules: Container[str]) -> Iterator[tuple[str, int]]:
    """The `modules` that strings in the source of a module name, each with its line. Linear."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            name = node.value.partition(":")[0]
            if "." in name and name in modules and name != importer:
                yield name, node.lineno


def main() -> int:
    from importlinter.adapters.building import GraphBuilder
    from importlinter.application.app_config import settings
    from importlinter.cli import lint_imports

    class WithNames(GraphBuilder):
        def build(self, root_package_names: list[str], *args: Any, **options: Any) -> Any:
            graph = super().build(root_package_names, *args, **options)
            for path in (path for package in root_package_names for path in (ROOT / package).rglob("*.py")):
                importer = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
                source = path.read_text(encoding="utf-8")
                for name, line in imports_by_name(importer, source, graph.modules):
                    graph.add_import(
                        importer=importer, imported=name, line_number=line, line_contents=f'"{name}"'
                    )
            return graph

    settings.configure(GRAPH_BUILDER=WithNames())
    return lint_imports(no_logo=True)


if __name__ == "__main__":
    sys.exit(main())
