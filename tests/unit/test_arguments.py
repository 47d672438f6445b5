"""Arguments that annotations exclude, for every public function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints
from unittest.mock import create_autospec

import pytest

import arenaplan
import arenaplan.torch
from solver.arguments import checks_arguments
from solver.errors import OptionsError


@checks_arguments
def example(
    count: int,
    *names: str,
    share: float = 0.5,
    mode: Literal["a", "b"] | None = None,
    sizes: Sequence[int] = (),
    table: Mapping[str, int] | None = None,
    call: Callable[[int], int] = abs,
    anything: Any = None,
    **more: int,
) -> tuple[object, ...]:
    return count, names, share, mode, tuple(sizes), table, more


def test_arguments_that_fit() -> None:
    assert example(3, "x", share=1, mode="b", sizes=[4], table={}, call=abs, anything=set(), other=5) == (
        3, ("x",), 1, "b", (4,), {}, {"other": 5},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("positional", "named", "sentence"),
    [
        (("3",), {}, "'count' of example() is '3'. Give a value of type int."),
        ((True,), {}, "'count' of example() is True. Give a value of type int."),
        ((None,), {}, "'count' of example() is None. Give a value of type int."),
        ((3, "x", 4), {}, "'names' of example() is 4. Give a value of type str."),
        ((3,), {"share": "half"}, "'share' of example() is 'half'. Give a value of type float."),
        ((3,), {"mode": "c"}, "'mode' of example() is 'c'. Give a value of type 'a', 'b' or None."),
        ((3,), {"sizes": "12"}, "'sizes' of example() is '12'. Give a value of type Sequence of int."),
        ((3,), {"sizes": [1, "2"]}, "'sizes' of example() is a list of int, str."),
        ((3,), {"table": []}, "'table' of example() is of type list. Give a value of type Mapping or None."),
        ((3,), {"call": 4}, "'call' of example() is 4. Give a value of type Callable."),
    ],
)
def test_arguments_that_do_not(positional: tuple[Any, ...], named: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionsError) as caught:
        example(*positional, **named)
    assert sentence in str(caught.value)
    assert caught.value.path == (sentence.split("'")[1],)


def test_python_names_an_argument_that_is_missing() -> None:
    call: Callable[..., Any] = example
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'count'"):
        call()


# ------------------------------------------------------------------------------- every public function


#: Its error names the arrays of a batch, which tests/unit/executor/test_trainer.py looks at.
ELSEWHERE = "Trainer.step"


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions and methods that programs call, by name; what others call (ExecuTorch) and HTTP apart."""
    owners = [arenaplan, arenaplan.layers, arenaplan.ops, arenaplan.torch, arenaplan.jax]
    for owner in owners:
        for name in owner.__all__:
            value = getattr(owner, name)
            if inspect.isfunction(value):
                yield f"{owner.__name__}.{name}", value
    for class_ in (
        arenaplan.Model, arenaplan.Tape, arenaplan.Tensor, arenaplan.Trainer, arenaplan.torch.Captured,
    ):  # fmt: skip
        for name, value in vars(class_).items():
            method = getattr(value, "__func__", value)
            full_name = f"{class_.__name__}.{name}"
            if inspect.isfunction(method) and is_public(name, method) and full_name != ELSEWHERE:
                yield full_name, method


def is_public(name: str, method: Callable[..., Any]) -> bool:
    """Without those that dataclasses write, and those that statements and the standard library call."""
    written = method.__code__.co_filename == "<string>" and not hasattr(method, "__wrapped__")
    return not written and (not name.startswith("_") or name in ("__init__", "__add__", "__matmul__"))


def cases() -> Iterator[tuple[str, str, Callable[..., Any]]]:
    for name, function in public_functions():
        for parameter in own_signature(function).parameters.values():
            if parameter.name in ("self", "cls") or parameter.kind is inspect.Parameter.VAR_KEYWORD:
                continue
            if hints_of(function)[parameter.name] is not Any:
                yield name, parameter.name, function


def own_signature(function: Callable[..., Any]) -> inspect.Signature:
    """Without the choices that a function shows, and passes on: see tests/unit/arenaplan/test_choices.py."""
    return inspect.signature(inspect.unwrap(function))


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    return get_type_hints(function, include_extras=True)


def fitting(hint: Any) -> Any:
    """A value of the type of an annotation, good for nothing else."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType, Annotated):
        return fitting(arguments[0])
    if origin is Literal:
        return arguments[0]
    if hint in (NoneType, None, Any):
        return None
    usual: dict[Any, Any] = {int: 1, float: 1.0, bool: True, str: "", Sequence: [], Mapping: {}}
    class_ = origin or hint
    return usual[class_] if class_ in usual else create_autospec(class_, instance=True)


@pytest.mark.parametrize(
    ("parameter", "function"),
    [pytest.param(parameter, function, id=f"{name}:{parameter}") for name, parameter, function in cases()],
)
def test_a_wrong_type(parameter: str, function: Callable[..., Any]) -> None:
    signature, hints = own_signature(function), hints_of(function)
    arguments: dict[str, Any] = {
        each.name: fitting(hints.get(each.name, Any))
        for each in signature.parameters.values()
        if each.default is inspect.Parameter.empty
        and each.kind not in (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    }
    strange = object()
    kind = signature.parameters[parameter].kind
    arguments[parameter] = (strange,) if kind is inspect.Parameter.VAR_POSITIONAL else strange
    bound = signature.bind_partial()
    bound.arguments.update({name: arguments[name] for name in signature.parameters if name in arguments})
    with pytest.raises(OptionsError, match="is of type object") as caught:
        function(*bound.args, **bound.kwargs)
    assert caught.value.path == (parameter,)


def test_the_table_has_every_function_of_the_modules() -> None:
    names = {name for name, _ in public_functions()}
    assert {
        "arenaplan.plan",
        "arenaplan.explain",
        "arenaplan.torch.graph",
        "arenaplan.builder.layers.conv",
    } <= names
    assert {"Trainer.__init__", "Trainer.read", "Tape.apply", "Model.plan", "Captured.batch"} <= names
    modules = [name for name in arenaplan.__all__ if isinstance(getattr(arenaplan, name), ModuleType)]
    assert set(modules) == {"executorch", "jax", "layers", "onnx", "ops", "torch"}
