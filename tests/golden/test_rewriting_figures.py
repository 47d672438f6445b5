"""A block of MobileNet v2, each operation by itself as exporters write it, before and after: to the byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.executor import validate
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.rewritable import apart, mobile_block
from tests.support.rewriting import everywhere, same_training, types

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

BATCH, SIZE, CHANNELS = 4, 32, 16

#: Bytes of one tensor with six times the channels: 4 * 32 * 32 * 96 floats. Two of them are the peak before.
WIDE = BATCH * SIZE * SIZE * 6 * CHANNELS * 4


@pytest.mark.parametrize(
    ("trained", "layout", "arena"),
    [
        (False, "NHWC", 2_502_976),
        (False, "NCHW", 2_502_976),
        (True, "NHWC", 4_224_384),
        (True, "NCHW", 4_223_616),
    ],
)
def test_arenas(trained: bool, layout: str, arena: int) -> None:
    """A fifth less, frozen or trained; before, at least two wide tensors live side by side."""
    graph = mobile_block(batch=BATCH, size=SIZE, channels=CHANNELS, stride=2, layout=layout, trained=trained)
    plain, rewritten = plan(graph), plan(graph, PlanOptions(rewrite=True))
    assert rewritten.arena_bytes == rewritten.lower_bound == rewritten.replacements[-1].bytes_after == arena
    assert plain.lower_bound == rewritten.replacements[0].bytes_before
    assert plain.arena_bytes > 2 * WIDE
    assert rewritten.arena_bytes < 0.81 * plain.arena_bytes
    assert validate(graph, rewritten, steps=2).identical


@pytest.mark.parametrize(("name", "arena"), [("mnist", 17_085_056), ("mobilenet_v2", 399_732_096)])
def test_the_examples_written_apart_or_fused_need_the_same(name: str, arena: int) -> None:
    """The peak decides about each activation, however the model was written; every bias is fused."""
    graph = load_graph((EXAMPLES / f"{name}.json").read_bytes())
    loose = apart(graph)
    made = [plan(one, PlanOptions(rewrite=True)) for one in (graph, loose)]
    assert [one.arena_bytes for one in made] == [arena, arena]
    assert plan(graph).arena_bytes > arena
    biases = types(loose).count("Add") - types(graph).count("Add")
    assert sum(one.rule == "fuse-bias" for one in made[1].replacements) == biases > 0


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_what_is_left_of_a_frozen_block(layout: str) -> None:
    graph = mobile_block(stride=2, layout=layout)
    assert Counter(types(graph)) == {
        "Conv": 3, "BatchNormalization": 3, "Clip": 2, "Add": 4, "GlobalAveragePool": 1, "Flatten": 1,
        "MatMul": 1, "CategoricalCrossEntropy": 1,
    }  # fmt: skip
    after = everywhere(graph).graph
    assert types(after) == [
        "Conv", "Conv", "Conv", "GlobalAveragePool", "Flatten", "Gemm", "CategoricalCrossEntropy",
    ]  # fmt: skip
    convolutions = [op for op in after.operations if op.type == "Conv"]
    assert [op.attributes.get("activation", "None") for op in convolutions] == ["Relu6", "Relu6", "None"]
    same_training(graph, after)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_a_trained_block_keeps_its_parameters(layout: str) -> None:
    graph = mobile_block(layout=layout, trained=True)
    after = everywhere(graph).graph
    assert after.trainable == graph.trainable
    assert [after.operands[name] for name in graph.trainable] == [
        graph.operands[name] for name in graph.trainable
    ]
    same_training(graph, after, rtol=1e-4)
