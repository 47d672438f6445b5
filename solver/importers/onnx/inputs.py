"""The inputs of a model, with every dimension known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from solver.errors import BatchError, DimensionError, DocumentError, OptionsError
from solver.graph import Array, DType, TensorType
from solver.importers.onnx.read import ELEMENTS, MAX_DIMENSION
from solver.importers.text import argument

if TYPE_CHECKING:
    import onnx

__all__ = ["batch_sizes", "bound_inputs", "fixed_inputs"]


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
