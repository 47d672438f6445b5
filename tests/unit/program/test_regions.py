"""Alias sets, and the bytes that their values share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from solver.graph import DType, TensorType
from solver.graph.ops.base import Node
from solver.graph.types import Operation
from solver.layout import Lifespan
from solver.program import (
    Access,
    Alias,
    Binding,
    Builder,
    Entry,
    EntryKind,
    Exit,
    Kind,
    Phase,
    Program,
    Region,
    Space,
    alias_sets,
    expiring,
    regions,
)

A, B, C, D = range(4)


def made(aliases: Sequence[Alias] = (), *, space_of_d: int = 0) -> Program:
    """Step t touches those of a, b, c, d, of 15 floats each, that live then:

    a [0, 3)   b [1, 4)   c [2, 6)   d [5, 7)
    """
    builder = Builder("regions", [Space("arena", 64), Space("other", 16)])
    type_ = TensorType((3, 5), DType.FLOAT32)
    for name in "abcd":
        builder.value(name, type_, Kind.ACTIVATION, name, space_of_d if name == "d" else 0)
    spans = (Lifespan(0, 3), Lifespan(1, 4), Lifespan(2, 6), Lifespan(5, 7))
    for t in range(7):
        node = Node(Operation(f"op{t}", "", (), ()), (), (), (), {})
        builder.step(
            builder.operation(node),
            Phase.EXPLICIT,
            [
                Binding("abcd"[value], value, Access.WRITE if span.start == t else Access.READ)
                for value, span in enumerate(spans)
                if span.start <= t < span.end
            ],
        )
    return builder.finish(aliases=aliases)


def alone(value: int, start: int, end: int) -> Region:
    return Region((value,), (0,), 0, 60, 64, Lifespan(start, end))


def test_without_aliases_each_value_has_a_region() -> None:
    assert alias_sets(made()) == {}
    assert regions(made()) == (alone(A, 0, 3), alone(B, 1, 4), alone(C, 2, 6), alone(D, 5, 7))


def test_a_chain_is_one_region_in_the_place_of_its_first_value() -> None:
    program = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    assert alias_sets(program) == {A: [(A, 0), (B, 0), (D, 0)]}
    assert regions(program) == (
        Region((A, B, D), (0, 0, 0), 0, 60, 64, Lifespan(0, 7)),
        alone(C, 2, 6),
    )


def test_several_alias_sets() -> None:
    found = regions(made([Alias(B, A, 1, view=False), Alias(D, C, 5, view=False)]))
    assert [(region.members, region.lifespan) for region in found] == [
        ((A, B), Lifespan(0, 4)),
        ((C, D), Lifespan(2, 7)),
    ]


def test_views_of_a_part_of_a_value() -> None:
    """Offsets add up along a chain; the region ends with whatever reaches furthest."""
    program = made([Alias(B, A, 1, view=True, offset=64), Alias(D, B, 5, view=True, offset=128)])
    assert alias_sets(program) == {A: [(A, 0), (B, 64), (D, 192)]}
    first, _ = regions(program)
    assert (first.offsets, first.nbytes, first.size) == ((0, 64, 192), 252, 256)


def test_a_view_of_several_values_makes_one_region_of_them() -> None:
    """d is put together from a and, 64 bytes behind it, b."""
    program = made([Alias(D, A, 5, view=True), Alias(D, B, 5, view=True, offset=-64)])
    assert alias_sets(program) == {A: [(A, 0), (B, 64), (D, 0)]}
    first, _ = regions(program)
    assert (first.members, first.offsets) == ((A, B, D), (0, 64, 0))
    assert (first.nbytes, first.size, first.lifespan) == (124, 128, Lifespan(0, 7))


def test_a_region_begins_with_what_lies_in_front() -> None:
    """Which need not be its first value: c begins 64 bytes in front of b, which is a part of a."""
    program = made([Alias(B, A, 1, view=True, offset=64), Alias(C, B, 3, view=True, offset=-128)])
    assert alias_sets(program) == {C: [(C, 0), (A, 64), (B, 128)]}
    assert [(region.members, region.lifespan) for region in regions(program)] == [
        ((C, A, B), Lifespan(0, 6)),
        ((D,), Lifespan(5, 7)),
    ]


def test_sets_that_have_grown_come_together() -> None:
    """b is a part of a, d lies over c, and then d over both a and c."""
    program = made(
        [
            Alias(B, A, 1, view=True, offset=64),
            Alias(D, C, 5, view=True),
            Alias(D, B, 5, view=True, offset=-192),
        ]
    )
    assert alias_sets(program) == {C: [(C, 0), (A, 128), (B, 192), (D, 0)]}


def test_the_first_value_of_a_set_may_become_part_of_another_one() -> None:
    """b is a view of a; later a, which carries over, is defined 64 bytes behind c."""
    program = made([Alias(B, A, 1, view=True), Alias(A, C, 5, view=False, offset=64)])
    assert alias_sets(program) == {C: [(C, 0), (A, 64), (B, 64)]}


def test_values_of_which_nothing_is_held_behind_a_level() -> None:
    assert expiring(made()) == {2: [A], 3: [B], 5: [C], 6: [D]}
    shared = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    assert expiring(shared) == {6: [A, B, D], 5: [C]}
    assert expiring(made([Alias(B, A, 1, view=True)])) == {3: [A, B], 5: [C], 6: [D]}


def test_what_the_next_iteration_needs_is_held_with_all_that_shares_its_bytes() -> None:
    program = made([Alias(B, A, 1, view=True)])
    for kind in EntryKind:
        begun = replace(program, entry=(Entry(A, kind, A), Entry(C, kind, C)))
        fed = {3: [A, B], 5: [C], 6: [D]}
        assert expiring(begun) == (fed if kind is EntryKind.FED else {6: [D]})
    assert expiring(replace(program, exit=(Exit(B, B),))) == {5: [C], 6: [D]}
    assert expiring(replace(program, exit=(Exit(D, D),))) == {3: [A, B], 5: [C]}


@pytest.mark.parametrize("kind", EntryKind)
@pytest.mark.parametrize("value", [A, B])
def test_a_region_lives_as_long_as_its_most_lasting_value(kind: EntryKind, value: int) -> None:
    program = replace(made([Alias(B, A, 1, view=True)]), entry=(Entry(value, kind, value),))
    end = 4 if kind is EntryKind.FED else 7
    assert regions(program)[0].lifespan == Lifespan(0, end)


@pytest.mark.parametrize(("alignment", "size"), [(1, 60), (4, 60), (16, 64), (256, 256)])
def test_sizes_are_rounded_up_to_the_alignment_of_the_space(alignment: int, size: int) -> None:
    program = replace(made(), spaces=(Space("arena", alignment),))
    assert {(region.nbytes, region.size) for region in regions(program)} == {(60, size)}


def test_each_region_lies_in_the_space_of_its_values() -> None:
    found = regions(made(space_of_d=1))
    assert [region.space for region in found] == [0, 0, 0, 1]
    assert found[D].size == 64


def test_what_is_held_lengthens_its_region() -> None:
    program = made([Alias(B, A, 1, view=True)])
    found = regions(program, {B: Lifespan(0, 6)})
    assert found[0].lifespan == Lifespan(0, 6)


def test_every_value_that_is_touched_is_in_one_region() -> None:
    program = made([Alias(B, A, 1, view=True), Alias(D, B, 5, view=False)])
    members = [member for region in regions(program) for member in region.members]
    assert sorted(members) == [A, B, C, D]
