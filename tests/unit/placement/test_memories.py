"""Bare buffers in several memories: homes, layouts, documents, and what is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.accounting import HomeItem, HomeProblem, added_up_homes
from solver.documents import dump_buffers, dump_layout, layout_with_digest, load_buffers, load_layout
from solver.errors import ArenaplanError, CapacityError, OptionsError, PlanError, ProblemError
from solver.exporters import dump_minimalloc
from solver.importers import load_minimalloc
from solver.layout import (
    Buffer,
    Hole,
    Layout,
    LayoutOptions,
    LayoutProblem,
    Lifespan,
    PlacedBuffers,
    find_violations,
)
from solver.memories import Tier, access_nanoseconds
from solver.placement import place
from solver.program import HomeRow
from tests.support.homes import least_nanoseconds

FAST, SLOW = Tier("tcm", 8, 4 * 10**9, 4 * 10**9), Tier("sram", 64, 80 * 10**6, 60 * 10**6, 3)


def random_buffers(chance: random.Random) -> LayoutProblem:
    buffers = []
    for i in range(chance.randrange(1, 7)):
        start = chance.randrange(6)
        buffers.append(
            Buffer(
                f"b{i}",
                chance.randrange(1, 9),
                Lifespan(start, chance.randrange(start + 1, 7)),
                reads=chance.randrange(4),
                writes=chance.randrange(4),
                memory=chance.choice(("", "", "", "tcm", "sram")),
            )
        )
    return LayoutProblem(tuple(buffers))


def check(placed: PlacedBuffers, memories: tuple[Tier, ...]) -> None:
    """Every layout is right, and the figures are those of the buffers."""
    homes = placed.homes
    assert homes is not None
    buffers, offsets = placed.problem.buffers, placed.layout.offsets
    for k, each in enumerate(homes.memories):
        inside = [i for i, home in enumerate(homes.homes) if home == k]
        part = LayoutProblem(tuple(buffers[i] for i in inside), memories[k].bytes)
        assert not find_violations(part, Layout(tuple(offsets[i] for i in inside), each.peak))
        assert all(buffers[i].memory in ("", memories[k].name) for i in inside)
    accesses = (
        access_nanoseconds(memories[home], b.size, b.reads, b.writes)
        for b, home in zip(buffers, homes.homes, strict=True)
    )
    assert homes.accesses == sum(accesses)
    assert homes.checked <= homes.bound <= homes.accesses


@pytest.mark.parametrize("seed", range(60))
def test_homes_are_those_of_brute_force(seed: int) -> None:
    chance = random.Random(seed)
    problem = random_buffers(chance)
    memories = (replace(FAST, bytes=chance.randrange(1, 16)), replace(SLOW, bytes=chance.randrange(4, 24)))
    items = tuple(
        HomeItem(
            b.size,
            (b.lifespan,),
            tuple(
                access_nanoseconds(m, b.size, b.reads, b.writes) if b.memory in ("", m.name) else None
                for m in memories
            ),
        )
        for b in problem.buffers
    )
    homes_problem = HomeProblem(items, tuple(m.bytes for m in memories))
    least = least_nanoseconds(homes_problem, layouts=True)
    options = LayoutOptions(memories=memories)
    if least is None:
        with pytest.raises(CapacityError):
            place(problem, options)
        return
    placed = place(problem, options)
    check(placed, memories)
    homes = placed.homes
    assert homes is not None
    assert homes.accesses == least
    rows = [HomeRow(*row) for row in homes.rows]
    assert added_up_homes(homes_problem, rows, homes.denominator) == homes.checked


def test_documents_and_tables_keep_counts_memories_and_homes() -> None:
    buffers = (
        Buffer("a", 4, Lifespan(0, 3), reads=9, memory="tcm"),
        Buffer("b", 4, Lifespan(1, 5), writes=0),
        Buffer("c", 8, Lifespan(0, 9), holes=(Hole(Lifespan(3, 5)), Hole(Lifespan(6, 8), 0, 4))),
    )
    problem = LayoutProblem(buffers)
    assert load_buffers(dump_buffers(problem)) == problem
    assert load_minimalloc(dump_minimalloc(problem)).problem == problem
    placed = layout_with_digest(place(problem, LayoutOptions(memories=(FAST, SLOW))))
    check(placed, (FAST, SLOW))
    assert load_layout(dump_layout(placed)) == placed
    assert b'"homes"' not in dump_layout(place(LayoutProblem(buffers[1:])))
    assert placed.homes is not None
    wrong = layout_with_digest(replace(placed, options=replace(placed.options, memories=(SLOW, FAST))))
    with pytest.raises(PlanError, match="homes of the layout"):
        load_layout(dump_layout(wrong))


@pytest.mark.parametrize(
    ("buffer", "options", "message", "path"),
    [
        ({"memory": "dram"}, {}, "Choose one of tcm, sram", ("buffers", 0, "memory")),
        ({"offset": 0}, {}, "is pinned", ("buffers", 0, "offset")),
        ({}, {"capacity": 64}, "capacity as well", ("capacity",)),
        ({"memory": "dram"}, {"memories": ()}, "--memory dram=", ("buffers", 0, "memory")),
        ({}, {"place": ("a=dram",)}, "Choose one of tcm, sram", ("place", 0)),
        ({}, {"place": ("a1=tcm",)}, "The nearest names are a", ("place", 0)),
        ({}, {"place": ("a=tcm",), "memories": ()}, "--memory tcm=", ("place", 0)),
        ({}, {"memories": (FAST, FAST)}, "as another one is", ("memories", 1, "name")),
    ],
)
def test_what_does_not_go_together_is_refused(
    buffer: dict[str, object], options: dict[str, object], message: str, path: tuple[object, ...]
) -> None:
    problem = LayoutProblem((Buffer("a", 4, Lifespan(0, 3), **buffer),))  # type: ignore[arg-type]  # by name
    with pytest.raises(ArenaplanError) as caught:
        place(problem, LayoutOptions(**{"memories": (FAST, SLOW), **options}))  # type: ignore[arg-type]  # by name
    assert isinstance(caught.value, OptionsError | ProblemError)
    assert message in str(caught.value)
    assert caught.value.path == path


def test_places_by_name_and_by_pattern() -> None:
    problem = LayoutProblem(tuple(Buffer(name, 2, Lifespan(0, 3)) for name in ("a1", "a2", "b")))
    options = LayoutOptions(memories=(FAST, SLOW), place=("a*=sram", "a2=tcm"))
    placed = layout_with_digest(place(problem, options))
    check(placed, (FAST, SLOW))
    assert placed.homes is not None
    assert placed.homes.homes == (1, 0, 0)
    assert load_layout(dump_layout(placed)) == placed


def test_refusals_name_what_is_too_small() -> None:
    def refusal(*buffers: Buffer) -> CapacityError:
        with pytest.raises(CapacityError) as caught:
            place(LayoutProblem(buffers), LayoutOptions(memories=(FAST, SLOW)))
        assert caught.value.proved
        return caught.value

    large = refusal(Buffer("a", 65, Lifespan(0, 3)))
    assert "'a' (row 1) alone has 65" in large.message
    kept = refusal(*(Buffer(name, 5, Lifespan(0, 3), memory="tcm") for name in "ab"))
    assert (kept.required, kept.path) == (10, ("memories", 0, "bytes"))
    both = refusal(*(Buffer(name, 40, Lifespan(0, 3)) for name in "ab"))
    assert "80 bytes are live at once" in both.message
