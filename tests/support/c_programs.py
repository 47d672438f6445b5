"""Plans of the target `c` as programs: exported, compiled for this machine, and called through ctypes."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from solver.c_training import functions_of, persistent_values
from solver.executor import c_files
from solver.graph import TrainableGraph
from solver.graph.types import Array
from solver.plan import Deployment, Plan
from tests.support.c_objects import shared_library

__all__ = ["CProgram", "written"]

_STRICT = ("-std=c11", "-ffp-contract=off", "-fno-math-errno", "-Wall", "-Wextra", "-Werror", "-Wconversion")


def written(
    graph: TrainableGraph | Mapping[str, TrainableGraph] | None,
    plan: Plan | Deployment,
    folder: Path,
    weights: str = "embed",
) -> Path:
    """The folder, with the files of a plan."""
    for name, data in c_files(plan, weights, graph).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


class CProgram:
    """The files of a folder, compiled with these flags, from their first values on if they are embedded."""

    def __init__(self, folder: Path, *flags: str) -> None:
        library = folder / f"net{re.sub(r'[^a-zA-Z0-9]', '', ''.join(flags))}.so"
        kernels, data = (sorted(folder.glob(pattern)) for pattern in ("kernels/*.c", "net_weights.c"))
        own = sorted({*folder.glob("net*.c")} - {*data})
        shared_library(library, "gcc", *_STRICT, *flags, own=own, kernels=kernels, data=data)
        self._library, self._embeds = ctypes.CDLL(str(library)), (folder / "net_weights.c").exists()
        self._library.net_hash.restype = ctypes.c_uint64
        self._library.net_self_hash.restype = ctypes.c_uint64
        self.restart()

    def restart(self) -> None:
        self._library.net_init(ctypes.byref(self._weights()) if self._embeds else None)

    def _weights(self) -> ctypes.Array[ctypes.c_ubyte]:
        return (ctypes.c_ubyte * 1).in_dll(self._library, "net_weights")

    def step(self, graph: TrainableGraph, batch: Mapping[str, ArrayLike]) -> float:
        self._feed("", graph, batch)
        self._library.net_step.restype = ctypes.c_float
        return float(self._library.net_step())

    def infer(
        self, graph: TrainableGraph, batch: Mapping[str, ArrayLike], entry: str = "infer"
    ) -> dict[str, Array]:
        """Copies of the outputs of an entry point that has no loss."""
        self._feed(f"{_plain(entry)}_", graph, batch)
        assert self._library[f"net_{_plain(entry)}"]() == 0
        outputs = {}
        for name in graph.outputs:
            output = self._library[f"net_output_{_plain(entry)}_{_plain(name)}"]
            output.restype = ctypes.c_void_p
            type_ = graph.operands[name].type
            raw = ctypes.string_at(output(), type_.nbytes)
            outputs[name] = np.frombuffer(raw, type_.dtype.numpy).reshape(type_.shape)
        return outputs

    def evaluate(
        self, graph: TrainableGraph, batch: Mapping[str, ArrayLike], entry: str = "evaluate"
    ) -> float:
        """The loss of an entry point."""
        self._feed(f"{_plain(entry)}_", graph, batch)
        run = self._library[f"net_{_plain(entry)}"]
        run.restype = ctypes.c_float
        return float(run())

    def resize(self, batch: int) -> int:
        """Choose the batch of what follows; the code that C returns."""
        return int(self._library.net_set_batch(ctypes.c_uint32(batch)))

    def _feed(self, front: str, graph: TrainableGraph, batch: Mapping[str, ArrayLike]) -> None:
        for name, values in batch.items():
            self.feed(f"{front}{name}", np.asarray(values).astype(graph.operands[name].dtype.numpy))

    def feed(self, name: str, values: Array) -> int:
        """Feed an input; the code that C returns, of one without a range no matter what."""
        array = np.ascontiguousarray(values)
        return int(self._library[f"net_feed_{_plain(name)}"](array.ctypes.data_as(ctypes.c_void_p)))

    def write(self, name: str, values: Array) -> int:
        """Write a value by its name; the code that C returns."""
        array = np.ascontiguousarray(values)
        size = ctypes.c_size_t(array.nbytes)
        return int(self._library.net_write(name.encode(), array.ctypes.data_as(ctypes.c_void_p), size))

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

    def having(self, plan: Plan | Deployment) -> CProgram:
        """The same, which knows the size of a saved state."""
        counters = {function.counter for function in functions_of(plan)}
        self._saved_bytes = 80 + 4 * len(counters) + sum(row.type.nbytes for row in persistent_values(plan))
        return self


def _plain(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_]", "_", name)
