"""Programs that run in their planned arena: views, workspaces, permissions, and undeclared accesses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.documents import dump_program, load_program
from solver.errors import DanglingOperandError, OptionsError, PlanError
from solver.executor import BlockRunner, BlockViews
from solver.graph import DType, TensorType
from solver.pipeline import plan_program, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import EntryKind
from solver.training import Block, BlockOperation, BlockProgram, BlockView, build_program
from tests.support.programs import program
from tests.support.small_plans import placed, repeated

Functions = dict[str, Callable[[BlockViews], None]]

#: Momentum on one weight: w and m carry over from one iteration to the next.
MOMENTUM = program((("w x", "g"), ("m g", "m"), ("w m", "w")), fed=("x",), dtype=DType.FLOAT32)


def _gradient(v: BlockViews) -> None:
    np.multiply(v["w"], v["x"], out=v["g"])


def _momentum(v: BlockViews) -> None:
    v["m"][:] = np.float32(0.5) * v["m"] + v["g"]


def _update(v: BlockViews) -> None:
    v["w"][:] -= np.float32(0.25) * v["m"]


FUNCTIONS: Functions = {"op0": _gradient, "op1": _momentum, "op2": _update}


def runner(made: BlockProgram = MOMENTUM, **changes: Callable[[BlockViews], None]) -> BlockRunner:
    return BlockRunner(made, plan_program(made), FUNCTIONS | changes)


def test_values_carry_over_from_iteration_to_iteration() -> None:
    running = runner()
    running.block("w")[:], running.block("m")[:] = 1.0, 0.0
    w, m = np.float32(1), np.float32(0)
    for x in (1.0, 2.0, -1.0):
        running.block("x")[:] = x
        running.run()
        m = np.float32(0.5) * m + w * np.float32(x)
        w = w - np.float32(0.25) * m
        assert (float(running.block("w")[0]), float(running.block("m")[0])) == (float(w), float(m))


def test_what_is_dead_is_poison() -> None:
    running = runner()
    running.block("w")[:], running.block("m")[:], running.block("x")[:] = 1.0, 0.0, 1.0
    running.run()
    assert np.isnan(running.block("g")).all()


def test_undeclared_reads_are_refused() -> None:
    def peek(v: BlockViews) -> None:
        v["m"][:] = v["x"]

    running = runner(op1=peek)
    with pytest.raises(DanglingOperandError, match="'op1' touches 'x' without declaring it"):
        running.run()


def test_undeclared_writes_are_refused() -> None:
    def scribble(v: BlockViews) -> None:
        v["m"][:] = 0.0

    running = runner(op2=scribble)
    with pytest.raises(ValueError, match="read-only"):
        running.run()


def test_a_write_that_secretly_reads_finds_poison() -> None:
    def accumulate(v: BlockViews) -> None:
        v["g"][:] = v["g"] + v["x"]

    running = runner(op0=accumulate)
    running.block("w")[:], running.block("m")[:], running.block("x")[:] = 1.0, 0.0, 1.0
    running.run()
    assert np.isnan(running.block("w")).all()


def test_the_plan_of_another_program_is_refused() -> None:
    other = program((("w x", "g"), ("m g", "m"), ("w m", "w")), fed=("x",), dtype=DType.FLOAT64)
    with pytest.raises(PlanError, match="do not belong together"):
        BlockRunner(other, plan_program(MOMENTUM), FUNCTIONS)
    shuffled = program((("m g", "m"), ("w x", "g"), ("w m", "w")), dtype=DType.FLOAT32)
    with pytest.raises(PlanError, match="do not belong together"):
        BlockRunner(shuffled, plan_program(MOMENTUM), FUNCTIONS)


def test_a_wrong_plan_is_not_run() -> None:
    made = plan_program(MOMENTUM)
    stacked = replace(made, offsets=(0,) * len(made.offsets))
    with pytest.raises(PlanError, match="The plan is wrong"):
        BlockRunner(MOMENTUM, replace(stacked, sizes=(64,)), FUNCTIONS)


def test_every_operation_needs_a_function() -> None:
    with pytest.raises(PlanError, match="'op1' has no function"):
        BlockRunner(MOMENTUM, plan_program(MOMENTUM), {"op0": _gradient, "op2": _update})


def test_an_operation_finds_what_its_step_binds_whatever_that_is_called() -> None:
    """A plan in which an operation runs again, into a place of its own, for a later reader."""
    made = program((("x", "a"), ("a", "b"), ("a b", "c")), fed=("x",), kept=("c",), dtype=DType.FLOAT32)
    made = replace(made, operations=tuple(replace(each, pure=True) for each in made.operations))
    once = plan_program(made)
    again = placed(repeated(reference_of(made, once.options), 0, 2))
    functions: Functions = {
        "op0": lambda v: np.copyto(v["a"], v["x"]),
        "op1": lambda v: np.copyto(v["b"], v["a"] + np.float32(1)),
        "op2": lambda v: np.copyto(v["c"], v["a"] * v["b"]),
    }
    again = replace(again, graph_digest=once.graph_digest, reference_digest=once.reference_digest)
    running = BlockRunner(made, replace(again, options=once.options), functions)
    running.block("x")[:] = 3.0
    running.run()
    assert float(running.block("c")[0]) == 12.0


# -------------------------------------------------------------------------- views, workspaces and permissions


def _mixed(operation: BlockOperation, blocks: Any) -> None:
    """Every byte that it reads changes every byte that it writes; all are read before one is written."""
    total = len(operation.name)
    for name in operation.reads:
        found = np.asarray(blocks[name], np.int64).ravel()
        total += int((found * np.arange(1, found.size + 1)).sum())
    for k, name in enumerate(operation.writes):
        target = blocks[name]
        target[...] = ((total + k + np.arange(target.size)) % 251).reshape(target.shape)


class Apart:
    """The blocks of a program, each in memory of its own, and views of them."""

    def __init__(self, program: BlockProgram) -> None:
        self.program = program
        self.memory = {
            b.name: np.zeros(b.type.nbytes, np.uint8) for b in program.blocks.values() if b.view is None
        }

    def __getitem__(self, name: str) -> Any:
        block = self.program.blocks[name]
        if block.view is None:
            return self.memory[name].reshape(block.type.shape)
        strides = block.view.byte_strides(block.type)
        return np.ndarray(block.type.shape, np.uint8, self.memory[block.view.of], block.view.offset, strides)


def same_results(program: BlockProgram, made: Plan, iterations: int = 2) -> bool:
    """Whether what is kept or carries over is the same, bit for bit, after each iteration."""
    runner = BlockRunner(program, made, {o.name: partial(_mixed, o) for o in program.operations})
    apart, random = Apart(program), np.random.default_rng(1)
    label = [value.label for value in made.program.values]
    fed = {label[entry.value] for entry in made.program.entry if entry.kind is EntryKind.FED}
    for name in {label[entry.value] for entry in made.program.entry} - fed:
        runner.block(name)[...] = apart[name][...] = random.integers(256, size=apart[name].shape)
    for _ in range(iterations):
        for name in sorted(fed):
            runner.block(name)[...] = apart[name][...] = random.integers(256, size=apart[name].shape)
        runner.run()
        for operation in program.operations:
            _mixed(operation, apart)
        if any((runner.block(label[e.value]) != apart[label[e.value]]).any() for e in made.program.exit):
            return False
    return True


def uint8(*shape: int) -> TensorType:
    return TensorType(shape, DType.UINT8)


@st.composite
def programs_with_views(draw: st.DrawFn) -> BlockProgram:
    """Blocks of rows and columns, their slices, transposes and repetitions, and what touches them."""
    blocks, sizes = [], st.sampled_from([1, 2, 3, 4])
    for k in range(draw(st.integers(1, 4))):
        rows, columns = draw(sizes), draw(sizes)
        blocks.append(Block(f"b{k}", uint8(rows, columns), kept=draw(st.booleans())))
        if draw(st.booleans()):
            blocks.append(Block(f"b{k}.t", uint8(columns, rows), view=BlockView(f"b{k}", 0, (1, columns))))
        if draw(st.booleans()):
            first = draw(st.integers(0, columns - 1))
            view = BlockView(f"b{k}", first, (columns, 1))
            blocks.append(
                Block(f"b{k}.columns", uint8(rows, draw(st.integers(1, columns - first))), view=view)
            )
        if draw(st.booleans()):
            first = draw(st.integers(0, rows - 1))
            blocks.append(Block(f"b{k}.row", uint8(columns), view=BlockView(f"b{k}", first * columns)))
        if draw(st.booleans()):
            blocks.append(Block(f"b{k}.again", uint8(3, columns), view=BlockView(f"b{k}", 0, (0, 1))))
    names = st.lists(st.sampled_from([b.name for b in blocks]), unique=True, max_size=3)
    operations = []
    for t in range(draw(st.integers(1, 8))):
        reads, writes = draw(names), [n for n in draw(names) if not n.endswith(".again")]
        if reads or writes:
            operations.append(BlockOperation(f"op{t}", tuple(reads), tuple(writes), "", (), draw(sizes)))
    if not operations:
        operations = [BlockOperation("op", (blocks[0].name,), ())]
    touched = {name for operation in operations for name in operation.touched}
    bases = {b.view.of for b in blocks if b.view is not None and b.name in touched}
    whole = {b.name: b for b in blocks if b.view is None}
    operations = [_with_permissions(draw, operation, whole) for operation in operations]
    declared = [b for b in blocks if b.name in touched | bases]
    if any(b.name not in touched for b in declared):  # a block behind its views is touched by them alone
        operations.append(BlockOperation("last", tuple(b.name for b in declared if b.name not in touched)))
    return build_program("random", declared, operations, any_order=True)


def _with_permissions(draw: st.DrawFn, operation: BlockOperation, whole: dict[str, Block]) -> BlockOperation:
    pairs = [
        (target, source)
        for target in operation.writes
        for source in operation.reads
        if target in whole and source in whole and target not in operation.reads
        and source not in operation.writes and whole[target].type.nbytes == whole[source].type.nbytes
        and draw(st.booleans())
    ]  # fmt: skip
    return BlockOperation(
        operation.name, operation.reads, operation.writes, "", tuple(pairs[:1]), operation.workspace
    )


@settings(max_examples=60, deadline=None)
@given(programs_with_views(), st.booleans(), st.sampled_from([1, 2]), st.sampled_from([1, 64]))
def test_in_the_arena_nothing_changes(
    program: BlockProgram, in_place: bool, parallelism: int, alignment: int
) -> None:
    made = plan_program(program, PlanOptions(in_place=in_place, parallelism=parallelism, alignment=alignment))
    assert same_results(program, made)
    assert load_program(dump_program(program)) == program


def attention(*, views: bool) -> BlockProgram:
    """A product cut into three, with views or with copies; the last one is expanded to rows."""
    types = {"x": uint8(64, 64), "qkv": uint8(64, 192), "y": uint8(64, 64), "row": uint8(64)}
    blocks = [Block(name, type_, fed=name in ("x", "row"), kept=name == "y") for name, type_ in types.items()]
    blocks[3] = Block("row", uint8(64), fed=True)
    operations = [BlockOperation("project", ("x",), ("qkv",))]
    for k, name in enumerate("qkv"):
        view = BlockView("qkv", 64 * k, (192, 1)) if views else None
        blocks.append(Block(name, uint8(64, 64), view=view))
        operations += [] if views else [BlockOperation(f"split.{name}", ("qkv",), (name,))]
    blocks.append(Block("k.t", uint8(64, 64), view=BlockView("qkv", 64, (1, 192)) if views else None))
    blocks.append(Block("rows", uint8(64, 64), view=BlockView("row", 0, (0, 1)) if views else None))
    if not views:
        operations += [
            BlockOperation("transpose", ("k",), ("k.t",)),
            BlockOperation("expand", ("row",), ("rows",)),
        ]
    else:
        operations.append(BlockOperation("touch", ("k",), ()))
    operations.append(BlockOperation("attend", ("q", "k.t", "v", "rows"), ("y",)))
    return build_program("attention", blocks, operations)


def test_views_take_no_memory() -> None:
    with_views, copied = (plan_program(attention(views=v)) for v in (True, False))
    assert with_views.arena_bytes < copied.arena_bytes
    assert with_views.arena_bytes == 64 * 192 + 64 * 64 + 64
    assert same_results(attention(views=True), with_views)


def halves(*, middle: str = "", last: str = "upper") -> BlockProgram:
    """A buffer that is written in two halves, and then read."""
    blocks = [Block("a", uint8(64), fed=True), Block("whole", uint8(128)), Block("y", uint8(64), kept=True)]
    blocks += [Block(n, uint8(64), view=BlockView("whole", 64 * k)) for k, n in enumerate(("lower", "upper"))]
    operations = [BlockOperation("first", ("a",), ("lower",))]
    operations += [BlockOperation("middle", (middle,), ("a",))] if middle else []
    operations += [BlockOperation("second", ("a",), (last,)), BlockOperation("read", ("whole",), ("y",))]
    if last != "upper":
        operations.append(BlockOperation("also", ("upper",), ()))
    return build_program("halves", blocks, operations)


def test_a_block_written_in_parts_does_not_carry_over() -> None:
    made = plan_program(halves())
    entries = {made.program.values[e.value].label for e in made.program.entry}
    assert entries == {"a"}
    assert same_results(halves(), made)


@pytest.mark.parametrize("program", [halves(middle="whole"), halves(last="lower")])
def test_a_part_that_is_read_before_it_is_written_carries_over(program: BlockProgram) -> None:
    made = plan_program(program)
    assert "whole" in {made.program.values[e.value].label for e in made.program.entry}
    assert same_results(program, made, iterations=3)


def links(*, permitted: bool) -> BlockProgram:
    names = ["x", "a", "b", "c"]
    blocks = [Block(n, uint8(256), fed=n == "x", kept=n == "c") for n in names]
    operations = [
        BlockOperation(f"op{k}", (source,), (target,), "", ((target, source),) if permitted else ())
        for k, (source, target) in enumerate(pairwise(names))
    ]
    return build_program("chain", blocks, operations)


def test_a_permission_is_used_where_the_plan_may() -> None:
    plain, in_place = (
        plan_program(links(permitted=True)),
        plan_program(links(permitted=True), PlanOptions(in_place=True)),
    )
    assert [(a.value, a.source) for a in in_place.program.aliases] != []
    assert not any(alias.view for alias in in_place.program.aliases)
    assert same_results(links(permitted=True), in_place)
    assert in_place.arena_bytes <= plain.arena_bytes
    assert plan_program(links(permitted=False), PlanOptions(in_place=True)).program.aliases == ()


def test_a_plan_that_takes_a_permission_that_is_not_there_is_wrong() -> None:
    made = plan_program(links(permitted=True), PlanOptions(in_place=True))
    with pytest.raises(PlanError):
        BlockRunner(links(permitted=False), made, {f"op{k}": lambda blocks: None for k in range(3)})


def branches(*, any_order: bool) -> BlockProgram:
    """Two large values at the same time, as given; one after the other in another order."""
    sizes = {"x": 64, "b": 4096, "c": 64, "d": 4096, "e": 64, "f": 64}
    blocks = [Block(n, uint8(size), fed=n == "x", kept=n == "f") for n, size in sizes.items()]
    touches = [("x", "b"), ("x", "d"), ("b", "c"), ("d", "e"), ("c e", "f")]
    operations = [BlockOperation(f"op{w}", tuple(r.split()), (w,)) for r, w in touches]
    return build_program("branches", blocks, operations, any_order=any_order)


def test_operations_change_places_where_that_is_permitted() -> None:
    given, made = (
        plan_program(branches(any_order=True)),
        plan_program(branches(any_order=True), PlanOptions(order=True)),
    )
    assert made.arena_bytes < given.arena_bytes - 3000
    assert same_results(branches(any_order=True), made)
    with pytest.raises(OptionsError, match="does not permit another order"):
        plan_program(branches(any_order=False), PlanOptions(order=True))


def _working(seen: list[int], blocks: Any) -> None:
    seen.append(int(blocks.workspace[0]))
    blocks.workspace[:] = 7
    blocks["y"][...] = blocks["x"]


def test_a_workspace_is_there_for_one_operation() -> None:
    blocks = [Block("x", uint8(64), fed=True), Block("y", uint8(64), kept=True)]
    program = build_program("w", blocks, [BlockOperation("work", ("x",), ("y",), workspace=1000)])
    made, seen = plan_program(program), list[int]()
    assert made.arena_bytes == 64 + 64 + 1024
    work: Callable[[Any], None] = partial(_working, seen)
    runner = BlockRunner(program, made, {"work": work})
    for _ in range(2):
        runner.block("x")[...] = 5
        runner.run()
        assert (runner.block("y") == 5).all()
    assert 7 not in seen


def test_an_operation_without_a_workspace_has_none() -> None:
    program = links(permitted=False)
    functions = {f"op{k}": lambda blocks: blocks.workspace for k in range(3)}
    with pytest.raises(DanglingOperandError, match="'op0' has no workspace"):
        BlockRunner(program, plan_program(program), functions).run()
