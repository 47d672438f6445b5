"""Files: weights stay where they are; what is damaged, missing or elsewhere is refused in one sentence."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import onnx
import pytest
from onnx.external_data_helper import convert_model_to_external_data

from solver.errors import ArenaplanError, DocumentError, PlanError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Array, Initializer, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.onnx.read import skeleton_of
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from tests.support.damaged_models import damaged_bytes, damaged_model, whole_models
from tests.support.onnx_models import model_of, node, nodes_of

WEIGHT = np.random.default_rng(5).standard_normal((30, 40)).astype(np.float32)


def model(**weights: Array) -> onnx.ModelProto:
    given = {"w": WEIGHT, **weights}
    return model_of([node("MatMul", ["x", "w"], ["y"])], {"x": (2, 30)}, given)


def loaded(path: Path, *, weights: bool = True) -> TrainableGraph:
    options = ImportOptions(loss="mse", weights=weights)
    return load_onnx(path.read_bytes(), options=options, path=path, name=path.stem).graph


def initializer(graph: TrainableGraph) -> Initializer:
    found = graph.operands["w"].initializer
    assert found is not None
    return found


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    return path


def external(folder: Path, location: str = "weights.bin") -> Path:
    made = model()
    convert_model_to_external_data(made, location=location, size_threshold=0)
    path = folder / "outside.onnx"
    onnx.save(made, path)
    return path


# ------------------------------------------------------------------------------------------- weights


def test_the_bytes_of_a_weight_are_found_in_the_file(file: Path) -> None:
    place = initializer(loaded(file)).file
    assert place is not None
    assert file.read_bytes()[place.offset : place.offset + WEIGHT.nbytes] == WEIGHT.tobytes()
    assert place.sha256 == hashlib.sha256(WEIGHT.tobytes()).hexdigest()
    assert place.path == str(file)


def test_training_starts_with_the_weights_of_the_file(file: Path) -> None:
    graph = loaded(file)
    batch = synthetic_batch(graph, 0, 1)
    with Trainer(graph, plan(graph)) as trainer:
        found = trainer.step(batch)
    assert found == pytest.approx(float(np.mean((batch["x"] @ WEIGHT - batch["label"]) ** 2)), rel=1e-5)


def test_weights_beside_the_model(tmp_path: Path) -> None:
    graph = loaded(external(tmp_path))
    place = initializer(graph).file
    assert place is not None
    assert Path(place.path).name == "weights.bin"
    assert validate(graph, plan(graph), steps=2).identical


def test_wherever_weights_lie_the_graph_is_the_same(file: Path, tmp_path: Path) -> None:
    """The digest of a graph has the weights' own digests, and a plan of one is a plan of the other."""
    from solver.documents import graph_digest

    inside, beside = loaded(file), loaded(external(tmp_path))
    inline = inside.with_graph(
        operands={
            o.id: o if o.id != "w" else type(o)(o.id, o.type, o.role, Initializer("values", WEIGHT.tobytes()))
            for o in inside.operands.values()
        }
    )
    assert graph_digest(inside) == graph_digest(beside) == graph_digest(inline)
    made = plan(beside)
    assert validate(inside, made, steps=1).identical
    assert validate(inline, made, steps=1).identical


def test_without_weights_they_are_drawn(file: Path) -> None:
    graph = loaded(file, weights=False)
    assert graph.operands["w"].initializer is None
    assert validate(graph, plan(graph), steps=1).identical


def test_a_file_that_has_changed_is_noticed_when_training_starts(file: Path) -> None:
    graph = loaded(file)
    made = plan(graph)
    data = bytearray(file.read_bytes())
    place = initializer(graph).file
    assert place is not None
    data[place.offset] ^= 1
    file.write_bytes(data)
    with pytest.raises(PlanError, match="does not hold the first values of 'w'"):
        validate(graph, made, steps=1)
    file.unlink()
    with pytest.raises(PlanError, match="cannot be read"):
        validate(graph, made, steps=1)


def test_bytes_without_a_file_can_be_planned_and_not_trained(file: Path) -> None:
    graph = load_onnx(file.read_bytes(), options=ImportOptions(loss="mse")).graph
    with pytest.raises(PlanError, match="was not sent"):
        validate(graph, plan(graph), steps=1)


def test_what_is_parsed_has_no_large_weights() -> None:
    data = model(unused=np.zeros(2**16, np.float32)).SerializeToString()
    skeleton = skeleton_of(memoryview(data))
    assert len(skeleton.data) < 600
    assert [found.length for found in skeleton.ranges.values()] == [WEIGHT.nbytes, 2**18]


# ------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("location", ["../weights.bin", "/etc/passwd", "sub/../../w", "", "."])
def test_weights_outside_the_models_folder_are_refused(location: str, tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    path = external(folder)
    made = onnx.load(path, load_external_data=False)
    made.graph.initializer[0].external_data[0].value = location
    path.write_bytes(made.SerializeToString())
    (tmp_path / "weights.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(DocumentError, match=r"outside the model's folder|missing"):
        loaded(path)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "inside"
    folder.mkdir()
    path = external(folder)
    (tmp_path / "elsewhere.bin").write_bytes(WEIGHT.tobytes())
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to(tmp_path / "elsewhere.bin")
    with pytest.raises(DocumentError, match="outside the model's folder"):
        loaded(path)


def test_missing_and_short_data_files(tmp_path: Path) -> None:
    path = external(tmp_path)
    (tmp_path / "weights.bin").write_bytes(b"short")
    with pytest.raises(DocumentError, match="too few"):
        loaded(path)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(DocumentError, match=r"'weights.bin'.*missing"):
        loaded(path)


@pytest.mark.parametrize("damage", [None, b"short", b""])
def test_files_of_weights_are_not_needed_where_weights_are_drawn(
    tmp_path: Path, damage: bytes | None
) -> None:
    """Weights are those by their places; of constants only the shapes are known, which a note says."""
    nodes = nodes_of("Mul x scale a, MatMul a w b, Add b mask c, Gather c order y")
    given = {"scale": WEIGHT[0, :30], "w": WEIGHT, "mask": WEIGHT[0], "order": np.arange(40)[::-1] % 2}
    made = model_of(nodes, {"x": (2, 30)}, given)
    path = tmp_path / "outside.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    whole = loaded(path)
    (tmp_path / "weights.bin").unlink()
    if damage is not None:
        (tmp_path / "weights.bin").write_bytes(damage)
    options = ImportOptions(loss="mse", weights=False)
    for place in (path, None):  # as a file, and as bytes that are sent
        found = load_onnx(path.read_bytes(), options=options, path=place)
        assert found.graph.trainable == whole.trainable == ("w", "mask")
        assert plan(found.graph).arena_bytes == plan(whole).arena_bytes
        assert any(
            note.endswith("lie in 'weights.bin', which is not there, are zeros here: scale, order.")
            for note in found.notes
        )
        assert validate(found.graph, plan(found.graph), steps=1).identical


def test_values_that_decide_the_graph_are_needed(tmp_path: Path) -> None:
    made = model_of(
        nodes_of("MatMul x w h, Reshape h to y"), {"x": (2, 30)}, {"w": WEIGHT, "to": np.array([80])}
    )
    path = tmp_path / "outside.onnx"
    onnx.save(made, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(DocumentError, match=r"values of 'to' decide the graph, .*'weights.bin'"):
        loaded(path, weights=False)


def test_data_files_cannot_be_sent(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="was not sent"):
        load_onnx(external(tmp_path).read_bytes(), options=ImportOptions(loss="mse"))


@pytest.mark.parametrize("shape", [[2**40, 2**40], [-1, 3], [31, 40]])
def test_weights_that_are_not_as_long_as_their_shape(shape: list[int]) -> None:
    made = model()
    del made.graph.initializer[0].dims[:]
    made.graph.initializer[0].dims.extend(shape)
    with pytest.raises(DocumentError, match="The weight 'w' cannot be read"):
        load_onnx(made.SerializeToString(), options=ImportOptions(loss="mse"))


def test_a_file_that_is_cut_off(file: Path) -> None:
    with pytest.raises(DocumentError, match="damaged") as caught:
        load_onnx(file.read_bytes()[:-100], options=ImportOptions(loss="mse"))
    assert "copied" in caught.value.remedy


# ---------------------------------------------------------------------------------------- damaged files


def test_the_models_that_are_damaged_can_be_read() -> None:
    for made in whole_models():
        assert load_onnx(made.SerializeToString(), options=ImportOptions(loss="mse")).graph.trainable


def refused(data: bytes) -> ArenaplanError | None:
    try:
        load_onnx(data, options=ImportOptions(loss="mse"))
    except ArenaplanError as error:
        return error
    return None


@pytest.mark.fuzz
@pytest.mark.parametrize("damage", [damaged_bytes, damaged_model])
def test_damaged_files_never_surprise(damage: Callable[[bytes, Random], bytes]) -> None:
    """A graph or an error of ours, and nothing else."""
    chosen = Random(11)
    sources = [made.SerializeToString() for made in whole_models()]
    for i in range(int(os.environ.get("ARENAPLAN_FUZZ") or 40) * 5 // 2):
        data = damage(sources[i % len(sources)], chosen)
        refusal = refused(data)
        assert refusal is None or (refusal.message and refusal.remedy)
