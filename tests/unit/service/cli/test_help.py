"""Help shows examples of every command, and they are commands that the program takes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from service.cli.commands import app
from solver.importers.options import LOSSES
from solver.layout import SOLVERS
from solver.pipeline import TARGETS

GROUP: Any = get_command(app)
COMMANDS: dict[str, Any] = GROUP.commands


def examples(text: str) -> list[str]:
    """The lines below ``Examples:``, up to the next empty one, without what stands beside them."""
    below = text.partition("Examples:\n")[2].partition("\n\n")[0]
    return [re.split(r"\s{3,}", line.strip())[0] for line in below.splitlines()]


def flags(name: str) -> set[str]:
    """The flags of a command."""
    return {flag for parameter in COMMANDS[name].params for flag in parameter.opts}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_examples_that_are_read(name: str) -> None:
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    found = examples(shown.stdout)
    assert found
    assert any(f"arenaplan {name}" in line for line in found)
    for line in found:
        _, _, command = line.partition("|")[0].partition("arenaplan ")
        found_command, arguments = GROUP, shlex.split(command)
        while hasattr(found_command, "commands"):
            found_command, *arguments = found_command.commands[arguments[0]], *arguments[1:]
        with found_command.make_context(name, arguments) as context:
            assert context.args == []


def test_the_help_of_the_program_has_examples() -> None:
    lines = examples(CliRunner().invoke(app, ["--help"]).stdout)
    named = {line.split()[1] for line in lines}
    assert {"plan", "show", "validate", "solve", "--install-completion"} <= named


def test_examples_and_exit_codes_are_apart() -> None:
    text = CliRunner().invoke(app, ["solve", "--help"]).stdout
    assert re.search(r"out\.json\n\n  Exit codes: 0 ", text.replace("layout.json", "out.json"))


@pytest.mark.parametrize(
    "name", ["", *sorted(name for name, one in COMMANDS.items() if hasattr(one, "commands"))]
)
def test_lists_of_commands_say_whole_sentences(name: str) -> None:
    shown = CliRunner().invoke(app, [*([name] if name else []), "--help"], terminal_width=80).stdout
    listed = shown.partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
    assert listed
    assert [line for line in listed if not line.endswith(".") or line.endswith("...")] == []


@pytest.mark.parametrize(
    "name", sorted(name for name, one in COMMANDS.items() if not hasattr(one, "commands"))
)
def test_help_tells_which_options_may_be_repeated(name: str) -> None:
    repeated = [option for option in COMMANDS[name].params if getattr(option, "multiple", False)]
    assert [option.opts for option in repeated if "repeatable" not in (option.help or "").lower()] == []


def test_the_help_of_a_target_gap_has_both_of_its_forms() -> None:
    (option,) = (option for option in COMMANDS["solve"].params if "--target-gap" in option.opts)
    assert "0.005" in option.help
    assert "0.5%" in option.help


@pytest.mark.parametrize("name", ["plan", "explain", "tradeoff", "costs"])
def test_help_has_its_options_in_sections(name: str) -> None:
    """Every option stands in one of them; only --help is left for the last."""
    shown = CliRunner().invoke(app, [name, "--help"], terminal_width=80).stdout
    lines = shown.partition("Examples:")[0].splitlines()
    sections = [line for line in lines if re.fullmatch(r"[A-Z]\w+:", line)]
    assert sections == ["Arguments:", "Model:", "Fit:", "Search:", "Output:", "Options:"]
    flags = [option.opts[-1] for option in COMMANDS[name].params if option.param_type_name == "option"]
    section = {}
    for line in lines:
        if line in sections:
            title = line
        for flag in re.findall(r"^  (?:-\w, )?(--[\w-]+)", line):
            assert flag not in section
            section[flag] = title
    assert set(section) == {*flags, "--help"}
    assert [flag for flag, title in section.items() if title == "Options:"] in (
        ["--help"],
        ["--repeats", "--roofline", "--help"],
        ["--points", "--help"],
    )
    assert section["--batch"] == section["--loss"] == "Model:"
    assert section["--scratch-budget"] == section["--rewrite"] == "Fit:"
    assert section["--json"] == "Output:"


def test_options_that_take_a_word_say_which() -> None:
    """In the help of the option: nobody has to look into a page, or try."""
    for option in COMMANDS["plan"].params:
        for name, words in {
            "target": TARGETS, "solver": SOLVERS, "update": ("immediate", "end"),
            "storage": ("float16", "bfloat16"), "loss": LOSSES, "batch_norm": ("train", "frozen"),
        }.items():  # fmt: skip
            if option.name == name:
                assert [word for word in words if word not in option.help] == [], name


@pytest.mark.parametrize("command", [name for name in sorted(COMMANDS) if "--only" in flags(name)])
@pytest.mark.parametrize("measure", ["in-place", "sub-ranges", "order", "recompute", "fit-scratch"])
def test_a_flag_of_its_own_for_a_measure_leads_to_only(command: str, measure: str) -> None:
    refused = CliRunner().invoke(app, [command, "graph.json", f"--{measure}"])
    assert refused.exit_code == 2
    assert f"The option --{measure} has gone" in refused.stderr
    assert f"--only {measure}" in refused.stderr
    assert ("--scratch-budget 64KiB" in refused.stderr) == (measure == "fit-scratch")


@pytest.mark.parametrize("command", ["explain", "tradeoff"])
@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--memory", "tcm=8MiB"], "takes the bytes of all memories together as its --capacity"),
        (["--tier=ram=8MiB"], "takes the size of the first memory as its --capacity"),
        (["--entry", "infer:batch=1"], "give the batch of the entry point as --batch"),
        (["--pin=w=0"], "Leave --pin out."),
    ],
)
def test_verdicts_say_why_they_take_no_memories_and_no_entry_points(
    command: str, words: list[str], remedy: str
) -> None:
    refused = CliRunner().invoke(app, [command, "graph.json", *words])
    assert refused.exit_code == 2
    flag = words[0].partition("=")[0]
    assert f"{flag} is for `plan`: curves and verdicts are about one program in one memory." in refused.stderr
    assert remedy in refused.stderr
    assert words[0].partition("=")[0] in flags("plan")


def test_measures_are_written_with_hyphens() -> None:
    refused = CliRunner().invoke(app, ["plan", "-", "--only", "in-plac"], input=b"{}")
    assert refused.exit_code == 2
    assert "Did you mean 'in-place'?" in refused.stderr
    assert "'sub-ranges'" in refused.stderr
