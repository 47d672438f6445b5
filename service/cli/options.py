"""Options that several commands have, and groups of options that a command takes as one parameter."""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeVar, get_args

import typer
from typer.core import TyperCommand

from service.cli.console import reporting
from solver.errors import OptionsError
from solver.options import (
    CONSTRAINTS,
    IMPORT_OPTIONS,
    LAYOUT_OPTIONS,
    MEASURES,
    REQUEST_OPTIONS,
    Option,
    flag_of,
    former_option,
)
from solver.removed import removed

__all__ = [
    "AsJson",
    "Commands",
    "EntryPointName",
    "LayoutChoices",
    "ModelChoices",
    "ModelFile",
    "PlaceOptions",
    "PlanFile",
    "PlanServer",
    "Plot",
    "RuntimeOptions",
    "ScheduleOptions",
    "SearchOptions",
    "Server",
    "StepOptions",
    "examples",
    "on_one_thread",
    "read_bytes",
]

Command = TypeVar("Command", bound=Callable[..., int | None])

_EXIT_CODES: Final = """
Exit codes: 0 done and right; 1 the plan is wrong or training in it differs; 2 bad usage or input;
3 the arena does not fit the capacity or its budget; 4 a bug of ours; 5 it fits after a change
(explain); 130 interrupted; 143 ended by SIGTERM.
"""


def examples(*lines: str) -> str:
    """The end of a command's help: commands that work as they stand, one a line, then the exit codes."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines), "", _EXIT_CODES])


def read_bytes(text: str) -> int:
    """``4096``, ``24MiB``, ``1.5GB``; whole bytes only."""
    from solver.documents import read_size

    try:
        return read_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


def on_one_thread() -> None:
    """Let BLAS, which is not loaded yet, use one thread.

    For commands that measure, and for those that multiply no matrices: each further thread would wait busily
    for a product.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


PlanFile = Annotated[Path, typer.Argument(help="Plan document, - for standard input.")]
ModelFile = Annotated[
    Path,
    typer.Argument(
        help="Graph document, - for standard input; or a model: .onnx, .circle, .tflite, or nntrainer's .ini."
    ),
]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the layout over time, as .svg or .png.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
# Not from ARENAPLAN_SERVER, which clients obey: where a model goes, and who plans it, stands in the command.
Server = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Let this service do it; the key is ARENAPLAN_API_KEY."),
]
PlanServer = Annotated[
    str | None,
    typer.Option(
        "--server", metavar="URL", help="A service; a plan that it keeps can be named by its digest."
    ),
]

EntryPointName = Annotated[
    str | None,
    typer.Option(
        "--entry-point", metavar="NAME", help="One entry point, where the plan has several; else all of them."
    ),
]


_FIT: Final = (
    "capacity tiers memories place as_written only in_place sub_ranges order recompute rewrite chunked_head"
    " scratch_budget fit_scratch storage frozen_storage tile_bytes parallelism alignment"
)
_SEARCH: Final = (
    "solver deadline_seconds costs work seed threads race target_gap without choose_trainable keep_training"
    " largest"
)

_OTHERS: Final = "Options"
#: Sections of help, by the flags that belong there; all others stand under Options.
_SECTIONS: Final[Mapping[str, frozenset[str]]] = {
    "Model": frozenset(
        ("--entry", "--share", "--tie", *map(flag_of, ("batch", "target", "update", *IMPORT_OPTIONS)))
    ),
    "Fit": frozenset((*map(flag_of, (*_FIT.split(), *CONSTRAINTS)), "--like")),
    "Search": frozenset(map(flag_of, _SEARCH.split())),
    "Output": frozenset(("--output", "--json", "--server", "--plot")),
}


#: Flags that commands had for measures, which `--only` chooses now: the measure of each.
_FORMER: Final[Mapping[str, str]] = {f"--{name.replace('_', '-')}": name for name in MEASURES}


#: Flags of `plan` that curves and verdicts do not take, and what to do without each.
_OF_PLAN_ALONE: Final[Mapping[str, str]] = {
    "--memory": "Leave --memory out; a verdict takes the bytes of all memories together as its --capacity.",
    "--place": "Leave --place out: there is one memory.",
    "--tier": "Leave --tier out; a verdict takes the size of the first memory as its --capacity, and tries"
    " paging, too.",
    "--entry": "Leave --entry out; give the batch of the entry point as --batch, and to a verdict as"
    " --capacity what the values that only other entry points use leave of the arena.",
    **dict.fromkeys(("--share", "--tie"), "Give one model."),
    **{flag: f"Leave {flag} out." for flag in ("--pin", "--align", "--reserve", "--like")},
}


class _Command(TyperCommand):
    """A command whose help has its options in sections, if it has those of two sections or more."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not ctx.resilient_parsing:
            words = args[: args.index("--")] if "--" in args else args
            flags = [word.partition("=")[0] for word in words if word.startswith("--")]
            takes_only = any("--only" in parameter.opts for parameter in self.get_params(ctx))
            with reporting(as_json="--json" in args):
                for flag in flags:
                    if sentence := removed(flag):
                        raise OptionsError(sentence)
                    if self.name in ("explain", "tradeoff") and flag in _OF_PLAN_ALONE:
                        raise OptionsError(
                            f"{flag} is for `plan`: curves and verdicts are about one program in one memory.",
                            remedy=_OF_PLAN_ALONE[flag],
                        )
                    if takes_only and flag in _FORMER:
                        former = former_option(
                            _FORMER[flag], flag, f"--only {flag[2:]}", "--scratch-budget 64KiB"
                        )
                        raise OptionsError(former[0], remedy=former[1])
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        arguments, sections = [], dict[str, list[tuple[str, str]]]()
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                arguments.append(record)
                continue
            section = next((s for s, flags in _SECTIONS.items() if flags & set(parameter.opts)), _OTHERS)
            sections.setdefault(section, []).append(record)
        if arguments:
            with formatter.section("Arguments"):
                formatter.write_dl(arguments)
        if not {"Model", "Fit", "Search"} & set(sections):  # few options: one list of them
            sections = {_OTHERS: [record for records in sections.values() for record in records]}
        for name in (*_SECTIONS, _OTHERS):
            if name in sections:
                with formatter.section(name):
                    formatter.write_dl(sections[name])


class Commands(typer.Typer):
    """Commands of one topic."""

    def group(self, name: str, text: str, *lines: str) -> Commands:
        """A command of this name that has commands of its own; `text` is its help, with these examples."""
        inner = Commands(help=text, no_args_is_help=True, rich_markup_mode=None, epilog=examples(*lines))
        self.add_typer(inner, name=name)
        return inner

    def add(
        self,
        *lines: str,
        name: str | None = None,
        short_help: str | None = None,
        words: Mapping[str, str] = MappingProxyType({}),
    ) -> Callable[[Command], Command]:
        """Add a function as a command, with these examples at the end of its help.

        Parameters in front of the star are arguments, those behind it options. `words` say in the help what
        they are for; behind the name of a parameter may stand its metavar, its range and its flags:
        ``"steps 1..": "Training steps."``. A number that the function returns is the exit code. Errors are
        reported with the first argument as the document that they are in.
        """

        def add(function: Command) -> Command:
            epilog = examples(*lines) if lines else None
            self.command(name, cls=_Command, epilog=epilog, short_help=short_help)(_flat(function, words))
            return function

        return add


@dataclass(frozen=True, slots=True)
class _Group:
    """Options that a command takes as one parameter: a mapping that has those which the caller chose."""

    options: tuple[Option, ...]


def _group(options: Mapping[str, Option], names: str = "") -> _Group:
    """The options of these names, with spaces between; all of them without names."""
    return _Group(tuple(options[name] for name in names.split() or options))


def _fraction(text: str) -> float:
    """``0.5%`` or ``0.005``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise typer.BadParameter("give a share of the lower bound, as 0.5% or 0.005.")
    return value


def _sizes(text: str) -> int | str:
    """``32``; a range as ``1..32`` is read with the other options."""
    if ".." in text:
        return text
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid integer, nor a range as 1..32.") from None


StepOptions = Annotated[
    Mapping[str, Any],
    _group(
        REQUEST_OPTIONS,
        "as_written only batch scratch_budget update rewrite chunked_head storage frozen_storage tile_bytes",
    ),
]
RuntimeOptions = Annotated[Mapping[str, Any], _group(REQUEST_OPTIONS, "target alignment parallelism")]
SearchOptions = Annotated[
    Mapping[str, Any], _group(REQUEST_OPTIONS, "target alignment parallelism deadline_seconds costs")
]
ScheduleOptions = Annotated[
    Mapping[str, Any], _group(REQUEST_OPTIONS, "solver capacity tiers memories place")
]
PlaceOptions = Annotated[Mapping[str, Any], _group(REQUEST_OPTIONS, "pins alignments reserved")]
LayoutChoices = Annotated[
    Mapping[str, Any],
    _group(
        LAYOUT_OPTIONS,
        "capacity alignment solver deadline_seconds work seed threads race target_gap"
        " memories place pins alignments reserved",
    ),
]
ModelChoices = Annotated[Mapping[str, Any], _group(IMPORT_OPTIONS)]

#: The type of a value on the command line, by the kind of option.
_TYPES: Final[Mapping[str, Any]] = {
    "switch": bool,
    "words": list[str] | None,
    **dict.fromkeys(("tiers", "memories", "offsets", "alignments", "ranges"), list[str] | None),
    **dict.fromkeys(("real", "seconds", "share"), float | None),
    **dict.fromkeys(("size", "integer", "count", "power of two", "sizes"), int | None),
}
_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "size": read_bytes,
    "share": _fraction,
    "sizes": _sizes,
}
_METAVARS: Final = {
    "size": "SIZE",
    "word": "NAME",
    "count": "COUNT",
    "integer": "NUMBER",
    "power of two": "BYTES",
}


def _parameter(option: Option) -> inspect.Parameter:
    """The typer parameter of an option. Sizes, shares and lists default to None: not passed on."""
    declared = typer.Option(
        flag_of(option.name),
        help=option.help,
        metavar=option.metavar or _METAVARS.get(option.kind),
        parser=_PARSERS.get(option.kind),
    )
    default = None if option.default == () or option.kind in ("size", "share") else option.default
    type_ = _TYPES.get(option.kind, str | None)
    return inspect.Parameter(
        _parameter_name(option),
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[type_, declared],
    )


def _parameter_name(option: Option) -> str:
    """By its flag: a command has an `output` of its own beside that of a model."""
    return flag_of(option.name)[2:].replace("-", "_")


def _described(parameter: inspect.Parameter, marks: Sequence[str], text: str) -> Any:
    """What typer reads beside the type of a parameter. An output has a short flag, too."""
    flags = [mark for mark in marks if mark.startswith("--")]
    ranges = [mark for mark in marks if re.fullmatch(r"\d*\.\.\d*", mark)]
    least, most = (int(bound) if bound else None for bound in "".join(ranges).partition("..")[::2])
    metavar = next((mark for mark in marks if mark not in (*flags, *ranges)), None)
    if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
        return typer.Argument(metavar=metavar, help=text)
    if not flags:
        flags = [*(["-o"] if parameter.name == "output" else []), f"--{parameter.name.replace('_', '-')}"]
    return typer.Option(*flags, metavar=metavar, min=least, max=most, help=text)


def _flat(command: Callable[..., int | None], words: Mapping[str, str]) -> Callable[..., None]:
    """`command` as typer reads it: the options of each group stand in the place of its parameter."""
    texts = {name: (marks, text) for key, text in words.items() for name, *marks in [key.split()]}
    parameters: list[inspect.Parameter] = []
    groups: dict[str, _Group] = {}
    arguments: list[str] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group = next((part for part in get_args(parameter.annotation) if isinstance(part, _Group)), None)
        if group is not None:
            groups[name] = group
            parameters += map(_parameter, group.options)
            continue
        annotation = parameter.annotation
        if name in texts:
            annotation = Annotated[annotation, _described(parameter, *texts[name])]
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY:
            arguments.append(name)
        parameters.append(parameter.replace(annotation=annotation, kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        chosen: dict[str, dict[str, Any]] = {}
        for name, group in groups.items():
            options = {option.name: values.pop(_parameter_name(option)) for option in group.options}
            chosen[name] = {key: value for key, value in options.items() if value not in (None, [])}
        document = values[arguments[0]] if arguments else ""
        first = document[0] if isinstance(document, list) else document
        with reporting(as_json=values.get("as_json", False), document=str(first)):
            code = command(**values, **chosen)
        if code is not None:
            raise typer.Exit(code)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect, and so typer, reads first
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
