"""PyTorch modules, planned and trained here. Needs PyTorch: the extra ``torch``.

    captured = arenaplan.torch.graph(module, (images,), loss="cross-entropy", optimizer=torch_optimizer)
    print(captured.plan().arena_bytes)
    with captured.trainer() as trainer:
        for images, labels in loader:
            loss = trainer.step(captured.batch(images, labels))
        module.load_state_dict(captured.state_dict(trainer))

The module is traced with `torch.export` in the mode that it is in: batch norm and dropout train where the
module trains. PyTorch is imported when a function is called, not with this module.
"""

from __future__ import annotations

import base64
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

from arenaplan.choices import PlanChoices, planned, shows
from arenaplan.kernels import runner
from arenaplan.optimizers import optimizer_spec
from solver import documents
from solver.arguments import checks_arguments
from solver.canonical import word_for
from solver.errors import BatchError, PlanError
from solver.executor import Trainer
from solver.executor.initial import initial_value
from solver.graph import Array, OptimizerSpec, Role, Trainable, TrainableGraph, TrainingRules
from solver.graph.packing import unpack
from solver.importers.pytorch import LOSSES, Imported, import_module, trace_module
from solver.importers.pytorch import trace as trace_function
from solver.importers.pytorch.capture import check_type, one_at_a_time
from solver.importers.pytorch.capture import torch as framework
from solver.importers.pytorch.translate import array_of
from solver.importers.traced import TracedStep
from solver.importers.weights import with_weights
from solver.plan import Plan, PlanOptions
from solver.pytorch_steps import Budget, Partition, TrainStep, as_partitioner

__all__ = [
    "LOSSES",
    "Budget",
    "Captured",
    "Partition",
    "TracedStep",
    "TrainStep",
    "budget",
    "document",
    "graph",
    "program",
    "runner",
    "trace",
    "train_step",
]


_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Captured:
    """The graph of a module with its weights, and the names by which PyTorch knows these."""

    imported: Imported

    @property
    def graph(self) -> TrainableGraph:
        return self.imported.graph

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the capture, a sentence each; `graph` warns of them."""
        return self.imported.notes

    @shows(PlanChoices)
    @checks_arguments
    def plan(self, options: PlanOptions | None = None, **choices: Unpack[PlanChoices]) -> Plan:
        """The plan of one training step: see `arenaplan.plan`."""
        return planned(self.graph, options, choices)

    @shows(PlanChoices)
    @checks_arguments
    def trainer(self, options: PlanOptions | None = None, **choices: Unpack[PlanChoices]) -> Trainer:
        """A trainer in a new arena, which starts from the weights of the module."""
        return Trainer(self.graph, self.plan(options, **choices))

    @checks_arguments
    def train(self, batches: Iterable[Sequence[Any]]) -> Iterator[float]:
        """Plan, then train in the arena; the loss of each batch: inputs, then targets, as tensors."""
        with self.trainer() as trainer:
            for batch in batches:
                yield trainer.step(self.batch(*_tuple(batch)))

    def batch(self, *tensors: Any) -> dict[str, Array]:
        """Arrays by name, as `Trainer.step` takes them, from the inputs and then the targets.

        Raises PlanError for another number of tensors, OptionsError for one that is none.
        """
        names = (*self.imported.inputs, *self.imported.labels)
        if len(tensors) != len(names):
            raise PlanError(
                f"A batch has {len(tensors)} tensors; the graph takes {', '.join(names)}.",
                remedy="Give the inputs and then the targets, as when the module was captured.",
            )
        for name, tensor in zip(names, tensors, strict=True):
            check_type(name, tensor, framework().Tensor)
        arrays = {name: array_of(tensor, name) for name, tensor in zip(names, tensors, strict=True)}
        return {name: array for name, array in arrays.items() if name in self.graph.operands}

    @checks_arguments
    def load_weights(self, state: Mapping[str, Any] | str | os.PathLike[str]) -> Captured:
        """The same graph with first values from a ``state_dict``, or from a file.

        A .safetensors, .gguf or .npz file has them under PyTorch's names, or a .json file maps these names.
        Weights that are not trained keep the bits of the file, and a warning says what else became of some.
        Raises DocumentError where one is wrong.
        """
        if isinstance(state, Mapping):
            return Captured(self.imported.with_weights(state))
        loaded = with_weights(self.graph, Path(state))
        for note in loaded.notes:
            warnings.warn(note, stacklevel=3)
        return Captured(replace(self.imported, graph=loaded.graph))

    @checks_arguments
    def state_dict(self, trainer: Trainer | None = None) -> dict[str, Any]:
        """Tensors by PyTorch's names, for ``load_state_dict``: as trained, or the first values.

        Counts of batches have grown by the iterations behind what the trainer has learned. What else the
        graph does not read is as it was when the module was captured.
        """
        values = {}
        for weight in self.imported.weights:
            operand = self.graph.operands.get(weight.operand)
            if operand is None:
                continue
            if trainer is not None and operand.role is not Role.CONSTANT:
                values[operand.id] = trainer.read(operand.id)
                continue
            first = initial_value(operand)
            values[operand.id] = first if operand.type.storage is None else unpack(first, operand.type)
        return self.imported.read(values, 0 if trainer is None else trainer.iteration)


trace = one_at_a_time(trace_function)


@checks_arguments
@one_at_a_time
def graph(
    module: Any,
    example_inputs: Any,
    *,
    loss: str | Callable[..., Any] | None = None,
    targets: Any = (),
    optimizer: Any = "sgd",
    batch: int | None = None,
    trainable: Trainable = "all",
    outputs: bool = False,
    rules: TrainingRules | None = None,
    weights: bool = True,
    name: str | None = None,
) -> Captured:
    """Capture a module with its loss and optimizer as a graph.

    * `example_inputs`: a tensor, a tuple of them, or a mapping for a module that takes them by name. Their
      shapes are those of the graph, except that `batch` takes the place of the first axis where that has the
      examples' batch.
    * `loss`: one of `LOSSES` on the module's only output; a function of the output and `targets`, of which
      there are examples, too; or None where the module returns its loss. A module that returns no number, or
      whose loss is ``"none"``, is an inference: what it returns are the outputs, and nothing is trained. Call
      ``module.eval()`` first: batch norm and dropout keep the mode that they are in.
    * `targets`: examples of what the output is compared with. A loss by name takes one at most: its shape and
      element type are the label's. Classes are on axis 1 of the output, as in PyTorch's cross_entropy, or on
      the last axis where only that fits the target: [2, 8] for an output of [2, 8, 100].
    * `optimizer`: a name ("sgd", "adam", ...), a document (``{"type": "Adam", "learning_rate": 0.01}``), or
      PyTorch's optimizer.
    * `trainable`: "all" that require gradients, a list of names, or how many of the last operations that
      have parameters.
    * `outputs`: whether what the module returns can be read after a step, which holds its memory to the end.
    * `weights`: without them planning is the same, and training begins from the initial values of graphs.

    Parameters keep PyTorch's names, tied ones are one. Warns of what `Captured.notes` says: frozen weights
    that take more bytes in the plan than in the module, and an axis of classes that the shapes leave open.
    Raises ImportError without PyTorch, ArenaplanError else: DocumentError where `torch.export` fails,
    UnknownOperatorError with all operators that are missing.
    """
    inputs, target_tensors = _inputs(example_inputs), _tuple(targets)
    if batch is not None:
        size = _batch_of(inputs)
        inputs, target_tensors = (
            tuple(_resized(x, size, batch) for x in tensors) for tensors in (inputs, target_tensors)
        )
    spec = optimizer if isinstance(optimizer, OptimizerSpec) else optimizer_spec(optimizer)
    imported = import_module(
        module,
        inputs,
        keywords=_keywords(example_inputs),
        loss=loss,
        targets=target_tensors,
        optimizer=None if optimizer == "sgd" else spec,  # the default asks for nothing
        trainable=trainable,
        outputs=outputs,
        rules=rules,
        values=weights,
        name=name,
    )
    for note in imported.notes:
        warnings.warn(note, stacklevel=4)  # behind the two decorators
    return Captured(imported)


class CaptureChoices(TypedDict, total=False):
    """The keywords of `graph`."""

    loss: str | Callable[..., Any] | None
    targets: Any
    optimizer: Any
    batch: int | None
    trainable: Trainable
    outputs: bool
    rules: TrainingRules | None
    weights: bool
    name: str | None


@checks_arguments
def document(module: Any, example_inputs: Any, **choices: Unpack[CaptureChoices]) -> dict[str, Any]:
    """A graph document whose batch is symbolic: what `graph` captures, for any number of examples.

    `choices` are the keywords of `graph`. The module is captured with two batches, and what differs between
    the two must be the batch itself, a shape that follows from it, or a constant of that many rows, which
    are alike or follow a rule. Raises BatchError if it is something else, such as an axis that is a multiple
    of the batch; other errors as `graph`.
    """
    check_type("module", module, framework().nn.Module)
    inputs = _inputs(example_inputs)
    size = choices.get("batch") or _batch_of(inputs)
    batch = _distinct_batch(module, inputs, size)
    graphs = []
    for choices["batch"] in (batch, batch + 1):
        graphs.append(graph(module, example_inputs, **choices).graph)
    return {**_Symbolic(graphs, batch).document(), "batch": size}


@checks_arguments
@one_at_a_time
def program(
    module: Any,
    example_inputs: Any,
    *,
    loss: Callable[..., Any] | None = None,
    targets: Any = (),
    optimizer: Any,
    scratch: bool = False,
    name: str | None = None,
) -> TracedStep:
    """Forward pass, backward pass and PyTorch's optimizer as an explicit program of PyTorch's kernels.

    For modules that have no graph here, and for runtimes that run PyTorch's kernels: `plan` takes what this
    returns, `runner` runs it. `loss` is a function of the output and the targets, or None where the module
    returns it. With `scratch` each kernel runs once on tensors of ones and zeros, and the bytes that it
    allocates and frees again are planned as the scratch of its step. `trace` does the same with any function
    of tensors. Raises ImportError without PyTorch, DocumentError where it cannot trace the step or measure
    a kernel.
    """
    return trace_module(
        module,
        _inputs(example_inputs),
        keywords=_keywords(example_inputs),
        loss=loss,
        targets=_tuple(targets),
        optimizer=optimizer,
        scratch=scratch,
        name=name,
    )


@checks_arguments
@one_at_a_time
def train_step(
    module: Any,
    loss: Callable[..., Any] | None,
    optimizer: Any,
    example: Any,
    *,
    capacity: int | str | None = None,
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    name: str | None = None,
) -> TrainStep:
    """A training step with PyTorch's kernels in one planned tensor, within `capacity` bytes.

    `example` are the inputs and then, where `loss` is a function of the output and a target, the target; a
    module that returns its loss takes None for `loss`. Calls take the same tensors and return the loss, which
    is that of eager PyTorch, as the weights are; `validate` says how far they agree, as a rule bit for bit.
    The backward pass has run by then: ``loss.item()`` reads the loss, ``loss.backward()`` raises PlanError.
    The tensors of the module and of the optimizer move into the step's memory; settings of the optimizer,
    such as the learning rate, are read at each call.
    With `clip_grad_norm` all gradients together are clipped to this norm. With `accumulate=k` the
    gradients of k calls are added, of each loss divided by k, and every k-th call updates.
    Within a capacity calls may run again, in another order. Raises ImportError without PyTorch, DocumentError
    where it cannot trace the step, CapacityError where nothing was found that fits.
    """
    return TrainStep(
        module,
        loss,
        optimizer,
        _tuple(example),
        capacity=capacity,
        clip_grad_norm=clip_grad_norm,
        accumulate=accumulate,
        name=name,
    )


@checks_arguments
def budget(size: int | str) -> Budget:
    """A partitioner of `torch.compile`: forward and backward pass hold at most `size` bytes at once.

        compiled = torch.compile(module, options=arenaplan.torch.budget("300 MB").options)

    `torch.compile` traces both passes as one graph and asks a partitioner which tensors the forward pass
    saves. This one searches for the calls that run again in the backward pass, so that the budget is kept at
    the least cost. A budget counts what PyTorch's allocator holds for one call and its backward pass: saved
    tensors, what is computed in between, results and gradients; not the parameters, buffers and inputs that
    were there before, and not what the loss allocates where it is not compiled. It holds for each compiled
    graph: compile with ``fullgraph=True`` to have one.

    `options` of the result are those of `torch.compile`: the partitioner, and ``allow_buffer_reuse=False``,
    without which inductor keeps freed buffers beyond the budget.

    Raises ImportError without PyTorch, OptionsError for a size that is none. Compilation raises
    CapacityError where nothing was found that fits, DocumentError for symbolic shapes, both within
    PyTorch's BackendCompilerFailed.
    """
    return as_partitioner(size)


def _distinct_batch(module: Any, inputs: Sequence[Any], size: int) -> int:
    """The least batch from `size` on, but not 1, that is no other size of the module's tensors and of the
    inputs, and whose successor is none. A batch of 1 would look like an axis that is broadcast.
    """
    tensors = [*module.parameters(), *module.buffers()]
    shapes = [tensor.shape for tensor in tensors] + [getattr(x, "shape", ())[1:] for x in inputs]
    sizes = {int(size) for shape in shapes for size in shape}
    batch = max(size, 2)
    while sizes.intersection((batch, batch + 1)):
        batch += 1
    return batch


class _Symbolic:
    """The document of two `graphs`: captures with a `batch` and with the next one.

    The axes that have it are symbolic, and so are elements of lists of sizes. In the sizes of a Reshape one
    element is -1 instead, which may be a multiple of the batch. A constant with a row for each example is a
    rule, or an Expand of one row.
    """

    def __init__(self, graphs: Sequence[TrainableGraph], batch: int) -> None:
        self.graphs, self.batch = graphs, batch
        self.first, self.other = (documents.parse_json(documents.dump_graph(graph)) for graph in self.graphs)
        self.readers: dict[str, set[str]] = {}
        for operation in self.first["operations"]:
            for name in operation["inputs"]:
                self.readers.setdefault(name, set()).add(operation["type"])
        self.expands: list[dict[str, Any]] = []

    def document(self) -> dict[str, Any]:
        for kind in ("operands", "operations"):
            names = [[each["name"] for each in document[kind]] for document in (self.first, self.other)]
            if names[0] != names[1]:
                raise _not_symbolic(f"the number of its {kind}", (kind,))
        for i, (a, b) in enumerate(zip(self.first["operations"], self.other["operations"], strict=True)):
            if a != b:
                raise _not_symbolic(f"operation {a['name']!r}", ("operations", i))
        pairs = zip(self.first["operands"], self.other["operands"], strict=True)
        operands = [part for i, pair in enumerate(pairs) for part in self._operand(*pair, ("operands", i))]
        return {**self.first, "operands": operands, "operations": [*self.expands, *self.first["operations"]]}

    def _is_batch(self, a: Any, b: Any) -> bool:
        return (a, b) == (self.batch, self.batch + 1)

    def _operand(self, first: dict[str, Any], other: dict[str, Any], path: _Path) -> list[dict[str, Any]]:
        from solver.documents.initializers import rule_of

        pairs = list(zip(first["shape"], other["shape"], strict=False))
        shape = ["batch" if self._is_batch(*pair) else pair[0] for pair in pairs]
        if [self.batch + 1 if size == "batch" else size for size in shape] != other["shape"]:
            raise _not_symbolic(f"the shape of {first['name']!r}", path)
        operand = {**first, "shape": shape}
        if first.get("initializer") == other.get("initializer"):
            return [operand]
        operands = [graph.operands[first["name"]] for graph in self.graphs]
        arrays = [initial_value(operand) for operand in operands]
        if shape == first["shape"]:
            old, new = (array.reshape(-1).tolist() for array in arrays)
            sizes = self._sizes(first, old, new, path)
            return [{**operand, "initializer": {"kind": "values", "values": sizes}}]
        rules = [rule_of(array.tobytes(), x.type, 0) for array, x in zip(arrays, operands, strict=True)]
        number = arrays[0].flat[0].item()
        if all(array.tobytes() == arrays[0].tobytes()[: array.itemsize] * array.size for array in arrays):
            return [{**operand, "initializer": {"kind": "constant", "value": word_for(float(number))}}]
        if rules[0] is not None and rules[0] == rules[1]:
            words = {key: word_for(field) for key, field in rules[0].items()}
            return [{**operand, "initializer": words}]
        return self._expanded(operand, arrays, path)

    def _sizes(self, first: dict[str, Any], old: Any, new: Any, path: _Path) -> list[int | str]:
        """A list of sizes: the batch by its name, and one as -1 if only Reshape reads the list."""
        differing = [k for k, (a, b) in enumerate(zip(old, new, strict=True)) if a != b]
        exact = [k for k in differing if self._is_batch(old[k], new[k])]
        inferred = [k for k in differing if k not in exact] or (exact if len(exact) == 1 else [])
        if self.readers.get(first["name"]) != {"Reshape"} or first["dtype"] != "int64":
            inferred = []
        if len(inferred) > 1 or {*exact, *inferred} != {*differing} or first["dtype"] != "int64":
            raise _not_symbolic(f"the constant {first['name']!r}", path)
        return [-1 if k in inferred else "batch" if k in exact else size for k, size in enumerate(old)]

    def _expanded(
        self, operand: dict[str, Any], arrays: Sequence[Array], path: _Path
    ) -> list[dict[str, Any]]:
        """A row of a constant, and its shape; an Expand makes the constant of them."""
        name, axis = operand["name"], operand["shape"].index("batch")
        row = arrays[0].take([0], axis)
        if any(row.repeat(len(x.swapaxes(0, axis)), axis).tobytes() != x.tobytes() for x in arrays):
            raise _not_symbolic(f"the constant {name!r}", path)
        inputs = [f"{name}.row", f"{name}.shape"]
        self.expands.append({"name": f"{name}.expand", "type": "Expand", "inputs": inputs, "outputs": [name]})
        content = {"kind": "values", "base64": base64.b64encode(row.tobytes()).decode()}
        sizes = {"kind": "values", "values": operand["shape"]}
        return [
            {**operand, "name": inputs[0], "shape": [*row.shape], "initializer": content},
            {**operand, "name": inputs[1], "shape": [row.ndim], "dtype": "int64", "initializer": sizes},
        ]


def _not_symbolic(what: str, path: _Path) -> BatchError:
    return BatchError(
        f"The batch cannot be symbolic: {what} depends on it in another way than as a dimension.",
        remedy="Capture the module with the batch that you plan for, by `graph`.",
        path=path,
    )


def _tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, list | tuple) else (values,)


def _inputs(example_inputs: Any) -> tuple[Any, ...]:
    return tuple(example_inputs.values()) if isinstance(example_inputs, Mapping) else _tuple(example_inputs)


def _keywords(example_inputs: Any) -> tuple[str, ...]:
    return tuple(example_inputs) if isinstance(example_inputs, Mapping) else ()


def _batch_of(inputs: Sequence[Any]) -> int:
    sizes = [int(x.shape[0]) for x in inputs if getattr(x, "ndim", 0)]
    if not sizes:
        raise BatchError(
            "A batch is asked for, but no example input has an axis.",
            remedy="Give examples with the batch in front.",
            path=("batch",),
        )
    return sizes[0]


def _resized(x: Any, size: int, batch: int) -> Any:
    """The first example as often as the batch wants; a tensor without the batch in front stays."""
    if not getattr(x, "ndim", 0) or x.shape[0] != size:
        return x
    return x[:1].expand(batch, *x.shape[1:]).contiguous()
