"""The programs of Apache SINGA's scheduler tests: nodes, edges, blocks, what is freed, what is computed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.errors import DanglingOperandError
from solver.executor import BlockRunner, BlockViews
from solver.graph import DType
from solver.liveness import Hazard, block_classes, orderings, predecessors, value_edges
from solver.liveness.blocks import BlockClass
from solver.pipeline import plan_program
from solver.plan import recycling, verify
from tests.support.programs import AUTO_RECYCLE, RUN_GRAPH, independent_pairs, program

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

    def test_plan_is_minimal_and_right(self) -> None:
        made = plan_program(program(AUTO_RECYCLE))
        assert made.arena_bytes == made.lower_bound
        assert made.arena_bytes < 64 * 15
        assert verify(made) == ()


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

    def test_the_workspace_is_held_from_the_first_to_the_last_pair(self) -> None:
        made = plan_program(program(independent_pairs(), sizes={"workspace": 1000}))
        found = recycling(made)
        assert found.steps[0].allocated == found.steps[7].freed == ("workspace",)
        assert [step.id for step in made.steps] == [f"op{t}" for t in range(8)]


def _multiply_backward(v: BlockViews) -> None:
    v["dy2"][:] = v["dy1"] * v["in"]
    v["dx1"][:] = v["dy1"] * v["mid"]


def _copy(source: str, *targets: str) -> Callable[[BlockViews], None]:
    def run(v: BlockViews) -> None:
        for target in targets:
            v[target][:] = v[source]

    return run


def _add(a: str, b: str, out: str) -> Callable[[BlockViews], None]:
    def run(v: BlockViews) -> None:
        v[out][:] = v[a] + v[b]

    return run


def _multiply(v: BlockViews) -> None:
    v["out"][:] = v["mid"] * v["in"]


FUNCTIONS = {
    "op0": _add("in", "b1", "mid"),
    "op1": _multiply,
    "op2": _add("out", "b2", "out"),
    "op3": _copy("out", "dy1", "db2"),
    "op4": _multiply_backward,
    "op5": _copy("dy2", "dx2", "db1"),
    "op6": _add("dx1", "dx2", "dx"),
}
