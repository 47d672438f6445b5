"""The steps that PyTorch's partitioner repeats, beside the search at the peaks that it reaches."""

from __future__ import annotations

import pytest

from solver.graph import TrainableGraph
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.sequences import Sequences
from tests.benchmarks.partitioner import beside

pytestmark = [pytest.mark.parity, pytest.mark.filterwarnings("ignore::FutureWarning")]  # PyTorch's own


def networks() -> dict[str, TrainableGraph]:
    from examples.gallery import GALLERY
    from tests.support.other_networks import gpt

    return {
        "gpt": gpt(batch=2, length=16, width=32, heads=2, blocks=2, words=64),
        "lenet5": GALLERY["lenet5"].model().graph,
    }


@pytest.mark.parametrize("name", ["gpt", "lenet5"])
def test_no_more_products_run_again_at_its_own_peaks(name: str) -> None:
    from tests.benchmarks.step_partitions import partitions

    captured = partitions(networks()[name], [1.0, 0.4, 0.0])
    some = []
    for schedule in captured["schedules"]:
        problem, sequence = beside(captured, schedule["sequence"])
        peak, extra = Sequences(problem).measure(sequence)
        ours = cheapest(problem, peak)
        assert ours.fits
        assert ours.extra <= extra
        some.append(extra)
    assert some[0] == 0, "with all of its activations PyTorch runs no product again"
    assert some[-1] > 0
    assert len(set(sequence)) == len(captured["steps"])
