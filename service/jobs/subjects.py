"""The networks that requests are about: graphs in JSON documents, or models of other tools with choices."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Final, Protocol, cast

from service.jobs.query import in_query
from service.jobs.requests import MEMBERS, check_members, read_request
from service.problems import Problem
from solver import documents
from solver.errors import ArenaplanError, TooManyOperationsError, json_pointer
from solver.importers.options import Imported, import_options
from solver.importers.registry import find_importer, load_model, unknown_format
from solver.options import DEPLOYMENT_OPTIONS, IMPORT_OPTIONS, MEASURES, REQUEST_OPTIONS, former_option
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import PlanOptions, RequestedOptions, split_ranges
from solver.verdict import Batches, batches_of, batches_of_model

__all__ = [
    "Network",
    "Path",
    "Read",
    "Subject",
    "check_lists",
    "read_document",
    "read_model",
    "said_of_a_query",
]


#: Keys and indexes that lead to a part of a request.
Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Network:
    """A network of a deployment, its number of operations, and the notes on its import."""

    subject: TrainableGraph | BlockProgram
    notes: tuple[str, ...] = ()

    @property
    def operations(self) -> int:
        return len(self.subject.operations)


class Subject(Protocol):
    """A request that is about a network. `options` and `graph` raise the errors of the core, whose paths
    begin inside of `options_path` and `graph_path`."""

    @property
    def members(self) -> Mapping[str, Any]:
        """The members of the request beside the network and the options."""

    @property
    def members_pointer(self) -> str:
        """A JSON pointer to the object that has these members."""

    @property
    def options_path(self) -> tuple[str, ...]: ...

    @property
    def models_path(self) -> tuple[str, ...]:
        """Where the paths of `models` begin."""

    @property
    def graph_path(self) -> tuple[str, ...]: ...

    def options(self) -> RequestedOptions: ...

    def graph(self, batch: int | None, limits: Mapping[str, Any]) -> Imported:
        """The graph, with a `batch` in the place of its own; and notes, where it was imported."""

    def models(self) -> Mapping[str, Path]:
        """The networks of a deployment by name, each with its path behind that of the graphs."""

    def network(self, path: Path, batch: int | None, limits: Mapping[str, Any]) -> Network:
        """One of them, as `graph`. Errors have their whole path behind that of the graphs."""

    def batches(self, graph: TrainableGraph, options: PlanOptions) -> Batches | None:
        """Other batches of the network that is `graph` under these options, where it leaves them open."""

    def with_values(self, graph: TrainableGraph) -> contextlib.AbstractContextManager[TrainableGraph]:
        """The graph with its first values where they can be read, for as long as the context lasts."""


#: Reads the body of a task.
Read = Callable[[str, bytes], Subject]


@dataclass(frozen=True, slots=True)
class _Document:
    members: Mapping[str, Any]
    members_pointer: str = ""
    options_path: tuple[str, ...] = ("options",)
    graph_path: tuple[str, ...] = ("graph",)
    models_path: tuple[str, ...] = ()

    def options(self) -> RequestedOptions:
        return documents.load_options(self.members.get("options", {}))

    def graph(self, batch: int | None, limits: Mapping[str, Any]) -> Imported:
        document = self.members["graph"]
        check_lists(document, ("graph", "operations"), ("inputs", "outputs"), limits["max_operands"])
        return Imported(documents.load_graph(document, batch=batch, max_operations=limits["max_operations"]))

    def models(self) -> Mapping[str, Path]:
        if "models" not in self.members:
            name = self.members["graph"].get("name") if isinstance(self.members["graph"], dict) else None
            return {name if isinstance(name, str) and name else "model": ("graph",)}
        models = self.members["models"]
        if not isinstance(models, dict) or not models:
            raise Problem(
                "invalid-request",
                '"models" is not an object with a graph or a program for each name.',
                remedy='Send {"models": {"encoder": {...}, "decoder": {...}}}, or one network as "graph".',
                pointer="/models",
            )
        return {name: ("models", name) for name in models}

    def network(self, path: Path, batch: int | None, limits: Mapping[str, Any]) -> Network:
        document: Any = self.members
        for part in path:
            document = document[part]
        most = {"max_operations": limits["max_operations"]}
        is_program = isinstance(document, dict) and document.get("format") == documents.PROGRAM_FORMAT
        names = ("reads", "writes") if is_program else ("inputs", "outputs")
        check_lists(document, (*path, "operations"), names, limits["max_operands"])
        try:
            if is_program:
                return Network(documents.load_program(document, **most))
            return Network(documents.load_graph(document, batch=batch, **most))
        except ArenaplanError as error:
            error.path = (*path, *error.path)
            raise

    def batches(self, graph: TrainableGraph, options: PlanOptions) -> Batches | None:
        return batches_of(self.members["graph"], options)

    def with_values(self, graph: TrainableGraph) -> contextlib.AbstractContextManager[TrainableGraph]:
        return contextlib.nullcontext(graph)  # a service opens no file that a document names


@dataclass(frozen=True, slots=True)
class _Model:
    members: Mapping[str, Any]
    choices: Mapping[str, Any]
    fields: Mapping[str, Any]
    data: bytes
    members_pointer: str = "/query"
    options_path: tuple[str, ...] = ("query",)
    graph_path: tuple[str, ...] = ("model",)
    models_path: tuple[str, ...] = ("model",)

    def options(self) -> RequestedOptions:
        options = documents.load_options(self.fields)
        with said_of_a_query():  # what is wrong there stands in the query as well
            choices, ranges = split_ranges(self.choices)
            import_options(choices, batch=options.options.batch)
        return replace(options, ranges=(*options.ranges, *ranges))

    def graph(self, batch: int | None, limits: Mapping[str, Any]) -> Imported:
        importer = find_importer(self.data)
        if importer is None:
            error = unknown_format("The body")
            raise Problem("invalid-document", error.message, remedy=error.remedy)
        with said_of_a_query():
            chosen = import_options(split_ranges(self.choices)[0], batch=batch)
            imported = load_model(importer, self.data, options=chosen, path=None, name="model")
        if (count := len(imported.graph.operations)) > limits["max_operations"]:
            raise TooManyOperationsError(
                f"The model has {count:,} operations; {limits['max_operations']:,} are allowed.",
                remedy="Plan it with `arenaplan plan`.",
            )
        return imported

    def models(self) -> Mapping[str, Path]:
        return {"model": ()}

    def network(self, path: Path, batch: int | None, limits: Mapping[str, Any]) -> Network:
        imported = self.graph(batch, limits)
        return Network(imported.graph, tuple(imported.notes))

    def batches(self, graph: TrainableGraph, options: PlanOptions) -> Batches | None:
        importer = find_importer(self.data)
        if importer is None:
            return None

        def read(batch: int | None, choices: Mapping[str, Any]) -> TrainableGraph:
            chosen = import_options(choices, batch=batch)
            return load_model(importer, self.data, options=chosen, path=None, name="model").graph

        return batches_of_model(graph, self.choices, read)

    @contextlib.contextmanager
    def with_values(self, graph: TrainableGraph) -> Iterator[TrainableGraph]:
        with _nameless_file() as file:  # gone with this process
            file.write(self.data)
            file.flush()
            place = f"/dev/fd/{file.fileno()}"
            operands = dict(graph.operands)
            for operand in graph.operands.values():
                initializer = operand.initializer
                if initializer is not None and initializer.file is not None:
                    here = replace(initializer, file=replace(initializer.file, path=place))
                    operands[operand.id] = replace(operand, initializer=here)
            yield graph.with_graph(operands=operands)


def _nameless_file() -> BinaryIO:
    """A file in memory, as workers cannot write elsewhere; a temporary one where the system has none."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("model"), "wb")
    return cast(BinaryIO, tempfile.TemporaryFile())


@contextlib.contextmanager
def said_of_a_query() -> Iterator[None]:
    """Errors name parameters where they name flags."""
    try:
        yield
    except ArenaplanError as error:
        error.message, error.remedy = in_query(error.message), in_query(error.remedy)
        raise


def read_document(task: str, body: bytes) -> Subject:
    """A request in JSON. Raises `Problem` for what is not JSON, missing or unknown."""
    return _Document(read_request(body, *MEMBERS[task]))


def read_model(task: str, body: bytes) -> Subject:
    """A line of JSON, the parameters of a query with the texts of each, and then the bytes of a model.

    Parameters are choices for the import, members of the task, and fields of its options; of these two, texts
    that are JSON are what they say. A list is JSON, or a parameter for each of its texts. Raises `Problem`.
    """
    head, _, data = body.partition(b"\n")
    required, optional = MEMBERS[task]
    named = {*required, *optional} - {"graph", "models", "options"}
    choices: dict[str, Any] = {}
    members: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for name, values in documents.parse_json(head).items():
        choice = IMPORT_OPTIONS.get(name)
        if choice is not None and choice.kind == "words":
            choices[name] = values
        elif name in DEPLOYMENT_OPTIONS and name in named:
            members[name] = [_value(value) for value in values]
        elif name in REQUEST_OPTIONS and REQUEST_OPTIONS[name].is_list:
            whole = _value(values[0])
            fields[name] = whole if len(values) == 1 and not isinstance(whole, str) else values
        elif len(values) > 1:
            raise Problem(
                "invalid-request",
                f"{name!r:.60} is given twice.",
                remedy="Give it once.",
                pointer=f"{_IN_QUERY}/{name}",
            )
        elif name in MEASURES:
            texts = former_option(name, name, f"only={name}", "scratch_budget=64KiB")
            raise Problem("invalid-document", texts[0], remedy=texts[1], pointer=f"{_IN_QUERY}/{name}")
        elif choice is not None:
            choices[name] = values[0]
        else:
            (members if name in named else fields)[name] = _value(values[0])
    if task == "validate":  # the options are those of the plan
        check_members({**members, **fields}, ("plan",), tuple(sorted(named)), _IN_QUERY, {})
    return _Model(members, choices, fields, data)


_IN_QUERY: Final = "/query"


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def check_lists(document: Any, path: Path, names: tuple[str, ...], most: int) -> None:
    """No operation names more operands than `most`: the work on one may grow with their square."""
    operations = document.get(path[-1]) if isinstance(document, dict) else None
    for k, operation in enumerate(operations if isinstance(operations, list) else ()):
        for name in names if isinstance(operation, dict) else ():
            operands = operation.get(name)
            if isinstance(operands, list) and len(operands) > most:
                raise Problem(
                    "too-many-operations",
                    f"An operation has {len(operands):,} {name}, at most {most:,} are allowed here.",
                    remedy="Split it into several, or raise ARENAPLAN_MAX_OPERANDS.",
                    pointer=json_pointer((*path, k, name)),
                )
