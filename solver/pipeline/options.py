"""Options that no preparation and no pass checks: numbers, and whether the target has what they ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from solver import preparations
from solver.errors import OptionsError
from solver.layout.api import SOLVERS
from solver.names import matching_names, nearest_names
from solver.plan import PlanOptions
from solver.program import Program, check_memories, joined_memory
from solver.targets import TARGETS, Target

__all__ = [
    "DEFAULTS",
    "PROGRAM",
    "check_of_program",
    "check_places",
    "checked",
    "in_one_memory",
    "of_program",
    "with_capacity",
]

#: The target of plans of explicit programs: one arena, every block as the program uses it.
PROGRAM: Final = "program"

DEFAULTS: Final = PlanOptions()
#: By option: the capability that a target needs for it, what a target without it is like, and the remedy.
_ASKED_OF_TARGETS = {
    "parallelism": ("parallelism", "runs one step at a time", "Leave the parallelism at 1."),
    "update": ("update", "applies gradients when its runtime does", "Leave it out."),
    "in_place": ("in_place", "says itself what is defined in place", "Leave it out."),
    "sub_ranges": ("sub_ranges", "says itself what is defined in place", "Leave it out."),
    "rewrite": ("rewrite", "runs the operations that it is given", "Leave it out."),
    "chunked_head": ("rewrite", "runs the operations that it is given", "Leave it out."),
    "order": ("order", "has an order of its own", "Leave it out."),
    "recompute": ("recompute", "runs each step once", "Leave it out."),
    "tiers": ("paging", "has memory of one kind", "Leave the tiers out."),
    "memories": ("paging", "has memory of one kind", "Leave the memories out."),
    "place": ("paging", "has memory of one kind", "Leave the places out."),
    "storage": ("storage", "keeps values as they are", "Leave it out."),
    "tile_bytes": ("stored", "reads weights whole", "Leave it out."),
    "frozen_storage": ("stored", "reads weights as floats only", "Leave it out."),
    "costs": ("recompute", "runs each step once, whatever it takes", "Leave them out."),
    "fit_scratch": ("scratch", "says itself what its kernels need", "Leave it out."),
}

#: By option: the constraints that go with one memory only, in words, and what to do with several.
_NOT_WITH_MEMORIES: Final = {
    "pins": ("Pins", "Leave the pins out; --place conv1.weight=tcm chooses the memory of a value."),
    "alignments": ("Alignments", "Leave the alignments out; --alignment 4096 is that of every value."),
    "reserved": (
        "Reserved bytes",
        "Leave the reserved bytes out, and give their memory fewer bytes.",
    ),
}


def checked(options: PlanOptions) -> Target:
    """The target of the options, which has all that they ask for; what others take, they check themselves."""
    if options.target not in TARGETS:
        raise OptionsError(
            f"Unknown target {options.target!r}.",
            remedy=f"Choose one of {', '.join(TARGETS)}.",
            path=("target",),
        )
    target = TARGETS[options.target]
    _check_numbers(options)
    for name, (capability, why, remedy) in _ASKED_OF_TARGETS.items():
        asked = getattr(options, name) != getattr(DEFAULTS, name)
        if asked and not getattr(target.capabilities, capability):
            raise OptionsError(f"Target {options.target!r} {why}.", remedy=remedy, path=(name,))
    _check_memories(options)
    _check_tiers(options)
    _check_tile(options)
    preparations.chosen(options)
    target.passes(with_capacity(options))
    return target


def with_capacity(options: PlanOptions) -> PlanOptions:
    """Passes ask for a capacity where they are to keep one: that of the first tier, if there are tiers."""
    options = in_one_memory(options)
    return replace(options, capacity=options.tiers[0].bytes) if options.tiers else options


def in_one_memory(options: PlanOptions) -> PlanOptions:
    """The options for passes, which take the memories that kernels reach for one of all their bytes."""
    if not options.memories:
        return options
    fast = joined_memory(options.memories)
    whole = replace(options, memories=(), place=())
    if options.tiers:
        return replace(whole, tiers=(fast, *options.tiers))
    return replace(whole, capacity=fast.bytes)


def _check_tile(options: PlanOptions) -> None:
    """Raises OptionsError for a tile that is larger than the memory that kernels reach."""
    memory = options.tiers[0].bytes if options.tiers else options.capacity
    if options.memories:
        memory = max(each.bytes for each in options.memories)
    # A capacity of 0 asks for the least that is possible.
    if options.tile_bytes is not None and memory and options.tile_bytes > memory:
        raise OptionsError(
            f"A tile of {options.tile_bytes:,} bytes does not fit into fast memory, which has {memory:,}.",
            remedy=f"Give tiles of a fraction of it, as {max(1, memory // 16):,} bytes.",
            path=("tile_bytes",),
        )


def _check_tiers(options: PlanOptions) -> None:
    if options.tiers and options.capacity is not None:
        raise OptionsError(
            "Both a capacity and tiers are given.",
            remedy="Give the size of the first tier, which is the capacity then.",
            path=("capacity",),
        )


def _check_memories(options: PlanOptions) -> None:
    if options.memories and options.capacity is not None:
        raise OptionsError(
            "Both a capacity and memories are given.",
            remedy="Leave the capacity out: each memory has its own.",
            path=("capacity",),
        )
    for name, (noun, remedy) in _NOT_WITH_MEMORIES.items() if options.memories else ():
        if getattr(options, name):
            raise OptionsError(
                f"{noun} are given, and memories: the planner chooses the memory of each value, and an offset"
                " means nothing before that.",
                remedy=remedy,
                path=(name,),
            )
    check_memories(options.memories, options.tiers, options.place)


def check_places(program: Program, options: PlanOptions) -> None:
    """Raises OptionsError for a place that names no value of the reference program."""
    labels = [value.label for value in program.values]
    for i, text in enumerate(options.place):
        name = text.rpartition("=")[0]
        if not matching_names(name, labels):
            raise OptionsError(
                f"The place {text!r} names no value.", remedy=nearest_names(name, labels), path=("place", i)
            )


def of_program(options: PlanOptions) -> PlanOptions:
    """The options of an explicit program: the default target means `PROGRAM`."""
    return replace(options, target=PROGRAM) if options.target == DEFAULTS.target else options


def check_of_program(options: PlanOptions) -> None:
    """Raises OptionsError for what only graphs have, and for a number out of range."""
    if options.target != PROGRAM:
        raise OptionsError(
            f"Unknown target {options.target!r} of an explicit program.",
            remedy=f"Choose {PROGRAM!r}, or leave it out.",
            path=("target",),
        )
    for name in (
        "batch",
        "scratch_budget",
        "fit_scratch",
        "update",
        "sub_ranges",
        "rewrite",
        "chunked_head",
        "storage",
        "frozen_storage",
        "tile_bytes",
    ):
        if getattr(options, name) != getattr(DEFAULTS, name):
            raise OptionsError(
                f"The option {name} is for graphs; a program says itself what it does.",
                remedy="Leave it out.",
                path=(name,),
            )
    _check_memories(options)
    _check_numbers(options)
    _check_tiers(options)


def _check_numbers(options: PlanOptions) -> None:
    if options.solver not in SOLVERS:
        raise OptionsError(
            f"Unknown solver {options.solver!r}.",
            remedy=f"Choose one of {', '.join(SOLVERS)}.",
            path=("solver",),
        )
    alignment = options.alignment
    if alignment is not None and (alignment < 1 or alignment & (alignment - 1) or alignment > 2**20):
        raise OptionsError(
            f"Alignment {alignment} is not a power of two up to 2**20.",
            remedy="Give 16, 32, 64, ...; the target's own is used without one.",
            path=("alignment",),
        )
    options.constraints.check()
    for name, number in (("capacity", options.capacity), ("deadline_seconds", options.deadline_seconds)):
        if number is not None and number < 0:
            raise OptionsError(f"{name} is {number}.", remedy="Give zero or more.", path=(name,))
