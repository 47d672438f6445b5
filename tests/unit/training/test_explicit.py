"""Explicit programs: what is verified, and how each mistake is named."""

from __future__ import annotations

import pytest

from solver import errors
from solver.graph import DType, TensorType
from solver.training import Block, BlockOperation, build_program
from tests.support.every import grid
from tests.support.programs import block, program

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
