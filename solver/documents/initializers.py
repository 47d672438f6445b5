"""First values in graph documents: a named scheme with a seed, values inline or in a file, or a rule.

Graphs hold the elements of every constant; only documents hold the rule in their place. A document says

    band    `value` where lower <= column - row <= upper, `other` elsewhere; a bound that is left out is none.
            Rows and columns are counted along the two `axes`, the last two if they are left out.
    iota    value + step * k, with k counted along the one of `axes`, the last one if it is left out.

Along all other axes the elements repeat. A rule is written only where it gives the very bytes back, as
for causal masks and positions.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from pydantic import Field

from solver.canonical import NotFinite, float_of, without_words, word_for
from solver.documents.fields import DocumentModel, Int64, JsonList, Natural, Text
from solver.errors import DocumentError
from solver.graph.content import SCHEMES, scheme_content
from solver.graph.packing import check_packed
from solver.graph.types import Array, DType, FileRange, Initializer, TensorType

__all__ = [
    "LARGEST_RULE",
    "LARGEST_RULES",
    "RULES",
    "InitializerDocument",
    "initializer_content",
    "rule_bytes",
    "rule_of",
    "to_initializer",
]

_Path = tuple[str | int, ...]

#: Kinds by rule, with the number of axes that they count along.
RULES: Final[Mapping[str, int]] = {"band": 2, "iota": 1}

#: Kind -> fields that it takes, the required ones marked.
_FIELDS: Final[Mapping[str, Mapping[str, bool]]] = {
    **{kind: {name: name != "seed" for name in names} for kind, names in SCHEMES.items()},
    "values": {"values": False, "base64": False},
    "file": {"file": True, "offset": False, "bytes": False, "sha256": True},
    "band": {"value": True, "other": True, "lower": False, "upper": False, "axes": False},
    "iota": {"value": True, "step": True, "axes": False},
}

#: Bytes that one constant by rule may have, and all of a document: a small document must not fill a memory.
LARGEST_RULE: Final = 2**28
LARGEST_RULES: Final = 2**29
#: Bytes; smaller constants are written out.
_SMALLEST_RULE: Final = 256


class InitializerDocument(DocumentModel):
    """`values` is flat and in C order; `base64` holds the same elements as raw little-endian bytes."""

    kind: Literal[
        "zeros", "ones", "constant", "normal", "uniform", "he_normal", "glorot_uniform", "values", "file",
        "band", "iota",
    ]  # fmt: skip
    value: float | NotFinite | None = Field(
        None,
        description="Of kind constant: the value of every element; of band those inside, of iota the first.",
    )
    scale: float | None = Field(
        None, gt=0, description="Of kind normal the standard deviation, of kind uniform the half width."
    )
    seed: Natural | None = Field(
        None, description="Of random kinds; made from the operand's name without one."
    )
    values: list[Any] | None = Field(
        None,
        description="Of kind values: all elements, flat, in C order; an int64 may be a dimension's name.",
        json_schema_extra={
            "items": {"anyOf": [{"type": ["number", "boolean", "string"]}, {"enum": [*get_args(NotFinite)]}]}
        },
    )
    base64: str | None = Field(
        None, description="Of kind values, instead: raw little-endian elements in C order."
    )
    file: Text | None = Field(
        None,
        max_length=4096,
        description="Of kind file: its path from the document's folder; raw little-endian elements in it.",
    )
    offset: Natural | None = Field(
        None, description="Of kind file: where the elements start in it; 0 if left out."
    )
    bytes: Natural | None = Field(
        None,
        description="Of kind file, of a stored operand: the bytes of its float32 elements, where the file has"
        " these; the packed ones if left out.",
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = Field(
        None, description="Of kind file: SHA-256 of the elements, in hexadecimal."
    )
    step: float | None = Field(None, description="Of kind iota: what each element adds to the one before.")
    other: float | NotFinite | None = Field(
        None, description="Of kind band: the value of the elements outside."
    )
    lower: Int64 | None = Field(
        None, description="Of kind band: least column - row of the elements inside; no bound if left out."
    )
    upper: Int64 | None = Field(
        None, description="Of kind band: greatest column - row of the elements inside; no bound if left out."
    )
    axes: JsonList[Natural] | None = Field(
        None,
        description="Of kind band the axes of rows and columns, of kind iota the axis; the last if left out.",
    )


def to_initializer(document: InitializerDocument, name: str, type_: TensorType, path: _Path) -> Initializer:
    """Initializer of an operand. Raises DocumentError at fields that do not fit the kind or the type."""
    _check_fields(document, path)
    if document.kind == "values":
        if document.base64 is not None:
            return Initializer("values", data=_decode(document.base64, name, type_, (*path, "base64")))
        return Initializer("values", data=_pack(document.values or [], name, type_, (*path, "values")))
    if document.kind == "file":
        return Initializer("values", file=_file_range(document, name, type_, path))
    if document.kind in RULES:
        return Initializer("values", data=_by_rule(document, name, type_, path))
    if "seed" in _FIELDS[document.kind] and not type_.dtype.is_floating:
        raise DocumentError(
            f"Operand {name!r} is {type_}; {document.kind} draws floating numbers.",
            remedy="Use zeros, ones, constant or values.",
            path=(*path, "kind"),
        )
    value = 0.0 if document.value is None else float_of(document.value)
    _check_element(value, name, type_, (*path, "value"))
    return Initializer(
        document.kind,
        value=value,
        scale=1.0 if document.scale is None else document.scale,
        seed=_seed(document, name),
    )


def _file_range(document: InitializerDocument, name: str, type_: TensorType, path: _Path) -> FileRange:
    sizes = {type_.nbytes, type_.elements * type_.dtype.itemsize}
    if document.bytes is not None and document.bytes not in sizes:
        raise DocumentError(
            f"Operand {name!r} is {type_}, {type_.nbytes:,} bytes, and not {document.bytes:,} of a file.",
            remedy=f"Give {' or '.join(f'{size:,}' for size in sorted(sizes))}.",
            path=(*path, "bytes"),
        )
    nbytes = None if document.bytes == type_.nbytes else document.bytes
    return FileRange(document.file or "", document.offset or 0, document.sha256 or "", nbytes)


def _by_rule(document: InitializerDocument, name: str, type_: TensorType, path: _Path) -> bytes:
    """The elements of a rule, once their number, its axes and its values are known to be right."""
    count, rank = RULES[document.kind], len(type_.shape)
    axes = document.axes or tuple(range(rank))[-count:]
    if len(axes) != count or len(set(axes)) != count or not all(axis < rank for axis in axes):
        raise DocumentError(
            f"Operand {name!r} is {type_}; {document.kind} counts along {count} of its axes, not along"
            f" {list(axes)}.",
            remedy=f"Give {count} different numbers below {rank}." if rank >= count else "Use values.",
            path=(*path, "axes"),
        )
    if type_.nbytes > LARGEST_RULE:
        raise DocumentError(
            f"Operand {name!r} is {type_}, {type_.nbytes:,} bytes; a constant by rule has {LARGEST_RULE:,} at"
            " most.",
            remedy="Keep its elements in a file, as an initializer of kind file.",
            path=path,
        )
    value, other = float_of(document.value), float_of(document.other)
    assert value is not None, "checked with the other fields"
    if document.kind == "iota":
        if type_.dtype is DType.BOOL:
            raise DocumentError(
                f"Operand {name!r} is {type_}; iota counts in numbers.",
                remedy="Use band or values.",
                path=path,
            )
        other = value + (document.step or 0.0) * (type_.shape[axes[0]] - 1)
    for key, element in (("value", value), ("step" if document.kind == "iota" else "other", other)):
        _check_element(element, name, type_, (*path, key))
    return rule_bytes({**dict(document), "value": value, "other": other, "axes": axes}, type_)


def _seed(document: InitializerDocument, name: str) -> int:
    """Weights of one shape must not start alike, so the name decides where no seed is given."""
    if document.seed is not None or "seed" not in _FIELDS[document.kind]:
        return document.seed or 0
    return zlib.crc32(name.encode())


def _check_fields(document: InitializerDocument, path: _Path) -> None:
    allowed = _FIELDS[document.kind]
    present = {key for key, value in vars(document).items() if value is not None} - {"kind"}
    takes = f"{document.kind} takes {' and '.join(allowed) or 'nothing else'}."
    for key in sorted(present - set(allowed)):
        raise DocumentError(
            f"An initializer of kind {document.kind} has no {key}.", remedy=takes, path=(*path, key)
        )
    for key, required in allowed.items():
        if required and key not in present:
            raise DocumentError(f"The initializer lacks {key}.", remedy=takes, path=(*path, key))
    if document.kind == "values" and len(present) != 1:
        raise DocumentError(
            f"The initializer has {'both values and base64' if present else 'no values'}.",
            remedy="Give either values or base64.",
            path=path,
        )


def _decode(text: str, name: str, type_: TensorType, path: _Path) -> bytes:
    try:
        data = binascii.a2b_base64(text, strict_mode=True)
        if 4 * -(-len(data) // 3) != len(text):  # strict mode lets more padding than needed pass
            raise ValueError("Excess padding")
    except ValueError as error:  # binascii.Error, too, and text beyond ASCII
        raise DocumentError(
            f"The values of operand {name!r} are not base64: {error}.",
            remedy="Encode with the standard alphabet and padding, without line breaks.",
            path=path,
        ) from None
    if type_.storage is not None:
        check_packed(name, data, type_, path)
    elif len(data) != type_.nbytes:
        raise DocumentError(
            f"Operand {name!r} is {type_}, {type_.nbytes} bytes, but its values decode to {len(data)} bytes.",
            remedy="Encode exactly the raw little-endian elements in C order.",
            path=path,
        )
    if type_.dtype is DType.BOOL and data.translate(None, b"\0\1"):
        raise DocumentError(
            f"The values of operand {name!r} hold bytes other than 0 and 1.",
            remedy="A bool is one byte, 0 or 1.",
            path=path,
        )
    return data


def _pack(values: list[Any], name: str, type_: TensorType, path: _Path) -> bytes:
    if len(values) != type_.elements:
        raise DocumentError(
            f"Operand {name!r} is {type_}, {type_.elements} elements, but has {len(values)} values.",
            remedy="List every element once, flat, in C order.",
            path=path,
        )
    values = without_words(values)
    if not _all_fit(values, type_.dtype):
        for i, value in enumerate(values):
            _check_element(value, name, type_, (*path, i))
    return np.array(values, type_.dtype.numpy.newbyteorder("<")).tobytes()


def _all_fit(values: list[Any], dtype: DType) -> bool:
    """Whether all elements are of the right kind and within range, at the speed of C."""
    kinds = set(map(type, values))
    if not kinds <= _KINDS[dtype]:
        return False
    if float in kinds:  # integers of any length are finite, and too long for `isfinite`
        values = [value for value in values if type(value) is int or isfinite(value)]
    if dtype is DType.BOOL or not values:
        return True
    least, most = _range(dtype)
    return bool(least <= min(values) and max(values) <= most)


def _kinds(dtype: DType) -> set[type]:
    if dtype is DType.BOOL:
        return {bool}
    return {int, float} if dtype.is_floating else {int}


_KINDS = {dtype: _kinds(dtype) for dtype in DType}


def _range(dtype: DType) -> tuple[float, float]:
    """Least and greatest finite element."""
    info: Any = np.finfo(dtype.numpy) if dtype.is_floating else np.iinfo(dtype.numpy)
    number: Callable[[Any], float] = float if dtype.is_floating else int
    return number(info.min), number(info.max)


def _check_element(value: Any, name: str, type_: TensorType, path: _Path) -> None:
    single = path[-1] in ("value", "other", "step")
    integral = isinstance(value, float) and value.is_integer() and single
    whole = int(value) if integral and not type_.dtype.is_floating else value
    fits = value in (0, 1) if type_.dtype is DType.BOOL and single else _all_fit([whole], type_.dtype)
    if not fits:
        raise DocumentError(
            f"{str(word_for(value))[:60]} is no {type_.dtype.value} element of operand {name!r}.",
            remedy=_element_remedy(type_.dtype),
            path=path,
        )


def _element_remedy(dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "Give true or false."
    least, most = _range(dtype)
    kind = "numbers" if dtype.is_floating else "integers"
    return f"Give {kind} from {least} to {most}, flat, in C order."


def initializer_content(initializer: Initializer, type_: TensorType | None = None) -> dict[str, Any]:
    """The document of an initializer; inline values as base64, or with a type as the rule that gives them."""
    if initializer.file is not None:
        file = initializer.file
        size = {} if file.nbytes is None else {"bytes": file.nbytes}
        return {"kind": "file", "file": file.path, "offset": file.offset, **size, "sha256": file.sha256}
    if initializer.data is None:
        return scheme_content(initializer)
    # The bytes of a rule are elements.
    rule = None if type_ is None or type_.storage is not None else rule_of(initializer.data, type_)
    if rule is not None:
        return {key: word_for(field) for key, field in rule.items()}
    return {"kind": "values", "base64": base64.b64encode(initializer.data).decode()}


def rule_bytes(rule: Mapping[str, Any], type_: TensorType) -> bytes:
    """The elements that a rule stands for, little-endian in C order. The axes must be axes of the shape.

    Linear in the bytes.
    """
    shape, dtype = type_.shape, type_.dtype.numpy
    if rule["kind"] == "iota":
        (axis,) = rule.get("axes") or (len(shape) - 1,)
        elements = _ends(rule["value"], rule["step"], shape[axis], type_.dtype)
        own = {axis: shape[axis]}
    else:
        row, column = rule.get("axes") or (len(shape) - 2, len(shape) - 1)
        lower, upper = rule.get("lower"), rule.get("upper")
        distance = np.arange(shape[column]) - np.arange(shape[row])[:, np.newaxis]
        inside = np.ones(distance.shape, np.bool_)
        if lower is not None:
            inside &= distance >= lower
        if upper is not None:
            inside &= distance <= upper
        values = _elements([rule["value"], rule["other"]], type_.dtype)
        elements = np.where(inside, values[0], values[1])
        if row > column:
            elements = elements.T
        own = {row: shape[row], column: shape[column]}
    alone = elements.reshape([own.get(axis, 1) for axis in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(alone, shape), dtype.newbyteorder("<")).tobytes()


def _elements(values: Any, dtype: DType) -> Array:
    """Numbers as elements: whole ones exactly, others rounded once."""
    with np.errstate(all="ignore"):
        if dtype.is_floating:
            return np.asarray(values, np.float64).astype(dtype.numpy)
        return np.asarray([int(value) for value in values]).astype(dtype.numpy)


def _ends(start: float, step: float, count: int, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        if dtype.is_floating:
            return np.asarray(start + step * np.arange(count), np.float64).astype(dtype.numpy)
        return (int(start) + int(step) * np.arange(count)).astype(dtype.numpy)


def rule_of(data: bytes, type_: TensorType, smallest: int = _SMALLEST_RULE) -> dict[str, Any] | None:
    """The rule that gives these bytes and no others; None if there is none, and for less than `smallest`
    bytes. Linear in the bytes.
    """
    if not smallest <= len(data) <= LARGEST_RULE or len(data) != type_.nbytes:
        return None
    array = np.frombuffer(data, type_.dtype.numpy.newbyteorder("<")).reshape(type_.shape)
    bits = array.view(f"<u{type_.dtype.itemsize}")
    axes = []
    for axis, size in enumerate(type_.shape):
        first = bits[(slice(None),) * axis + (slice(1),)]
        if size > 1 and (bits == first).all():
            bits, array = first, array[(slice(None),) * axis + (slice(1),)]
        elif size > 1:
            axes.append(axis)
    rule = None
    if len(axes) == 1 and type_.dtype is not DType.BOOL:
        rule = _iota(array.reshape(-1))
    elif len(axes) == 2:
        sizes = [type_.shape[axis] for axis in axes]
        rule = _band(array.reshape(sizes), bits.reshape(sizes))
    if rule is None:
        return None
    if axes != list(range(len(type_.shape)))[-len(axes) :]:
        rule["axes"] = axes
    return rule if rule_bytes(rule, type_) == data else None


def _iota(row: Array) -> dict[str, Any] | None:
    first, second = (number.item() for number in row[:2])
    if not np.isfinite([first, second]).all():
        return None
    return {"kind": "iota", "value": float(first), "step": float(second - first)}


def _band(elements: Array, bits: Array) -> dict[str, Any] | None:
    corner = bits == bits[0, 0]
    if corner.all() or len(np.unique(bits[~corner])) != 1:
        return None
    rows, columns = elements.shape
    distance = np.arange(columns) - np.arange(rows)[:, np.newaxis]
    for inside in (corner, ~corner):
        lower, upper = int(distance[inside].min()), int(distance[inside].max())
        if (inside == ((distance >= lower) & (distance <= upper))).all():
            rule = {
                "kind": "band",
                "value": float(elements[inside][0]),
                "other": float(elements[~inside][0]),
            }
            bounds = {"lower": (lower, 1 - rows), "upper": (upper, columns - 1)}
            return rule | {key: bound for key, (bound, end) in bounds.items() if bound != end}
    return None
