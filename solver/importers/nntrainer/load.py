"""nntrainer's model files: INI sections in, a trainable graph out.

    [Model]                 loss = mse | cross, batch_size, ...
    [Optimizer]             type = sgd | adam | adamw, learning_rate, ...; older files say it in [Model]
    [fc1]                   one section a layer, in order; each reads the one before, or its input_layers
    Type = fully_connected
    Unit = 10

Data sets, epochs and schedules of the learning rate have no part in a graph: their keys are known, and
left aside. Anything else that is unknown is an error that names line, section and key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from solver.errors import BatchError, DocumentError, GraphError
from solver.graph import DType, OptimizerSpec, Role, TrainableGraph, TrainingRules, build_graph, inference
from solver.importers.nntrainer.ini import Section, read_sections, with_backbones
from solver.importers.nntrainer.layers import (
    BRANCHES,
    LAYER_TYPES,
    LOSS_LAYERS,
    SPATIAL,
    Network,
    Value,
    add_layer,
)
from solver.importers.options import NO_LOSS, Imported, ImportOptions
from solver.training.optimizers import optimizer_rules

__all__ = ["load_nntrainer", "load_nntrainer_ini"]

#: An output of a layer, as in `input_layers = split(1)`.
_PORT: Final = re.compile(r"(.+)\((\d{1,3})\)")
_MODEL_TYPES: Final = ("neuralnetwork", "regression")
_LOSSES: Final = ("mse", "cross")
_OPTIMIZERS: Final[Mapping[str, str]] = MappingProxyType({"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"})
_ADAM: Final = ("beta1", "beta2", "epsilon")
#: nntrainer's default where it is not ours.
_ADAM_EPSILON: Final = 1e-7

#: Keys of [Model] that may only say what is done anyway.
_FIXED: Final[Mapping[str, str]] = MappingProxyType(
    {"memory_optimization": "true", "model_tensor_type": "fp32-fp32", "tensor_format": "nchw"}
)

_SCHEDULE: Final = frozenset({"learning_rate", "decay_rate", "decay_steps", "decay_step"})
_MODEL_KEYS: Final = _SCHEDULE | {
    *("type", "loss", "batch_size", "optimizer", *_ADAM),
    *("epochs", "save_path", "continue_train"),
    *_FIXED,
}
#: Sections that are not layers -> their keys.
_OTHERS: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "optimizer": _SCHEDULE | {"type", *_ADAM},
        "learningratescheduler": _SCHEDULE | {"type", "iteration"},
        **dict.fromkeys(
            ("dataset", "trainset", "validset", "testset", "train_set", "valid_set", "test_set"),
            frozenset(
                {
                    *("buffersize", "buffer_size", "traindata", "validdata", "testdata", "labeldata"),
                    *("type", "path"),
                }
            ),
        ),
    }
)


def load_nntrainer(
    data: bytes | memoryview, *, options: ImportOptions, path: Path | None = None, name: str = "model"
) -> Imported:
    """The graph of a model file, with notes. The file says how it is trained; options give the batch alone.

    With a loss of ``none`` it is an inference, for which the file need not name an optimizer and a loss.
    Backbones are read from the folder of `path`. Raises what `load_nntrainer_ini` raises.
    """
    folder, infers = None if path is None else path.parent, options.loss == NO_LOSS
    graph, network = _loaded(bytes(data), options.batch, name, folder, infers=infers)
    return Imported(graph, tuple(network.notes))


def load_nntrainer_ini(data: bytes, *, batch: int | None = None, name: str = "model") -> TrainableGraph:
    """The verified graph of a model file; `batch` takes the place of the file's own.

    Raises DocumentError for what the file may not say, and GraphError where the layers do not fit;
    paths are ``(section, key)`` and ``(section,)``. Linear in the size of the file and of the graph.
    """
    return _loaded(data, batch, name, None)[0]


def _loaded(
    data: bytes, batch: int | None, name: str, folder: Path | None, *, infers: bool = False
) -> tuple[TrainableGraph, Network]:
    sections = {section.name.lower(): section for section in read_sections(data)}
    model = sections.pop("model", None)
    if model is None:
        first = next(iter(sections.values()))
        raise DocumentError(
            f"The file has no section [Model], which says the loss; it begins with [{first.name:.60}] in"
            f" {first.place().lower()}.",
            remedy="Add [Model] with loss = mse or loss = cross. A file of layers alone is planned as the"
            " backbone of another one: backbone = FILE in a section of that.",
            path=("model",),
        )
    model.check_keys(_MODEL_KEYS)
    model.choice("type", _MODEL_TYPES)
    for key, value in _FIXED.items():
        model.choice(key, (value,), value)
    others = {key: sections.pop(key) for key in _OTHERS if key in sections}
    for key, section in others.items():
        section.check_keys(_OTHERS[key])
    size = model.integer("batch_size", 1, least=1) if batch is None else batch
    if size < 1:
        raise BatchError(
            f"The batch is {size}.", remedy="Give a positive number of examples.", path=("batch",)
        )
    layers = with_backbones(tuple(sections.values()), _OTHERS, folder)
    import_ = _Import(name, model, layers, size)
    return import_.graph(None if infers else _optimizer(model, others)), import_.network


def _optimizer(model: Section, others: Mapping[str, Section]) -> OptimizerSpec:
    """From [Optimizer], or from [Model]; the rate of a schedule is its first one."""
    section = others.get("optimizer", model)
    key = "type" if "optimizer" in others else "optimizer"
    type_ = _OPTIMIZERS[section.choice(key, _OPTIMIZERS)]
    rules = {} if type_ == "SGD" else {"epsilon": _ADAM_EPSILON}
    for source in (section, others.get("learningratescheduler", section)):
        if "learning_rate" in source:
            rules["learning_rate"] = source.number("learning_rate")
    rules |= {name: section.number(name) for name in _ADAM if name in section and type_ != "SGD"}
    spec = OptimizerSpec(type_, rules)
    try:
        optimizer_rules(spec)
    except GraphError as error:
        error.path = (section.name, error.path[-1])
        raise
    return spec


@dataclass(frozen=True, slots=True)
class _Layer:
    section: Section
    type: str
    #: Names of its inputs, in lower case, and which output of each.
    inputs: tuple[str, ...]
    ports: tuple[int, ...]


class _Import:
    """Turns the layers of one file into operations; lives for one call of `load_nntrainer_ini`."""

    def __init__(self, name: str, model: Section, sections: Mapping[str, Section], batch: int) -> None:
        self.name = name
        self.model = model
        self.network = Network(batch)
        self.layers = _layers(model, sections)
        self.read = {name for layer in self.layers.values() for name in layer.inputs}
        self.values: dict[str, Value] = {}

    def graph(self, optimizer: OptimizerSpec | None) -> TrainableGraph:
        """The trained graph; without an optimizer, the inference of what no layer but a loss reads."""
        for key in _in_order(self.layers):
            layer = self.layers[key]
            if layer.type not in LOSS_LAYERS:
                inputs = self._inputs(layer) or [self._given(key, layer)]
                # The cross entropy takes the last activation into itself.
                self.values[key] = add_layer(
                    self.network, layer.section, layer.type, inputs, fuses=key in self.read
                )
        try:
            if optimizer is None:
                layers = [layer for layer in self.layers.values() if layer.type not in LOSS_LAYERS]
                read = {name for layer in layers for name in layer.inputs}
                outputs = [value.name for key, value in self.values.items() if key not in read]
                operands, operations = self.network.operands, self.network.operations
                graph = build_graph(
                    self.name, operands, operations, loss=None, optimizer=None, outputs=outputs
                )
                return inference(graph)
            loss, rules = self._loss(), TrainingRules(clip_global_norm=self._clip())
            return build_graph(
                self.name,
                self.network.operands,
                self.network.operations,
                loss=loss,
                optimizer=optimizer,
                training=rules,
            )
        except GraphError as error:
            error.path = self._place(error.path)
            raise

    def _place(self, path: Sequence[str | int]) -> tuple[str | int, ...]:
        """The section that an operation stems from; operands and the optimizer carry theirs."""
        if len(path) > 1 and path[0] == "operations" and isinstance(path[1], int):
            return (self.network.owners[path[1]],)
        return tuple(path)

    def _inputs(self, layer: _Layer) -> list[Value]:
        inputs = []
        for name, port in zip(layer.inputs, layer.ports, strict=True):
            value = self.values[name]
            outputs = (replace(value, further=()), *value.further)
            if self.layers[name].type in BRANCHES:
                port = 0  # all outputs are the same
            if port >= len(outputs):
                what = f"names output {port} of {self.layers[name].section.name}, which has {len(outputs)}"
                layer.section.fail("input_layers", what, "Outputs are counted from 0.")
            inputs.append(outputs[port])
        return inputs

    def _clip(self) -> float | None:
        """The norm that the gradients of all trained layers together are clipped by.

        Each layer may say its own; what is the same for all of them is the one rule that a graph has.
        """
        key = "clip_grad_by_norm"
        trained = list(self.network.trained.values())
        clipped = [section for section in trained if key in section]
        if not clipped:
            return None
        norm = clipped[0].number(key)
        if norm <= 0:
            clipped[0].fail(key, f"is {norm}", "Choose a positive number.")
        for section in clipped:
            if section.number(key) != norm:
                section.fail(key, f"is not that of {clipped[0].name}, {norm}", "Give all layers one number.")
        if len(clipped) < len(trained):
            other = next(section.name for section in trained if key not in section)
            clipped[0].fail(
                key, f"is not given for {other}", "Give it for all layers with weights, or for none."
            )
        return norm

    def _given(self, key: str, layer: _Layer) -> Value:
        """The caller's input of a layer without predecessors."""
        section = layer.section
        sizes = section.integers("input_shape", (1, 2, 3, 4), separator=":", least=1)
        *leading, channels, height, width = [1] * (3 - len(sizes)) + sizes
        if leading and leading[0] not in (1, self.network.batch):
            what = f"is for {leading[0]} examples, the batch is {self.network.batch}"
            section.fail("input_shape", what, "Leave the batch out: write channel:height:width.")
        readers = {reader.type for reader in self.layers.values() if key in reader.inputs} | {layer.type}
        is_flat = channels == height == 1 and not readers & SPATIAL
        shape = (self.network.batch, *((width,) if is_flat else (channels, height, width)))
        name = section.name if layer.type == "input" else f"{section.name}.in"
        is_index = is_flat and readers <= {"input", "embedding"} and "embedding" in readers
        dtype = DType.INT32 if is_index else DType.FLOAT32
        declared = self.network.declare(section, name, Role.INPUT, shape, dtype=dtype)
        return Value(declared, shape, is_index=is_index)

    # --------------------------------------------------------------------------------------- loss

    def _loss(self) -> str:
        layers = [layer for layer in self.layers.values() if layer.type in LOSS_LAYERS]
        if layers:
            return self._loss_layer(layers)
        last = [key for key in self.layers if key not in self.read]
        kind = self.model.choice("loss", _LOSSES)
        if len(last) != 1:
            names = ", ".join(self.layers[key].section.name for key in last)
            self.model.fail("loss", f"is that of one output, and {names} are read by no layer", "Join them.")
        prediction = self.values[last[0]]
        if kind == "mse":
            return self._emit_loss(self.model, "MeanSquaredError", prediction)
        if prediction.type not in ("Softmax", "Sigmoid"):
            remedy = "Let the last layer have the activation softmax or sigmoid."
            self.model.fail("loss", "is the cross entropy of values that are not probabilities", remedy)
        type_ = "CategoricalCrossEntropy" if prediction.type == "Softmax" else "BinaryCrossEntropy"
        return self._emit_loss(self.model, type_, prediction)

    def _loss_layer(self, layers: Sequence[_Layer]) -> str:
        section = layers[0].section
        section.check_keys({"type", "input_layers", "trainable"})
        if len(layers) > 1 or "loss" in self.model:
            section.fail("type", "is a loss beside another one", "Keep one of them.")
        if len(layers[0].inputs) != 1:
            section.fail("input_layers", f"names {len(layers[0].inputs)} layers", "A loss has one input.")
        (prediction,) = self._inputs(layers[0])
        if layers[0].type == "mse":
            return self._emit_loss(section, "MeanSquaredError", prediction)
        return self._emit_loss(section, "CategoricalCrossEntropy", prediction, {"from_logits": 1})

    def _emit_loss(
        self, section: Section, type_: str, prediction: Value, attributes: Mapping[str, int] | None = None
    ) -> str:
        taken = {operation.id.lower() for operation in self.network.operations} | self.layers.keys()
        name, label = _free("loss", taken), _free("label", taken)
        self.network.declare(section, label, Role.LABEL, prediction.shape)
        inputs = [prediction.name, label]
        return self.network.emit(section, type_, inputs, (), attributes, name=name).name


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _layers(model: Section, sections: Mapping[str, Section]) -> dict[str, _Layer]:
    """The layers by name in lower case, each with its inputs: those it names, or the one before it."""
    layers: dict[str, _Layer] = {}
    for key, section in sections.items():
        type_ = section.choice("type", (*LAYER_TYPES, *LOSS_LAYERS))
        before = [] if type_ == "input" or not layers else [(next(reversed(layers)), 0)]
        inputs = _named(section, sections) or before
        layers[key] = _Layer(section, type_, tuple(n for n, _ in inputs), tuple(p for _, p in inputs))
    if not layers:
        raise DocumentError("The file has no layers.", remedy="Add a section for each.", path=(model.name,))
    for layer in layers.values():
        for key in layer.inputs:
            if layers[key].type in LOSS_LAYERS:
                what = f"names {layers[key].section.name}, which is a loss"
                layer.section.fail("input_layers", what, "Let the loss come last.")
    return layers


def _named(section: Section, sections: Mapping[str, Section]) -> list[tuple[str, int]]:
    """Layers and which of their outputs: the first, or the one in brackets."""
    names = []
    for name in section.words("input_layers"):
        port = None if name.lower() in sections else _PORT.fullmatch(name)
        key = (port[1] if port else name).lower()
        if key not in sections:
            section.fail(
                "input_layers", f"names {name!r}, which is not a layer", "Name sections of the file."
            )
        names.append((key, int(port[2]) if port else 0))
    return names


def _in_order(layers: Mapping[str, _Layer]) -> list[str]:
    """In the order of the file, but every layer behind its inputs."""
    order: dict[str, None] = {}
    for first in layers:
        path = {first: None}
        while path:
            key = next(reversed(path))
            missing = next((name for name in layers[key].inputs if name not in order), None)
            if missing is None:
                order.setdefault(key)
                del path[key]
            elif missing in path:
                layers[missing].section.fail("input_layers", "is part of a cycle", "Break the cycle.")
            else:
                path[missing] = None
    return list(order)
