"""Every layout problem that the planner makes, frozen: same buffers, same order, same arenas.

Identical problems give identical layouts, so golden figures cannot move unnoticed while the code between a
graph and its buffers changes. `python -m tests.golden.test_layout_problems` writes the file again, for a
change of figures that is meant.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.gallery import GALLERY
from examples.resnet50 import resnet50
from solver.documents import load_graph, load_program
from solver.graph import TrainableGraph, TrainingRules
from solver.pipeline import plan, plan_program
from solver.plan import Plan, PlanOptions

ROOT = Path(__file__).resolve().parents[2]
FROZEN = Path(__file__).with_name("layout_problems.json")

#: Options by the name under which their problems are frozen.
OPTIONS = {
    "as it is": PlanOptions(),
    "in place": PlanOptions(in_place=True),
    "two at once": PlanOptions(parallelism=2),
    "in place, three at once": PlanOptions(in_place=True, parallelism=3),
    "rewritten": PlanOptions(rewrite=True),
    "rewritten, in place": PlanOptions(rewrite=True, in_place=True),
    "updates at the end": PlanOptions(update="end"),
    "updates at the end, two at once": PlanOptions(update="end", parallelism=2),
    "little scratch, 256 bytes": PlanOptions(scratch_budget=2**18, alignment=256),
    "onert": PlanOptions(target="onert"),
    "nntrainer": PlanOptions(target="nntrainer"),
    "singa": PlanOptions(target="singa"),
    "singa in place": PlanOptions(target="singa", in_place=True),
}

#: What changes a training step beside options.
RULES = {
    "": TrainingRules(),
    "clipped": TrainingRules(clip_global_norm=1.0),
    "micro-batches": TrainingRules(accumulate=4),
    "micro-batches, clipped, skipping": TrainingRules(
        accumulate=2, clip_global_norm=0.5, skip_non_finite=True
    ),
}

_USUAL = ("as it is", "in place", "in place, three at once", "rewritten, in place")


def _example(name: str) -> TrainableGraph:
    return load_graph((ROOT / f"examples/{name}.json").read_bytes())


def _cases() -> Iterator[tuple[str, str, str]]:
    """Model, options, rules."""
    for model in GALLERY:
        for options in _USUAL:
            yield model, options, ""
    for options in OPTIONS:
        yield "mnist", options, ""
        if options not in ("rewritten", "singa in place", "nntrainer"):
            yield "mobilenet_v2", options, ""
    for rules in RULES:
        yield "mnist", "in place, three at once", rules
        yield "transformer", "as it is", rules
    yield "resnet50 on large images", "as it is", ""
    yield "resnet50 on large images", "singa", ""
    for options in ("as it is", "two at once"):
        yield "momentum", options, ""


CASES = sorted({"; ".join(filter(None, case)): case for case in _cases()}.items())


def planned(model: str, options: str, rules: str) -> Plan:
    if model == "momentum":
        program = load_program((ROOT / "examples/programs/momentum.json").read_bytes())
        return plan_program(program, OPTIONS[options])
    if model in GALLERY:
        graph = load_graph(GALLERY[model].model().document)
    elif model.startswith("resnet50"):
        graph = load_graph(resnet50().document)
    else:
        graph = _example(model)
    return plan(graph.with_spec(rules=RULES[rules]) if rules else graph, OPTIONS[options])


def frozen(made: Plan) -> dict[str, object]:
    """Arena sizes, and a digest over all buffers in their order: name, bytes, alignment, lifespan."""
    rows = [
        (arena.name, b.id, b.size, b.alignment, b.lifespan.start, b.lifespan.end)
        for arena in made.arenas
        for b in arena.buffers
    ]
    return {
        "arenas": [arena.size for arena in made.arenas],
        "bounds": [arena.certificate.lower_bound for arena in made.arenas],
        "buffers": len(rows),
        "digest": hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:32],
    }


@pytest.mark.parametrize(("name", "case"), CASES, ids=[name for name, _ in CASES])
def test_problem(name: str, case: tuple[str, str, str]) -> None:
    assert frozen(planned(*case)) == json.loads(FROZEN.read_text(encoding="utf-8"))[name]


if __name__ == "__main__":
    found = {name: frozen(planned(*case)) for name, case in CASES}
    FROZEN.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
