"""Offsets for TFLM: which tensors, how long they live, the metadata, and the real interpreter obeying it."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from solver.errors import CapacityError, DocumentError
from solver.exporters.tflm import METADATA, inference_problem, load_offsets, with_offline_plan
from solver.importers.circle.metadata import with_metadata
from solver.importers.circle.read import read_model
from solver.layout import Status
from tests.support.circle_models import CircleFile, dense
from tests.support.micro_models import branching_model


def test_tensors_and_their_lifespans() -> None:
    problem, numbers = inference_problem(dense(b"TFL3"))
    found = {b.id: (b.size, b.lifespan.start, b.lifespan.end, b.alignment) for b in problem.buffers}
    # x is read by operator 0; y1 by the softmax, operator 2, whose output the caller reads. Sizes are
    # 4, 8, 3 and 3 floats, rounded up to 16 bytes.
    assert found == {
        "0:x": (16, 0, 1, 16),
        "3:y0": (32, 0, 2, 16),
        "6:y1": (16, 1, 3, 16),
        "7:out": (16, 2, 3, 16),
    }
    assert numbers == (0, 3, 6, 7)


def test_the_plan_travels_with_the_model() -> None:
    data = branching_model(0)
    made = with_offline_plan(data)
    assert made.outcome.status is Status.OPTIMAL
    assert made.size == made.outcome.lower_bound
    assert load_offsets(made.data) == made.offsets
    assert load_offsets(data) is None
    # planned again, the model has one plan
    again = with_offline_plan(made.data)
    assert again.offsets == made.offsets
    assert len(again.data) == len(made.data)


@pytest.mark.parametrize("seed", range(4))
def test_what_lives_at_the_same_time_is_apart(seed: int) -> None:
    made = with_offline_plan(branching_model(seed))
    problem, numbers = inference_problem(made.data)
    placed = [(made.offsets[number], buffer) for number, buffer in zip(numbers, problem.buffers, strict=True)]
    for k, (offset, a) in enumerate(placed):
        assert offset % 16 == 0
        assert offset + a.size <= made.size
        for other, b in placed[:k]:
            together = a.lifespan.start < b.lifespan.end and b.lifespan.start < a.lifespan.end
            assert not together or offset + a.size <= other or other + b.size <= offset


def test_a_capacity_below_the_bound() -> None:
    data = branching_model(1)
    size = with_offline_plan(data).size
    assert with_offline_plan(data, capacity=size).size == size
    with pytest.raises(CapacityError, match=f"need {size:,} bytes at least") as caught:
        with_offline_plan(data, capacity=size - 16)
    assert caught.value.required == size


def test_metadata_that_is_too_short() -> None:
    for words in ((), (1, 1), (1, 1, 5, 0)):
        data = with_metadata(dense(b"TFL3"), METADATA, struct.pack(f"<{len(words)}i", *words))
        with pytest.raises(DocumentError, match="too few for its offsets"):
            load_offsets(data)


def test_a_tensor_without_a_size() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 4))
    file.tensors[y].type = 5  # STRING
    file.operator("RELU", [x], [y])
    with pytest.raises(DocumentError, match="'y' is STRING"):
        with_offline_plan(file.write(y))


@pytest.mark.parametrize("seed", range(3))
def test_the_real_interpreter_obeys(seed: int) -> None:
    micro = pytest.importorskip(
        "tflite_micro.python.tflite_micro.runtime", reason="pip install tflite-micro: its builds are daily"
    )
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]

    def run(data: bytes) -> bytes:
        interpreter = micro.Interpreter.from_bytes(data, arena_size=1 << 20)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        return bytes(interpreter.get_output(0).tobytes())

    data = branching_model(seed)
    made = with_offline_plan(data)
    assert run(made.data) == run(data)
    count = len(read_model(data).tensors)
    wrong = [0 if number in made.offsets else -1 for number in range(count)]
    assert run(with_metadata(data, METADATA, struct.pack(f"<{3 + count}i", 1, 1, count, *wrong))) != run(data)
