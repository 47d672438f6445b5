"""MLPerf Tiny's networks: the sizes of the paper, and training in C."""

from __future__ import annotations

import math
import shutil

import pytest

from examples.mlperf_tiny import MLPERF_TINY
from solver.executor import validate
from solver.graph import Role
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions

#: Parameters of the reference implementations, with running statistics.
PARAMETERS = {"autoencoder": 269_992, "ds_cnn": 24_908, "resnet8": 78_666, "mobilenet_v1": 221_794}


@pytest.mark.parametrize("name", MLPERF_TINY)
def test_networks_have_the_parameters_of_the_benchmark(name: str) -> None:
    graph = MLPERF_TINY[name](1).graph
    kept = [o for o in graph.operands.values() if o.role in (Role.PARAMETER, Role.STATE)]
    assert sum(math.prod(operand.shape) for operand in kept) == PARAMETERS[name]


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", MLPERF_TINY)
def test_networks_train_in_c(name: str) -> None:
    graph = MLPERF_TINY[name](2).graph
    made = plan_requested(graph, RequestedOptions(PlanOptions(target="c")))
    report = validate(graph, made, steps=3, kernels="c")
    assert report.identical, report.steps
    assert len(report.steps) == 3
