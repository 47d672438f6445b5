"""From a module to the operators that it calls: PyTorch's own capture, and nothing of this project."""

from __future__ import annotations

import copy
import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from solver.errors import DocumentError, OptionsError

__all__ = [
    "Captured",
    "Loss",
    "capture",
    "check_type",
    "decomposed",
    "one_at_a_time",
    "operator_name",
    "torch",
]

F = TypeVar("F", bound=Callable[..., Any])

_TRACING = threading.RLock()

#: A function of the module's output and the targets, which gives the loss.
Loss = Callable[..., Any]

#: Modules that a function wraps around the captured one stand under this name.
_INNER = "module"


def torch() -> Any:
    """PyTorch. Raises ImportError with the remedy where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise ImportError("PyTorch is not installed here: pip install 'torch>=2.9'.", name="torch") from error
    return torch


def one_at_a_time(function: F) -> F:
    """The same function, which waits while another thread runs one of these.

    PyTorch's tracers replace methods and modes of the whole process: two at once break each other.
    """

    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        with _TRACING:
            return function(*arguments, **named)

    return cast("F", wrapper)


def check_type(name: str, value: object, class_: type) -> None:
    """Raises OptionsError for an argument that is not of a class of PyTorch's."""
    if not isinstance(value, class_):
        raise OptionsError(
            f"The argument {name!r} is of type {type(value).__name__}.",
            remedy=f"Give a {class_.__name__} of PyTorch.",
            path=(name,),
        )


@dataclass(frozen=True, slots=True)
class Captured:
    """An exported program; `inputs` names its tensors from outside, of which `labels` are the last ones."""

    program: Any
    inputs: tuple[str, ...]
    labels: int
    #: All names of each parameter and buffer, by one of them.
    names: Mapping[str, tuple[str, ...]]
    frozen: frozenset[str]
    wrapped: bool

    def own(self, name: str) -> str:
        """The module's own name of a parameter, buffer or submodule of the program."""
        return name.removeprefix(f"{_INNER}.") if self.wrapped else name

    def names_of(self, name: str) -> tuple[str, ...]:
        """All of the module's own names of a parameter or buffer of the program."""
        return self.names.get(self.own(name), (self.own(name),))


def capture(
    module: Any,
    inputs: Sequence[Any],
    targets: Sequence[Any] = (),
    loss: Loss | None = None,
    *,
    keywords: Sequence[str] = (),
) -> Captured:
    """The module in the mode that it is in, with a function for the loss behind it if there is one.

    With `keywords` the inputs are given to the module by these names, not by position.
    Tensors are traced by their types alone: nothing is computed, and tensors on the device meta will do.
    Raises DocumentError with what PyTorch says about a module that it cannot export.
    """
    framework = torch()
    module, inputs, targets = _off_meta(framework, module, inputs, targets)
    wrapped = loss is not None or bool(keywords)
    subject = _wrapped(framework, module, loss, len(inputs), tuple(keywords)) if wrapped else module
    names = _all_names(module)
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    own = (lambda name: name.removeprefix(f"{_INNER}.")) if wrapped else str
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about PyTorch's own deprecations, and what it does with hooks
        try:
            exported = framework.export.export(subject, (*inputs, *targets))
            frozen |= _without_gradients(framework, exported, own, names)
            program = exported.run_decompositions({})
        except Exception as error:
            raise DocumentError(
                f"PyTorch cannot export {type(module).__name__}: {_first_line(error)}",
                remedy="Make torch.export.export(module, inputs) work: it must not branch on elements.",
            ) from error
    return Captured(
        program,
        _input_names(module, inputs, targets, keywords),
        len(targets),
        names,
        frozenset(frozen),
        wrapped,
    )


def _without_gradients(
    framework: Any, exported: Any, own: Callable[[str], str], names: Mapping[str, tuple[str, ...]]
) -> set[str]:
    """Detach what is read under `no_grad`: behind the capture nothing tells any more what was computed so.

    Returns the parameters that are read there alone, which is as good as frozen; they stay as they are.
    """
    signature, graph = exported.graph_signature, exported.graph_module.graph
    places = {place: own(full) for place, full in signature.inputs_to_parameters.items()}
    nodes = list(graph.nodes)
    regions = [n for n in nodes if "wrap_with_set_grad_enabled" in str(n.target) and n.args[0] is False]
    outside = {
        name
        for node in nodes
        if node.name in places and any(user not in regions for user in node.users)
        for name in names.get(places[node.name], (places[node.name],))
    }
    for region in regions:
        for node in region.all_input_nodes:
            if node.op == "call_function" or places.get(node.name) in outside:
                with graph.inserting_before(region):
                    detached = graph.call_function(framework.ops.aten.detach.default, (node,))
                detached.meta = dict(node.meta)
                region.replace_input_with(node, detached)
    return {name for name in places.values() if regions and name not in outside}


def _off_meta(
    framework: Any, module: Any, inputs: Sequence[Any], targets: Sequence[Any]
) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """The same with tensors on the CPU that have no storage either in place of those on the device meta.

    Operators make some of their tensors, such as masks, on the CPU whatever the device of their operands. The
    module is copied, but for its tensors that have a storage.
    """
    held = [*module.parameters(), *module.buffers()]
    if not any(_is_meta(x) for x in (*held, *inputs, *targets)):
        return module, inputs, targets
    mode = framework._subclasses.FakeTensorMode(allow_non_fake_inputs=True)

    def moved(tensor: Any) -> Any:
        if not _is_meta(tensor):
            return tensor
        with mode:
            empty = framework.empty_like(tensor, device="cpu")
            if isinstance(tensor, framework.nn.Parameter):
                return framework.nn.Parameter(empty, requires_grad=tensor.requires_grad)
        return empty

    copied = copy.deepcopy(module, {id(tensor): moved(tensor) for tensor in held})
    return copied, [moved(x) for x in inputs], [moved(x) for x in targets]


def _is_meta(tensor: Any) -> bool:
    return bool(getattr(tensor, "is_meta", False))


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:300]


def _wrapped(framework: Any, module: Any, loss: Loss | None, count: int, keywords: tuple[str, ...]) -> Any:
    class Wrapped(framework.nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        def __init__(self) -> None:
            super().__init__()
            setattr(self, _INNER, module)
            self.training = module.training

        def forward(self, *tensors: Any) -> Any:
            inner, arguments = getattr(self, _INNER), tensors[:count]
            output = inner(**dict(zip(keywords, arguments, strict=True))) if keywords else inner(*arguments)
            return output if loss is None else loss(output, *tensors[count:])

    return Wrapped()


def _input_names(
    module: Any, inputs: Sequence[Any], targets: Sequence[Any], keywords: Sequence[str]
) -> tuple[str, ...]:
    """Names of the inputs: those of ``forward``'s parameters, or numbered ones, then those of the targets."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [p.name for p in inspect.signature(module.forward).parameters.values() if p.kind in kinds]
    named = list(keywords) or named
    names = [named[k] if k < len(named) else f"input{k}" for k in range(len(inputs))]
    labels = ["target"] if len(targets) == 1 else [f"target{k}" for k in range(len(targets))]
    return (*names, *labels)


def _all_names(module: Any) -> dict[str, tuple[str, ...]]:
    """Every name of each parameter and buffer under each of its names: tied and shared ones have several."""
    by_tensor: dict[int, list[str]] = {}
    for tensors in (module.named_parameters, module.named_buffers):
        for name, tensor in tensors(remove_duplicate=False):
            by_tensor.setdefault(id(tensor), []).append(name)
    return {name: tuple(names) for names in by_tensor.values() for name in names}


def operator_name(target: Any) -> str:
    """``linear.default`` for the operator that PyTorch prints as ``aten.linear.default``."""
    return str(target).removeprefix("aten.")


def decomposed(captured: Captured, known: Mapping[str, object]) -> Captured:
    """The same with every operator that is not `known` taken apart as far as PyTorch can."""
    framework = torch()
    table = framework.export.default_decompositions()
    table.update(framework._decomp.get_decompositions([framework.ops.aten.grid_sampler_2d]))
    for operator in list(table.keys()):
        if operator_name(operator) in known:
            table.pop(operator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = captured.program.run_decompositions(table)
    return Captured(
        program, captured.inputs, captured.labels, captured.names, captured.frozen, captured.wrapped
    )
