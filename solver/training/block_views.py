"""Programs with views as programs without: what touches a view touches the block that it looks into.

    qkv  ├──── q ────┼──── k ────┼──── v ────┤      split: reads q        becomes  reads qkv
                                                    concat: writes q      becomes  writes qkv, the first time,
                                                            writes k, v            and updates it from then on

Whether a read finds what the iteration has written, and a write covers the whole block, is followed piece by
piece: the largest pieces that no view cuts through.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from solver.errors import DimensionError
from solver.graph.types import Array
from solver.training.explicit import Block, BlockOperation, BlockProgram

__all__ = ["without_views"]

#: Pieces of one block that are followed.
_MAX_PIECES: Final = 1 << 26


def without_views(program: BlockProgram) -> BlockProgram:
    """The same program in terms of the blocks that have memory; itself where it has no views.

    Bytes of a block that an operation reads and none has written before are those of the iteration before:
    the block carries over. Raises DimensionError for views that cut a block into more than 2**26 pieces.
    Linear in the operations; those that touch a block with views cost its pieces.
    """
    views: dict[str, list[Block]] = defaultdict(list)
    for block in program.blocks.values():
        if block.view is not None:
            views[block.view.of].append(block)
    if not views:
        return program
    pieces = {name: _Pieces(program.blocks[name], views_of_block) for name, views_of_block in views.items()}
    based = {b.name: b.name if b.view is None else b.view.of for b in program.blocks.values()}
    carried = _carried(program, pieces, based)
    touched = {name for name in pieces if program.blocks[name].fed}
    operations = []
    for operation in program.operations:
        reads = dict.fromkeys(based[name] for name in operation.reads)
        writes = dict.fromkeys(based[name] for name in operation.writes)
        for name in writes:
            if name not in pieces:
                continue
            whole = pieces[name].covered(n for n in operation.writes if based[n] == name)
            if not whole and (name in carried or name in touched):
                reads[name] = None  # what it leaves stays
            touched.add(name)
        operations.append(replace(operation, reads=tuple(reads), writes=tuple(writes)))
    kept = {based[block.name] for block in program.blocks.values() if block.kept}
    used = {name for operation in operations for name in operation.touched}
    blocks = {
        block.name: replace(block, kept=block.name in kept)
        for block in program.blocks.values()
        if block.view is None and block.name in used
    }
    return replace(program, blocks=blocks, operations=_permitted(operations))


def _permitted(operations: Iterable[BlockOperation]) -> tuple[BlockOperation, ...]:
    """The program without permissions that views make useless: updated blocks stay where they are."""
    return tuple(
        replace(
            operation,
            overwrites=tuple(
                (target, source)
                for target, source in operation.overwrites
                if target not in operation.reads and source not in operation.writes
            ),
        )
        for operation in operations
    )


def _carried(
    program: BlockProgram, pieces: Mapping[str, _Pieces], based: Mapping[str, str]
) -> frozenset[str]:
    """Blocks of which a piece is read before anything has written it."""
    written = {name: np.zeros(parts.count, np.bool_) for name, parts in pieces.items()}
    for name in pieces:
        written[name][:] = program.blocks[name].fed
    carried = set()
    for operation in program.operations:
        for name in operation.reads:
            base = based[name]
            if base in pieces and not pieces[base].marks(name, written[base]).all():
                carried.add(base)
        for name in operation.writes:
            base = based[name]
            if base in pieces:
                pieces[base].marks(name, written[base])[...] = True
    return frozenset(carried)


class _Pieces:
    """A block cut where its views begin and end; a piece is `size` bytes."""

    def __init__(self, base: Block, views: Iterable[Block]) -> None:
        self._places: dict[str, tuple[int, tuple[int, ...], tuple[int, ...]]] = {
            base.name: (0, (base.type.nbytes,), (1,))
        }
        for block in views:
            assert block.view is not None
            if not block.type.nbytes:
                self._places[block.name] = (0, (0,), (1,))
                continue
            runs = zip(block.type.shape, block.view.byte_strides(block.type), strict=True)
            self._places[block.name] = (block.view.offset, *_runs(runs, block.type.dtype.itemsize))
        numbers = [
            n for offset, shape, strides in self._places.values() for n in (offset, shape[-1], *strides[:-1])
        ]
        self.size = math.gcd(base.type.nbytes, *numbers) or 1
        self.count = base.type.nbytes // self.size
        if self.count > _MAX_PIECES:
            raise DimensionError(
                f"The views of block {base.name!r} cut it into {self.count:,} pieces.",
                remedy=f"At most {_MAX_PIECES:,} are followed: copy what has such strides.",
                path=("blocks",),
            )

    def marks(self, name: str, whole: Array) -> Array:
        """The marks of the pieces of a view, of all marks of the block; writing them writes those."""
        offset, shape, strides = self._places[name]
        return np.lib.stride_tricks.as_strided(
            whole[offset // self.size :],
            (*shape[:-1], shape[-1] // self.size),
            (*[stride // self.size for stride in strides[:-1]], 1),
        )

    def covered(self, names: Iterable[str]) -> bool:
        """Whether these views together are the whole block."""
        covered = np.zeros(self.count, np.bool_)
        for name in names:
            self.marks(name, covered)[...] = True
        return bool(covered.all())


def _runs(axes: Iterable[tuple[int, int]], itemsize: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Sizes and byte strides of runs of bytes, the last axis being one run; axes that repeat are left out."""
    shape, strides = [itemsize], [1]
    for size, stride in sorted(axes, key=lambda axis: axis[1]):
        if size == 1 or stride == 0:
            continue
        if len(shape) == 1 and stride == shape[0]:
            shape[0] *= size
        else:
            shape.append(size)
            strides.append(stride)
    return tuple(reversed(shape)), tuple(reversed(strides))
