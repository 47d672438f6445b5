"""The loss that training minimises: attached to an output of a model, or an output itself."""

from __future__ import annotations

import math
from collections.abc import Mapping

from solver.errors import DocumentError, LossError, OptionsError
from solver.graph import DType, Role, TensorType
from solver.importers.onnx.lowering import Site
from solver.importers.onnx.network import Constant, Network, Tensor, Value
from solver.importers.options import LOSSES, NO_LOSS, ImportOptions, check_inference
from solver.importers.text import some

__all__ = ["attach_loss", "kept_outputs"]

#: Images have their classes at axis 1, as PyTorch has it; sequences and tables at the last one.
_IMAGE_RANK = 4
#: Outputs that a note names.
_NAMED_OUTPUTS = 4


def attach_loss(
    network: Network, outputs: Mapping[str, Value], options: ImportOptions
) -> tuple[str | None, list[str]]:
    """The name of the scalar to minimise, None for an inference, and notes for the caller.

    Raises LossError where the loss does not fit, and where there is none and the options ask for training.
    """
    computed = {name for name, value in outputs.items()
                if isinstance(value, Tensor) and value.name not in network.operands}  # fmt: skip
    name = _chosen(outputs, computed, options)
    if name is None:
        return None, []
    prediction = outputs[name]
    if isinstance(prediction, Constant) or not isinstance(prediction, Tensor):
        raise LossError(
            f"The output {name!r:.80} does not depend on the inputs.",
            remedy="Choose another with --output-name.",
        )
    others = [other for other in outputs if other != name]
    notes = [f"The loss is of output {name!r}."] if others and options.loss is not None else []
    if options.loss is None:
        return prediction.name, notes
    if options.loss not in LOSSES:
        raise LossError(
            f"There is no loss {options.loss!r:.60}.", remedy=f"Choose one of {', '.join(LOSSES)}."
        )
    if not prediction.type.dtype.is_floating:
        raise LossError(
            f"The output {name!r:.80} is {prediction.type}, which has no derivative.",
            remedy="Choose another with --output-name.",
        )
    return _attached(network, prediction, options, notes), notes


def kept_outputs(
    network: Network, outputs: Mapping[str, Value], loss: str | None, options: ImportOptions
) -> tuple[list[str], list[str]]:
    """The tensors of the outputs that are kept after a step, and notes on those that are not.

    Without a loss all are, or the one that the options name. An output that is an input, a weight or a
    constant under another name is a copy of it.

    Raises OptionsError for an output that the model does not have.
    """
    tensors = {name: value.name for name, value in outputs.items() if isinstance(value, Tensor | Constant)}
    copied = {name: value for name, value in outputs.items()
              if isinstance(value, Constant) or (isinstance(value, Tensor) and value.name in network.operands)
              }  # fmt: skip
    held = [name for name, value in copied.items() if name in (value.name, *network.operands)]
    for name in held:
        del tensors[name]
    names = options.keep_outputs
    if loss is None and not names:
        names = "all" if options.output is None else (options.output,)
    if names == "all":
        names = tuple(tensors)
    for name in names:
        if name not in tensors:
            raise OptionsError(
                f"The model has no output {name!r:.80} that depends on its inputs.",
                remedy=f"Its outputs are {', '.join(tensors)}.",
                path=("keep_outputs",),
            )
        if name in copied:
            site = Site("Identity", name, 0, {}, [], [True], network)
            begin = len(network.operations)
            tensors[name] = network.call_it(site.emit("StopGradient", copied[name]), name, begin).name
    kept = list(dict.fromkeys(tensors[name] for name in names))
    lost = [name for name, tensor in tensors.items() if tensor not in (loss, *kept)]
    notes = [f"Output {name!r:.80} is {tensors[name]!r:.80} here." for name in names if tensors[name] != name]
    if held and loss is None:
        shown = some(held, _NAMED_OUTPUTS, quoted=True)
        notes.append(f"Not among the results, as no operator computes it: output {shown}.")
    if lost:
        shown = some(lost, _NAMED_OUTPUTS, quoted=True)
        notes.append(f"Not kept after a step: output {shown}; --keep-outputs names what is read then.")
    return kept, notes


def _chosen(outputs: Mapping[str, Value], computed: set[str], options: ImportOptions) -> str | None:
    """The output that is the loss, or that the loss is of; None for an inference."""
    if options.loss == NO_LOSS:
        check_inference(options, "The loss is none")
        return None
    tensors = {
        name: value for name, value in outputs.items() if isinstance(value, Tensor) and name in computed
    }
    scalars = [name for name, t in tensors.items() if not t.rank and t.type.dtype.is_floating]
    if options.loss is None and options.output in (None, *tensors) and options.output not in (None, *scalars):
        check_inference(options, f"The output {options.output!r:.80} is not a number, so it is no loss")
        return None
    if options.output is not None:
        return options.output
    if options.loss is None and not scalars:
        check_inference(options, "The model has no loss: none of its outputs is a number")
        return None
    if options.loss is None and len(scalars) > 1:
        raise LossError(
            f"The model has {len(scalars)} outputs that could be the loss: {', '.join(scalars)}.",
            remedy="Choose one with --output-name.",
        )
    return scalars[0] if options.loss is None else next(iter(outputs))


def _attached(network: Network, prediction: Tensor, options: ImportOptions, notes: list[str]) -> str:
    operator, attributes, label_kind = LOSSES[options.loss or ""]
    site = Site("loss", "loss", 0, {}, [], [True], network)
    if operator in ("CategoricalCrossEntropy", "KLDivergence"):
        prediction = _classes_last(site, _before_activation(network, prediction, "Softmax", notes), options)
    elif operator == "BinaryCrossEntropy":
        prediction = _before_activation(network, prediction, "Sigmoid", notes)
    classes = label_kind == "classes"
    shape = prediction.shape[:-1] if classes else prediction.shape
    dtype = DType.INT64 if classes else prediction.type.dtype
    label = network.declare("label", Role.LABEL, TensorType(shape, dtype))
    return site.emit(operator, prediction, label, **attributes).name


def _before_activation(network: Network, prediction: Tensor, type_: str, notes: list[str]) -> Tensor:
    """The logits behind a final softmax or sigmoid: a loss that contains that function is more exact."""
    last = next((op for op in network.operations if prediction.name in op.outputs), None)
    if last is None or last.type != type_:
        return prediction
    notes.append(f"{last.id!r} ({type_}) is part of the loss: its operand is taken as logits.")
    source = network.types[last.inputs[0]]
    return Tensor(source.id, source.type)


def _classes_last(site: Site, prediction: Tensor, options: ImportOptions) -> Tensor:
    rank = prediction.rank
    if not rank:
        raise LossError(
            f"The output {prediction.name!r:.80} is a number, without classes.",
            remedy="Leave --loss out, or choose another output with --output-name.",
        )
    axis = options.class_axis
    if axis is None:
        axis = 1 if rank >= _IMAGE_RANK else -1
    if not -rank <= axis < rank:
        raise DocumentError(
            f"The output {prediction.name!r:.80} has {rank} axes; there is no axis {axis} of classes.",
            remedy=f"Give --class-axis from {-rank} to {rank - 1}.",
        )
    axis %= rank
    if axis == rank - 1:
        return prediction
    perm = (*(i for i in range(rank) if i != axis), axis)
    if math.prod(prediction.shape[axis + 1 :]) == 1:
        return site.reshape(prediction, [prediction.shape[i] for i in perm])
    return site.emit("Transpose", prediction, perm=perm)
