"""Operand positions that read a tensor decide whether it is trained, not its name or its storage."""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from solver.errors import TrainableError
from solver.executor import validate
from solver.graph import Array, Role, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import Imported, ImportOptions, import_options
from solver.importers.registry import find_importer, load_model
from solver.pipeline import plan
from tests.support.every import grid
from tests.support.onnx_models import imported, model_of, node, nodes_of

RNG = np.random.default_rng(11)
#: Names that exporters make up, and names under which modules keep buffers.
NAMES = (
    "w_mean",
    "reconstruct_1",
    "prelu1_slope",
    "rotary.inv_freq",
    "val_3",
    "onnx::Mul_12",
    "/b/Constant_output_0",
)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def trained(model: onnx.ModelProto, **options: Any) -> set[str]:
    return set(imported(model, **options).graph.trainable)


def constant(name: str, value: Array) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(value))


def summarised(model: onnx.ModelProto, **options: Any) -> Imported:
    data = model.SerializeToString()
    importer = find_importer(data)
    assert importer is not None
    return load_model(importer, data, options=ImportOptions(loss="mse", **options), path=None, name="model")


# ------------------------------------------------------------------------------------------ names and storage

#: By the operator that reads `w` as a weight: its nodes from x to y, the input's shape, the weight's shape.
PLACES: dict[str, tuple[list[onnx.NodeProto], tuple[int, ...], tuple[int, ...]]] = {
    "MatMul": ([node("MatMul", ["x", "w"], ["y"])], (2, 3), (3, 4)),
    "MatMul, first": ([node("MatMul", ["w", "x"], ["y"])], (3, 2), (4, 3)),
    "Gemm": ([node("Gemm", ["x", "w"], ["y"], transB=1)], (2, 3), (4, 3)),
    "Einsum": ([node("Einsum", ["x", "w"], ["y"], equation="bi,ij->bj")], (2, 3), (3, 4)),
    "Conv": ([node("Conv", ["x", "w"], ["y"])], (1, 3, 4, 4), (2, 3, 3, 3)),
    "ConvTranspose": ([node("ConvTranspose", ["x", "w"], ["y"])], (1, 3, 4, 4), (3, 2, 3, 3)),
    "PRelu": ([node("PRelu", ["x", "w"], ["y"])], (2, 3), (3,)),
    "a slope of one": ([node("PRelu", ["x", "w"], ["y"])], (2, 3), (1,)),
    "transposed": (nodes_of("Transpose w t, MatMul x t y"), (2, 3), (4, 3)),
    "cast": ([node("Cast", ["w"], ["t"], to=1), node("MatMul", ["x", "t"], ["y"])], (2, 3), (3, 4)),
    "passed on": (nodes_of("Identity w t, MatMul x t y"), (2, 3), (3, 4)),
    "with an axis": (
        nodes_of("Unsqueeze w axis t, MatMul x t y"),
        (2, 2, 3),
        (3, 4),
    ),
    "scaled": (nodes_of("Mul w half t, MatMul x t y"), (2, 3), (3, 4)),
    "bias": (nodes_of("MatMul x v h, Add h w y"), (2, 3), (4,)),
    "layer scale": (
        nodes_of("MatMul x v h, Tanh h t, Mul t w y"),
        (2, 3),
        (4,),
    ),
    "positions": (
        nodes_of("MatMul x v h, Add w h y"),
        (2, 5, 3),
        (1, 5, 4),
    ),
}  # fmt: skip
OTHERS = {"v": floats(3, 4), "axis": np.array([0]), "half": np.array(0.5, np.float32)}


def renamed(nodes: list[onnx.NodeProto], name: str) -> list[onnx.NodeProto]:
    copies = []
    for one in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(one)
        del copy.input[:]
        copy.input.extend(name if operand == "w" else operand for operand in one.input)
        copies.append(copy)
    return copies


def reading(nodes: list[onnx.NodeProto]) -> dict[str, Array]:
    read = {name for one in nodes for name in one.input}
    return {name: value for name, value in OTHERS.items() if name in read}


@grid("is_initializer", [True, False])
@grid("name", NAMES)
@grid("place", PLACES)
def test_a_weight_is_trained_whatever_it_is_called_and_wherever_it_is_kept(
    place: str, name: str, is_initializer: bool
) -> None:
    nodes, shape, weight = PLACES[place]
    nodes, value = renamed(nodes, name), floats(*weight)
    weights = reading(nodes)
    if is_initializer:
        weights[name] = value
    else:
        nodes.insert(0, constant(name, value))
    graph = imported(model_of(nodes, {"x": shape}, weights)).graph
    assert set(graph.trainable) == {name} | ({"v"} & set(weights))
    first = graph.operands[name].initializer
    assert first is not None
    assert first.data == value.tobytes()


@grid("units", [1, 2, 5])
@grid("kind", ["MatMul", "Gemm", "Conv", "transposed"])
def test_a_bias_is_as_long_as_the_units_of_its_product(kind: str, units: int) -> None:
    """Keras writes Dense(1) as a product and a sum with a tensor of one element."""
    product = {
        "MatMul": [node("MatMul", ["x", "w"], ["h"])],
        "Gemm": [node("Gemm", ["x", "w"], ["h"])],
        "transposed": nodes_of("Transpose w t, MatMul x t h"),
        "Conv": [node("Conv", ["x", "w"], ["h"])],
    }[kind]
    weight = {"Conv": (units, 3, 1, 1), "transposed": (units, 3)}.get(kind, (3, units))
    bias = floats(units, 1, 1) if kind == "Conv" else floats(units)
    shape = (2, 3, 4, 4) if kind == "Conv" else (2, 3)
    model = model_of(
        [*product, node("Add", ["h", "b"], ["y"])], {"x": shape}, {"w": floats(*weight), "b": bias}
    )
    graph = imported(model).graph
    assert set(graph.trainable) == {"w", "b"}
    assert validate(graph, plan(graph), steps=2).identical


def test_a_number_that_is_added_to_several_units_is_no_bias() -> None:
    """Exporters write the 3 of a hard swish as a tensor of one element."""
    nodes = nodes_of("MatMul x w h, Add h three y")
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "three": np.array([3], np.float32)})
    assert trained(model) == {"w"}


def test_weights_that_are_filled_by_a_rule_are_weights() -> None:
    """As in models that are published without their values."""
    filled = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.25])
    nodes = [node("ConstantOfShape", ["s"], ["w"], value=filled), node("MatMul", ["x", "w"], ["y"])]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"s": np.array([3, 4])})).graph
    assert graph.trainable == ("w",)
    assert graph.operands["w"].shape == (3, 4)
    assert validate(graph, plan(graph), steps=2).identical


@pytest.mark.parametrize(("value", "is_trained"), [(0.5, True), (0.0, False)])
def test_a_filled_scale_is_trained_and_added_zeros_are_not(value: float, is_trained: bool) -> None:
    filled = helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
    nodes = [
        node("ConstantOfShape", ["s"], ["c"], value=filled),
        *nodes_of("Unsqueeze c axis u, Tanh h t"),
        node("Mul" if value else "Add", ["t", "u"], ["y"]),
    ]
    graph = after_product(nodes, (2,), s=np.array([4]), axis=np.array([0]))
    assert set(graph.trainable) == ({"w", "c"} if is_trained else {"w"})


@pytest.mark.parametrize(("operator", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_first_state_of_zeros_is_no_weight(operator: str, gates: int) -> None:
    weights = {"W": floats(1, gates * 5, 3), "R": floats(1, gates * 5, 5)}
    nodes = [node(operator, ["x", "W", "R", "", "", "start"], ["y"], hidden_size=5)]
    zeros = np.zeros((1, 2, 5), np.float32)
    model = model_of(nodes, {"x": (4, 2, 3)}, {**weights, "start": zeros})
    assert trained(model) == {"W", "R"}
    assert trained(model, trainable=("start",)) == {"start"}
    learned = model_of(nodes, {"x": (4, 2, 3)}, {**weights, "start": floats(1, 2, 5)})
    assert trained(learned) == {"W", "R", "start"}


@pytest.mark.parametrize(
    ("operator", "value"),
    [("Max", 0.0), ("Min", 6.0), ("Max", -np.inf), ("Where", -np.inf), ("Where", np.nan), ("Where", -1e4)],
)
def test_bounds_and_what_is_no_number_are_no_weights(operator: str, value: float) -> None:
    operands = ["chosen", "h", "bound"] if operator == "Where" else ["h", "bound"]
    chosen = {"chosen": np.array([True, True, False, True])} if operator == "Where" else {}
    nodes = [node("MatMul", ["x", "w"], ["h"]), node(operator, operands, ["y"])]
    bound = np.full(4, value, np.float32)
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "bound": bound, **chosen})
    assert trained(model) == {"w"}
    assert trained(model, trainable=("bou*",)) == {"bound"}


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_a_weight_that_is_kept_on_one_side_of_a_bound_is_trained(operator: str) -> None:
    nodes = [node(operator, ["w_mean", "bound"], ["w"]), node("MatMul", ["x", "w"], ["y"])]
    weights = {"w_mean": floats(3, 4), "bound": np.float32(0)}
    assert trained(model_of(nodes, {"x": (2, 3)}, weights)) == {"w_mean"}


def test_a_filled_state_of_the_size_of_the_batch_is_no_weight() -> None:
    nodes = nodes_of("Shape x s, ConstantOfShape s zeros, Add x zeros h, MatMul h w y")
    assert trained(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)})) == {"w"}


def branch(name: str, weight: Array, *, is_initializer: bool) -> onnx.GraphProto:
    nodes = [node("MatMul", ["x", "inner"], ["h"]), node("Add", ["h", "outer"], [f"{name}_y"])]
    if not is_initializer:
        nodes.insert(0, constant("inner", weight))
    held = [numpy_helper.from_array(weight, "inner")] if is_initializer else []
    return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_y")], held)


@pytest.mark.parametrize("is_initializer", [True, False])
def test_weights_of_a_branch_are_trained_and_those_that_it_reads_from_outside(is_initializer: bool) -> None:
    first, second = floats(3, 4), floats(3, 4)
    taken = branch("one", first, is_initializer=is_initializer)
    other = branch("two", second, is_initializer=is_initializer)
    nodes = [node("If", ["c"], ["y"], then_branch=taken, else_branch=other)]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"c": np.array(False), "outer": floats(4)})).graph
    assert set(graph.trainable) == {"inner", "outer"}
    weight = graph.operands["inner"].initializer
    assert weight is not None
    assert weight.data == second.tobytes()


def test_a_weight_that_a_function_holds_is_one_for_all_calls() -> None:
    nodes = [constant("w", floats(3, 3)), node("MatMul", ["a", "w"], ["c"])]
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "Layer", ["a"], ["c"], nodes, opsets)
    calls = [node("Layer", ["x"], ["h"], domain="own"), node("Layer", ["h"], ["y"], domain="own")]
    graph = imported(model_of(calls, {"x": (2, 3)}, functions=[function], domains=["own"])).graph
    assert graph.trainable == ("w",)
    assert validate(graph, plan(graph), steps=2).identical


# --------------------------------------------------------------------------------------- what is not trained


def after_product(nodes: list[onnx.NodeProto], shape: tuple[int, ...], **weights: Any) -> TrainableGraph:
    """y of h [*shape, 4], which is a product of x and w."""
    first = node("MatMul", ["x", "w"], ["h"])
    return imported(model_of([first, *nodes], {"x": (*shape, 3)}, {"w": floats(3, 4), **weights})).graph


def sinusoids(positions: int, size: int) -> Array:
    angles = np.arange(positions)[:, None] / 10000 ** (np.arange(size // 2) / size * 2)
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


@grid(
    "values",
    [
        np.where(np.tri(5, 4) > 0, 0, -np.inf).astype(np.float32),
        np.where(np.tri(5, 4) > 0, 0, -1e9).astype(np.float32),
        np.where(np.tri(5, 4) > 0, 0, np.finfo(np.float32).min).astype(np.float32),
        np.tri(5, 4, dtype=np.float32),
        (np.arange(20).reshape(5, 4) + 0.5).astype(np.float32),
        sinusoids(5, 4),
    ],
)
@grid("op", ["Add", "Mul"])
def test_tables_that_a_program_computed_are_constants(op: str, values: Array) -> None:
    if op == "Mul" and not np.isfinite(values).all():
        op = "Add"
    graph = after_product([node(op, ["h", "blocks.0.table"], ["y"])], (2, 5), **{"blocks.0.table": values})
    assert graph.trainable == ("w",)


def test_a_table_of_positions_that_was_learned_is_trained() -> None:
    nodes = nodes_of("Gather table ids p, Add h p y")
    for table, names in ((floats(8, 4), {"w", "table"}), (sinusoids(8, 4), {"w"})):
        graph = after_product(nodes, (2, 5), table=table, ids=np.arange(5))
        assert set(graph.trainable) == names


def test_frequencies_of_sines_and_cosines_are_constants() -> None:
    nodes = nodes_of(
"MatMul p frequencies a, Sin a s, Cos a c, Mul h s hs, Mul h c hc, Add hs hc y, "
"MatMul x w h"
)  # fmt: skip
    inputs = {"x": (5, 3), "p": (5, 1)}
    model = model_of(
        [nodes[0], nodes[-1], *nodes[1:-1]], inputs, {"w": floats(3, 4), "frequencies": floats(1, 4)}
    )
    assert trained(model) == {"w"}


def test_frequencies_may_be_scaled() -> None:
    """As Fourier features have it, whose matrix is drawn once."""
    turn = np.array(6.28, np.float32)
    nodes = [
        *nodes_of("MatMul x drawn a, Mul a turn b, Sin b s, Cos b c"),
        node("Concat", ["s", "c"], ["f"], axis=1),
        node("MatMul", ["f", "w"], ["y"]),
    ]  # fmt: skip
    assert trained(
        model_of(nodes, {"x": (2, 3)}, {"drawn": floats(3, 4), "turn": turn, "w": floats(8, 2)})
    ) == {"w"}


def test_sines_alone_leave_weights_what_they_are() -> None:
    nodes = nodes_of("MatMul x w h, Sin h y")
    assert trained(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)})) == {"w"}


@grid(
    "before",
    [
        "Sub x s a, Div a t b, Mul b u c",
        "Mul x s a, Add a t c",
        "Add s x a, Mul t a b, Sub u b c",
        "Mul x s a, Log a b, Add b t c",
        "Transpose x p, Mul p row a, Add row a b, Transpose b c",
        "Mul s t st, Mul x st a, Add a u c",
    ],
)
def test_what_inputs_are_normalised_by_is_constant(before: str) -> None:
    nodes = nodes_of(f"{before}, Conv c w b0 h, Mul h v y")
    weights = {"w": floats(2, 3, 1, 1), "b0": floats(2), "v": floats(1, 2, 1, 1)}
    channels = {name: np.abs(floats(1, 3, 1, 1)) + 1 for name in "stu"} | {"row": floats(1, 3, 1)}
    read = {name for one in nodes for name in one.input}
    channels = {name: value for name, value in channels.items() if name in read}
    model = model_of(nodes, {"x": (1, 3, 4, 4)}, {**weights, **channels})
    assert trained(model) == set(weights)
    last = max(channels)
    assert trained(model, trainable=(last,)) == {last}


#: First layers, from x (of 2 x 5 x 4) to c: each holds s, and t where it reads it.
FIRST = {
    "LayerNormalization": nodes_of("LayerNormalization x s t c"),
    "written out": nodes_of(
        "ReduceMean x m, Sub x m d, Mul d d q, ReduceMean q v, Sqrt v r, Div d r n, Mul n s a, Add a t c"
    ),
    "by the root": nodes_of("Mul x x q, ReduceMean q v, Sqrt v r, Reciprocal r i, Mul x i n, Mul n s c"),
    "slope": nodes_of("PRelu x s c"),
    "product": nodes_of("MatMul x square h, Mul h s a, Add a t c"),
    "gate": nodes_of("MatMul x square h, Mul x h g, Mul g s c"),
    "embedding": nodes_of("Gather table ids e, Add e places p, Mul p s q, Add x q c"),
    "token": [node("Concat", ["token", "x"], ["h"], axis=0), *nodes_of("Mul h s a, Add a t c")],
    "group": [
        *(constant("ones", np.ones(5, np.float32)), constant("zeros", np.zeros(5, np.float32))),
        *nodes_of("InstanceNormalization x ones zeros h, Mul h s a, Add a t c"),
    ],
}  # fmt: skip


@grid("before", [None, "Mul x0 scale x1, Add x1 shift x"])
@grid("kind", FIRST)
def test_a_first_layer_is_trained(kind: str, before: str | None) -> None:
    nodes = [*nodes_of(before or "Identity x0 x"), *FIRST[kind], node("MatMul", ["c", "w"], ["y"])]
    read = {name for one in nodes for name in one.input}
    layers = {"s": (4,), "t": (4,), "square": (4, 4), "table": (9, 4), "places": (5, 4), "token": (1, 5, 4)}
    weights = {name: floats(*shape) for name, shape in layers.items() if name in read} | {"w": floats(4, 3)}
    others = {"scale": floats(4), "shift": floats(4), "ids": np.array([[0, 3, 5, 1, 2]])}
    others = {name: value for name, value in others.items() if name in read}
    assert trained(model_of(nodes, {"x0": (2, 5, 4)}, weights | others)) == set(weights)


@pytest.mark.parametrize("cut", ["h", "a", "n"])
def test_what_follows_a_frozen_layer_is_trained(cut: str) -> None:
    nodes = nodes_of("Mul x scale n, MatMul n w h, Mul h s a, Add a t b, MatMul b v y")
    weights = {"scale": floats(3), "w": floats(3, 4), "s": floats(4), "t": floats(4), "v": floats(4, 2)}
    names = {"h": {"s", "t", "v"}, "a": {"t", "v"}, "n": {"w", "s", "t", "v"}}[cut]
    assert trained(model_of(nodes, {"x": (2, 3)}, weights), freeze_before=(cut,)) == names


@grid("is_layer", [True, False])
@grid("holder", ["branch", "function"])
def test_a_branch_and_a_function_count_as_layers_where_they_hold_one(holder: str, is_layer: bool) -> None:
    inner = nodes_of("MatMul x held b_y" if is_layer else "Mul x held b_y")
    branch_ = helper.make_graph(inner, "b", [], [helper.make_empty_tensor_value_info("b_y")])
    opsets = [helper.make_opsetid("", 18)]
    function = helper.make_function("own", "F", ["x", "held"], ["b_y"], inner, opsets)
    called = {
        "branch": node("If", ["c"], ["h"], then_branch=branch_, else_branch=branch_),
        "function": node("F", ["x", "held"], ["h"], domain="own"),
    }[holder]
    weights = {"held": floats(*((3, 3) if is_layer else (3,))), "shift": floats(3), "w": floats(3, 2)}
    others = {"c": np.array(True)} if holder == "branch" else {}
    nodes = [called, *nodes_of("Sum h shift g, MatMul g w y")]
    functions = [function] if holder == "function" else []
    model = model_of(nodes, {"x": (2, 3)}, weights | others, functions=functions, domains=["own"])
    assert trained(model) == (set(weights) if is_layer else {"w"})


def test_statistics_of_a_normalisation_that_is_written_out_are_constants() -> None:
    nodes = nodes_of(
"Sub h mean a, Add variance epsilon v, Sqrt v d, Div a d b, Mul b gamma c, Add c beta y"
)  # fmt: skip
    vectors = {"mean": floats(4), "variance": np.abs(floats(4)), "gamma": floats(4), "beta": floats(4)}
    graph = after_product(nodes, (2,), epsilon=np.array(1e-5, np.float32), **vectors)
    assert set(graph.trainable) == {"w", "gamma", "beta"}


def test_a_model_of_arithmetic_alone_trains_what_it_has() -> None:
    model = model_of([node("Mul", ["x", "w"], ["y"])], {"x": (3, 2)}, {"w": np.arange(6.0).reshape(3, 2)})
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    )
    assert trained(model) == {"w"}


@pytest.mark.parametrize(
    ("name", "is_trained"),
    [
        ("blocks.0.alpha", True),
        ("logit_scale", True),
        ("block_0.w_0", True),
        ("half", False),
        ("val_3", False),
    ],
)
def test_a_number_is_trained_if_it_has_the_name_of_a_parameter(name: str, is_trained: bool) -> None:
    graph = after_product([node("Mul", ["h", name], ["y"])], (2,), **{name: np.array(0.5, np.float32)})
    assert set(graph.trainable) == ({"w", name} if is_trained else {"w"})


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("cls_token", "parameter"),
        ("val_3", "constant"),
        ("onnx::Concat_7", "constant"),
        ("window", "constant"),
    ],
)
def test_names_count_only_where_a_weight_may_stand_or_not(name: str, role: str) -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Concat", [name, "h"], ["y"], axis=0)]
    graph = imported(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), name: floats(1, 4)})).graph
    assert graph.operands[name].role is Role(role)


# --------------------------------------------------------------------------------------- patterns and summary


def masked() -> onnx.ModelProto:
    nodes = [
        *nodes_of("MatMul x fc.weight h, Add h mask m, Mul m half n"),
        constant("grid", (np.arange(20).reshape(5, 4) + 0.5).astype(np.float32)),
        node("Add", ["n", "grid"], ["y"]),
    ]
    mask = np.where(np.tri(5, 4) > 0, 0, -1e9).astype(np.float32)
    return model_of(nodes, {"x": (2, 5, 3)}, {"fc.weight": floats(3, 4), "mask": mask, "half": 0.5})


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        (("*",), {"fc.weight", "mask", "grid"}),
        (("gr*",), {"grid"}),
        (("fc.*", "ma?k"), {"fc.weight", "mask"}),
        (("half",), {"half"}),
        (("h*f", "grid"), {"half", "grid"}),
    ],
)
def test_patterns_reach_every_floating_tensor(patterns: tuple[str, ...], names: set[str]) -> None:
    assert trained(masked(), trainable=patterns) == names


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"frozen": ("a.*",)}, {"b.weight", "b.bias"}),
        ({"frozen": ("a.*", "b.bias")}, {"b.weight"}),
        ({"frozen": ("*.bias",), "trainable": ("b.*",)}, {"b.weight"}),
        ({"frozen": ("b.weight",), "trainable": 1}, {"b.bias"}),
    ],
)
def test_what_is_frozen_is_not_trained(options: dict[str, Any], names: set[str]) -> None:
    nodes = nodes_of("Gemm x a.weight a.bias h, Relu h r, Gemm r b.weight b.bias y")
    weights = {"a.weight": floats(3, 4), "a.bias": floats(4), "b.weight": floats(4, 2), "b.bias": floats(2)}
    model = model_of(nodes, {"x": (2, 3)}, weights)
    found = summarised(model, **options)
    assert set(found.graph.trainable) == trained(model, **options) == names
    assert found.notes[-1].startswith(f"{len(names)} tensor")
    assert f"{4 - len(names)} floating tensor" in found.notes[-1]
    assert validate(found.graph, plan(found.graph), steps=2).identical
    with pytest.raises(TrainableError, match="No parameter is called 'c'"):
        imported(model, frozen=("c",))
    with pytest.raises(TrainableError, match="Everything that would be trained is frozen"):
        imported(model, frozen=("*",))


def test_a_pattern_does_not_reach_what_an_operator_has_to_know() -> None:
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Resize", ["h", "", "scales"], ["y"], mode="nearest")]
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "scales": np.array([1, 2], np.float32)})
    assert trained(model, trainable=("*",)) == {"w"}


def test_a_pattern_leaves_out_what_has_no_derivative() -> None:
    nodes = nodes_of("MatMul x w h, Greater h bound g, Where g h z y")
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "bound": floats(4), "z": 0.0})
    found = imported(model, trainable=("*",))
    assert found.graph.trainable == ("w",)
    assert any("no derivative with respect to bound" in note for note in found.notes)


def test_the_last_note_says_what_is_trained_and_what_is_not() -> None:
    assert summarised(masked()).notes[-1] == (
        "1 tensor trained, 2 floating tensors not trained: mask, grid; 1 of one element not trained: half."
    )
    assert (
        summarised(masked(), trainable=("mask",))
        .notes[-1]
        .startswith("1 tensor trained, 2 floating tensors not")
    )
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    assert summarised(model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)})).notes == (
        "Not kept after a step: output 'y'; --keep-outputs names what is read then.",
        "1 tensor trained, 0 floating tensors not trained.",
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("dfl.conv.weight", np.arange(8, dtype=np.float32).reshape(1, 8)),
        ("stft.basis_buffer", floats(6, 8)),
        ("a,b.inv_freq", floats(6, 8)),
        ("eye", np.eye(8, dtype=np.float32)),
        ("dft", np.cos(2 * np.pi * np.outer(np.arange(6), np.arange(8)) / 8).astype(np.float32)),
    ],
)
def test_a_weight_that_looks_like_a_table_is_named_with_what_freezes_it(name: str, values: Array) -> None:
    nodes = [node("Gemm", ["x", name], ["h"], transB=1), node("Gemm", ["h", "w"], ["y"])]
    model = model_of(nodes, {"x": (2, 8)}, {name: values, "w": floats(len(values), 3)})
    for weights in (True, False):
        found = summarised(model, weights=weights)
        assert set(found.graph.trainable) == {name, "w"}
        start = f"2 tensors trained, 0 floating tensors not trained; looks like a table: {name} (--frozen "
        assert found.notes[-1].startswith(start)
        option = found.notes[-1].removeprefix(start).removesuffix(" leaves it untrained).")
        chosen = import_options({"loss": "mse", "frozen": shlex.split(option)[0]})
        assert summarised(model, frozen=chosen.frozen).notes[-1] == (
            f"1 tensor trained, 1 floating tensor not trained: {name}."
        )


def test_weights_that_the_loss_does_not_depend_on_are_among_those_not_trained() -> None:
    nodes = nodes_of("MatMul x w y, MatMul x v z")
    model = model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4), "v": floats(3, 4)}, outputs=("y", "z"))
    assert summarised(model).notes[-1] == "1 tensor trained, 1 floating tensor not trained: v."
    assert summarised(model, output="z").notes[-1] == "1 tensor trained, 1 floating tensor not trained: w."


def test_the_note_shortens_a_long_list() -> None:
    nodes = [node("MatMul", ["x", "w0"], ["h0"])]
    nodes += [node("MatMul", [f"h{k}", f"w{k + 1}"], [f"h{k + 1}"]) for k in range(11)]
    weights = {f"w{k}": floats(3, 3) for k in range(12)}
    model = model_of(nodes, {"x": (2, 3)}, weights, outputs=("h11",))
    note = summarised(model, trainable=("w11",)).notes[-1]
    assert note == (
        "1 tensor trained, 11 floating tensors not trained: w0, w1, w2, w3, w4, w5, w6, w7 and 3 more."
    )


def test_tensors_of_other_files_are_refused_in_a_branch() -> None:
    weight = numpy_helper.from_array(floats(3, 4), "inner")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/hostname")
    holder = node("Constant", [], ["w"], value=weight)
    model = model_of([holder, node("MatMul", ["x", "w"], ["y"])], {"x": (2, 3)})
    with pytest.raises(Exception, match="only initializers") as caught:
        load_onnx(model.SerializeToString(), options=ImportOptions(loss="mse"))
    assert type(caught.value).__name__ == "DocumentError"
