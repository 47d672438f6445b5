"""Budgets of `torch.compile`: no more bytes than promised, the same numbers, and refusals."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import arenaplan
from solver.errors import CapacityError, DocumentError, OptionsError
from tests.support.every import some

pytestmark = pytest.mark.parity


@pytest.fixture(autouse=True)
def compiled_anew() -> Iterator[None]:
    """Nothing is read from a cache; and two threads, as on one convolutions allocate scratch of their own."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch._dynamo.reset()
    with (
        torch._inductor.config.patch(fx_graph_cache=False),
        torch._functorch.config.patch(enable_autograd_cache=False),
    ):
        yield
    torch._dynamo.reset()
    torch.set_num_threads(threads)


def language_model() -> tuple[Any, tuple[Any, ...]]:
    """A module that returns its loss, and its arguments."""
    import torch
    from torch import nn

    from tests.support.pytorch_models import Gpt

    class Loss(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = Gpt(words=60, width=32, length=24)

        def forward(self, index: Any, target: Any) -> Any:
            output = self.model(index)
            return nn.functional.cross_entropy(output.view(-1, output.shape[-1]), target.view(-1))

    torch.manual_seed(0)
    index = torch.randint(0, 60, (8, 24))
    return Loss(), (index, index.roll(-1, 1))


def image_model() -> tuple[Any, tuple[Any, ...]]:
    """Convolutions with batch norm and dropout: statistics that the forward pass updates, random numbers."""
    import torch
    from torch import nn

    class Loss(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
            blocks = (
                nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Dropout(0.1))
                for _ in range(4)
            )
            self.blocks = nn.ModuleList(blocks)
            self.last = nn.Linear(16, 10)

        def forward(self, images: Any, labels: Any) -> Any:
            x = self.first(images)
            for block in self.blocks:
                x = x + block(x)
            return nn.functional.cross_entropy(self.last(x.mean((2, 3))), labels)

    torch.manual_seed(0)
    return Loss(), (torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,)))


def tower() -> tuple[Any, tuple[Any, ...]]:
    """The network of the page on half the memory, with few kinds of loops for inductor to compile."""
    import torch
    from torch import nn

    class Tower(nn.Module):  # type: ignore[misc]  # PyTorch has no types here
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])

        def forward(self, x: Any, y: Any) -> Any:
            for layer in self.layers:
                x = x + nn.functional.gelu(layer(x))
            return nn.functional.mse_loss(x, y)

    torch.manual_seed(0)
    return Tower(), (torch.randn(2048, 64), torch.randn(2048, 64))


MODELS = {"language model": language_model, "image model": image_model}


def eager_backend(partitioner: Any) -> Any:
    """PyTorch's kernels one by one, with a partition of ours."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    return aot_autograd(fw_compiler=boxed_nop, partition_fn=partitioner, keep_inference_input_mutations=True)


def step(module: Any, call: Any, arguments: tuple[Any, ...]) -> Any:
    """The loss of one forward and backward pass."""
    import torch

    torch.manual_seed(7)
    module.zero_grad(set_to_none=True)
    loss = call(*arguments)
    loss.backward()
    return loss.detach()


def measured(module: Any, call: Any, arguments: tuple[Any, ...]) -> int:
    """The most bytes that PyTorch allocates in a forward and backward pass."""
    from solver.importers.pytorch.calls import allocated_bytes

    module.zero_grad(set_to_none=True)
    return allocated_bytes([partial(step, module, call, arguments)])[0]


def scratch_of_convolutions(module: Any, arguments: tuple[Any, ...]) -> int:
    """The most bytes that a convolution of the module, or its derivative, allocates and frees again."""
    import torch

    from solver.importers.pytorch.calls import allocated_bytes

    runs = []

    def record(layer: Any, given: tuple[Any, ...], result: Any) -> None:
        places = layer.stride, layer.padding, layer.dilation, False, [0, 0], layer.groups
        x, gradient = given[0].detach(), torch.ones_like(result)
        biases = [layer.out_channels]
        aten, weight = torch.ops.aten, layer.weight.detach()
        runs.append(partial(aten.convolution, x, weight, layer.bias.detach(), *places))
        runs.append(partial(aten.convolution_backward, gradient, x, weight, biases, *places, [True] * 3))

    layers = [each for each in module.modules() if isinstance(each, torch.nn.Conv2d)]
    hooks = [layer.register_forward_hook(record) for layer in layers]
    module(*arguments)
    for hook in hooks:
        hook.remove()
    return max(allocated_bytes(runs, with_results=False), default=0)


def compiled(module: Any, size: int | str) -> tuple[Any, Any]:
    """(compiled module, budget) with PyTorch's kernels one by one."""
    import torch

    budget = arenaplan.torch.budget(size)
    return torch.compile(module, backend=eager_backend(budget)), budget


@pytest.mark.parametrize("name", list(MODELS))
def test_the_bytes_that_were_planned_and_the_same_bits(name: str) -> None:
    """Budgets from all that is held down to four fifths of it: PyTorch's count is the plan's, but for what
    kernels of convolutions allocate and free again, which depends on the processor.
    """
    module, arguments = MODELS[name]()
    scratch = scratch_of_convolutions(module, arguments)
    twin = copy.deepcopy(module)
    usual, whole = compiled(twin, "1 GB")
    losses = [step(twin, usual, arguments) for _ in range(2)]
    most = whole.partitions[0].planned_bytes
    for size in some([most, most * 4 // 5], beside=[most * 9 // 10]):
        own = copy.deepcopy(module)
        call, budget = compiled(own, size)
        assert [step(own, call, arguments) for _ in range(2)] == losses
        for (key, ours), theirs in zip(own.named_parameters(), twin.parameters(), strict=True):
            assert ours.grad.equal(theirs.grad), key
        for ours, theirs in zip(own.buffers(), twin.buffers(), strict=True):
            assert ours.equal(theirs)
        (partition,) = budget.partitions
        assert partition.planned_bytes <= size
        assert partition.repeated_calls > 0 or size == most
        assert -64 <= measured(own, call, arguments) - partition.planned_bytes <= 64 + scratch


def test_measured_peaks_fall_with_the_budget() -> None:
    """The language model within budgets from all that it holds down to two thirds: PyTorch's count of bytes
    never rises as the budget falls, and never exceeds the budget by more than a scalar or two.
    """
    module, arguments = language_model()
    usual, whole = compiled(module, "1 GB")
    step(module, usual, arguments)
    peaks = [measured(module, usual, arguments)]
    for percent in sorted(some([85, 66], beside=[95, 90, 80, 73]), reverse=True):
        size = whole.partitions[0].planned_bytes * percent // 100
        call, _ = compiled(module, size)
        step(module, call, arguments)
        peaks.append(measured(module, call, arguments))
        assert peaks[-1] <= size + 64
    assert peaks == sorted(peaks, reverse=True)
    assert len(set(peaks)) > len(peaks) // 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules of PyTorch's that inductor imports
@pytest.mark.parametrize(
    ("make", "share"), some([(tower, 0.8)], beside=[(language_model, 0.6), (language_model, 0.75)])
)
def test_fractions_of_what_inductor_holds(make: Any, share: float) -> None:
    """Fused loops: at most 5 % more than the budget, and the numbers of inductor's own partition."""
    import torch

    module, arguments = make()
    twin = copy.deepcopy(module)
    usual = torch.compile(twin, dynamic=False)
    loss = step(twin, usual, arguments)
    most = measured(twin, usual, arguments)
    size = int(most * share)
    torch._dynamo.reset()
    budget = arenaplan.torch.budget(size)
    call = torch.compile(module, options=budget.options)
    torch.testing.assert_close(step(module, call, arguments), loss)
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-6)
    assert measured(module, call, arguments) <= size * 1.05
    assert budget.partitions[0].planned_bytes <= size


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules of PyTorch's that inductor imports
def test_a_warning_where_inductor_keeps_freed_buffers() -> None:
    import torch
    from torch import nn

    budget = arenaplan.torch.budget("1 GB")
    with pytest.warns(UserWarning, match=r"options=budget\.options"):
        torch.compile(nn.Linear(3, 2), options={"custom_partitioner_fn": budget})(torch.ones(2, 3))
    assert len(budget.partitions) == 1


def test_a_budget_that_nothing_keeps() -> None:
    from torch._dynamo.exc import BackendCompilerFailed

    module, arguments = language_model()
    call, _ = compiled(module, 1000)
    with pytest.raises(BackendCompilerFailed, match="the budget is 1,000") as caught:
        call(*arguments)
    refusal = caught.value.inner_exception
    assert isinstance(refusal, CapacityError)
    import torch

    torch._dynamo.reset()
    call, budget = compiled(module, refusal.required)
    step(module, call, arguments)
    assert budget.partitions[0].planned_bytes <= refusal.required


def test_symbolic_shapes_are_refused() -> None:
    import torch
    from torch._dynamo.exc import BackendCompilerFailed

    module, arguments = image_model()
    backend = eager_backend(arenaplan.torch.budget("1 GB"))
    call = torch.compile(module, backend=backend, dynamic=True)
    with pytest.raises(BackendCompilerFailed, match="dynamic=False") as caught:
        call(*arguments)
    assert isinstance(caught.value.inner_exception, DocumentError)


@pytest.mark.parametrize("size", [0, -5, "0 MB", "much", "1.5 B"])
def test_sizes_that_are_none(size: int | str) -> None:
    with pytest.raises(OptionsError):
        arenaplan.torch.budget(size)
