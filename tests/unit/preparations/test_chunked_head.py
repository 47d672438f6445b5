"""A head in chunks trains as the whole one does, has no whole logits, and is proved again from the graph."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.documents import dump_graph, load_graph
from solver.errors import OptionsError, PlanError
from solver.executor import Trainer, rewritten, synthetic_batch, validate
from solver.graph import DType, TrainableGraph
from solver.pipeline import plan, plan_requested, reference_of
from solver.plan import Plan, PlanOptions, RequestedOptions, SizeRange
from solver.reports.verdict import Changes
from solver.verdict import explain
from solver.verify import prove
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.rewriting import same_training, types

CHUNKED = PlanOptions(chunked_head=True, scratch_budget=1)
LOSS: dict[str, Any] = {"from_logits": 1, "sparse": 1}


def language_model(
    *,
    head: str = "tied",
    tokens: tuple[int, ...] = (2, 70),
    words: int = 300,
    dtype: DType = DType.FLOAT64,
    outputs: tuple[str, ...] = (),
    views: bool = True,
    width: int = 24,
    **loss: Any,
) -> TrainableGraph:
    """An embedding, a layer, and a head: of the embedding, transposed or by a flag, or of another weight."""
    s = Sketch("words", dtype)
    embedding = s.parameter("embedding", words, width)
    h = s.op("Gather", [embedding, s.label("tokens", *tokens, dtype=DType.INT32)], "embedded", axis=0)
    h = s.op("MatMul", [h, s.parameter("w", width, width)], "hidden", activation="Tanh")
    rows = int(np.prod(tokens))
    if head == "tied":
        h = s.op("MatMul", [h, s.op("Transpose", [embedding], "turned")], "z", "head")
    elif head == "table":
        h = s.op("Reshape", [h, s.integers("flat", rows, width)], "rows")
        h = s.op("Gemm", [h, embedding], "z", "head", transB=1)
    elif head == "gemm":
        h = s.op("Reshape", [h, s.integers("flat", rows, width)], "rows")
        h = s.op("Gemm", [h, s.parameter("v", words, width), s.parameter("b", words)], "z", "head", transB=1)
        h = s.op("Reshape", [h, s.integers("batch", *tokens, words)], "zs")
    else:
        h = s.op("MatMul", [h, s.parameter("v", width, words)], "z", "head")
        h = s.op("Add", [s.parameter("b", words), h], "sum")
    targets = tokens
    if views and len(tokens) > 1:
        h, targets = s.op("Reshape", [h, s.integers("logits.shape", -1, words)], "logits"), (rows,)
    labels = s.label("targets", *targets, dtype=DType.INT64)
    s.op("CategoricalCrossEntropy", [h, labels], "loss", "entropy", **{**LOSS, **loss})
    return s.graph(outputs=outputs)


def chunked(graph: TrainableGraph, options: PlanOptions = CHUNKED) -> tuple[Plan, TrainableGraph]:
    made = plan(graph, options)
    return made, rewritten(graph, made)


@grid("head", ["tied", "gemm", "matmul"])
@grid("loss", [{}, {"reduction": "sum"}, {"ignore_index": 7}, {"ignore_index": 7, "reduction": "sum"}])
@grid("views", [True, False])
def test_it_trains_as_the_whole_head(head: str, loss: dict[str, Any], views: bool) -> None:
    graph = language_model(head=head, views=views, **loss)
    _, after = chunked(graph)
    assert "ProductLogSumExp" in types(after)
    assert not {"CategoricalCrossEntropy", "Add", "Transpose"} & set(types(after))
    assert (after.loss, after.trainable) == (graph.loss, graph.trainable)
    same_training(graph, after, rtol=1e-12)


#: An operation and its constants, or the permutation of a Transpose.
Move = tuple[str, list[list[int]]]
SHIFT: Move = ("Slice", [[0], [-1], [1]])
FRONT: Move = ("Transpose", [[0, 2, 1]])
FLAT: Move = ("Reshape", [[-1, 90]])


def moved(moves: Sequence[Move], rows: Sequence[int]) -> TrainableGraph:
    """Logits [2, 5, 90] that are moved before the loss reads them, with the classes at the end again."""
    s = Sketch("moved", DType.FLOAT64)
    h = s.op("MatMul", [s.parameter("x", 2, 5, 4), s.parameter("w", 4, 90)], "z", "head")
    h = s.op("Add", [h, s.parameter("b", 90)], "biased")
    for k, (type_, constants) in enumerate(moves):
        if type_ == "Transpose":
            h = s.op(type_, [h], f"h{k}", perm=constants[0])
        else:
            names = [s.integers(f"c{k}.{i}", *values) for i, values in enumerate(constants)]
            h = s.op(type_, [h, *names], f"h{k}")
    labels = s.label("targets", *rows, dtype=DType.INT32)
    s.op("CategoricalCrossEntropy", [h, labels], "loss", "entropy", **LOSS)
    return s.graph()


@pytest.mark.parametrize(
    ("moves", "rows", "left"),
    [
        ([SHIFT], (2, 4), ["Slice", "Reshape"]),
        ([SHIFT, FLAT], (8,), ["Slice", "Reshape"]),
        ([FLAT, ("Slice", [[9], [2], [0], [-3]])], (3,), ["Reshape", "Slice"]),
        ([FRONT, FRONT], (2, 5), ["Reshape"]),
        ([FRONT, ("Slice", [[1], [5], [2]]), FRONT], (2, 4), ["Transpose", "Slice", "Transpose", "Reshape"]),
        ([("Transpose", [[1, 0, 2]])], (5, 2), ["Transpose", "Reshape"]),
        ([("Transpose", [[1, 2, 0]]), ("Transpose", [[0, 2, 1]])], (5, 2), ["Transpose", "Reshape"]),
        ([FLAT, ("Reshape", [[5, 2, 90]]), SHIFT], (5, 1), ["Reshape", "Slice", "Reshape"]),
    ],
)
def test_rows_that_are_moved(moves: list[Move], rows: tuple[int, ...], left: list[str]) -> None:
    """The rows of X are moved in the place of those of the logits; what cancels goes."""
    graph = moved(moves, rows)
    after = chunked(graph)[1]
    before = types(after)[: types(after).index("ProductLogSumExp")]
    assert before == [*(["Reshape"] if len(rows) > 1 else []), *left]  # that of the labels comes first
    same_training(graph, after, rtol=1e-12)


@pytest.mark.parametrize("move", [("Slice", [[0], [50], [2]]), ("Slice", [[-1], [-200], [2], [-1]])])
def test_classes_that_are_cut_or_turned_are_no_head(move: Move) -> None:
    with pytest.raises(OptionsError, match=r"'entropy' reads the result of 'h0.op' \(Slice\)"):
        plan(moved([move], (2, 5)), CHUNKED)


def test_losses_of_each_row() -> None:
    s = Sketch("rows", DType.FLOAT64)
    z = s.op("MatMul", [s.input("x", 2, 3, 4), s.parameter("w", 4, 90)], "z", "head")
    labels = s.label("targets", 2, 3, dtype=DType.INT32)
    s.op("CategoricalCrossEntropy", [z, labels], "losses", "entropy", reduction="none", **LOSS)
    s.op("ReduceMax", ["losses"], "loss", keepdims=0)
    graph = s.graph(outputs=("losses",))
    same_training(graph, chunked(graph)[1], rtol=1e-12)


def test_a_mean_of_ignored_labels_alone_is_no_number() -> None:
    graph = language_model(ignore_index=7, tokens=(4,))
    batch = {**synthetic_batch(graph, 1, 1), "targets": np.full(4, 7)}
    for options in (PlanOptions(), CHUNKED):
        assert np.isnan(Trainer(graph, plan(graph, options)).step(batch))


@grid("head", ["tied", "gemm", "matmul"])
def test_the_arena_trains_bit_for_bit_as_the_reference(head: str) -> None:
    graph = language_model(head=head, dtype=DType.FLOAT32, ignore_index=3)
    for options in (
        CHUNKED,
        replace(CHUNKED, rewrite=True, in_place=True, order=True, sub_ranges=True),
        replace(CHUNKED, storage="bfloat16", fit_scratch=True, scratch_budget=1 << 21),
    ):
        made = plan(graph, options)
        assert validate(graph, made, steps=3).identical
        assert prove(reference_of(rewritten(graph, made), made.options), made) == ()


def test_the_logits_are_never_whole() -> None:
    """No value of the program has their size, forward or backward, and the arena is smaller for it."""
    graph = language_model(words=4000, dtype=DType.FLOAT32)
    logits = 2 * 70 * 4000 * 4
    whole, made = plan(graph, PlanOptions(scratch_budget=1)), chunked(graph)[0]
    assert sum(v.type.nbytes >= logits for v in whole.program.values) >= 2
    parameters = {v.type.nbytes for v in made.program.values if v.type.shape == (4000, 24)}
    assert all(v.type.nbytes < logits / 4 or v.type.nbytes in parameters for v in made.program.values)
    assert made.arena_bytes < whole.arena_bytes - logits
    bounds = made.replacements[0]
    assert (bounds.rule, bounds.bytes_before - bounds.bytes_after > logits) == ("chunk-head", True)


def test_the_scratch_budget_bounds_the_chunks() -> None:
    graph = language_model(words=4000, dtype=DType.FLOAT32)
    largest = []
    for budget in (1 << 16, 1 << 18, 1 << 20):
        program = plan(graph, PlanOptions(chunked_head=True, scratch_budget=budget)).program
        head = {t for t, step in enumerate(program.steps) if program.kernel(step) == "ProductLogSumExp"}
        scratch = [
            sum(program.values[b.value].type.nbytes for b in program.steps[t].bindings if b.slot not in KEPT)
            for t in head
        ]
        largest.append(max(scratch))
    assert largest[0] < largest[1] < largest[2]
    assert largest[1] <= (1 << 18) + 140 * 30


def test_one_plan_for_a_range_of_sizes() -> None:
    """Chunks grow with the rows, so every size has a plan of its own reference."""
    document = json.loads(
        dump_graph(language_model(tokens=(2, 70), words=100, dtype=DType.FLOAT32, views=False))
    )
    for operand in document["operands"]:
        operand["shape"] = ["batch" if size == 2 else size for size in operand["shape"]]
    ranged = RequestedOptions(CHUNKED, ranges=(SizeRange("batch", 1, 3),))
    graph = load_graph({**document, "batch": 3})
    made = plan_requested(graph, ranged)
    assert validate(graph, made, steps=3).identical


def test_explain_offers_it_where_there_is_a_head() -> None:
    graph = language_model(words=4000, dtype=DType.FLOAT32)
    capacity = plan_requested(graph, RequestedOptions(PlanOptions(chunked_head=True))).arena_bytes
    found = explain(graph, RequestedOptions(PlanOptions(capacity=capacity)))
    remedies = {remedy.names: remedy for remedy in found.remedies}
    remedy = remedies[("a chunked head",)]
    assert (remedy.changes, remedy.options["chunked_head"]) == (Changes.ROUNDING, True)
    whole = language_model(words=4000, dtype=DType.FLOAT32, outputs=("logits",))
    capacity = plan(whole).arena_bytes - 4096
    other = explain(whole, RequestedOptions(PlanOptions(capacity=capacity)))
    assert not [remedy for remedy in other.remedies if "a chunked head" in remedy.names]


def test_scratch_is_fitted_once_behind_it() -> None:
    graph = language_model(words=4000, dtype=DType.FLOAT32)
    made = plan(graph, PlanOptions(chunked_head=True, fit_scratch=True))
    fitted = [record for record in made.records if record.name == "fit_scratch"]
    assert len(fitted) == 1
    assert made.options.scratch_budget == fitted[0].facts["budget_after"]
    assert made.options.scratch_budget < 1 << 21
    assert validate(graph, made, steps=2).identical


def test_c_has_no_kernel_for_it() -> None:
    graph = chunked(language_model(head="matmul", dtype=DType.FLOAT32))[1]
    with pytest.raises(
        OptionsError, match=r"'c' has no kernel for .*entropy\.head:forward: .*ProductLogSumExp"
    ):
        plan(graph, PlanOptions(target="c"))


@grid("storage", ["int4", "int8:8", "float16"])
@grid("head", ["tied", "table", "gemm", "matmul"])
def test_a_stored_weight_is_unpacked_by_the_chunk(storage: str, head: str) -> None:
    """No value has the size of the logits or of the weight in float32; the arena trains as the reference."""
    words = 4000
    graph = language_model(head=head, words=words, width=32, dtype=DType.FLOAT32).with_spec(trainable=("w",))
    options = PlanOptions(chunked_head=True, scratch_budget=1 << 16, frozen_storage=storage)
    made = plan(graph, options)
    assert max(v.type.nbytes for v in made.program.values) <= words * 32 * 4 / 2
    assert "tile" in {binding.slot for step in made.program.steps for binding in step.bindings}
    assert validate(graph, made, steps=2).identical
    if head == "tied":  # the whole head transposes it, so that it is not stored
        return
    whole = Trainer(graph, plan(graph, replace(options, chunked_head=False)))
    batch = synthetic_batch(graph, 3, 1)
    np.testing.assert_allclose(Trainer(graph, made).step(batch), whole.step(batch), rtol=1e-6)


#: Slots of a head that are no scratch.
KEPT = frozenset({"x0", "x1", "x2", "x3", "y0", "y1", "dy0", "dy1", "dx0", "dx1", "dx3"})


def test_a_plan_does_not_replace_a_head_that_nobody_asked_for() -> None:
    graph = language_model()
    made = chunked(graph)[0]
    for options in (
        replace(made.options, chunked_head=False),
        replace(made.options, rewrite=True, chunked_head=False),
    ):
        with pytest.raises(PlanError, match="its options do not ask for that"):
            rewritten(graph, replace(made, options=options))
    other = language_model(label_smoothing=0.1)
    with pytest.raises(PlanError, match=r"replacement 'chunk-head' of turned.op, head, .* does not hold"):
        rewritten(other, made)


def _dense() -> TrainableGraph:
    s = Sketch("dense")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "z", "head")
    s.op("CategoricalCrossEntropy", [z, s.label("t", 3, 5)], "loss", "entropy", from_logits=1)
    return s.graph()


def _of(head: Callable[[Sketch], str], *shape: int) -> TrainableGraph:
    s = Sketch("other")
    labels = s.label("t", *(shape or (3,)), dtype=DType.INT32)
    s.op("CategoricalCrossEntropy", [head(s), labels], "loss", "entropy", **LOSS)
    return s.graph()


def _scaled(s: Sketch) -> str:
    return s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "z", "head", alpha=0.5)


def _two_biases(s: Sketch) -> str:
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 5), s.parameter("b", 5)], "z", "head")
    return s.op("Add", [z, s.parameter("c", 5)], "sum")


def _capped(s: Sketch) -> str:
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "z", "head")
    return s.op("Tanh", [z], "capped", "cap")


def _fused(s: Sketch) -> str:
    z = s.op("MatMul", [s.input("x", 3, 4), s.parameter("w", 4, 5)], "z", "head")
    return s.op("Add", [z, s.parameter("b", 5)], "sum", "bias", activation="Relu")


def _batched(s: Sketch) -> str:
    return s.op("MatMul", [s.input("x", 3, 1, 4), s.parameter("w", 3, 4, 5)], "z", "head")


def _no_axis_of_classes(s: Sketch) -> str:
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 10)], "z", "head")
    return s.op("Reshape", [z, s.integers("shape", 6, 5)], "reshaped", "reshape")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (language_model(outputs=("logits",)), "'entropy' reads 'logits', which is an output"),
        (language_model(label_smoothing=0.1), "'entropy' smooths its labels"),
        (_dense(), "'entropy' does not compare logits with classes by number"),
        (_of(_scaled), "'entropy' reads the product 'head', which does more than"),
        (_of(_two_biases), "'entropy' reads the product 'head', which does more than"),
        (_of(_fused), r"'entropy' reads the result of 'bias' \(Add\), not of a product"),
        (_of(_batched, 3, 1), "'entropy' reads the product 'head', which does more than"),
        (_of(_capped), r"'entropy' reads the result of 'cap' \(Tanh\), not of a product"),
        (_of(_no_axis_of_classes, 6), r"'entropy' reads the result of 'reshape' \(Reshape\), not"),
        (_of(lambda s: s.input("z", 3, 5)), "'entropy' reads 'z', which no operation computes"),
    ],
)
def test_a_graph_without_such_a_head_is_refused_with_the_reason(graph: TrainableGraph, reason: str) -> None:
    with pytest.raises(OptionsError, match=f"No head of '.*' can be chunked: {reason}") as caught:
        plan(graph, CHUNKED)
    assert caught.value.path == ("chunked_head",)
