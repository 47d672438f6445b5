"""A model file by the choices that every importer takes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from solver.errors import DimensionError, GraphError, OptionsError, TrainableError
from solver.graph import FileRange, Initializer, Role, TrainableGraph
from solver.importers.circle.graph import (
    DEFAULT,
    Objective,
    cross_entropy_attributes,
    objective_of,
    translated,
    unknown,
    with_objective,
    with_output,
    with_outputs,
    with_results,
)
from solver.importers.circle.network import Network, unique_names
from solver.importers.circle.read import TRAINING, Model, read_model
from solver.importers.circle.recurrent import LSTM
from solver.importers.circle.training import CircleTraining, load_training
from solver.importers.cuts import Step, cut_points, freeze_sentence, needed_steps, unknown_cut
from solver.importers.options import LOSSES, NO_LOSS, Imported, ImportOptions, check_inference
from solver.importers.text import some
from solver.importers.widened import widening_notes

__all__ = ["load_circle_model"]

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
