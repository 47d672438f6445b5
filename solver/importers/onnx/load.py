"""From the bytes of a model to a trainable graph: the steps of the package in their order, the loss last."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from solver.errors import ArenaplanError, DocumentError, GraphError, LossError, OptionsError, TrainableError
from solver.graph import DType, Operation, Role, TensorType, Trainable, TrainableGraph, build_graph
from solver.importers.narrowed import widening_notes
from solver.importers.onnx.lowering import Site
from solver.importers.onnx.network import Constant, Network, Tensor, Unknown, Value
from solver.importers.onnx.parts import (
    Part,
    bound_inputs,
    cut_points_of,
    fixed_inputs,
    outputs_without,
    whole_or_part,
)
from solver.importers.onnx.read import StoredTensor, read_model
from solver.importers.onnx.roles import Roles
from solver.importers.onnx.walk import Walk, check_size
from solver.importers.options import (
    LOSSES,
    NO_LOSS,
    TRAIN_FLOAT_FIRST,
    Imported,
    ImportOptions,
    check_inference,
    matching_parameters,
)
from solver.importers.recorder import recognise
from solver.importers.text import argument, freeze_remedy, some

if TYPE_CHECKING:
    import onnx

__all__ = ["attach_loss", "join_products", "kept_outputs", "load_onnx"]

_ONNX: Final = ("", "ai.onnx")
#: Names of layers that a model was made with.
_BATCH_NORM: Final = re.compile(r"batch_?norm|(^|[._/])bn_?\d*([._/]|$)", re.IGNORECASE)
#: Convolutions that make the lack of any normalisation worth a word.
_MIN_CONVOLUTIONS: Final = 5
_NORMALISATIONS: Final = frozenset(
    {
        *("BatchNormalization", "InstanceNormalization", "GroupNormalization"),
        *("LayerNormalization", "RMSNormalization"),
    }
)


def load_onnx(
    data: bytes | memoryview, *, options: ImportOptions, path: Path | None = None, name: str = "model"
) -> Imported:
    """The trainable graph of a model.

    `path` is where the bytes are from: weights are described by their place in it, and may lie in files of
    its folder. Raises DocumentError for bytes that are not a model or cannot be trusted,
    UnknownOperatorError with all operators that are missing, DimensionError with all dimensions that are
    open, and GraphError for what cannot be trained. Cost: linear in the nodes; weights are read once, for
    their SHA-256.
    """
    try:
        return _loaded(data, options, path, name)
    except UnicodeDecodeError as error:
        raise DocumentError(
            f"A name in the model is not UTF-8: {error.reason}.", remedy="Export it again."
        ) from None
    except (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, MemoryError) as error:
        # Files come from anywhere: what the checks have missed must not look like a bug of the caller's.
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
        raise DocumentError(
            f"The model cannot be imported: {what}.",
            remedy="Check it with onnx.checker, and export it again; if both succeed, report this.",
        ) from error
    except RecursionError:
        raise DocumentError("The model is nested too deeply.", remedy="Export it again.") from None


def _loaded(
    data: bytes | memoryview, options: ImportOptions, path: Path | None, name: str, *, advises: bool = True
) -> Imported:
    """The import proper. With `advises`, an error's remedy names a tensor to freeze the model before."""
    model, tensors = read_model(data, path, weights=options.weights)
    functions = {(f.domain, f.name): f for f in model.functions}
    check_size(model, functions)
    part = whole_or_part(model, tensors, options)
    asked = options.trainable if isinstance(options.trainable, tuple) else ()
    walk = Walk(
        functions,
        Roles(tensors, model.graph.node, functions, asked),
        batch_norm=options.batch_norm,
        weights=options.weights,
    )
    try:
        outputs = walk.network.results(_outputs_of_walk(walk, model, part, tensors, options))
    except (GraphError, DocumentError) as error:
        if walk.refused and advises:
            error.remedy = f"{_advice(data, options, path, part, walk)}{error.remedy}"
        raise
    network = walk.network
    loss, notes = attach_loss(network, outputs, options)
    kept, kept_notes = kept_outputs(network, outputs, loss, options)
    results = kept if loss is None else [loss, *kept]
    join_products(network, *results)
    recognise(network, *results)
    inputs = [value for value in network.operands.values() if value.role is Role.INPUT]
    parameters = {o.id for o in network.operands.values() if o.role is Role.PARAMETER}
    network.keep(results)
    unread = {name: network.types[name].type.elements for name in parameters.difference(network.operands)}
    unread |= {tensor.name: tensor.elements for tensor in part.left_out if tensor.elements > 1}
    network.settle_constants()
    unused = [value.id for value in inputs if value.id not in network.operands]
    if unused:
        which = "No output depends" if loss is None else "The loss does not depend"
        notes.append(f"{which} on input {', '.join(map(repr, unused))}: left out.")
    notes += _frozen_without_derivative(network, loss, options)
    graph = _graph(network, loss, kept, options, name, empty=[t.name for t in tensors if not t.elements])
    zeros = [name for name in network.absent if name in graph.operands]
    if zeros:
        places = some(sorted({network.absent[name] for name in zeros}), 2, quoted=True)
        notes.append(
            f"Constants whose values lie in {places}, which is not there, are zeros here: {some(zeros)}."
        )
    notes += (
        *kept_notes,
        *_notes_on_normalisation(walk, model, options),
        *_notes_on_narrow_weights(network, graph),
    )
    constants = {**walk.constants, **dict(sorted(unread.items()))}
    imported = Imported(graph, (*part.notes, *notes), constants, tuple(walk.tables))
    return imported.frozen(options.frozen)


def _notes_on_narrow_weights(network: Network, graph: TrainableGraph) -> Iterable[str]:
    """Weights in half precision, and quantised ones: computed on import, or by each step out of integers."""
    origins = {name: origin for name, origin in network.origins.items() if name in graph.operands}
    wide = {
        operation.outputs[0]: origins[operation.inputs[0]]
        for operation in graph.operations
        if operation.type == "DequantizeLinear" and operation.inputs[0] in origins
    }
    return widening_notes((graph.operands[name].type, origin) for name, origin in {**origins, **wide}.items())


def _advice(
    data: bytes | memoryview, options: ImportOptions, path: Path | None, part: Part, walk: Walk
) -> str:
    """The remedy that plans an output, or what follows a tensor, without nodes that cannot be imported."""

    def works(name: str) -> object:
        return _loaded(data, replace(options, freeze_before=(name,), weights=False), path, "", advises=False)

    for name in outputs_without(part, walk.refused) if options.output is None else ():
        with suppress(ArenaplanError):
            _loaded(data, replace(options, output=name, weights=False), path, "", advises=False)
            return f"Plan another output with --output-name {argument(name)}. "
    names = (name for name in cut_points_of(part, walk.refused, options) if name not in part.outputs)
    return freeze_remedy(names, works)


def _outputs_of_walk(
    walk: Walk,
    model: onnx.ModelProto,
    part: Part,
    tensors: Sequence[StoredTensor],
    options: ImportOptions,
) -> Mapping[str, Value]:
    """The outputs of the model, by name."""
    scope: dict[str, Value | StoredTensor] = {tensor.name: tensor for tensor in tensors}
    types = bound_inputs(part.inputs, part.dims, part.batch)
    left_out = {value.name for value in model.graph.input}.difference(types)
    values = {name: value for name, value in options.inputs.items() if name not in left_out}
    fixed = fixed_inputs(part.inputs, types, values)
    for input_, type_ in types.items():
        scope[input_] = (
            Constant(fixed[input_], input_)
            if input_ in fixed
            else walk.network.declare(input_, Role.INPUT, type_)
        )
    opsets = {o.domain: o.version for o in model.opset_import}
    walk.run(part.nodes, scope, opsets, part.outputs)
    walk.check()
    outputs: dict[str, Value] = {}
    for output in part.outputs:
        result = scope.get(output)
        if result is None or isinstance(result, Unknown):
            raise DocumentError(
                f"Nothing defines the output {output!r:.80}.", remedy="Export the model again."
            )
        outputs[output] = walk.value_of(result) if isinstance(result, StoredTensor) else result
    if not outputs:
        raise DocumentError("The model has no outputs.", remedy="Export it again.")
    return outputs


def _frozen_without_derivative(network: Network, loss: str | None, options: ImportOptions) -> list[str]:
    """Weights that reach the loss through conditions alone are not trained, unless they are named."""
    if loss is None:
        return []
    named = options.trainable if isinstance(options.trainable, tuple) else ()
    frozen = network.freeze(loss, besides=named)
    return [f"The loss has no derivative with respect to {some(frozen)}: not trained."] if frozen else []


def _graph(
    network: Network,
    loss: str | None,
    kept: Sequence[str],
    options: ImportOptions,
    name: str,
    *,
    empty: Sequence[str],
) -> TrainableGraph:
    """The trainable graph. `empty` are stored tensors without elements, which are no parameters."""
    if loss is None:
        declared, operations = network.operands.values(), network.operations
        return build_graph(name, declared, operations, loss=None, optimizer=None, outputs=kept)
    parameters = [o.id for o in network.operands.values() if o.role is Role.PARAMETER and o.trainable]
    quantised = _quantised(network)
    if not parameters and quantised:
        raise TrainableError(
            f"The weights of the model are quantised ({some(quantised, 3)}), and quantised"
            " weights are not trained.",
            remedy=TRAIN_FLOAT_FIRST,
            path=("trainable",),
        )
    if not parameters and empty:
        raise TrainableError(
            f"The model has nothing to train: its weights have no elements ({some(empty, 3)}).",
            remedy="Export the model with layers of one unit or more.",
            path=("trainable",),
        )
    if not parameters:
        raise TrainableError(
            "The model has no parameters that the loss depends on.",
            remedy="Name weights with --trainable, or choose another output with --output-name.",
        )
    return build_graph(
        name,
        network.operands.values(),
        network.operations,
        loss=loss,
        optimizer=options.optimizer,
        trainable=_trainable(options, parameters, quantised),
        outputs=kept,
        training=options.rules,
    )


def _quantised(network: Network) -> list[str]:
    """Names of quantised weights: constants of several elements that are dequantised."""
    read = {op.inputs[0] for op in network.operations if op.type == "DequantizeLinear"}
    return [
        operand.id
        for operand in network.operands.values()
        if operand.role is Role.CONSTANT and operand.id in read and math.prod(operand.shape or ()) > 1
    ]


def _trainable(options: ImportOptions, parameters: Sequence[str], quantised: Sequence[str]) -> Trainable:
    """Names, of those that match a name or pattern."""
    if not isinstance(options.trainable, tuple):
        return options.trainable
    chosen: set[str] = set()
    for pattern in options.trainable:
        chosen.update(matching_parameters(pattern, parameters, quantised))
    return [name for name in parameters if name in chosen]


def _notes_on_normalisation(walk: Walk, model: onnx.ModelProto, options: ImportOptions) -> Iterable[str]:
    """Notes on batch normalisation frozen, shared or folded into weights: each alters the training."""
    frozen = walk.normalised["frozen"]
    if frozen and options.batch_norm is None:
        yield (
            f"{frozen} BatchNormalization {'uses' if frozen == 1 else 'use'} the statistics in the file, as"
            " the model says; --batch-norm train takes those of the batch."
        )
    if walk.shared:
        names = some(walk.shared, 4)
        yield f"Running statistics that several calls update are here updated by the first: {names}."
    fused = sum("FuseBatchNorm" in p.value for n in model.graph.node for p in n.metadata_props)
    likely = fused or _folded_normalisations(model, walk)
    if likely:
        yield (
            f"{likely} of the layers seem to have lost their batch normalisation: exporters fold it into the"
            " weights. To train it, export with torch.onnx.export(..., optimize=False), or with dynamo=False,"
            " training=TrainingMode.TRAINING, do_constant_folding=False."
        )


def _folded_normalisations(model: onnx.ModelProto, walk: Walk) -> int:
    """The number of convolutions whose batch normalisation is folded into them, as far as names show it.

    Those of PyTorch's exporter have new names for all weights; others keep names of the layers that are gone.
    """
    nodes = model.graph.node
    convolutions = [n for n in nodes if n.op_type == "Conv" and len(n.input) > 1]
    has_normalisation = any(n.op_type in _NORMALISATIONS for n in nodes) or any(walk.normalised.values())
    if len(convolutions) < _MIN_CONVOLUTIONS or has_normalisation:
        return 0
    names = [*(tensor.name for tensor in model.graph.initializer), *(n.name for n in nodes)]
    renamed = all(n.input[1].startswith("onnx::Conv") for n in convolutions)
    biased = all(len(n.input) > 2 for n in convolutions)
    return len(convolutions) if renamed or (biased and any(map(_BATCH_NORM.search, names))) else 0


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


def join_products(network: Network, *read: str) -> None:
    """Replace products with a transposed weight by one Gemm, in place; what is then unread stays. Linear.

        Transpose(w) ──► MatMul(x, w') ──► Add b         Reshape(x) ──► Gemm(x, w, b, transB=1) ──► Reshape

    Exporters write linear layers so. The transposed weight is a copy, which would wait for the backward pass.
    The axes of x before the last one are rows of one product; with `in_place` both reshapes are views.
    `read` are operands that something beside operations reads: the loss, outputs.
    """
    operations = list(network.operations)
    by_output = {name: op for op in operations for name in op.outputs if name}
    readers = Counter(name for op in operations for name in op.inputs)
    readers.update(read)
    rows: dict[str, str] = {}
    network.operations.clear()
    for operation in operations:
        product, bias = operation, ""
        if operation.type == "Add":
            for name, other in (operation.inputs, operation.inputs[::-1]):
                maker = by_output.get(name)
                if maker is not None and maker.type == "MatMul" and readers[name] == 1:
                    product, bias = maker, other
        weight = _transposed(network, by_output, product)
        if weight is None or not _is_bias(network, operation, bias):
            network.operations.append(operation)
            continue
        x, shape = product.inputs[0], network.types[operation.outputs[0]].type.shape
        if len(shape) > 2 and x not in rows:
            sizes = network.types[x].type.shape
            flat = network.constant(np.array([math.prod(sizes[:-1]), sizes[-1]], np.int64), f"{x}.rows")
            rows[x] = network.emit("Reshape", [x, flat.name], f"{operation.id}.rows")[0].name
        inputs = (rows.get(x, x) if len(shape) > 2 else x, weight, *([bias] if bias else []))
        if len(shape) == 2:
            network.operations.append(
                Operation(operation.id, "Gemm", inputs, operation.outputs, {"transB": 1})
            )
            continue
        y = network.emit("Gemm", inputs, f"{operation.id}.product", transB=1)[0]
        whole = network.constant(np.array(shape, np.int64), f"{operation.outputs[0]}.shape")
        network.operations.append(Operation(operation.id, "Reshape", (y.name, whole.name), operation.outputs))


def _transposed(network: Network, by_output: dict[str, Operation], product: Operation) -> str | None:
    """The matrix whose transpose a product has as its second operand."""
    if product.type != "MatMul" or len(network.types[product.outputs[0]].type.shape) < 2:
        return None
    maker = by_output.get(product.inputs[1])
    if maker is None or maker.type != "Transpose":
        return None
    matrix = len(network.types[maker.inputs[0]].type.shape) == 2
    swapped = maker.attributes.get("perm", (1, 0)) == (1, 0)
    rank = len(network.types[product.inputs[0]].type.shape)
    return maker.inputs[0] if matrix and swapped and rank >= 2 else None


def _is_bias(network: Network, operation: Operation, bias: str) -> bool:
    """Whether what is added to a product is a vector as long as its last axis, or nothing is."""
    last = network.types[operation.outputs[0]].type.shape[-1:]
    return not bias or network.types[bias].type.shape == last
