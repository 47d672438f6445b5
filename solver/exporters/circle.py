"""Circle and TensorFlow Lite files again: with trained weights, or with the metadata that says how to train.

What is not written stays as it is, to the byte: weights are put where the file has them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from solver.errors import GraphError, OptionsError, PlanError
from solver.graph import OptimizerSpec
from solver.graph.types import Array
from solver.importers.circle import CircleTraining, dump_training
from solver.importers.circle.load import DEFAULT, ONERT_EPSILON, translated, with_output
from solver.importers.circle.network import Weight
from solver.importers.circle.read import TRAINING, read_model
from solver.importers.circle.training import with_metadata
from solver.plan import Plan
from solver.program import UPDATE, EntryKind, Kind

__all__ = ["training_of_plan", "with_training", "with_weights"]

#: Losses that the format has.
_LOSSES: Final = ("CategoricalCrossEntropy", "MeanSquaredError")
#: Hyper-parameters that the format has; of an optimizer's others, those that change nothing.
_WRITTEN: Final = {"SGD": ("learning_rate",), "Adam": ("learning_rate", "beta1", "beta2", "epsilon")}
_NEUTRAL: Final[Mapping[str, object]] = {
    "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "clip_global_norm": None, "loss_scale": 1.0,
    "accumulate": 1, "skip_non_finite": False, "loss_scale_growth": None,
}  # fmt: skip


def with_weights(data: bytes, weights: Mapping[str, Weight], values: Mapping[str, Array]) -> bytes:
    """The file with other values of some parameters; `weights` says where they lie, as `load_circle` does.

    A file of the same length: nothing else changes. Weights of half precision are rounded. Raises GraphError
    for a value that is not a parameter of the file, has another shape or is stored sparse, DocumentError for
    a file that cannot be read.
    """
    written = bytearray(data)
    model = read_model(written)
    for name, value in values.items():
        if name not in weights:
            raise GraphError(
                f"{name!r} is not a parameter that the model file has.",
                remedy=f"Its parameters are {', '.join(weights) or 'none'}.",
                path=(name,),
            )
        weight = weights[name]
        if model.tensors[weight.tensor].sparsity is not None:
            raise GraphError(
                f"{name!r:.80} is stored sparse, and what was trained is not.",
                remedy="Leave it out of the weights, or export the model without pruning.",
                path=(name,),
            )
        place = model.tensors[weight.tensor].array()
        laid = weight.to_file(np.asarray(value))
        if laid.shape != place.shape:
            raise GraphError(
                f"The value of {name!r} has shape {list(np.shape(value))}, its place in the file"
                f" {list(place.shape)}.",
                remedy="Give the parameter as the graph has it.",
                path=(name,),
            )
        place[...] = laid
    return bytes(written)


def with_training(data: bytes, training: CircleTraining) -> bytes:
    """The file with the metadata CIRCLE_TRAINING, in place of its own.

    Tables are written anew, so offsets inside the file change. Raises DocumentError for a file that cannot
    be read, OptionsError for an optimizer that the format does not have.
    """
    if training.trainable is None:
        # All of them by number: of a file without the list, onert 0.1.0 trains nothing.
        training = replace(training, trainable=tuple(range(len(read_model(data).operators))))
    return with_metadata(data, TRAINING, dump_training(training))


def training_of_plan(plan: Plan, data: bytes) -> CircleTraining:
    """How a plan trains the model of a file: optimizer, loss, batch and the operators that are trained.

    Raises PlanError where the plan is not one of this model, OptionsError for a training that the format
    cannot say (other optimizers and losses, momentum, clipping, micro-batches, an operator of whose weights
    only some are trained), and what reading the file raises. Linear in the plan and the file.
    """
    program = plan.program
    model = read_model(data)
    if len(model.outputs) > 1:
        names = ", ".join(repr(model.tensors[number].name) for number in model.outputs)
        raise _unwritten(f"which of the outputs is trained ({names})", "Export the model with one output.")
    fed = [program.values[e.value] for e in program.entry if e.kind is EntryKind.FED]
    batch = min((v.type.shape[0] for v in fed if v.kind is Kind.INPUT and v.type.shape), default=0)
    network = translated(with_output(model, None), batch or None)
    for value in program.values:
        if value.kind is Kind.PARAMETER and value.label not in network.weights:
            raise PlanError(
                f"The plan has the parameter {value.label!r:.80}, which the model does not have.",
                remedy="Give the model that the plan was made from.",
            )
    updates = {n.operation.id: n.attributes for n in program.operations if n.operation.type == UPDATE}
    if not updates:
        raise PlanError(
            f"The plan of {plan.graph!r:.80} trains nothing, and the file says how its model is trained.",
            remedy="Give a plan that trains; of one with entry points name it, as --entry-point train.",
        )
    losses = [node for node in program.operations if node.operation.type in _LOSSES]
    if len(losses) != 1:
        raise _unwritten("this loss", "Plan with --loss cross-entropy, soft-cross-entropy or mse.")
    attributes = losses[0].attributes
    if attributes.get("label_smoothing"):
        raise _unwritten("label smoothing", "Train without it.")
    if losses[0].operation.type == "MeanSquaredError" and attributes["reduction"] == "sum":
        raise _unwritten(
            "a sum over all elements", "Plan with the reduction sum_of_means, which is onert's sum."
        )
    loss: Any = "mean-squared-error"
    if losses[0].operation.type == "CategoricalCrossEntropy":
        if not attributes["from_logits"] and attributes["epsilon"] != ONERT_EPSILON:
            raise _unwritten(
                f"epsilon {attributes['epsilon']:g} of the cross entropy, as onert's is {ONERT_EPSILON:g}",
                "Plan the model file itself.",
            )
        loss = "sparse-categorical-crossentropy" if attributes["sparse"] else "categorical-crossentropy"
    return CircleTraining(
        _optimizer(updates),
        loss,
        from_logits=bool(attributes.get("from_logits", False)),
        batch=batch,
        reduction="mean" if attributes["reduction"] == "mean" else "sum",
        trainable=_trained_operators(network.owned, updates),
    )


def _unwritten(what: str, remedy: str) -> OptionsError:
    return OptionsError(f"CIRCLE_TRAINING cannot say {what}.", remedy=remedy, path=("to",))


def _optimizer(updates: Mapping[str, Mapping[str, Any]]) -> OptimizerSpec:
    """The optimizer of all updates; they have one."""
    attributes = next(iter(updates.values()), None)
    if attributes is None:
        return DEFAULT.optimizer
    name = str(attributes["optimizer"])
    if name not in _WRITTEN:
        raise _unwritten(f"the optimizer {name}", f"Plan with one of {', '.join(_WRITTEN)}.")
    for key, neutral in _NEUTRAL.items():
        if attributes.get(key, neutral) != neutral:
            raise _unwritten(f"{key} {attributes[key]}", "Plan without it.")
    return OptimizerSpec(name, {key: attributes[key] for key in _WRITTEN[name]})


def _trained_operators(owned: Sequence[Sequence[str]], trained: Collection[str]) -> tuple[int, ...] | None:
    """Numbers of the file's operators whose weights are trained; None where all of them are."""
    operators = [k for k, names in enumerate(owned) if set(names) & set(trained)]
    for k in operators:
        left = [name for name in owned[k] if name not in trained]
        if left:
            raise _unwritten(
                f"that operator {k} trains {owned[k][0]!r:.80} and others, but not {left[0]!r:.80}",
                "Train all weights of an operator, or none.",
            )
    return None if len(operators) == sum(map(bool, owned)) else tuple(operators)
