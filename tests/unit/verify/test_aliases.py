"""Buffers that hold several operands: every wrong claim is named, and every read of what is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from solver.layout.model.problem import Lifespan
from solver.pipeline import plan
from solver.plan import Plan, PlannedBuffer, PlanOptions, Tenant, Violation, verify
from solver.training.program import Lifetime
from tests.support.graphs import Sketch, convolutional, residual
from tests.support.operator_graphs import attention, elementwise

IN_PLACE = PlanOptions(in_place=True)


@pytest.fixture(scope="module")
def good() -> Plan:
    """z, then y0 over it, a view y1 of that; backward the other way round. z also feeds a branch before."""
    s = Sketch("tenants")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    branch = s.op("Gemm", [z, s.parameter("u", 4, 4)], "branch")
    y = s.op("Relu", [z], "y0")
    y = s.op("Reshape", [y, s.integers("shape", -1, 4)], "y1")
    h = s.op("Gemm", [y, s.parameter("v", 4, 4)], "h", transB=1)
    s.op("MeanSquaredError", [s.op("Add", [h, branch], "sum"), s.label("t", 3, 4)], "loss")
    return plan(s.graph(trainable=("v",)), IN_PLACE)


def buffer(found: Plan, name: str) -> PlannedBuffer:
    return next(b for _, b in found.buffers() if name in [operand.id for operand in b.operands])


def with_buffer(found: Plan, name: str, change: Callable[[PlannedBuffer], PlannedBuffer]) -> Plan:
    arena = found.arenas[0]
    wanted = buffer(found, name)
    buffers = tuple(change(b) if b is wanted else b for b in arena.buffers)
    return replace(found, arenas=(replace(arena, buffers=buffers),))


def with_tenant(found: Plan, name: str, **changes: object) -> Plan:
    def change(b: PlannedBuffer) -> PlannedBuffer:
        tenants = tuple(
            replace(tenant, **changes) if tenant.id == name else tenant  # type: ignore[arg-type]  # any field
            for tenant in b.tenants
        )
        return replace(b, tenants=tenants)

    return with_buffer(found, name, change)


def with_step(found: Plan, step_id: str, **changes: tuple[str, ...] | str) -> Plan:
    steps = tuple(
        replace(s, **changes) if s.id == step_id else s  # type: ignore[arg-type]  # any field
        for s in found.steps
    )
    return replace(found, steps=steps)


def said(found: Plan) -> str:
    """All that is said under the rule in-place, which must be something."""
    details = [violation.detail for violation in verify(found) if violation.rule == "in-place"]
    assert details
    return " | ".join(details)


def test_right_plans_have_no_violations(good: Plan) -> None:
    assert verify(good) == ()
    for graph in (residual(), convolutional(), attention(), elementwise()):
        for workers in (1, 3):
            assert verify(plan(graph, PlanOptions(in_place=True, parallelism=workers))) == ()


def test_the_tenants_of_the_example(good: Plan) -> None:
    found = [(t.id, t.source, t.view) for t in buffer(good, "z").tenants]
    assert found == [("z", None, False), ("y0", "z", False), ("y1", "y0", True)]
    assert buffer(good, "w").tenants == ()
    (alone,) = buffer(good, "w").operands
    assert (alone.id, alone.source, alone.lifetime) == ("w", None, Lifetime.MAX)


def test_a_step_that_reads_what_was_overwritten(good: Plan) -> None:
    """A later reader is put in by hand: the trap that the verifier is there for."""
    found = with_step(good, "h.op:forward", uses=("y1", "v", "z"))
    violations = verify(with_tenant(found, "z", lifespan=buffer(good, "z").lifespan))
    (gone,) = [v for v in violations if v.rule == "in-place"]
    assert gone == Violation(
        "in-place", ("z",), "Step 'h.op:forward' reads 'z', whose bytes hold 'y0' and 'y1'."
    )


def test_the_same_without_the_lifespan_is_named_twice(good: Plan) -> None:
    found = verify(with_step(good, "h.op:forward", uses=("y1", "v", "z")))
    assert {v.rule for v in found} == {"lifespan", "in-place"}


def test_a_step_that_reads_another_operand_while_it_overwrites_it(good: Plan) -> None:
    found = with_step(good, "y1.op:forward", uses=("y0", "z"))
    assert "reads 'z', whose bytes hold 'y0'" in said(found)


def test_a_view_that_is_none(good: Plan) -> None:
    """Relu does not leave the bytes as they are, whatever the plan says."""
    assert "is of kind Relu, which makes no view 'y0'" in said(with_tenant(good, "y0", view=True))


def test_a_view_that_is_said_to_overwrite(good: Plan) -> None:
    """y0 is then gone, and nobody notices unless it is read: here nobody reads it."""
    found = verify(with_tenant(good, "y1", view=False))
    assert found == ()
    later = with_step(with_tenant(good, "y1", view=False), "h.op:forward", uses=("y1", "v", "y0"))
    assert "reads 'y0', whose bytes hold 'y1'" in said(later)


def test_a_source_that_the_step_does_not_read(good: Plan) -> None:
    found = with_tenant(good, "y1", source="z")
    assert "defines 'y1' in the memory of 'z' without reading that" in said(found)


def test_a_tenant_without_a_source(good: Plan) -> None:
    text = said(with_tenant(good, "y0", source=None))
    assert "'y0' does not say whose memory it takes" in text
    assert "defines 'y0' where 'z' is" in text


def test_a_first_tenant_that_is_not_the_buffer(good: Plan) -> None:
    found = with_buffer(good, "z", lambda b: replace(b, tenants=(b.tenants[1], b.tenants[0], b.tenants[2])))
    assert "'z' must be the first tenant" in said(found)


def test_tenants_of_another_size_or_type(good: Plan) -> None:
    assert "does not have the size" in said(with_tenant(good, "y0", shape=(3, 5)))
    assert "does not have the size" in said(with_tenant(good, "y1", dtype="float64"))


def test_a_buffer_that_does_not_live_as_long_as_its_tenants(good: Plan) -> None:
    def longer(b: PlannedBuffer) -> PlannedBuffer:
        return replace(b, lifespan=Lifespan(b.lifespan.start, b.lifespan.end + 1))

    assert "its tenants [" in said(with_buffer(good, "z", longer))


def test_a_tenant_that_is_kept_longer_than_its_buffer_says(good: Plan) -> None:
    last = len(good.steps)
    found = with_tenant(good, "y1", lifetime=Lifetime.EPOCH, lifespan=Lifespan(2, last))
    assert "has the lifetime iteration, a tenant epoch" in said(found)


def test_a_tenant_that_carries_over_has_to_be_the_first(good: Plan) -> None:
    found = with_tenant(good, "y1", lifetime=Lifetime.MAX, lifespan=Lifespan(0, len(good.steps)))
    assert "'y1' carries over, but others are in its place before" in said(found)


def test_a_result_that_is_overwritten(good: Plan) -> None:
    last = len(good.steps)
    found = with_tenant(good, "z", lifetime=Lifetime.EPOCH, lifespan=Lifespan(0, last))
    assert "'z' is read after the last step, but overwritten before" in said(found)


def test_an_input_that_is_overwritten() -> None:
    s = Sketch("view")
    x = s.op("Flatten", [s.input("x", 3, 2, 2)], "flat")
    s.op("MeanSquaredError", [s.op("Gemm", [x, s.parameter("w", 4, 4)], "y"), s.label("t", 3, 4)], "loss")
    made = plan(s.graph(), IN_PLACE)
    assert verify(made) == ()
    text = said(with_tenant(made, "flat", view=False))
    assert "overwrites 'x', which is the caller's, with 'flat'" in text


def test_scratch_in_shared_memory(good: Plan) -> None:
    found = with_step(good, "branch.op:forward", scratch=("y0",))
    assert "has the scratch 'y0' in a buffer that holds operands" in said(found)


def test_an_operand_defined_twice(good: Plan) -> None:
    found = with_step(good, "h.op:forward", defs=("h", "y0"))
    assert "defines 'y0' again" in said(found)


def test_two_operands_in_one_place_at_once(good: Plan) -> None:
    tenants = buffer(good, "z").tenants
    other = replace(tenants[1], id="branch")

    def crowded(b: PlannedBuffer) -> PlannedBuffer:
        return replace(b, tenants=(*tenants, other))

    arena = with_buffer(good, "z", crowded).arenas[0]
    found = replace(
        good, arenas=(replace(arena, buffers=tuple(b for b in arena.buffers if b.id != "branch")),)
    )
    found = with_step(found, "y0.op:forward", defs=("y0", "branch"))
    assert "overwrites 'z' with 'y0' and 'branch'" in said(found)


def test_an_operand_read_while_another_takes_its_bytes(good: Plan) -> None:
    """Softmax over y1 would change y0, its view, under the kernel's hands."""
    tenants = buffer(good, "z").tenants
    new = Tenant(
        "h", tenants[0].kind, Lifetime.ITERATION, (3, 4), "float32", Lifespan(4, 6), "y1", view=False
    )
    moved = with_buffer(good, "z", lambda b: replace(b, tenants=(*tenants, new)))
    found = with_step(moved, "h.op:forward", uses=("y1", "v", "y0"))
    assert "overwrites 'y0' with 'h' while it reads it" in said(found)


def test_steps_of_one_wave_leave_what_another_overwrites_alone(good: Plan) -> None:
    """branch reads z, y0 overwrites it: in one wave nobody knows which comes first."""
    ids = [step.id for step in good.steps]
    t, u = ids.index("branch.op:forward"), ids.index("y0.op:forward")
    assert u == t + 1
    waves = [k if k <= t else k - 1 for k in range(len(ids))]
    steps = tuple(replace(s, wave=wave) for s, wave in zip(good.steps, waves, strict=True))
    text = said(replace(good, steps=steps, options=replace(good.options, parallelism=2)))
    assert "touches 'z' while another step of its wave overwrites it" in text


def test_each_operand_is_named_once(good: Plan) -> None:
    doubled = with_buffer(good, "z", lambda b: replace(b, tenants=(*b.tenants, b.tenants[-1])))
    assert "unique" in {v.rule for v in verify(doubled)}


def test_a_tenant_must_live_when_it_is_touched(good: Plan) -> None:
    found = verify(with_tenant(good, "y1", lifespan=Lifespan(0, 3)))
    assert ("lifespan", ("y1",)) in {(v.rule, v.buffers) for v in found}
