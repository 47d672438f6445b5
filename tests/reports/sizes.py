"""``./run report``: how long functions are, what is commented, tested, used once, and vaguely worded.

Figures to look at, not limits: a function is as long as its thought.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

__all__ = ["VAGUE_NAMES", "Function", "Module", "percentile", "read_module", "report"]

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("arenaplan", "clients", "service", "solver")
#: Names of variables and parameters that do not say what they hold.
VAGUE_NAMES = ("found", "given", "wanted", "told", "said", "made")
#: Columns of the second table.
WORDINGS = ("docstrings: What ...", "so many", *VAGUE_NAMES)


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method; its lines count from ``def`` to its end, docstring included.

    `uses` counts where its name is read in its own module.
    """

    name: str
    line: int
    lines: int
    uses: int

    @property
    def private(self) -> bool:
        return self.name.startswith("_") and not self.name.startswith("__")


@dataclass(frozen=True, slots=True)
class Module:
    """A file: lines, those not empty, those with a comment, functions, and counts of vague wordings."""

    path: Path
    lines: int
    filled: int
    comments: int
    functions: tuple[Function, ...]
    wordings: Mapping[str, int]


def _wordings(text: str, nodes: Iterable[ast.AST]) -> Counter[str]:
    """Docstrings that begin with "What", places of "so many", and vague names where they are bound."""
    counts = Counter({"so many": text.count("so many")})
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            counts["docstrings: What ..."] += (ast.get_docstring(node) or "").startswith("What")
        elif isinstance(node, ast.arg):
            counts[node.arg] += 1
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            counts[node.id] += 1
    return Counter({kind: counts[kind] for kind in WORDINGS})


def read_module(path: Path) -> Module:
    """Raises SyntaxError for what is not Python."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    read = Counter(
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in nodes
        if isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Load)
    )
    functions = tuple(
        Function(node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, read[node.name])
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT}
    lines = text.splitlines()
    filled = sum(bool(line.strip()) for line in lines)
    return Module(path, len(lines), filled, len(comments), functions, _wordings(text, nodes))


def percentile(values: Sequence[int], share: int) -> int:
    """The smallest value that at least `share` percent of the values do not exceed; 0 without values."""
    return sorted(values)[-(-len(values) * share // 100) - 1] if values else 0


def _folders(root: Path) -> Iterator[tuple[str, list[Path], list[Path]]]:
    """Rows of the table: a part of the code, its files, and the files of its unit tests."""
    for package in PACKAGES:
        parts = sorted(path for path in (root / package).iterdir() if any(path.rglob("*.py")))
        loose = sorted((root / package).glob("*.py"))
        for part in parts if package == "solver" else ():
            tests = root / "tests/unit" / part.name
            yield f"{package}/{part.name}", sorted(part.rglob("*.py")), sorted(tests.rglob("*.py"))
        if package == "solver":
            yield "solver/*.py", loose, sorted((root / "tests/unit").glob("*.py"))
        else:
            tests = root / "tests/unit" / package
            yield package, sorted((root / package).rglob("*.py")), sorted(tests.rglob("*.py"))


def _row(modules: Sequence[Module], tests: Sequence[Module]) -> list[str]:
    functions = [function for module in modules for function in module.functions]
    lengths = [function.lines for function in functions]
    private = [function for function in functions if function.private]
    lines, filled = sum(m.lines for m in modules), sum(m.filled for m in modules)
    return [
        f"{lines:,}",
        f"{sum(m.comments for m in modules) / max(filled, 1):.1%}",
        f"{sum(m.lines for m in tests) / max(lines, 1):.2f}",
        f"{percentile([m.lines for m in modules], 95)}",
        f"{len(functions):,}",
        f"{median(lengths) if lengths else 0:g}",
        f"{percentile(lengths, 95)}",
        f"{max(lengths, default=0)}",
        f"{len(private)}",
        f"{sum(function.uses == 1 for function in private)}",
    ]


def _worded(modules: Iterable[Module]) -> list[str]:
    total = sum((Counter(module.wordings) for module in modules), Counter[str]())
    return [f"{total[kind]:,}" for kind in WORDINGS]


def _named(modules: Iterable[Module], root: Path) -> Mapping[str, Function]:
    return {f"{m.path.relative_to(root)}:{f.line} {f.name}": f for m in modules for f in m.functions}


def report(console: Console, root: Path = ROOT, *, top: int = 20) -> None:
    """Prints the table, the longest functions, and the shortest private ones that are used once."""
    table = Table(title="Statistics of the code")
    for title in (
        "part",
        "lines",
        "comments",
        "unit tests",
        "file p95",
        "functions",
        "median",
        "p95",
        "longest",
    ):
        table.add_column(title, justify="left" if title == "part" else "right")
    table.add_column("private", justify="right")
    table.add_column("used once", justify="right")
    wordings = Table(title="Vague wordings")
    for title in ("part", *WORDINGS):
        wordings.add_column(title, justify="left" if title == "part" else "right")
    modules: list[Module] = []
    for name, files, tests in _folders(root):
        read = [read_module(path) for path in files]
        modules += read
        table.add_row(name, *_row(read, [read_module(path) for path in tests]))
        wordings.add_row(name, *_worded(read))
    testing = [read_module(path) for path in sorted((root / "tests").rglob("*.py"))]
    table.add_section()
    table.add_row("all, and all tests", *_row(modules, testing))
    table.add_row("tests", *_row(testing, []))
    wordings.add_section()
    wordings.add_row("all", *_worded(modules))
    wordings.add_row("tests", *_worded(testing))
    console.print(table)
    console.print(
        "comments: lines that hold one, of the lines that are not empty. unit tests: their lines for each\n"
        "line of code. lengths: lines with docstrings. used once: private functions read in one place."
    )
    console.print(wordings)
    functions = _named(modules, root)
    console.print(f"\nThe {top} longest functions:")
    for name in sorted(functions, key=lambda name: -functions[name].lines)[:top]:
        console.print(f"  {functions[name].lines:4} {name}", highlight=False)
    once = [name for name, function in functions.items() if function.private and function.uses == 1]
    console.print(f"\nThe {top} shortest private functions that are used once:")
    for name in sorted(once, key=lambda name: functions[name].lines)[:top]:
        console.print(f"  {functions[name].lines:4} {name}", highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run report", description="Print statistics of the code.")
    parser.add_argument("--top", type=int, default=20, help="how many functions a list names")
    report(Console(width=150), top=parser.parse_args().top)


if __name__ == "__main__":
    main()
