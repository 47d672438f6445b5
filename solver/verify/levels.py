"""Whether steps that run at the same time keep apart, and repetitions find alike addresses."""

from __future__ import annotations

from collections.abc import Iterator

from solver.accounting.clocks import channel_of
from solver.plan import Plan
from solver.plan.violation import Violation
from solver.program import RESIDUE
from solver.verify.addresses import Line, step_name

__all__ = ["check_levels", "check_residues"]


def check_levels(plan: Plan, line: Line) -> Iterator[Violation]:
    """Steps whose levels meet share bytes only if neither writes them; a channel runs one copy at a time.

    Between two memories there is one channel, whatever a plan says.
    """
    program = plan.program
    views = {(alias.step, alias.value) for alias in program.aliases if alias.view}
    active: list[int] = []
    for t, step in enumerate(program.steps):
        active = [s for s in active if program.steps[s].until >= step.level]
        if active:
            if len(active) >= plan.options.parallelism and step.reference is not None:
                together = [s for s in active if program.steps[s].reference is not None]
                if len(together) >= plan.options.parallelism:
                    yield Violation(
                        "level",
                        (),
                        f"Level {step.level} has more steps than the {plan.options.parallelism} that may"
                        " run at the same time.",
                    )
                    return
            for s in active:
                yield from _apart(plan, line, views, s, t)
        active.append(t)


def _apart(plan: Plan, line: Line, views: set[tuple[int, int]], s: int, t: int) -> Iterator[Violation]:
    program = plan.program
    first, second = program.steps[s], program.steps[t]
    if (
        first.reference is None
        and second.reference is None
        and channel_of(program, first) == channel_of(program, second)
    ):
        yield Violation(
            "level", (), f"{step_name(plan, t)} begins while {step_name(plan, s)} has the channel."
        )
    for a in first.bindings:
        for b in second.bindings:
            if max(line.low[a.value], line.low[b.value]) < min(line.high[a.value], line.high[b.value]):
                writes = (a.access.writes and (s, a.value) not in views) or (
                    b.access.writes and (t, b.value) not in views
                )
                if writes:
                    names = (program.values[a.value].label, program.values[b.value].label)
                    yield Violation(
                        "level",
                        names,
                        f"{step_name(plan, t)} touches {names[1]!r} while {step_name(plan, s)} runs, which"
                        f" touches {names[0]!r} in the same bytes; one of them writes.",
                    )
                    return


def check_residues(plan: Plan) -> Iterator[Violation]:
    """Repetitions of a reference step find each slot at the same address modulo 64."""
    first: dict[int, int] = {}
    program = plan.program
    for t, step in enumerate(program.steps):
        if step.reference is None:
            continue
        s = first.setdefault(step.reference, t)
        if s == t:
            continue
        for ours, theirs in zip(step.bindings, program.steps[s].bindings, strict=True):
            apart = plan.offsets[ours.value] - plan.offsets[theirs.value]
            spaces = {program.values[x.value].space for x in (ours, theirs)}
            # Bases of two spaces differ by any multiple of their alignments.
            unknown = len(spaces) > 1 and any(program.spaces[x].alignment % RESIDUE for x in spaces)
            if apart % RESIDUE or unknown:
                names = (program.values[ours.value].label, program.values[theirs.value].label)
                yield Violation(
                    "residue",
                    names,
                    f"{step_name(plan, t)} has slot {ours.slot} at another address modulo {RESIDUE} than"
                    f" {step_name(plan, s)}, which it repeats.",
                )
                return
