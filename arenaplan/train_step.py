"""A training step of PyTorch in one planned tensor, the slab: weights and everything else that a step needs.

    step = arenaplan.torch.train_step(module, loss, optimizer, (images, labels), capacity="2 GB")
    for images, labels in loader:
        value = step(images, labels)

PyTorch's kernels run in the planned order, on views of the slab. The parameters and buffers of the module,
and what the optimizer keeps, are such views from then on: `module.state_dict()`, an evaluation of the module
and checkpoints see what the step has learned.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from arenaplan.choices import requested
from solver.errors import BatchError, CapacityError, PlanError
from solver.executor import validate
from solver.importers.pytorch.allocations import Runs, outside_bytes
from solver.importers.pytorch.calls import View
from solver.importers.pytorch.program import view_of
from solver.importers.pytorch.training import TracedTraining
from solver.importers.traced import TracedStep
from solver.pipeline import plan_requested, reference_of
from solver.plan import Plan, ValidationReport

__all__ = ["TrainStep", "in_slab"]

#: Bytes: the slab begins at a multiple of it.
_ALIGNMENT = 64


def in_slab(training: TracedTraining, module: Any, optimizer: Any, capacity: int | str | None) -> TrainStep:
    """The step within a capacity, of which the slab gets what PyTorch does not allocate besides.

    Raises what planning raises: CapacityError where nothing was found that fits.
    """
    outside, into_place = outside_bytes(training.traced)
    asked = requested(None, {"capacity": capacity})
    within = asked.options.capacity
    if within is not None:
        if within <= outside:
            raise CapacityError(
                f"PyTorch's kernels allocate up to {outside:,} bytes by themselves; the capacity is"
                f" {within:,}.",
                remedy="Raise the capacity, or reduce the batch.",
                required=outside + 1,
                available=within,
                live_at_peak=[],
                path=("capacity",),
            )
        asked = replace(asked, options=replace(asked.options, capacity=within - outside))
    plan = plan_requested(training.traced.program, asked)
    return TrainStep(training, plan, module, optimizer, outside, into_place)


class TrainStep:
    """A training step in memory that it owns; a call is one iteration.

    `plan` is the plan of the `slab`. PyTorch allocates `outside_bytes` besides, at most, while a kernel runs:
    `planned_bytes` are both.
    """

    def __init__(
        self,
        training: TracedTraining,
        plan: Plan,
        module: Any,
        optimizer: Any,
        outside: int,
        into_place: Collection[str],
    ) -> None:
        """Moves the tensors of module and optimizer into the slab, which is on the device of the module."""
        import torch

        traced = training.traced
        named = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        self._module, self._optimizer, self._traced = module, optimizer, traced
        device = next((tensor.device for tensor in named.values()), torch.device("cpu"))
        whole = torch.zeros(plan.arena_bytes + _ALIGNMENT, dtype=torch.uint8, device=device)
        start = -whole.data_ptr() % _ALIGNMENT
        self.slab = whole[start : start + plan.arena_bytes]
        self.plan, self.outside_bytes = plan, outside
        for name, values in traced.values.items():
            if name in plan.program.by_label:
                flat = torch.from_numpy(values).reshape(-1).view(torch.uint8)
                self._bytes_of(plan.program.by_label[name]).copy_(flat)
        self._tasks = self._bound(traced, into_place)
        self._fed = {
            name: self._named(view_of(place)) for name, place in traced.arguments.items() if name not in named
        }
        self._results = [self._named(view_of(place)) for place in traced.results]
        ours = set[int]()
        for name, tensor in named.items():
            place = traced.arguments.get(name)
            if place is not None and place.block in plan.program.by_label:
                tensor.data = self._alone(view_of(place))
                ours.add(id(tensor))
        #: The addresses where tensors must stay: by all of their names, and by parameter and word.
        self._addresses = {name: x.data_ptr() for name, x in _tensors_of(module) if id(x) in ours}
        self._kept_addresses: dict[tuple[str, str], int] = {}
        for (name, word), view in training.kept.items():
            tensor = optimizer.state[named[name]][word] = self._alone(view)
            self._kept_addresses[name, word] = tensor.data_ptr()

    @property
    def planned_bytes(self) -> int:
        """The most bytes that PyTorch has allocated at any time, batches and results apart."""
        return self.plan.arena_bytes + self.outside_bytes

    def __call__(self, *batch: Any) -> Any:
        """One iteration on the inputs, then the targets: the loss, or what else the loss function returns.

        Raises BatchError for tensors that the step was not made for, PlanError where a tensor of the module
        or of the optimizer is no longer the one in the slab.
        """
        import torch

        if len(batch) != len(self._fed):
            raise BatchError(
                f"The step takes {len(self._fed)} tensors, {', '.join(self._fed)}; here are {len(batch)}.",
                remedy="Give the inputs and then the targets, as in the example.",
            )
        for (name, place), tensor in zip(self._fed.items(), batch, strict=True):
            if _type_text(tensor) != _type_text(place):
                raise BatchError(
                    f"{name!r} is {_type_text(tensor)}; the step was made for {_type_text(place)}.",
                    remedy="Give tensors of the example's shapes, or make another step.",
                )
        self._check_memory()
        with torch.no_grad():
            for place, tensor in zip(self._fed.values(), batch, strict=True):
                place.copy_(tensor)
            for task in self._tasks:
                task()
            results = [result.clone() for result in self._results]
        return results[0] if len(results) == 1 else tuple(results)

    def _check_memory(self) -> None:
        """Raises PlanError for a tensor of the module or of the optimizer that has left the slab."""
        named = dict(_tensors_of(self._module))
        for name, address in self._addresses.items():
            if name not in named or named[name].data_ptr() != address:
                raise PlanError(
                    f"{name!r} of the module has left the memory of the step, which would not see it.",
                    remedy="Make another step, with an optimizer of the module as it is now. What only copies"
                    " into tensors keeps the step: module.load_state_dict(state) without assign=True.",
                )
        for (name, word), address in self._kept_addresses.items():
            tensor = self._optimizer.state.get(named[name], {}).get(word)
            if tensor is None or tensor.data_ptr() != address:
                raise PlanError(
                    f"{f'{name}.{word}'!r} of the optimizer has left the memory of the step, which would not"
                    " see it.",
                    remedy="Make another step after optimizer.load_state_dict and the like.",
                )

    def validate(self, steps: int = 1) -> ValidationReport:
        """The report of `arenaplan.validate` on the step, for a number of iterations on synthetic batches.

        They run in memory of their own, and change nothing here. Raises PlanError that names an operation
        which counts as pure, so that it may run again, and whose second run leaves other bits.
        """
        functions = {name: replace(cast("Runs", f)) for name, f in self._traced.functions.items()}
        own = replace(self._traced, functions=cast("Mapping[str, Callable[[Any], None]]", functions))
        return validate(own, self.plan, steps=steps)

    def _bound(self, traced: TracedStep, into_place: Collection[str]) -> list[Callable[[], Any]]:
        """A function for each step of the plan, whose tensors are views of the slab."""
        program, reference = self.plan.program, reference_of(traced.program, self.plan.options)
        tasks = []
        for step in program.steps:
            assert step.reference is not None  # one memory: nothing is copied
            bindings = reference.steps[step.reference].bindings
            number: Mapping[str, int] = {
                reference.values[theirs.value].label: ours.value
                for ours, theirs in zip(step.bindings, bindings, strict=True)
            }

            def tensor_of(view: View, number: Mapping[str, int] = number) -> Any:
                return self._within(view, number)

            name = program.operations[step.operation].operation.id
            tasks.append(cast("Runs", traced.functions[name]).bound(tensor_of, into_place=name in into_place))
        return tasks

    def _named(self, view: View) -> Any:
        return self._within(view, self.plan.program.by_label)

    def _alone(self, view: View) -> Any:
        """The tensor of a view whose storage is its block alone, so that a file of it has no other bytes."""
        import torch

        if view.block not in self.plan.program.by_label:
            return self._named(view)
        return view.within(torch.from_dlpack(self._bytes_of(self.plan.program.by_label[view.block])))

    def _within(self, view: View, number: Mapping[str, int]) -> Any:
        """The tensor of a view in the slab; one of its own without elements, or that no step touches."""
        if view.block not in number:
            return self.slab.new_empty(0).view(view.dtype).new_zeros(view.shape)
        return view.within(self._bytes_of(number[view.block]))

    def _bytes_of(self, value: int) -> Any:
        offset = self.plan.offsets[value]
        return self.slab[offset : offset + self.plan.program.values[value].type.nbytes]


def _tensors_of(module: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and buffers of a module as it is now, by each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _type_text(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}" if hasattr(tensor, "dtype") else f"a {type(tensor).__name__}"
