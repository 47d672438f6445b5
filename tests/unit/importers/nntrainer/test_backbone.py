"""Model files of nntrainer that read others, split layers, and preparations of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solver.errors import DocumentError
from solver.executor import Trainer
from solver.graph import TrainableGraph
from solver.importers.nntrainer import load_nntrainer, load_nntrainer_ini
from solver.importers.options import Imported, ImportOptions
from solver.pipeline import plan

MODEL = "[Model]\nType = NeuralNetwork\nLoss = mse\nbatch_size = 2\n[Optimizer]\nType = sgd\n"
IMAGE = "[in]\nType = input\nInput_Shape = 3:6:4\n"
FLAT = "[in]\nType = input\nInput_Shape = 1:1:6\n"
DENSE = "[fc]\nType = fully_connected\nUnit = 5\n"

#: Two layers without a model, as a backbone is.
BASE = "[a]\nType = fully_connected\nUnit = 4\n[b]\nType = fully_connected\nUnit = 3\n"


def load(folder: Path, *sections: str, **files: str) -> Imported:
    for name, text in files.items():
        (folder / f"{name}.ini").write_text(text)
    path = folder / "main.ini"
    path.write_text("".join(sections))
    return load_nntrainer(path.read_bytes(), options=ImportOptions(), path=path)


def inputs(graph: TrainableGraph) -> dict[str, tuple[str, ...]]:
    return {operation.id: operation.inputs for operation in graph.operations}


def refusal(folder: Path, *sections: str, **files: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        load(folder, *sections, **files)
    return caught.value


def test_the_layers_of_a_backbone_stand_in_its_place(tmp_path: Path) -> None:
    block = "[block]\nbackbone = base.ini\ntrainable = true\n"
    graph = load(tmp_path, MODEL, FLAT, block, DENSE, base=BASE).graph
    assert inputs(graph)["block/a"][0] == "in"
    assert inputs(graph)["block/b"][0] == "block/a.out"
    assert inputs(graph)["fc"][0] == "block/b.out"
    whole = load_nntrainer_ini((MODEL + FLAT + BASE + DENSE).encode())
    assert [o.type for o in graph.operations] == [o.type for o in whole.operations]
    assert [graph.operands[name].shape for name in graph.trainable] == [
        whole.operands[name].shape for name in whole.trainable
    ]


def test_a_backbone_is_frozen_unless_it_says_otherwise(tmp_path: Path) -> None:
    graph = load(tmp_path, MODEL, FLAT, "[block]\nbackbone = base.ini\n", DENSE, base=BASE).graph
    assert graph.trainable == ("fc.weight", "fc.bias")


def test_two_backbones_of_one_file_and_one_inside_another(tmp_path: Path) -> None:
    blocks = "[one]\nbackbone = base.ini\n[two]\nbackbone = outer.ini\ntrainable = true\n"
    outer = "[first]\nType = fully_connected\nUnit = 7\n[inner]\nbackbone = base.ini\n"
    graph = load(tmp_path, MODEL, FLAT, blocks, DENSE, base=BASE, outer=outer).graph
    assert inputs(graph)["two/first"][0] == "one/b.out"
    assert inputs(graph)["two/inner/a"][0] == "two/first.out"
    assert inputs(graph)["fc"][0] == "two/inner/b.out"
    trained = {name.rpartition(".")[0] for name in graph.trainable}
    assert trained == {"two/first", "two/inner/a", "two/inner/b", "fc"}


def test_a_part_of_a_backbone_and_what_it_reads(tmp_path: Path) -> None:
    """InputLayer and OutputLayer cut it; input_layers says what it reads, and it is read by its name."""
    base = BASE + "[c]\nType = fully_connected\nUnit = 2\n[d]\nType = addition\ninput_layers = c,c\n"
    block = "[block]\nbackbone = base.ini\nInputLayer = b\nOutputLayer = C\ninput_layers = in\n"
    last = "[sum]\nType = fully_connected\nUnit = 1\ninput_layers = block\n"
    middle = (
        "[unread]\nType = fully_connected\nUnit = 2\n[both]\nType = addition\ninput_layers = unread,block\n"
    )
    graph = load(tmp_path, MODEL, FLAT, block, last, base=base).graph
    assert {name.partition(".")[0] for name in graph.operands if "/" in name} == {"block/b", "block/c"}
    assert inputs(graph)["block/b"][0] == "in"
    assert inputs(graph)["sum"][0] == "block/c.out"
    graph = load(tmp_path, MODEL, FLAT, block, middle, base=base).graph
    assert inputs(graph)["both"] == ("unread.out", "block/c.out")


def test_a_backbone_with_a_model_and_an_input_of_its_own(tmp_path: Path) -> None:
    """[Model] is ignored there. Its input layer reads the layer before, or takes the section's shape."""
    base = MODEL + FLAT + BASE
    graph = load(tmp_path, MODEL, FLAT, DENSE, "[block]\nbackbone = base.ini\n", base=base).graph
    assert inputs(graph)["block/a"][0] == "fc.out"
    graph = load(
        tmp_path, MODEL, "[block]\nbackbone = base.ini\ninput_shape = 1:1:9\n", DENSE, base=base
    ).graph
    assert graph.operands["block/in"].shape == (2, 9)


@pytest.mark.parametrize(
    ("block", "key", "what"),
    [
        ("backbone = base.tflite\n", "backbone", "a model of another framework"),
        ("backbone = nothing.ini\n", "backbone", "is not in the folder of the model file"),
        ("backbone = ../base.ini\n", "backbone", "is not in the folder of the model file"),
        ("backbone = main.ini\n", "backbone", "is part of itself"),
        ("backbone = loop.ini\n", "backbone", "is part of itself"),
        ("backbone = empty.ini\n", "backbone", "has no layers"),
        ("backbone = bad.ini\n", "backbone", "which has a mistake: Line 2: 'Unit' is not an entry"),
        ("backbone = base.ini\npreload = true\n", "preload", "reads weights"),
        ("backbone = base.ini\nscalesize = 0.5\n", "scalesize", "scales layers"),
        ("backbone = base.ini\nOutputLayer = z\n", "outputlayer", "is 'z'"),
        ("backbone = base.ini\nInputLayer = b\nOutputLayer = a\n", "outputlayer", "stands before InputLayer"),
        ("backbone = base.ini\nunit = 3\n", "unit", "is not known here"),
    ],
)
def test_refusals_name_key_section_and_line(tmp_path: Path, block: str, key: str, what: str) -> None:
    files = {"base": BASE, "loop": "[x]\nbackbone = loop.ini\n", "empty": MODEL, "bad": "[a]\nUnit\n"}
    error = refusal(tmp_path, MODEL, FLAT, f"[block]\n{block}", DENSE, **files)
    assert what in error.message
    assert error.remedy
    assert error.path[-1] == key
    if what != "is part of itself":  # of a section of the file that is read once more
        line = 11 + [text.partition(" ")[0].lower() for text in block.splitlines()].index(key)
        assert error.message.startswith(f"Line {line}: {key!r} of section 'block' ")


def test_a_mistake_in_a_layer_of_a_backbone_names_its_file(tmp_path: Path) -> None:
    base = "[a]\nType = fully_connected\nUnit = many\n"
    error = refusal(tmp_path, MODEL, FLAT, "[block]\nbackbone = base.ini\n", base=base)
    assert error.message.startswith("Line 3 of base.ini: 'unit' of section 'block/a' is 'many'")


def test_a_name_that_a_layer_of_a_backbone_takes(tmp_path: Path) -> None:
    error = refusal(
        tmp_path, MODEL, FLAT, "[block]\nbackbone = base.ini\n", DENSE.replace("fc", "BLOCK/b"), base=BASE
    )
    assert "belongs to a layer whose name is taken" in error.message


def test_a_backbone_without_a_folder() -> None:
    with pytest.raises(DocumentError, match="'backbone' of section 'block' names another file"):
        load_nntrainer_ini((MODEL + FLAT + "[block]\nbackbone = base.ini\n").encode())


def test_layers_without_a_model() -> None:
    with pytest.raises(
        DocumentError, match=r"no section \[Model\], which says the loss; it begins with \[a\] in line 1"
    ) as caught:
        load_nntrainer_ini(BASE.encode())
    assert "backbone = FILE" in caught.value.remedy


# ------------------------------------------------------------------------------------------------ split


def test_a_split_has_an_output_for_each_part() -> None:
    parts = (
        "[s]\nType = split\naxis = 2\nsplit_number = 3\n[d]\nType = addition\ninput_layers = s(0),s(2),s(1)\n"
    )
    graph = load_nntrainer_ini((MODEL + IMAGE + parts + "[f]\nType = flatten\n" + DENSE).encode())
    (split,) = (o for o in graph.operations if o.type == "Split")
    assert [graph.operands[name].shape for name in split.outputs] == [(2, 3, 2, 4)] * 3
    x = np.random.default_rng(1).standard_normal((2, 3, 6, 4)).astype("f4")
    with Trainer(graph, plan(graph)) as trainer:
        weight, bias = trainer.read("fc.weight"), trainer.read("fc.bias")
        loss = trainer.step({"in": x, "label": np.zeros((2, 5), np.float32)})
    total = (x[:, :, :2] + x[:, :, 2:4] + x[:, :, 4:]).reshape(2, -1)
    np.testing.assert_allclose(loss, np.mean((total @ weight.T + bias) ** 2), rtol=1e-5)


def test_a_split_without_a_number_gives_one_part_a_position() -> None:
    for key in ("axis", "split_dimension"):
        text = f"[s]\nType = split\n{key} = 3\n[j]\nType = concat\ninput_layers = s(5),s(0)\n"
        graph = load_nntrainer_ini((MODEL + FLAT + text + DENSE).encode())
        (split,) = (o for o in graph.operations if o.type == "Split")
        assert len(split.outputs) == 6
        assert graph.operands["j.out"].shape == (2, 2)


@pytest.mark.parametrize(
    ("keys", "key", "what"),
    [
        ("", "axis", "is missing"),
        ("axis = 0\n", "axis", "contains 0"),
        ("axis = 4\n", "axis", "is 4"),
        ("axis = 2\nsplit_number = 4\n", "split_number", "is 4, and the axis has 6 positions"),
    ],
)
def test_refused_splits(keys: str, key: str, what: str) -> None:
    with pytest.raises(DocumentError, match=what) as caught:
        load_nntrainer_ini((MODEL + IMAGE + "[s]\nType = split\n" + keys).encode())
    assert caught.value.path == ("s", key)


# ----------------------------------------------------------------------------------------- preparing the data


@pytest.mark.parametrize("key", ["normalization", "standardization"])
def test_what_an_input_layer_does_to_the_data_is_said(tmp_path: Path, key: str) -> None:
    text = IMAGE + f"{key} = true\n"
    found = load(tmp_path, MODEL, text, "[f]\nType = flatten\n", DENSE)
    (note,) = found.notes
    assert note.startswith(f"Line 10: {key} of 'in' is not part of the plan")
    assert found.graph == load(tmp_path, MODEL, IMAGE, "[f]\nType = flatten\n", DENSE).graph
    assert load(tmp_path, MODEL, IMAGE + f"{key} = false\n", "[f]\nType = flatten\n", DENSE).notes == ()
    refused = refusal(tmp_path, MODEL, FLAT, DENSE + f"{key} = true\n")
    assert refused.path == ("fc", key)
    assert refused.message.startswith(f"Line 13: {key!r} of section 'fc' is done by input layers alone")
    assert load(tmp_path, MODEL, FLAT, DENSE + f"{key} = false\n").notes == ()
