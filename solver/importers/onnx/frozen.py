"""The part of a model behind the tensors that it is frozen before, which become its inputs.

Nothing that leads to them alone is imported, so that operators there need not be known. Their shapes come
from ONNX's shape inference, from the import of what leads to them where that is possible, from the file, or
from the caller, as ``NAME[0]=8``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from solver.errors import DimensionError, DocumentError, GraphError, LossError
from solver.graph import Role, TensorType
from solver.importers.cuts import Step, cut_points, needed_steps, unknown_cut
from solver.importers.onnx.inputs import batch_sizes, bound_inputs
from solver.importers.onnx.network import Tensor, Value
from solver.importers.onnx.read import StoredTensor
from solver.importers.onnx.roles import Roles
from solver.importers.onnx.walk import Walk, names_read
from solver.importers.options import LOSSES, ImportOptions
from solver.importers.text import some

if TYPE_CHECKING:
    import onnx

__all__ = ["Part", "cut_points_of", "whole_or_part"]

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
