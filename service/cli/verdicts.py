"""Curves and verdicts on the command line: tables for people, documents for scripts, and a picture."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from service.cli.answers import answer, asked
from service.cli.console import Exit, command_line, print_json, print_line, read_document, write_document
from service.cli.options import (
    AsJson,
    Commands,
    ModelChoices,
    ModelFile,
    SearchOptions,
    Server,
    StepOptions,
    on_one_thread,
    read_bytes,
)
from service.cli.tables import make_table, say
from solver import documents, requests
from solver.errors import DocumentError, OptionsError

if TYPE_CHECKING:
    from solver.plan import RequestedOptions
    from solver.reports.verdict import Remedy, TradeOff, Verdict
    from solver.requests import Source
    from solver.verdict import ChosenTrainable, Largest

__all__ = ["app"]

app = Commands()

#: Values named at the step of the floor; --json has all of them.
_MOST_NAMED: Final = 4

#: Combinations shown where nothing fits; --json has all of them.
_MOST_ATTEMPTS: Final = 12


@app.add(
    "arenaplan tradeoff graph.json",
    "arenaplan tradeoff graph.json --batch 32 -o curve.svg",
    "arenaplan tradeoff graph.json --points 20 --json",
    words={
        "output": "Where the curve goes, as .svg, .png or .json.",
        "points COUNT": "Budgets to search within, 2 to 100.",
    },
)
def tradeoff(
    model: ModelFile,
    *,
    output: Path | None = None,
    points: int = 10,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> None:
    """Show what less memory costs in extra time.

    Beside each cost stands what is proved about it. The curve goes down to the floor.
    """
    if search.get("costs") == "measured":
        on_one_thread()
    from solver.exporters.curve import dump_curve

    suffix = "" if output is None else output.suffix.lower()
    if output is not None and suffix not in (".svg", ".png", ".json"):
        raise OptionsError(
            f"A curve cannot be written as {output.name!r}.",
            remedy="Name a file that ends in .svg, .png or .json.",
            path=("output",),
        )
    source, requested = asked(model, {**steps, **search}, choices)
    request = requests.Request("tradeoff", {source.name: source}, requested, points=points)
    curve = answer(request, as_json=as_json, server=server)
    document = documents.dump_tradeoff(curve, indent=2) + b"\n"
    if output is not None:
        write_document(output, document if suffix == ".json" else dump_curve(curve, png=suffix == ".png"))
    if as_json:
        write_document(Path("-"), document)
    else:
        _print_curve(curve)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):+.2f} %"


def _print_curve(curve: TradeOff) -> None:
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
    say(make_table(f"{curve.graph}: what less memory costs", headings, rows))
    say(
        f"floor: {curve.floor:,} bytes, proved for every order and any recomputation of steps that may run"
        f" again; step {curve.floor_step} needs them"
    )
    if curve.impossible > curve.floor:
        say(f"{curve.impossible:,} bytes are proved to be too few for this order")
    if not curve.complete:
        say("Time ran out: smaller peaks and lower costs may exist.")


# ------------------------------------------------------------------------------------------ verdicts


@app.add(
    "arenaplan explain graph.json --capacity 16MB",
    "arenaplan explain graph.json --capacity 8MB --keep-training",
    "arenaplan explain model.onnx --loss cross-entropy --batch 8 --capacity 512KiB",
    "arenaplan explain graph.json --batch 32 --capacity 16MB --json",
    "arenaplan explain graph.json --capacity 16MB --largest batch -o plan.json",
    "arenaplan explain graph.json --capacity 16MB --choose-trainable scores.json -o plan.json",
    words={
        "keep_training": "Try nothing that changes what is learned, such as smaller batches.",
        "largest NAME": "Find the largest batch that fits, or size of another dimension.",
        "choose_trainable FILE": "Choose the layers to train by the scores in a file; bytes: by the bytes of"
        " each.",
        "output": "Where the plan of the largest size, or of the choice, goes.",
    },
)
def explain(
    model: ModelFile,
    *,
    capacity: Annotated[
        int,
        typer.Option(
            "--capacity", parser=read_bytes, metavar="SIZE", help="What the arena is to fit, as 16MB."
        ),
    ],
    keep_training: bool = False,
    largest: str | None = None,
    choose_trainable: str | None = None,
    output: Path | None = None,
    search: SearchOptions,
    steps: StepOptions,
    choices: ModelChoices,
    server: Server = None,
    as_json: AsJson = False,
) -> Exit:
    """Say whether a network fits, and what would make it fit.

    Each way to make it fit is a whole command, those that change no bit first. Where there is none, says why,
    and how near each measure came. With --largest, says how large a batch fits;
    with --choose-trainable, which layers can be trained. Exit code 0: it fits; 5: it
    fits after a change; 3: nothing makes it fit.
    """
    if search.get("costs") == "measured":
        on_one_thread()
    _check_largest(largest, choose_trainable, output, server)
    from solver.reports.verdict import VerdictStatus

    fields = {**steps, **search, "capacity": capacity}
    source, requested = asked(model, fields, choices)
    wanted: dict[str, Any] = {"wanted": "verdict", "training": not keep_training}
    if largest is not None:
        wanted |= {"wanted": "largest", "dimension": largest}
    elif choose_trainable is not None:
        wanted = {"wanted": "trainable", "scores": _scores(choose_trainable)}
    request = requests.Request(models={source.name: source}, options=requested, **wanted)
    result = answer(request, as_json=as_json, server=server)
    remedies = _Remedies(model, fields, choices, server)
    if largest is None and choose_trainable is None:
        if as_json:
            write_document(Path("-"), documents.dump_verdict(result, indent=2) + b"\n")
        else:
            _print_verdict(result, remedies)
            if not result.fits_as_it_is and _runs_once(source):
                print_line("No operation of the program may run again: none says that it is pure.")
        if result.status is VerdictStatus.PLAN:
            return Exit.OK
        return Exit.CHANGE if result.remedies else Exit.TOO_LARGE
    if output is not None and result.plan is not None:
        write_document(output, documents.dump_plan(result.plan, indent=2) + b"\n")
    if as_json:
        print_json(_facts(result))
    elif largest is not None:
        _print_largest(result, remedies, requested)
    else:
        _print_chosen(result, requested, is_document=source.importer is None)
    return Exit.OK if result.plan is not None else Exit.TOO_LARGE


def _check_largest(name: str | None, scores: str | None, output: Path | None, server: str | None) -> None:
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


def _runs_once(source: Source) -> bool:
    """Whether the model is a program without pure operations."""
    if source.importer is not None or source.parsed().get("format") != documents.PROGRAM_FORMAT:
        return False
    return not any(each.pure for each in documents.load_program(source.parsed()).operations)


class _Remedies:
    """The lines on what makes a network fit, with the commands that plan so.

    `fields` are those of an options document, `choices` those for models of other tools.
    """

    def __init__(
        self, model: Path, fields: Mapping[str, Any], choices: Mapping[str, Any], server: str | None
    ) -> None:
        self.model, self.fields, self.choices, self.server = model, fields, choices, server

    def show(self, result: Verdict) -> None:
        for number, remedy in enumerate(result.remedies, 1):
            say(f"{number}. {_remedy_line(result, remedy)}")
            asked = {k: value for k, value in self.fields.items() if k not in ("as_written", "only")}
            options = {**asked, **remedy.options, **self.choices, **remedy.choices, "server": self.server}
            if "costs" in self.fields:
                options["costs"] = self.fields["costs"]
            print_line(f"   {command_line('plan', self.model, options=options, output='plan.json')}")


def _print_verdict(result: Verdict, remedies: _Remedies) -> None:
    say(*_sentences(result))
    if result.remedies:
        say("\nWhat makes it fit, planned and proved, the best first; times are for the same examples:")
        remedies.show(result)
        say(*dict.fromkeys(f"note: {remedy.note}" for remedy in result.remedies if remedy.note))
    elif not result.fits_as_it_is:
        from rich.markup import escape

        rows = [
            (
                escape(" + ".join(attempt.names)),
                f"{attempt.arena_bytes:,}",
                f"{attempt.arena_bytes - result.capacity:,}",
                "yes" if attempt.proved else "no",
                _CHANGES[attempt.changes.value],
            )
            for attempt in result.attempts
        ]
        title = "None of the measures that were tried makes it fit; the nearest first"
        headings = ("~measures", ">bytes", ">bytes too many", "proved", "~")
        say(make_table(title, headings, rows, max_rows=_MOST_ATTEMPTS))
    if not result.complete:
        say("Time ran out: there may be more, and cheaper, ways.")


#: What a remedy changes, in words.
_CHANGES: Final = {
    "nothing": "no bit changes",
    "rounding": "rounding changes",
    "training": "what is learned changes",
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
    return (
        f"{' + '.join(remedy.names)}: {remedy.arena_bytes:,} bytes, {time}, {_CHANGES[remedy.changes.value]}"
    )


def _sentences(result: Verdict) -> Iterator[str]:
    from solver.reports.verdict import VerdictStatus

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


# ------------------------------------------------------------------- the largest size, what to train


def _facts(result: Largest | ChosenTrainable) -> dict[str, Any]:
    """The fields of a result, for scripts; of its plan two figures."""
    facts: dict[str, Any] = {}
    for name in (field.name for field in fields_of(result)):
        value = getattr(result, name)
        match name:
            case "plan":
                facts["arena_bytes"] = None if value is None else value.arena_bytes
                facts["scratch_budget"] = None if value is None else value.options.scratch_budget
                facts["exact"] = result.exact
            case "more" if value is not None:
                facts["more"] = documents.parse_json(documents.dump_verdict(value))
            case "layers":
                facts["layers"] = [layer.name for layer in value]
                facts["trainable"] = [parameter for layer in value for parameter in layer.parameters]
            case _:
                facts[{"name": "dimension", "size": "largest"}.get(name, name)] = value
    return facts


def _print_largest(result: Largest, remedies: _Remedies, requested: RequestedOptions) -> None:
    name, title = result.name, f"{result.graph} in {result.capacity:,} bytes"
    if result.plan is None:
        certain = "not even" if result.exact else "no plan was found, not even for"
        say(f"{title}: {certain} a {name} of 1{' fits' * result.exact}.")
    else:
        size = f"{result.size:,}, in {result.plan.arena_bytes:,}"
        say(f"{title}: the largest {name} is {size}.")
        _print_plan(result, requested)
    if result.exact:
        say(
            "No larger one fits with this scratch budget, in any order and with any recomputation of"
            f" steps that may run again: {name} {result.size + 1:,} takes {result.next_floor:,} bytes at"
            " least."
        )
    else:
        some = ", ".join(f"{size:,}" for size in result.open[:_MOST_NAMED])
        more = f" and {len(result.open) - _MOST_NAMED} more" if len(result.open) > _MOST_NAMED else ""
        say(f"Open: {name} {some}{more}. No plan was found, and nothing is proved.")
        say(f"From {name} {result.impossible_from:,} on it is proved that none fits.")
    if result.more is not None and result.more.remedies:
        say(f"\nWhat makes {name} {result.size + 1:,} fit, planned and proved, the best first:")
        remedies.fields = {key: value for key, value in remedies.fields.items() if key != "batch"}
        if name != "batch":
            dims = [text for text in remedies.choices.get("dim", ()) if not str(text).startswith(f"{name}=")]
            remedies.choices = {**remedies.choices, "dim": [*dims, f"{name}={result.size + 1}"]}
        remedies.show(result.more)
    if not result.complete:
        say("Time ran out: a larger one may fit.")


def _print_plan(
    result: Largest | ChosenTrainable, requested: RequestedOptions, lines: Sequence[str] = ()
) -> None:
    """Print what runs again in a plan, `lines`, and its scratch budget if that is below the request's."""
    from solver.reports.rows import row_named

    assert result.plan is not None
    say(*row_named("recomputation", result.plan).sentences)
    budget = result.plan.options.scratch_budget
    if budget < requested.options.scratch_budget:
        lines = [*lines, f"It needs less scratch: --scratch-budget {budget}"]
    for line in lines:
        print_line(line)


def _scores(text: str) -> dict[str, float] | None:
    """Scores by operation or parameter: those of a JSON file; None for `bytes`, those of the parameters."""
    if text == "bytes":
        return None
    path = Path(text)
    try:
        scores = documents.parse_json(read_document(path))
    except DocumentError as error:
        raise OptionsError(
            f"{path.name!r}: {error.message}", remedy=error.remedy, path=("choose_trainable",)
        ) from error
    if not isinstance(scores, dict) or not all(type(each) in (int, float) for each in scores.values()):
        raise OptionsError(
            f"{path.name!r} is no JSON object of numbers.",
            remedy='Write scores by the name of an operation or parameter, as {"conv1": 0.2, "fc": 3}.',
            path=("choose_trainable",),
        )
    return scores


def _print_chosen(result: ChosenTrainable, requested: RequestedOptions, *, is_document: bool) -> None:
    title = f"{result.graph} in {result.capacity:,} bytes"
    if result.plan is None:
        certain = "not even" if result.exact else "no plan was found, not even of"
        say(f"{title}: {certain} the forward pass with its loss{' fits' * result.exact}.")
    else:
        score = f"a score of {result.score:,.10g} of {result.all_scores:,.10g}"
        say(f"{title}: {score}, in {result.plan.arena_bytes:,}. Train")
        for layer in result.layers:
            say(f"  {layer.name} ({', '.join(layer.parameters)}), {layer.score:,.10g}")
        if not result.layers:
            say("  nothing: no layer fits besides")
        use = f"With the model: --trainable {shlex.quote(','.join(result.trainable))}"
        if is_document:
            use = f'In the document: "trainable": {json.dumps(list(result.trainable), ensure_ascii=False)}'
        _print_plan(result, requested, [use] if result.layers else [])
    if result.exact:
        say(
            "No set with a larger score fits with this scratch budget, in any order and with any"
            " recomputation of steps that may run again."
        )
    elif result.open:
        sets = "set has" if result.open == 1 else "sets have"
        say(f"Open: {result.open:,} {sets} a larger score, and neither a plan nor a proof was found.")
    if not result.complete:
        say(f"After {result.sets:,} sets the search was cut short: a better one may fit.")
