"""Planning of entry points for the command line: several programs in one arena, and a summary of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from service.cli.command_line import command_line, explain_command, print_commands, reading_commands
from service.cli.console import heed, print_json, read_options, reporting, write_document
from service.cli.entry_points import overview_facts, print_overview
from service.cli.models import ModelFile, read_model_file
from solver import documents
from solver.errors import ArenaplanError, BatchError, CapacityError, OptionsError
from solver.pipeline import Networks, TrainableGraph, entry_requests, plan_deployment
from solver.plan import Deployment, EntrySpec, RequestedOptions, read_entry, read_tie

if TYPE_CHECKING:
    from service.cli.remote import Service
    from solver.pipeline import BlockProgram

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
    server: str | None = None,
) -> None:
    """Plan the entry points of the networks in files `models` for one arena, here or by the service at
    `server`; write it, print a summary.

    Without `output` the plan goes to standard output; a terminal shows the summary alone. `fields` and
    `choices` as for one plan: they hold for every entry point and every model.
    """
    if fields.get("costs") not in (None, "roofline"):
        raise OptionsError(
            "Entry points take no costs: they are of the steps of one program.",
            remedy="Leave out --costs, or plan each entry point by itself.",
            path=("costs",),
        )
    options = read_options(fields) if fields else RequestedOptions()
    files = model_files(models)
    if choices.get("dim") and any(file.importer is None for file in files.values()):
        raise OptionsError(
            "Entry points of a graph document have the dimensions that it states.",
            remedy="Write the sizes into the document's `dims`, and leave out --dim.",
            path=("dim",),
        )
    try:
        deployment = make_deployment(files, entries, ties, options, choices, server=server, as_json=as_json)
    except CapacityError as error:
        _explain(error, models, entries, {**fields, **choices, "server": server})
        raise
    if output is None and not as_json and sys.stdout.isatty():
        print_overview(deployment)
        again = {**fields, **choices, "entry": list(entries), "tie": list(ties), "server": server}
        again["share"] = True if len(models) > 1 else None
        write = command_line("plan", *models, options=again, output="plan.json")
        print_commands(
            [("to write the plan", write), *_next_commands(models, "plan.json", deployment, choices)]
        )
        return
    write_document(output or Path("-"), documents.dump_deployment(deployment, indent=2) + b"\n")
    beside = output is None or str(output) == "-"
    if as_json and not beside:
        print_json(overview_facts(deployment))
    elif not as_json and not beside:
        print_overview(deployment)
        if sys.stdout.isatty():
            print_commands(_next_commands(models, str(output), deployment, choices))


def _next_commands(
    models: Sequence[Path], plan_file: str, deployment: Deployment, choices: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The next steps with a plan: the purpose of each, and its command."""
    yield from reading_commands(plan_file)
    name = deployment.entry_points[0].name
    yield f"to see {name} alone", command_line("show", plan_file, options={"entry_point": name})
    if all(one.purpose != "run" for one in deployment.entry_points) and Path("-") not in models:
        validate = command_line("validate", *models, plan_file, options=choices)
        yield "to run all of them in it, and compare bit for bit", validate


def make_deployment(
    files: Mapping[str, ModelFile],
    entries: Sequence[str],
    ties: Sequence[str],
    options: RequestedOptions,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    server: str | None = None,
    as_json: bool = False,
) -> Deployment:
    """Plan the entry points of networks, whose files are by name, for one arena; here or at a service."""
    specs = [read_entry(text) for text in entries]
    tied = [read_tie(text) for text in ties]
    service = None
    if server is not None:
        from service.cli.remote import Service

        service = Service(server, as_json=as_json)
    source = _Source(choices, options.options.batch, service, as_json, len(files) > 1)
    networks: Networks = {name: cache(partial(source.read, file)) for name, file in files.items()}
    requests = entry_requests(networks, specs, options)
    if service is None:
        return plan_deployment("+".join(files), requests, tied, follow=lambda *_: heed())
    texts, rows = _to_send(files, networks, specs, options.options.batch, choices)
    return service.deploy(texts, rows, [tie.text for tie in tied], options)


def _explain(
    error: CapacityError, models: Sequence[Path], entries: Sequence[str], options: Mapping[str, Any]
) -> None:
    """Say in the remedy what to do: how many bytes are enough, or which command looks for what would help.

    `explain` answers for a training step by itself, so it is named where nothing else takes memory from it.
    """
    specs = [read_entry(text) for text in entries]
    spec = next((spec for spec in specs if error.entry_point in (spec.name, spec.purpose)), None)
    if len(models) == 1 and not error.held and (spec is None or spec.purpose == "train"):
        fields = {**options, **({"batch": spec.batch} if spec and spec.batch else {})}
        capacity = fields.pop("capacity", error.available)
        command = explain_command(models[0], fields, {}, capacity, None)
        error.remedy = f"Raise the capacity, or see what would make it fit: {command}"
    else:
        known = "at least " if error.proved else ""
        error.remedy = f"Raise the capacity to {known}{error.required:,} bytes, or ask for a smaller batch."


def check_request(models: Sequence[Path], *, share: bool, like: Path | None) -> None:
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


@dataclass(frozen=True, slots=True)
class _Source:
    """How the networks of a command are read: here, or by a service where this machine lacks a package."""

    choices: Mapping[str, Any]
    batch: int | None
    service: Service | None
    as_json: bool
    is_one_of_several: bool
    #: Files whose notes were printed: an entry point with another batch reads the same model again.
    known: set[Path] = field(default_factory=set)

    def read(self, file: ModelFile, batch: int | None) -> TrainableGraph | BlockProgram:
        """The network of a file. If it is one of several, its mistakes are reported as those of this file,
        except for a batch that one entry point asks for.
        """
        file = replace(file, prints_notes=file.path not in self.known)
        self.known.add(file.path)
        try:
            if self.service is None:
                return file.read(batch, self.choices)
            return file.read_for(self.service, batch, self.choices)
        except ArenaplanError as error:
            if not self.is_one_of_several or (isinstance(error, BatchError) and batch != self.batch):
                raise
            with reporting(as_json=self.as_json, document=str(file.path)):
                raise


def _to_send(
    files: Mapping[str, ModelFile],
    networks: Networks,
    specs: Sequence[EntrySpec],
    batch: int | None,
    choices: Mapping[str, Any],
) -> tuple[dict[str, bytes], list[dict[str, Any]]]:
    """The documents of the models by name, and the entry points as a request has them.

    A model of another tool is sent as the graph that it is for a batch; an entry point with another batch
    brings its own.
    """
    texts, first_batch = dict[str, bytes](), dict[str, int | None]()
    rows = []
    for spec in specs:
        row = {name: value for name, value in asdict(spec).items() if value}
        model = spec.model or next(iter(files))
        if files[model].importer is not None:
            own = spec.batch or batch
            if first_batch.setdefault(model, own) != own:
                row["graph"] = json.loads(documents.dump_graph(_graph(networks[model](own))))
        rows.append(row)
    for model, file in files.items():
        text = file.document_with(choices)
        texts[model] = text or documents.dump_graph(_graph(networks[model](first_batch.get(model, batch))))
    return texts, rows


def _graph(network: TrainableGraph | BlockProgram) -> TrainableGraph:
    assert isinstance(network, TrainableGraph)  # no other tool has programs of explicit operations
    return network


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
