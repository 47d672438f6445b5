"""Curves and verdicts on the command line: tables for people, documents for scripts, and a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from service.cli.answers import answer, asked
from service.cli.command_line import command_line
from service.cli.console import Exit, print_json, print_line, write_document
from service.cli.show import print_row
from service.cli.tables import FittingTable, make_table
from solver import documents
from solver.errors import OptionsError
from solver.exporters.curve import dump_curve
from solver.plan import Plan
from solver.reports.rows import row_named
from solver.reports.verdict import Changes, Remedy, TradeOff, Verdict, VerdictStatus
from solver.requests import Request, Source
from solver.verdict import Largest

__all__ = ["check_largest", "explain", "largest", "print_scratch", "tradeoff"]

#: Values named at the step of the floor; --json has all of them.
_MOST_NAMED: Final = 4

#: Combinations shown where nothing fits; --json has all of them.
_MOST_ATTEMPTS: Final = 12

#: What a picture or document of a curve is called by the end of its name.
_SUFFIXES: Final = (".svg", ".png", ".json")


def tradeoff(
    model: Path,
    fields: Mapping[str, Any],
    output: Path | None,
    points: int,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    as_json: bool,
    server: str | None = None,
) -> None:
    """Compute the curve of the network in `model`, write it to `output` if there is one, and print it.

    `fields` are those of an options document, `choices` those for models of other tools. Raises OptionsError
    for an output of another kind than .svg, .png and .json, before anything is computed.
    """
    if output is not None and output.suffix.lower() not in _SUFFIXES:
        raise OptionsError(
            f"A curve cannot be written as {output.name!r}.",
            remedy="Name a file that ends in .svg, .png or .json.",
            path=("output",),
        )
    source, requested = asked(model, fields, choices)
    request = Request("tradeoff", {source.name: source}, requested, points=points)
    curve = answer(request, as_json=as_json, server=server)
    if output is not None:
        write_document(output, _written(curve, output.suffix.lower()))
    if as_json:
        write_document(Path("-"), documents.dump_tradeoff(curve, indent=2) + b"\n")
    else:
        _print_curve(Console(highlight=False), curve)


def explain(
    model: Path,
    fields: Mapping[str, Any],
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    training: bool,
    as_json: bool,
    server: str | None = None,
) -> Exit:
    """Print the verdict on a capacity, which is among `fields`, those of an options document.

    Without `training` nothing is tried that changes what is learned.
    """
    source, requested = asked(model, fields, choices)
    request = Request("verdict", {source.name: source}, requested, training=training)
    result = answer(request, as_json=as_json, server=server)
    if as_json:
        write_document(Path("-"), documents.dump_verdict(result, indent=2) + b"\n")
    else:
        commands = [_command(remedy, model, fields, choices, server) for remedy in result.remedies]
        _print_verdict(Console(highlight=False), result, commands)
        if not result.fits_as_it_is and _runs_once(source):
            print_line("No operation of the program may run again: none says that it is pure.")
    if result.status is VerdictStatus.PLAN:
        return Exit.OK
    return Exit.CHANGE if result.remedies else Exit.TOO_LARGE


def check_largest(name: str | None, scores: str | None, output: Path | None, server: str | None) -> None:
    """Raises OptionsError for options that do not go together."""
    if name is not None and scores is not None:
        raise OptionsError(
            "Both the largest size and what to train are asked for.",
            remedy="Ask for one; then for the other with what the first answers.",
            path=("largest",),
        )
    if name is None and scores is None and output is not None:
        raise OptionsError(
            "Only the plan of the largest size, or of what is chosen to be trained, can be written.",
            remedy="Add --largest batch or --choose-trainable bytes, or leave out -o; `arenaplan plan` writes"
            " plans.",
            path=("output",),
        )
    if (name or scores) is not None and server is not None:
        raise OptionsError(
            f"The command looks for {'the largest size' if name else 'what to train'} here, and not at a"
            " service.",
            remedy="Leave out --server.",
            path=("server",),
        )


def largest(
    model: Path,
    fields: Mapping[str, Any],
    name: str,
    output: Path | None,
    choices: Mapping[str, Any] = MappingProxyType({}),
    *,
    training: bool,
    as_json: bool,
) -> Exit:
    """Find the largest size of dimension `name` within the capacity, which is among `fields`, and print it.

    The plan goes to `output`, if there is one. Without `training` nothing is tried that changes what is
    learned.
    """
    source, requested = asked(model, fields, choices)
    request = Request("largest", {source.name: source}, requested, training=training, dimension=name)
    result = answer(request)
    if output is not None and result.plan is not None:
        write_document(output, documents.dump_plan(result.plan, indent=2) + b"\n")
    if as_json:
        print_json(_largest_facts(result))
    else:
        budget = requested.options.scratch_budget
        _print_largest(Console(highlight=False), result, model, fields, choices, budget)
    return Exit.OK if result.plan is not None else Exit.TOO_LARGE


def _largest_facts(result: Largest) -> dict[str, Any]:
    more = None if result.more is None else documents.parse_json(documents.dump_verdict(result.more))
    return {
        "graph": result.graph,
        "dimension": result.name,
        "capacity": result.capacity,
        "largest": result.size,
        "arena_bytes": None if result.plan is None else result.plan.arena_bytes,
        "scratch_budget": None if result.plan is None else result.plan.options.scratch_budget,
        "exact": result.exact,
        "open": result.open,
        "impossible_from": result.impossible_from,
        "next_floor": result.next_floor,
        "complete": result.complete,
        "more": more,
    }


def _print_largest(
    console: Console,
    result: Largest,
    model: Path,
    fields: Mapping[str, Any],
    choices: Mapping[str, Any],
    budget: int,
) -> None:
    """Print the largest size; `budget` is the scratch budget of the request."""
    name, title = result.name, f"{result.graph} in {result.capacity:,} bytes"
    if result.plan is None:
        certain = "not even" if result.exact else "no plan was found, not even for"
        console.print(escape(f"{title}: {certain} a {name} of 1{' fits' * result.exact}."))
    else:
        size = f"{result.size:,}, in {result.plan.arena_bytes:,}"
        console.print(escape(f"{title}: the largest {name} is {size}."))
        print_row(console, row_named("recomputation", result.plan))
        print_scratch(result.plan, budget)
    if result.exact:
        console.print(
            escape(
                "No larger one fits with this scratch budget, in any order and with any recomputation of"
                f" steps that may run again: {name} {result.size + 1:,} takes {result.next_floor:,} bytes at"
                " least."
            )
        )
    else:
        some = ", ".join(f"{size:,}" for size in result.open[:_MOST_NAMED])
        more = f" and {len(result.open) - _MOST_NAMED} more" if len(result.open) > _MOST_NAMED else ""
        console.print(escape(f"Open: {name} {some}{more}. No plan was found, and nothing is proved."))
        console.print(escape(f"From {name} {result.impossible_from:,} on it is proved that none fits."))
    if result.more is not None and result.more.remedies:
        console.print(f"\nWhat makes {name} {result.size + 1:,} fit, planned and proved, the best first:")
        asked = {key: value for key, value in fields.items() if key != "batch"}
        if name != "batch":
            dims = [text for text in choices.get("dim", ()) if not str(text).startswith(f"{name}=")]
            choices = {**choices, "dim": [*dims, f"{name}={result.size + 1}"]}
        for number, remedy in enumerate(result.more.remedies, 1):
            console.print(escape(f"{number}. {_remedy_line(result.more, remedy)}"))
            print_line(f"   {_command(remedy, model, asked, choices, None)}")
    if not result.complete:
        console.print("Time ran out: a larger one may fit.")


def print_scratch(plan: Plan, budget: int) -> None:
    """Print the option that a plan needs whose scratch budget is below that of the request."""
    if plan.options.scratch_budget < budget:
        print_line(f"It needs less scratch: --scratch-budget {plan.options.scratch_budget}")


def _runs_once(source: Source) -> bool:
    """Whether the model is a program without pure operations."""
    if source.importer is not None or source.parsed().get("format") != documents.PROGRAM_FORMAT:
        return False
    return not any(each.pure for each in documents.load_program(source.parsed()).operations)


def _written(curve: TradeOff, suffix: str) -> bytes:
    if suffix == ".json":
        return documents.dump_tradeoff(curve, indent=2) + b"\n"
    return dump_curve(curve, png=suffix == ".png")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):+.2f} %"


def _print_curve(console: Console, curve: TradeOff) -> None:
    rows = []
    for point in curve.points:
        least = "the same" if point.optimal else _percent(point.bound, curve.step_nanoseconds)
        rows.append(
            (
                f"{point.peak:,}",
                f"{point.peak / max(curve.present.peak, 1):.1%}",
                _percent(point.extra, curve.step_nanoseconds) if point.repeated_steps else "as it is",
                least if 10_000 * point.bound // max(curve.step_nanoseconds, 1) or point.optimal else "-",
                _percent(point.extra_flops, curve.step_flops) if point.extra_flops else "-",
                f"{point.repeated_steps:,}",
            )
        )
    headings = (
        ">peak bytes", ">share", ">extra time", ">proved at least", ">extra products", ">steps again",
    )  # fmt: skip
    console.print(make_table(f"{curve.graph}: what less memory costs", headings, rows))
    console.print(
        f"floor: {curve.floor:,} bytes, proved for every order and any recomputation of steps that may run"
        f" again; step {escape(curve.floor_step)} needs them"
    )
    if curve.impossible > curve.floor:
        console.print(f"{curve.impossible:,} bytes are proved to be too few for this order")
    if not curve.complete:
        console.print("Time ran out: smaller peaks and lower costs may exist.")


# ------------------------------------------------------------------------------------------ verdicts


def _print_verdict(console: Console, result: Verdict, commands: Sequence[str]) -> None:
    """`commands` are those that plan with the remedies."""
    for line in _sentences(result):
        console.print(escape(line))
    if result.remedies:
        console.print(
            "\nWhat makes it fit, planned and proved, the best first; times are for the same examples:"
        )
        for number, (remedy, command) in enumerate(zip(result.remedies, commands, strict=True), 1):
            console.print(escape(f"{number}. {_remedy_line(result, remedy)}"))
            print_line(f"   {command}")
        for note in dict.fromkeys(remedy.note for remedy in result.remedies if remedy.note):
            console.print(escape(f"note: {note}"))
    elif not result.fits_as_it_is:
        console.print(_attempts(result))
    if not result.complete:
        console.print("Time ran out: there may be more, and cheaper, ways.")


#: What a remedy changes, in words.
_CHANGES: Final[Mapping[Changes, str]] = {
    Changes.NOTHING: "no bit changes",
    Changes.ROUNDING: "rounding changes",
    Changes.TRAINING: "what is learned changes",
}


def _remedy_line(result: Verdict, remedy: Remedy) -> str:
    """``recompute: 467,712 bytes, +1.23 % of the time as it is (+1.00 % at least), no bit changes``."""
    total = result.update_nanoseconds
    least = ""
    if remedy.bound == remedy.extra:
        least = " (proved to be the least)"
    elif remedy.bound is not None:
        least = f" ({_percent(remedy.bound, total)} at least)"
    time = f"{_percent(remedy.extra, total)} of the time as it is{least}"
    return f"{' + '.join(remedy.names)}: {remedy.arena_bytes:,} bytes, {time}, {_CHANGES[remedy.changes]}"


def _attempts(result: Verdict) -> FittingTable:
    """How near each combination of measures came."""
    rows = [
        (
            escape(" + ".join(attempt.names)),
            f"{attempt.arena_bytes:,}",
            f"{attempt.arena_bytes - result.capacity:,}",
            "yes" if attempt.proved else "no",
            _CHANGES[attempt.changes],
        )
        for attempt in result.attempts
    ]
    title = "None of the measures that were tried makes it fit; the nearest first"
    headings = ("~measures", ">bytes", ">bytes too many", "proved", "~")
    return make_table(title, headings, rows, max_rows=_MOST_ATTEMPTS)


def _sentences(result: Verdict) -> Iterator[str]:
    total = result.update_nanoseconds
    title = f"{result.graph} in {result.capacity:,} bytes:"
    if result.fits_as_it_is:
        yield f"{title} it fits as it is, in {result.arena_bytes or result.peak:,}."
        return
    if result.status is VerdictStatus.PLAN:
        known = (
            "no bound is proved"
            if result.bound is None or not 10_000 * result.bound // max(total, 1)
            else f"{_percent(result.bound, total)} at least is proved"
        )
        if result.bound == result.extra or result.extra == 0:
            known = "proved to be the least for this order"
        extra = _percent(result.extra or 0, total)
        yield f"{title} it fits with recomputation, for {extra} of the time as it is ({known})."
    elif result.status is VerdictStatus.IMPOSSIBLE:
        any_steps = "any recomputation of steps that may run again"
        yield f"{title} impossible as it is, in every order and with {any_steps}."
        short = f"{result.floor - result.capacity:,} more than there are"
        yield (
            f"{result.floor:,} bytes at least are proved, {short}: step {result.floor_step} needs"
            f" {', '.join(_needs(result))}."
        )
    else:
        yield (
            f"{title} open. No plan was found, and only {result.floor:,} bytes at least are proved for every"
            f" order, at step {result.floor_step}."
        )
        if result.impossible >= result.capacity:
            yield f"In the order of the steps as it is, {result.impossible:,} bytes are proved to be too few."
    # What is live fits; the layout of it may not.
    more = "" if result.peak > result.capacity else " at least, in a layout of more than the capacity"
    extra = _percent(result.smallest_extra, total)
    yield f"As it is, nothing running again, it takes {result.peak:,} bytes{more}." + (
        f" The smallest found is {result.smallest:,}, for {extra} of the time as it is."
        if result.smallest < result.peak
        else ""
    )


def _needs(result: Verdict) -> Iterator[str]:
    yield f"{result.fixed:,} for weights, optimizer variables and constants"
    if result.scratch:
        yield f"{result.scratch:,} for scratch"
    for what, values in (("touches", result.touched), ("must keep for later steps", result.waiting)):
        if values:
            named = ", ".join(f"{name} {size:,}" for name, size in values[:_MOST_NAMED])
            more = f" and {len(values) - _MOST_NAMED} more" if len(values) > _MOST_NAMED else ""
            yield f"{sum(size for _, size in values):,} for what it {what} ({named}{more})"


def _command(
    remedy: Remedy, model: Path, fields: Mapping[str, Any], choices: Mapping[str, Any], server: str | None
) -> str:
    """The command that makes the plan of a remedy."""
    asked = {name: value for name, value in fields.items() if name not in ("as_written", "only")}
    options = {**asked, **remedy.options, **choices, **remedy.choices, "server": server}
    if "costs" in fields:
        options["costs"] = fields["costs"]
    return command_line("plan", model, options=options, output="plan.json")
