"""Graphs, options, buffers and reports: nothing is lost on the way to JSON and back."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from solver.documents import (
    dump_buffers,
    dump_graph,
    dump_options,
    dump_report,
    graph_digest,
    load_buffers,
    load_graph,
    load_options,
    load_report,
    parse_json,
)
from solver.errors import BatchError, DocumentError, OptionsError, OtherFormatError, ProblemError
from solver.graph import Role, Trainable, TrainingRules
from solver.layout.model.problem import Buffer, Hole, LayoutProblem, Lifespan
from solver.options import MEASURES
from solver.plan import PlanOptions, RequestedOptions
from solver.reports.validation import StepReport, ValidationReport, Violation
from tests.support.documents import graph_document, mutated
from tests.support.graphs import batch_normalised, chain

EXAMPLES = Path(__file__).parents[3] / "examples"

# ------------------------------------------------------------------------------------------- graphs


def test_graph_document() -> None:
    graph = load_graph(json.dumps(graph_document()).encode())
    assert graph.name == "small"
    assert graph.operands["image"].shape == (4, 2, 3)
    assert graph.operands["hidden"].role is Role.INTERMEDIATE
    assert graph.trainable == ("fc1.weight", "bias", "fc2.weight")
    assert graph.optimizer is not None
    assert dict(graph.optimizer.attributes) == {"learning_rate": 0.001}
    assert graph.outputs == ("probabilities",)
    assert load_graph(dump_graph(graph)) == graph


def test_parsed_document_is_left_alone() -> None:
    document = graph_document()
    load_graph(document)
    assert document == graph_document()


def test_states() -> None:
    graph = batch_normalised()
    assert graph.operands["mean"].role is Role.STATE
    assert load_graph(dump_graph(graph)) == graph


def test_training_rules() -> None:
    rules = TrainingRules(clip_global_norm=0.5, loss_scale=1024.0, accumulate=3, skip_non_finite=True)
    graph = chain(training=rules)
    assert load_graph(dump_graph(graph)) == graph
    growing = chain(training=TrainingRules(loss_scale=1024.0, loss_scale_growth=7))
    assert load_graph(dump_graph(growing)) == growing
    document = graph_document() | {"training": {"clip_global_norm": 2, "accumulate": 4}}
    assert load_graph(document).training == TrainingRules(clip_global_norm=2.0, accumulate=4)


def test_usual_training_rules_are_left_out() -> None:
    assert "training" not in json.loads(dump_graph(chain()))
    assert json.loads(dump_graph(chain(training=TrainingRules(accumulate=2))))["training"] == {
        "accumulate": 2
    }


def test_training_rules_are_part_of_the_digest() -> None:
    rules = [None, TrainingRules(), TrainingRules(accumulate=2), TrainingRules(clip_global_norm=1.0)]
    digests = [graph_digest(chain(training=rule)) for rule in rules]
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3


def test_graph_made_in_code() -> None:
    choices: tuple[Trainable, ...] = ("all", 1, ["w1"])
    for trainable in choices:
        graph = chain(trainable=trainable)
        assert load_graph(dump_graph(graph)) == graph
        assert load_graph(dump_graph(graph, indent=2)) == graph


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_example_graphs(path: Path) -> None:
    graph = load_graph(path.read_bytes())
    assert load_graph(dump_graph(graph)) == graph
    assert load_graph(path.read_bytes(), batch=3) != graph


def test_dumped_graph_is_stable() -> None:
    once = dump_graph(load_graph(graph_document()))
    assert dump_graph(load_graph(once)) == once
    assert b"batch" not in once


def test_attributes_keep_their_kinds() -> None:
    document = mutated("/operations/1/attributes", {"alpha": 2.0, "transA": 0, "activation": "Tanh"})
    again = load_graph(dump_graph(load_graph(document)))
    assert repr(dict(again.operations[1].attributes)) == "{'alpha': 2.0, 'transA': 0, 'activation': 'Tanh'}"


def test_operations_in_any_order() -> None:
    document = graph_document()
    document["operations"].reverse()
    assert load_graph(document).operations == load_graph(graph_document()).operations


def test_batch_override() -> None:
    assert load_graph(graph_document(), batch=9).operands["logits"].shape == (9, 5)
    without = mutated("/batch", ...)
    assert load_graph(without, batch=4) == load_graph(graph_document())


@pytest.mark.parametrize("batch", [0, -1, 2**63])
def test_batch_override_out_of_range(batch: int) -> None:
    with pytest.raises(BatchError) as caught:
        load_graph(graph_document(), batch=batch)
    assert caught.value.pointer == "/batch"


def test_batch_override_without_a_symbol() -> None:
    concrete = dump_graph(load_graph(graph_document()))
    with pytest.raises(BatchError, match="no shape of the graph is symbolic"):
        load_graph(concrete, batch=5)


def test_the_batch_that_a_document_has_may_be_asked_for() -> None:
    """A plan of an imported model says its batch, and is validated with the imported document."""
    concrete = dump_graph(load_graph(graph_document()))
    assert load_graph(concrete, batch=4) == load_graph(concrete)


def test_an_input_without_the_batch_changes_nothing_about_it() -> None:
    """A mask that all examples share, as imported models have."""
    concrete = json.loads(dump_graph(load_graph(graph_document())))
    concrete["operands"].insert(0, {"name": "mask", "role": "input", "shape": [1, 3], "dtype": "float32"})
    concrete["operands"].append({"name": "masked", "role": "intermediate", "shape": None})
    concrete["operations"].append({"name": "Mask", "type": "Relu", "inputs": ["mask"], "outputs": ["masked"]})
    concrete["outputs"] = ["masked"]
    assert load_graph(concrete, batch=4) == load_graph(concrete)
    with pytest.raises(BatchError, match="no shape of the graph is symbolic"):
        load_graph(concrete, batch=5)


@pytest.mark.parametrize(
    ("trainable", "expected"),
    [
        ("all", ("fc1.weight", "bias", "fc2.weight")),
        ({"last": 0}, ()),
        ({"last": 1}, ("bias", "fc2.weight")),
        (["fc2.weight", "fc1.weight"], ("fc1.weight", "fc2.weight")),
        ([], ()),
    ],
)
def test_trainable_set(trainable: Any, expected: tuple[str, ...]) -> None:
    assert load_graph(mutated("/trainable", trainable)).trainable == expected


def test_frozen_operand() -> None:
    assert load_graph(mutated("/operands/4/trainable", False)).trainable == ("fc1.weight", "fc2.weight")


# ------------------------------------------------------------------------------------------ digests


def test_digest_is_that_of_the_graph_and_not_of_its_spelling() -> None:
    digest = graph_digest(load_graph(graph_document()))
    assert len(digest) == 64
    assert graph_digest(load_graph(json.dumps(graph_document(), indent=3).encode())) == digest
    assert graph_digest(load_graph(mutated("/name", "another title"))) == digest
    assert graph_digest(load_graph(mutated("/operations/1/outputs", ["hidden"]))) == digest
    assert graph_digest(load_graph(mutated("/trainable", {"last": 2}))) == digest
    assert graph_digest(load_graph(dump_graph(load_graph(graph_document())))) == digest


@pytest.mark.parametrize(
    ("pointer", "value"),
    [
        ("/batch", 5),
        ("/trainable", ["bias"]),
        ("/outputs", []),
        ("/optimizer/learning_rate", 0.002),
        ("/optimizer/type", "SGD"),
        ("/operations/1/attributes/activation", "Tanh"),
        ("/operations/1/name", "first"),
        ("/operands/3/initializer/seed", 2),
        ("/operands/3/initializer", {"kind": "zeros"}),
        ("/operands/4/initializer", {"kind": "values", "values": [1, 2, 3, 4, 5]}),
        ("/operands/2/initializer/values", [4, 6]),
    ],
)
def test_digest_sees_all_that_decides_training(pointer: str, value: Any) -> None:
    assert graph_digest(load_graph(mutated(pointer, value))) != graph_digest(load_graph(graph_document()))


def test_digest_sees_every_value() -> None:
    digests = {
        graph_digest(load_graph(mutated("/operands/4/initializer", {"kind": "values", "values": values})))
        for values in ([0, 0, 0, 0, 0], [0, 0, 0, 0, 1], [-0.0, 0, 0, 0, 0])
    }
    assert len(digests) == 3


# ------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(),
        PlanOptions("onert", "greedy", 3, 64, 10**12, 2.5, 0, "end"),
        PlanOptions(deadline_seconds=5, capacity=0),
        PlanOptions(parallelism=64),
        PlanOptions(rewrite=True),
    ],
)
@pytest.mark.parametrize("automatic", [False, True])
def test_options(options: PlanOptions, automatic: bool) -> None:
    requested = RequestedOptions(options, automatic)
    assert load_options(dump_options(requested)) == requested
    assert dump_options(load_options(dump_options(requested, indent=1))) == dump_options(requested)


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(target="singa", in_place=True),
        PlanOptions(in_place=True, sub_ranges=True, order=True, fit_scratch=True, recompute=True, capacity=9),
    ],
)
def test_measures_that_are_chosen_by_hand(options: PlanOptions) -> None:
    assert load_options(dump_options(options)) == RequestedOptions(options, automatic=False)


@pytest.mark.parametrize(
    "only",
    ["in-place,sub-ranges", "in_place, sub_ranges", "sub-ranges", ["in-place", "sub_ranges"], ["sub_ranges"]],
)
def test_names_of_measures_are_a_list_or_text(only: object) -> None:
    options = PlanOptions(in_place=True, sub_ranges=True)
    assert load_options({"only": only}) == RequestedOptions(options, automatic=False)


def test_no_measure_is_as_written() -> None:
    as_written = RequestedOptions(automatic=False)
    assert load_options({"as_written": True}) == load_options({"only": []}) == as_written
    assert load_options({"as_written": False, "only": None}) == RequestedOptions()
    assert json.loads(dump_options(as_written))["only"] == []


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("value", [True, False])
def test_a_switch_of_before_leads_to_only(name: str, value: bool) -> None:
    with pytest.raises(DocumentError) as caught:
        load_options({"capacity": 9, name: value})
    assert caught.value.path == (name,)
    assert f'"only": ["{name}"]' in caught.value.remedy
    assert ("rounding" in caught.value.message, "scratch_budget" in caught.value.remedy) == (
        (True, True) if name == "fit_scratch" else (False, False)
    )


def test_as_written_and_only_do_not_go_together() -> None:
    with pytest.raises(OptionsError, match="Both as_written"):
        load_options({"as_written": True, "only": ["order"]})


def test_options_that_came_later_are_written_only_where_they_say_something() -> None:
    """Documents from before keep their digests."""
    written = json.loads(dump_options(RequestedOptions())).keys() - {"format", "version"}
    first = "target solver batch alignment capacity deadline_seconds scratch_budget update"
    assert written == {*first.split()}
    assert json.loads(dump_options(PlanOptions(parallelism=2)))["parallelism"] == 2


def test_options_need_nothing() -> None:
    assert load_options({}) == RequestedOptions()
    requested = load_options(b'{"alignment": 32, "capacity": null}')
    assert requested == RequestedOptions(PlanOptions(alignment=32))


@pytest.mark.parametrize(
    ("document", "error", "pointer", "word"),
    [
        ({"alignment": 24}, OptionsError, "/alignment", "power of two"),
        ({"alignment": 0}, OptionsError, "/alignment", "at least 1"),
        ({"alignment": "16"}, DocumentError, "/alignment", "an integer"),
        ({"batch": 0}, OptionsError, "/batch", "at least 1"),
        ({"batch": True}, DocumentError, "/batch", "an integer"),
        ({"capacity": -1}, OptionsError, "/capacity", "at least 0"),
        ({"capacity": 2**63}, OptionsError, "/capacity", "at most"),
        ({"capacity": 1.5}, DocumentError, "/capacity", "an integer"),
        ({"deadline_seconds": -0.1}, OptionsError, "/deadline_seconds", "at least 0"),
        ({"deadline_seconds": float("nan")}, DocumentError, "/deadline_seconds", "finite"),
        ({"scratch_budget": -1}, OptionsError, "/scratch_budget", "at least 0"),
        ({"scratch_budget": None}, DocumentError, "/scratch_budget", "an integer"),
        ({"target": 5}, DocumentError, "/target", "a string"),
        ({"only": ["in-plaice"]}, DocumentError, "/only/0", "'in_place', 'sub_ranges'"),
        ({"only": "order,"}, DocumentError, "/only", "'in_place', 'sub_ranges'"),
        ({"only": 1}, DocumentError, "/only", "a list"),
        ({"aligment": 16}, DocumentError, "/aligment", "Did you mean 'alignment'"),
        ({"format": "arenaplan.graph"}, OtherFormatError, "/format", "arenaplan.options"),
        ({"version": 3}, DocumentError, "/version", "Known versions: 1"),
    ],
)
def test_bad_options(document: dict[str, Any], error: type[Exception], pointer: str, word: str) -> None:
    with pytest.raises((DocumentError, OptionsError)) as caught:
        load_options(document)
    assert type(caught.value) is error
    assert caught.value.pointer == pointer
    assert word in str(caught.value)


# ------------------------------------------------------------------------------------------ buffers


def test_buffers() -> None:
    problem = LayoutProblem(
        (
            Buffer("a", 8, Lifespan(0, 3)),
            Buffer("b", 2**40, Lifespan(-2, 1), alignment=64, offset=128),
        ),
        capacity=2**50,
    )
    assert load_buffers(dump_buffers(problem)) == problem
    assert load_buffers(dump_buffers(LayoutProblem(()))) == LayoutProblem(())


def test_gaps_of_buffers() -> None:
    gaps = (Hole(Lifespan(1, 2)), Hole(Lifespan(2, 3), 4, 8))
    problem = LayoutProblem((Buffer("a", 8, Lifespan(0, 9), holes=gaps),))
    assert load_buffers(dump_buffers(problem)) == problem


def test_buffers_leave_defaults_out() -> None:
    document = parse_json(dump_buffers(LayoutProblem((Buffer("a", 8, Lifespan(0, 3)),))))
    assert document == {
        "format": "arenaplan.buffers",
        "version": 1,
        "buffers": [{"id": "a", "size": 8, "start": 0, "end": 3}],
    }


@pytest.mark.parametrize(
    ("buffer", "error", "pointer"),
    [
        ({"start": 3, "end": 3}, ProblemError, "/buffers/0/end"),
        ({"start": 3, "end": 2}, ProblemError, "/buffers/0/end"),
        ({"id": "ab\u202ecd"}, ProblemError, "/buffers/0/id"),
        ({"id": "ab\u2028"}, ProblemError, "/buffers/0/id"),
        ({"id": "ab\n"}, DocumentError, "/buffers/0/id"),
        ({"size": -1}, ProblemError, "/buffers/0/size"),
        ({"size": 2**63}, ProblemError, "/buffers/0/size"),
        ({"alignment": 0}, ProblemError, "/buffers/0/alignment"),
        ({"offset": -1}, ProblemError, "/buffers/0/offset"),
        ({"size": 1.0}, DocumentError, "/buffers/0/size"),
        ({"sise": 1}, DocumentError, "/buffers/0/sise"),
    ],
)
def test_bad_buffers(buffer: dict[str, Any], error: type[Exception], pointer: str) -> None:
    whole = {"id": "a", "size": 1, "start": 0, "end": 1, **buffer}
    with pytest.raises((DocumentError, ProblemError)) as caught:
        load_buffers({"format": "arenaplan.buffers", "version": 1, "buffers": [whole]})
    assert type(caught.value) is error
    assert caught.value.pointer == pointer


# ------------------------------------------------------------------------------------------ reports


def report(loss: float | None = 0.1) -> ValidationReport:
    return ValidationReport(
        steps=(StepReport(1, loss, loss and 0.1 + 0.2, False, ("w", "w@first_moment")),),
        violations=(Violation("overlap", ("a", "b"), "'a' and 'b' share bytes."),),
        identical=False,
        compared=7,
        arena_bytes=4096,
    )


@pytest.mark.parametrize("loss", [0.1, 5e-324, -0.0, 1e308, math.inf, -math.inf])
def test_report(loss: float) -> None:
    again = load_report(dump_report(report(loss)))
    assert again == report(loss)
    loss_again = again.steps[0].loss
    assert loss_again is not None
    assert math.copysign(1, loss_again) == math.copysign(1, loss)


def test_report_of_inferences() -> None:
    data = dump_report(report(None))
    assert parse_json(data)["steps"][0]["loss"] is None
    assert load_report(data) == report(None)


def test_report_of_a_run_that_diverged() -> None:
    data = dump_report(report(math.nan), indent=2)
    assert parse_json(data)["steps"][0]["loss"] == "NaN"
    loss = load_report(data).steps[0].loss
    assert loss is not None
    assert math.isnan(loss)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"steps": [{"step": 1}]}, "/steps/0/loss"),
        ({"compared": -1}, "/compared"),
        ({"identical": 1}, "/identical"),
        ({"violations": [{"rule": 1, "buffers": [], "detail": ""}]}, "/violations/0/rule"),
    ],
)
def test_bad_report(change: dict[str, Any], pointer: str) -> None:
    document = {**parse_json(dump_report(report())), **change}
    with pytest.raises(DocumentError) as caught:
        load_report(document)
    assert caught.value.pointer == pointer


def test_bad_loss_of_a_report() -> None:
    document = parse_json(dump_report(report()))
    document["steps"][0]["loss"] = "much"
    with pytest.raises(DocumentError) as caught:
        load_report(document)
    assert caught.value.pointer == "/steps/0/loss"
