"""Program documents: nothing is lost, and every refusal names its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from solver.documents import dump_program, load_program, program_digest
from solver.errors import (
    ArenaplanError,
    DanglingOperandError,
    DimensionError,
    DocumentError,
    GraphError,
    OtherFormatError,
    TooManyOperationsError,
)
from solver.graph import DType, TensorType
from solver.training import BlockProgram, BlockView
from tests.support.programs import programs


def document(**changes: Any) -> dict[str, Any]:
    return {
        "format": "arenaplan.program",
        "version": 1,
        "name": "step",
        "blocks": [
            {"name": "x", "shape": [2, 3], "dtype": "float32", "fed": True},
            {"name": "w", "bytes": 5_000_000_000},
            {"name": "y", "shape": [], "dtype": "float64", "kept": True},
        ],
        "operations": [
            {"name": "multiply", "type": "MatMul", "reads": ["x", "w"], "writes": ["y"]},
            {"name": "update", "reads": ["w", "y"], "writes": ["w"]},
        ],
    } | changes


def with_block(**block: Any) -> dict[str, Any]:
    return document(blocks=[{"name": "a", **block}], operations=[{"name": "op", "reads": ["a"]}])


def test_what_is_read() -> None:
    made = load_program(document())
    assert made.blocks["x"].type == TensorType((2, 3), DType.FLOAT32)
    assert made.blocks["w"].type == TensorType((5_000_000_000,), DType.UINT8)
    assert made.blocks["y"].type.nbytes == 8
    assert [(b.fed, b.kept) for b in made.blocks.values()] == [(True, False), (False, False), (False, True)]
    first, second = made.operations
    assert (first.kernel, first.reads, first.writes) == ("MatMul", ("x", "w"), ("y",))
    assert (second.kernel, second.reads, second.writes) == ("", ("w", "y"), ("w",))


def test_round_trip() -> None:
    made = load_program(document())
    assert json.loads(dump_program(made)) == document()
    assert load_program(dump_program(made, indent=2)) == made


def _newer(version: int, **fields: Any) -> dict[str, Any]:
    """The first operation with fields of version 2."""
    found = document(version=version)
    found["operations"][0] |= fields
    return found


def _viewed(*, fed: bool = False, writes: bool = False, **view: Any) -> dict[str, Any]:
    """Four bytes of eight."""
    return {
        "format": "arenaplan.program",
        "version": 2,
        "name": "views",
        "blocks": [{"name": "a", "bytes": 4, "view": view, "fed": fed}, {"name": "big", "bytes": 8}],
        "operations": [
            {"name": "op", "reads": ["big"] if writes else ["a"], "writes": ["a"] if writes else []}
        ],
    }


def test_a_view_that_fits() -> None:
    block = load_program(_viewed(of="big", offset=1, strides=[2])).blocks["a"]
    assert block.view == BlockView("big", 1, (2,))
    assert block.view.byte_strides(block.type) == (2,)


@given(programs())
def test_every_program_round_trips(made: BlockProgram) -> None:
    assert load_program(dump_program(made)) == made
    assert program_digest(load_program(dump_program(made))) == program_digest(made)


def test_the_digest_knows_everything_but_the_title() -> None:
    digest = program_digest(load_program(document()))
    assert program_digest(load_program(document(name="other"))) == digest
    kept = document()
    kept["blocks"][1]["kept"] = True
    swapped = document(operations=document()["operations"][::-1])
    swapped["blocks"][0]["fed"] = False
    assert len({digest, program_digest(load_program(kept)), program_digest(load_program(swapped))}) == 3


@pytest.mark.parametrize("size", [1, 2**31 - 1, 2**31, 2**32 + 1, 2**63 - 1])
def test_any_size_up_to_63_bits(size: int) -> None:
    assert load_program(with_block(bytes=size)).blocks["a"].type.nbytes == size


@pytest.mark.parametrize(
    ("bad", "error", "path"),
    [
        (document(format="arenaplan.graph"), OtherFormatError, ("format",)),
        (document(version=4), DocumentError, ("version",)),
        (_newer(1, pure=True), DocumentError, ("operations", 0, "pure")),
        (_newer(2, cost={"flops": 4}), DocumentError, ("operations", 0, "cost")),
        (_newer(3, pure=1), DocumentError, ("operations", 0, "pure")),
        (_newer(3, cost={"flops": 10**15}), DimensionError, ("operations", 0, "cost", "flops")),
        (_newer(3, cost={"bytes": -1}), DimensionError, ("operations", 0, "cost", "bytes")),
        (_newer(3, cost={"nanoseconds": 1, "flops": 1}), GraphError, ("operations", 0, "cost")),
        (document(any_order=True), DocumentError, ("any_order",)),
        (_newer(1, workspace=4), DocumentError, ("operations", 0, "workspace")),
        (_newer(1, overwrites={"y": "x"}), DocumentError, ("operations", 0, "overwrites")),
        (_newer(2, workspace=-1), DimensionError, ("operations", 0, "workspace")),
        (_newer(2, overwrites={"y": "q"}), GraphError, ("operations", 0, "overwrites", "y")),
        (_newer(2, overwrites={"w": "x"}), GraphError, ("operations", 0, "overwrites", "w")),
        (_viewed(of="q"), GraphError, ("blocks", 0, "view")),
        (_viewed(of="a"), GraphError, ("blocks", 0, "view")),
        (_viewed(of="big", offset=5), GraphError, ("blocks", 0, "view")),
        (_viewed(of="big", strides=[3]), GraphError, ("blocks", 0, "view")),
        (_viewed(of="big", strides=[1, 1]), GraphError, ("blocks", 0, "view")),
        (_viewed(of="big", strides=[-1]), DimensionError, ("blocks", 0, "view", "strides", 0)),
        (_viewed(of="big", fed=True), GraphError, ("blocks", 0, "view")),
        (_viewed(of="big", strides=[0], writes=True), GraphError, ("operations", 0, "writes", 0)),
        (document(extra=1), DocumentError, ("extra",)),
        (with_block(), DocumentError, ("blocks", 0)),
        (with_block(bytes=4, shape=[1], dtype="float32"), DocumentError, ("blocks", 0)),
        (with_block(bytes=4, dtype="float32"), DocumentError, ("blocks", 0)),
        (with_block(shape=[4]), DocumentError, ("blocks", 0)),
        (with_block(dtype="float32"), DocumentError, ("blocks", 0)),
        (with_block(shape=[4], dtype="float16"), DocumentError, ("blocks", 0, "dtype")),
        (with_block(shape=["batch"], dtype="float32"), DocumentError, ("blocks", 0, "shape", 0)),
        (with_block(shape=[1] * 33, dtype="float32"), DocumentError, ("blocks", 0, "shape")),
        (with_block(bytes=-1), DimensionError, ("blocks", 0, "bytes")),
        (with_block(bytes=2**63), DimensionError, ("blocks", 0, "bytes")),
        (with_block(bytes=4.0), DocumentError, ("blocks", 0, "bytes")),
        (with_block(bytes=True), DocumentError, ("blocks", 0, "bytes")),
        (with_block(shape=[4, -1], dtype="float32"), DimensionError, ("blocks", 0, "shape", 1)),
        (with_block(shape=[2**31, 2**31], dtype="float32"), DimensionError, ("blocks", 0)),
        (with_block(bytes=4, size=4), DocumentError, ("blocks", 0, "size")),
        (document(operations=[{"name": "op", "reads": "x"}]), DocumentError, ("operations", 0, "reads")),
        (
            document(operations=[{"name": "op", "reads": ["x", "w", "q"], "writes": ["y"]}]),
            DanglingOperandError,
            ("operations", 0, "reads", 2),
        ),
    ],
)
def test_mistakes(bad: dict[str, Any], error: type[ArenaplanError], path: tuple[str | int, ...]) -> None:
    with pytest.raises(error) as caught:
        load_program(json.dumps(bad).encode())
    assert type(caught.value) is error
    assert caught.value.path == path
    assert caught.value.remedy


def test_the_limit_on_operations() -> None:
    with pytest.raises(TooManyOperationsError):
        load_program(document(), max_operations=1)
