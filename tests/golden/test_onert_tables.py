"""The published allocation tables of the onert training runtime, to the byte.

Bytes of each of its pools for two models, before and after it learnt to release what is dead. The
figures come from the runtime's own log; nothing here was computed by this project.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.graph import TrainableGraph
from solver.importers.circle import load_circle
from solver.layout import Proof, max_load, solve
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.targets import Pool, TargetBuffer
from solver.targets.onert import POOLS, Management, onert_pools, onert_target
from tests.support.buffers import DATA
from tests.support.every import every

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
MODELS = ("mnist", "mobilenet_v2")

#: By model: bytes of each pool in the order of `POOLS`, extra tensors last.
BEFORE = {
    "mnist": (11_360_128, 1_938_880, 11_360_000, 1_938_880, 3_877_760, 3_211_264, 23_187_968),
    "mobilenet_v2": (
        *(361_362_288, 13_951_408, 361_362_240, 13_951_408, 27_902_816, 49_032_960),
        444_923_968,
    ),
}
AFTER = {
    "mnist": (11_341_056, 1_938_880, 6_423_808, 1_606_144, 3_877_760, 0, 6_627_328),
    "mobilenet_v2": (361_362_240, 13_951_312, 97_241_920, 5_124_000, 27_902_624, 3_010_560, 96_350_208),
}
#: The same, summed: what the release takes, and what it would take with extra tensors planned.
RELEASED_TOTAL = {"mnist": 48_375_616, "mobilenet_v2": 953_516_912}
AFTER_TOTAL = {"mnist": 31_814_976, "mobilenet_v2": 604_942_864}
#: The pool of derivatives under the planner before WIC.
FIRST_FIT = {"mnist": 7_227_904, "mobilenet_v2": 115_345_280}
#: Parameters, as the model files count them.
PARAMETERS = {"mnist": 484_714, "mobilenet_v2": 3_487_816}

TABLES = {Management.BUMP: BEFORE, Management.WIC: AFTER}


@cache
def graph(model: str) -> TrainableGraph:
    return load_graph((EXAMPLES / f"{model}.json").read_bytes())


@cache
def pools(model: str, management: Management) -> dict[str, Pool]:
    return {pool.name: pool for pool in onert_pools(graph(model), management)}


def peak(pool: Pool, solver: str | None = None) -> int:
    layout = solve(pool.problem(), solver=solver or pool.solver or "portfolio").layout
    assert layout is not None
    return layout.peak


@pytest.mark.parametrize("model", MODELS)
def test_parameters_and_cells(model: str) -> None:
    """Every pool has the published bytes, which are its bound."""
    trained = [graph(model).operands[name].type.elements for name in graph(model).trainable]
    assert sum(trained) == PARAMETERS[model]
    with every() as case:
        for management, table in TABLES.items():
            for pool, expected in zip(POOLS, table[model], strict=True):
                with case((management.value, pool)):
                    assert peak(pools(model, management)[pool]) == expected
        for management in Management:
            for name, pool_ in pools(model, management).items():
                with case((management.value, name, "bound")):
                    assert peak(pool_) == max_load(pool_.problem()).bytes


@pytest.mark.parametrize("model", MODELS)
def test_pools_of_the_release_differ_in_constants_and_extra_tensors_only(model: str) -> None:
    released = [peak(pool) for pool in onert_pools(graph(model), Management.RELEASED)]
    constants = {"trainable", "optimizer variables"}
    expected = [
        BEFORE[model][k] if name in constants or name == "extra" else AFTER[model][k]
        for k, name in enumerate(POOLS)
    ]
    assert released == expected


@pytest.mark.parametrize("model", MODELS)
def test_totals_and_first_fit(model: str) -> None:
    released = sum(peak(pool) for pool in pools(model, Management.RELEASED).values())
    after = sum(peak(pool) for pool in pools(model, Management.WIC).values())
    assert (released, after) == (RELEASED_TOTAL[model], AFTER_TOTAL[model])
    assert peak(pools(model, Management.WIC)["back-prop"], "first-fit") == FIRST_FIT[model]


@pytest.mark.parametrize("model", MODELS)
def test_arithmetic_behind_the_pools(model: str) -> None:
    """Which buffers make up a peak, not only how large it is."""
    sizes = {
        pool.name: sorted((b.size for b in live_at_peak(pool)), reverse=True)
        for pool in onert_pools(graph(model))
    }
    if model == "mnist":
        assert sizes["back-prop"] == [3_211_264, 3_211_264, 1_280]
        assert sizes["gradient"] == [1_605_632, 512]
        assert sizes["extra"] == [3_211_264, 3_211_264, 102_400, 102_400]
    else:
        assert sizes["back-prop"] == [40 * 113**2 * 96, 40 * 112**2 * 96, 40 * 1000]
        assert sizes["gradient"] == [5_120_000, 4_000]
        assert sizes["disposable"] == [40 * 56**2 * 24]
        assert sizes["extra"] == [48_168_960, 48_168_960, 6_144, 6_144]


def live_at_peak(pool: Pool) -> list[TargetBuffer]:
    step = max_load(pool.problem()).witness_step
    return [b for b in pool.buffers if step is not None and b.lifespan.start <= step < b.lifespan.end]


@pytest.mark.parametrize("model", MODELS)
def test_plan_has_one_proved_arena_for_each_pool(model: str) -> None:
    made = plan(graph(model), PlanOptions(target="onert"))
    assert [arena.name for arena in made.arenas] == list(POOLS)
    assert tuple(arena.size for arena in made.arenas) == AFTER[model]
    assert {arena.certificate.proof for arena in made.arenas} == {Proof.MAX_LOAD}


@pytest.mark.parametrize("model", MODELS)
def test_steps_are_forward_then_backward(model: str) -> None:
    target = onert_target(graph(model))
    operations = [operation.id for operation in graph(model).operations]
    expected = [f"{name}:forward" for name in operations] + [f"{name}:backward" for name in operations[::-1]]
    assert [step.id for step in target.steps] == expected


@pytest.mark.skipif(not DATA.is_dir(), reason="the model files do not stand beside this check-out")
@pytest.mark.parametrize("model", MODELS)
def test_the_runtime_own_files(model: str) -> None:
    """The tables follow from the .circle files as well as from the examples that describe them."""
    batch = {"mnist": 32, "mobilenet_v2": 10}[model]
    imported = load_circle((DATA / f"{model}.circle").read_bytes(), batch=batch).graph
    assert sum(imported.operands[name].type.elements for name in imported.trainable) == PARAMETERS[model]
    for management, table in TABLES.items():
        assert tuple(peak(pool) for pool in onert_pools(imported, management)) == table[model]
    assert plan(imported).sizes == plan(graph(model)).sizes
