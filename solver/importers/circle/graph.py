"""A model file as a trainable graph: its operators one after the other, then loss and optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from solver.errors import BatchError, DocumentError, GraphError, TrainableError, UnknownOperatorError
from solver.graph import (
    DeclaredOperand,
    DType,
    Operation,
    OptimizerSpec,
    Role,
    TrainableGraph,
    TrainingRules,
    build_graph,
)
from solver.graph.declared import Trainable
from solver.graph.types import Array
from solver.importers.circle.constants import FOLDED
from solver.importers.circle.network import Network, Unsupported, Weight
from solver.importers.circle.operators import OPERATORS
from solver.importers.circle.read import TRAINING, Model, read_model
from solver.importers.circle.training import CircleTraining, load_training

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
]

#: How a model without metadata is trained: onert's own defaults, but for the loss.
DEFAULT = CircleTraining(OptimizerSpec("Adam", {"learning_rate": 0.001}), "categorical-crossentropy")

#: onert's Adam: TensorFlow's old form.
ONERT_ADAM: Final[Mapping[str, float | bool]] = {"epsilon": 1e-7, "epsilon_hat": True}

#: What onert raises probabilities to before it takes their logarithm.
ONERT_EPSILON: Final = 1e-20

#: Operators that are worked out when their inputs are constants, and are not in a graph otherwise.
_CONSTANT = frozenset(FOLDED) | {"SHAPE", "DEQUANTIZE"}


_Asked: TypeAlias = Literal["all"] | int | tuple[str, ...] | tuple[int, ...]
_RULES: Final = TrainingRules()


@dataclass(frozen=True, slots=True)
class CircleGraph:
    """A graph, and where its parameters lie in the file; `training` is how the file says to train it."""

    graph: TrainableGraph
    weights: Mapping[str, Weight]
    training: CircleTraining | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """What stands behind a network: the operator of its loss, with its attributes, and the optimizer.

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
    data: bytes, *, batch: int | None = None, training: CircleTraining | None = None, name: str = ""
) -> CircleGraph:
    """The verified graph of a Circle or TensorFlow Lite file, with its weights as initial values.

    `training` says how it is trained; without it the file's own metadata does, and without that Adam on the
    categorical cross entropy. The batch is `batch`, else that of the training, else the file's; it takes the
    place of the first dimension of every input that has the file's own. Weights of convolutions, products and
    embeddings are parameters; other constants are not trained.

    Raises DocumentError for a file that cannot be read, UnknownOperatorError for operators that graphs do
    not have (all of them at once), BatchError, and other GraphErrors where operators do not fit together.
    Linear in the size of the file.
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
    network = translated(model, batch)
    objective = objective_of(training or DEFAULT, model)
    graph = with_objective(network, objective, name or model.name or "model")
    return CircleGraph(graph, network.weights, own)


def translated(model: Model, batch: int | None) -> Network:
    if not model.inputs or not model.outputs:
        raise DocumentError(
            "The model has no inputs or no outputs.", remedy="Export a model that computes something."
        )
    missing = [f"{model.operators[k].code} (operator {k}, {_output(model, k)!r})" for k in unknown(model)]
    if missing:
        raise UnknownOperatorError(
            f"The model has operators that are not known: {', '.join(missing)}.",
            remedy="Leave them out of the part that is trained; `arenaplan operators` lists what there is.",
            path=("operators",),
        )
    try:
        network = Network(model, batch)
    except Unsupported as error:
        raise GraphError(
            f"An input of the model {error}.", remedy="Export it with inputs of float32.", path=("inputs",)
        ) from error
    for k, operator in enumerate(model.operators):
        if k in model.skipped:
            network.skip()
            continue
        try:
            network.add(operator, OPERATORS.get(operator.code, _only_constant))
        except Unsupported as error:
            raise UnknownOperatorError(
                f"Operator {k}, {operator.code} ({_output(model, k)!r}), {error}.",
                remedy="Export the model without it, in float32.",
                path=("operators", k),
            ) from error
        except (KeyError, ValueError, IndexError) as error:
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


def unknown(model: Model) -> list[int]:
    """Numbers of the operators that would be imported and are not known."""
    return [
        k
        for k, operator in enumerate(model.operators)
        if k not in model.skipped and operator.code not in OPERATORS and operator.code not in _CONSTANT
    ]


def _only_constant(_network: Network, _operator: object) -> None:
    raise Unsupported("is computed from data; only constants of it are known")


def _output(model: Model, k: int) -> str:
    outputs = model.operators[k].outputs
    return model.tensors[outputs[0]].name if outputs else ""


def cross_entropy_attributes(model: Model) -> dict[str, int | float]:
    """How onert (0.1.0, as it was measured) takes the cross entropy of a model's output.

    It puts a softmax behind the model unless the last operator is one; what CIRCLE_TRAINING says of logits
    changes nothing. Probabilities below 1e-20 count as 1e-20. A sigmoid at the end, which onert does not
    train, gives probabilities as well.
    """
    last = [operator for operator in model.operators if set(operator.outputs) & set(model.outputs)]
    if last and last[-1].code in ("SOFTMAX", "LOGISTIC"):
        return {"from_logits": 0, "epsilon": ONERT_EPSILON}
    return {"from_logits": 1}


def objective_of(training: CircleTraining, model: Model) -> Objective:
    """What the metadata of a file, or a caller in its words, asks for. Fields left at 0 are defaults."""
    attributes: dict[str, int | float | str] = {"reduction": training.reduction}
    sparse = training.loss == "sparse-categorical-crossentropy"
    if training.loss != "mean-squared-error":
        attributes |= {**cross_entropy_attributes(model), "sparse": int(sparse)}
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

    Raises GraphError for a model of several outputs or none that is computed, and for a trainable set that
    names what the model does not have.
    """
    model = network.model
    if len(model.outputs) != 1:
        raise GraphError(
            f"The model has {len(model.outputs)} outputs, and one loss needs one of them.",
            remedy="Export it with the output that is trained.",
            path=("outputs",),
        )
    prediction = network.output_name(model.outputs[0])
    if prediction not in network.types or not network.types[prediction].type.shape:
        raise GraphError(
            f"The model's output {prediction!r} is not a tensor that an operator computes.",
            remedy="Export the model with the output that is trained.",
            path=("outputs", 0),
        )
    shape, classes = network.types[prediction].type.shape, objective.of_classes
    label = DeclaredOperand(
        network.free("label"),
        Role.LABEL,
        shape[:-1] if classes else shape,
        DType.INT32 if classes else DType.FLOAT32,
    )
    loss = network.free("loss")
    last = Operation(loss, objective.loss, (prediction, label.id), (loss,), objective.attributes)
    used = {name for operation in network.operations for name in operation.inputs}
    return build_graph(
        name,
        [*(d for d in network.operands.values() if d.id in used), label],
        [*network.operations, last],
        loss=loss,
        optimizer=objective.optimizer,
        trainable=_trainable(network, objective.trainable),
        outputs=(prediction,),
        training=objective.rules,
    )


def _trainable(network: Network, asked: _Asked) -> Trainable:
    if not isinstance(asked, tuple):
        return asked
    found: dict[str, None] = {}
    for wanted in asked:
        if isinstance(wanted, str):
            matching = [name for name in network.weights if fnmatchcase(name, wanted)]
            if not matching:
                raise TrainableError(
                    f"No weight of the model is called {wanted!r:.80}.",
                    remedy=f"Its weights are {', '.join(network.weights) or 'none'}.",
                    path=("trainable",),
                )
        elif not 0 <= wanted < len(network.owned):
            raise GraphError(
                f"CIRCLE_TRAINING trains operator {wanted}; the model has {len(network.owned)}.",
                remedy="Correct its trainable_ops.",
                path=("training", "trainable_ops"),
            )
        else:
            matching = network.owned[wanted]
        found.update(dict.fromkeys(matching))
    return tuple(found)


def weights_of(data: bytes, weights: Mapping[str, Weight]) -> dict[str, Array]:
    """The parameters' values as a file has them, in the axes of the graph."""
    model = read_model(data)
    return {name: weight.from_file(model.tensors[weight.tensor].array()) for name, weight in weights.items()}
