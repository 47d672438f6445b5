"""Where updates stand: at once where that is legal, else after the last reader."""

from __future__ import annotations

import pytest

from solver.errors import OptionsError
from solver.graph import Graph
from solver.layout import max_load
from solver.liveness import analyze
from solver.schedule import training_program
from solver.training import TrainingProgram
from tests.support.graphs import chain, convolutional, residual


def program(graph: Graph, update: str = "immediate") -> TrainingProgram:
    return training_program(graph, scratch_budget=1 << 20, update=update)


def ids(found: TrainingProgram) -> list[str]:
    return [str(step.index) for step in found.steps]


def test_an_update_follows_the_last_reader_of_its_weight() -> None:
    assert ids(program(chain()))[5:] == [
        "fc2:calc_gradient", "b2:apply_gradient", "fc2:calc_derivative", "w2:apply_gradient",
        "fc1:calc_gradient", "w1:apply_gradient", "b1:apply_gradient",
    ]  # fmt: skip


def test_a_tied_weight_waits_for_all_its_readers() -> None:
    names = ids(program(residual()))
    update = names.index("w2:apply_gradient")
    assert update > names.index("fc2:calc_gradient.accumulate1")
    assert update > names.index("fc2:calc_derivative")


def test_at_the_end_means_after_the_backward_pass() -> None:
    names = ids(program(residual(), "end"))
    assert all(name.endswith("apply_gradient") for name in names[-4:])


@pytest.mark.parametrize("graph", [chain((9, 9, 9, 9)), residual(), convolutional()])
def test_immediate_updates_never_need_more_memory(graph: Graph) -> None:
    bounds = [
        max_load(analyze(program(graph, mode)).pools[0].problem()).bytes for mode in ("immediate", "end")
    ]
    assert bounds[0] <= bounds[1]


def test_an_unknown_mode_and_a_budget_of_nothing_are_option_errors() -> None:
    with pytest.raises(OptionsError, match="update mode"):
        program(chain(), "later")
    with pytest.raises(OptionsError, match="scratch budget"):
        training_program(chain(), scratch_budget=0, update="end")
