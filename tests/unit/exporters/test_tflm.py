"""Offsets for TFLM: which tensors, how long they live, the metadata, and the real interpreter obeying it."""

from __future__ import annotations

import struct

import flatbuffers
import numpy as np
import pytest

from solver.errors import CapacityError, DocumentError
from solver.exporters.tflm import METADATA, inference_problem, load_offsets, with_offline_plan
from solver.importers.circle.metadata import with_metadata
from solver.importers.circle.read import read_model, read_subgraphs
from solver.layout import Status
from tests.support.circle_models import CircleFile, circle, dense
from tests.support.every import grid
from tests.support.micro_models import STATEFUL, branching_model, interpreted, random_stateful_model
from tests.support.micro_oracle import stale_reads


def test_tensors_and_their_lifespans() -> None:
    problem, numbers = inference_problem(dense(b"TFL3"))
    found = {b.id: (b.size, b.lifespan.start, b.lifespan.end, b.alignment) for b in problem.buffers}
    # x is read by operator 0; y1 by the softmax, operator 2, whose output the caller reads. Sizes are
    # 4, 8, 3 and 3 floats, rounded up to 16 bytes.
    assert found == {
        "0:x": (16, 0, 1, 16),
        "3:y0": (32, 0, 2, 16),
        "6:y1": (16, 1, 3, 16),
        "7:out": (16, 2, 3, 16),
    }
    assert numbers == (0, 3, 6, 7)


def test_the_plan_travels_with_the_model() -> None:
    data = branching_model(0)
    made = with_offline_plan(data)
    assert made.outcome.status is Status.OPTIMAL
    assert made.size == made.outcome.lower_bound
    assert load_offsets(made.data) == made.offsets
    assert load_offsets(data) is None
    # planned again, the model has one plan
    again = with_offline_plan(made.data)
    assert again.offsets == made.offsets
    assert len(again.data) == len(made.data)


@pytest.mark.parametrize("seed", range(4))
def test_what_lives_at_the_same_time_is_apart(seed: int) -> None:
    made = with_offline_plan(branching_model(seed))
    problem, numbers = inference_problem(made.data)
    placed = [(made.offsets[number], buffer) for number, buffer in zip(numbers, problem.buffers, strict=True)]
    for k, (offset, a) in enumerate(placed):
        assert offset % 16 == 0
        assert offset + a.size <= made.size
        for other, b in placed[:k]:
            together = a.lifespan.start < b.lifespan.end and b.lifespan.start < a.lifespan.end
            assert not together or offset + a.size <= other or other + b.size <= offset


def test_a_capacity_below_the_bound() -> None:
    data = branching_model(1)
    size = with_offline_plan(data).size
    assert with_offline_plan(data, capacity=size).size == size
    with pytest.raises(CapacityError, match=f"need {size:,} bytes at least") as caught:
        with_offline_plan(data, capacity=size - 16)
    assert caught.value.required == size


def test_metadata_that_is_too_short() -> None:
    for words in ((), (1, 1), (1, 1, 5, 0)):
        data = with_metadata(dense(b"TFL3"), METADATA, struct.pack(f"<{len(words)}i", *words))
        with pytest.raises(DocumentError, match="too few for its offsets"):
            load_offsets(data)


def test_a_tensor_without_a_size() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 4))
    file.tensors[y].type = 5  # STRING
    file.operator("RELU", [x], [y])
    with pytest.raises(DocumentError, match="'y' is STRING"):
        with_offline_plan(file.write(y))


# ------------------------------------------------------------------------------- models with state

#: Tensors with offsets, bytes of the arena, and bytes that are left to the interpreter.
FIGURES = {
    "SVDF": (5, 320, 256),
    "two SVDF": (9, 352, 768),
    "LSTM": (5, 304, 64),
    "the state is an output": (6, 320, 256),
    "an input is an output": (6, 352, 256),
    "a constant is an output": (6, 320, 256),
    "a state that nobody reads": (6, 320, 384),
    "a resource variable": (9, 320, 32),
    "two resource variables": (13, 352, 64),
    "IF": (18, 496, 0),
    "IF with states": (16, 464, 512),
    "IF with a state at the number of another": (18, 464, 576),
    "WHILE": (19, 416, 0),
    "WHILE with a state": (18, 416, 128),
    "WHILE in IF": (25, 496, 768),
    "a resource variable in WHILE": (17, 384, 64),
    "subgraphs that nothing runs": (6, 320, 256),
    "a circular buffer": (3, 128, 32),
}


@grid("name", STATEFUL)
def test_nothing_is_overwritten_before_it_is_read(name: str) -> None:
    data = STATEFUL[name]()
    made = with_offline_plan(data)
    assert load_offsets(made.data) == made.offsets
    for seed in range(4):
        assert stale_reads(made.data, made.offsets, seed=seed) == []
    assert (len(made.offsets), made.size, sum(made.left.values())) == FIGURES[name]
    assert made.size == made.outcome.lower_bound
    tensors = [tensor for graph in read_subgraphs(made.data) for tensor in graph.tensors]
    assert not any(tensors[number].is_variable or tensors[number].data for number in made.offsets)
    assert all(made.left[k] >= 16 for k, tensor in enumerate(tensors) if tensor.is_variable)


@grid("seed", range(12))
def test_random_models_with_state(seed: int) -> None:
    made = with_offline_plan(random_stateful_model(seed))
    assert stale_reads(made.data, made.offsets, inferences=4, seed=seed) == []


@pytest.mark.parametrize(
    "name", ["SVDF", "two SVDF", "LSTM", "the state is an output", "a state that nobody reads", "WHILE in IF",
             "IF with a state at the number of another"],
)  # fmt: skip
def test_offsets_for_what_is_left_would_be_noticed(name: str) -> None:
    """Some places in the arena for a state do harm, and the oracle says so."""
    made = with_offline_plan(STATEFUL[name]())
    wrong = [{**made.offsets, **dict.fromkeys(made.left, offset)} for offset in (0, 64, 256)]
    assert any(stale_reads(made.data, offsets, seed=seed) for offsets in wrong for seed in range(4))


def persistent(kind: str) -> bytes:
    """A model with a tensor that TFLM does not keep although the model needs it."""
    file = CircleFile()
    x, state, y = file.input("x", (1, 8)), file.tensor("state", (1, 8)), file.tensor("y", (1, 8))
    match kind:
        case "read before it is written":
            file.operator("ADD", [x, state], [y], "AddOptions")
            file.operator("RELU", [y], [state])
        case "never written":
            file.operator("ADD", [x, state], [y], "AddOptions")
        case "an output that is never written":
            file.operator("RELU", [x], [y])
            return file.write(y, state, identifier=b"TFL3")
        case "written twice":
            file.operator("RELU", [x], [state])
            file.operator("ADD", [x, state], [y], "AddOptions")
            file.operator("NEG", [y], [state])
        case "a written input":
            file.tensors[x].name = b"state"
            file.operator("RELU", [x], [y])
            file.operator("NEG", [y], [x])
        case "a circular buffer":
            file.operator("CUSTOM", [x], [state], custom="CIRCULAR_BUFFER")
            file.operator("RELU", [state], [y])
    return file.write(y, identifier=b"TFL3")


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("read before it is written", r"'state' is read by operator 0 \(ADD\) of subgraph 0 before anything"),
        ("never written", "'state' is read by operator 0"),
        ("an output that is never written", "'state' is read by the caller of the model before"),
        (
            "written twice",
            r"'state' is written by operator 0 \(RELU\) of subgraph 0 and by operator 2 \(NEG\)",
        ),
        ("a written input", "'state' is written by the caller of the model and by operator 1"),
        ("a circular buffer", "'state' collects what operator 0"),
    ],
)
def test_what_persists_without_being_a_variable_is_refused(kind: str, message: str) -> None:
    data = persistent(kind)
    with pytest.raises(DocumentError, match=message) as caught:
        with_offline_plan(data)
    assert "variable" in caught.value.remedy


def test_the_refused_models_with_a_variable_are_planned() -> None:
    for kind in ("read before it is written", "never written", "written twice", "a circular buffer"):
        model = circle.Model.ModelT.InitFromObj(circle.Model.Model.GetRootAs(persistent(kind), 0))
        next(t for t in model.subgraphs[0].tensors if t.name == b"state").isVariable = True
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        made = with_offline_plan(bytes(builder.Output()))
        assert list(made.left.values()) == [32]


@pytest.mark.parametrize("kind", ["twice", "itself", "a chain"])
def test_a_subgraph_that_is_run_from_two_places(kind: str) -> None:
    file = CircleFile()
    condition, x = file.input("condition", (1,), "bool"), file.input("x", (1, 8))
    parts = [file, *(file.subgraph() for _ in range(40))]
    for part, following in zip(parts, [*parts[1:], parts[0]], strict=True):
        if part is not file:
            condition, x = part.input("condition", (1,), "bool"), part.input("x", (1, 8))
        part.outputs = [part.tensor("y", (1, 8))]
        then = {"twice": parts[1], "itself": part, "a chain": following}[kind]
        options = {"thenSubgraphIndex": then.index, "elseSubgraphIndex": then.index}
        part.operator("IF", [condition, x], part.outputs, "IfOptions", options)
    with pytest.raises(DocumentError, match="TFLM keeps its tensors for one of them only"):
        with_offline_plan(file.write(*file.outputs, identifier=b"TFL3"))


def test_a_subgraph_that_does_not_exist() -> None:
    file = CircleFile()
    file.input("x", (1, 8))
    file.operator("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": 3})
    with pytest.raises(DocumentError, match="damaged"):
        with_offline_plan(file.write(0, identifier=b"TFL3"))


# ------------------------------------------------------------------------------- the file


def test_tables_and_weights_stay_as_they_are() -> None:
    data = STATEFUL["WHILE in IF"]()
    made = with_offline_plan(data).data
    assert made.endswith(data) or data in made
    assert made.index(data) % 64 == 0


def test_what_else_a_model_has_is_kept() -> None:
    model = circle.Model.ModelT.InitFromObj(circle.Model.Model.GetRootAs(STATEFUL["WHILE in IF"](), 0))
    signature = circle.SignatureDef.SignatureDefT()
    signature.signatureKey, signature.subgraphIndex = "serve", 2
    model.description, model.signatureDefs, model.version = "a description", [signature], 3
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    made = circle.Model.Model.GetRootAs(with_offline_plan(bytes(builder.Output())).data, 0)
    assert (made.Description(), made.Version()) == (b"a description", 3)
    assert (made.SignatureDefsLength(), made.SignatureDefs(0).SignatureKey()) == (1, b"serve")
    assert made.OperatorCodesLength() == len(model.operatorCodes)


@pytest.mark.parametrize("shared", ["the empty buffer", "a weight", "another entry"])
def test_a_buffer_that_others_have_is_not_overwritten(shared: str) -> None:
    data = with_metadata(with_metadata(branching_model(0), "other", b"1234"), METADATA, b"1234")
    before = read_subgraphs(data)[0]
    model = circle.Model.ModelT.InitFromObj(circle.Model.Model.GetRootAs(data, 0))
    entries = {entry.name: entry for entry in model.metadata}
    weight = next(tensor.buffer for tensor in before.tensors if tensor.data)
    buffers = {"the empty buffer": 0, "a weight": weight, "another entry": entries[b"other"].buffer}
    entries[METADATA.encode()].buffer = buffers[shared]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    data = bytes(builder.Output())
    for content in (b"5678", b"longer"):
        data = with_metadata(data, METADATA, content)
        after = read_subgraphs(data)[0]
        assert after.metadata == {"other": b"1234", METADATA: content}
        assert [bytes(t.data or b"") for t in after.tensors] == [bytes(t.data or b"") for t in before.tensors]


def test_weights_behind_the_tables() -> None:
    model = circle.Model.ModelT.InitFromObj(circle.Model.Model.GetRootAs(branching_model(0), 0))
    model.buffers[1].data, model.buffers[1].offset, model.buffers[1].size = None, 4096, 64
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    with pytest.raises(DocumentError, match="keeps weights behind its tables"):
        with_metadata(bytes(builder.Output()), METADATA, b"1234")


# ------------------------------------------------------------------------------- the real interpreter


def test_states_in_the_real_interpreter() -> None:
    """Six inferences give the same outputs with the plan and without."""
    pytest.importorskip(
        "tflite_micro.python.tflite_micro.runtime", reason="pip install tflite-micro: its builds are daily"
    )
    models = {name: make() for name, make in STATEFUL.items()}
    models |= {f"seed {seed}": random_stateful_model(seed) for seed in range(12)}
    outputs = {name: interpreted(data) for name, data in models.items()}
    assert all(sum(row is not None for row in rows) >= 3 for rows in outputs.values())
    assert {name: interpreted(with_offline_plan(data).data) for name, data in models.items()} == outputs


@pytest.mark.parametrize("seed", range(3))
def test_the_real_interpreter_obeys(seed: int) -> None:
    micro = pytest.importorskip(
        "tflite_micro.python.tflite_micro.runtime", reason="pip install tflite-micro: its builds are daily"
    )
    x = np.linspace(-1, 1, 8, dtype=np.float32)[None]

    def run(data: bytes) -> bytes:
        interpreter = micro.Interpreter.from_bytes(data, arena_size=1 << 20)
        interpreter.set_input(x, 0)
        interpreter.invoke()
        return bytes(interpreter.get_output(0).tobytes())

    data = branching_model(seed)
    made = with_offline_plan(data)
    assert run(made.data) == run(data)
    count = len(read_model(data).tensors)
    wrong = [0 if number in made.offsets else -1 for number in range(count)]
    assert run(with_metadata(data, METADATA, struct.pack(f"<{3 + count}i", 1, 1, count, *wrong))) != run(data)
