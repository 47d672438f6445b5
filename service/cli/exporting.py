"""Plans as files for other tools, and as pages."""

from __future__ import annotations

from pathlib import Path

from service.cli.console import read_document, write_document
from solver import documents, exporters
from solver.errors import OptionsError
from solver.plan import PlanTables

__all__ = ["export", "read_tables", "report"]


def export(
    path: Path, output: Path, to: str | None, prefix: str | None, *, split: bool, server: str | None = None
) -> None:
    """Write the plan of a file, or a kept one. Without `to` the suffix of the output decides."""
    exporter = exporters.exporter_of_file(output.name) if to is None else exporters.exporter_named(to)
    if (split or prefix is not None) and exporter.name != "c-header":
        raise OptionsError(
            f"--split and --prefix are for C headers, not for {exporter.name}.",
            remedy="Leave them out, or write --to c-header.",
            path=("split" if split else "prefix",),
        )
    if split and str(output) == "-":
        raise OptionsError(
            "Several files cannot go to standard output.",
            remedy="Name a file with -o, or leave out --split.",
            path=("split",),
        )
    data = read_plan(path, server)
    if exporter.name != "c-header":
        made = documents.load_plan(data) if exporter.needs_program else documents.load_plan_tables(data)
        write_document(output, exporter.dump(made))
        return
    from solver.exporters import c_header

    plan = documents.load_plan(data)
    if split:
        for name, text in c_header.c_header_files(plan, output.stem, prefix).items():
            write_document(output.with_name(name), text)
    else:
        write_document(output, c_header.dump_c_header(plan, prefix))


def read_plan(path: Path, server: str | None = None) -> bytes:
    """The document of a plan: a file, standard input, or by its digest what the service at `server` keeps."""
    if server is None:
        return read_document(path)
    from service.cli import remote

    return remote.read_plan(path, server)


def read_tables(path: Path, server: str | None = None) -> PlanTables:
    """The tables of a plan of either version."""
    return documents.load_plan_tables(read_plan(path, server))


def report(plan: PlanTables, old: PlanTables | None, output: Path) -> None:
    """Write the page of a plan, or of the change from an older one to it."""
    from solver.exporters import html

    write_document(output, html.dump_report(plan, old))
