"""Explicit programs for tests: those of Apache SINGA's scheduler, and random ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from solver.graph import DType, TensorType
from solver.program import Program
from solver.training import (
    Block,
    BlockOperation,
    BlockProgram,
    OperationCost,
    build_program,
    explicit_program,
)

__all__ = [
    "AUTO_RECYCLE",
    "CHAIN_DOCUMENT",
    "RUN_GRAPH",
    "block",
    "independent_pairs",
    "program",
    "programs",
    "sequential",
]

Touches = tuple[str, str]


def block(name: str, size: int = 4, *, fed: bool = False, kept: bool = False) -> Block:
    return Block(name, TensorType((size,), DType.UINT8), fed, kept)


def program(
    touches: Sequence[Touches],
    *,
    sizes: dict[str, int] | None = None,
    fed: Sequence[str] = (),
    kept: Sequence[str] = (),
    dtype: DType | None = None,
) -> BlockProgram:
    """Operations op0, op1, ... from pairs of names: ``("a b", "c")`` reads a and b and writes c.

    With a `dtype` every block is one element of it.
    """
    operations = [
        BlockOperation(f"op{t}", tuple(reads.split()), tuple(writes.split()))
        for t, (reads, writes) in enumerate(touches)
    ]
    names = dict.fromkeys(name for operation in operations for name in operation.touched)
    blocks = [block(name, (sizes or {}).get(name, 4), fed=name in fed, kept=name in kept) for name in names]
    if dtype is not None:
        blocks = [Block(b.name, TensorType((1,), dtype), b.fed, b.kept) for b in blocks]
    return build_program("test", blocks, operations)


def sequential(*touches: Touches, fed: str = "", kept: str = "", **sizes: int) -> Program:
    """The derived program of such operations; blocks are unaligned, with 4 bytes or those of `sizes`."""
    derived = explicit_program(program(touches, sizes=sizes, fed=fed.split(), kept=kept.split()))
    return replace(derived, spaces=tuple(replace(space, alignment=1) for space in derived.spaces))


#: A program whose peak of 19,200 bytes becomes 13,440 where `f` runs again.
CHAIN_DOCUMENT: dict[str, Any] = {
    "format": "arenaplan.program",
    "version": 3,
    "name": "chain",
    "blocks": [
        {"name": "x", "bytes": 640, "fed": True},
        *({"name": name, "bytes": 6400} for name in "abc"),
        {"name": "y", "bytes": 640, "kept": True},
    ],
    "operations": [
        {"name": "f", "reads": ["x"], "writes": ["a"], "pure": True, "cost": {"nanoseconds": 1000}},
        {"name": "g", "reads": ["a"], "writes": ["b"], "cost": {"nanoseconds": 9000}},
        {"name": "h", "reads": ["b"], "writes": ["c"]},
        {"name": "i", "reads": ["a", "c"], "writes": ["y"]},
    ],
}

#: (in + b1) * in + (in + b2), and its derivatives.
AUTO_RECYCLE: tuple[Touches, ...] = (
    ("in b1", "mid1"),
    ("mid1 in", "out"),
    ("in b2", "mid2"),
    ("out mid2", "out"),
    ("out", "dy1 dy2"),
    ("in mid1 dy1", "dy3 dx1"),
    ("dy3", "dx2 db1"),
    ("dy2", "dx3 db2"),
    ("dx1 dx2", "dx"),
    ("dx dx3", "dx"),
)

#: (in + b1) * in + b2, and its derivatives; op4 also reads `in` and `mid`, which SINGA's test leaves out.
RUN_GRAPH: tuple[Touches, ...] = (
    ("in b1", "mid"),
    ("mid in", "out"),
    ("out b2", "out"),
    ("out", "dy1 db2"),
    ("dy1", "dy2 dx1"),
    ("dy2", "dx2 db1"),
    ("dx1 dx2", "dx"),
)


def independent_pairs(count: int = 4, *, use_writes: bool = False) -> tuple[Touches, ...]:
    """One workspace, cleaned and used `count` times by pairs that share nothing else."""
    found: list[Touches] = []
    for k in range(count):
        found += [("", "workspace"), (f"workspace b{k}", f"b{k} workspace" if use_writes else f"b{k}")]
    return tuple(found)


@st.composite
def programs(draw: st.DrawFn, most_operations: int = 12) -> BlockProgram:
    """Any legal program: in place, rewritten, carried over, fed and kept blocks of any small size."""
    names = [f"b{k}" for k in range(draw(st.integers(1, 8)))]
    subset = st.lists(st.sampled_from(names), unique=True, max_size=3)
    pairs = draw(st.lists(st.tuples(subset, subset).filter(any), min_size=1, max_size=most_operations))
    costs = st.one_of(
        st.just(OperationCost()),
        st.builds(OperationCost, nanoseconds=st.integers(0, 9)),
        st.builds(OperationCost, flops=st.integers(0, 9), bytes=st.none() | st.integers(0, 9)),
    )
    operations = [
        BlockOperation(f"op{t}", tuple(r), tuple(w), pure=draw(st.booleans()), cost=draw(costs))
        for t, (r, w) in enumerate(pairs)
    ]
    touched: dict[str, bool] = {}
    for operation in operations:
        for name in operation.touched:
            touched.setdefault(name, name in operation.reads)
    blocks = [
        block(name, draw(st.integers(1, 40)), fed=outside and draw(st.booleans()), kept=draw(st.booleans()))
        for name, outside in touched.items()
    ]
    return build_program("random", blocks, operations)
