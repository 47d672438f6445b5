"""What the caller feeds: the inputs of a model, with every dimension known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from solver.errors import BatchError, DimensionError, DocumentError
from solver.graph import DType, TensorType
from solver.importers.onnx.read import ELEMENTS, MAX_DIMENSION

if TYPE_CHECKING:
    import onnx

__all__ = ["bound_inputs"]


def bound_inputs(
    inputs: list[onnx.ValueInfoProto], dims: Mapping[str, int], batch: int | None
) -> dict[str, TensorType]:
    """The types of the inputs, by name. A dimension has a number, a name, or its place: ``x[0]``.

    `dims` gives sizes for names and places; `batch` for the first axis of all inputs where it is open. Raises
    DimensionError that names every dimension without a size, BatchError where there is nothing for `batch`.
    """
    named = {value.name: list(_dimensions(value)) for value in inputs}
    known = _known(named, dims, batch)
    missing: dict[str, str] = {}
    found = {}
    for value in inputs:
        shape = []
        for axis, dimension in enumerate(named[value.name]):
            place = f"{value.name}[{axis}]"
            size = known.get(place, known.get(dimension) if isinstance(dimension, str) else dimension)
            if size is None:
                missing.setdefault(str(dimension) or place, place)
            shape.append(size or 1)
        found[value.name] = TensorType(tuple(shape), _element(value))
    if missing:
        raise DimensionError(
            "The model leaves "
            + ("a dimension" if len(missing) == 1 else f"{len(missing)} dimensions")
            + f" open: {', '.join(f'{name} (of {place})' for name, place in missing.items())}.",
            remedy="Give " + " ".join(f"--dim {name}=SIZE" for name in missing) + ".",
        )
    return found


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
        if not 1 <= size <= MAX_DIMENSION:
            raise DimensionError(f"Dimension {key!r:.80} is to be {size}.", remedy="Give a positive number.")
    found = dict(dims)
    if batch is not None:
        first = {shape[0] for shape in named.values() if shape}
        open_ = [word for word in first if isinstance(word, str)]
        if not open_:
            raise BatchError(
                f"A batch of {batch} is asked for, but the first dimension of no input is open.",
                remedy="Export the model with a dynamic batch, or ask for none.",
                path=("batch",),
            )
        if batch < 1:
            raise BatchError(f"The batch is {batch}.", remedy="Give a positive number.", path=("batch",))
        found.update((word, batch) for word in open_)
    return found


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
