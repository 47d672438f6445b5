"""Storage in 16 bits: what is converted, where, and what stays as it is."""

from __future__ import annotations

import pytest

from examples.gallery import GALLERY
from solver.errors import ShapeMismatchError
from solver.graph import DType, TrainableGraph
from solver.program import CONVERT, Access, Kind, Phase, Program, check_program
from solver.training import STORAGE_TYPES, derive, with_storage
from tests.support.derived import at, reads, step, writes
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual


def conversions(program: Program, phase: Phase = Phase.FORWARD) -> list[str]:
    """The values that are stored, or restored, in the order in which they are."""
    return [
        program.operations[s.operation].operation.id
        for s in program.steps
        if program.kernel(s) == CONVERT and (s.phase is Phase.FORWARD) is (phase is Phase.FORWARD)
    ]


def test_an_activation_waits_in_half_its_bytes() -> None:
    program = with_storage(derive(chain((64, 32, 16), 8)), DType.FLOAT16)
    check_program(program)
    store, restore = at(program, "h1:forward.store"), at(program, "h1:calc_derivative.restore")
    last = max(
        t for t, s in enumerate(program.steps[:store]) if "h1" in reads(program, s) + writes(program, s)
    )
    assert store > last
    assert "h1@restored" in reads(program, program.steps[restore + 1])
    kept = program.values[program.by_label["h1@float16"]]
    wide = program.values[program.by_label["h1"]]
    assert (kept.type.dtype, kept.type.shape) == (DType.FLOAT16, wide.type.shape)
    assert 2 * kept.type.nbytes == wide.type.nbytes
    assert program.values[program.by_label["h1@restored"]].type == wide.type
    assert program.values[program.by_label["h1@restored"]].kind is wide.kind


def test_forward_steps_read_what_was_computed_and_backward_steps_what_was_rounded() -> None:
    before = derive(residual(batch=16, width=16))
    program = with_storage(before, DType.BFLOAT16)
    stored = set(conversions(program))
    assert stored == set(conversions(program, Phase.CALC_DERIVATIVE))
    assert stored
    for s in program.steps:
        if program.kernel(s) == CONVERT:
            continue
        names = reads(program, s)
        restored = {name.removesuffix("@restored") for name in names if name.endswith("@restored")}
        if s.phase is Phase.FORWARD:
            assert not restored
        else:
            assert not stored.intersection(names)
            assert restored <= stored


def test_steps_are_those_of_before_and_numbered_anew() -> None:
    before = derive(convolutional())
    program = with_storage(before, DType.FLOAT16)
    labels = [label for label in program.step_labels if not label.endswith(("store", "restore"))]
    assert labels == list(before.step_labels)
    assert [s.reference for s in program.steps] == list(range(len(program.steps)))
    assert [s.level for s in program.steps] == list(range(len(program.steps)))
    assert program.entry == before.entry
    assert program.exit == before.exit


def test_inputs_wait_in_16_bits_as_well() -> None:
    program = with_storage(derive(chain((64, 32, 16), 8)), DType.FLOAT16)
    assert "x" in conversions(program)
    assert program.values[program.by_label["x@restored"]].kind is Kind.ACTIVATION


def stays(graph: TrainableGraph, name: str) -> bool:
    """Whether a value of the graph's program is not converted, although a backward step reads it."""
    program = with_storage(derive(graph), DType.FLOAT16)
    backward = [s for s in program.steps if s.phase is not Phase.FORWARD]
    return name not in conversions(program) and any(name in reads(program, s) for s in backward)


def test_labels_outputs_and_the_last_activation_stay() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 16, 16), s.parameter("w", 16, 16)], "h", activation="Tanh")
    h = s.op("Gemm", [h, s.parameter("v", 16, 16)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 16, 16)], "loss")
    assert stays(s.graph(), "t")
    assert stays(s.graph(), "y")  # the loss comes next and reads it again: nothing waits
    assert not stays(s.graph(), "h")
    assert stays(s.graph(outputs=("h",)), "h")


def test_statistics_of_normalisations_stay() -> None:
    program = with_storage(derive(batch_normalised()), DType.FLOAT16)
    saved = [v.label for v in program.values if v.kind is Kind.SAVED and "@saved." in v.label]
    assert saved
    assert not set(saved) & set(conversions(program))


def test_masks_integers_and_float64_stay() -> None:
    s = Sketch(dtype=DType.FLOAT64)
    h = s.op("Gemm", [s.input("x", 16, 16), s.parameter("w", 16, 16)], "h")
    h = s.op("Gemm", [h, s.parameter("v", 16, 16)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 16, 16)], "loss")
    wide = derive(s.graph())
    assert with_storage(wide, DType.FLOAT16) is wide
    pooled = with_storage(derive(convolutional()), DType.FLOAT16)
    converted = {pooled.values[pooled.by_label[name]].type.dtype for name in conversions(pooled)}
    assert converted == {DType.FLOAT32}


def test_small_values_are_not_worth_a_step() -> None:
    program = derive(chain((6, 5, 4), 3))
    assert with_storage(program, DType.FLOAT16) is program


def test_gates_of_cells_are_activations() -> None:
    program = with_storage(derive(GALLERY["lstm_classifier"].model().graph), DType.FLOAT16)
    gates = {v.label for v in program.values if v.label.endswith("@saved.gates")}
    assert gates
    assert gates <= set(conversions(program))


def test_without_a_backward_pass_nothing_is_converted() -> None:
    program = derive(chain((64, 32, 16), 8).with_spec(trainable=()))
    assert with_storage(program, DType.FLOAT16) is program


def test_rounding_to_bfloat16_works_in_blocks_of_scratch() -> None:
    program = with_storage(derive(chain((64, 300, 16), 64)), DType.BFLOAT16)
    store = step(program, "h1:forward.store")
    blocks = {b.slot: program.values[b.value].type for b in store.bindings if b.access is Access.SCRATCH}
    assert {name: type_.dtype for name, type_ in blocks.items()} == {"bits": DType.INT32, "nan": DType.BOOL}
    assert max(type_.elements for type_ in blocks.values()) < 64 * 300
    back = step(program, "h1:calc_derivative.restore")
    assert all(b.access is not Access.SCRATCH for b in back.bindings)


def test_types_of_storage() -> None:
    assert STORAGE_TYPES == (DType.FLOAT16, DType.BFLOAT16)
    assert {dtype for dtype in DType.__members__.values() if dtype.is_storage} == set(STORAGE_TYPES)
    assert not set(DType) & set(STORAGE_TYPES)  # what operands may be made of


def test_no_operand_is_kept_in_16_bits_from_the_start() -> None:
    s = Sketch(dtype=DType.FLOAT16)
    s.op("MeanSquaredError", [s.input("x", 2, 2), s.label("t", 2, 2)], "loss")
    with pytest.raises(ShapeMismatchError, match="only kept") as caught:
        s.graph()
    assert "`storage`" in caught.value.remedy
