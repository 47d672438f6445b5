"""Small pieces of Markdown that the generated pages are made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

__all__ = ["cell", "code", "page", "table"]


def cell(text: object) -> str:
    """`text` as one cell of a table: one line, with no bar that would end the cell."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: object) -> str:
    """`text` as code inside a line; nothing where there is none."""
    return f"`{text}`" if str(text) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table with a line for each row; text in it is escaped."""
    lines = [head, ["---"] * len(head), *([cell(one) for one in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(title: str, *parts: str) -> str:
    """A page: its title, then the parts with a blank line between them."""
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part)]) + "\n"
