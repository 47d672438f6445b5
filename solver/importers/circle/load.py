"""A model file as a graph: its operators one after the other, then loss and optimizer by what is chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

import numpy as np

from solver.errors import (
    BatchError,
    DimensionError,
    DocumentError,
    GraphError,
    LossError,
    OptionsError,
    TrainableError,
    UnknownOperatorError,
)
from solver.graph import (
    DType,
    FileRange,
    Initializer,
    Operation,
    OptimizerSpec,
    Role,
    TrainableGraph,
    TrainingRules,
    build_graph,
)
from solver.graph.declared import Trainable
from solver.graph.types import Array, TensorType
from solver.importers.circle.network import FOLDED, Network, Unsupported, Weight, unique_names
from solver.importers.circle.operators import LSTM, OPERATORS
from solver.importers.circle.read import TRAINING, Model, damaged, read_model
from solver.importers.circle.roles import needed_operators, weight_tensors
from solver.importers.circle.training import CircleTraining, load_training
from solver.importers.narrowed import widening_notes
from solver.importers.options import (
    LOSSES,
    NO_LOSS,
    TRAIN_FLOAT_FIRST,
    Imported,
    ImportOptions,
    check_inference,
    matching_parameters,
)
from solver.importers.text import Step, cut_points, freeze_sentence, needed_steps, some, unknown_cut

__all__ = [
    "DEFAULT",
    "CircleGraph",
    "Objective",
    "load_circle",
    "load_circle_model",
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


#: Choices that these files leave nothing to: classes are at the last axis, statistics are folded.
_FIXED = ("class_axis", "batch_norm")
#: Tensors that are tried before a message names none; a trial ends at the first operator that is refused.
_MAX_TRIALS: Final = 200


def load_circle_model(
    data: bytes | memoryview, *, options: ImportOptions, path: Path | None = None, name: str = "model"
) -> Imported:
    """The trainable graph of a Circle or TensorFlow Lite file.

    What the options choose goes before what the file says (CIRCLE_TRAINING), and that before onert's own
    defaults. `options.output` names a tensor that an operator computes; without it the loss is of the model's
    first output. With a loss of ``none`` it is an inference of all outputs, or of that one. Weights of a file
    at `path` are described by their place in it, where the graph has their axes in the file's order; with
    `options.weights` false the first values are drawn. Raises what `solver.importers.circle.load_circle`
    raises, and OptionsError for choices that these files do not leave.
    """
    for field in _FIXED:
        if getattr(options, field) is not None:
            raise OptionsError(
                "A Circle or TensorFlow Lite model has its classes at the last axis, and its batch"
                " normalisation in the weights.",
                remedy=f"Leave out --{field.replace('_', '-')}.",
                path=(field,),
            )
    if options.inputs:
        raise OptionsError(
            "Inputs of a Circle or TensorFlow Lite model take no values.",
            remedy="Leave out --input.",
            path=("input",),
        )
    data = bytes(data)
    model = read_model(data)
    own = load_training(model.metadata[TRAINING]) if TRAINING in model.metadata else None
    batch = options.batch or (own.batch if own and own.batch > 0 else None)
    whole, model = model, _part(model, options)
    if options.freeze_before:
        model = _frozen_before(model, options.freeze_before)
    network = _translated(model, batch, options)
    if options.loss == NO_LOSS:
        graph, notes = with_results(network, _results(network, options), name), list[str]()
    else:
        objective, chosen = _with_options(objective_of(own or DEFAULT, network), options, network)
        graph = _with_kept_outputs(with_objective(network, objective, name), network, whole, options)
        notes = [] if chosen else [_note_on_training(objective, own)]
    if not options.weights:
        graph = _with_drawn_weights(graph, network)
    elif path is not None:
        graph = _with_stored_weights(graph, network, data, path)
    notes += _notes(network, graph, whole, options)
    if options.freeze_before:
        left_out = f"{len(model.skipped):,} of {len(model.operators):,} operators are not imported."
        notes.insert(0, f"Frozen before {', '.join(map(repr, options.freeze_before))}: {left_out}")
    constants = {
        operand.id: operand.type.elements
        for operand in graph.operands.values()
        if operand.role is Role.CONSTANT and operand.dtype.is_floating and operand.id not in network.added
    }
    return Imported(graph, tuple(notes), constants, tuple(network.tables))


def _part(model: Model, options: ImportOptions) -> Model:
    """The model up to the output that the loss is of, or to all outputs of an inference.

    Raises LossError for an output that is not there, and for choices of training for an inference.
    """
    if options.loss != NO_LOSS:
        return with_output(model, options.output)
    check_inference(options, "The loss is none")
    if options.output is not None:
        return with_output(model, options.output)
    computed = {number for operator in model.operators for number in operator.outputs}
    return with_outputs(model, [number for number in model.outputs if number in computed])


def _note_on_training(objective: Objective, own: CircleTraining | None) -> str:
    source = "the file says how" if own else "the file does not say how"
    loss = f"{objective.loss}, {objective.optimizer.type}"
    return (
        f"Trained with {loss}: {source}, and --loss and --optimizer choose another way; --loss none infers."
    )


def _results(network: Network, options: ImportOptions) -> tuple[str, ...]:
    """The outputs of an inference. Raises OptionsError for one to keep that the model does not have."""
    network.copy_constants(network.model.outputs)
    names = tuple(dict.fromkeys(map(network.output_name, network.model.outputs)))
    kept = names if options.keep_outputs in ("all", ()) else options.keep_outputs
    for name in kept:
        if name not in names:
            raise OptionsError(
                f"{name!r:.80} is not an output of the model.",
                remedy=f"Its outputs are {', '.join(names)}.",
                path=("keep_outputs",),
            )
    return tuple(kept)


def _with_kept_outputs(
    graph: TrainableGraph, network: Network, whole: Model, options: ImportOptions
) -> TrainableGraph:
    """The graph with more outputs: those of the file that it computes on the way to its loss."""
    names = [network.output_name(number) for number in whole.outputs]
    computed = [name for name in names if name in graph.operands]
    for name in computed if options.keep_outputs == "all" else options.keep_outputs:
        if name not in computed:
            raise OptionsError(
                f"{name!r:.80} is not an output of the model that is computed for the loss.",
                remedy=f"Those are {', '.join(computed) or 'none'}. --output-name chooses the loss's.",
                path=("keep_outputs",),
            )
        if name not in graph.outputs:
            graph = graph.with_graph(outputs=(*graph.outputs, name))
    return graph


def _translated(model: Model, batch: int | None, options: ImportOptions) -> Network:
    """The network of the model. A refusal names a tensor behind which there is something to train."""
    named = options.trainable if isinstance(options.trainable, tuple) else ()
    infers = options.loss == NO_LOSS

    def network(part: Model) -> Network:
        return translated(part, batch, dims=options.dims, trained=named, infers=infers)

    def works(part: Model) -> None:
        """Raise where `part` cannot be imported. Sizes that the caller has not given yet are no failure."""
        with suppress(DimensionError):
            if not network(part).weights and not infers:
                raise TrainableError(
                    "The part has no weights.", remedy="Freeze the model before another tensor."
                )

    try:
        return network(model)
    except GraphError as error:
        refused = [k for k in error.path[1:2] if error.path[0] == "operators" and isinstance(k, int)]
        if refused or unknown(model):
            error.remedy = f"{_freeze_remedy(model, refused or unknown(model), works)}{error.remedy}"
        raise


def _notes(network: Network, graph: TrainableGraph, whole: Model, options: ImportOptions) -> Iterator[str]:
    """Notes on parts of the model that are left out, or planned differently from the file."""
    output, infers = network.output_name(network.output), graph.loss is None
    others = [network.output_name(number) for number in whole.outputs if number != network.output]
    if infers:
        others = [name for name in map(network.output_name, whole.outputs) if name not in graph.outputs]
        if others:
            yield f"Left out are the outputs {some(others, 4, quoted=True)}."
    elif others:
        yield (
            f"The loss is of {output!r:.80}; left out are the outputs {some(others, 4, quoted=True)}."
            " --output-name chooses another."
        )
    elif network.output not in whole.outputs:
        yield f"The loss is of {output!r:.80}; what stands behind it is left out."
    all_inputs = [network.output_name(number) for number in network.model.inputs]
    unused = [name for name in all_inputs if name not in graph.operands]
    if unused:
        which = "No output depends" if infers else "The loss does not depend"
        yield f"{which} on the input {some(unused, 4, quoted=True)}: left out."
    if whole.subgraphs > 1:
        name = f"{whole.name!r:.80}"
        yield f"The model has {whole.subgraphs} subgraphs; only the first one, {name}, is planned."
    if network.frozen and options.trainable == "all":
        names = some(network.frozen, 4, quoted=True)
        yield f"The loss has no derivative with respect to {names}: not trained."
    quantized = [name for name in network.quantized if name in graph.operands]
    if quantized and not infers:
        count = "1 quantised weight is" if len(quantized) == 1 else f"{len(quantized)} quantised weights are"
        yield f"{count} not trained: {some(quantized, 4, quoted=True)}."
    if any(whole.operators[k].code == LSTM for k in network.needed):
        yield f"The state of each LSTM is zero when {'an inference' if infers else 'a training step'} begins."
    yield from widening_notes(
        (graph.operands[name].type, origin)
        for name, origin in network.origins.items()
        if name in graph.operands
    )


def _with_options(objective: Objective, options: ImportOptions, network: Network) -> tuple[Objective, bool]:
    """The objective with what the options choose, and whether they choose anything."""
    untouched = ImportOptions()
    if options.loss is not None:
        operator, attributes, label = LOSSES[options.loss]
        taken: dict[str, int | float | str] = {**attributes}
        if "from_logits" in attributes:
            taken |= cross_entropy_attributes(network)
        if operator != "CategoricalCrossEntropy":
            taken.pop("epsilon", None)  # onert has no other loss that takes a logarithm
        objective = replace(objective, loss=operator, attributes=taken, of_classes=label == "classes")
    if options.optimizer != untouched.optimizer:
        objective = replace(objective, optimizer=options.optimizer)
    if options.trainable != untouched.trainable:
        objective = replace(objective, trainable=options.trainable)
    if options.rules != untouched.rules:
        objective = replace(objective, rules=options.rules)
    return objective, options.loss is not None


def _with_drawn_weights(graph: TrainableGraph, network: Network) -> TrainableGraph:
    """Weights of two and more axes drawn by He's rule, one seed each; biases zero."""
    operands = dict(graph.operands)
    for seed, weight in enumerate([name for name in network.weights if name in operands], 1):
        operand = operands[weight]
        kind = "he_normal" if len(operand.shape) > 1 else "zeros"
        operands[weight] = replace(operand, initializer=Initializer(kind, seed=seed))
    return graph.with_graph(operands=operands)


def _with_stored_weights(graph: TrainableGraph, network: Network, data: bytes, path: Path) -> TrainableGraph:
    operands = dict(graph.operands)
    whole = np.frombuffer(data, np.uint8)
    begins = whole.__array_interface__["data"][0]
    for name, weight in network.weights.items():
        if name not in operands:
            continue
        stored = network.model.tensors[weight.tensor]
        operand = operands[name]
        if (
            weight.axes
            or stored.data is None
            or stored.sparsity
            or np.dtype(stored.dtype) != operand.dtype.numpy
        ):
            continue  # other axes or another type than in the file
        offset = np.frombuffer(stored.data, np.uint8).__array_interface__["data"][0] - begins
        place = FileRange(str(path), offset, hashlib.sha256(stored.data).hexdigest())
        operands[name] = replace(operand, initializer=Initializer("values", file=place))
    return graph.with_graph(operands=operands)


# ------------------------------------------------------------------------------------------ freezing


def _frozen_before(model: Model, names: Sequence[str]) -> Model:
    """The model with the tensors `names` as inputs. Operators that lead to them alone are skipped.

    Raises GraphError for names that no operator defines or that no output depends on. Linear.
    """
    steps, known = _steps(model), unique_names(model)
    number_by_name = {known[number]: number for _, writes in steps for number in writes}
    for name in names:
        if name not in number_by_name:
            raise unknown_cut(name, number_by_name, "it is an input or a constant" if name in known else "")
    cuts = [number_by_name[name] for name in names]
    kept = needed_steps(steps, model.outputs, cuts)
    read = {number for k in kept for number in steps[k][0]} | set(model.outputs)
    for name, number in zip(names, cuts, strict=True):
        if number not in read:
            raise unknown_cut(name, number_by_name, "the loss does not depend on it")
    inputs = (*(number for number in model.inputs if number in read), *cuts)
    return replace(model, inputs=inputs, skipped=frozenset(range(len(steps))) - frozenset(kept))


def _freeze_remedy(model: Model, refused: Collection[int], works: Callable[[Model], object]) -> str:
    """The remedy that names the first tensor behind all refused operators; empty where there is none.

    `works` imports a model and raises GraphError, with the number of an operator in its path where one is
    refused.
    """
    steps, names, culprits = _steps(model), unique_names(model), set(refused)
    candidates = cut_points(steps, model.outputs, culprits)
    for _ in range(_MAX_TRIALS):
        number = next(candidates, None)
        if number is None:
            return ""
        try:
            works(_frozen_before(model, [names[number]]))
        except GraphError as error:
            culprit = {k for k in error.path[1:2] if error.path[0] == "operators" and isinstance(k, int)}
            if culprit - culprits:
                culprits |= culprit
                candidates = cut_points(steps, model.outputs, culprits)
        else:
            return freeze_sentence(names[number])
    return ""


def _steps(model: Model) -> list[Step[int]]:
    return [
        ({number for number in operator.inputs if number >= 0}, operator.outputs)
        for operator in model.operators
    ]
