"""Names that lead elsewhere: callers feed and read by name, and bytes may be right all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from solver.documents import dump_plan, load_plan, with_digest
from solver.errors import PlanError
from solver.executor import Trainer
from solver.graph import TrainableGraph
from solver.pipeline import plan, reference_of
from solver.plan import Plan, PlanOptions
from solver.program import COPY, Access, Binding, EntryKind, Kind, Phase, Program, Step, Tier, Value
from solver.training import derive
from solver.verify import check_labels, prove
from tests.support.graphs import Sketch, chain
from tests.support.small_plans import cases, paged, placed, resident


def echoing() -> TrainableGraph:
    """A graph whose input is one of its outputs."""
    s = Sketch("echo")
    h = s.op("Gemm", [s.input("x", 2, 2), s.parameter("w", 2, 2)], "a", "fc")
    s.op("MeanSquaredError", [h, s.label("t", 2, 2)], "loss", "mse")
    return s.graph(outputs=("x", "a"))


def renamed(program: Program, **labels: str) -> Program:
    values = tuple(replace(value, label=labels.get(value.label, value.label)) for value in program.values)
    return replace(program, values=values)


def copied(program: Program, label: str, *, leaves: bool) -> Program:
    """The program with a copy at its start: of what leaves (an exit), or of what is read afterwards."""
    v, there = program.by_label[label], len(program.values)
    type_ = program.values[v].type
    node = replace(program.operations[0])
    node = replace(
        node,
        operation=replace(node.operation, id="copy", type=COPY, inputs=("x0",), outputs=("y0",)),
        inputs=(type_,),
        outputs=(type_,),
        constants=(None,),
        attributes={},
    )
    bindings = (Binding("x0", v, Access.READ), Binding("y0", there, Access.WRITE))
    steps = (Step(len(program.operations), Phase.FORWARD, bindings, None, 0, 0), *program.steps)
    timed = tuple(replace(step, level=t, until=t) for t, step in enumerate(steps))
    exits = tuple(replace(e, value=there) if leaves and e.value == v else e for e in program.exit)
    return replace(
        program,
        values=(*program.values, replace(program.values[v], label=f"{label}@copy")),
        operations=(*program.operations, node),
        steps=timed,
        exit=exits,
    )


@pytest.mark.parametrize("swapped", [True, False], ids=["the copy is called x", "what is fed is called x"])
def test_what_is_fed_and_is_a_result_has_one_place_that_is_both(swapped: bool) -> None:
    graph = echoing()
    reference = derive(graph)
    program = copied(reference, "x", leaves=True)
    program = renamed(program, **{"x": "x@copy", "x@copy": "x"}) if swapped else program
    violations = prove(reference, placed(program))
    assert [violation.rule for violation in violations] == ["name"]
    assert "'x' leads to something else" in violations[0].detail
    with pytest.raises(PlanError, match="'x' leads to something else"):
        Trainer(graph, placed(program))
    with pytest.raises(PlanError, match="the value of this name is another one"):
        load_plan(dump_plan(with_digest(placed(program))))


def test_a_copy_of_what_is_fed_for_readers_only_changes_no_name() -> None:
    reference = derive(echoing())
    assert prove(reference, placed(copied(reference, "x", leaves=False))) == ()


@pytest.mark.parametrize("label", ["x", "t", "a", "loss", "w"])
def test_a_name_of_the_interface_that_leads_nowhere(label: str) -> None:
    graph = echoing()
    reference = derive(graph)
    lost = placed(renamed(reference, **{label: f"{label}@lost"}))
    assert [violation.rule for violation in prove(reference, lost)] == ["name"]
    with pytest.raises(PlanError, match=f"The name {label!r}"):
        Trainer(graph, lost)


def test_a_weight_that_stays_in_a_slow_memory_is_read_there() -> None:
    reference = derive(chain((2, 2, 1), 1))
    value = reference.by_label["w1"]
    program = resident(reference, value)
    assert prove(reference, placed(program)) == ()
    there = next(e.value for e in program.entry if e.reference == value)
    swap = {"w1": program.values[value].label, program.values[value].label: "w1"}
    assert program.values[there].label == "w1"
    assert [v.rule for v in prove(reference, placed(renamed(program, **swap)))] == ["name"]


@pytest.mark.parametrize(
    "change",
    [
        lambda value: replace(value, label="other"),
        lambda value: replace(value, label="w1@again"),
        lambda value: replace(value, origin="w1"),
        lambda value: replace(value, kind=Kind.RESULT),
        lambda value: replace(value, kind=Kind.SCRATCH),
    ],
)
def test_values_that_are_called_as_others(change: Callable[[Value], Value]) -> None:
    """Of right plans: nothing is computed from these words, so the proof itself lets them pass."""
    reference = derive(chain((2, 2, 1), 1))
    back = len(reference.steps) - 1
    number = reference.by_label["h1"]
    program = paged(reference, number, 2, back)
    assert not [*check_labels(reference, placed(program))]
    for value in (number, len(program.values) - 2, len(program.values) - 1):
        values = list(program.values)
        values[value] = change(values[value])
        wrong = replace(program, values=tuple(values))
        assert prove(reference, placed(wrong)) == ()
        assert [violation.rule for violation in check_labels(reference, placed(wrong))] == ["name"]


def test_right_plans_call_values_by_their_names() -> None:
    for case in cases():
        assert not [*check_labels(case.reference, case.plan)], case.name


def test_plans_of_paged_inputs_and_results_keep_their_names() -> None:
    graph = chain((8, 8, 8, 4), 4)
    made = plan(graph)
    for part in (0.9, 0.75):
        tiers = (Tier("fast", int(made.arena_bytes * part)), Tier("slow", 2**20, 10**6, 10**6))
        options = PlanOptions(tiers=tiers, update="end")
        small: Plan = plan(graph, options)
        reference = reference_of(graph, small.options)
        assert any(step.reference is None for step in small.program.steps)
        assert not [*check_labels(reference, small)]
        fed = {e.value for e in small.program.entry if e.kind is EntryKind.FED}
        assert {small.program.by_label[name] for name in ("x", "t")} <= fed


@pytest.mark.parametrize("name", ["arena", "spare"])
def test_memories_that_are_listed_twice_or_hold_nothing(name: str) -> None:
    """No value is in them, so the proof lets them pass; but the plan claims their bytes."""
    graph = chain((8, 8, 4), 4)
    made = plan(graph)
    spaces = (*made.program.spaces, replace(made.program.spaces[0], name=name))
    wrong = replace(
        made,
        program=replace(made.program, spaces=spaces),
        sizes=(*made.sizes, 112),
        certificates=made.certificates * 2,
    )
    violations = [*check_labels(reference_of(graph, made.options), wrong)]
    assert [violation.rule for violation in violations] == ["name"]
    assert name in violations[0].detail
