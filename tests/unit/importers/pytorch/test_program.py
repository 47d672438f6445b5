"""Steps of PyTorch as programs: what they read and write is right if they train in a poisoned arena."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.errors import BatchError, DanglingOperandError, DocumentError
from solver.executor import BlockRunner
from solver.plan import PlanOptions

pytestmark = pytest.mark.parity

NAMES = ("mlp", "lenet", "resnet", "mobilenet", "transformer", "gpt", "gru", "rnn", "upsampling", "frozen")


def optimizer_of(module: Any, name: str, **settings: Any) -> Any:
    import torch

    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return getattr(torch.optim, name)(weights, **settings)


def loss_of(made: Any) -> Any:
    import torch.nn.functional as F

    by_name = {"mse": F.mse_loss, "cross-entropy": F.cross_entropy}
    return by_name[made.loss] if isinstance(made.loss, str) else made.loss


def run(runner: BlockRunner, traced: Any, made: Any) -> float:
    """One step on the model's batch; its loss."""
    for kind, tensors in (("input", made.inputs), ("target", made.targets)):
        for k, tensor in enumerate(tensors):
            runner.block(f"{kind}{k}")[...] = tensor.numpy()
    runner.run()
    (kept,) = (block.name for block in traced.program.blocks.values() if block.kept)
    return float(runner.block(kept).reshape(-1)[0])


def eager(made: Any, optimizer: Any) -> float:
    output, loss = made.module(*made.inputs), loss_of(made)
    value = output if loss is None else loss(output, *made.targets)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return float(value.item())


def state_of(module: Any) -> Mapping[str, Any]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@pytest.mark.parametrize("name", ["lenet", "gpt", "mobilenet"])
def test_permissions_take_less_and_change_nothing(name: str) -> None:
    """Element-wise results in the place of their operands, and another order."""
    import torch

    from tests.support.pytorch_models import example

    torch.manual_seed(0)
    made = example(name)
    optimizer = optimizer_of(made.module, "SGD", lr=0.01, momentum=0.9)
    traced = arenaplan.torch.program(
        made.module, made.inputs, targets=made.targets, loss=loss_of(made), optimizer=optimizer
    )
    assert traced.program.any_order
    plain, permitted = (
        arenaplan.torch.runner(traced, options)
        for options in (PlanOptions(), PlanOptions(in_place=True, order=True))
    )
    losses = [[run(runner, traced, made) for _ in range(3)] for runner in (plain, permitted)]
    assert losses[0] == losses[1]
    small = arenaplan.plan(traced, only=["in_place", "order"])
    usual = arenaplan.plan(traced, as_written=True)
    assert small.arena_bytes <= usual.arena_bytes
    # The peak of this one has nothing that may be overwritten, and no order that was found lowers it.
    assert (small.arena_bytes == usual.arena_bytes) is (name == "gpt")


@pytest.mark.parametrize("name", NAMES)
def test_bit_for_bit(name: str) -> None:
    """With PyTorch's own kernels in our arena: losses, weights and buffers of three steps with momentum."""
    from tests.support.pytorch_models import example

    made = example(name)
    optimizer = optimizer_of(made.module, "SGD", lr=0.1, momentum=0.9)
    traced = arenaplan.torch.program(
        made.module, made.inputs, loss=loss_of(made), targets=made.targets, optimizer=optimizer
    )
    plan = arenaplan.plan(traced)
    assert plan.arena_bytes == plan.lower_bound
    runner = arenaplan.torch.runner(traced)
    for _ in range(3):
        assert run(runner, traced, made) == eager(made, optimizer)
    for key, tensor in state_of(made.module).items():
        if key in traced.program.blocks:
            np.testing.assert_array_equal(runner.block(key), tensor.detach().numpy(), err_msg=key)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adagrad", "SGD"])
def test_optimizers(name: str) -> None:
    """Counts of steps carry over as tensors; where PyTorch computes with them, that is in float32."""
    from tests.support.pytorch_models import example

    made = example("mlp", double=True)
    optimizer = optimizer_of(made.module, name, lr=0.01, weight_decay=0.01)
    traced = arenaplan.torch.program(
        made.module, made.inputs, loss=loss_of(made), targets=made.targets, optimizer=optimizer
    )
    runner = arenaplan.torch.runner(traced)
    assert [run(runner, traced, made) for _ in range(4)] == pytest.approx(
        [eager(made, optimizer) for _ in range(4)], rel=1e-5 if "Adam" in name else 1e-9
    )


def test_pure_calls_run_again_and_random_ones_draw_what_eager_pytorch_draws() -> None:
    """A tower with dropout within three quarters of its bytes: losses and weights bit for bit."""
    import torch
    from torch import nn
    from torch.nn.functional import mse_loss

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Dropout(0.2)) for _ in range(4)]
    module = nn.Sequential(*layers, nn.Linear(64, 4))
    x, y = torch.randn(128, 64), torch.randn(128, 4)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    torch.manual_seed(7)
    traced = arenaplan.torch.program(module, x, targets=y, loss=mse_loss, optimizer=optimizer)
    operations = {operation.name: operation for operation in traced.program.operations}
    assert traced.program.any_order
    assert [o.name for o in operations.values() if "torch.random.state" in o.reads and o.pure] == []
    product = next(o for o in operations.values() if o.kernel == "aten.addmm.default")
    assert (product.pure, product.cost.flops) == (True, 2 * 128 * 64 * 64)
    usual = arenaplan.plan(traced, as_written=True)
    plan = arenaplan.plan(traced, capacity=usual.arena_bytes * 3 // 4, only=["recompute"])
    assert any(plan.program.runs)
    runner = BlockRunner(traced.program, plan, traced.functions)
    for name, values in traced.values.items():
        runner.block(name).reshape(-1).view(np.uint8)[...] = values.reshape(-1).view(np.uint8)
    for _ in range(3):
        traced.feed(runner, "input0", x.numpy())
        traced.feed(runner, "target0", y.numpy())
        runner.run()
        loss = mse_loss(module(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        assert float(traced.read(runner)[0]) == loss.item()
    for name, weight in module.named_parameters():
        np.testing.assert_array_equal(runner.block(name), weight.detach().numpy())
    assert arenaplan.validate(traced, plan, steps=2).identical


def test_names() -> None:
    from tests.support.pytorch_models import example

    made = example("mlp")
    traced = arenaplan.torch.program(
        *(made.module, made.inputs),
        loss=loss_of(made),
        targets=made.targets,
        optimizer=optimizer_of(made.module, "Adam"),
        name="step",
    )
    assert traced.program.name == "step"
    blocks = traced.program.blocks
    assert {"0.weight", "0.weight.exp_avg", "0.weight.step", "input0", "target0"} <= set(blocks)
    assert {name for name, block in blocks.items() if block.fed} == {"input0", "target0"}
    assert blocks["0.weight.exp_avg"].type.shape == (16, 12)


def test_views_take_no_memory() -> None:
    """A transposed, sliced and reshaped tensor is the one that it looks into."""
    import torch

    def step(tensors: Mapping[str, Any]) -> Any:
        x = tensors["x"].t()[2:].reshape(3, -1)
        return (x @ tensors["w"].view(4, 5)).sum()

    traced = arenaplan.torch.trace(
        step, {"x": torch.randn(4, 5), "w": torch.randn(20)}, fed=["x"], name="views"
    )
    kernels = [operation.kernel for operation in traced.program.operations]
    assert kernels == ["aten.mm.default", "aten.sum.default"]
    assert set(traced.program.operations[0].reads) == {"x", "w"}


def test_in_place_operations_update() -> None:
    import torch

    def step(tensors: Mapping[str, Any]) -> Any:
        tensors["w"][1:].mul_(tensors["x"][1:])
        tensors["m"].copy_(tensors["w"])
        return tensors["m"].sum()

    given = {"w": torch.ones(4), "m": torch.zeros(4), "x": torch.arange(4.0)}
    traced = arenaplan.torch.trace(step, given, fed=["x"])
    multiply, copy, _ = traced.program.operations
    assert (set(multiply.reads), multiply.writes) == ({"w", "x"}, ("w",))
    assert (copy.reads, copy.writes) == (("w",), ("m",))


@pytest.mark.parametrize(
    "step",
    [
        lambda tensors: tensors["x"] * tensors["x"].sum().item(),
        lambda tensors: tensors["x"] if tensors["x"].sum() > 0 else -tensors["x"],
    ],
    ids=["number", "branch"],
)
def test_a_step_that_looks_at_elements(step: Any) -> None:
    import torch

    with pytest.raises(DocumentError, match="the step"):
        arenaplan.torch.trace(step, {"x": torch.ones(3)})


def returned(step: Any, tensors: Mapping[str, Any], fed: tuple[str, ...] = ("x",)) -> Any:
    """The traced step, after a run in the arena gave the bits that PyTorch gives."""
    import torch
    from torch.utils._pytree import tree_leaves

    traced = arenaplan.torch.trace(step, tensors, fed=fed)
    runner = arenaplan.torch.runner(traced)
    for name in fed:
        tensor = tensors[name].contiguous()
        bits = tensor.view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
        traced.feed(runner, name, bits.numpy())
    runner.run()
    eager = step({name: tensor.contiguous().clone() for name, tensor in tensors.items()})
    expected = [leaf for leaf in tree_leaves(eager) if isinstance(leaf, torch.Tensor)]
    arrays = traced.read(runner)
    assert len(arrays) == len(expected)
    for array, tensor, place in zip(arrays, expected, traced.results, strict=True):
        assert place.dtype == str(tensor.dtype).removeprefix("torch.")
        bits = tensor.contiguous().view(torch.uint16) if tensor.dtype is torch.bfloat16 else tensor
        np.testing.assert_array_equal(array, bits.numpy(), err_msg=place.path)
    return traced


@pytest.mark.parametrize(
    ("tensors", "fed", "said"),
    [
        (lambda torch: {"x": np.zeros(3)}, (), "'x' is a ndarray, not a tensor"),
        (lambda torch: {"x": torch.eye(3).to_sparse()}, (), "'x' is a quantized or sparse tensor"),
        (lambda torch: {"x": torch.eye(3)}, ("y",), "'y' is to be fed, and no argument is called so"),
        (lambda torch: {"z": torch.eye(3)}, (), "cannot trace the step: it raises KeyError"),
        (lambda torch: {"x": torch.eye(3), "fails": torch.eye(3)}, (), "it raises AssertionError"),
    ],
)
def test_arguments_and_steps_that_cannot_be_traced(tensors: Any, fed: tuple[str, ...], said: str) -> None:
    import torch

    def step(given: Mapping[str, Any]) -> Any:
        if "fails" in given:
            raise AssertionError
        return given["x"] + 1

    with pytest.raises(DocumentError, match=said):
        arenaplan.torch.trace(step, tensors(torch), fed=fed)


class TestResults:
    """`TracedStep.results` says where each tensor that the function returned lies."""

    def test_the_order_of_the_function(self) -> None:
        """Two results of one shape, the one that is computed first returned last."""
        import torch

        def step(tensors: Mapping[str, Any]) -> Any:
            first = tensors["x"] * 2
            second = first + 1
            return second, first

        traced = returned(step, {"x": torch.randn(4, 6)})
        assert [(place.path, place.block) for place in traced.results] == [("[0]", "add"), ("[1]", "mul")]

    def test_duplicates_and_views(self) -> None:
        import torch

        def step(tensors: Mapping[str, Any]) -> Any:
            y = tensors["x"] @ tensors["w"]
            return y, y, y.t(), y[1:, 2]

        traced = returned(step, {"x": torch.randn(4, 6), "w": torch.randn(6, 6)})
        places = [(p.block, p.offset, p.shape, p.strides) for p in traced.results]
        assert places == [
            ("mm", 0, (4, 6), (24, 4)),
            ("mm", 0, (4, 6), (24, 4)),
            ("mm", 0, (6, 4), (4, 24)),
            ("mm", 32, (3,), (24,)),
        ]

    def test_nested_structures(self) -> None:
        import torch

        def step(tensors: Mapping[str, Any]) -> Any:
            x = tensors["x"]
            return {"z": [x.sum(), (x.mean(), None, 3)], "a": x.max()}

        traced = returned(step, {"x": torch.randn(4, 6)})
        assert [place.path for place in traced.results] == ["['z'][0]", "['z'][1][0]", "['a']"]

    def test_arguments_as_they_are(self) -> None:
        """An argument that no operation touches is copied, so that it lies somewhere; a part of it, too."""
        import torch

        tensors = {"x": torch.randn(4, 6), "w": torch.randn(6, 6)}
        traced = returned(lambda t: (t["w"], t["x"].sum(), t["w"].t()[1:]), tensors)
        assert [place.block for place in traced.results] == ["result0", "sum_1", "result2"]
        assert returned(lambda t: t["w"], tensors).program.blocks["result0"].kept

    def test_without_elements(self) -> None:
        import torch

        returned(lambda t: (t["x"].sum(), torch.zeros(0, 3)), {"x": torch.randn(4, 6)})


@pytest.mark.parametrize(
    "word", ["bfloat16", "float16", "float64", "int8", "int16", "int32", "int64", "uint8", "bool"]
)
@pytest.mark.parametrize("fed", [True, False])
def test_element_types(word: str, fed: bool) -> None:
    """As arguments that are fed or carry over, in between, and as results."""
    import torch

    dtype = getattr(torch, word)
    tensors = {"x": torch.arange(24).reshape(4, 6).to(dtype), "w": torch.ones(6)}

    def step(tensors: Mapping[str, Any]) -> Any:
        y = (tensors["x"].to(torch.float32) * 3 + tensors["w"]).to(dtype)
        return y, y.flip(0), tensors["w"].to(dtype)

    returned(step, tensors, fed=("x",) if fed else ())


def test_unused_arguments() -> None:
    import torch

    tensors = {"x": torch.randn(3), "unused": torch.randn(5), "kept": torch.randn(7)}
    traced = returned(lambda t: t["x"].sum(), tensors, fed=("x", "unused"))
    assert set(traced.arguments) == set(tensors)
    assert "unused" not in traced.program.blocks
    runner = arenaplan.torch.runner(traced)
    with pytest.raises(DanglingOperandError, match="no block 'unused'"):
        runner.block("unused")
    with pytest.raises(BatchError, match="no argument 'y'"):
        traced.feed(runner, "y", np.ones(3))
    with pytest.raises(BatchError, match=r"traced with float32\[3\]"):
        traced.feed(runner, "x", np.ones(3))


def test_arguments_in_pieces() -> None:
    """Transposed, cut out or expanded: each is a block of its own, one element behind the other."""
    import torch

    whole = torch.arange(36.0).reshape(6, 6)
    pieces = {"x": whole.t(), "rows": whole[2:4], "row": torch.ones(1).expand(6)}
    traced = returned(lambda t: t["x"] @ t["row"] + t["rows"].sum(0), pieces)
    assert traced.arguments["rows"].offset == 0
    assert traced.program.blocks["row"].type.shape == (6,)


def test_memory_that_arguments_share() -> None:
    import torch

    whole = torch.arange(36.0).reshape(6, 6)
    shared = {"x": torch.ones(6), "all": whole, "row": whole[1]}
    returned(lambda t: t["all"] @ t["x"] + t["row"], shared)

    def step(tensors: Mapping[str, Any]) -> Any:
        tensors["row"].mul_(2)
        return tensors["all"].sum() + tensors["x"].sum()

    with pytest.raises(DocumentError, match="writes 'row', which shares its memory with 'all'"):
        arenaplan.torch.trace(step, shared)


class TestBodies:
    """Branches and loops are one operation each, with the results of the whole."""

    @pytest.mark.parametrize("sign", [1, -1])
    def test_a_branch(self, sign: int) -> None:
        import torch

        def step(tensors: Mapping[str, Any]) -> Any:
            x = tensors["x"]
            return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a * 2, (x,)) + 1

        traced = returned(step, {"x": sign * torch.ones(4, 6)})
        assert "cond" in [operation.kernel for operation in traced.program.operations]

    def test_the_gradient_of_a_branch(self) -> None:
        import torch

        def step(tensors: Mapping[str, Any]) -> Any:
            w = tensors["w"].detach().requires_grad_(True)
            loss = torch.cond(tensors["x"].sum() > 0, torch.sin, torch.cos, (w,)).sum()
            return loss.detach(), torch.autograd.grad(loss, w)[0]

        returned(step, {"x": torch.ones(3), "w": torch.randn(5)})

    def test_a_loop(self) -> None:
        import torch
        from torch._higher_order_ops import while_loop

        def step(tensors: Mapping[str, Any]) -> Any:
            start = (torch.zeros((), dtype=torch.int64), tensors["x"])
            return while_loop(lambda k, x: k < 3, lambda k, x: (k + 1, x * 2), start)

        returned(step, {"x": torch.randn(4, 6)})


@pytest.mark.parametrize(
    "step",
    [
        lambda t: t["x"][t["x"] > 0].sum(),
        lambda t: t["x"].nonzero(),
        lambda t: t["x"].unique(),
        lambda t: t["x"].masked_select(t["x"] > 0) * 2,
    ],
    ids=["index", "nonzero", "unique", "masked_select"],
)
def test_shapes_that_depend_on_elements(step: Any) -> None:
    import torch

    with pytest.raises(DocumentError, match="depends on elements"):
        arenaplan.torch.trace(step, {"x": torch.ones(3)})


def test_tensors_that_are_more_than_memory() -> None:
    import torch

    with pytest.raises(DocumentError, match="quantized or sparse"):
        arenaplan.torch.trace(lambda t: t["x"].to_sparse().to_dense(), {"x": torch.ones(3, 3)})


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_training_in_bfloat16(name: str) -> None:
    """Weights, gradients and the optimizer's variables, for three steps: PyTorch's bits."""
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4))
    module = module.to(torch.bfloat16)
    optimizer = optimizer_of(module, name, lr=0.01)
    x, y = torch.randn(5, 8).to(torch.bfloat16), torch.randint(0, 4, (5,))
    loss = torch.nn.functional.cross_entropy
    traced = arenaplan.torch.program(module, x, loss=loss, targets=y, optimizer=optimizer)
    runner = arenaplan.torch.runner(traced)
    for _ in range(3):
        traced.feed(runner, "input0", x.view(torch.uint16).numpy())
        traced.feed(runner, "target0", y.numpy())
        runner.run()
        (value,) = traced.read(runner)
        expected = loss(module(x), y)
        optimizer.zero_grad()
        expected.backward()
        optimizer.step()
        assert int(value) == expected.detach().view(torch.uint16).item()


def test_scratch_that_kernels_allocate_inside_is_measured_on_request() -> None:
    """A median works on a copy of its tensor. A kernel's results are no scratch, wherever it puts them."""
    import torch

    def sums(x: Any) -> Any:
        most = torch.ones(3000), torch.ones(5000)
        total = float(most[0].sum() + most[1].sum())
        del most  # the result may lie where these were
        return x.new_full((5000,), total)

    operator = torch.library.custom_op(
        "arenaplan_tests::sums", sums, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(lambda x: x.new_empty(5000))

    def step(tensors: Mapping[str, Any]) -> Any:
        drawn = torch.nn.functional.dropout(tensors["x"], 0.5)
        return drawn.median(), operator(drawn)

    tensors = {"x": torch.randn(64, 64)}
    plain, measured = (
        arenaplan.torch.trace(step, tensors, fed=["x"], scratch=scratch) for scratch in (False, True)
    )
    assert not any(operation.workspace for operation in plain.program.operations)
    workspace = {o.kernel: o.workspace for o in measured.program.operations}
    assert workspace["aten.median.default"] == 64 * 64 * 4
    assert 32_000 <= workspace["arenaplan_tests.sums.default"] <= 32_000 + 64  # with the two sums
    assert workspace["aten.mul.Tensor"] == 0
    plan = arenaplan.plan(measured)
    assert plan.arena_bytes > arenaplan.plan(plain).arena_bytes
    assert {"median.workspace", "sums.workspace"} <= set(plan.program.by_label)
    assert arenaplan.validate(measured, plan, steps=1).identical


def test_a_training_step_with_scratch_trains_in_its_arena() -> None:
    import torch
    from torch import nn

    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(800, 4))
    images, labels = torch.randn(4, 3, 12, 12), torch.randint(0, 4, (4,))
    optimizer, loss = torch.optim.SGD(module.parameters(), lr=0.1), nn.functional.cross_entropy
    step = arenaplan.torch.program(
        module, images, targets=labels, loss=loss, optimizer=optimizer, scratch=True
    )
    workspace = {operation.name: operation.workspace for operation in step.program.operations}
    assert workspace["convolution"]
    assert workspace["convolution_backward"]
    runner = arenaplan.torch.runner(step)
    for _ in range(2):
        step.feed(runner, "input0", images.numpy())
        step.feed(runner, "target0", labels.numpy())
        runner.run()
        value = loss(module(images), labels)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        assert float(step.read(runner)[0]) == value.item()


def test_a_kernel_that_cannot_run_alone_is_named() -> None:
    import torch

    def picky(x: Any) -> Any:
        if float(x.sum()) == x.numel():
            raise RuntimeError("ones are too few")
        return x + 1

    operator = torch.library.custom_op(
        "arenaplan_tests::picky", picky, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    operator.register_fake(torch.empty_like)
    with pytest.raises(
        DocumentError, match=r"'picky' allocates cannot be measured.*ones are too few"
    ) as caught:
        arenaplan.torch.trace(lambda tensors: operator(tensors["x"]), {"x": torch.zeros(4)}, scratch=True)
    assert "without scratch=True" in str(caught.value.remedy)
