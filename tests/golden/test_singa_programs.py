"""The programs of Apache SINGA's scheduler tests: nodes, edges, blocks, what is freed, what is computed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from service.cli.show import render
from solver.documents import dump_program, load_program
from solver.errors import DanglingOperandError
from solver.executor import BlockRunner, BlockViews
from solver.graph import DType
from solver.pipeline import plan_program
from solver.plan import PlanOptions
from solver.reports.arenas import recycling
from solver.training import (
    BlockClass,
    Hazard,
    block_classes,
    carries,
    orderings,
    predecessors,
    value_edges,
)
from tests.support.programs import AUTO_RECYCLE, RUN_GRAPH, independent_pairs, program
from tests.support.proofs import violations

FREED = ((), (), (), (5,), (3,), (2, 6), (8, 11), (7, 13), (9, 10), (12, 14))
AUTO_RECYCLE_BLOCKS = [
    "in", "b1", "mid1", "out", "b2", "mid2", "dy1", "dy2", "dy3", "dx1", "dx2", "db1", "dx3", "db2", "dx",
]  # fmt: skip


class TestAutoRecycle:
    def test_nodes_edges_blocks(self) -> None:
        made = program(AUTO_RECYCLE)
        assert (len(made.operations), len(value_edges(made)), len(made.blocks)) == (10, 21, 15)
        assert list(block_classes(made)) == AUTO_RECYCLE_BLOCKS

    def test_what_is_freed_after_each_operation(self) -> None:
        number = {name: k for k, name in enumerate(AUTO_RECYCLE_BLOCKS)}
        found = recycling(plan_program(program(AUTO_RECYCLE)))
        assert tuple(tuple(sorted(number[name] for name in s.freed)) for s in found.steps) == FREED

    def test_inputs_survive_and_nothing_else(self) -> None:
        found = recycling(plan_program(program(AUTO_RECYCLE)))
        assert found.before == found.kept == ("in", "b1", "b2")

    def test_memory_is_taken_at_the_first_access(self) -> None:
        found = recycling(plan_program(program(AUTO_RECYCLE)))
        assert [" ".join(step.allocated) for step in found.steps] == [
            "mid1", "out", "mid2", "", "dy1 dy2", "dy3 dx1", "dx2 db1", "dx3 db2", "dx", "",
        ]  # fmt: skip

    def test_blocks_beyond_two_gib_change_nothing(self) -> None:
        """SINGA casts the size of a block to `int`; here it is exact, and so are the offsets."""
        number = {name: k for k, name in enumerate(AUTO_RECYCLE_BLOCKS)}
        given = program(AUTO_RECYCLE, sizes=dict.fromkeys(AUTO_RECYCLE_BLOCKS, 3 * 2**30 + 1))
        made = plan_program(given)
        freed = (sorted(number[name] for name in step.freed) for step in recycling(made).steps)
        assert tuple(map(tuple, freed)) == FREED
        assert made.arena_bytes == made.lower_bound > 2**34
        assert violations(given, made) == ()

    @pytest.mark.parametrize("parallelism", [1, 2])
    def test_it_computes_value_and_derivatives_in_its_recycled_arena(self, parallelism: int) -> None:
        """y = (in + b1) in + (in + b2), and SINGA's test starts the backward pass from y itself."""
        made = program(AUTO_RECYCLE, dtype=DType.FLOAT32, kept=("dx", "db1", "db2"))
        runner = BlockRunner(
            made, plan_program(made, PlanOptions(parallelism=parallelism)), AUTO_RECYCLE_FUNCTIONS
        )
        x, b1, b2 = 3.0, -1.0, 2.0
        for name, value in (("in", x), ("b1", b1), ("b2", b2)):
            runner.block(name)[:] = value
        y = (x + b1) * x + (x + b2)
        for _ in range(3):
            runner.run()
            found = [float(runner.block(name)[0]) for name in ("dx", "db1", "db2")]
            assert found == [y * (x + b1) + y * x + y, y * x, y]
        runner.close()

    def test_plan_is_minimal_and_right(self) -> None:
        made = plan_program(program(AUTO_RECYCLE))
        assert made.arena_bytes == made.lower_bound
        assert made.arena_bytes < 64 * 15
        assert violations(program(AUTO_RECYCLE), made) == ()


class TestRunGraph:
    def test_nodes_edges_blocks(self) -> None:
        made = program(RUN_GRAPH)
        assert (len(made.operations), len(value_edges(made)), len(made.blocks)) == (7, 14, 12)

    def test_classes(self) -> None:
        classes = block_classes(program(RUN_GRAPH))
        of = {class_: [n for n, c in classes.items() if c is class_] for class_ in BlockClass}
        assert of[BlockClass.INPUT] == ["in", "b1", "b2"]
        assert of[BlockClass.PARAM] == []
        assert of[BlockClass.END] == ["db2", "db1", "dx"]

    def test_what_no_block_declares_is_refused_when_it_is_read(self) -> None:
        document = json.loads(dump_program(program(RUN_GRAPH)))
        document["blocks"] = [block for block in document["blocks"] if block["name"] != "mid"]
        with pytest.raises(
            DanglingOperandError, match="'op0' writes 'mid', which the program does not declare"
        ):
            load_program(document)

    def test_the_undeclared_reads_of_one_operation_are_refused(self) -> None:
        made = program(RUN_GRAPH, dtype=DType.FLOAT32)
        runner = BlockRunner(made, plan_program(made), FUNCTIONS)
        with pytest.raises(DanglingOperandError, match="'op4' touches 'in' without declaring it"):
            runner.run()

    def test_declared_in_full_it_computes_the_right_values_again_and_again(self) -> None:
        touches = (*RUN_GRAPH[:4], ("dy1 in mid", "dy2 dx1"), *RUN_GRAPH[5:])
        made = program(touches, dtype=DType.FLOAT32, kept=("dx", "db1", "db2"))
        runner = BlockRunner(made, plan_program(made), FUNCTIONS)
        for name, value in (("in", 0), ("b1", -1), ("b2", 2)):
            runner.block(name)[:] = value
        for _ in range(3):
            runner.run()
            assert [float(runner.block(name)[0]) for name in ("dx", "db1", "db2")] == [-2, 0, 2]


class TestMultipleIndependentOps:
    @pytest.mark.parametrize("use_writes", [False, True])
    def test_one_workspace_orders_all_pairs(self, use_writes: bool) -> None:
        made = program(independent_pairs(4, use_writes=use_writes))
        assert (len(made.operations), len(made.blocks)) == (8, 5)
        for t, before in enumerate(predecessors(made)):
            assert t == 0 or t - 1 in before

    def test_why(self) -> None:
        found = {(o.hazard, o.source, o.target) for o in orderings(program(independent_pairs(2)))}
        assert found == {
            (Hazard.RAW, 0, 1), (Hazard.WAR, 1, 2), (Hazard.WAW, 0, 2), (Hazard.RAW, 2, 3),
        }  # fmt: skip

    @pytest.mark.parametrize(("workspaces", "levels"), [(1, 8), (2, 4), (4, 2)])
    def test_as_many_pairs_run_side_by_side_as_there_are_workspaces(
        self, workspaces: int, levels: int
    ) -> None:
        touches = [
            touch
            for k in range(4)
            for touch in (("", f"ws{k % workspaces}"), (f"ws{k % workspaces} b{k}", f"b{k}"))
        ]
        made = plan_program(program(touches), PlanOptions(parallelism=4))
        assert made.duration == levels
        assert violations(program(touches), made) == ()

    def test_the_workspace_is_held_from_the_first_to_the_last_pair(self) -> None:
        made = plan_program(program(independent_pairs(), sizes={"workspace": 1000}))
        found = recycling(made)
        assert found.steps[0].allocated == found.steps[7].freed == ("workspace",)
        assert [step.id for step in made.steps] == [f"op{t}" for t in range(8)]


class TestCyclesAcrossIterations:
    """A block that is read before it is written: what it holds is from the iteration before."""

    MOMENTUM = (("w x", "g"), ("m g", "m"), ("w m", "w"), ("x", "x2"), ("x2", "end"))

    def test_edges_and_classes(self) -> None:
        made = program(self.MOMENTUM, fed=("x",))
        assert {c.block: (c.writer, c.readers) for c in carries(made)} == {"w": (2, (0, 2)), "m": (1, (1,))}
        classes = block_classes(made)
        assert [n for n, c in classes.items() if c is BlockClass.PARAM] == ["w", "m"]
        assert [n for n, c in classes.items() if c is BlockClass.END] == ["end"]

    def test_they_hold_their_bytes_throughout_and_are_never_freed(self) -> None:
        made = plan_program(program(self.MOMENTUM, fed=("x",)))
        found = recycling(made)
        assert (found.before, found.kept) == (("w", "x", "m"), ("w", "m"))
        spans = {b.id: (b.lifespan.start, b.lifespan.end) for _, b in made.buffers()}
        assert (spans["w"], spans["m"], spans["g"], spans["x2"]) == ((0, 5), (0, 5), (0, 2), (3, 5))


def test_show_lists_allocation_and_recycling(capsys: pytest.CaptureFixture[str]) -> None:
    """One line an operation: what it takes at its first touch, what is given back after it."""
    render(plan_program(program(AUTO_RECYCLE)), 100)
    lines = [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("│ op", "│ (")) and line.count("│") == 5
    ]
    assert [line[:3] for line in lines] == [
        ["(before)", "in b1 b2", ""],
        ["op0", "mid1", ""],
        ["op1", "out", ""],
        ["op2", "mid2", ""],
        ["op3", "", "mid2"],
        ["op4", "dy1 dy2", "out"],
        ["op5", "dy3 dx1", "mid1 dy1"],
        ["op6", "dx2 db1", "dy3 db1"],
        ["op7", "dx3 db2", "dy2 db2"],
        ["op8", "dx", "dx1 dx2"],
        ["op9", "", "dx3 dx"],
        ["(kept)", "in b1 b2", ""],
    ]


def _copy(source: str, *targets: str) -> Callable[[BlockViews], None]:
    def run(v: BlockViews) -> None:
        for target in targets:
            v[target][:] = v[source]

    return run


def _add(a: str, b: str, out: str) -> Callable[[BlockViews], None]:
    def run(v: BlockViews) -> None:
        v[out][:] = v[a] + v[b]

    return run


def _product(a: str, b: str, out: str) -> Callable[[BlockViews], None]:
    def run(v: BlockViews) -> None:
        v[out][:] = v[a] * v[b]

    return run


def _product_backward(dy: str, a: str, b: str, da: str, db: str) -> Callable[[BlockViews], None]:
    first, second = _product(dy, a, da), _product(dy, b, db)

    def run(v: BlockViews) -> None:
        first(v)
        second(v)

    return run


FUNCTIONS = {
    "op0": _add("in", "b1", "mid"),
    "op1": _product("mid", "in", "out"),
    "op2": _add("out", "b2", "out"),
    "op3": _copy("out", "dy1", "db2"),
    "op4": _product_backward("dy1", "in", "mid", "dy2", "dx1"),
    "op5": _copy("dy2", "dx2", "db1"),
    "op6": _add("dx1", "dx2", "dx"),
}

AUTO_RECYCLE_FUNCTIONS = {
    "op0": _add("in", "b1", "mid1"),
    "op1": _product("mid1", "in", "out"),
    "op2": _add("in", "b2", "mid2"),
    "op3": _add("out", "mid2", "out"),
    "op4": _copy("out", "dy1", "dy2"),
    "op5": _product_backward("dy1", "in", "mid1", "dy3", "dx1"),
    "op6": _copy("dy3", "dx2", "db1"),
    "op7": _copy("dy2", "dx3", "db2"),
    "op8": _add("dx1", "dx2", "dx"),
    "op9": _add("dx", "dx3", "dx"),
}
