"""Tables and sentences on the terminal, which every command prints alike. rich is loaded with the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

__all__ = ["FittingTable", "aligned", "make_table", "say"]

#: Columns of text become as narrow as this, and the text is folded or cut; figures never are.
_LEAST_TEXT: Final = 12


class FittingTable:
    """Rows below headings; where a console is too narrow for the figures, each row is a paragraph."""

    def __init__(
        self,
        title: str | None,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        footer: Sequence[str] | None,
    ) -> None:
        self._title, self.rows, self._footer = title, rows, footer
        self._names = [heading.lstrip(">~") for heading in headings]
        self._is_figure = [heading.startswith(">") for heading in headings]
        self._folds = [heading.startswith("~") for heading in headings]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        borders = 3 * len(self._names) + 1
        for names in (self._names, [name.replace(" ", "\n") for name in self._names]):
            if sum(self._least(names)) + borders <= options.max_width:
                yield self._table(names)
                return
        yield from self._paragraphs()

    def _least(self, names: Sequence[str]) -> list[int]:
        """The least width of each column, by these headings."""
        from rich.text import Text

        cells = [*self.rows, *([self._footer] if self._footer else [])]
        widths = []
        for column, name in enumerate(names):
            texts = [Text.from_markup(row[column]).plain for row in cells]
            lines = [line for text in texts for line in text.split("\n")]
            heading = max(map(len, name.split("\n" if self._is_figure[column] else None)), default=0)
            widest = max([heading, *map(len, lines)])
            widths.append(widest if self._is_figure[column] else min(widest, max(heading, _LEAST_TEXT)))
        return widths

    def _table(self, names: Sequence[str]) -> Table:
        from rich.table import Table

        table = Table(title=self._title, title_justify="left", show_footer=self._footer is not None)
        for column, name in enumerate(names):
            is_figure = self._is_figure[column]
            table.add_column(
                name if is_figure else self._names[column],
                self._footer[column] if self._footer else "",
                justify="right" if is_figure else "left",
                overflow="fold" if self._folds[column] else "ellipsis",
                no_wrap=is_figure,
            )
        for row in self.rows:
            table.add_row(*row)
        return table

    def _paragraphs(self) -> RenderResult:
        from rich.text import Text

        if self._title:
            yield Text.from_markup(f"[italic]{self._title}[/]")
        first = 0 if self._is_figure[0] else 1  # a row is called by its text, where it begins with one
        for row in (*self.rows, *([self._footer] if self._footer else [])):
            cells = list(zip(self._names, row, strict=True))
            called = f"{row[0]}: " if first and row[0] else ""
            facts = ", ".join(f"{name} {cell}" for name, cell in cells[first:] if cell)
            yield Text.from_markup(f"- {called}{facts}")


def make_table(
    title: str | None,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    footer: Sequence[str] | None = None,
    max_rows: int = 40,
) -> FittingTable:
    """A table with its title on the left. If there are more than `max_rows`, the last line counts the rest.

    A heading that begins with ">" is that of a column of figures, on the right, which are never cut; one that
    begins with "~" is that of a column whose long texts are folded. Texts may have rich's markup.
    """
    shown = list(rows[:max_rows])
    if len(rows) > max_rows:
        first_text = next((k for k, heading in enumerate(headings) if not heading.startswith(">")), 0)
        more = ["" for _ in headings]
        more[first_text] = f"{len(rows) - max_rows} more"
        shown.append(more)
    return FittingTable(title, headings, shown, footer)


def say(*lines: str | FittingTable, console: Console | None = None) -> None:
    """Print sentences, which are folded at the width of the terminal, and tables."""
    from rich.console import Console

    console = console or Console(highlight=False)
    for line in lines:
        console.print(line, markup=False, highlight=False)


def aligned(rows: Sequence[Sequence[str]], *, figures: bool = False) -> list[str]:
    """Rows as lines of text whose cells stay whole; `figures`: all columns but the first are to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    adjust = str.rjust if figures else str.ljust
    return [
        "  ".join([first.ljust(widths[0]), *map(adjust, others, widths[1:])]).rstrip()
        for first, *others in rows
    ]
