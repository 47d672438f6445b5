"""Kernels in C beside NumPy's, in every step that the cases of all operators have."""

from __future__ import annotations

import ctypes
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from solver.c_kernels import KERNELS
from solver.graph.ops import OPERATOR_NAMES
from solver.graph.types import Array
from tests.support.c_steps import CSteps, task_of_step
from tests.support.every import ALL
from tests.support.operator_cases import CASES
from tests.support.operator_steps import Case, OperatorStep, steps_of

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

#: How the same steps are compiled: bits must not depend on it.
COMPILERS = (
    ("gcc", "-O2", "-march=native"),
    ("gcc", "-Os", "-DAP_PLAIN", "-DAP_SOFT_ROOT"),
    ("clang", "-O1"),
)


@cache
def computed() -> Sequence[tuple[Case, OperatorStep]]:
    """Each step that a C kernel computes; cases that differ in NumPy's scratch alone are one.

    None of stored weights, which the target refuses.
    """
    seen, found = set[str](), list[tuple[Case, OperatorStep]]()
    for case in CASES:
        if str(case) in seen or case.type not in KERNELS or case.stored:
            continue
        seen.add(str(case))
        kernel, steps = KERNELS[case.type], steps_of(case)
        found += [(case, step) for step in steps if kernel.refusal(task_of_step(step)) is None]
    return found


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> CSteps:
    return CSteps((step for _, step in computed()), tmp_path_factory.mktemp("steps"))


@pytest.fixture(scope="module")
def library(steps: CSteps) -> ctypes.CDLL:
    return steps.compiled(*COMPILERS[0])


def close(ours: Array, theirs: Array, label: str) -> None:
    """Within what another order of sums moves: ratios to the largest element."""
    if ours.dtype.kind != "f":
        np.testing.assert_array_equal(ours, theirs, err_msg=label)
        return
    finite = np.abs(theirs[np.isfinite(theirs)])
    largest = float(finite.max()) if finite.size else 0.0
    np.testing.assert_allclose(ours, theirs, rtol=2e-4, atol=2e-6 * largest + 1e-30, err_msg=label)


def test_results_are_those_of_numpy(steps: CSteps, library: ctypes.CDLL) -> None:
    for case, step in computed():
        expected = step.run()
        for slot, ours in steps.run(library, step).items():
            type_ = step.writes[slot]
            theirs = np.frombuffer(expected[slot], type_.dtype.numpy).reshape(type_.shape)
            close(ours, theirs, f"{case} {step}: {slot}")


#: What one element of an operand holds in turn: the last is subnormal.
SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 1e-42)

#: From this number of operands on, in all steps of an operator, each takes one of these alone by default.
MANY_OPERANDS = 10


def test_special_floats_go_through_as_in_numpy(steps: CSteps, library: ctypes.CDLL) -> None:
    """NaN where NumPy has NaN and infinities where it has them, with one such element in one operand."""
    assert {case.type for case, _ in computed()} == KERNELS.keys() & OPERATOR_NAMES
    swept = [(case, step) for case, step in computed() if step.takes_one_or_all]
    operands = Counter[str]()
    for case, step in swept:
        operands[case.type] += len(step.reads)
    turn = 0
    for case, step in swept:
        as_before = steps.run(library, step) if case.type in ("Conv", "ConvTranspose") else None
        for slot, array in step.reads.items():
            if array.dtype != np.float32:
                continue
            first = turn % len(SPECIAL)
            alone = operands[case.type] >= MANY_OPERANDS and not ALL
            for special in SPECIAL[first : first + 1] if alone else SPECIAL:
                turn += 1
                changed = {slot: array.copy()}
                changed[slot].reshape(-1)[(array.size - 1) * (turn % 7) // 6] = special
                expected = step.run(changed=changed)
                for result, ours in steps.run(library, step, changed=changed).items():
                    theirs = np.frombuffer(expected[result], ours.dtype).reshape(ours.shape)
                    if as_before is not None:
                        # NumPy multiplies some padding by weights and derivatives, C none of it.
                        untouched = ours.view(np.int32) == as_before[result].view(np.int32)
                        theirs = np.where(np.isnan(theirs) & untouched, ours, theirs)
                    label = f"{case} {step}: {result} with {special} in {slot}"
                    if ours.tobytes() != theirs.tobytes():
                        close(ours, theirs, label)


def test_one_memory_or_two_make_no_difference(steps: CSteps, library: ctypes.CDLL) -> None:
    """Where the operator promises that a result may lie in the place of an operand."""
    for case, step in computed():
        for promise in step.kind.in_place(step.node):
            source, target = promise.source, promise.target
            if source not in step.reads or target not in step.writes:
                continue
            if step.reads[source].nbytes != step.writes[target].nbytes:
                continue
            if step.reads[source].dtype != step.writes[target].dtype.numpy:
                continue
            if promise.alone and len(step.writes) > 1:
                continue
            apart = steps.run(library, step)
            together = steps.run(library, step, {target: source})
            for slot, array in apart.items():
                assert array.tobytes() == together[slot].tobytes(), f"{case} {step}: {promise}, {slot}"


@pytest.mark.parametrize("compiler", COMPILERS[1:], ids=" ".join)
def test_bits_are_those_of_every_compiler(
    steps: CSteps, library: ctypes.CDLL, compiler: tuple[str, ...]
) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"needs {compiler[0]}")
    other = steps.compiled(*compiler)
    for case, step in computed():
        theirs = steps.run(other, step)
        for slot, array in steps.run(library, step).items():
            assert array.tobytes() == theirs[slot].tobytes(), f"{case} {step}: {slot}"


def test_powers_are_within_one_unit_of_the_exact_ones(tmp_path: Path) -> None:
    """Of random numbers, and of all pairs of those that are special."""
    rng, count = np.random.default_rng(0), 200_000
    special = np.array(
        [0, -0.0, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e-45, -1e-45, 3e38, 2**24, np.inf, -np.inf, np.nan],
        np.float32,
    )
    bases, exponents = (each.ravel() for each in np.meshgrid(special, special))
    x = np.concatenate([bases, np.exp(rng.uniform(-80, 80, count)), rng.uniform(-3, 3, count)])
    y = np.concatenate([exponents, rng.uniform(-3, 3, count), rng.integers(-9, 9, count)])
    x, y = x.astype(np.float32), y.astype(np.float32)
    step = next(steps_of(Case("Pow", (x, y))))
    alone = CSteps([step], tmp_path)
    ours = alone.run(alone.compiled(*COMPILERS[0]), step)["y0"]
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    assert np.array_equal(np.isnan(ours), np.isnan(exact))
    numbers = ~np.isnan(exact)
    distance = ours.view(np.int32)[numbers].astype(np.int64) - exact.view(np.int32)[numbers]
    assert np.abs(distance).max() <= 1
