"""The examples' losses over several steps are PyTorch's, up to rounding: forward, derivatives, optimizer."""

from __future__ import annotations

from functools import partial

import pytest

from examples.gallery import GALLERY, mobilenet_v2_bn, resnet
from solver.executor import synthetic_batch
from tests.benchmarks.eager import eager_step

#: Thinner, as they would take long; but with enough positions for statistics that rounding does not sway.
SMALLER = {
    "resnet18": partial(resnet.build, 4, depth=18, side=32, width=16),
    "resnet50": partial(resnet.build, 4, depth=50, side=32, width=16),
    "mobilenet_v2_bn": partial(mobilenet_v2_bn.build, 8, side=64),
}


@pytest.mark.parity
@pytest.mark.parametrize("name", GALLERY)
def test_losses_are_those_of_pytorch(name: str) -> None:
    model = SMALLER[name]() if name in SMALLER else GALLERY[name].model()
    batch = synthetic_batch(model.graph, 0, 1)
    eager, trainer = eager_step(model.graph, batch), model.trainer()
    assert eager is not None
    ours, theirs = zip(*((trainer.step(batch), eager()) for _ in range(4)), strict=True)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-4)
    assert ours == pytest.approx(theirs, rel=5e-3, abs=1e-4)
