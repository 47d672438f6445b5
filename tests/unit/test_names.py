"""Names of graphs, operands and operations: what cannot be seen cannot be part of one."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import GraphError
from solver.graph import Operation, TrainableGraph
from solver.names import check_characters, counted
from tests.support.every import grid
from tests.support.graphs import Sketch

#: One of each kind: control characters (ASCII's, C1's), direction of writing, joiners, line and paragraph
#: separators, the byte order mark, a tag, a surrogate.
UNSEEN = [
    *("\0", "\n", "\x1b", "\x7f", "\x85", "\u202e", "\u2066", "\u200b", "\u200d", "\u2028", "\u2029"),
    *("\ufeff", "\U000e0041", "\ud800"),
]
SEEN = ["x", "fc1/kernel:0", "h.1-a_b c", "ключ", "重み", "naïve", "a\u00a0b", "🙂", "µ²"]


def graph(
    graph_name: str = "g", x: str = "x", w: str = "w", y: str = "y", operation: str = "fc"
) -> TrainableGraph:
    s = Sketch(graph_name)
    s.op("Gemm", [s.input(x, 2, 3), s.parameter(w, 3, 4)], y, operation)
    s.op("MeanSquaredError", [y, s.label("t", 2, 4)], "loss")
    return s.graph()


@grid("character", UNSEEN)
@grid(
    ("what", "path"),
    [
        ("graph_name", ("name",)),
        ("x", ("name",)),
        ("w", ("name",)),
        ("y", ("operations", 0, "outputs", 0)),
        ("operation", ("operations", 0, "name")),
    ],
)
def test_what_cannot_be_seen_is_refused_and_shown_escaped(
    what: str, path: tuple[str | int, ...], character: str
) -> None:
    given: dict[str, Any] = {what: f"ab{character}c"}
    with pytest.raises(GraphError, match=f"U\\+{ord(character):04X}, at position 2") as caught:
        graph(**given)
    assert caught.value.path == path
    assert str(caught.value).isprintable()


@grid("name", SEEN)
def test_what_can_be_seen_is_a_name(name: str) -> None:
    made = graph(name, f"x{name}", f"w{name}", f"y{name}", f"fc{name}")
    assert made.name == name
    assert {f"x{name}", f"w{name}", f"y{name}"} <= made.operands.keys()


def test_outputs_of_sequences_are_names_too() -> None:
    s = Sketch()
    inputs = (s.input("x", 2, 3, 4), s.parameter("w", 5, 4), s.parameter("r", 5, 5))
    s.operations.append(Operation("rnn", "RNN", inputs, ("", "la\u202est")))
    s.op("MeanSquaredError", ["la\u202est", s.label("t", 1, 3, 5)], "loss")
    with pytest.raises(GraphError, match=r"'la\\u202est'") as caught:
        s.graph()
    assert caught.value.path == ("operations", 0, "outputs", 1)


def test_an_empty_text_has_nothing_to_refuse() -> None:
    check_characters("graph", "", ())


@grid(("count", "text"), [(0, "0 entry points"), (1, "1 entry point"), (1200, "1,200 entry points")])
def test_one_is_no_plural(count: int, text: str) -> None:
    assert counted(count, "entry point") == text
