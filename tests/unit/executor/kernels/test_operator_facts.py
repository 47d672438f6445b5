"""Facts that proofs of plans trust, for every operator and every step that training can ask for.

A step writes all of what it writes and takes nothing from what its memory held; it changes nothing that it
only reads; what an operator says that a result ignores has no influence on it; copies are copies; promises
of one memory for source and target are kept.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from solver.errors import InternalError, UnknownOperatorError
from solver.executor.kernels import kernels_for
from solver.graph.ops import FAMILIES, OPERATOR_NAMES, lookup
from solver.graph.ops.base import InPlace, OperationType
from solver.graph.types import Array
from tests.support.every import ALL, grid
from tests.support.one_node import node_of
from tests.support.operator_cases import CASES
from tests.support.operator_steps import Case, OperatorStep, steps_of

#: Patterns of outputs and scratch: NaN and zero, and floats and integers that nothing contains.
FILLS = ((0x00, 0x00), (0x5A, 0x3C), (0xFF, 0x00))


@cache
def steps(type_: str) -> Sequence[tuple[Case, OperatorStep]]:
    """Sets of derivatives between one and all of them are many: by default they are left out."""
    return [
        (case, step)
        for case in CASES
        if case.type == type_
        for step in steps_of(case)
        if ALL or step.takes_one_or_all
    ]


def other_values(value: Array) -> Iterator[Array]:
    """Every element NaN (-1, true), and every element another one."""
    yield np.frombuffer(b"\xff" * value.nbytes, value.dtype).reshape(value.shape)
    yield np.asarray(value[..., ::-1] if value.ndim else value) * 3 + 1


@grid("type_", OPERATOR_NAMES)
def test_a_step_writes_every_byte_and_reads_no_byte_that_it_was_not_given(type_: str) -> None:
    """Also not those of scratch; `run` holds that what is only read stays so. By default two patterns."""
    for turn, (case, step) in enumerate(steps(type_)):
        expected = step.run()
        for written, scratch in FILLS if ALL else FILLS[turn % len(FILLS) :][:1]:
            assert step.run(written=written, scratch=scratch) == expected, f"{case} {step}"


@grid("type_", OPERATOR_NAMES)
def test_what_a_result_ignores_has_no_influence_on_it(type_: str) -> None:
    for case, step in steps(type_):
        facts = {
            slot: step.kind.ignores(step.node, step.forward, slot) & step.reads.keys() for slot in step.writes
        }
        expected = step.run() if any(facts.values()) else {}
        for slot, names in facts.items():
            for ignored in names:
                for value in other_values(step.reads[ignored]):
                    found = step.run(changed={ignored: value.astype(step.reads[ignored].dtype)})
                    assert found[slot] == expected[slot], f"{case} {step}: {ignored} changes {slot}"


@pytest.mark.parametrize(
    "type_", ["BatchNormalization", "LayerNormalization", "RMSNormalization", "Gemm", "Conv", "Mul", "Div"]
)
def test_what_a_result_does_not_ignore_has_influence(type_: str) -> None:
    """Facts are not only true but complete, where a proof would else refuse a right plan."""
    influences: dict[tuple[bool, str, str], bool] = {}
    for _, step in steps(type_):
        for slot in step.writes:
            for read in step.reads.keys() - step.kind.ignores(step.node, step.forward, slot):
                poison, *_ = other_values(step.reads[read])
                key = (step.forward, slot, read)
                if not influences.get(key):
                    influences[key] = step.run(changed={read: poison})[slot] != step.run()[slot]
    assert [key for key, seen in influences.items() if not seen] == []


@grid("type_", OPERATOR_NAMES)
def test_copies_are_copies_in_memory_of_their_own_and_all_in_one(type_: str) -> None:
    for case, step in steps(type_):
        copies = {
            c.target: c.source
            for c in step.kind.copies(step.node, step.forward)
            if c.target in step.writes and c.source in step.reads
        }
        if not copies:
            continue
        found = step.run()
        for target, source in copies.items():
            assert found[target] == step.reads[source].tobytes(), f"{case} {step}: {target}"
        assert step.run(shared=copies) == found, f"{case} {step}"


def test_who_copies() -> None:
    found = {
        (step.kind.name, copy.source, copy.target)
        for type_ in OPERATOR_NAMES
        for _, step in steps(type_)
        for copy in step.kind.copies(step.node, step.forward)
    }
    unmoved = ("Flatten", "Reshape", "Squeeze", "Unsqueeze")
    assert found == {
        *((type_, "x0", "y0") for type_ in (*unmoved, "StopGradient")),
        *((type_, "dy0", "dx0") for type_ in (*unmoved, "Add", "Sub", "ScatterAdd")),
        ("Add", "dy0", "dx1"),
    }


def positions(step: OperatorStep, target: str) -> dict[str, int]:
    """Where a result begins, and all that it is put together from, counted from the first of them."""
    parts = [part for part in step.kind.parts(step.node, step.forward) if part.target == target]
    if not parts or not all(part.source in step.reads for part in parts):
        return {}
    found = {target: 0, **{part.source: part.target_start - part.start for part in parts}}
    return {slot: at - min(found.values()) for slot, at in found.items()}


@grid("type_", OPERATOR_NAMES)
def test_parts_are_what_a_result_is_put_together_from(type_: str) -> None:
    """In memory of its own, and where the parts lie: then the step changes no byte of them."""
    for case, step in steps(type_):
        for target in step.writes:
            laid = positions(step, target)
            if not laid:
                continue
            parts = [part for part in step.kind.parts(step.node, step.forward) if part.target == target]
            found = step.run()
            joined = b"".join(
                step.reads[part.source].tobytes()[part.start : part.start + part.nbytes]
                for part in sorted(parts, key=lambda part: part.target_start)
            )
            assert found[target] == joined, f"{case} {step}: {target}"
            assert step.run(laid=laid) == found, f"{case} {step}: {target}"


def test_who_is_put_together_from_parts() -> None:
    found = {
        (step.kind.name, step.forward)
        for type_ in OPERATOR_NAMES
        for _, step in steps(type_)
        if any(positions(step, target) for target in step.writes)
    }
    both = {(type_, forward) for type_ in ("Concat", "Split") for forward in (False, True)}
    assert found == {*both, ("Slice", True)}


def test_running_statistics_are_no_part_of_what_batch_normalisation_computes() -> None:
    """So that the step may be repeated after they have changed."""
    case = next(c for c in CASES if c.type == "BatchNormalization" and c.attributes["training_mode"])
    step = next(steps_of(case))
    kind = lookup("BatchNormalization")
    for slot in ("y0", "mean", "inverse_deviation"):
        assert {"x3", "x4"} <= kind.ignores(step.node, True, slot)
    assert kind.ignores(step.node, True, "x3") == {"x1", "x2", "x4"}
    assert kind.ignores(step.node, True, "x4") == {"x1", "x2", "x3"}


@grid("type_", OPERATOR_NAMES)
def test_a_result_depends_on_what_it_is_the_new_version_of(type_: str) -> None:
    """A value that is updated in place never ignores its own old value."""
    for case, step in steps(type_):
        for slot in step.writes.keys() & step.reads.keys():
            assert slot not in step.kind.ignores(step.node, step.forward, slot), str(case)


# -------------------------------------------------------------------------------- one memory for two operands


def kept(type_: str) -> Iterator[tuple[Case, OperatorStep, InPlace]]:
    """Steps and the promises that a planner may use in them: both operands have one size and element type."""
    for case in CASES:
        if case.type != type_:
            continue
        for step in steps_of(case):
            for promise in step.kind.in_place(step.node):
                if promise.source not in step.reads or promise.target not in step.writes:
                    continue
                source, target = step.reads[promise.source], step.writes[promise.target]
                one_size = source.nbytes == target.nbytes and source.dtype == target.dtype.numpy
                if one_size and not (promise.alone and len(step.writes) > 1):
                    yield case, step, promise


@grid("type_", OPERATOR_NAMES)
def test_one_memory_or_two_make_no_difference(type_: str) -> None:
    for case, step, promise in kept(type_):
        expected = step.run()
        found = step.run(shared={promise.target: promise.source})
        assert found == expected, f"{case} {step}: {promise}"
        if promise.view:
            assert found[promise.target] == step.reads[promise.source].tobytes(), f"{case} {step}: {promise}"


@pytest.mark.parametrize("type_", ["Add", "Sub", "Mul", "Div"])
def test_an_operand_that_is_given_twice_may_be_overwritten_too(type_: str) -> None:
    """Both of its slots are promised: what is read twice is one memory, and Y is in it."""
    steps = [next(steps_of(case)) for case in CASES if case.type == type_]
    whole = [step for step in steps if step.reads["x0"].shape == step.reads["x1"].shape]
    assert whole
    for step in whole:
        twice = {"x1": step.reads["x0"]}
        found = step.run(changed=twice, shared={"x1": "x0", "y0": "x0"})
        assert found == step.run(changed=twice), str(step.node.attributes)


@grid("type_", OPERATOR_NAMES)
def test_every_promise_is_put_to_the_test(type_: str) -> None:
    """With a fused activation and without, and with every set of derivatives beside it."""
    made = {
        promise for case in CASES if case.type == type_
        for promise in lookup(type_).in_place(case.operation().node)
    }  # fmt: skip
    assert made == {promise for _, _, promise in kept(type_)}
    assert bool(made) == (type(lookup(type_)).in_place is not OperationType.in_place and type_ != "Pow")


def test_a_power_promises_nothing() -> None:
    """Its backward step reads X, and the derivative of the base is not done with dY when it begins."""
    assert lookup("Pow").in_place(node_of("Pow", [(2, 3, 4), (2, 3, 4)])) == ()


# ------------------------------------------------------------------------------------ where kernels are found


@grid("name", OPERATOR_NAMES)
def test_every_operator_has_kernels(name: str) -> None:
    assert kernels_for(name) is kernels_for(name)


@grid("family", FAMILIES)
def test_a_family_has_the_kernels_of_its_operators_and_no_others(family: str) -> None:
    module = importlib.import_module(f"solver.executor.kernels.{family}")
    assert sorted(module.KERNELS) == sorted(FAMILIES[family])


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(UnknownOperatorError, match="no operator 'Einsum42'"):
        kernels_for("Einsum42")


def test_an_operator_without_kernels_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("solver.executor.kernels.reduction")
    monkeypatch.setattr(module, "KERNELS", {})
    kernels_for.cache_clear()
    with pytest.raises(InternalError, match="'reduction' has no kernels for operator 'ReduceMean'"):
        kernels_for("ReduceMean")
    kernels_for.cache_clear()
