"""The graph of a module and its loss, the names of its weights, and the way back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from solver.errors import DocumentError, LossError
from solver.graph import (
    Array,
    DType,
    Initializer,
    OptimizerSpec,
    Role,
    TensorType,
    Trainable,
    TrainableGraph,
    TrainingRules,
    build_graph,
)
from solver.graph.packing import packed_values
from solver.importers.narrowed import Origin, widening_notes, with_stored_origins
from solver.importers.options import NO_LOSS
from solver.importers.pytorch.capture import Captured, Loss, capture, check_type, decomposed, torch
from solver.importers.pytorch.context import Value, Weight
from solver.importers.pytorch.operators import HANDLERS
from solver.importers.pytorch.translate import Translation, array_of, checked_type, refuse, translate
from solver.importers.recorder import recognise
from solver.training.optimizers import optimizer_rules

__all__ = ["LOSSES", "Imported", "import_module"]

#: Losses by name, and PyTorch's operators for them.
LOSSES: Mapping[str, str] = {
    "cross-entropy": "cross_entropy_loss.default",
    "mse": "mse_loss.default",
    "l1": "l1_loss.default",
    "huber": "huber_loss.default",
    "binary-cross-entropy": "binary_cross_entropy_with_logits.default",
}


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph, how its operands come from the module, and the names of inputs and labels in their order."""

    graph: TrainableGraph
    weights: tuple[Weight, ...]
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    #: What else the module saves, by name: it has no part in the step.
    others: Mapping[str, Any] = field(default_factory=dict)
    #: What one forward pass adds to those of them that count batches, by name.
    counts: Mapping[str, int] = field(default_factory=dict)
    #: The names of those of which constants of the graph were computed.
    computed: frozenset[str] = frozenset()
    #: What the caller should know about the import, a sentence each.
    notes: tuple[str, ...] = ()

    def with_weights(self, state: Mapping[str, Any]) -> Imported:
        """The same graph with first values from a ``state_dict`` of the module.

        Raises DocumentError for a tensor that is missing, has another shape or element type, differs from
        another one that it was equal to when the module was captured, as they are one constant of the graph,
        or differs from what a constant was computed of, as quantised weights are.
        """
        for source in sorted(self.computed.intersection(self.others, state)):
            check_type(source, state[source], torch().Tensor)
            ours, theirs = self.others[source], state[source].cpu()
            if ours.dtype != theirs.dtype or not torch().equal(ours, theirs):
                raise DocumentError(
                    f"{source!r} differs from the tensor of which a constant of the graph was computed.",
                    remedy="Capture the module again with these weights.",
                    path=(source,),
                )
        operands = dict(self.graph.operands)
        loaded: dict[str, str] = {}
        for weight in self.weights:
            operand = operands.get(weight.operand)
            name = next((name for name in weight.names if name in state), None)
            if operand is None or (name is None and operand.role is Role.CONSTANT):
                continue  # a buffer that its module does not save
            if name is None:
                raise DocumentError(
                    f"The weights lack {weight.names[0]!r}.",
                    remedy="Take them from the state_dict of the module that was captured.",
                    path=(weight.names[0],),
                )
            check_type(name, state[name], torch().Tensor)
            tensor = state[name]
            if weight.half:
                tensor = tensor.to(getattr(torch(), weight.half))
            values = weight.inward(array_of(tensor, name))
            if values.shape != operand.shape or values.dtype != operand.dtype.numpy:
                raise DocumentError(
                    f"{name!r} is {values.dtype}{list(values.shape)}; the graph has {operand.type}.",
                    remedy="Capture the module again with these weights.",
                    path=(name,),
                )
            initializer = _initializer(values)
            if operand.type.storage is not None:
                packed = packed_values(operand.id, initializer.data or b"", operand.type)
                initializer = Initializer("values", data=packed.tobytes())
            other = loaded.setdefault(weight.operand, name)
            if other != name and operands[weight.operand].initializer != initializer:
                raise DocumentError(
                    f"{name!r} and {other!r} are one constant of the graph, and differ in these weights.",
                    remedy="Capture the module again with these weights.",
                    path=(name,),
                )
            operands[weight.operand] = replace(operand, initializer=initializer)
        counts = {name: state[name].detach().cpu().clone() for name in self.counts if name in state}
        return replace(self, graph=self.graph.with_graph(operands=operands), others={**self.others, **counts})

    def read(self, values: Mapping[str, Array], passes: int = 0) -> dict[str, Any]:
        """New tensors by PyTorch's names from arrays by operand, under every name of a tied weight.

        What the step does not read is a copy of the module's own tensor; counts of batches have grown by
        `passes` forward passes.
        """
        tensors = {name: tensor.clone() for name, tensor in self.others.items()}
        for name, count in self.counts.items():
            tensors[name] += passes * count
        for weight in self.weights:
            if weight.row is None and weight.operand in values:
                for name in weight.names:
                    tensor = torch().tensor(weight.outward(values[weight.operand]))
                    tensors[name] = tensor.to(getattr(torch(), weight.half)) if weight.half else tensor
        return tensors


def import_module(
    module: Any,
    inputs: Sequence[Any],
    *,
    keywords: Sequence[str] = (),
    loss: str | Loss | None,
    targets: Sequence[Any] = (),
    optimizer: OptimizerSpec | None,
    trainable: Trainable = "all",
    outputs: bool = False,
    rules: TrainingRules | None = None,
    values: bool = True,
    name: str | None = None,
) -> Imported:
    """Capture a module and its loss, and translate both.

    `loss` is one of `LOSSES` on the module's only output, a function of the output and the targets, or None
    where the module itself returns it. A module that returns no number, or whose loss is `NO_LOSS`, is an
    inference of what it returns; then nothing may say how it is trained. Without an `optimizer` it is SGD.
    For one of `LOSSES`, an example of the targets says which axis of the output the classes are on. With
    `keywords` the inputs go to the module by name. The batch is that of the example inputs. With `outputs`
    what the module returns can be read after a step. Raises ArenaplanError: DocumentError where PyTorch
    cannot export, UnknownOperatorError with all that is missing, LossError, also for targets that do not fit
    the output, and what building a graph raises.
    """
    check_type("module", module, torch().nn.Module)
    if isinstance(loss, str) and loss not in (*LOSSES, NO_LOSS):
        raise LossError(
            f"There is no loss {loss!r}.",
            remedy=f"Choose one of {', '.join(LOSSES)}, or give a function of output and target; {NO_LOSS!r}"
            " for an inference.",
            path=("loss",),
        )
    if loss in (None, NO_LOSS) and targets:
        raise LossError(
            "Targets are there, but no loss that compares the module's output with them.",
            remedy="Give a loss too; if the module returns its loss, give the targets with its inputs.",
            path=("loss",),
        )
    if values:
        _check_values(module)
    function, labels = (None, ()) if loss is None or isinstance(loss, str) else (loss, targets)
    captured = capture(module, inputs, labels, function, keywords=keywords)
    translation = _translated(captured, values=values)
    prediction = translation.outputs
    notes: tuple[str, ...] = ()
    if isinstance(loss, str) and loss != NO_LOSS:
        translation, notes = _with_named_loss(translation, loss, targets)
    saved = module.state_dict()
    infers = loss == NO_LOSS or (loss is None and not _is_loss(translation.outputs))
    if infers:
        _check_untrained(loss, translation.outputs, optimizer, trainable, rules)
    graph, merged = _built(
        translation,
        name or type(module).__name__,
        None if infers else optimizer or OptimizerSpec("SGD"),
        trainable,
        tuple(dict.fromkeys(value.name for value in prediction)) if outputs or infers else (),
        rules,
        apart=_uniform_buffers(translation, saved),
    )
    _check_trained(graph, translation.computed)
    graph = with_stored_origins(graph, translation.computed)
    weights = tuple(
        replace(weight, operand=merged.get(weight.operand, weight.operand))
        for weight in translation.weights
        if not saved.keys().isdisjoint(weight.names)  # others are in no state_dict
    )
    held = {name for weight in weights if weight.operand in graph.operands for name in weight.names}
    others = {
        name: tensor.detach().cpu().clone()
        for name, tensor in saved.items()
        if name not in held and not tensor.is_meta
    }
    notes += widening_notes(
        (graph.operands[name].type, origin)
        for name, origin in translation.computed.items()
        if name in graph.operands
    )
    if translation.rounded is not None:
        half, place = translation.rounded
        note = (
            f"The module rounds results to {half}, first in {place}; here they are computed in float32, and"
        )
        notes += (f"{note} losses differ from PyTorch's by the rounding of {half}.",)
    origins = (origin for name, origin in translation.computed.items() if name in graph.operands)
    computed = frozenset(source.name for origin in origins for source in origin.stored())
    imported = Imported(
        graph,
        weights,
        translation.inputs,
        translation.labels,
        others,
        {name: count for name, count in translation.counts.items() if name in others},
        computed,
        notes,
    )
    return imported.with_weights(saved) if values else imported


def _check_trained(graph: TrainableGraph, origins: Mapping[str, Origin]) -> None:
    """Raises LossError for a parameter of 16 bits that is trained."""
    name = next((name for name in sorted(graph.trained) if name in origins), None)
    if name is not None:
        raise LossError(
            f"{name!r} is of {origins[name].element} and is trained; only frozen weights have 16 bits.",
            remedy=f"Freeze it by module.get_parameter({name!r}).requires_grad_(False), and leave it out of"
            " `trainable`; or train in float32, by module.float().",
            path=("module",),
        )


def _check_values(module: Any) -> None:
    """Raises DocumentError for a module whose parameters have no values."""
    for name, parameter in module.named_parameters():
        if parameter.is_meta:
            raise DocumentError(
                f"The parameter {name!r} is on PyTorch's device meta, which holds no values.",
                remedy="Capture the module with weights=False, or make it on the CPU.",
                path=("module",),
            )


def _uniform_buffers(translation: Translation, saved: Mapping[str, Any]) -> frozenset[str]:
    """Operands of saved buffers that are all one number, such as running statistics before any training.

    Buffers of two layers may be equal now and differ in the next `state_dict` that is loaded. They are one
    operand only where their contents say that they are masks or tables.
    """
    uniform = []
    operands = translation.context.operands
    for weight in translation.weights:
        if operands[weight.operand].role is Role.PARAMETER:
            continue
        tensor = next((saved[name] for name in weight.names if name in saved), None)
        if tensor is None or tensor.is_meta or not tensor.numel():
            continue
        if bool((tensor == tensor.reshape(-1)[0]).all()):
            uniform.append(weight.operand)
    return frozenset(uniform)


def _translated(captured: Captured, *, values: bool) -> Translation:
    translation = translate(captured, values=values)
    if translation.missing:
        try:
            apart = decomposed(captured, HANDLERS)
        except Exception:  # PyTorch may fail in any way on what it has no rule for
            refuse(translation.missing)
            raise
        translation = translate(apart, values=values)
        refuse(translation.missing)
    return translation


def _with_named_loss(
    translation: Translation, loss: str, targets: Sequence[Any]
) -> tuple[Translation, tuple[str, ...]]:
    """The loss of the only output, with a label like the example target, and notes for the caller.

    Without an example the label has the type that PyTorch asks for.
    """
    if len(translation.outputs) != 1:
        raise LossError(
            f"The module returns {len(translation.outputs)} tensors; the loss {loss!r} is of one.",
            remedy="Give the loss as a function of the output and the target.",
            path=("loss",),
        )
    (prediction,) = translation.outputs
    example = _example_target(loss, prediction.type, targets)
    classes: dict[str, int] = {}
    notes: tuple[str, ...] = ()
    if loss == "cross-entropy":
        axis, notes = _class_axis(prediction.type, example)
        classes["class_axis"] = axis
        shape = (*prediction.shape[:axis], *prediction.shape[axis + 1 :])
        example = example or TensorType(shape, DType.INT64)
    label = translation.context.declare("target", Role.LABEL, example or prediction.type)
    translation.context.scope = "loss"
    translation.context.results = ()
    target = label if classes else translation.context.cast(label, prediction.dtype)
    value = HANDLERS[LOSSES[loss]](translation.context, prediction, target, **classes)
    return replace(translation, outputs=(value,), labels=(*translation.labels, label.name)), notes


def _example_target(loss: str, output: TensorType, targets: Sequence[Any]) -> TensorType | None:
    """The type of the only example target, None without one. Raises LossError where no label can be it."""
    if not targets:
        return None
    if len(targets) > 1:
        raise LossError(
            f"There are {len(targets)} targets; the loss {loss!r} takes one.",
            remedy="Give the loss as a function of the output and the targets.",
            path=("targets",),
        )
    example = checked_type(targets[0], "target", halves=False)
    if example.dtype.is_floating and example.dtype is not output.dtype:
        why, remedy = "of another floating type", f"Convert the targets to {output.dtype.value}."
    elif loss != "cross-entropy" and example.shape != output.shape:
        why, remedy = "of another shape", "Reshape the targets, or give the loss as a function of both."
    else:
        return example
    raise LossError(
        f"The module returns {output}, and the targets of the loss {loss!r} are {example}, {why}.",
        remedy=remedy,
        path=("targets",),
    )


def _class_axis(output: TensorType, example: TensorType | None) -> tuple[int, tuple[str, ...]]:
    """The axis of the classes: PyTorch's, axis 1, or the last one where only that fits the example.

    A note says where the choice is not obvious. Raises LossError where neither fits.
    """
    usual, last = min(1, len(output.shape) - 1), len(output.shape) - 1
    if last < 0:
        raise LossError(
            "The module returns a scalar, which has no axis of classes.",
            remedy="Return logits whose axis 1, or whose last axis, counts the classes.",
            path=("loss",),
        )

    def without(axis: int) -> tuple[int, ...]:
        return (*output.shape[:axis], *output.shape[axis + 1 :])

    if example is None:
        fits = {usual, last} if len(output.shape) == 3 else {usual}  # sequences have either, images axis 1
    elif example.dtype.is_floating:
        fits = {usual, last} if example.shape == output.shape else set()
    else:
        fits = {axis for axis in (usual, last) if example.shape == without(axis)}
    if not fits:
        raise LossError(
            f"The module returns {output}, and targets of {example} are neither its classes by number"
            f" ({list(without(usual))} or {list(without(last))}) nor their probabilities.",
            remedy="Reshape the targets, or give the loss as a function of the output and the targets.",
            path=("targets",),
        )
    axis = usual if usual in fits else last
    if len(fits) == 1:
        return axis, ()
    note = (
        f"The classes are taken from axis {usual} of the output {list(output.shape)}, as PyTorch's"
        f" cross_entropy does, not from axis {last}: give targets whose shape tells the two apart, or the"
        " loss as a function, to choose."
    )
    return axis, (note,)


def _built(
    translation: Translation,
    name: str,
    optimizer: OptimizerSpec | None,
    trainable: Trainable,
    outputs: tuple[str, ...],
    rules: TrainingRules | None,
    apart: Collection[str],
) -> tuple[TrainableGraph, dict[str, str]]:
    """The graph, and which constants became others that are equal; those `apart` never do.

    Without an optimizer it is an inference of the outputs.
    """
    if optimizer is not None and not _is_loss(translation.outputs):
        raise _no_loss(f"The module returns {_returned(translation.outputs)}, not a loss")
    scalar = None if optimizer is None else translation.outputs[0].name
    results = outputs if scalar is None else (scalar, *outputs)
    network = translation.context
    recognise(network, *results)
    network.keep(results)
    merged = network.settle_constants(apart)
    if trainable == "all" and scalar is not None:
        network.freeze(scalar)
    if optimizer is not None:
        optimizer_rules(optimizer)
    graph = build_graph(
        name,
        network.operands.values(),
        network.operations,
        loss=scalar,
        optimizer=optimizer,
        trainable=trainable,
        outputs=outputs,
        training=rules,
    )
    return graph, merged


def _is_loss(outputs: Sequence[Value]) -> bool:
    return bool(outputs) and outputs[0].shape == () and outputs[0].dtype.is_floating


def _returned(outputs: Sequence[Value]) -> str:
    return str(outputs[0].type) if outputs else "nothing"


def _check_untrained(
    loss: str | Loss | None,
    outputs: Sequence[Value],
    optimizer: OptimizerSpec | None,
    trainable: Trainable,
    rules: TrainingRules | None,
) -> None:
    """Raises LossError for an inference that says how it is trained, or that returns nothing."""
    asked = {
        "optimizer": optimizer is not None,
        "trainable": trainable != "all",
        "rules": rules is not None,
    }
    culprit = next((name for name, is_asked in asked.items() if is_asked), None)
    if culprit is not None or not outputs:
        why = (
            "The loss is none" if loss == NO_LOSS else f"The module returns {_returned(outputs)}, not a loss"
        )
        raise _no_loss(why if culprit is None else f"{why}, and {culprit!r} is for training")


def _no_loss(why: str) -> LossError:
    return LossError(
        f"{why}; a loss is a floating scalar.",
        remedy=f"Choose a loss: {', '.join(LOSSES)}, or a function of output and target. For an inference,"
        " leave out what says how to train.",
        path=("loss",),
    )


def _initializer(values: Array) -> Initializer:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return Initializer("values", data=little.tobytes())
