"""Tables on the terminal, which every command draws alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.table import Table

__all__ = ["make_table"]


def make_table(
    title: str | None, headings: Sequence[str], rows: Sequence[Sequence[str]], *, max_rows: int = 40
) -> Table:
    """A table with its title on the left. If there are more than `max_rows`, the last line counts the rest.

    A heading that begins with ">" is that of a column of figures, on the right; one that begins with "~" is
    that of a column whose long texts are folded.
    """
    table = Table(title=title, title_justify="left")
    for heading in headings:
        justify: Literal["right", "left"] = "right" if heading.startswith(">") else "left"
        overflow: Literal["fold", "ellipsis"] = "fold" if heading.startswith("~") else "ellipsis"
        table.add_column(heading.lstrip(">~"), justify=justify, overflow=overflow)
    for row in rows[:max_rows]:
        table.add_row(*row)
    if len(rows) > max_rows:
        first_text = next((k for k, heading in enumerate(headings) if not heading.startswith(">")), 0)
        table.add_row(*["" for _ in range(first_text)], f"{len(rows) - max_rows} more")
    return table
