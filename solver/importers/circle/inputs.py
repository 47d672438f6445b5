"""Sizes of a model's inputs: those of the file, with the batch and the dimensions that a caller chooses."""

from __future__ import annotations

from collections.abc import Mapping

from solver.errors import BatchError, DimensionError
from solver.importers.circle.read import Model

__all__ = ["file_batch", "input_shapes"]


def file_batch(model: Model) -> int:
    """The first dimension of the first input, which stands for the batch."""
    shape = model.tensors[model.inputs[0]].shape
    return shape[0] if shape else 1


def input_shapes(
    model: Model, names: Mapping[int, str], batch: int | None, dims: Mapping[str, int]
) -> tuple[int | None, dict[int, tuple[int, ...]]]:
    """The batch, and the shapes of the inputs `names`, which map numbers of tensors to names.

    `dims` are sizes by place, as ``x[1]``; the first axis of an input of the file's batch is the batch.
    Raises BatchError for two batches, and DimensionError for axes that there are not and for open ones
    without a size: an axis is open whose size the file leaves to the caller, with a placeholder of 1.
    """
    shapes = {number: list(model.tensors[number].shape) for number in names}
    places = {
        f"{name}[{axis}]": (number, axis)
        for number, name in names.items()
        for axis in range(len(shapes[number]))
    }
    for place, size in dims.items():
        if place not in places:
            raise DimensionError(
                f"The inputs have no dimension {place!r:.80}.",
                remedy=f"They have {', '.join(places) or 'none'}.",
                path=("dim",),
            )
        number, axis = places[place]
        if axis == 0 and shapes[number][0] == file_batch(model):
            if batch not in (None, size):
                raise BatchError(
                    f"The batch is {batch}, and {place!r:.80} is {size}.",
                    remedy="Give all inputs one batch, with --batch.",
                    path=("dim",),
                )
            batch = size
        else:
            shapes[number][axis] = size
    missing = [
        place
        for place, (number, axis) in places.items()
        if axis and axis in model.tensors[number].open_axes and shapes[number][axis] == 1
        and place not in dims
    ]  # fmt: skip
    if missing:
        raise DimensionError(
            f"The model leaves {'a dimension' if len(missing) == 1 else f'{len(missing)} dimensions'} open:"
            f" {', '.join(missing)}.",
            remedy="Give " + " ".join(f"--dim '{place}=SIZE'" for place in missing) + ".",
            path=("dim",),
        )
    if batch is not None:
        for number, shape in shapes.items():
            if model.tensors[number].shape[:1] == (file_batch(model),):
                shape[0] = batch
    return batch, {number: tuple(shape) for number, shape in shapes.items()}
