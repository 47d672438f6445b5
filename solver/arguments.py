"""Arguments of public functions, checked against the annotations."""

from __future__ import annotations

import collections.abc
import functools
import inspect
import numbers
from collections.abc import Callable, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from solver.errors import OptionsError

__all__ = ["checks_arguments"]

F = TypeVar("F", bound=Callable[..., Any])

#: Annotations that several classes satisfy; True is no number.
_NUMBERS: Final[Mapping[Any, type]] = {int: numbers.Integral, float: numbers.Real}


def checks_arguments(function: F) -> F:
    """The same function, which raises OptionsError for an argument that its annotation excludes.

    Containers are checked themselves, and the items of a list or tuple; not those of a mapping. Keyword
    arguments of ``**names`` are the function's own business. Cost: some microseconds a call.
    """
    signature = inspect.signature(function)
    hints: dict[str, Any] = {}

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not hints:  # not before the first call: modules that annotations name may still be loading
            hints.update(get_type_hints(function, include_extras=True))
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # Python names the argument that is missing, or one too many
        for name, value in bound.arguments.items():
            kind, hint = signature.parameters[name].kind, hints.get(name, Any)
            values = value if kind is inspect.Parameter.VAR_POSITIONAL else (value,)
            if kind is not inspect.Parameter.VAR_KEYWORD:
                for each in values:
                    if not _fits(each, hint):
                        raise _wrong_type(function, name, each, hint)
        return function(*args, **kwargs)

    return cast("F", wrapper)


def _fits(value: object, hint: Any) -> bool:
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar):
        return True
    if origin is Annotated:
        return _fits(value, arguments[0])
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in arguments)
    if origin is Literal:
        return value in arguments
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    class_ = origin or hint
    if class_ is collections.abc.Sequence and isinstance(value, str | bytes):
        return False
    if not isinstance(value, class_):
        return False
    items = value if isinstance(value, list | tuple) and len({*arguments} - {Ellipsis}) == 1 else ()
    return all(_fits(item, arguments[0]) for item in items)


def _wrong_type(function: Callable[..., Any], name: str, value: object, hint: Any) -> OptionsError:
    owner = function.__qualname__.replace(".__init__", "")
    if value is None or isinstance(value, str | int | float):
        shown = f"{value!r:.80}"
    elif isinstance(value, list | tuple) and value:
        items = sorted({type(item).__name__ for item in value})
        shown = f"a {type(value).__name__} of {', '.join(items)}"
    else:
        shown = f"of type {type(value).__name__}"
    return OptionsError(
        f"The argument {name!r} of {owner}() is {shown}.",
        remedy=f"Give {_in_words(hint)}.",
        path=(name,),
    )


def _in_words(hint: Any) -> str:
    if get_origin(hint) is Annotated:
        return str(get_args(hint)[1])
    *first, last = dict.fromkeys(_names(hint))
    return f"a value of type {', '.join(first)} or {last}" if first else f"a value of type {last}"


def _names(hint: Any) -> list[str]:
    """The types of an annotation, as "str", "Sequence of int", "None"; the values of a literal."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return [name for one in arguments for name in _names(one)]
    if origin is Literal:
        return list(map(repr, arguments))
    if hint is NoneType:
        return ["None"]
    name = getattr(origin or hint, "__name__", str(hint))
    of_items = isinstance(origin, type) and issubclass(origin, collections.abc.Sequence | tuple)
    items = [one for one in arguments if one is not Ellipsis] if of_items else []
    return [f"{name} of {' or '.join(_names(items[0]))}" if len(items) == 1 else name]
