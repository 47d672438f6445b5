"""Facts that proofs of plans trust, for every operator and every step that training can ask for.

A step writes all of what it writes and takes nothing from what its memory held; it changes nothing that it
only reads; what an operator says that a result ignores has no influence on it; copies are copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest

from solver.graph.ops import OPERATOR_NAMES, lookup
from solver.graph.types import Array
from tests.support.every import ALL, grid
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
