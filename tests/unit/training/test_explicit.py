"""Explicit programs: block classes, edges, orderings and lives; and how each mistake is named."""

from __future__ import annotations

import pytest

from solver import errors
from solver.errors import DimensionError, ProblemError
from solver.graph import DType, TensorType
from solver.layout import Lifespan
from solver.pipeline import plan_program
from solver.plan import PlanOptions
from solver.program import Access, EntryKind, Kind, Lifetime, Phase, check_program, lives
from solver.training import (
    Block,
    BlockClass,
    BlockOperation,
    BlockProgram,
    Carry,
    Hazard,
    Ordering,
    ValueEdge,
    block_classes,
    build_program,
    carries,
    explicit_program,
    orderings,
    predecessors,
    value_edges,
)
from tests.support.derived import entries, exits
from tests.support.every import grid
from tests.support.programs import AUTO_RECYCLE, Touches, block, program

RAW, WAR, WAW = Hazard.RAW, Hazard.WAR, Hazard.WAW


def block_lives(made: BlockProgram) -> dict[str, Lifespan]:
    explicit = explicit_program(made)
    return {explicit.values[value].label: span for value, span in lives(explicit).items()}


class TestAsInSinga:
    """Small programs whose edges, classes and references SINGA's own tests list."""

    @pytest.mark.parametrize(
        ("touches", "edges", "classes"),
        [
            ((("in", "out"),), [(None, 0), (0, None)], "input end"),
            ((("in", "in"),), [(None, 0), (0, None)], "param"),
            ((("in", "in"), ("in out", "out")), [(None, 0), (0, 1), (None, 1), (1, None)], "param param"),
            (
                (("in", "in"), ("in mid", "out"), ("out", "mid")),
                [(None, 0), (0, 1), (None, 1), (1, 2), (2, None)],
                "param param inter",
            ),
            (
                (("in", "mid out"), ("mid", ""), ("out", "out")),
                [(None, 0), (0, 1), (0, 2), (2, None)],
                "input inter inter",
            ),
            ((("in", "out1"), ("", "out2")), [(None, 0), (0, None), (1, None)], "input end end"),
        ],
        ids=["operation", "in place", "in place twice", "param", "inter", "end"],
    )
    def test_edges_and_classes(
        self, touches: tuple[Touches, ...], edges: list[tuple[int | None, int | None]], classes: str
    ) -> None:
        made = program(touches)
        assert [(edge.source, edge.target) for edge in value_edges(made)] == edges
        assert [class_.value for class_ in block_classes(made).values()] == classes.split()


def test_a_value_with_two_readers_has_two_edges_and_an_unread_one_has_one() -> None:
    made = program((("", "x"), ("x", ""), ("x", ""), ("", "x"), ("", "x")))
    assert value_edges(made) == tuple(
        ValueEdge("x", source, target) for source, target in ((0, 1), (0, 2), (3, None), (4, None))
    )


def test_all_three_hazards() -> None:
    made = program((("", "x"), ("x", "y"), ("", "x"), ("x", "x"), ("x y", "")))
    assert orderings(made) == (
        Ordering(RAW, "x", 0, 1),
        Ordering(WAR, "x", 1, 2),
        Ordering(WAW, "x", 0, 2),
        Ordering(RAW, "x", 2, 3),
        Ordering(RAW, "x", 3, 4),
        Ordering(RAW, "y", 1, 4),
    )
    assert predecessors(made) == tuple(map(frozenset, ((), (0,), (0, 1), (2,), (1, 3))))


def test_what_is_read_from_outside_orders_its_first_writer() -> None:
    assert orderings(program((("w", ""), ("w", ""), ("", "w")))) == (
        Ordering(WAR, "w", 0, 2),
        Ordering(WAR, "w", 1, 2),
    )


class TestAcrossIterations:
    TOUCHES = (("w x", "y"), ("w s", "z"), ("y z", "w"), ("s", "s"))

    def test_cycles(self) -> None:
        assert carries(program(self.TOUCHES)) == (Carry("w", 2, (0, 1)), Carry("s", 3, (1, 3)))

    def test_what_is_fed_does_not_carry_over(self) -> None:
        assert [c.block for c in carries(program(self.TOUCHES, fed=("w",)))] == ["s"]

    def test_readers_of_the_new_value_are_not_on_the_cycle(self) -> None:
        assert carries(program((("s", "s"), ("s", "")))) == (Carry("s", 0, (0,)),)

    def test_blocks_on_a_cycle_live_all_the_time(self) -> None:
        spans = block_lives(program(self.TOUCHES))
        assert spans["w"] == spans["s"] == Lifespan(0, 4)


class TestLifespans:
    TOUCHES = (("", "a"), ("x", "b"), ("a p", "p"), ("", "e"), ("b", ""))

    def test_by_class(self) -> None:
        assert block_lives(program(self.TOUCHES)) == {
            "a": Lifespan(0, 3),
            "x": Lifespan(0, 5),
            "b": Lifespan(1, 5),
            "p": Lifespan(0, 5),
            "e": Lifespan(3, 4),
        }

    def test_fed_blocks_end_with_their_last_touch(self) -> None:
        spans = block_lives(program(self.TOUCHES, fed=("x", "p")))
        assert (spans["x"], spans["p"]) == (Lifespan(0, 2), Lifespan(0, 3))

    def test_kept_blocks_live_to_the_end(self) -> None:
        spans = block_lives(program(self.TOUCHES, fed=("x",), kept=("x", "a", "e")))
        assert (spans["x"], spans["a"], spans["e"]) == (Lifespan(0, 5), Lifespan(0, 5), Lifespan(3, 5))

    def test_a_rewritten_block_is_one_buffer(self) -> None:
        assert block_lives(program((("", "w"), ("w", ""), ("x", ""), ("", "w"), ("w", ""))))["w"] == Lifespan(
            0, 5
        )


class TestBuffers:
    def test_kinds_lifetimes_sizes(self) -> None:
        made = program((("x w", "y w"), ("y", "e"), ("y", "k")), sizes={"y": 65}, kept=("k",))
        (arena,) = plan_program(made, PlanOptions(alignment=64)).arenas
        found = {b.id: (b.kind, b.lifetime, b.size) for b in arena.buffers}
        assert found == {
            "x": (Kind.INPUT, Lifetime.MAX, 64),
            "w": (Kind.PARAMETER, Lifetime.MAX, 64),
            "y": (Kind.ACTIVATION, Lifetime.ITERATION, 128),
            "e": (Kind.RESULT, Lifetime.ITERATION, 64),
            "k": (Kind.RESULT, Lifetime.EPOCH, 64),
        }

    def test_steps(self) -> None:
        made = build_program("", [block("a"), block("b")], [BlockOperation("add", ("a",), ("b",), "Add")])
        (step,) = plan_program(made).steps
        assert (step.id, step.kernel, step.uses, step.defs, step.scratch, step.level) == (
            "add",
            "Add",
            ("a",),
            ("b",),
            (),
            0,
        )

    def test_blocks_that_exceed_64_bits_together(self) -> None:
        made = program((("a b", ""),), sizes={"a": 2**62, "b": 2**62})
        with pytest.raises(DimensionError, match="add up to more") as caught:
            plan_program(made)
        assert caught.value.path == ("blocks",)

    def test_rounding_up_may_be_what_exceeds_them(self) -> None:
        made = program((("a", ""),), sizes={"a": 2**63 - 1})
        with pytest.raises(ProblemError, match=r"more than 2\*\*60"):
            plan_program(made, PlanOptions(alignment=1))
        with pytest.raises(DimensionError, match="rounded up to 2 bytes"):
            plan_program(made, PlanOptions(alignment=2))


def test_every_class_is_reached_in_its_own_way() -> None:
    classes = block_classes(program((("i p", "n"), ("n", "e p"))))
    assert classes == {
        "i": BlockClass.INPUT,
        "p": BlockClass.PARAM,
        "n": BlockClass.INTER,
        "e": BlockClass.END,
    }


class TestTheProgram:
    """The program of the explicit operations: the reference that every plan of them must agree with."""

    def test_it_passes_the_checks_of_every_program(self) -> None:
        check_program(explicit_program(program(AUTO_RECYCLE)))

    def test_values_are_numbered_by_first_touch_reads_before_writes(self) -> None:
        found = explicit_program(program((("b", "a"), ("a c", "b"))))
        assert [value.label for value in found.values] == ["b", "a", "c"]

    def test_what_is_read_and_written_is_one_binding(self) -> None:
        (step,) = explicit_program(program((("a b", "b c"),))).steps
        assert [(b.slot, b.access) for b in step.bindings] == [
            ("r0", Access.READ),
            ("u1", Access.UPDATE),
            ("w1", Access.WRITE),
        ]
        assert step.phase is Phase.EXPLICIT

    def test_steps_are_called_like_their_operations(self) -> None:
        assert explicit_program(program((("a", "b"), ("b", "c")))).step_labels == ("op0", "op1")

    def test_what_holds_blocks_at_the_start_and_what_is_kept(self) -> None:
        made = program((("x p d", "p n"), ("n", "e d k")), fed=("x",), kept=("k",))
        found = explicit_program(made)
        assert entries(found) == {"x": EntryKind.FED, "p": EntryKind.CARRIED, "d": EntryKind.CARRIED}
        assert exits(found) == {"p", "d", "k"}

    def test_what_is_never_written_is_constant_unless_it_is_fed(self) -> None:
        made = program((("x w", "y"),), fed=("x",))
        assert entries(explicit_program(made)) == {"x": EntryKind.FED, "w": EntryKind.CONSTANT}

    def test_kernels_are_told_apart_by_name_and_operation(self) -> None:
        operations = [
            BlockOperation("one", ("a",), ("b",), "Add"),
            BlockOperation("two", ("b",), ("a",), "Add"),
        ]
        found = explicit_program(build_program("", [block("a"), block("b")], operations))
        assert [found.kernel(step) for step in found.steps] == ["Add", "Add"]
        assert found.operations[0] != found.operations[1]


# --------------------------------------------------------------------------------------------------- mistakes


A = block("a")
READ_A = BlockOperation("op", ("a",))


def test_blocks_and_operations_keep_their_order() -> None:
    made = program((("x w", "y"), ("y", "y"), ("y", "w")))
    assert list(made.blocks) == ["x", "w", "y"]
    assert [operation.name for operation in made.operations] == ["op0", "op1", "op2"]
    assert made.operations[0].touched == ("x", "w", "y")
    assert made.operations[1].touched == ("y",)
    with pytest.raises(TypeError):
        made.blocks["z"] = A  # type: ignore[index]  # that it cannot be changed is the point


def test_the_largest_block_is_one_byte_less_than_two_to_the_63() -> None:
    made = build_program("", [block("a", 2**63 - 1)], [READ_A])
    assert made.blocks["a"].type.nbytes == 2**63 - 1


@grid(
    ("blocks", "operations", "error", "path", "words"),
    [
        ([A], [], errors.GraphError, ("operations",), "no operations"),
        ([A, A], [READ_A], errors.DuplicateNameError, ("blocks", 1, "name"), "two blocks 'a'"),
        ([A], [READ_A, READ_A], errors.DuplicateNameError, ("operations", 1, "name"), "two operations 'op'"),
        ([block("")], [READ_A], errors.GraphError, ("blocks", 0, "name"), "no name"),
        ([A], [BlockOperation("", ("a",))], errors.GraphError, ("operations", 0, "name"), "no name"),
        (
            [A],
            [READ_A, BlockOperation("two", ("a", "b"))],
            errors.DanglingOperandError,
            ("operations", 1, "reads", 1),
            "'two' reads 'b', which the program does not declare",
        ),
        (
            [A],
            [BlockOperation("op", (), ("a", "c"))],
            errors.DanglingOperandError,
            ("operations", 0, "writes", 1),
            "'op' writes 'c', which the program does not declare",
        ),
        (
            [A],
            [BlockOperation("op", ("a", "a"))],
            errors.DuplicateNameError,
            ("operations", 0, "reads", 1),
            "lists 'a' twice in reads",
        ),
        (
            [A],
            [BlockOperation("op", (), ("a", "a"))],
            errors.DuplicateNameError,
            ("operations", 0, "writes", 1),
            "lists 'a' twice in writes",
        ),
        (
            [A],
            [READ_A, BlockOperation("idle")],
            errors.GraphError,
            ("operations", 1),
            "'idle' neither reads nor writes",
        ),
        ([A, block("b")], [READ_A], errors.DanglingOperandError, ("blocks", 1), "'b' is touched by no"),
        ([block("a", -1)], [READ_A], errors.DimensionError, ("blocks", 0), "0 to 2"),
        ([block("a", 2**63)], [READ_A], errors.DimensionError, ("blocks", 0), "0 to 2"),
        (
            [Block("a", TensorType((2**31, 2**31), DType.FLOAT32))],
            [READ_A],
            errors.DimensionError,
            ("blocks", 0),
            "float32",
        ),
        (
            [A, block("b", fed=True)],
            [READ_A, BlockOperation("w", (), ("b",)), BlockOperation("r", ("b",))],
            errors.UseBeforeDefError,
            ("blocks", 1, "fed"),
            "'b' is overwritten before any operation reads it",
        ),
    ],
)
def test_mistakes(
    blocks: list[Block],
    operations: list[BlockOperation],
    error: type[errors.GraphError],
    path: tuple[str | int, ...],
    words: str,
) -> None:
    with pytest.raises(error, match=words) as caught:
        build_program("test", blocks, operations)
    assert type(caught.value) is error
    assert caught.value.path == path
    assert caught.value.remedy


def test_a_negative_pair_of_dimensions_is_no_size() -> None:
    with pytest.raises(errors.DimensionError):
        build_program("", [Block("a", TensorType((-2, -2), DType.UINT8))], [READ_A])


def test_the_limit_on_operations() -> None:
    operations = [BlockOperation(f"op{t}", ("a",)) for t in range(4)]
    assert len(build_program("", [A], operations, max_operations=4).operations) == 4
    with pytest.raises(errors.TooManyOperationsError, match="4 operations; at most 3") as caught:
        build_program("", [A], operations, max_operations=3)
    assert caught.value.path == ("operations",)


def test_fed_blocks_may_be_updated_in_place() -> None:
    assert program((("x", "x"),), fed=("x",)).blocks["x"].fed


@pytest.mark.parametrize(
    ("name", "blocks", "operations", "path"),
    [
        ("p\u202e", [A], [READ_A], ("name",)),
        ("p", [block("a\n")], [READ_A], ("blocks", 0, "name")),
        ("p", [A], [BlockOperation("op\u200b", ("a",))], ("operations", 0, "name")),
        ("p", [A], [BlockOperation("op", ("a",), (), "conv\u2028")], ("operations", 0, "kernel")),
    ],
)
def test_names_have_no_characters_that_cannot_be_seen(
    name: str, blocks: list[Block], operations: list[BlockOperation], path: tuple[str | int, ...]
) -> None:
    with pytest.raises(errors.GraphError, match="control or format character") as caught:
        build_program(name, blocks, operations)
    assert caught.value.path == path
    assert str(caught.value).isprintable()
