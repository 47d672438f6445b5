"""Plans of the target `c` as programs: exported, compiled for this machine, and called through ctypes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from solver.c_training import c_training_files
from solver.executor import first_contents, inline_data
from solver.graph import TrainableGraph
from solver.graph.types import Array
from solver.plan import Plan
from solver.program import EntryKind
from tests.support.c_objects import shared_library

__all__ = ["CProgram", "written"]

_STRICT = ("-std=c11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-Wconversion")


def written(graph: TrainableGraph, plan: Plan, folder: Path) -> Path:
    """The folder, with the files of a plan."""
    first = first_contents(plan.program, inline_data(graph))
    for name, data in c_training_files(plan, first).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


class CProgram:
    """The files of a folder, compiled with these flags, from their first values on."""

    def __init__(self, folder: Path, *flags: str) -> None:
        library = folder / f"net{re.sub(r'[^a-zA-Z0-9]', '', ''.join(flags))}.so"
        own, kernels = (sorted(folder.glob(pattern)) for pattern in ("net*.c", "kernels/*.c"))
        shared_library(library, "gcc", *_STRICT, *flags, own=own, kernels=kernels)
        self._library = ctypes.CDLL(str(library))
        self._library.net_step.restype = ctypes.c_float
        self._library.net_hash.restype = ctypes.c_uint64
        self._library.net_self_hash.restype = ctypes.c_uint64
        self.restart()

    def restart(self) -> None:
        self._library.net_init(ctypes.byref(self._weights()))

    def _weights(self) -> ctypes.Array[ctypes.c_ubyte]:
        return (ctypes.c_ubyte * 1).in_dll(self._library, "net_weights")

    def step(self, graph: TrainableGraph, batch: Mapping[str, ArrayLike]) -> float:
        for name, values in batch.items():
            array = np.ascontiguousarray(np.asarray(values).astype(graph.operands[name].dtype.numpy))
            feed = getattr(self._library, f"net_feed_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}")
            feed(array.ctypes.data_as(ctypes.c_void_p))
        return float(self._library.net_step())

    def read(self, plan: Plan, name: str) -> Array:
        type_ = plan.program.values[plan.program.by_label[name]].type
        array = np.empty(type_.shape, type_.dtype.numpy)
        size = ctypes.c_size_t(array.nbytes)
        assert not self._library.net_read(name.encode(), array.ctypes.data_as(ctypes.c_void_p), size)
        return array

    def hash(self) -> int:
        """Of all that stays from one iteration to the next."""
        return int(self._library.net_hash())

    def self_hash(self) -> int:
        return int(self._library.net_self_hash(ctypes.byref(self._weights())))

    def saved(self) -> bytes:
        state = (ctypes.c_ubyte * self._saved_bytes)()
        assert self._library.net_save(state, ctypes.c_size_t(len(state))) == 0
        return bytes(state)

    def load(self, state: bytes) -> int:
        return int(self._library.net_load(state, ctypes.c_size_t(len(state))))

    _saved_bytes = 0

    def having(self, plan: Plan) -> CProgram:
        """The same, which knows the size of a saved state."""
        references = {e.reference: e.value for e in plan.program.entry if e.kind is not EntryKind.FED}
        sizes = (plan.program.values[value].type.nbytes for value in references.values())
        self._saved_bytes = 80 + sum(sizes)
        return self
