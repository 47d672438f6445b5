"""A training step of PyTorch whose optimizer runs as it is.

    forward, loss, backward ──► w@grad ──► w.update      reads w@grad, updates w and what the optimizer keeps

Traced down to its kernels, an optimizer that counts its steps rounds a little differently than in eager
PyTorch, since its count is a tensor there. Here PyTorch's own optimizer is called: for one parameter at a
time if its class is known to update each by itself, so that gradients are freed early. Any other optimizer,
and one with hooks, updates all parameters in one operation.
"""

from __future__ import annotations

import copy
import sys
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from solver.errors import DocumentError
from solver.importers.pytorch.calls import View
from solver.importers.pytorch.capture import Loss, one_at_a_time, torch
from solver.importers.pytorch.program import view_of
from solver.importers.traced import TracedStep, reason_of
from solver.pytorch_steps.guards import Watch, watched
from solver.pytorch_steps.recording import Recording, dense_strides
from solver.training import BlockOperation

__all__ = ["Clip", "TracedTraining", "Update", "backward", "settle", "trace_training", "updates_by_parameter"]

#: PyTorch's optimizers whose update of a parameter reads no other one.
_BY_PARAMETER = frozenset(
    {
        "ASGD",
        "Adadelta",
        "Adafactor",
        "Adagrad",
        "Adam",
        "AdamW",
        "Adamax",
        "Muon",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "SGD",
    }
)

TensorOf = Callable[[View], Any]


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter in an update: its tensor, and the views of what the update touches."""

    tensor: Any
    weight: View
    gradient: View
    kept: Mapping[str, View]


@dataclass(slots=True)
class Update:
    """One step of the optimizer on some parameters, whose settings are those that it has now.

    `whole` calls the step of the optimizer itself, with its hooks. `clears` leaves zeros in the gradients.
    """

    optimizer: Any
    parts: Sequence[Part]
    whole: bool
    clears: bool

    def __call__(self, blocks: Any) -> None:
        """Run on blocks of NumPy."""
        self.bound(lambda view: view.of_array(blocks))()

    def bound(self, tensor_of: TensorOf, *, into_place: bool = False) -> Callable[[], None]:
        """A function that runs a copy of the optimizer, without hooks, on these tensors."""
        del into_place
        stand_ins = [torch().nn.Parameter(tensor_of(part.weight).detach()) for part in self.parts]
        memo: dict[int, Any] = {id(p.tensor): own for p, own in zip(self.parts, stand_ins, strict=True)}
        for part in self.parts:
            for word, tensor in self.optimizer.state.get(part.tensor, {}).items():
                if word in part.kept:
                    memo[id(tensor)] = tensor_of(part.kept[word])
        own = _copied(_narrowed(self.optimizer, [part.tensor for part in self.parts]), memo)
        homes = [{word: tensor_of(view) for word, view in part.kept.items()} for part in self.parts]
        gradients = [tensor_of(part.gradient) for part in self.parts]
        return self._run(lambda: _stepped(own), own, stand_ins, gradients, homes)

    def of_module(self, tensor_of: TensorOf, homes: Sequence[Mapping[str, Any]]) -> Callable[[], None]:
        """A function that runs the optimizer itself on its parameters; `homes` take what it keeps."""
        tensors = [part.tensor for part in self.parts]
        gradients = [tensor_of(part.gradient) for part in self.parts]

        def step() -> None:
            self.optimizer._opt_called = True  # schedulers ask whether the optimizer has run
            (self.optimizer if self.whole else _narrowed(self.optimizer, tensors)).step()

        return self._run(step, self.optimizer, tensors, gradients, homes)

    def _run(self, step: Any, optimizer: Any, tensors: Any, gradients: Any, homes: Any) -> Callable[[], None]:
        def run() -> None:
            for tensor, gradient in zip(tensors, gradients, strict=True):
                tensor.grad = gradient
            step()
            with torch().no_grad():
                for tensor, gradient, words in zip(tensors, gradients, homes, strict=True):
                    tensor.grad = None
                    settle(optimizer.state.get(tensor, {}), words)
                    if self.clears:
                        gradient.zero_()

        return run


@dataclass(frozen=True, slots=True)
class Clip:
    """PyTorch's `clip_grad_norm_` of some gradients together."""

    gradients: Sequence[View]
    norm: float

    def __call__(self, blocks: Any) -> None:
        """Run on blocks of NumPy."""
        self.bound(lambda view: view.of_array(blocks))()

    def bound(self, tensor_of: TensorOf, *, into_place: bool = False) -> Callable[[], None]:
        """A function that clips these tensors. They are in their place anyway."""
        del into_place
        gradients = [tensor_of(view) for view in self.gradients]
        holders = [gradient.detach() for gradient in gradients]

        def run() -> None:
            for holder, gradient in zip(holders, gradients, strict=True):
                holder.grad = gradient
            torch().nn.utils.clip_grad_norm_(holders, self.norm)

        return run


@dataclass(frozen=True, slots=True)
class TracedTraining:
    """The step; `homes` are its views of parameters and buffers, `kept` those of what the optimizer keeps, by
    parameter and word. `tensors` are the module's own by name, `outside` the other tensors of the caller.
    """

    traced: TracedStep
    tensors: Mapping[str, Any]
    homes: Mapping[str, View]
    kept: Mapping[tuple[str, str], View]
    outside: Mapping[str, Any]
    fed: Mapping[str, View] = field(default_factory=dict)
    results: Sequence[View] = ()


def settle(state: Any, homes: Mapping[str, Any]) -> None:
    """Move what an optimizer keeps for a parameter into its memory: some make a new tensor in each step."""
    for word, home in homes.items():
        tensor = state.get(word)
        if tensor is not None and tensor is not home:
            home.copy_(tensor)
            state[word] = home


def updates_by_parameter(optimizer: Any) -> bool:
    """Whether a step of the optimizer is that of each parameter by itself."""
    framework, own = torch(), vars(optimizer)
    hooks = [
        own.get("_optimizer_step_pre_hooks"),
        own.get("_optimizer_step_post_hooks"),
        sys.modules["torch.optim.optimizer"]._global_optimizer_pre_hooks,
        sys.modules["torch.optim.optimizer"]._global_optimizer_post_hooks,
    ]
    kind = type(optimizer)
    known = kind.__name__ in _BY_PARAMETER and kind is getattr(framework.optim, kind.__name__, None)
    replaced = "step" in own and not hasattr(own["step"], "_wrapped_by_lr_sched")
    return known and not replaced and not any(hooks)


def backward(loss: Any, accumulate: int) -> None:
    """The backward pass of one of `accumulate` batches, outside autocast as PyTorch recommends."""
    with torch().autocast(loss.device.type, enabled=False):
        (loss / accumulate if accumulate > 1 else loss).backward()


@one_at_a_time
def trace_training(
    watch: Watch,
    tensors: Mapping[str, Any],
    module: Any,
    inputs: Sequence[Any],
    *,
    loss: Loss | None,
    targets: Sequence[Any] = (),
    optimizer: Any,
    clip_grad_norm: float | None = None,
    accumulate: int = 1,
    name: str | None = None,
) -> tuple[TracedTraining, Mapping[int, Mapping[str, Any]]]:
    """(The program of one step of PyTorch's `optimizer` on a module and its loss, the attributes it reads).

    `tensors` are the parameters and buffers by name; an optimizer's tensors are called after their parameter,
    as ``fc.weight.exp_avg``. With `clip_grad_norm` all gradients are clipped together. With `accumulate` they
    carry over, and the caller leaves out the clip and the updates of all but every so many steps.
    Raises DocumentError for an optimizer that cannot take such a step, and as `trace`.
    """
    framework = torch()
    if isinstance(optimizer, framework.optim.LBFGS):
        raise DocumentError(
            "LBFGS computes the loss several times in a step, and a step is planned once.",
            remedy="Use an optimizer that takes gradients as they are, such as AdamW.",
        )
    record = Recording(tensors, framework.random.get_rng_state())
    names = {id(tensor): key for key, tensor in tensors.items()}
    parameters = {key: x for key, x in tensors.items() if x.requires_grad and x.is_leaf}
    trained = [names[id(p)] for group in optimizer.param_groups for p in group["params"]]
    pairs = [record.fed(f"input{k}", x) for k, x in enumerate(inputs)]
    labels = [record.fed(f"target{k}", x) for k, x in enumerate(targets)]
    before = {key: p.grad for key, p in parameters.items()}

    def keep(old: Any, new: Any) -> bool:
        if record.is_own(old) and id(old) not in names:
            return False  # another name of a parameter's memory
        ours, theirs = record.view(old), record.view(new)
        copy_ = framework.ops.aten.copy_.default
        record.add(f"{ours.block}.copy", copy_, [ours, theirs], {}, [None], [ours], draws=False, flops=0)
        return True

    try:
        for p in parameters.values():
            p.grad = None
        with watched(watch, keep) as reads, record.running():
            output = module(*(tensor for tensor, _ in pairs))
            value = output if loss is None else loss(output, *(tensor for tensor, _ in labels))
            backward(value, accumulate)
        gradients = {key: record.view(p.grad) for key, p in parameters.items() if p.grad is not None}
        result = record.view(value)
    finally:
        for key, p in parameters.items():
            p.grad = before[key]
    if not any(key in gradients for key in trained):
        if any(parameters[key]._post_accumulate_grad_hooks for key in trained):
            raise DocumentError(
                "Hooks of parameters take their gradients in the backward pass, as optimizers in hooks do.",
                remedy="Remove the hooks of register_post_accumulate_grad_hook, and pass one optimizer of all"
                " parameters: the planned step reuses the bytes of each gradient after its update.",
            )
        raise DocumentError(
            "The optimizer updates no parameter of the module that requires a gradient.",
            remedy="Make the optimizer from module.parameters(), after what replaces them, such as"
            " load_state_dict(state, assign=True).",
        )
    whole = not updates_by_parameter(optimizer)
    if not whole and clip_grad_norm is None:
        gradients = {key: view for key, view in gradients.items() if key in trained}
    if accumulate > 1:
        gradients = {key: _accumulated(record, key, view) for key, view in gradients.items()}
    if clip_grad_norm is not None:
        _add(
            record,
            "clip_grad_norm",
            Clip(list(gradients.values()), clip_grad_norm),
            [],
            gradients.values(),
            True,
        )
    kept = _with_updates(record, tensors, optimizer, gradients, trained, whole, accumulate > 1)
    record.prune({result.block})
    fed = {view.block: view for _, view in (*pairs, *labels)}
    arguments = {key: view.placed(key) for key, view in (*record.known.items(), *fed.items())}
    traced = record.built(name or type(module).__name__, [result], ["[0]"], arguments)
    inside = {key: view for key, view in record.known.items() if view.block in traced.program.blocks}
    results = [view_of(place) for place in traced.results]
    return TracedTraining(traced, dict(tensors), inside, kept, record.outside, fed, results), reads


def _accumulated(record: Recording, key: str, gradient: View) -> View:
    """The sum of a gradient over steps, to which the step adds."""
    label, add = f"{key}@sum", torch().ops.aten.add_.Tensor
    empty = torch().empty_strided(gradient.shape, gradient.strides, dtype=gradient.dtype, device="meta")
    total = record.fresh(label, empty)
    record.add(f"{label}.add", add, [total, gradient], {}, [None], [total], draws=False, flops=0)
    record.lasting.add(label)
    return total


def _with_updates(
    record: Recording,
    tensors: Mapping[str, Any],
    optimizer: Any,
    gradients: Mapping[str, View],
    trained: Sequence[str],
    whole: bool,
    clears: bool,
) -> dict[tuple[str, str], View]:
    """Adds the updates, and returns the views of what the optimizer keeps."""
    updated = [key for key in trained if key in gradients]
    kept_views: dict[tuple[str, str], View] = {}
    for keys in [list(gradients)] if whole else [[key] for key in updated]:
        kept = _states_after_a_step(optimizer, {key: tensors[key] for key in keys}, gradients)
        parts = []
        for key in keys:
            views = {}
            for word, tensor in kept[key].items():
                label = f"{key}.{word}"
                views[word] = kept_views[key, word] = record.fresh(label, tensor)
                record.lasting.add(label)
            parts.append(Part(tensors[key], record.known[key], gradients[key], views))
        update = Update(optimizer, parts, whole, clears)
        writes = [view for part in parts for view in (part.weight, *part.kept.values())]
        name = f"{type(optimizer).__name__}.step" if whole else f"{keys[0]}.update"
        _add(record, name, update, writes, [part.gradient for part in parts], whole or clears)
    return kept_views


def _add(
    record: Recording, name: str, function: Any, writes: Sequence[View], gradients: Any, changes: bool
) -> None:
    """Add an operation that updates some blocks and reads gradients, which it may change."""
    updated = [view.block for view in writes if view.block]
    read = [view.block for view in gradients if view.block]
    kernel = type(function.optimizer).__name__ if isinstance(function, Update) else "clip_grad_norm_"
    touched = tuple(dict.fromkeys((*updated, *read)))
    written = touched if changes else tuple(dict.fromkeys(updated))
    record.operations.append(BlockOperation(name, touched, written, kernel))
    record.functions[name] = function


def _states_after_a_step(
    optimizer: Any, parameters: Mapping[str, Any], gradients: Mapping[str, View]
) -> dict[str, dict[str, Any]]:
    """The tensors that the optimizer keeps for parameters, as a step on copies of them leaves them."""
    framework = torch()
    memo = {}
    for key, p in parameters.items():
        own = memo[id(p)] = framework.nn.Parameter(p.detach().clone())
        view = gradients[key]
        own.grad = framework.empty_strided(view.shape, view.strides, dtype=p.dtype, device=p.device).fill_(
            1e-3
        )
    stand_ins = {key: memo[id(p)] for key, p in parameters.items()}
    twin = _copied(_narrowed(optimizer, list(parameters.values())), dict(memo))
    try:
        _stepped(twin)
    except Exception as error:
        raise DocumentError(
            f"{type(optimizer).__name__} cannot take a planned step: on copies of its parameters"
            f" {reason_of(error)}",
            remedy="Use an optimizer whose step() takes gradients as they are, such as AdamW.",
        ) from error
    device = next(iter(parameters.values())).device
    own_storages = {p.untyped_storage()._cdata for p in stand_ins.values()}
    return {
        key: {
            word: _dense(x)
            for word, x in twin.state.get(own, {}).items()
            if isinstance(x, framework.Tensor)
            and x.device == device
            and x.untyped_storage()._cdata not in own_storages
        }
        for key, own in stand_ins.items()
    }


def _dense(tensor: Any) -> Any:
    """A tensor on the device meta that is laid out alike and has a storage of its own."""
    return torch().empty_strided(tensor.shape, dense_strides(tensor), dtype=tensor.dtype, device="meta")


def _narrowed(optimizer: Any, tensors: Collection[Any]) -> Any:
    """The same optimizer with the same state, for some of its parameters, whose settings it has now."""
    own, ids = object.__new__(type(optimizer)), {id(tensor) for tensor in tensors}
    own.__dict__.update({key: value for key, value in vars(optimizer).items() if key != "step"})
    groups = [
        {**group, "params": [p for p in group["params"] if id(p) in ids]} for group in optimizer.param_groups
    ]
    own.param_groups = [group for group in groups if group["params"]]
    return own


def _copied(optimizer: Any, memo: dict[int, Any]) -> Any:
    """A copy without hooks, whose parameters and states are those of `memo`."""
    own = object.__new__(type(optimizer))
    state = {
        key: value
        for key, value in vars(optimizer).items()
        if not (key.startswith("_optimizer_") or key == "state")
    }
    ids = {id(p) for group in optimizer.param_groups for p in group["params"]}
    kept = {
        p: words for p, words in optimizer.state.items() if id(p) in ids or not isinstance(p, torch().Tensor)
    }
    own.__dict__.update(copy.deepcopy(state, memo))
    own.state = type(optimizer.state)(*([dict] if hasattr(optimizer.state, "default_factory") else []))
    own.state.update(copy.deepcopy(kept, memo))
    for hooks in ("step_pre", "step_post", "state_dict_pre", "state_dict_post"):
        setattr(own, f"_optimizer_{hooks}_hooks", OrderedDict())
    return own


def _stepped(optimizer: Any) -> None:
    """A step without the hooks of all optimizers."""
    module = sys.modules["torch.optim.optimizer"]
    with (
        patch.object(module, "_global_optimizer_pre_hooks", OrderedDict()),
        patch.object(module, "_global_optimizer_post_hooks", OrderedDict()),
    ):
        optimizer.step()
