"""The part of a model that is imported, and its inputs, with every dimension known.

If a model is frozen before tensors, these become its inputs. Nothing that leads to them alone is imported, so
that operators there need not be known. Their shapes come from ONNX's shape inference, from the import of what
leads to them where that is possible, from the file, or from the caller, as ``NAME[0]=8``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from solver.errors import BatchError, DimensionError, DocumentError, GraphError, LossError, OptionsError
from solver.graph import Array, DType, Role, TensorType
from solver.importers.onnx.network import Tensor, Value
from solver.importers.onnx.read import ELEMENTS, MAX_DIMENSION, StoredTensor
from solver.importers.onnx.roles import Roles
from solver.importers.onnx.walk import Walk, names_read
from solver.importers.options import LOSSES, ImportOptions
from solver.importers.text import Step, argument, cut_points, needed_steps, some, unknown_cut

if TYPE_CHECKING:
    import onnx

__all__ = ["Part", "batch_sizes", "bound_inputs", "cut_points_of", "fixed_inputs", "whole_or_part"]


def fixed_inputs(
    inputs: Sequence[onnx.ValueInfoProto], types: Mapping[str, TensorType], values: Mapping[str, Any]
) -> dict[str, Array]:
    """The arrays of inputs that a caller fixes, by name: numbers, true or false, or nested lists of these.

    One number fills all places of its input. `types` are those of `bound_inputs`. Raises OptionsError for a
    name that no input has, and for a value that its input cannot hold.
    """
    names = [value.name for value in inputs]
    arrays = {}
    for name, value in values.items():
        if name not in names:
            raise _bad_input(f"The model has no input {name!r:.80}.", f"Its inputs are {', '.join(names)}.")
        type_ = types[name]
        try:
            with np.errstate(all="ignore"):
                stated = np.asarray(value)
                array = stated.astype(type_.dtype.numpy)
            is_exact = type_.dtype.is_floating or np.array_equal(array, stated)
        except OverflowError:  # whole numbers of more than 64 bits
            array, is_exact = np.empty(()), False
        is_flag = type_.dtype is DType.BOOL
        if not is_exact or (stated.dtype == np.bool_ and not is_flag) or array.shape not in ((), type_.shape):
            raise _bad_input(
                f"The input {name!r:.80} is {type_}, and the value given for it is not.",
                f"Give {'true or false' if is_flag else 'one number'}, or nested lists of its shape.",
            )
        arrays[name] = np.broadcast_to(array, type_.shape).copy()
    return arrays


def _bad_input(message: str, remedy: str) -> OptionsError:
    return OptionsError(message, remedy=remedy, path=("input",))


def bound_inputs(
    inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int], batch: int | None
) -> dict[str, TensorType]:
    """The types of the inputs, by name. A dimension has a number, a name, or its place: ``x[0]``.

    `dims` gives sizes for names and places, of dimensions with a number, too. `batch` is that of the first
    axis: of all inputs where it is open; if it is open nowhere, of the first input and of those with the same
    number there. Raises DimensionError that names every dimension without a size, BatchError where no input
    has an axis.
    """
    named = {value.name: list(_dimensions(value)) for value in inputs}
    known = _known(named, dims, batch)
    missing: dict[str, str] = {}
    types = {}
    for value in inputs:
        shape = []
        for axis, dimension in enumerate(named[value.name]):
            place = f"{value.name}[{axis}]"
            size = known.get(place, known.get(dimension) if isinstance(dimension, str) else dimension)
            if size is None:
                missing.setdefault(str(dimension) or place, place)
            shape.append(1 if size is None else size)
        types[value.name] = TensorType(tuple(shape), _element(value))
    if missing:
        raise DimensionError(
            "The model leaves "
            + ("a dimension" if len(missing) == 1 else f"{len(missing)} dimensions")
            + f" open: {', '.join(f'{name} (of {place})' for name, place in missing.items())}.",
            remedy="Give " + " ".join(f"--dim {argument(f'{name}=SIZE')}" for name in missing) + ".",
        )
    return types


def _dimensions(value: onnx.ValueInfoProto) -> Iterator[int | str]:
    """Sizes and names; a dimension with neither has its place as name."""
    for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
        kind = dimension.WhichOneof("value")
        if kind == "dim_value":
            if not 1 <= dimension.dim_value <= MAX_DIMENSION:
                yield f"{value.name}[{axis}]"  # older exporters write 0 or -1 for an open one
            else:
                yield int(dimension.dim_value)
        else:
            yield dimension.dim_param or f"{value.name}[{axis}]"


def _known(
    named: Mapping[str, list[int | str]], dims: Mapping[str, int], batch: int | None
) -> dict[str, int]:
    places = {f"{name}[{axis}]" for name, shape in named.items() for axis in range(len(shape))}
    words = {d for shape in named.values() for d in shape if isinstance(d, str)}
    for key, size in dims.items():
        if key not in places and key not in words:
            raise DimensionError(
                f"The inputs have no dimension {key!r:.80}.",
                remedy=f"They have {', '.join(sorted(words | places))}.",
            )
        if not 0 <= size <= MAX_DIMENSION:
            raise DimensionError(f"Dimension {key!r:.80} is to be {size}.", remedy="Give 0 or more.")
    if batch is not None and not any(named.values()):
        raise BatchError(
            f"A batch of {batch} is asked for, but no input has an axis.",
            remedy="Leave out --batch.",
            path=("batch",),
        )
    if batch is not None and batch < 1:
        raise BatchError(f"The batch is {batch}.", remedy="Give a positive number.", path=("batch",))
    by_batch = _batch_sizes(named, batch)
    for key, size in dims.items():
        if by_batch.get(key, size) != size:
            raise BatchError(
                f"The batch is to be {batch}, and dimension {key!r:.80}, which is the batch, {size}.",
                remedy=f"Write --batch {size} in the place of --dim {argument(f'{key}={size}')}.",
                path=("batch",),
            )
    return {**by_batch, **dims}


def batch_sizes(inputs: Sequence[onnx.ValueInfoProto], batch: int | None) -> dict[str, int]:
    """The sizes that a batch means, by names and places of dimensions, as `bound_inputs` says."""
    return _batch_sizes({value.name: list(_dimensions(value)) for value in inputs}, batch)


def _batch_sizes(named: Mapping[str, list[int | str]], batch: int | None) -> dict[str, int]:
    firsts = {name: shape[0] for name, shape in named.items() if shape}
    if batch is None or not firsts:
        return {}
    open_ = [word for word in firsts.values() if isinstance(word, str)]
    own = next(iter(firsts.values()))
    places = open_ or [f"{name}[0]" for name, size in firsts.items() if size == own]
    return dict.fromkeys(places, batch)


def _element(value: onnx.ValueInfoProto) -> DType:
    if value.type.WhichOneof("value") != "tensor_type" or not value.type.tensor_type.HasField("shape"):
        raise DocumentError(
            f"The input {value.name!r:.80} is not a tensor whose axes are known.",
            remedy="Export the model with tensors as inputs.",
        )
    dtype = ELEMENTS.get(value.type.tensor_type.elem_type)
    if dtype is None:
        raise DocumentError(
            f"The input {value.name!r:.80} has elements of ONNX's type {value.type.tensor_type.elem_type}.",
            remedy=f"Export the model with {', '.join(d.value for d in DType)}.",
        )
    return dtype


#: ONNX's number of float32.
_FLOAT32: Final = 1
_PLACE: Final = re.compile(r"(?P<name>.*)\[(?P<axis>\d+)\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """The part to import: nodes in order, inputs, names of outputs, and sizes of the inputs' dimensions.

    `notes` say what is left out, a sentence each; `left_out` are weights that only other outputs need.
    """

    nodes: Sequence[onnx.NodeProto]
    inputs: list[onnx.ValueInfoProto]
    outputs: list[str]
    dims: Mapping[str, int]
    batch: int | None
    notes: tuple[str, ...] = ()
    left_out: tuple[StoredTensor, ...] = ()


def whole_or_part(model: onnx.ModelProto, tensors: Sequence[StoredTensor], options: ImportOptions) -> Part:
    """The model, or the part that leads to the output that the options name: any tensor that a node computes.

    If the options freeze the model before tensors, the part follows these, and leads to the outputs that
    depend on them, or to the first of those where the options say a loss.
    Raises LossError for an output that no node computes, GraphError for names that no node defines or that
    lead to no output, DimensionError where the rank of one is unknown. Cost: linear in the nodes, and ONNX's
    shape inference.
    """
    graph, cuts, dims, batch = model.graph, options.freeze_before, options.dims, options.batch
    stored = {tensor.name for tensor in graph.initializer} | {t.values.name for t in graph.sparse_initializer}
    inputs = [value for value in graph.input if value.name not in stored]
    names = [value.name for value in graph.output]
    steps = _steps(graph.node)
    defined = {name for _, writes in steps for name in writes}
    if options.output is not None and options.output not in (*names, *defined):
        raise LossError(
            f"The model has no output {options.output!r:.80}.",
            remedy=f"Its outputs are {', '.join(names)}; any tensor that a node computes can be named.",
            path=("output_name",),
        )
    chosen = names
    if options.output is not None and options.keep_outputs != "all":
        chosen = [options.output, *(name for name in options.keep_outputs if name in names)]
    others = [name for name in names if name not in chosen]
    if not cuts and not others and chosen == names:
        return Part(graph.node, inputs, names, dims, batch)
    names = list(dict.fromkeys(chosen))
    for name in cuts:
        if name not in defined:
            why = "it is an input" if name in {v.name for v in inputs} else ""
            raise unknown_cut(name, defined, "it is a weight" if name in stored else why)
    if cuts:
        names = _chosen(_outputs_behind(steps, names, cuts), options)
    kept = [steps[k] for k in needed_steps(steps, names, cuts)]
    read = {name for reads, _ in kept for name in reads} | set(names)
    for name in cuts:
        if name not in read:
            raise unknown_cut(name, defined, "the loss does not depend on it")
    nodes = [_without_outputs(graph.node[k], cuts) for k in needed_steps(steps, names, cuts)]
    bound = _with_sizes(model, inputs, dims, batch)
    described = _inferred(bound) if cuts else {}
    fed = [_value_info(bound, described, tensors, name, dims) for name in cuts]
    remaining = [value for value in bound.graph.input if value.name in read and value.name not in stored]
    open_ = {dimension for value in (*remaining, *fed) for dimension in _open_dimensions(value)}
    everything = {dimension for value in inputs for dimension in (*_open_dimensions(value), *_places(value))}
    left = {key: size for key, size in dims.items() if key in open_ or key not in everything}
    still_open = batch if any(_is_open(value) for value in (*remaining, *fed)) else None
    if cuts:
        note = (
            f"Frozen before {', '.join(map(repr, cuts))}: {len(graph.node) - len(nodes):,} of"
            f" {len(graph.node):,} nodes are not imported."
        )
        return Part(nodes, [*remaining, *fed], names, left, still_open, (note,))
    unread = tuple(t for t in tensors if t.name not in read and t.dtype is not None and t.dtype.is_floating)
    dropped = [value.name for value in inputs if value.name not in read]
    lost = [
        f"{kind} {some(what, 4, quoted=True)}"
        for kind, what in (("output", others), ("input", dropped))
        if what
    ]
    notes = (f"Left out, as {names[0]!r:.80} does not depend on it: {', '.join(lost)}.",) if lost else ()
    return Part(nodes, remaining, names, left, still_open, notes, unread)


def outputs_without(part: Part, refused: Collection[int]) -> list[str]:
    """The outputs that none of the refused nodes lead to."""
    steps, culprits = _steps(part.nodes), set(refused)
    return [name for name in part.outputs if culprits.isdisjoint(needed_steps(steps, [name]))]


def cut_points_of(part: Part, refused: Collection[int], options: ImportOptions) -> Iterator[str]:
    """Names of tensors that all refused nodes lead through to the loss, the earliest first."""
    return cut_points(_steps(part.nodes), _chosen(part.outputs, options), refused)


def _chosen(outputs: list[str], options: ImportOptions) -> list[str]:
    """The outputs that the loss may be of."""
    if options.output in outputs:
        return [options.output]
    return outputs[:1] if options.loss in LOSSES else outputs


def _steps(nodes: Sequence[onnx.NodeProto]) -> list[Step[str]]:
    return [(names_read([node]) - {""}, [name for name in node.output if name]) for node in nodes]


def _outputs_behind(steps: Sequence[Step[str]], outputs: Sequence[str], cuts: Sequence[str]) -> list[str]:
    """The outputs that depend on one of the tensors; all where none does, which is an error later on."""
    reached = set(cuts)
    for reads, writes in steps:
        if not reached.isdisjoint(reads):
            reached.update(writes)
    return [name for name in outputs if name in reached] or list(outputs)


def _without_outputs(node: onnx.NodeProto, cuts: Sequence[str]) -> onnx.NodeProto:
    """The node with other names for outputs that are fed."""
    if not set(cuts).intersection(node.output):
        return node
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for k, name in enumerate(node.output):
        if name in cuts:
            copy.output[k] = f"{name}/frozen"
    return copy


def _with_sizes(
    model: onnx.ModelProto, inputs: Sequence[onnx.ValueInfoProto], dims: Mapping[str, int], batch: int | None
) -> onnx.ModelProto:
    """The model with the sizes that the caller gives for dimensions of its inputs."""
    import onnx

    sizes = {**batch_sizes(inputs, batch), **dims}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fixed = {
        f"{value.name}[{axis}]": dimension.dim_value
        for value in inputs
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim)
        if dimension.dim_value > 0
    }
    if any(sizes.get(place, size) != size for place, size in fixed.items()):
        del copy.graph.value_info[:]  # what the file says of tensors holds for other sizes
        for output in copy.graph.output:
            output.type.tensor_type.ClearField("shape")
    for value in (*copy.graph.input, *copy.graph.value_info, *copy.graph.output):
        for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
            size = sizes.get(f"{value.name}[{axis}]", sizes.get(dimension.dim_param or ""))
            if size is not None:
                dimension.dim_value = size
    return copy


def _inferred(model: onnx.ModelProto) -> Mapping[str, onnx.ValueInfoProto]:
    """Types of tensors that the file states or that ONNX infers, by name.

    Functions are left out, as ONNX follows those that call themselves without end; data is not propagated, as
    it would make constants of any size.
    """
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.functions[:]
    try:
        copy = onnx.shape_inference.infer_shapes(copy)
    except Exception:  # noqa: BLE001 - ONNX's own; shapes that are not inferred are asked for
        copy = model
    return {value.name: value for value in (*copy.graph.value_info, *copy.graph.output)}


def _value_info(
    model: onnx.ModelProto,
    described: Mapping[str, onnx.ValueInfoProto],
    tensors: Sequence[StoredTensor],
    name: str,
    dims: Mapping[str, int],
) -> onnx.ValueInfoProto:
    """The element type of a tensor, float32 where nothing says it, and its dimensions.

    The first that knows all dimensions says them: ONNX's inference, then the import of what leads to the
    tensor. Otherwise those that are open are left to the caller.
    """
    import onnx

    value = onnx.ValueInfoProto(name=name)
    if name in described:
        value.CopyFrom(described[name])
    tensor = value.type.tensor_type
    if not tensor.HasField("shape") or any(_open_dimensions(value)):
        type_ = _imported_type(model, tensors, name)
        if type_ is not None:
            element = onnx.helper.np_dtype_to_tensor_dtype(type_.dtype.numpy)
            return onnx.helper.make_tensor_value_info(name, element, type_.shape)
    tensor.elem_type = tensor.elem_type or _FLOAT32
    if not tensor.HasField("shape"):
        places = (_PLACE.fullmatch(key) for key in dims)
        axes = {int(place["axis"]) for place in places if place is not None and place["name"] == name}
        if not axes or axes != set(range(len(axes))):
            raise DimensionError(
                f"The shape of {name!r:.80} is not known, because it follows operators without rules for it.",
                remedy=f"Give the size of each axis as --dim '{name}[0]=SIZE' --dim '{name}[1]=SIZE', or"
                " another tensor to --freeze-before.",
                path=("freeze_before",),
            )
        for _ in axes:
            tensor.shape.dim.add()
    return value


def _imported_type(model: onnx.ModelProto, tensors: Sequence[StoredTensor], name: str) -> TensorType | None:
    """The type of a tensor where everything that leads to it can be imported."""
    graph = model.graph
    steps = _steps(graph.node)
    nodes = [graph.node[k] for k in needed_steps(steps, [name])]
    scope: dict[str, Value | StoredTensor] = {tensor.name: tensor for tensor in tensors}
    inputs = [value for value in graph.input if value.name not in scope]
    functions = {(f.domain, f.name): f for f in model.functions}
    walk = Walk(functions, Roles(tensors, nodes, functions), weights=False)
    try:
        for input_, type_ in bound_inputs(inputs, {}, None).items():
            scope[input_] = walk.network.declare(input_, Role.INPUT, type_)
        walk.run(nodes, scope, {o.domain: o.version for o in model.opset_import}, [name])
    except (GraphError, DocumentError):
        return None
    result = scope.get(name)
    return result.type if isinstance(result, Tensor) else None


def _is_open(value: onnx.ValueInfoProto) -> bool:
    shape = value.type.tensor_type.shape.dim
    return bool(len(shape)) and shape[0].dim_value < 1


def _open_dimensions(value: onnx.ValueInfoProto) -> Iterator[str]:
    """Names and places of the dimensions without a size."""
    for axis, dimension in enumerate(value.type.tensor_type.shape.dim):
        if dimension.dim_value < 1:
            yield from filter(None, (dimension.dim_param, f"{value.name}[{axis}]"))


def _places(value: onnx.ValueInfoProto) -> Iterator[str]:
    return (f"{value.name}[{axis}]" for axis in range(len(value.type.tensor_type.shape.dim)))
