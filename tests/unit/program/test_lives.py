"""Lives: when the bytes of a value must stay."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.graph import TrainingRules
from solver.layout import Lifespan
from solver.program import EntryKind, Exit, Kind, Program, held_lives, lives
from solver.training import derive
from tests.support.derived import at, with_steps
from tests.support.graphs import chain, convolutional, residual


def spans(program: Program) -> dict[str, tuple[int, int]]:
    return {program.values[i].label: (s.start, s.end) for i, s in lives(program).items()}


def test_the_lifespans_of_a_chain() -> None:
    # 0 fc1 1 fc2 2 mse 3 seed 4 mse' 5 fc2 grad 6 fc2 deriv 7 fc1 grad 8 w1 9 b1 10 w2 11 b2
    found = spans(derive(chain()))
    assert found["x"] == (0, 8)
    assert found["t"] == (0, 5)
    assert found["h1"] == (0, 8)
    assert found["h2"] == (1, 5)
    assert found["loss"] == (2, 12)
    assert found["loss@grad"] == (3, 5)
    assert found["h2@grad"] == (4, 7)
    assert found["h1@grad"] == (6, 8)
    assert found["w2@grad"] == (5, 11)
    assert found["w1"] == (0, 12)


def test_persistent_operands_live_the_whole_iteration() -> None:
    program = derive(residual())
    kept = [entry.value for entry in program.entry if entry.kind is not EntryKind.FED]
    assert len(kept) == 4 + 4 * 2, "four weights with two moments each"
    for value in kept:
        assert lives(program)[value] == Lifespan(0, len(program.steps))


def test_declared_outputs_live_to_the_end() -> None:
    program = derive(convolutional())
    assert spans(program)["f"][1] == len(program.steps)


def test_an_unused_output_lives_in_its_own_step_only() -> None:
    program = derive(chain(trainable=0))
    assert spans(program)["h2"] == (1, 3)


def test_scratch_lives_for_one_step() -> None:
    program = derive(convolutional())
    found = lives(program)
    scratch = [i for i, value in enumerate(program.values) if value.kind is Kind.SCRATCH]
    assert scratch
    assert all(found[i].end - found[i].start == 1 for i in scratch)


def test_what_the_forward_saves_lives_until_its_backward() -> None:
    program = derive(convolutional())
    (saved,) = [value.label for value in program.values if value.kind is Kind.SAVED]
    ends = at(program, "pool1:forward"), at(program, "pool1:calc_derivative") + 1
    assert spans(program)[saved] == ends


def test_gradients_that_accumulate_live_across_iterations() -> None:
    program = derive(chain(training=TrainingRules(accumulate=2)))
    assert spans(program)["w1@grad"] == (0, len(program.steps))


def test_what_no_step_touches_has_no_life() -> None:
    """Not even where the caller defines it, or it is to be there at the end."""
    program = derive(chain())
    idle = replace(program.values[0], label="idle")
    more = replace(
        program,
        values=(*program.values, idle),
        entry=(*program.entry, replace(program.entry[0], value=len(program.values))),
        exit=(*program.exit, Exit(len(program.values), 0)),
    )
    assert lives(more) == lives(program)


def test_a_copy_touches_its_values_until_it_has_ended() -> None:
    program = derive(chain())
    t = at(program, "fc1:forward")
    longer = with_steps(program, [replace(s, until=6) if k == t else s for k, s in enumerate(program.steps)])
    assert spans(longer)["x"] == (0, 8)
    later = with_steps(program, [replace(s, until=9) if k == t else s for k, s in enumerate(program.steps)])
    assert spans(later)["x"] == (0, 10)
    assert spans(later)["h1"] == (0, 10)


def test_steps_of_a_level_touch_at_the_same_time() -> None:
    program = derive(chain())
    pairs = program.reordered(range(len(program.steps)), [t // 2 for t in range(len(program.steps))])
    assert spans(pairs)["h2"] == (0, 3)
    assert spans(pairs)["w1"] == (0, 6)


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (Lifespan(0, 2), Lifespan(0, 5)),
        (Lifespan(4, 9), Lifespan(1, 9)),
        (Lifespan(2, 3), Lifespan(1, 5)),
        (Lifespan(0, 12), Lifespan(0, 12)),
    ],
)
def test_a_hold_makes_a_life_longer_and_never_shorter(hold: Lifespan, expected: Lifespan) -> None:
    program = derive(chain())
    value = program.by_label["h2"]
    found = held_lives(program, {value: hold})
    assert found[value] == expected
    assert {k: v for k, v in found.items() if k != value} == {
        k: v for k, v in lives(program).items() if k != value
    }


def test_a_value_that_is_only_held_lives_as_long_as_that() -> None:
    program = derive(chain())
    idle = replace(program, values=(*program.values, replace(program.values[0], label="idle")))
    number = len(program.values)
    assert held_lives(idle, {number: Lifespan(1, 3)})[number] == Lifespan(1, 3)


def test_nothing_has_no_life() -> None:
    assert lives(Program("empty", (), (), (), (), (), ())) == {}
