"""A model file as a trainable graph: its operators one after the other, then loss and optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from solver.errors import (
    BatchError,
    DocumentError,
    GraphError,
    LossError,
    TrainableError,
    UnknownOperatorError,
)
from solver.graph import (
    DType,
    Operation,
    OptimizerSpec,
    Role,
    TrainableGraph,
    TrainingRules,
    build_graph,
)
from solver.graph.declared import Trainable
from solver.graph.types import Array, TensorType
from solver.importers.circle.constants import FOLDED
from solver.importers.circle.network import Network, Unsupported, Weight, unique_names
from solver.importers.circle.operators import OPERATORS
from solver.importers.circle.read import TRAINING, Model, damaged, read_model
from solver.importers.circle.roles import needed_operators, weight_tensors
from solver.importers.circle.training import CircleTraining, load_training
from solver.importers.options import TRAIN_FLOAT_FIRST, matching_parameters

__all__ = [
    "DEFAULT",
    "CircleGraph",
    "Objective",
    "load_circle",
    "objective_of",
    "translated",
    "unknown",
    "weights_of",
    "with_objective",
    "with_output",
    "with_outputs",
    "with_results",
]

#: How a model without metadata is trained: onert's own defaults, but for the loss.
DEFAULT = CircleTraining(OptimizerSpec("Adam", {"learning_rate": 0.001}), "categorical-crossentropy")

#: onert's Adam: TensorFlow's old form.
ONERT_ADAM: Final[Mapping[str, float | bool]] = {"epsilon": 1e-7, "epsilon_hat": True}

#: onert takes the logarithm of a probability or of this number, whichever is larger.
ONERT_EPSILON: Final = 1e-20

#: Operators that are worked out when their inputs are constants, and are not in a graph otherwise.
_CONSTANT = frozenset(FOLDED) | {"SHAPE", "DENSIFY"}


_Asked: TypeAlias = Literal["all"] | int | tuple[str, ...] | tuple[int, ...]
_RULES: Final = TrainingRules()


@dataclass(frozen=True, slots=True)
class CircleGraph:
    """A graph, the places of its parameters in the file, and the training that the file asks for."""

    graph: TrainableGraph
    weights: Mapping[str, Weight]
    training: CircleTraining | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """How a network is trained: the operator of its loss, with its attributes, and the optimizer.

    `of_classes`: the label names one class an example, instead of a value for each output. `trainable` are
    names and patterns of names, numbers of the file's operators, a count of operations from the back, or all.
    """

    loss: str
    attributes: Mapping[str, int | float | str]
    optimizer: OptimizerSpec
    of_classes: bool = False
    trainable: _Asked = "all"
    rules: TrainingRules = _RULES


def load_circle(
    data: bytes,
    *,
    batch: int | None = None,
    training: CircleTraining | None = None,
    name: str = "",
    output: str | None = None,
) -> CircleGraph:
    """The verified graph of a Circle or TensorFlow Lite file, with its weights as initial values.

    `training` says how it is trained; without it the file's own metadata does, and without that Adam on the
    categorical cross entropy. The batch is `batch`, else that of the training, else the file's; it takes the
    place of the first dimension of every input that has the file's own. The loss is of the tensor `output`,
    without it of the model's first output; operators that it does not depend on are left out. Which tensors
    are parameters is decided by the operators that read them (`solver.importers.circle.roles`).

    Raises DocumentError for a file that cannot be read, UnknownOperatorError for operators that graphs do
    not have (all of them at once), BatchError, LossError for an output that there is not, and other
    GraphErrors where operators do not fit together. Linear in the size of the file.
    """
    model = read_model(data)
    own = load_training(model.metadata[TRAINING]) if TRAINING in model.metadata else None
    training = training or own
    if batch is None and training is not None and training.batch > 0:
        batch = training.batch
    if batch is not None and batch < 1:
        raise BatchError(
            f"The batch is {batch}.", remedy="Give a positive number of examples.", path=("batch",)
        )
    network = translated(with_output(model, output), batch)
    objective = objective_of(training or DEFAULT, network)
    graph = with_objective(network, objective, name or model.name or "model")
    weights = {name: weight for name, weight in network.weights.items() if name in graph.operands}
    return CircleGraph(graph, weights, own)


def translated(
    model: Model,
    batch: int | None,
    *,
    dims: Mapping[str, int] | None = None,
    trained: Sequence[str] = (),
    infers: bool = False,
) -> Network:
    """The forward graph up to the outputs of `model`, without the operators that it skips.

    One that is not to be trained `infers`: its weights may all be quantised.
    """
    if not model.inputs or not model.outputs:
        raise DocumentError(
            "The model has no inputs or no outputs.", remedy="Export a model that computes something."
        )
    if not trained and not infers:
        _check_floating(model)
    _check_known(model)
    try:
        network = Network(model, batch, model.outputs[0], dims=dims, trained=trained)
    except Unsupported as error:
        raise GraphError(
            f"An input of the model {error}.", remedy="Export it with inputs of float32.", path=("inputs",)
        ) from error
    for k, operator in enumerate(model.operators):
        if k in model.skipped:
            network.skip()
            continue
        try:
            network.add(operator, OPERATORS.get(operator.code, _refuse_computed))
        except Unsupported as error:
            raise UnknownOperatorError(
                f"Operator {k}, {operator.code} ({_output(model, k)!r}), {error}.",
                remedy="Export the model without it, in float32.",
                path=("operators", k),
            ) from error
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError) as error:
            raise DocumentError(
                f"Operator {k}, {operator.code} ({_output(model, k)!r}), has not the options or inputs that"
                f" its kind needs.",
                remedy="Take a file that its own tools can read.",
                path=("operators", k),
            ) from error
        except GraphError as error:
            error.path = ("operators", k, *error.path)
            raise
    return network


def with_output(model: Model, name: str | None) -> Model:
    """The model with the tensor `name` as its only output, else its first output that a loss can be of.

    Operators that the output does not depend on are skipped. Raises LossError for a tensor that no operator
    computes. Linear.
    """
    number = _chosen(model, name) if model.outputs else None
    return model if number is None else with_outputs(model, [number])


def with_outputs(model: Model, numbers: Sequence[int]) -> Model:
    """The model with these tensors as outputs, without the operators that they do not depend on. Linear."""
    needed = needed_operators(model, numbers)
    skipped = frozenset(range(len(model.operators))) - {*needed}
    return replace(model, outputs=tuple(numbers), skipped=skipped)


def _chosen(model: Model, output: str | None) -> int:
    """The number of the tensor that is called `output`; else of the first output that a loss can be of."""
    names = unique_names(model)
    computed = [number for operator in model.operators for number in operator.outputs]
    outputs = [number for number in model.outputs if number in computed]
    if output is None:
        floating = [number for number in outputs if model.tensors[number].type == "FLOAT32"]
        return (floating or model.outputs)[0]
    for number in (*outputs, *computed):
        if output in (names[number], model.tensors[number].name):
            return number
    raise LossError(
        f"The model has no output {output!r:.80}.",
        remedy=f"Its outputs are {', '.join(names[number] for number in model.outputs)}; any tensor that an"
        " operator computes can be named.",
        path=("output_name",),
    )


def unknown(model: Model) -> list[int]:
    """Numbers of the operators that would be imported and are not known."""
    return [
        k
        for k, operator in enumerate(model.operators)
        if k not in model.skipped and operator.code not in OPERATORS and operator.code not in _CONSTANT
    ]


def _check_floating(model: Model) -> None:
    """Raise where all weights are quantised: there is nothing to train."""
    needed = [k for k in range(len(model.operators)) if k not in model.skipped]
    weights = [model.tensors[n] for n in weight_tensors(model, needed) if n >= 0]
    stored = [tensor for tensor in weights if tensor.data is not None]
    if any(tensor.quantization is None and tensor.type.startswith("FLOAT") for tensor in stored):
        return
    kinds = ", ".join(sorted({tensor.type for tensor in stored if tensor.quantization}))
    if kinds:
        raise TrainableError(
            f"All {len(stored)} weights of the model are quantised ({kinds}), and quantised weights are not"
            " trained.",
            remedy=TRAIN_FLOAT_FIRST,
            path=("trainable",),
        )


def _check_known(model: Model) -> None:
    """Raise for the operators that there is no translation for, all of them at once."""
    missing = unknown(model)
    if not missing:
        return
    places = ", ".join(f"{model.operators[k].code} (operator {k}, {_output(model, k)!r})" for k in missing)
    before = next(filter(None, (_advice_before(model, k) for k in missing)), "")
    raise UnknownOperatorError(
        f"The model has operators that are not known: {places}.",
        remedy=f"Leave them out of the part that is trained{before}; `arenaplan operators` lists what there"
        " is.",
        path=("operators",),
    )


def _advice_before(model: Model, k: int) -> str:
    """Advice to train an input of the operator instead, if that depends on weights and known operators."""
    for number in model.operators[k].inputs:
        if number < 0 or model.tensors[number].type != "FLOAT32" or number in model.inputs:
            continue
        is_computed = any(number in operator.outputs for operator in model.operators)
        part = with_output(model, unique_names(model)[number]) if is_computed else None
        if part is not None and not unknown(part):
            weights = weight_tensors(part, sorted({*range(len(part.operators))} - part.skipped))
            if any(w >= 0 and model.tensors[w].data is not None for w in weights):
                return f", as --output-name {unique_names(model)[number]!r} does"
    return ""


def _refuse_computed(_network: Network, _operator: object) -> None:
    raise Unsupported("is computed from data; only constants of it are known")


def _output(model: Model, k: int) -> str:
    outputs = model.operators[k].outputs
    return model.tensors[outputs[0]].name if outputs else ""


def cross_entropy_attributes(network: Network) -> dict[str, int | float]:
    """Attributes of the cross entropy that onert takes of a model's output (0.1.0, as measured).

    It puts a softmax behind the model unless the last operator is one; what CIRCLE_TRAINING says of logits
    changes nothing. Probabilities below 1e-20 count as 1e-20. A sigmoid at the end, which onert does not
    train, gives probabilities as well.
    """
    last = [operator for operator in network.model.operators if network.output in operator.outputs]
    if last and last[-1].code in ("SOFTMAX", "LOGISTIC"):
        return {"from_logits": 0, "epsilon": ONERT_EPSILON}
    return {"from_logits": 1}


def objective_of(training: CircleTraining, network: Network) -> Objective:
    """The objective that the training metadata of a file describe. Fields that are 0 get default values."""
    attributes: dict[str, int | float | str] = {"reduction": training.reduction}
    sparse = training.loss == "sparse-categorical-crossentropy"
    if training.loss != "mean-squared-error":
        attributes |= {**cross_entropy_attributes(network), "sparse": int(sparse)}
    elif training.reduction == "sum":
        attributes["reduction"] = "sum_of_means"  # onert sums over the examples only
    optimizer = training.optimizer
    rules = {k: v for k, v in optimizer.attributes.items() if v}
    if optimizer.type == "Adam":
        rules = {**ONERT_ADAM, **rules}
    return Objective(
        loss="MeanSquaredError" if training.loss == "mean-squared-error" else "CategoricalCrossEntropy",
        attributes=attributes,
        optimizer=OptimizerSpec(optimizer.type, rules),
        of_classes=sparse,
        trainable="all" if training.trainable is None else training.trainable,
    )


def with_objective(network: Network, objective: Objective, name: str) -> TrainableGraph:
    """The graph with a label, a loss and an optimizer.

    Raises LossError for an output that has no derivative, TrainableError and GraphError for a trainable set
    that names what the model does not have.
    """
    prediction = network.output_name(network.output)
    fault = ""
    if not any(prediction in operation.outputs for operation in network.operations):
        fault = "not a tensor that an operator computes"
    elif not network.types[prediction].type.shape:
        fault = "one number, without an axis for the batch"
    elif not network.types[prediction].type.dtype.is_floating:
        fault = f"{network.types[prediction].type}, which has no derivative"
    if fault:
        raise LossError(
            f"The output {prediction!r:.80} is {fault}.",
            remedy=f"Choose another with --output-name: {_other_outputs(network)}.",
            path=("outputs",),
        )
    network.keep([prediction])
    network.settle_constants()
    shape, classes = network.types[prediction].type.shape, objective.of_classes
    label, loss = network.free("label"), network.free("loss")
    dtype = DType.INT32 if classes else DType.FLOAT32
    network.put(label, Role.LABEL, TensorType(shape[:-1] if classes else shape, dtype))
    network.record(Operation(loss, objective.loss, (prediction, label), (loss,), objective.attributes))
    network.frozen = network.freeze(loss)
    trainable = _trainable(network, objective.trainable)
    return build_graph(
        name,
        network.operands.values(),
        network.operations,
        loss=loss,
        optimizer=objective.optimizer,
        trainable=trainable,
        outputs=(prediction,),
        training=objective.rules,
    )


def with_results(network: Network, outputs: Sequence[str], name: str) -> TrainableGraph:
    """The graph of an inference, whose outputs these tensors are. Raises LossError without one."""
    network.keep(outputs)
    network.settle_constants()
    operands, operations = network.operands.values(), network.operations
    return build_graph(name, operands, operations, loss=None, optimizer=None, outputs=outputs)


def _other_outputs(network: Network) -> str:
    """The other outputs of the model that have derivatives; without one, the tensors that are floating."""
    model = network.model
    numbers = [n for n in model.outputs if model.tensors[n].type == "FLOAT32" and n != network.output]
    if not numbers:
        numbers = [n for k in network.needed[-8:] for n in model.operators[k].outputs
                   if model.tensors[n].type == "FLOAT32" and n != network.output]  # fmt: skip
    return ", ".join(repr(network.output_name(n)) for n in numbers) or "none of its tensors has a derivative"


def _trainable(network: Network, asked: _Asked) -> Trainable:
    """The trainable set, without parameters that the loss has no derivative with respect to."""
    trained = [name for name in network.weights if name in network.operands and name not in network.frozen]
    if not trained:
        raise TrainableError(
            "The model has no weights that the loss has a derivative with respect to.",
            remedy="Name floating tensors with --trainable, or choose another output with --output-name.",
            path=("trainable",),
        )
    if not isinstance(asked, tuple):
        return asked
    chosen: dict[str, None] = {}
    for entry in asked:
        if isinstance(entry, str):
            matching = matching_parameters(entry, trained, network.quantized)
        elif not 0 <= entry < len(network.owned):
            raise GraphError(
                f"CIRCLE_TRAINING trains operator {entry}; the model has {len(network.owned)}.",
                remedy="Correct its trainable_ops.",
                path=("training", "trainable_ops"),
            )
        else:
            matching = [name for name in network.owned[entry] if name in trained]
        chosen.update(dict.fromkeys(matching))
    return tuple(chosen)


def weights_of(data: bytes, weights: Mapping[str, Weight]) -> dict[str, Array]:
    """The parameters' values as a file has them, in the axes of the graph; half precision as float32.

    Raises DocumentError for a file that cannot be read.
    """
    model = read_model(data)
    values = {}
    with damaged("The model"):
        for name, weight in weights.items():
            value = weight.from_file(model.tensors[weight.tensor].array())
            values[name] = value.astype(np.float32) if value.dtype == np.float16 else value
    return values
