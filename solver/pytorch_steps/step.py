"""A training step of PyTorch in one planned tensor, the slab: weights and everything else that a step needs.

    step = arenaplan.torch.train_step(module, loss, optimizer, (images, labels), capacity="2 GB")
    for images, labels in loader:
        value = step(images, labels)

PyTorch's kernels run in the planned order, on views of the slab. The parameters and buffers of the module,
and what the optimizer keeps, are such views from then on: `module.state_dict()`, an evaluation of the module
and checkpoints see what the step has learned.

A step is a record of one call. A watch says what the record depends on; if some of it has changed, the step
is recorded anew, and what the module and the optimizer hold moves from the old slab to the new one.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn, cast
from weakref import WeakValueDictionary

from solver import documents
from solver.errors import BatchError, CapacityError, DocumentError, OptionsError, PlanError
from solver.executor import validate
from solver.importers.pytorch.calls import GENERATOR, Call, Runs, View, outside_bytes
from solver.importers.pytorch.capture import check_type, one_at_a_time
from solver.importers.traced import TracedStep
from solver.pipeline import plan_requested, reference_of
from solver.plan import Plan
from solver.pytorch_steps.guards import Watch
from solver.pytorch_steps.recording import dense_strides
from solver.pytorch_steps.training import Clip, TracedTraining, Update, backward, settle, trace_training
from solver.reports.validation import StepReport, ValidationReport

__all__ = ["StepValidation", "TrainStep"]

#: Bytes: the slab begins at a multiple of it.
_ALIGNMENT = 64

#: The most records of a step: what changes in each call would fill the memory with records.
MAX_RECORDS = 8

#: Memory that steps have given to tensors, by address and tensor: another step may take these over.
_HOMES: WeakValueDictionary[tuple[int, int], Any] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class StepValidation(ValidationReport):
    """The proof of the plan, and a comparison of the step with eager PyTorch on the same tensors.

    `largest_difference` is the largest one of an element of a parameter, a buffer or an optimizer's tensor.
    """

    largest_difference: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class _Record:
    """One recording of the step with its plan, and what it depends on."""

    training: TracedTraining
    plan: Plan
    outside_bytes: int
    into_place: Collection[str]
    watch: Watch
    strides: tuple[tuple[int, ...], ...]
    names: Mapping[str, Any]

    @property
    def sums(self) -> list[str]:
        """Blocks of gradients that are summed over calls."""
        return [name for name in self.training.traced.program.blocks if name.endswith("@sum")]


class TrainStep:
    """A training step in memory that it owns; a call is one iteration.

    `plan` is the plan of the `slab`. PyTorch allocates `outside_bytes` besides, at most, while a kernel runs:
    `planned_bytes` are both.
    """

    slab: Any
    plan: Plan
    outside_bytes: int

    def __init__(
        self,
        module: Any,
        loss: Callable[..., Any] | None,
        optimizer: Any,
        example: Sequence[Any],
        *,
        capacity: int | str | None = None,
        clip_grad_norm: float | None = None,
        accumulate: int = 1,
        name: str | None = None,
    ) -> None:
        """Records the step and moves the tensors of module and optimizer into the slab, on their device."""
        import torch

        check_type("module", module, torch.nn.Module)
        check_type("optimizer", optimizer, torch.optim.Optimizer)
        if any(torch.nn.parameter.is_lazy(x) for _, x in _tensors_of(module)):
            raise DocumentError(
                f"{type(module).__name__} has parameters whose shapes are not known yet.",
                remedy="Call the module once before the optimizer and the step are made.",
            )
        if clip_grad_norm is not None and not clip_grad_norm > 0:
            raise OptionsError(
                f"Gradients cannot be clipped to a norm of {clip_grad_norm}.",
                remedy="Give the largest norm of all gradients together, such as 1.0.",
                path=("clip_grad_norm",),
            )
        if accumulate < 1:
            raise OptionsError(
                f"The step is to add up the gradients of {accumulate} calls.",
                remedy="Give the number of calls for each update, 1 or more.",
                path=("accumulate",),
            )
        self._module, self._loss, self._optimizer = module, loss, optimizer
        self._capacity, self._name = capacity, name
        self._clip, self._accumulate, self._calls = clip_grad_norm, accumulate, 0
        self._lock = threading.RLock()
        self._records: list[_Record] = []
        self._record: _Record
        self._homes: list[tuple[str, Any, Any]] = []
        self._generator = torch.random.default_generator.get_state()
        self._sums: dict[str, Any] = {}
        names = [f"input{k}" for k in range(len(example))]
        self._names = names if loss is None else [*names[:-1], "target0"]
        self._types = [_type_text(x) for x in example]
        self._bind(self._recorded(example))
        for tensor in self._trained:
            tensor.grad = None

    @property
    def planned_bytes(self) -> int:
        """The most bytes that PyTorch has allocated at any time, batches and results apart."""
        return self.plan.arena_bytes + self.outside_bytes

    def __call__(self, *batch: Any) -> Any:
        """One iteration on the inputs, then the targets: the loss.

        Records the step anew if something that the record depends on has changed, up to `MAX_RECORDS` times.
        Raises BatchError for tensors that the step was not made for, PlanError if a tensor of the module or
        of the optimizer is no longer the one in the slab, or if a value changes in each call, and what making
        a step raises.
        """
        import torch

        self._check_batch(batch)
        if not torch.is_grad_enabled() or torch.is_inference_mode_enabled():
            raise PlanError(
                "The step is called without gradients, under no_grad or inference_mode.",
                remedy="Call it outside; to evaluate, call the module.",
            )
        with self._lock:
            record = self._record
            holds = record.watch.holds()
            self._check_memory(holds)
            self._check_gradients()
            if not holds or record.strides != tuple(dense_strides(x) for x in batch):
                self._bind(self._suitable(batch))
            self._take_over()
            return self._run(batch)

    def _run(self, batch: Sequence[Any]) -> Any:
        """One iteration in the slab."""
        import torch

        generator = torch.random.default_generator
        if self._draws:
            self._state_of_generator().copy_(generator.get_state())
        self._calls += 1
        due = self._calls % self._accumulate == 0
        with torch.no_grad():
            for place, tensor in zip(self._fed, batch, strict=True):
                place.copy_(tensor)
            for task, only_due in self._tasks:
                if due or not only_due:
                    task()
            results = [result.clone() for result in self._results]
        if self._draws:
            generator.set_state(self._state_of_generator().cpu().clone())
        for tensor in self._trained:
            tensor.grad = _taken(tensor)
        if self._absent:
            absent = set(self._absent)
            keys = {(id(x), word) for _, x, word, _ in self._kept if self._kept_tensor(x, word) is None}
            self._absent &= keys
            begun = {key for key, _ in absent - self._absent}
            order = {id(p): k for k, p in enumerate(self._updated) if id(p) in begun}
            state = sorted(self._optimizer.state.items(), key=lambda item: order.get(id(item[0]), -1))
            self._optimizer.state.clear()
            self._optimizer.state.update(state)
        results = [
            _without_backward()(result) if result.is_floating_point() else result for result in results
        ]
        return results[0] if len(results) == 1 else tuple(results)

    def _check_batch(self, batch: Sequence[Any]) -> None:
        if len(batch) != len(self._names):
            raise BatchError(
                f"The step takes {len(self._names)} tensors, {', '.join(self._names)};"
                f" here are {len(batch)}.",
                remedy="Give the inputs and then the targets, as in the example.",
            )
        for name, type_, tensor in zip(self._names, self._types, batch, strict=True):
            if _type_text(tensor) != type_:
                raise BatchError(
                    f"{name!r} is {_type_text(tensor)}; the step was made for {type_}.",
                    remedy="Give tensors of the example's shapes, or make another step of the same module and"
                    " optimizer; both can be called in turn.",
                )

    def _check_gradients(self) -> None:
        for tensor in self._trained:
            if tensor.grad is not None and not isinstance(tensor.grad, _taken_type()):
                raise PlanError(
                    f"A parameter of shape {list(tensor.shape)} has a gradient from elsewhere, which the step"
                    " would not add.",
                    remedy="Call optimizer.zero_grad() before, or train_step(..., accumulate=k) to add up"
                    " gradients of several batches.",
                )

    def _suitable(self, batch: Sequence[Any]) -> _Record:
        """The record whose guards hold; a new one if there is none."""
        strides = tuple(dense_strides(x) for x in batch)
        for record in self._records:
            if record.strides == strides and record.watch.holds():
                return record
        change = next(self._record.watch.changes(), None)
        if len(self._records) >= MAX_RECORDS:
            raise PlanError(
                f"The step was recorded {MAX_RECORDS} times, and again {change or 'the strides of a batch'}"
                f"{'' if change else ' changed'}.",
                remedy="Keep a number that changes in each step as a buffer, and write it in place:"
                " module.register_buffer('beta', torch.zeros(())), then module.beta.fill_(0.5).",
            )
        return self._recorded(batch)

    @one_at_a_time
    def _recorded(self, batch: Sequence[Any]) -> _Record:
        """A new record for the state that module, loss and optimizer are in now."""
        watch = Watch(self._module, self._loss, self._optimizer)
        tensors = _tensors(watch, self._module, self._optimizer)
        inputs, targets = (batch, ()) if self._loss is None else (batch[:-1], batch[-1:])
        training, reads = trace_training(
            watch,
            tensors,
            self._module,
            inputs,
            loss=self._loss,
            targets=targets,
            optimizer=self._optimizer,
            clip_grad_norm=self._clip,
            accumulate=self._accumulate,
            name=self._name,
        )
        plan, outside, into_place = _planned(training.traced, self._capacity)
        after = Watch(self._module, self._loss, self._optimizer, reads)
        strides = tuple(dense_strides(x) for x in batch)
        names = dict(_tensors_of(self._module))
        record = _Record(training, plan, outside, into_place, after, strides, names)
        self._records.append(record)
        return record

    def _bind(self, record: _Record) -> None:
        """Make the slab of a record, and move module and optimizer into it."""
        import torch

        training, traced = record.training, record.training.traced
        if self._homes:
            self._leave()
        self._record, self.plan, self.outside_bytes = record, record.plan, record.outside_bytes
        device = next((x.device for x in training.tensors.values()), torch.device("cpu"))
        whole = torch.zeros(self.plan.arena_bytes + _ALIGNMENT, dtype=torch.uint8, device=device)
        start = -whole.data_ptr() % _ALIGNMENT
        self.slab = whole[start : start + self.plan.arena_bytes]
        self._storages: dict[str, Any] = {}
        homes = {name: self._alone(view) for name, view in training.homes.items()}
        kept = {key: self._alone(view) for key, view in training.kept.items()}
        self._homes = [(name, training.tensors[name], home) for name, home in homes.items()]
        self._kept = [(name, training.tensors[name], word, home) for (name, word), home in kept.items()]
        self._addresses = {id(home): home.data_ptr() for home in (*homes.values(), *kept.values())}
        keys = [(tensor, word) for _, tensor, word, _ in self._kept]
        self._absent = {(id(x), word) for x, word in keys if self._kept_tensor(x, word) is None}
        self._outside = training.outside
        self._trained = [
            tensor for tensor in training.tensors.values() if tensor.requires_grad and tensor.is_leaf
        ]
        self._updated = [p for group in self._optimizer.param_groups for p in group["params"]]
        self._take_over()
        self._state_of_generator().copy_(self._generator)
        for name in record.sums:
            if name in self._sums:
                self._bytes_of(self.plan.program.by_label[name]).copy_(self._sums.pop(name))
        if any(bool(total.any()) for total in self._sums.values()):
            raise PlanError(
                f"{next(iter(self._sums)).removesuffix('@sum')!r} gets no gradient any more, while gradients"
                " add up.",
                remedy="Change what is trained after an update: at every k-th call with accumulate=k.",
            )
        self._sums = {}
        self._draws = any(isinstance(f, Call) and f.draws for f in traced.functions.values())
        self._tasks = list(self._bound(traced, record, kept))
        self._fed = [self._named(view) for view in training.fed.values()]
        self._results = [self._named(view) for view in training.results]

    def _leave(self) -> None:
        """Copy what module and optimizer hold out of the slab, whose memory is freed."""
        for _, tensor, home in self._homes:
            if tensor.data_ptr() == home.data_ptr():
                tensor.data = tensor.data.clone()
        for _, tensor, word, home in self._kept:
            if self._kept_tensor(tensor, word) is home:
                self._optimizer.state[tensor][word] = home.clone()
        self._generator = self._state_of_generator().clone()
        by_label = self.plan.program.by_label
        self._sums = {name: self._bytes_of(by_label[name]).clone() for name in self._record.sums}
        self._homes, self._kept, self._tasks, self._fed, self._results = [], [], [], [], []
        self._storages = {}
        del self.slab

    def _take_over(self) -> None:
        """Move tensors of module and optimizer that are not in the slab yet into it."""
        import torch

        with torch.no_grad():
            for _, tensor, home in self._homes:
                if tensor.data_ptr() != home.data_ptr():
                    home.copy_(tensor)
                    tensor.data = home
                    _HOMES[home.data_ptr(), id(tensor)] = home
            for _, tensor, word, home in self._kept:
                kept = self._kept_tensor(tensor, word)
                if kept is not None and kept is not home:
                    settle(self._optimizer.state[tensor], {word: home})
                _HOMES[home.data_ptr(), id(tensor)] = home

    def _kept_tensor(self, tensor: Any, word: str) -> Any:
        """What the optimizer keeps for a parameter; None if it has not begun to."""
        return self._optimizer.state[tensor].get(word) if tensor in self._optimizer.state else None

    def _check_memory(self, holds: bool) -> None:
        """Raises PlanError for a tensor of module or optimizer that has left the memory of steps."""
        for name, tensor, home in self._homes:
            address = tensor.data_ptr()
            if address != self._addresses[id(home)] and (address, id(tensor)) not in _HOMES:
                raise _left(name, "module")
        names = {} if holds else self._record.names
        for name, tensor in _tensors_of(self._module) if names else ():
            if names.get(name, tensor) is not tensor:
                raise _left(name, "module")
        for name, tensor, word, home in self._kept:
            kept = self._kept_tensor(tensor, word)
            if kept is home and home.data_ptr() == self._addresses[id(home)]:
                continue
            if kept is None and (id(tensor), word) in self._absent:
                continue
            if kept is None or (kept.data_ptr(), id(tensor)) not in _HOMES:
                raise _left(f"{name}.{word}", "optimizer")

    def validate(self, steps: int = 1, batch: Sequence[Any] | None = None) -> StepValidation:
        """The proof of the plan, and a comparison with eager PyTorch for a number of iterations on a batch.

        By default the batch has numbers from 0 to 1, and zeros where it takes whole numbers. The plan is run
        in memory of its own, as `arenaplan.validate` does. Then the step trains the module, and so does eager
        PyTorch; what they change in module and optimizer is put back each time. Raises PlanError that
        names an operation which counts as pure, so that it may run again, and whose second run leaves other
        bits. Memory: that of an eager step besides, and what module and optimizer hold three times.
        """
        import torch

        traced, by_label = self._record.training.traced, self.plan.program.by_label
        values = {}
        for name, block in traced.program.blocks.items():
            if not block.fed and name in by_label:
                raw = self._bytes_of(by_label[name])
                if name in self._outside:
                    raw = torch.empty(0, dtype=torch.uint8, device=raw.device)
                    raw.set_(self._outside[name].untyped_storage())
                values[name] = raw.cpu().numpy().view(block.type.dtype.numpy).reshape(block.type.shape)
        functions = {name: replace(cast("Runs", f)) for name, f in traced.functions.items()}
        own = replace(traced, values=values, functions=cast("Mapping[str, Callable[[Any], None]]", functions))
        inner = validate(own, self.plan, steps=steps)
        generator = torch.Generator().manual_seed(0)
        if batch is None:
            batch = [_synthetic(place, generator) for place in self._fed]
        with self._lock, self._put_back():
            self._check_batch(batch)
            ours, ours_left = self._trained_by(self.__call__, batch, steps)
        with self._lock, self._put_back():
            theirs, theirs_left = self._trained_by(self._eager, batch, steps)
        differences = {
            name: _difference(ours_left[name], x) if name in ours_left else math.inf
            for name, x in theirs_left.items()
            if name not in ours_left or not _are_equal(ours_left[name], x)
        }
        reports = []
        for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            differing = tuple(differences) if k == steps - 1 else ()
            same = _are_equal(a, b) and not differing
            reports.append(StepReport(k + 1, float(a), float(b), same, differing))
        return StepValidation(
            tuple(reports),
            inner.violations,
            inner.identical and all(report.identical for report in reports),
            inner.compared + len(theirs_left),
            inner.arena_bytes,
            largest_difference=max(differences.values(), default=0.0),
        )

    def _trained_by(
        self, step: Callable[..., Any], batch: Sequence[Any], steps: int
    ) -> tuple[list[Any], dict[str, Any]]:
        """(Losses of some steps, all tensors of module and optimizer then)."""
        losses = [step(*batch).detach() for _ in range(steps)]
        tensors = _tensors(self._record.watch, self._module, self._optimizer)
        left = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        for name, tensor in tensors.items():
            for word, kept in self._optimizer.state.get(tensor, {}).items():
                if hasattr(kept, "detach"):
                    left[f"{name}.{word}"] = kept.detach().clone()
        return losses, left

    def _eager(self, *batch: Any) -> Any:
        """The step as eager PyTorch makes it, on the same tensors."""
        import torch

        parameters = [p for p in self._trained if p.requires_grad]
        if self._calls % self._accumulate == 0:
            for p in parameters:
                p.grad = None
        inputs = batch if self._loss is None else batch[:-1]
        output = self._module(*inputs)
        loss = output if self._loss is None else self._loss(output, batch[-1])
        backward(loss, self._accumulate)
        self._calls += 1
        if self._calls % self._accumulate == 0:
            if self._clip is not None:
                torch.nn.utils.clip_grad_norm_(parameters, self._clip)
            self._optimizer.step()
        return loss.detach()

    @contextmanager
    def _put_back(self) -> Iterator[None]:
        """Training within begins without gradients; all that it changes is put back at the end."""
        import torch

        generator = torch.random.default_generator
        optimizer, calls, others = self._optimizer, self._calls, generator.get_state()
        by_label = self.plan.program.by_label
        tensors = [
            *self._record.training.tensors.values(),
            *self._outside.values(),
            self._state_of_generator(),
        ]
        sums = [self._bytes_of(by_label[name]) for name in self._record.sums]
        words = [(kept, dict(kept)) for kept in optimizer.state.values() if isinstance(kept, dict)]
        tensors += [*sums, *(x for _, kept in words for x in kept.values() if hasattr(x, "untyped_storage"))]
        dicts = [
            (own, dict(own))
            for module in self._record.watch.modules.values()
            for own in (vars(module), module._buffers)
        ]
        dicts += [(group, dict(group)) for group in optimizer.param_groups]
        state, absent = dict(optimizer.state), set(self._absent)
        copies = [(tensor, tensor.detach().clone()) for tensor in tensors]
        gradients = [(p, p.grad) for p in self._trained]
        self._calls = 0
        generator.set_state(self._state_of_generator().cpu().clone())
        for total in sums:
            total.zero_()
        try:
            yield
        finally:
            optimizer.state.clear()
            optimizer.state.update(state)
            for own, content in (*words, *dicts):
                own.clear()
                own.update(content)
            for tensor, copy in copies:
                tensor.detach().copy_(copy)
            for p, gradient in gradients:
                p.grad = gradient
            self._calls, self._absent = calls, absent
            generator.set_state(others)

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise PlanError(
            "A step cannot be copied or pickled: it owns the memory of its module and optimizer.",
            remedy="Copy or save module and optimizer, and make another step of them.",
        )

    def _bound(
        self, traced: TracedStep, record: _Record, kept: Mapping[tuple[str, str], Any]
    ) -> Iterator[tuple[Callable[[], Any], bool]]:
        """For each step of the plan a function on views of the slab, and whether only an update runs it."""
        program, reference = self.plan.program, reference_of(traced.program, self.plan.options)
        names = {id(tensor): name for name, tensor in record.training.tensors.items()}
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
            function = traced.functions[name]
            if isinstance(function, Update):
                homes = [
                    {word: kept[names[id(part.tensor)], word] for word in part.kept}
                    for part in function.parts
                ]
                yield function.of_module(tensor_of, homes), self._accumulate > 1
            else:
                bound = cast("Runs", function).bound(tensor_of, into_place=name in record.into_place)
                yield bound, self._accumulate > 1 and isinstance(function, Clip)

    def _named(self, view: View) -> Any:
        return self._within(view, self.plan.program.by_label)

    def _alone(self, view: View) -> Any:
        """The tensor of a view whose storage is its block alone, so that a file of it has no other bytes."""
        import torch

        if view.block not in self.plan.program.by_label:
            return self._named(view)
        if view.block not in self._storages:
            raw = self._bytes_of(self.plan.program.by_label[view.block])
            self._storages[view.block] = torch.from_dlpack(raw)
        return view.within(self._storages[view.block])

    def _within(self, view: View, number: Mapping[str, int]) -> Any:
        """The tensor of a view in the slab, or outside; one of its own if it has no elements, or if no step
        touches it.
        """
        if view.block in self._outside:
            storage = self._outside[view.block].untyped_storage()
            place = self.slab.new_empty(0, dtype=view.dtype)
            return view.lazily(place.set_(storage, view.start, view.shape, view.strides))
        if view.block not in number:
            return self.slab.new_empty(0).view(view.dtype).new_zeros(view.shape)
        return view.within(self._bytes_of(number[view.block]))

    def _state_of_generator(self) -> Any:
        by_label = self.plan.program.by_label
        return self._bytes_of(by_label[GENERATOR]) if GENERATOR in by_label else self._generator

    def _bytes_of(self, value: int) -> Any:
        offset = self.plan.offsets[value]
        return self.slab[offset : offset + self.plan.program.values[value].type.nbytes]


def _planned(traced: TracedStep, capacity: int | str | None) -> tuple[Plan, int, Collection[str]]:
    """(Plan, bytes that PyTorch allocates besides, calls that write into their places) within a capacity.

    Raises what planning raises: CapacityError if nothing was found that fits.
    """
    outside, into_place = outside_bytes(traced)
    asked = documents.load_options({"capacity": capacity})
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
    return plan_requested(traced.program, asked), outside, into_place


def _tensors(watch: Watch, module: Any, optimizer: Any) -> dict[str, Any]:
    """Parameters and buffers of all modules that the step reaches and of the optimizer, by name."""
    named = [*module.named_parameters(), *module.named_buffers()]
    inside = {id(part) for part in module.modules()}
    for path, other in watch.modules.items():
        if id(other) not in inside:
            pairs = [*other.named_parameters(recurse=False), *other.named_buffers(recurse=False)]
            named += [(f"{path}.{name}", tensor) for name, tensor in pairs]
    for k, group in enumerate(optimizer.param_groups):
        named += [(f"param_groups[{k}][{i}]", tensor) for i, tensor in enumerate(group["params"])]
    by_id: dict[int, tuple[str, Any]] = {}
    for name, tensor in named:
        by_id.setdefault(id(tensor), (name, tensor))
    return dict(by_id.values())


def _tensors_of(module: Any) -> Iterator[tuple[str, Any]]:
    """Parameters and buffers of a module as it is now, by each of their names."""
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)


def _left(name: str, owner: str) -> PlanError:
    remedy = (
        "Make another step, with an optimizer of the module as it is now. What only copies into tensors keeps"
        " the step: module.load_state_dict(state) without assign=True."
        if owner == "module"
        else "Make another step after optimizer.load_state_dict and the like."
    )
    return PlanError(
        f"{name!r} of the {owner} has left the memory of the step, which would not see it.", remedy=remedy
    )


def _are_equal(a: Any, b: Any) -> bool:
    return bool(((a == b) | ((a != a) & (b != b))).all())


def _difference(a: Any, b: Any) -> float:
    """The largest difference of two elements."""
    wide = "cdouble" if a.is_complex() else "double"
    return float((getattr(a, wide)() - getattr(b, wide)()).abs().nan_to_num().max())


def _synthetic(place: Any, generator: Any) -> Any:
    """Numbers from 0 to 1, or zeros of a type without fractions."""
    import torch

    if not place.dtype.is_floating_point:
        return torch.zeros_like(place)
    return torch.rand(place.shape, generator=generator).to(place)


def _type_text(tensor: Any) -> str:
    return f"{tensor.dtype}{list(tensor.shape)}" if hasattr(tensor, "dtype") else f"a {type(tensor).__name__}"


@functools.cache
def _taken_type() -> Any:
    """The type of a gradient whose memory the step has used for something else: whoever reads it is told."""
    import torch

    harmless = ("detach", "detach_", "zero_", "_foreach_zero_", "_to_copy", "clone", "alias")

    class TakenGradient(torch.Tensor):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        def __repr__(self, **_: Any) -> str:
            return "TakenGradient()"

        def share_memory_(self) -> Any:
            return self

        @classmethod
        def __torch_dispatch__(cls, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            del types
            if function.overloadpacket.__name__ not in harmless:
                raise PlanError(
                    "The gradients of a planned step are gone when it returns: its optimizer has taken them.",
                    remedy="Use train_step(..., clip_grad_norm=1.0) in place of clip_grad_norm_, and"
                    " train_step(..., accumulate=4) to add up gradients; call no optimizer.step() of your"
                    " own, and optimizer.zero_grad() before a backward pass of your own.",
                )
            first = arguments[0]
            return None if isinstance(first, list) else _taken(first, dtype=(named or {}).get("dtype"))

    return TakenGradient


@functools.cache
def _without_backward() -> Callable[[Any], Any]:
    """A function that gives a result of a step, which requires a gradient as eager PyTorch's does: its
    `backward` raises PlanError, since the step has run it.
    """
    import torch

    class Result(torch.autograd.Function):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        @staticmethod
        def forward(context: Any, result: Any, parent: Any) -> Any:
            del context, parent
            return result

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            raise PlanError(
                "The backward pass of a planned step has run when it returns, and its optimizer, too.",
                remedy="Leave out loss.backward(), scaler.scale(loss).backward() and optimizer.step();"
                " train_step(..., clip_grad_norm=1.0, accumulate=4) clips gradients and adds up those of"
                " several batches.",
            )

    parent = torch.zeros((), requires_grad=True)
    return lambda result: Result.apply(result, parent)


def _taken(tensor: Any, dtype: Any = None) -> Any:
    import torch

    return torch.Tensor._make_wrapper_subclass(
        _taken_type(), tensor.shape, tensor.stride(), dtype=dtype or tensor.dtype, device=tensor.device
    )
