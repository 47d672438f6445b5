"""The graph of a module and its loss, the names of its weights, and the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from solver.errors import DocumentError, LossError
from solver.graph import (
    Array,
    DType,
    Initializer,
    OptimizerSpec,
    Role,
    Trainable,
    TrainableGraph,
    TrainingRules,
    build_graph,
)
from solver.importers.pytorch.capture import Captured, Loss, capture, decomposed
from solver.importers.pytorch.operators import HANDLERS
from solver.importers.pytorch.translate import Translation, array_of, refuse, translate
from solver.importers.pytorch.weights import Weight
from solver.importers.recognise import recognise
from solver.training.optimizers import optimizer_rules

__all__ = ["LOSSES", "Imported", "import_module"]

#: Losses by name, and PyTorch's operators for them.
LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "cross-entropy": "cross_entropy_loss.default",
        "mse": "mse_loss.default",
        "l1": "l1_loss.default",
        "huber": "huber_loss.default",
        "binary-cross-entropy": "binary_cross_entropy_with_logits.default",
    }
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A graph, how its operands come from the module, and the names of inputs and labels in their order."""

    graph: TrainableGraph
    weights: tuple[Weight, ...]
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    #: What else the module saves, by name: it has no part in the step.
    others: Mapping[str, Array] = field(default_factory=dict)

    def with_weights(self, state: Mapping[str, Any]) -> Imported:
        """The same graph with first values from a ``state_dict`` of the module.

        Raises DocumentError for a tensor that is missing, or has another shape or element type.
        """
        operands = dict(self.graph.operands)
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
            values = weight.inward(array_of(state[name]))
            if values.shape != operand.shape or values.dtype != operand.dtype.numpy:
                raise DocumentError(
                    f"{name!r} is {values.dtype}{list(values.shape)}; the graph has {operand.type}.",
                    remedy="Capture the module again with these weights.",
                    path=(name,),
                )
            operands[weight.operand] = replace(operand, initializer=_initializer(values))
        return replace(self, graph=self.graph.with_graph(operands=operands))

    def read(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays by PyTorch's names from arrays by operand, under every name of a tied weight."""
        found = {
            name: weight.outward(values[weight.operand])
            for weight in self.weights
            if weight.row is None and weight.operand in values
            for name in weight.names
        }
        return {**self.others, **found}


def import_module(
    module: Any,
    inputs: Sequence[Any],
    *,
    keywords: Sequence[str] = (),
    loss: str | Loss | None,
    targets: Sequence[Any] = (),
    optimizer: OptimizerSpec,
    trainable: Trainable = "all",
    outputs: bool = False,
    rules: TrainingRules | None = None,
    values: bool = True,
    name: str | None = None,
) -> Imported:
    """Capture a module and its loss, and translate both.

    `loss` is one of `LOSSES` on the module's only output, a function of the output and the targets, or None
    where the module itself returns it. With `keywords` the inputs go to the module by name. The batch is that
    of the example inputs. With `outputs` what the module returns can be read after a step. Raises
    ArenaplanError: DocumentError where PyTorch cannot export, UnknownOperatorError with all that is missing,
    LossError, and what building a graph raises.
    """
    if isinstance(loss, str) and loss not in LOSSES:
        raise LossError(
            f"There is no loss {loss!r}.",
            remedy=f"Choose one of {', '.join(LOSSES)}, or give a function of output and target.",
            path=("loss",),
        )
    wrapped = callable(loss) and not isinstance(loss, str)
    function, labels = (loss, targets) if wrapped else (None, ())
    captured = capture(module, inputs, labels, function, keywords=keywords)  # type: ignore[arg-type]
    made = _translated(captured, values=values)
    prediction = made.outputs
    if isinstance(loss, str):
        made = _with_named_loss(made, loss)
    graph = _built(
        made,
        name or type(module).__name__,
        optimizer,
        trainable,
        tuple(value.name for value in prediction) if outputs else (),
        rules,
    )
    saved = {name: array_of(tensor) for name, tensor in module.state_dict().items()}
    held = {name for weight in made.weights if weight.operand in graph.operands for name in weight.names}
    others = {name: array.copy() for name, array in saved.items() if name not in held}
    imported = Imported(graph, made.weights, made.inputs, made.labels, others)
    return imported.with_weights(module.state_dict()) if values else imported


def _translated(captured: Captured, *, values: bool) -> Translation:
    made = translate(captured, values=values)
    if made.missing:
        try:
            apart = decomposed(captured, HANDLERS)
        except Exception:  # PyTorch may fail in any way on what it has no rule for
            refuse(made.missing)
            raise
        made = translate(apart, values=values)
        refuse(made.missing)
    return made


def _with_named_loss(made: Translation, loss: str) -> Translation:
    """The loss of the only output, with a label of the type that it asks for."""
    if len(made.outputs) != 1:
        raise LossError(
            f"The module returns {len(made.outputs)} tensors; the loss {loss!r} is of one.",
            remedy="Give the loss as a function of the output and the target.",
            path=("loss",),
        )
    (prediction,) = made.outputs
    type_ = prediction.type
    if loss == "cross-entropy":
        axis = 1 if prediction.rank > 1 else 0
        shape = (*type_.shape[:axis], *type_.shape[axis + 1 :])
        type_ = replace(type_, shape=shape, dtype=DType.INT64)
    label = made.recorder.declare("target", Role.LABEL, type_)
    made.recorder.scope = "loss"
    made.context.results = ()
    value = HANDLERS[LOSSES[loss]](made.context, prediction, label)
    return replace(made, outputs=(value,), labels=(*made.labels, label.name))


def _built(
    made: Translation,
    name: str,
    optimizer: OptimizerSpec,
    trainable: Trainable,
    outputs: tuple[str, ...],
    rules: TrainingRules | None,
) -> TrainableGraph:
    if not made.outputs or made.outputs[0].shape != () or not made.outputs[0].dtype.is_floating:
        found = made.outputs[0].type if made.outputs else "nothing"
        raise LossError(
            f"The module returns {found}, not a loss, which is a floating scalar.",
            remedy=f"Choose a loss: {', '.join(LOSSES)}, or a function of output and target.",
            path=("loss",),
        )
    scalar = made.outputs[0].name
    network = made.recorder
    recognise(network, scalar, *outputs)
    network.keep([scalar, *outputs])
    if trainable == "all":
        network.freeze(scalar)
    optimizer_rules(optimizer)
    return build_graph(
        name,
        network.operands.values(),
        network.operations,
        loss=scalar,
        optimizer=optimizer,
        trainable=trainable,
        outputs=outputs,
        training=rules,
    )


def _initializer(values: Array) -> Initializer:
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return Initializer("values", data=little.tobytes())
