"""Reports recount what a plan says; the map shows the buffers where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import pipeline
from solver.accounting import roofline
from solver.graph import TrainingRules
from solver.layout import Lifespan, Proof, Status
from solver.plan import AliasedValue, Arena, Certificate, PlannedBuffer, PlannedStep, PlanOptions
from solver.program import Kind, Lifetime, Record
from solver.reports.arenas import (
    SharingReport,
    certificate_note,
    gradient_notes,
    live_curve,
    memory_map,
    order_note,
    report,
    sharing,
    storage_note,
)
from tests.support.graphs import chain, convolutional
from tests.support.plan_views import HandMadePlan

A, D, G, W = Kind.ACTIVATION, Kind.DERIVATIVE, Kind.GRADIENT, Kind.PARAMETER


def buffer(name: str, kind: Kind, offset: int, size: int, start: int, end: int) -> PlannedBuffer:
    span = Lifespan(start, end)
    return PlannedBuffer(name, kind, Lifetime.ITERATION, (size,), "uint8", size, size, 1, span, offset)


def arena(size: int, *buffers: PlannedBuffer, name: str = "arena") -> Arena:
    return Arena(name, size, Certificate(Status.OPTIMAL, Proof.MAX_LOAD, size, 0, "test"), buffers)


def plan(steps: int, *arenas: Arena) -> HandMadePlan:
    order = tuple(PlannedStep(f"s{n}", "Test", (), (), (), n) for n in range(steps))
    return HandMadePlan(order, arenas)


SMALL = plan(
    4,
    arena(
        12,
        buffer("w", W, 0, 4, 0, 4),
        buffer("a", A, 4, 4, 0, 2),
        buffer("b", A, 8, 2, 1, 3),
        buffer("d", D, 4, 4, 2, 4),
    ),
)


def test_bytes_by_kind() -> None:
    rows = {row.kind: (row.buffers, row.total, row.peak) for row in report(SMALL).kinds}
    assert rows == {W: (1, 4, 4), A: (2, 6, 6), D: (1, 4, 4)}
    assert report(SMALL).total == 14


def test_peak() -> None:
    (found,) = report(SMALL).arenas
    assert found.curve == (8, 10, 10, 8)
    assert (found.peak_step, found.peak_step_id, found.live_bytes) == (1, "s1", 10)
    assert [b.id for b in found.live] == ["a", "w", "b"]
    assert found.utilisation == pytest.approx(10 / 12)
    assert found.fragmentation == pytest.approx(2 / 12)


def test_what_waits_in_16_bits() -> None:
    graph = chain((64, 32, 16), 8)
    assert storage_note(pipeline.plan(graph)) is None
    made = pipeline.plan(graph, PlanOptions(storage="float16"))
    waiting = sum(value.type.nbytes for value in made.program.values if value.type.dtype.is_storage)
    note = storage_note(made)
    assert note is not None
    assert f"{waiting:,} bytes" in note
    assert note.startswith("In float16: 2 values")
    (facts,) = (record.facts for record in made.records if record.name == "storage")
    cost = dict(zip(made.program.step_labels, roofline(made.program), strict=True))
    spent = sum(ns for label, ns in cost.items() if label.endswith((".store", ".restore")))
    assert facts == {"conversions": 4, "nanoseconds": spent, "step_nanoseconds": sum(cost.values())}
    share = 100 * spent / (sum(cost.values()) - spent)
    assert f"4 conversions add {share:.2f} % to the modelled time" in note


def test_what_another_order_takes_and_what_is_left() -> None:
    assert order_note(pipeline.plan(chain())) is None
    made = pipeline.plan(chain(), PlanOptions(order=True))
    note = order_note(made)
    assert note is not None
    assert "Order: the steps keep theirs, apart from the updates, " in note
    assert f" with a peak of {made.lower_bound:,} live bytes" in note
    note = order_note(replace(made, records=made.records[1:]))  # without the one of the updates
    assert note is not None
    assert "Order: the steps keep theirs, with a peak of" in note
    facts = {"order_bound": 1000, "peak_before": 1000, "peak_after": 1000}
    note = order_note(replace(made, records=(Record("search_order", facts),)))
    assert note is not None
    assert note.endswith("so another one can save nothing.")
    facts = {"order_bound": 900, "peak_before": 1200, "peak_after": 1000}
    note = order_note(replace(made, records=(Record("search_order", facts),)))
    assert note == (
        "Order: another order has a peak of 1,000 live bytes instead of 1,200. Where each step runs once, no"
        " order takes less than 900, so another one can save at most 10.00 % of it."
    )
    facts |= {"every_order_nanoseconds": 69_999, "step_nanoseconds": 1_000_000}
    note = order_note(replace(made, records=(Record("search_order", facts),)))
    assert note is not None
    assert note.endswith("What runs again to keep the capacity adds 6.999 % of time at least in every order.")
    facts |= {"every_order_nanoseconds": 9}
    note = order_note(replace(made, records=(Record("search_order", facts),)))
    assert note is not None
    assert note.endswith("so another one can save at most 10.00 % of it.")


def test_empty_arena() -> None:
    (found,) = report(plan(2, arena(0))).arenas
    assert (found.peak_step, found.peak_step_id, found.live_bytes) == (None, None, 0)
    assert found.curve == (0, 0)
    assert found.utilisation == 1.0
    assert found.fragmentation == 0.0


def test_no_steps_at_all() -> None:
    found = report(plan(0, arena(0)))
    assert found.kinds == ()
    assert found.total == 0
    assert found.arenas[0].curve == ()


def test_several_arenas() -> None:
    both = plan(2, arena(4, buffer("w", W, 0, 4, 0, 2)), arena(8, buffer("a", A, 0, 8, 1, 2), name="other"))
    first, second = report(both).arenas
    assert (first.name, first.live_bytes, first.peak_step) == ("arena", 4, 0)
    assert (second.name, second.live_bytes, second.peak_step) == ("other", 8, 1)
    assert report(both).total == 12


def test_map_at_full_resolution() -> None:
    grid = memory_map(SMALL.arenas[0], 4, columns=4, rows=6)
    assert grid.size == 12
    assert grid.steps == 4
    assert grid.rows == (
        (None, None, None, None),
        (None, A, A, None),
        (A, A, D, D),
        (A, A, D, D),
        (W, W, W, W),
        (W, W, W, W),
    )


def test_map_shows_what_fills_most_of_a_patch() -> None:
    mixed = arena(4, buffer("a", A, 0, 1, 0, 4), buffer("g", G, 1, 2, 0, 4))
    assert memory_map(mixed, 4, columns=1, rows=1).rows == ((G,),)


def test_map_shows_mostly_free_as_free() -> None:
    sparse = arena(8, buffer("a", A, 0, 2, 0, 4))
    assert memory_map(sparse, 4, columns=1, rows=1).rows == ((None,),)


def test_map_is_never_finer_than_the_arena() -> None:
    grid = memory_map(arena(2, buffer("a", A, 0, 2, 0, 3)), 3, columns=80, rows=20)
    assert grid.rows == ((A, A, A), (A, A, A))


def test_map_of_nothing() -> None:
    assert memory_map(arena(0), 0, columns=80, rows=20).rows == ()


_SPANS = st.tuples(st.integers(0, 9), st.integers(1, 10)).map(lambda s: Lifespan(s[0], s[0] + s[1]))


@given(st.lists(st.tuples(_SPANS, st.integers(1, 50)), max_size=12), st.integers(1, 20))
def test_curve_counts_every_buffer_in_every_step(spans: list[tuple[Lifespan, int]], steps: int) -> None:
    buffers = [buffer(str(n), A, 0, size, span.start, span.end) for n, (span, size) in enumerate(spans)]
    expected = tuple(sum(size for span, size in spans if span.start <= t < span.end) for t in range(steps))
    assert live_curve(buffers, steps) == expected


@given(
    st.integers(1, 12),
    st.integers(1, 40),
    st.data(),
    st.integers(1, 15),
    st.integers(1, 15),
)
def test_one_buffer_on_the_map(steps: int, size: int, data: st.DataObject, columns: int, rows: int) -> None:
    """A patch is filled exactly when the buffer covers at least half of it."""
    start = data.draw(st.integers(0, steps - 1))
    end = data.draw(st.integers(start + 1, steps))
    offset = data.draw(st.integers(0, size - 1))
    height = data.draw(st.integers(1, size - offset))
    grid = memory_map(
        arena(size, buffer("a", A, offset, height, start, end)), steps, columns=columns, rows=rows
    )
    columns, rows = min(columns, steps), min(rows, size)
    for y, row in enumerate(reversed(grid.rows)):
        for x, cell in enumerate(row):
            width = overlap(x * steps, (x + 1) * steps, start * columns, end * columns)
            tall = overlap(y * size, (y + 1) * size, offset * rows, (offset + height) * rows)
            assert (cell is A) == (2 * width * tall >= steps * size)


def overlap(a: int, b: int, c: int, d: int) -> int:
    return max(0, min(b, d) - max(a, c))


def test_what_keeps_gradients_alive_is_said() -> None:
    assert gradient_notes(pipeline.plan(chain())) == ()
    rules = TrainingRules(clip_global_norm=1.0, accumulate=2)
    clipped, kept = gradient_notes(pipeline.plan(chain(training=rules)))
    assert "ClipByGlobalNorm" in clipped
    assert kept.startswith("4 gradients carry over")


@pytest.mark.parametrize(
    ("proof", "checkable", "words"),
    [
        (Proof.MAX_LOAD, True, "live at step 3: anyone can add it up"),
        (Proof.SOLVER, False, "cannot be checked without trust"),
        (None, False, "No proof"),
    ],
)
def test_what_a_proof_asks_one_to_trust(proof: Proof | None, checkable: bool, words: str) -> None:
    certificate = Certificate(Status.OPTIMAL if proof else Status.FEASIBLE, proof, 12, 3, "cp-sat")
    (found,) = report(plan(4, Arena("arena", 12, certificate, ()))).arenas
    assert (found.certificate, found.is_checkable) == (certificate, checkable)
    assert words in certificate_note(certificate)


def test_what_is_in_place() -> None:
    """Flattening keeps the bytes: the activation and its derivative, 128 bytes each."""
    assert sharing(pipeline.plan(convolutional())) == SharingReport(values=0, views=0, size=0)
    made = pipeline.plan(convolutional(), PlanOptions(in_place=True))
    assert sharing(made) == SharingReport(values=2, views=2, size=256)


def test_a_part_of_a_buffer_counts_with_its_own_size() -> None:
    span = Lifespan(0, 2)
    whole = buffer("a", A, 0, 12, 0, 2)
    parts = (
        AliasedValue("a", A, Lifetime.ITERATION, (12,), "uint8", span, None, False, 0, 12),
        AliasedValue("b", A, Lifetime.ITERATION, (1,), "float32", span, "a", True, 0, 4),
        AliasedValue("c", A, Lifetime.ITERATION, (3,), "uint8", span, "a", False, 4, 3),
    )
    found = sharing(plan(2, arena(12, replace(whole, alignment=2, aliases=parts))))
    assert found == SharingReport(values=2, views=1, size=4 + 4)
