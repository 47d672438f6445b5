"""Programs with pure operations: repeated, paged and reordered, they leave the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.errors import CapacityError, OptionsError, PlanError
from solver.executor import BlockRunner, BlockViews, validate
from solver.executor.blocks import Steps
from solver.graph import DType, TensorType
from solver.pipeline import plan_program, reference_of
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Program, Tier, loads
from solver.reports.verdict import VerdictStatus
from solver.schedules import rerun
from solver.training import Block, BlockOperation, BlockProgram, OperationCost, build_program
from solver.verdict import explain, tradeoff
from solver.verify import prove
from tests.support.every import ALL
from tests.support.small_plans import placed

_Function = Callable[[BlockViews], None]


def _mixed(operation: BlockOperation, seed: int) -> _Function:
    """Writes numbers that depend on every byte of what the operation reads, and on nothing else."""

    def run(blocks: BlockViews) -> None:
        total = np.uint8(seed)
        for name in operation.reads:
            array = blocks[name]
            total = np.uint8((31 * int(total) + int(array.sum(dtype=np.int64)) + array.size) % 251)
        for k, name in enumerate(operation.writes):
            array = blocks[name]
            array[...] = (np.arange(array.size) * (2 * k + 3) + int(total)).astype(np.uint8)

    return run


def training(seed: int, layers: int) -> Steps:
    """A chain of forward operations, backward ones that read what they made, and updates of weights.

    Some of the forward operations read an activation from further back, as residual networks do.
    """
    random = Random(seed)
    size = [random.randint(1, 20) * 64 for _ in range(layers)]
    blocks = [_block("a0", size[0], fed=True)]
    operations = []
    for k in range(1, layers):
        blocks += [_block(f"w{k}", 64), _block(f"a{k}", size[k])]
        reads = (f"a{k - 1}", f"w{k}", *([f"a{k - 2}"] if k > 2 and random.random() < 0.4 else []))
        cost = OperationCost(nanoseconds=random.randint(1, 30))
        operations.append(BlockOperation(f"f{k}", reads, (f"a{k}",), pure=random.random() < 0.9, cost=cost))
    gradient = f"a{layers - 1}"
    for k in reversed(range(1, layers)):
        blocks.append(_block(f"d{k}", size[k - 1]))
        reads = tuple(dict.fromkeys((gradient, f"a{k}", f"a{k - 1}", f"w{k}")))
        over = ((f"d{k}", gradient),) if gradient[0] == "d" and size[k] == size[k - 1] else ()
        operations.append(BlockOperation(f"b{k}", reads, (f"d{k}",), overwrites=over))
        operations.append(BlockOperation(f"u{k}", (f"w{k}", f"d{k}"), (f"w{k}",)))
        gradient = f"d{k}"
    program = build_program("random", blocks, operations, any_order=True)
    return Steps(program, {o.name: _mixed(o, t) for t, o in enumerate(operations)})


def _block(name: str, size: int, *, fed: bool = False) -> Block:
    return Block(name, TensorType((size,), DType.UINT8), fed=fed)


def _trained(steps: Steps, plan: Plan) -> list[bytes]:
    """The weights after each of three iterations."""
    runner = BlockRunner(steps.program, plan, steps.functions)
    weights = [name for name in steps.program.blocks if name[0] == "w"]
    for k, name in enumerate(weights):
        runner.block(name)[...] = k
    after = []
    for iteration in range(3):
        runner.block("a0")[...] = iteration
        runner.run()
        after += [runner.block(name).tobytes() for name in weights]
    runner.close()
    return after


def _options(arena_bytes: int) -> Sequence[PlanOptions]:
    fast = Tier("ram", arena_bytes * 3 // 4, 0, 0)
    slow = Tier("flash", 2**20, 10**8, 10**8)
    less = arena_bytes * 4 // 5
    return (
        PlanOptions(recompute=True, capacity=less),
        PlanOptions(recompute=True, capacity=less, in_place=True, order=True),
        PlanOptions(tiers=(fast, slow)),
        PlanOptions(tiers=(fast, slow), recompute=True, order=True, in_place=True),
    )


@settings(max_examples=12 if ALL else 6, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 8))
def test_every_way_to_less_memory_leaves_the_same_bits(seed: int, layers: int) -> None:
    steps = training(seed, layers)
    usual = plan_program(steps.program, PlanOptions())
    expected = _trained(steps, usual)
    for options in _options(usual.arena_bytes):
        try:
            smaller = plan_program(steps.program, options)
        except CapacityError:
            continue
        except OptionsError:
            assert options.recompute
            assert not any(operation.pure for operation in steps.program.operations)
            continue
        assert smaller.sizes[0] < usual.arena_bytes
        assert _trained(steps, smaller) == expected
        assert validate(steps, smaller, steps=2).identical


@pytest.mark.parametrize(("seed", "layers", "cost"), [(22, 4, 15), (20, 5, 14), (21, 5, 26)])
def test_the_least_cost_is_found_and_proved(seed: int, layers: int, cost: int) -> None:
    """Beside every sequence with up to two repetitions."""
    program = _in_order(seed, layers)
    reference = reference_of(program, PlanOptions())
    usual = plan_program(program, PlanOptions()).arena_bytes
    assert _cheapest(seed, layers, usual - 64) == cost
    for capacity in range(usual - 64, usual // 2, -256):
        cheapest = _cheapest(seed, layers, capacity)
        try:
            plan = plan_program(program, PlanOptions(recompute=True, capacity=capacity))
        except CapacityError:
            assert cheapest is None
            continue
        facts = next(record.facts for record in plan.records if record.name == "recompute")
        # With three repetitions, which are not tried there, a plan may be cheaper.
        assert facts["extra_nanoseconds"] == cheapest or int(facts["repeated_steps"]) > 2
        assert prove(reference, plan) == ()


@pytest.mark.parametrize(("seed", "layers"), [(22, 4), (20, 5), (21, 5), (5, 4)])
def test_curves_and_verdicts_keep_what_they_prove(seed: int, layers: int) -> None:
    """Beside every sequence with up to two repetitions; verdicts may take other orders, and more of them."""
    program = _in_order(seed, layers)
    usual = plan_program(program, PlanOptions()).arena_bytes
    curve = tradeoff(program, points=5)
    assert curve.present.peak == usual
    for point in curve.points[1:]:
        cheapest = _cheapest(seed, layers, point.peak)
        assert curve.floor <= point.peak
        assert cheapest is None or point.bound <= cheapest
        assert point.repeated_steps > 2 or point.extra == cheapest or not point.optimal
    for capacity in range(usual - 64, usual // 2, -512):
        result = explain(program, RequestedOptions(PlanOptions(capacity=capacity)))
        cheapest = _cheapest(seed, layers, capacity)
        if result.status is VerdictStatus.PLAN:
            assert result.arena_bytes is not None
            assert result.arena_bytes <= capacity
        else:
            assert cheapest is None
            assert {remedy.names for remedy in result.remedies} <= {("paging",)}


def _in_order(seed: int, layers: int) -> BlockProgram:
    return replace(training(seed, layers).program, any_order=False)


def _cheapest(seed: int, layers: int, capacity: int) -> int | None:
    """The least nanoseconds of repetitions with which no more bytes are live, by trying all of up to two."""
    reference = reference_of(_in_order(seed, layers), PlanOptions())
    for cost, peak, repeated in _repetitions(seed, layers):
        if peak <= capacity and prove(reference, placed(repeated)) == ():
            return cost
    return None


@cache
def _repetitions(seed: int, layers: int) -> list[tuple[int, int, Program]]:
    """Nanoseconds and most live bytes of every sequence with one or two repetitions, the cheapest first."""
    program = _in_order(seed, layers)
    reference, found = reference_of(program, PlanOptions()), list[tuple[int, int, Program]]()
    order = list(range(len(reference.steps)))
    pure = [t for t, operation in enumerate(program.operations) if operation.pure]
    spots = [(t, place) for t in pure for place in range(t + 1, len(order))]
    for count in (1, 2):
        for chosen in itertools.combinations(spots, count):
            sequence = list(order)
            for t, place in sorted(chosen, key=lambda each: (-each[1], each[0])):
                sequence.insert(place, t)
            repeated = rerun(reference, sequence)
            cost = sum(program.operations[t].cost.nanoseconds or 0 for t, _ in chosen)
            found.append((cost, max(loads(repeated)[0]), repeated))
    return sorted(found, key=lambda row: row[0])


def test_a_plan_that_repeats_what_is_not_pure_is_refused() -> None:
    steps = training(1, 4)
    operations = [replace(operation, pure=False) for operation in steps.program.operations]
    program = replace(steps.program, operations=tuple(operations))
    reference = reference_of(program, PlanOptions())
    wrong = placed(rerun(reference, [0, 0, *range(1, len(operations))]))
    (violation,) = prove(reference, wrong)
    assert violation.rule == "step"
    assert "'f1.again1' runs again, and the program does not say that it is pure" in violation.detail
    pure = replace(program, operations=(replace(operations[0], pure=True), *operations[1:]))
    reference = reference_of(pure, PlanOptions())
    assert prove(reference, placed(rerun(reference, [0, 0, *range(1, len(operations))]))) == ()


def test_an_operation_with_hidden_state_is_named() -> None:
    steps = training(2, 5)
    drawn = itertools.count()

    def draws(blocks: BlockViews) -> None:
        blocks["a2"][...] = next(drawn) % 251

    name = next(o.name for o in steps.program.operations if o.writes == ("a2",))
    changed = [replace(o, pure=True) if o.name == name else o for o in steps.program.operations]
    steps = Steps(replace(steps.program, operations=tuple(changed)), {**steps.functions, name: draws})
    with pytest.raises(PlanError, match=f"Operation '{name}' says that it is pure, but its second run"):
        validate(steps, plan_program(steps.program), steps=1)


def test_nothing_pure_may_not_recompute() -> None:
    """A curve would have one point; a verdict has no more than paging."""
    steps = training(3, 4)
    operations = tuple(replace(o, pure=False) for o in steps.program.operations)
    bare = replace(steps.program, operations=operations)
    with pytest.raises(OptionsError, match="No operation of 'random' may run again, since none says"):
        tradeoff(bare)
    usual = plan_program(bare, PlanOptions(in_place=True)).arena_bytes
    result = explain(bare, RequestedOptions(PlanOptions(capacity=usual * 4 // 5)))
    assert result.status is not VerdictStatus.PLAN
    assert {remedy.names for remedy in result.remedies} <= {("paging",)}
    with pytest.raises(OptionsError, match="none says that it is pure"):
        plan_program(
            replace(steps.program, operations=operations), PlanOptions(recompute=True, capacity=10**6)
        )
