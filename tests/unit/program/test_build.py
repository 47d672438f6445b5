"""The builder: one binding for each slot, and numbers for what steps touch."""

from __future__ import annotations

from solver.graph import DType, TensorType
from solver.graph.ops.base import InPlace, Node
from solver.graph.types import Operation
from solver.program import Access, Alias, Binding, Builder, Entry, EntryKind, Exit, Kind, Phase, Space
from solver.program.build import permission_attributes, permitted

BYTES = TensorType((4,), DType.UINT8)


def builder(*labels: str) -> Builder:
    made = Builder("built", [Space("arena", 1)])
    for label in labels:
        made.value(label, BYTES, Kind.ACTIVATION, label)
    return made


def node(name: str, **attributes: str) -> Node:
    return Node(Operation(name, "", (), ()), (), (), (), attributes)


def joined(*bindings: Binding) -> tuple[Binding, ...]:
    """The bindings of a step that is added with these."""
    made = builder("a", "b", "c")
    made.step(made.operation(node("op")), Phase.EXPLICIT, bindings)
    return made.steps[0].bindings


def test_a_value_that_a_slot_reads_and_writes_is_updated() -> None:
    read, write = Binding("x", 0, Access.READ), Binding("x", 0, Access.WRITE)
    update = Binding("x", 0, Access.UPDATE)
    assert joined(read, write) == joined(write, read) == joined(update, update) == (update,)
    assert joined(read, read) == (read,)
    assert joined(write, write) == (write,)


def test_bindings_of_other_slots_or_values_stay() -> None:
    bindings = (Binding("x", 0, Access.READ), Binding("y", 0, Access.WRITE), Binding("z", 1, Access.READ))
    assert joined(*bindings) == bindings
    same_slot = (Binding("x", 0, Access.READ), Binding("x", 1, Access.WRITE))
    assert joined(*same_slot) == same_slot


def test_values_that_no_step_touches_are_left_out_and_the_others_numbered_anew() -> None:
    made = builder("a", "idle", "b", "c")
    for source, target in ((0, 2), (2, 3)):
        bindings = (Binding("x", source, Access.READ), Binding("y", target, Access.WRITE))
        made.step(made.operation(node(f"op{target}")), Phase.EXPLICIT, bindings)
    made.entries = {0: EntryKind.FED, 1: EntryKind.CONSTANT}
    made.exits = {3: None, 1: None}
    program = made.finish(aliases=[Alias(3, 2, 1, view=True)])
    assert [value.label for value in program.values] == ["a", "b", "c"]
    assert [[b.value for b in step.bindings] for step in program.steps] == [[0, 1], [1, 2]]
    assert program.entry == (Entry(0, EntryKind.FED, 0),)
    assert program.exit == (Exit(2, 2),)
    assert program.aliases == (Alias(2, 1, 1, view=True),)
    everything = made.finish(all_values=True)
    assert [value.label for value in everything.values] == ["a", "idle", "b", "c"]
    assert everything.entry == (Entry(0, EntryKind.FED, 0), Entry(1, EntryKind.CONSTANT, 1))


def test_a_label_has_one_value() -> None:
    made = builder("a", "b")
    assert made.value("a", BYTES, Kind.RESULT, "other") == 0
    assert made.value("c", BYTES, Kind.RESULT, "other") == 2


def test_permissions_are_read_as_they_were_written() -> None:
    attributes = permission_attributes({"w0": "r1", "w1": "r0"})
    assert permitted(node("op", **attributes)) == (InPlace("r1", "w0"), InPlace("r0", "w1"))
    assert permission_attributes({}) == {}
    assert permitted(node("op")) == ()
