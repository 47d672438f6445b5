"""First values of parameters and constants: a named scheme with a seed, or inline values."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable
from math import isfinite
from typing import Any

import numpy as np

from solver.documents.floats import without_words, word_for
from solver.documents.graph_fields import InitializerFields
from solver.documents.rules import LARGEST_RULE, rule_bytes, rule_of
from solver.errors import DocumentError
from solver.graph.types import DType, FileRange, Initializer, TensorType

__all__ = ["initializer_to_dict", "to_initializer"]

_Path = tuple[str | int, ...]

#: Scheme -> fields that it takes, the required ones marked.
_FIELDS: dict[str, dict[str, bool]] = {
    "zeros": {},
    "ones": {},
    "constant": {"value": True},
    "normal": {"scale": True, "seed": False},
    "uniform": {"scale": True, "seed": False},
    "he_normal": {"seed": False},
    "glorot_uniform": {"seed": False},
    "values": {"values": False, "base64": False},
    "file": {"file": True, "offset": False, "sha256": True},
    "band": {"value": True, "other": True, "lower": False, "upper": False, "axes": False},
    "iota": {"value": True, "step": True, "axes": False},
}

#: Kinds by rule -> how many axes they count along.
_RULES = {"band": 2, "iota": 1}

_NUMPY_LITTLE_ENDIAN = {dtype: dtype.numpy.newbyteorder("<") for dtype in DType}


def to_initializer(document: InitializerFields, name: str, type_: TensorType, path: _Path) -> Initializer:
    """Initializer of an operand. Raises DocumentError at fields that do not fit the kind or the type."""
    _check_fields(document, path)
    if document.kind == "values":
        if document.base64 is not None:
            return Initializer("values", data=_decode(document.base64, name, type_, (*path, "base64")))
        return Initializer("values", data=_pack(document.values or [], name, type_, (*path, "values")))
    if document.kind == "file":
        return Initializer(
            "values", file=FileRange(document.file or "", document.offset or 0, document.sha256 or "")
        )
    if document.kind in _RULES:
        return Initializer("values", data=_by_rule(document, name, type_, path))
    if "seed" in _FIELDS[document.kind] and not type_.dtype.is_floating:
        raise DocumentError(
            f"Operand {name!r} is {type_}; {document.kind} draws floating numbers.",
            remedy="Use zeros, ones, constant or values.",
            path=(*path, "kind"),
        )
    value = 0.0 if document.value is None else document.value
    _check_element(value, name, type_, (*path, "value"))
    return Initializer(
        document.kind,
        value=value,
        scale=1.0 if document.scale is None else document.scale,
        seed=_seed(document, name),
    )


def _by_rule(document: InitializerFields, name: str, type_: TensorType, path: _Path) -> bytes:
    """The elements of a rule, once their number, its axes and its values are known to be right."""
    count, rank = _RULES[document.kind], len(type_.shape)
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
    value, other = document.value, document.other
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
    return rule_bytes({**document._asdict(), "value": value, "axes": axes}, type_)


def _seed(document: InitializerFields, name: str) -> int:
    """Weights of one shape must not start alike, so the name decides where no seed is given."""
    if document.seed is not None or "seed" not in _FIELDS[document.kind]:
        return document.seed or 0
    return zlib.crc32(name.encode())


def _check_fields(document: InitializerFields, path: _Path) -> None:
    allowed = _FIELDS[document.kind]
    given = {key for key in document._fields[1:] if getattr(document, key) is not None}
    takes = f"{document.kind} takes {' and '.join(allowed) or 'nothing else'}."
    for key in sorted(given - set(allowed)):
        raise DocumentError(
            f"An initializer of kind {document.kind} has no {key}.", remedy=takes, path=(*path, key)
        )
    for key, required in allowed.items():
        if required and key not in given:
            raise DocumentError(f"The initializer lacks {key}.", remedy=takes, path=(*path, key))
    if document.kind == "values" and len(given) != 1:
        raise DocumentError(
            f"The initializer has {'both values and base64' if given else 'no values'}.",
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
    if len(data) != type_.nbytes:
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
    return np.array(values, _NUMPY_LITTLE_ENDIAN[type_.dtype]).tobytes()


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


def initializer_to_dict(initializer: Initializer, type_: TensorType | None = None) -> dict[str, Any]:
    """The document of an initializer; inline values as base64, or with a type as the rule that gives them."""
    if initializer.file is not None:
        found = initializer.file
        return {"kind": "file", "file": found.path, "offset": found.offset, "sha256": found.sha256}
    rule = None if type_ is None or initializer.data is None else rule_of(initializer.data, type_)
    if rule is not None:
        return {key: word_for(field) for key, field in rule.items()}
    if initializer.data is not None:
        return {"kind": "values", "base64": base64.b64encode(initializer.data).decode()}
    fields = {key: word_for(getattr(initializer, key)) for key in _FIELDS[initializer.kind]}
    return {"kind": initializer.kind, **fields}
