"""Files of every format with something wrong in them: read, or refused by an error of ours."""

from __future__ import annotations

import io
import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from solver.errors import ArenaplanError
from solver.exporters.circle import with_training
from solver.exporters.tflm import load_offsets, with_offline_plan
from solver.graph import OptimizerSpec
from solver.importers.circle import CircleTraining, dump_training, load_training
from solver.importers.options import ImportOptions
from solver.importers.registry import find_importer, load_model, unknown_format
from solver.importers.weights import read_arrays
from tests.support.circle_cases import CASES, written
from tests.support.circle_models import dense
from tests.support.damaged_models import damaged_bytes, whole_models
from tests.support.micro_models import STATEFUL, branching_model

#: The long run has 10,000 files of each kind that is not itself slow to read.
FILES = 5 * int(os.environ.get("ARENAPLAN_FUZZ") or 12)
#: Bytes that all files of a kind together may add to the process.
MOST_MEMORY = 256 << 20


def imported(data: bytes, _folder: Path) -> None:
    importer = find_importer(data)
    if importer is None:
        raise unknown_format("The file")
    load_model(importer, data, options=ImportOptions(loss="mse"), path=None, name="model")


def planned_for_tflm(data: bytes, _folder: Path) -> None:
    load_offsets(data)
    with_offline_plan(data)


def of_weights(data: bytes, folder: Path) -> None:
    path = folder / "weights"
    path.write_bytes(data)
    read_arrays(path)


def safetensors() -> bytes:
    values = np.arange(60, dtype=np.float32)
    table = {
        "a": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]},
        "b": {"dtype": "F32", "shape": [40], "data_offsets": [80, 240]},
    }
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + values.tobytes()


def archive(write: Callable[..., None]) -> bytes:
    stream = io.BytesIO()
    write(stream, a=np.arange(20, dtype=np.float32).reshape(4, 5), b=np.zeros((3, 0, 2)), c=np.arange(9))
    return stream.getvalue()


TRAINING = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 0.5}), "mean-squared-error", batch=2)

#: Of each kind, whole files and what reads them.
KINDS: dict[str, tuple[Callable[[], Sequence[bytes]], Callable[[bytes, Path], None]]] = {
    "onnx": (lambda: [model.SerializeToString() for model in whole_models()], imported),
    "circle": (lambda: [written(case) for case in CASES], imported),
    "tflite": (lambda: [written(case, b"TFL3") for case in CASES], imported),
    "trained circle": (lambda: [with_training(dense(), TRAINING)], imported),
    "CTR0": (lambda: [dump_training(TRAINING)], lambda data, _folder: ignored(load_training(data))),
    "tflm": (
        lambda: [
            *(with_offline_plan(branching_model(seed)).data for seed in range(3)),
            *(make() for make in STATEFUL.values()),
        ],
        planned_for_tflm,
    ),
    "safetensors": (lambda: [safetensors()], of_weights),
    "npz": (lambda: [archive(np.savez), archive(np.savez_compressed)], of_weights),
    "zip": (lambda: [archive(np.savez)], imported),  # PyTorch's .pt2 and .pt are archives, too
}


def ignored(_found: object) -> None:
    pass


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_refused_by_an_error_of_ours(kind: str, tmp_path: Path) -> None:
    whole, read = KINDS[kind]
    sources, chosen = whole(), Random(f"13 {kind}")
    begin = peak()
    refusals: list[tuple[str, str]] = []  # not the errors: each keeps what its functions had in hand
    for i in range(FILES):
        data = sources[i % len(sources)]
        for _ in range(chosen.choice((1, 1, 2, 5))):
            data = damaged_bytes(data, chosen) or data
        try:
            read(data, tmp_path)
        except ArenaplanError as error:
            refusals.append((error.message, error.remedy))
    assert refusals
    assert all(message and remedy for message, remedy in refusals)
    assert peak() - begin < MOST_MEMORY


def peak() -> int:
    """Bytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
