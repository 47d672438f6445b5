"""Requests of commands: made of files and flags, answered here or by a service, shown meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from service.cli.console import (
    TITLES,
    errors_may_be_seen,
    heed,
    print_notes,
    progress_text,
    read_document,
    read_options,
    reporting,
)
from solver import documents, requests
from solver.errors import ArenaplanError, OptionsError

if TYPE_CHECKING:
    from solver.plan import RequestedOptions
    from solver.requests import Follower, Request, Source

__all__ = [
    "answer",
    "asked",
    "read_source",
    "read_sources",
]

#: What is answered here without a title: a validation has a bar.
_UNTITLED: Final = ("deployment", "validation", "import")


def read_source(path: Path, choices: Mapping[str, Any] = MappingProxyType({})) -> Source:
    """The model of a file, or of standard input, with choices for its import."""
    return requests.Source(read_document(path), path=path, choices=choices)


def read_sources(
    paths: Sequence[Path], choices: Mapping[str, Any] = MappingProxyType({})
) -> dict[str, Source]:
    """The models of files by their names: those of the files, without suffixes."""
    sources: dict[str, Source] = {}
    for path in paths:
        source = read_source(path, choices)
        name = source.name.removesuffix(".graph")
        if name in sources:
            raise OptionsError(
                f"Two models are called {name!r}.",
                remedy="Give the files different names: entry points are named after them.",
                path=("models",),
            )
        sources[name] = source
    return sources


def asked(
    path: Path, fields: Mapping[str, Any], choices: Mapping[str, Any]
) -> tuple[Source, RequestedOptions]:
    """The model of a file with choices for its import, and the options by the fields of their document."""
    source = requests.Source(read_document(path), path=path, choices=choices)
    if "costs" in fields:
        fields = _with_costs(fields, source)
    return source, read_options(fields)


def _with_costs(fields: Mapping[str, Any], source: Source) -> dict[str, Any]:
    """The fields of an options document, in which the costs take the place of the text `costs`: those that
    are measured here, or in a file."""
    options = dict(fields)
    text = options.pop("costs", "roofline")
    if text == "roofline":
        return options
    if text == "measured":
        request = requests.Request("costs", {source.name: source}, read_options(options), repeats=5)
        costs = answer(request)
    else:
        with reporting(as_json=False, document=text):
            costs = documents.load_costs(read_document(Path(text)))
    return {**options, "costs": {"about": costs.about, "nanoseconds": dict(costs.nanoseconds)}}


def answer(
    request: Request, *, as_json: bool = False, server: str | None = None, follow: Follower | None = None
) -> Any:
    """What is wanted, made here or by the service at `server`; `follow` is told of progress here, too.

    Notes on models go to standard error. Raises ArenaplanError; of several models the one with a mistake is
    named.
    """
    try:
        if server is not None:
            from service.cli.remote import Service

            return Service(server, as_json=as_json).answer(request)
        with _showing(request.wanted, follow) as (observe, shown):
            return requests.handle(request, observe=observe, follow=shown).value
    except ArenaplanError as error:
        if error.path[:1] == ("models",) and len(error.path) > 1:
            error.document = str(request.models[str(error.path[1])].path)
            error.path = error.path[2:]
        elif error.path[:1] == ("plan",):
            error.path = error.path[1:]
        raise


def _progress_line(stage: str, progress: Any) -> str:
    """How far a stage is, on one line."""
    from solver.layout import Progress
    from solver.schedules import SearchProgress

    if isinstance(progress, Progress):
        return progress_text(stage, {"peak_bytes": progress.incumbent, "bound_bytes": progress.bound})
    return progress_text(stage, asdict(progress) if isinstance(progress, SearchProgress) else {})


@contextlib.contextmanager
def _showing(
    wanted: str, follow: Follower | None
) -> Iterator[tuple[Callable[[str, float], None] | None, Follower]]:
    """Who is told of stages and progress of what is wanted: standard error, if that is a terminal."""

    def heeding(stage: str, news: Any) -> None:
        heed()
        if isinstance(news, requests.ReadModel):
            print_notes(news.notes)
        if follow is not None:
            follow(stage, news)

    title = None if wanted in _UNTITLED else TITLES.get(wanted)
    if title is None or not errors_may_be_seen():
        yield None, heeding
        return
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None, heeding
        return
    with console.status("reading the document") as status:
        # Several plans may be tried, each with all stages.
        spent: dict[str, float] = {}
        words = {"name": "", "trying": "the network as it is" if wanted == "verdict" else ""}

        def show(now: str = "") -> None:
            done = "".join(f", {stage} {seconds:.2f} s" for stage, seconds in spent.items())
            about, trying = title.format(words["name"]), words["trying"]
            if wanted == "plan":
                about += f" (read{done})"
            if trying and now:
                now = f"({now})"
            status.update(escape(": ".join(filter(None, (about, f"{trying} {now}".strip())))))

        def observe(stage: str, seconds: float) -> None:
            spent[stage] = spent.get(stage, 0.0) + seconds
            show()

        def shown(stage: str, news: Any) -> None:
            heeding(stage, news)
            match news:
                case requests.ReadModel():
                    words["name"] = news.name
                    show()
                case requests.Trying():
                    words["trying"] = news.text
                    show()
                case _:
                    show(_progress_line(stage, news))

        yield observe, shown
