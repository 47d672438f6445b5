"""Documents with something wrong in them: JSON values and texts, damaged by what knows their structure.

`damaged_value` changes a value in one to three places: fields are dropped, doubled, renamed or swapped;
numbers leave their range or their type; names refer to the wrong thing; what stands elsewhere in the document
under the same key comes here. Of the result, JSON can be written, with words that strict JSON refuses.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

__all__ = ["as_toml", "damaged_text", "damaged_value", "document_bytes"]

_Path = tuple[str | int, ...]

#: Numbers at the borders of what fields take, and far beyond.
_NUMBERS: tuple[Any, ...] = (
    *(0, 1, -1, 2, 3, 7, 64, 1000, 0.5, -0.0, 1.0, 1e-320, 1e308, -1e308),
    *(2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64, 10**40),
    *(float("nan"), float("inf"), float("-inf"), "NaN", "Infinity", "-Infinity"),
)
_WORDS: tuple[str, ...] = (
    *("", "x", "batch", "all", "loss", "y0", "dx0", "@", "a@b", " ", "-1", "0", "1e5", "4KiB", "null"),
    *(
        "ü",
        "名前",
        "\u202e",
        "\u200b",
        "\u0000",
        "\n",
        "\ud800",
        "'",
        '"',
        "\\",
        "/",
        "..",
        "%s",
        "{0}",
        "a" * 1100,
    ),
    *(
        "Relu",
        "Gemm",
        "Reshape",
        "Concat",
        "Split",
        "BatchNormalization",
        "Dropout",
        "LSTM",
        "float64",
        "int64",
    ),
)
_OTHERS: tuple[Any, ...] = (
    None,
    True,
    False,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"name": "x"},
    [0],
    [1, -1],
    [""],
)


def damaged_value(value: Any, random: Random) -> Any:
    """A copy of a JSON value with one to three places changed."""
    made, mild = copy.deepcopy(value), random.random() < 0.6
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        places = list(_places(made))
        if not places:
            return random.choice(_OTHERS)
        change = _vary if mild else _change
        change(made, random.choice(places), places, random)
    return made


def _vary(document: Any, path: _Path, places: list[_Path], random: Random) -> None:
    """Another value of the same kind: a document that may still be one."""
    holder, key = _at(document, path[:-1]), path[-1]
    value = holder[key]
    alike = [other for other in (_at(document, place) for place in places) if type(other) is type(value)]
    if isinstance(value, dict | list):
        rows = list(holder) if isinstance(holder, list) else [key]
        other = random.choice(rows) if isinstance(holder, dict) else random.randrange(len(rows))
        match random.randrange(4):
            case 0:
                holder[key], holder[other] = holder[other], holder[key]
            case 1:
                holder[key] = copy.deepcopy(holder[other])
            case 2 if isinstance(holder, list):
                del holder[int(other)]
            case _:
                holder[key] = copy.deepcopy(random.choice(alike))
    elif isinstance(value, bool) or value is None or random.random() < 0.3:
        holder[key] = _like(value, random)
    elif isinstance(value, int | float) and random.random() < 0.7:
        holder[key] = random.choice((value + 1, max(value - 1, 0), 2 * value, value // 2, 0, 1, 2, 8, 64))
    else:
        holder[key] = random.choice(alike)


def _places(value: Any, path: _Path = ()) -> Iterator[_Path]:
    """Paths of all values inside `value`, those of containers first."""
    for key, inner in _items(value):
        yield (*path, key)
        yield from _places(inner, (*path, key))


def _items(value: Any) -> Iterator[tuple[str | int, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


def _at(value: Any, path: _Path) -> Any:
    for part in path:
        value = value[part]
    return value


def _change(document: Any, path: _Path, places: list[_Path], random: Random) -> None:
    holder, key = _at(document, path[:-1]), path[-1]
    match random.randrange(9):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(random.randrange(len(holder) + 1), copy.deepcopy(holder[int(key)]))
        case 1:  # the field under another name of the document, or an unknown one
            names = [str(place[-1]) for place in places if isinstance(place[-1], str)]
            holder[random.choice([*names, "extra"])] = copy.deepcopy(holder[key])
        case 2:  # what stands elsewhere under the same key, or in another row of the same table
            alike = [place for place in places if place[-1] == key] or places
            holder[key] = copy.deepcopy(_at(document, random.choice(alike)))
        case 3:
            holder[key] = copy.deepcopy(_at(document, random.choice(places)))
        case 4:
            other = random.choice([name for name, _ in _items(holder)])
            holder[key], holder[other] = holder[other], holder[key]
        case 5 if random.random() < 0.1:
            for _ in range(random.choice((1, 2, 40, 70))):
                holder[key] = [holder[key]]
        case 6:
            holder[key] = copy.deepcopy(random.choice((*_NUMBERS, *_WORDS, *_OTHERS)))
        case _:
            holder[key] = _like(holder[key], random)


def _like(value: Any, random: Random) -> Any:
    """Another value of the same type, mostly."""
    if isinstance(value, bool):
        return random.choice((not value, int(value), None))
    if isinstance(value, int | float):
        near = (value + 1, value - 1, -value, 2 * value, float(value), str(value))
        return random.choice(near if random.random() < 0.5 else _NUMBERS)
    if isinstance(value, str):
        return random.choice(_WORDS) if random.random() < 0.3 else damaged_text(value, random)
    if isinstance(value, list) and value:
        kept = random.randrange(len(value))
        return random.choice(
            ([], value[:kept], value[::-1], [*value, *value], random.sample(value, len(value)))
        )
    if isinstance(value, dict):
        return dict(random.sample(sorted(value.items()), random.randrange(len(value) + 1)))
    return random.choice(_OTHERS)


def damaged_text(text: str, random: Random) -> str:
    """A text with a piece cut out, doubled, put elsewhere, or replaced."""
    start = random.randrange(len(text) + 1)
    stop = min(len(text), start + random.choice((1, 1, 2, 8)))
    piece = text[start:stop]
    match random.randrange(5):
        case 0:
            return text[:start] + text[stop:]
        case 1:
            return text[:stop] + piece + text[stop:]
        case 2:
            rest = text[:start] + text[stop:]
            at = random.randrange(len(rest) + 1)
            return rest[:at] + piece + rest[at:]
        case 3:
            lines = text.split("\n")
            i, j = random.randrange(len(lines)), random.randrange(len(lines))
            lines[i], lines[j] = lines[j], random.choice((lines[i], lines[j], ""))
            return "\n".join(lines)
        case _:
            new = str(random.choice((*_NUMBERS, *_WORDS, ",", "=", ":", "[", "#", "-", "%")))
            return text[:start] + new + text[stop:]


def document_bytes(value: Any) -> bytes:
    """The text of a JSON value, also of one that strict JSON refuses: NaN as a number, half a surrogate."""
    return json.dumps(value).encode()


def as_toml(value: Mapping[str, Any]) -> bytes:
    """A TOML text of fields: each value on one line, and no null."""
    fields = (f"{json.dumps(str(name))} = {_toml(field)}\n" for name, field in value.items())
    return "".join(fields).encode("utf-8", "replace")


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(k))} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)
