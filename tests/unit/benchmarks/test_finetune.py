"""Fine-tuning in PyTorch, as the bench measures it: each way trains, and saves what it promises."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.parity


def test_a_checkpointed_step_allocates_less() -> None:
    from examples.qwen import Shapes
    from tests.benchmarks.finetune_process import measured, ways

    shapes = Shapes(layers=6, hidden=56, head_size=4, intermediate=304, vocabulary=64)
    eager, checkpointed = (measured(shapes, 64, way) for name, way in ways() if name.startswith("PyTorch"))
    assert checkpointed["stay"] == eager["stay"]
    assert 0 < checkpointed["beside"] < eager["beside"] / 2
