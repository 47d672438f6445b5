"""Several programs in one arena: persistent values at one place, each plan proved, each bound the largest."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.documents import load_graph, load_program
from solver.errors import ArenaplanError, CapacityError, OptionsError
from solver.graph import Initializer, Role, TrainableGraph, evaluation, inference
from solver.pipeline import BlockProgram, EntryRequest, entry_requests, plan_deployment, plan_requested
from solver.pipeline.deployment import joined_names, texts_of_stars
from solver.plan import Deployment, EntrySpec, Plan, PlanOptions, RequestedOptions, Tie, read_entry, read_tie
from solver.program import EntryKind, Tier, regions
from solver.verify import check_figures, prove_deployment
from tests.support.graphs import Sketch
from tests.support.random_graphs import PLANNED, random_graphs

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
MNIST = (EXAMPLES / "mnist.json").read_bytes()


def deployed(graph: TrainableGraph, capacity: int | None = None, **options: object) -> Deployment:
    requested = RequestedOptions(PlanOptions(capacity=capacity, **options))  # type: ignore[arg-type]  # by name
    graphs = {"train": graph, "evaluate": evaluation(graph), "infer": inference(graph)}
    entries = [
        EntryRequest(purpose, "net", purpose, subject, requested)  # type: ignore[arg-type]  # literal keys
        for purpose, subject in graphs.items()
    ]
    return plan_deployment("net", entries)


def persistent_sizes(plan: Plan, deployment: Deployment, k: int) -> int:
    inside = {row.values[k] for row in deployment.persistent}
    return sum(region.size for region in plan.regions if region.members[0] in inside)


def test_the_arena_is_that_of_training_alone() -> None:
    """Inference of the same batch needs nothing that training does not have."""
    graph = load_graph(MNIST, batch=32)
    deployment = deployed(graph)
    assert deployment.arena_bytes == plan_requested(graph).arena_bytes
    assert deployment.gap_bytes == 0


@pytest.mark.parametrize("name", ["lenet5", "transformer", "lstm_classifier", "autoencoder", "transfer"])
def test_arena_is_persistent_bytes_and_the_largest_rest(name: str) -> None:
    deployment = deployed(GALLERY[name].model().graph)
    assert prove_deployment(deployment) == ()
    rest = []
    for k, entry_point in enumerate(deployment.entry_points):
        assert [*check_figures(entry_point.plan)] == []
        assert persistent_sizes(entry_point.plan, deployment, k) == deployment.persistent_bytes
        rest.append(entry_point.plan.arena_bytes - deployment.persistent_bytes)
    assert deployment.arena_bytes == deployment.persistent_bytes + max(rest)
    assert deployment.gap_bytes == 0


@PLANNED
@given(random_graphs())
def test_values_have_one_place_and_programs_leave_those_of_others(graph: TrainableGraph) -> None:
    deployment = deployed(graph)
    for row in deployment.persistent:
        offsets = {
            e.plan.offsets[value] for e, value in zip(deployment.entry_points, row.values, strict=True)
        }
        assert len(offsets) == 1
    trained, *others = (entry_point.plan for entry_point in deployment.entry_points)
    variables = {row.name for row in deployment.persistent if "@" in row.name}
    assert not any(entry.kind is EntryKind.HELD for entry in trained.program.entry)
    for plan in others:
        held = {plan.program.values[e.value].label for e in plan.program.entry if e.kind is EntryKind.HELD}
        assert variables <= held
        touched = {b.value for step in plan.program.steps for b in step.bindings}
        assert touched.isdisjoint(plan.program.by_label[label] for label in held)
    alone = plan_requested(graph)
    assert deployment.arena_bytes >= alone.arena_bytes


def test_a_value_at_another_place_is_named() -> None:
    deployment = deployed(load_graph(MNIST, batch=4))
    last = deployment.entry_points[-1]
    row = deployment.persistent[-1]
    offsets = [*last.plan.offsets]
    offsets[row.values[-1]] += 64
    moved = replace(last, plan=replace(last.plan, offsets=tuple(offsets)))
    wrong = replace(deployment, entry_points=(*deployment.entry_points[:-1], moved))
    assert [v.rule for v in prove_deployment(wrong)] == ["persistent"]
    assert row.name in prove_deployment(wrong)[0].detail
    without = replace(deployment, persistent=deployment.persistent[1:])
    assert "is not listed once" in prove_deployment(without)[0].detail


def test_each_entry_point_may_take_the_whole_capacity_and_no_more() -> None:
    graph = GALLERY["lenet5"].model().graph
    needed = deployed(graph).arena_bytes
    assert deployed(graph, needed).arena_bytes <= needed
    smaller = deployed(graph, needed - 64)
    assert smaller.arena_bytes <= needed - 64
    assert any(smaller["train"].plan.program.runs)
    with pytest.raises(CapacityError):
        deployed(graph, smaller.persistent_bytes)


def test_an_inference_holds_the_variables_of_the_optimizer() -> None:
    graph = GALLERY["lenet5"].model().graph
    alone = plan_requested(inference(graph)).arena_bytes
    deployment = deployed(graph)
    held = [e for e in deployment["infer"].plan.program.entry if e.kind is EntryKind.HELD]
    assert held
    assert deployment["infer"].plan.arena_bytes >= alone + 64 * len(held)


def model(name: str, width: int = 4, weight: str = "parameter") -> TrainableGraph:
    s = Sketch(name)
    w = (
        s.add("w", Role.CONSTANT, [4, width], initializer=Initializer("ones"))
        if weight == "constant"
        else s.parameter("w", 4, width)
    )
    v = s.parameter("v", width, 2)
    h = s.op("Gemm", [s.op("Gemm", [s.input("x", 3, 4), w], "h"), v], "y")
    s.op("MeanSquaredError", [h, s.label("t", 3, 2)], "loss")
    return s.graph(trainable=["v"] if weight == "constant" else ["w", "v"])


def two(*graphs: TrainableGraph, ties: tuple[Tie, ...] = ()) -> Deployment:
    entries = [EntryRequest(graph.name, graph.name, "train", graph) for graph in graphs]
    return plan_deployment("two", entries, ties)


def test_two_models_share_nothing_but_the_memory_of_the_rest() -> None:
    a, b = model("a"), model("b")
    deployment = two(a, b)
    assert {row.name for row in deployment.persistent} == {"a.w", "a.v", "b.w", "b.v"}
    alone = plan_requested(a)
    assert deployment.arena_bytes == alone.arena_bytes + deployment.persistent_bytes // 2


def test_models_whose_values_would_have_one_name() -> None:
    """They are two values, and nobody has tied them."""
    dotted = Sketch("a")
    w = dotted.parameter("b.w", 4, 4)
    h = dotted.op("Gemm", [dotted.input("x", 3, 4), w], "h")
    dotted.op("MeanSquaredError", [h, dotted.label("t", 3, 4)], "loss")
    with pytest.raises(OptionsError, match=r"'a.b.w' is a value of model 'a', and of model 'a.b'"):
        two(dotted.graph(trainable=["b.w"]), model("a.b"))


def test_tied_values_are_one() -> None:
    deployment = two(model("a"), model("b"), ties=(Tie("a.*", "b.*"),))
    assert {row.name for row in deployment.persistent} == {"a.w", "a.v"}
    assert deployment.arena_bytes == plan_requested(model("a")).arena_bytes


@pytest.mark.parametrize(
    ("graphs", "tie", "message"),
    [
        ((model("a"), model("b", width=5)), Tie("a.w", "b.w"), r"float32\[4, 4\].*float32\[4, 5\]"),
        (
            (model("a"), model("b", weight="constant")),
            Tie("a.w", "b.w"),
            "'b', and a parameter of 'a'",
        ),
        ((model("a"), model("b")), Tie("a.q*", "b.q*"), "joins nothing"),
        ((model("a"), model("b")), Tie("a.*", "b.w"), "number of stars"),
        ((model("a"), model("b")), Tie("a.w", "a.v"), "are tied to 'a.w'|float32"),
    ],
)
def test_ties_that_do_not_go_together(graphs: tuple[TrainableGraph, ...], tie: Tie, message: str) -> None:
    with pytest.raises(OptionsError, match=message):
        two(*graphs, ties=(tie,))


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (PlanOptions(rewrite=True), "take no rewrite"),
        (PlanOptions(chunked_head=True), "take no chunked_head"),
        (PlanOptions(tiers=(Tier("a", 4096), Tier("b", 8192, 9, 9))), "take no tiers"),
        (PlanOptions(target="onert"), "runs one program alone"),
    ],
)
def test_options_of_one_program(requested: PlanOptions, message: str) -> None:
    entry = EntryRequest("train", "a", "train", model("a"), RequestedOptions(requested))
    with pytest.raises(OptionsError, match=message):
        plan_deployment("a", [entry])


def test_names_of_entry_points() -> None:
    entry = EntryRequest("train", "a", "train", model("a"))
    with pytest.raises(OptionsError, match="Two entry points are called 'train'"):
        plan_deployment("a", [entry, entry])
    with pytest.raises(OptionsError, match="There is no entry point"):
        plan_deployment("a", [])


def test_a_program_beside_a_graph() -> None:
    program = load_program((EXAMPLES / "programs" / "momentum.json").read_bytes())
    networks: dict[str, Callable[[int | None], TrainableGraph | BlockProgram]] = {
        "net": lambda batch: load_graph(MNIST, batch=batch or 8),
        "other": lambda _batch: program,
    }
    requests = entry_requests(networks, [], RequestedOptions())
    assert [(entry.name, entry.purpose) for entry in requests] == [("net", "train"), ("other", "run")]
    deployment = plan_deployment("both", requests)
    assert prove_deployment(deployment) == ()
    for entry_point in deployment.entry_points:
        assert [*check_figures(entry_point.plan)] == []
        assert regions(entry_point.plan.program)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (EntrySpec("run"), "is a graph"),
        (EntrySpec("train", "c"), "which is not there"),
    ],
)
def test_entry_points_that_a_network_does_not_have(spec: EntrySpec, message: str) -> None:
    with pytest.raises(ArenaplanError, match=message):
        entry_requests({"a": lambda _batch: model("a")}, [spec], RequestedOptions())


def test_nothing_is_trained_where_nothing_is_trainable() -> None:
    frozen = inference(model("a"))
    with pytest.raises(OptionsError, match="Nothing of 'a' is trained"):
        entry_requests({"a": lambda _batch: frozen}, [EntrySpec("train")], RequestedOptions())
    (entry,) = entry_requests({"a": lambda _batch: frozen}, [], RequestedOptions())
    assert entry.purpose == "infer"


# ------------------------------------------------------------------ Entry points and ties as users write them


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("train", EntrySpec("train")),
        ("infer:batch=1", EntrySpec("infer", batch=1)),
        ("infer:batch=1,name=camera", EntrySpec("infer", batch=1, name="camera")),
        ("evaluate:name=check", EntrySpec("evaluate", name="check")),
        ("encoder.infer", EntrySpec("infer", "encoder")),
        ("model.v2.run:name=r", EntrySpec("run", "model.v2", name="r")),
    ],
)
def test_entry(text: str, spec: EntrySpec) -> None:
    assert read_entry(text) == spec


@pytest.mark.parametrize(
    "text",
    ["", "fit", "infer:", "infer:batch", "infer:batch=0", "infer:batch=-1", "infer:batch=x", "infer:size=3",
     "infer,", "infer:batch=1;", "train:batch=1,,name=a", "infer:batch=1.5", ".", ":batch=1"],
)  # fmt: skip
def test_no_entry(text: str) -> None:
    with pytest.raises(OptionsError, match="is no entry point") as caught:
        read_entry(text)
    assert "infer:batch=1" in caught.value.remedy


@given(st.text(max_size=30))
def test_any_text_is_an_entry_or_refused(text: str) -> None:
    try:
        spec = read_entry(text)
    except OptionsError:
        return
    assert text.startswith(f"{spec.model}.{spec.purpose}" if spec.model else spec.purpose)


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a=b=c"])
def test_no_tie(text: str) -> None:
    with pytest.raises(OptionsError, match="ties nothing"):
        read_tie(text)


def test_ties_join_the_first_of_all_names() -> None:
    names = ["a.w", "b.w", "c.w", "a.v", "c.u", "a.w@m", "b.w@m"]
    joined = joined_names(names, [Tie("b.*", "c.*"), Tie("a.w", "b.w")])
    assert joined == {
        "a.w": "a.w", "b.w": "a.w", "c.w": "a.w", "a.v": "a.v", "c.u": "c.u", "a.w@m": "a.w@m",
        "b.w@m": "b.w@m",
    }  # fmt: skip


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_patterns_match_as_regular_expressions_do(pattern: str, name: str) -> None:
    expression = "(.*)".join(map(re.escape, pattern.split("*")))
    texts = texts_of_stars(pattern, name)
    assert (texts is None) == (re.fullmatch(expression, name) is None)
    if texts is not None:
        shortest = re.fullmatch(expression.replace(".*", ".*?"), name)
        assert shortest is not None
        assert texts == list(shortest.groups())


def test_many_stars_take_no_longer() -> None:
    """A regular expression would try every way to divide the name among its stars."""
    assert texts_of_stars("*a" * 300 + "b", "a" * 1000) is None


def test_each_star_stands_for_the_same_text_on_both_sides() -> None:
    names = ["a.e0.w", "a.e1.w", "b.1.weight.e", "b.0.weight.e"]
    joined = joined_names(names, [Tie("a.e*.*", "b.*.*eight.e")])
    assert joined["b.0.weight.e"] == "a.e0.w"
    assert joined["b.1.weight.e"] == "a.e1.w"
