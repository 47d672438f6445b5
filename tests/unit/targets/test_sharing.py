"""One buffer for the operands that share memory."""

from __future__ import annotations

import pytest

from solver.graph.types import DType, TensorType
from solver.layout import Lifespan
from solver.targets import TargetBuffer
from solver.targets.sharing import together
from solver.training.program import Lifetime, OperandKind


def buffer(name: str, start: int, end: int, lifetime: Lifetime = Lifetime.ITERATION) -> TargetBuffer:
    type_ = TensorType((3, 5), DType.FLOAT32)
    return TargetBuffer(name, OperandKind.ACTIVATION, lifetime, type_, Lifespan(start, end), 64)


ALONE = (buffer("a", 0, 3), buffer("b", 1, 4), buffer("c", 2, 6), buffer("d", 5, 7))


def test_without_shares_nothing_changes() -> None:
    assert together(ALONE, {}) == ALONE


def test_a_chain_is_one_buffer_in_the_place_of_its_first_operand() -> None:
    found = together(ALONE, {"b": ("a", True), "d": ("b", False)})
    assert [b.id for b in found] == ["a", "c"]
    joint = found[0]
    assert joint.lifespan == Lifespan(0, 7)
    assert [(t.buffer.id, t.source, t.view) for t in joint.tenants] == [
        ("a", None, False),
        ("b", "a", True),
        ("d", "b", False),
    ]
    assert [t.buffer.lifespan for t in joint.tenants] == [
        ALONE[0].lifespan,
        ALONE[1].lifespan,
        ALONE[3].lifespan,
    ]
    assert found[1] == ALONE[2]
    assert joint.size == ALONE[0].size


@pytest.mark.parametrize("longer", [Lifetime.EPOCH, Lifetime.MAX])
@pytest.mark.parametrize("first", [True, False])
def test_the_buffer_is_kept_as_long_as_its_most_lasting_tenant(longer: Lifetime, first: bool) -> None:
    lifetimes = (longer, Lifetime.ITERATION) if first else (Lifetime.ITERATION, longer)
    a, b = buffer("a", 0, 3, lifetimes[0]), buffer("b", 1, 4, lifetimes[1])
    (joint,) = together((a, b), {"b": ("a", True)})
    assert joint.lifetime is longer


def test_several_storages() -> None:
    found = together(ALONE, {"b": ("a", False), "d": ("c", False)})
    assert [(b.id, len(b.tenants)) for b in found] == [("a", 2), ("c", 2)]
