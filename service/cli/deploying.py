"""Planning of entry points for the command line: several programs in one arena, and a summary of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from service.cli.console import heed, print_json, read_options, write_document
from service.cli.entry_points import overview_facts, print_overview
from service.cli.models import ModelFile, read_model_file
from solver import documents
from solver.errors import OptionsError
from solver.pipeline import Networks, entry_requests, plan_deployment
from solver.plan import Deployment, RequestedOptions, read_entry, read_tie

__all__ = ["check_request", "make_deployment", "model_files", "run"]


def run(
    models: Sequence[Path],
    entries: Sequence[str],
    ties: Sequence[str],
    fields: Mapping[str, Any],
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
) -> None:
    """Plan the entry points of the networks in files `models` for one arena; write it, print a summary.

    Without `output` the plan goes to standard output; a terminal shows the summary alone. `fields` and
    `choices` as for one plan: they hold for every entry point and every model.
    """
    options = read_options(fields) if fields else RequestedOptions()
    deployment = make_deployment(model_files(models), entries, ties, options, choices)
    if output is None and not as_json and sys.stdout.isatty():
        print_overview(deployment)
        return
    write_document(output or Path("-"), documents.dump_deployment(deployment, indent=2) + b"\n")
    beside = output is None or str(output) == "-"
    if as_json and not beside:
        print_json(overview_facts(deployment))
    elif not as_json and not beside:
        print_overview(deployment)


def make_deployment(
    files: Mapping[str, ModelFile],
    entries: Sequence[str],
    ties: Sequence[str],
    options: RequestedOptions,
    choices: Mapping[str, Any] = MappingProxyType({}),
) -> Deployment:
    """Plan the entry points of networks, whose files are by name, for one arena."""
    networks: Networks = {name: partial(file.read, choices=choices) for name, file in files.items()}
    requests = entry_requests(networks, [read_entry(text) for text in entries], options)
    tied = [read_tie(text) for text in ties]
    return plan_deployment("+".join(files), requests, tied, follow=lambda *_: heed())


def check_request(
    models: Sequence[Path], *, share: bool, server: str | None, like: Path | None = None
) -> None:
    """Raises OptionsError for several models that nobody said are to share an arena, and for `like`."""
    if like is not None:
        raise OptionsError(
            "Entry points cannot be planned like another plan.",
            remedy="Leave out --like, or plan the networks one by one.",
            path=("like",),
        )
    if len(models) > 1 and not share:
        raise OptionsError(
            f"There are {len(models)} models, and nothing says that they share an arena.",
            remedy="Add --share to plan one arena for all of them, or plan them one by one.",
            path=("share",),
        )
    if server is not None:
        raise OptionsError(
            "The command plans entry points here, not by a service.",
            remedy="Leave out --server, or POST the graph with `entries` to the service's /v1/plan.",
            path=("server",),
        )


def model_files(models: Sequence[Path]) -> dict[str, ModelFile]:
    """The files by the names of their models: those of the files, without suffixes."""
    files: dict[str, ModelFile] = {}
    for path in models:
        file = read_model_file(path)
        name = file.name.removesuffix(".graph")
        if name in files:
            raise OptionsError(
                f"Two models are called {name!r}.",
                remedy="Give the files different names: entry points are named after them.",
                path=("models",),
            )
        files[name] = file
    return files
