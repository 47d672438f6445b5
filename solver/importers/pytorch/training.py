"""A training step of PyTorch whose optimizer runs as it is, one operation for each parameter.

    forward, loss, backward ──► w@grad ──► w.update      reads w@grad, updates w and what the optimizer keeps

Traced down to its kernels, an optimizer that counts its steps rounds a little differently than in eager
PyTorch, since its count is a tensor there. Here each update calls PyTorch's own optimizer on one parameter in
its place, so weights are those of eager PyTorch, bit for bit, and its settings are read anew at each step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from solver.errors import DocumentError
from solver.importers.pytorch.calls import View
from solver.importers.pytorch.capture import Loss, check_type, torch
from solver.importers.pytorch.program import (
    defaults_of,
    module_call,
    tensor_block,
    trace,
    view_of,
    zeros_kept,
)
from solver.importers.traced import TracedStep
from solver.training import BlockOperation, build_program

__all__ = ["TracedTraining", "Update", "trace_training"]


@dataclass(slots=True)
class Update:
    """One step of the optimizer on one parameter, whose settings are those of `group` now.

    `kept` is what the optimizer keeps for it, by PyTorch's words. The first step of a parameter of which the
    optimizer keeps nothing yet begins it as PyTorch does.
    """

    optimizer: Any
    group: Mapping[str, Any]
    weight: View
    gradient: View
    kept: Mapping[str, View]
    begun: bool

    def __call__(self, blocks: Any) -> None:
        """Run on blocks of NumPy."""
        self.bound(lambda view: view.of_array(blocks))()

    def bound(self, tensor_of: Callable[[View], Any], *, into_place: bool = False) -> Callable[[], None]:
        """A function that runs the step on these tensors. It is in their place anyway."""
        del into_place
        framework = torch()
        weight, gradient = tensor_of(self.weight).detach(), tensor_of(self.gradient)
        kept = {word: tensor_of(view) for word, view in self.kept.items()}
        own = type(self.optimizer)([{**self.group, "params": [weight]}], **defaults_of(self.optimizer))

        def run() -> None:
            settings = {key: value for key, value in self.group.items() if key != "params"}
            own.param_groups[0].update(settings)
            weight.grad = gradient
            if self.begun:
                own.state[weight] = dict(kept)
            own.step()
            left = own.state.pop(weight, {})
            for word, tensor in kept.items():
                if left.get(word) is not tensor and left.get(word) is not None:
                    tensor.copy_(left[word])
            self.begun = True
            weight.grad = None

        without_grad: Callable[[], None] = framework.no_grad()(run)
        return without_grad


@dataclass(frozen=True, slots=True)
class TracedTraining:
    """The step, and its views of the module's and the optimizer's tensors: `weights` and `kept` by name."""

    traced: TracedStep
    weights: Mapping[str, View]
    kept: Mapping[tuple[str, str], View] = field(default_factory=dict)


def trace_training(
    module: Any,
    inputs: Sequence[Any],
    *,
    keywords: Sequence[str] = (),
    loss: Loss | None,
    targets: Sequence[Any] = (),
    optimizer: Any,
    name: str | None = None,
) -> TracedTraining:
    """The program of one step of PyTorch's `optimizer` on a module and its loss.

    Parameters and buffers keep their names; an optimizer's tensors are called after their parameter, as
    ``fc.weight.exp_avg``. Raises DocumentError for an optimizer that needs a closure, and as `trace`.
    """
    framework = torch()
    check_type("module", module, framework.nn.Module)
    check_type("optimizer", optimizer, framework.optim.Optimizer)
    if isinstance(optimizer, framework.optim.LBFGS):
        raise DocumentError(
            "LBFGS computes the loss several times in a step, and a step is planned once.",
            remedy="Use an optimizer that takes gradients as they are, such as AdamW.",
        )
    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    trained = [key for key, p in parameters.items() if p.requires_grad and id(p) in groups]
    if not trained:
        raise DocumentError(
            "The optimizer updates no parameter of the module that requires a gradient.",
            remedy="Make the optimizer from module.parameters(), after what replaces them, such as"
            " load_state_dict(state, assign=True).",
        )
    fed, value_of = module_call(module, inputs, keywords=keywords, loss=loss, targets=targets)

    def step(tensors: Mapping[str, Any]) -> Any:
        value = value_of(tensors)
        gradients = framework.autograd.grad(value, [tensors[key] for key in trained], allow_unused=True)
        return value, {key: g for key, g in zip(trained, gradients, strict=True) if g is not None}

    tensors = {**parameters, **buffers, **fed}
    traced = trace(step, tensors, fed=tuple(fed), name=name or type(module).__name__)
    return _with_updates(traced, optimizer, groups, parameters)


def _with_updates(
    traced: TracedStep, optimizer: Any, groups: Mapping[int, Any], parameters: Mapping[str, Any]
) -> TracedTraining:
    """The step with an update behind it for each gradient that it returns; it returns the others."""
    program = traced.program
    gradients = {r.path[len("[1]['") : -len("']")]: r for r in traced.results if r.path.startswith("[1]")}
    results = [r for r in traced.results if not r.path.startswith("[1]")]
    returned = {result.block for result in results}
    blocks = {name: replace(b, kept=name in returned) for name, b in program.blocks.items()}
    operations, functions = list(program.operations), dict(traced.functions)
    values, kept_views = dict(traced.values), dict[tuple[str, str], View]()
    weights = {}
    for name, gradient in gradients.items():
        parameter = parameters[name]
        weights[name] = view_of(traced.arguments[name])
        state, begun = _state_of(optimizer, parameter, groups[id(parameter)])
        kept = {}
        for word, tensor in state.items():
            label = f"{name}.{word}"
            block, kept[word], values[label] = tensor_block(label, tensor)
            blocks[label], kept_views[name, word] = block, kept[word]
        group = groups[id(parameter)]
        update = Update(optimizer, group, weights[name], view_of(gradient), kept, begun)
        states = [view.block for view in kept.values() if view.block]
        writes = (weights[name].block, *states)
        operation = BlockOperation(
            f"{name}.update", (*writes, gradient.block), writes, type(optimizer).__name__
        )
        operations.append(operation)
        functions[operation.name] = update
    built = build_program(program.name, list(blocks.values()), operations, any_order=program.any_order)
    step = TracedStep(built, functions, values, tuple(results), traced.arguments)
    return TracedTraining(step, weights, kept_views)


def _state_of(optimizer: Any, parameter: Any, group: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """The tensors that the optimizer keeps for a parameter, and whether it has begun to."""
    framework = torch()
    kept = optimizer.state.get(parameter, {})
    tensors = {word: x for word, x in kept.items() if isinstance(x, framework.Tensor)}
    if tensors:
        return tensors, True
    return zeros_kept(framework, optimizer, group, parameter), False
