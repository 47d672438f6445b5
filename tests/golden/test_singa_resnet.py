"""ResNet-50 as Apache SINGA would run it: the liveness figures known for its operations, in MiB.

SGD with momentum, 3 x 224 x 224, 1000 classes, float32. Parameters, momentum, running statistics and input
are included; no context of a device and no workspace of a kernel is.
"""

from __future__ import annotations

import pytest

from examples.resnet50 import resnet50
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import loads
from solver.reports.arenas import report
from solver.targets import aligned
from solver.targets.singa import Sharing, singa_program
from tests.support.proofs import violations

MIB = 2**20
BATCHES = (16, 32)

#: No reuse, and the lower bound: as SINGA runs it, with Relu in place, with everything in place.
NO_REUSE = (4556, 8820)
BOUNDS = {Sharing.DERIVATIVES_OF_SUMS: (2074, 3953), Sharing.RELU: (1494, 2792), Sharing.ALL: (1490, 2780)}


@pytest.fixture(scope="module", params=BATCHES)
def network(request: pytest.FixtureRequest) -> TrainableGraph:
    return resnet50(request.param).graph


def expected(figures: tuple[int, int], graph: TrainableGraph) -> float:
    batch = graph.operands["image"].shape[0]
    return figures[BATCHES.index(batch)]


def test_the_network_has_its_parameters(network: TrainableGraph) -> None:
    assert sum(network.operands[name].type.elements for name in network.trainable) == 25_557_032


def test_bytes_without_reuse(network: TrainableGraph) -> None:
    made = plan(network, PlanOptions(target="singa"))
    assert report(made).total / MIB == pytest.approx(expected(NO_REUSE, network), abs=0.6)


@pytest.mark.parametrize("level", BOUNDS)
def test_lower_bounds(network: TrainableGraph, level: Sharing) -> None:
    (curve,) = loads(aligned(singa_program(network, level), 4).program)
    assert max(curve) / MIB == pytest.approx(expected(BOUNDS[level], network), abs=0.6)


@pytest.mark.parametrize(
    ("options", "level"),
    [
        (PlanOptions(target="singa"), Sharing.DERIVATIVES_OF_SUMS),
        (PlanOptions(target="singa-relu"), Sharing.RELU),
        (PlanOptions(target="singa", in_place=True), Sharing.ALL),
    ],
    ids=["as it is", "Relu in place", "everything in place"],
)
def test_the_arena_is_the_bound(network: TrainableGraph, options: PlanOptions, level: Sharing) -> None:
    made = plan(network, options)
    assert made.gap_bytes == 0
    assert not violations(network, made)
    assert made.arena_bytes / MIB == pytest.approx(expected(BOUNDS[level], network), abs=0.6)
