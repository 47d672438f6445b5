"""BatchNormalization: shapes, refusals, what is updated, what backward reads."""

from __future__ import annotations

import math
from typing import Any

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.batch_normalization import INVERSE_DEVIATION, MEAN, Channels, channels_of
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

TYPE = "BatchNormalization"
KIND = lookup(TYPE)


def inputs(*shape: int, channels: int = 3) -> list[Input]:
    return [shape, *[(channels,)] * 4]


@grid(
    ("shape", "attributes", "channels"),
    [
        ((2, 3), {}, Channels(1, 3, 1, 2)),
        ((7, 3), {}, Channels(7, 3, 1)),
        ((12, 3, 1, 1), {}, Channels(3, 3, 1, 4)),
        ((2**20, 3), {}, Channels(2**12, 3, 1, 256)),
        ((8, 1024), {}, Channels(8, 1024, 1)),
        ((8, 512), {}, Channels(4, 512, 1, 2)),
        ((2, 3, 4), {}, Channels(2, 3, 4)),
        ((2, 3, 4, 5), {}, Channels(2, 3, 20)),
        ((2, 3, 4, 5, 6), {}, Channels(2, 3, 120)),
        ((2, 4, 5, 3), {"data_layout": "NHWC"}, Channels(5, 3, 1, 8)),
        ((2, 3), {"data_layout": "NHWC"}, Channels(1, 3, 1, 2)),
    ],
)
def test_channels(shape: tuple[int, ...], attributes: dict[str, Any], channels: Channels) -> None:
    given = inputs(*shape, channels=channels.channels)
    assert output_of(TYPE, given, **attributes) == shape
    found = channels_of(node_of(TYPE, given, **attributes))
    assert found == channels
    assert found.count * found.channels == math.prod(shape) == math.prod(found.shape)


def test_running_statistics_are_updated_in_training_alone() -> None:
    assert KIND.updates(node_of(TYPE, inputs(2, 3), training_mode=1)) == {3, 4}
    assert KIND.updates(node_of(TYPE, inputs(2, 3), training_mode=0)) == set()
    assert KIND.updates(node_of(TYPE, inputs(2, 3))) == set(), "ONNX's default is the frozen mode"


def test_statistics_are_saved_in_training_alone() -> None:
    training = KIND.saved(node_of(TYPE, inputs(2, 3, 4), training_mode=1))
    assert [(r.name, r.type.shape) for r in training] == [(MEAN, (3,)), (INVERSE_DEVIATION, (3,))]
    assert KIND.saved(node_of(TYPE, inputs(2, 3, 4))) == ()


@pytest.mark.parametrize("mode", [0, 1])
def test_backward_never_reads_what_forward_updates(mode: int) -> None:
    updated = KIND.updates(node_of(TYPE, inputs(2, 3), training_mode=mode))
    for wanted in [(0,), (1,), (2,), (0, 1, 2)]:
        assert not updated & needs_of(TYPE, inputs(2, 3), wanted, training_mode=mode)[0]
