"""Damaged model files are refused by name; whatever is read can be planned."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import assume, given
from hypothesis import strategies as st

from solver.errors import ArenaplanError
from solver.importers.nntrainer import load_nntrainer_ini
from solver.pipeline import plan
from solver.plan import PlanOptions

LINES = """[Model]
type=neuralnetwork
loss=cross
batch_size=2
[Optimizer]
type=adam
learning_rate=0.1
[in]
type=input
input_shape=2:6:6
[c]
type=conv2d
filters=3
kernel_size=3,3
padding=same
activation=relu
[d]
type=conv2d
input_layers=in
filters=3
kernel_size=1
[sum]
type=addition
input_layers=c,d
[bn]
type=batch_normalization
momentum=0.9
[drop]
type=dropout
dropout_rate=0.2
[p]
type=pooling2d
pooling=max
pool_size=2,2
stride=2,2
[f]
type=flatten
[rnn]
type=lstm
unit=3
return_sequences=true
[out]
type=fully_connected
unit=4
activation=softmax""".splitlines()

WORDS = "0 1 -1 7 1,2 1:2:3 same true in c,d nobody mse 1e400 global_max relu softmax sigmoid"
TYPES = "conv2d fully_connected concat flatten addition activation pooling2d output gru embedding dropout"
VALUES = st.sampled_from(["", "9" * 18, *WORDS.split(), *TYPES.split()])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The file with a few lines dropped, doubled, moved, or given another value."""
    lines = list(LINES)
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["drop", "double", "move", "value", "value", "value"]))
        line = lines.pop(at) if kind in ("drop", "move") else lines[at]
        if kind in ("double", "move"):
            lines.insert(draw(st.integers(0, len(lines))), line)
        elif kind == "value" and "=" in line:
            lines[at] = f"{line.partition('=')[0]}={draw(VALUES)}"
    return "\n".join(lines).encode()


def refusal(attempt: Callable[[], object]) -> ArenaplanError | None:
    try:
        attempt()
    except ArenaplanError as error:
        return error
    return None


@given(damaged())
def test_damage_is_refused_or_harmless(data: bytes) -> None:
    refused = refusal(lambda: load_nntrainer_ini(data))
    if refused is not None:
        assert refused.remedy
        return
    graph = load_nntrainer_ini(data)
    assume(max(operand.type.nbytes for operand in graph.operands.values()) < 2**24)
    assert plan(graph, PlanOptions(solver="greedy")).arena_bytes > 0
    refused = refusal(lambda: plan(graph, PlanOptions(target="nntrainer", solver="greedy")))
    assert refused is None or "cannot train" in refused.message


@given(st.binary(max_size=80))
def test_bytes_are_refused(data: bytes) -> None:
    refused = refusal(lambda: load_nntrainer_ini(data))
    assert refused is not None
    assert refused.remedy
