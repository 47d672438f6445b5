"""Tests `arenaplan.torch` around the graph: batches, documents, weights, and its refusals."""

from __future__ import annotations

import copy
import itertools
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan
from arenaplan.optimizers import optimizer_spec
from solver.documents import dump_graph, load_graph
from solver.errors import (
    ArenaplanError,
    AttributeRuleError,
    BatchError,
    DocumentError,
    GraphError,
    LossError,
    OptionsError,
    PlanError,
    TrainableError,
    UnknownOperatorError,
)
from solver.graph import Role
from solver.graph.storage import Storage
from solver.importers.pytorch import Weight
from solver.importers.pytorch.context import Gates
from tests.support.every import ALL, some

ROOT = Path(__file__).resolve().parents[3]


class Optimizer:
    """The attributes of PyTorch's optimizers that are read."""

    def __init__(self, *groups: dict[str, Any]) -> None:
        self.param_groups = list(groups)


class SGD(Optimizer):
    pass


class Lion(Optimizer):
    pass


class TestOptimizers:
    def test_by_name(self) -> None:
        assert optimizer_spec("adam").type == "Adam"
        assert optimizer_spec("RMSprop").type == "RMSProp"

    def test_a_document(self) -> None:
        spec = optimizer_spec({"type": "SGD", "learning_rate": 0.5})
        assert (spec.type, dict(spec.attributes)) == ("SGD", {"learning_rate": 0.5})

    def test_one_of_pytorch(self) -> None:
        spec = optimizer_spec(
            SGD({"params": [], "lr": 0.5, "momentum": 0.9, "dampening": 0, "foreach": None})
        )
        assert (spec.type, dict(spec.attributes)) == ("SGD", {"learning_rate": 0.5, "momentum": 0.9})

    @pytest.mark.parametrize("given", ["lion", {"type": "lion"}, Lion({"params": []}), 3, None])
    def test_unknown(self, given: Any) -> None:
        with pytest.raises(GraphError, match="no optimizer"):
            optimizer_spec(given)

    def test_settings_that_are_not_here(self) -> None:
        with pytest.raises(AttributeRuleError, match=r"dampening=0\.1"):
            optimizer_spec(SGD({"params": [], "lr": 0.5, "dampening": 0.1}))
        with pytest.raises(AttributeRuleError, match="2 groups"):
            optimizer_spec(SGD({"params": [], "lr": 0.5}, {"params": [], "lr": 0.1}))


class TestWeights:
    def test_gates(self) -> None:
        weight = Weight("w", ("lstm.w",), Gates((0, 3, 1, 2)))
        values = np.arange(8.0).reshape(8, 1)
        assert weight.inward(values)[:, 0].tolist() == [0, 1, 6, 7, 2, 3, 4, 5]
        np.testing.assert_array_equal(weight.outward(weight.inward(values)), values)

    def test_row(self) -> None:
        assert Weight("r", ("table",), row=1).inward(np.eye(3))[1] == 1


def test_without_pytorch() -> None:
    """The module loads, and its functions say what is missing."""
    script = "import sys; sys.modules['torch'] = None\nimport arenaplan\narenaplan.torch.graph(None, ())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: PyTorch is not installed here: pip install 'torch>=2.9'."


# -------------------------------------------------------------------------------- with PyTorch


@pytest.fixture
def made() -> Any:
    from tests.support.pytorch_models import example

    return example("lenet")


@pytest.mark.parity
class TestWrongTypes:
    """Of arguments whose types are PyTorch's, which annotations do not name."""

    @pytest.mark.parametrize("wrong", [3, None, "lenet"])
    def test_of_a_module(self, made: Any, wrong: Any) -> None:
        calls = (
            lambda: arenaplan.torch.graph(wrong, made.inputs, loss="cross-entropy"),
            lambda: arenaplan.torch.document(wrong, made.inputs, loss="cross-entropy"),
            lambda: arenaplan.torch.program(wrong, made.inputs, optimizer=None),
        )
        for call in calls:
            with pytest.raises(OptionsError, match=r"'module' is of type .* Give a Module of PyTorch"):
                call()

    @pytest.mark.parametrize("wrong", [3, None, "x"])
    def test_of_inputs_and_targets(self, made: Any, wrong: Any) -> None:
        with pytest.raises(ArenaplanError):
            arenaplan.torch.graph(made.module, wrong, loss="cross-entropy")
        with pytest.raises(ArenaplanError):
            arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", targets=wrong)
        with pytest.raises(ArenaplanError):
            arenaplan.torch.document(made.module, wrong, loss="cross-entropy")

    @pytest.mark.parametrize("wrong", [3, None])
    def test_of_an_optimizer(self, made: Any, wrong: Any) -> None:
        with pytest.raises(ArenaplanError, match="no optimizer"):
            arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", optimizer=wrong)
        with pytest.raises(OptionsError, match="'optimizer' is of type"):
            arenaplan.torch.program(made.module, made.inputs, optimizer=wrong)

    def test_of_a_batch_and_of_weights(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy")
        with pytest.raises(ArenaplanError):
            captured.batch(3, 4)
        with pytest.raises(ArenaplanError):
            list(captured.train([3]))  # type: ignore[list-item]
        with pytest.raises(ArenaplanError):
            captured.load_weights({"conv1.weight": 3})


@pytest.mark.parity
class TestGraph:
    def test_names_and_roles(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy")
        roles = {name: operand.role for name, operand in captured.graph.operands.items()}
        assert set(made.module.state_dict()) <= set(roles)
        assert (roles["x"], roles["target"], roles["conv1.weight"]) == (
            Role.INPUT,
            Role.LABEL,
            Role.PARAMETER,
        )
        assert {operation.id for operation in captured.graph.operations} >= {"conv1.conv2d", "fc3.linear"}

    def test_tied_weights_are_one_operand(self) -> None:
        from tests.support.pytorch_models import example

        gpt = example("gpt")
        captured = arenaplan.torch.graph(gpt.module, gpt.inputs, loss=gpt.loss, targets=gpt.targets)
        assert "head.weight" not in captured.graph.operands
        assert {"head.weight", "words.weight"} <= set(captured.state_dict())

    def test_another_batch(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", batch=32)
        assert captured.graph.operands["x"].shape == (32, 1, 28, 28)
        assert captured.graph.operands["target"].shape == (32,)

    def test_inputs_by_name(self) -> None:
        from tests.support.pytorch_models import example

        one = example("frozen")
        given = dict(zip(("wanted", "x", "words"), (one.inputs[2], *one.inputs[:2]), strict=True))
        captured = arenaplan.torch.graph(one.module, given)
        positional = arenaplan.torch.graph(one.module, one.inputs)
        assert captured.imported.inputs == ("wanted", "x", "words")
        assert next(captured.train([tuple(given.values())])) == next(positional.train([one.inputs]))
        assert set(captured.state_dict()) == set(one.module.state_dict())

    def test_outputs_can_be_read(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", outputs=True)
        with captured.trainer() as trainer:
            trainer.step(captured.batch(*made.inputs, *made.targets))
            read = trainer.read(captured.graph.outputs[0])
        np.testing.assert_allclose(read, made.module(*made.inputs).detach().numpy(), atol=1e-5)

    def test_other_weights(self, made: Any) -> None:
        from tests.support.pytorch_models import lenet

        other = lenet().module
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", weights=False)
        loaded = captured.load_weights(other.state_dict())
        for name, tensor in loaded.state_dict().items():
            np.testing.assert_array_equal(tensor, other.state_dict()[name])
        assert captured.plan().arena_bytes == loaded.plan().arena_bytes

    def test_weights_that_do_not_fit(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy")
        state = made.module.state_dict()
        with pytest.raises(DocumentError, match=r"lack 'conv1\.bias'"):
            captured.load_weights({name: x for name, x in state.items() if name != "conv1.bias"})
        with pytest.raises(DocumentError, match=r"'conv1\.bias' is float32\[3\]"):
            captured.load_weights({**state, "conv1.bias": state["conv1.bias"][:3]})

    def test_trainable(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", trainable=1)
        assert captured.graph.trainable == ("fc3.weight", "fc3.bias")
        with pytest.raises(TrainableError, match="'fc9'"):
            arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy", trainable=["fc9"])

    def test_no_loss(self, made: Any) -> None:
        for more in ({"optimizer": "adam"}, {"trainable": 1}):
            with pytest.raises(LossError, match=r"float32\[4, 10\], not a loss, and .* is for training"):
                arenaplan.torch.graph(made.module, made.inputs, **more)
        with pytest.raises(LossError, match=r"float32\[4, 10\], not a loss; a loss is a floating scalar"):
            arenaplan.torch.graph(made.module, made.inputs, loss=lambda y, t: y, targets=made.targets)
        with pytest.raises(LossError, match="no loss 'entropy'"):
            arenaplan.torch.graph(made.module, made.inputs, loss="entropy")

    def test_what_pytorch_cannot_export(self) -> None:
        import torch

        class Branching(torch.nn.Module):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return x if x.sum().item() > 0 else -x

        with pytest.raises(DocumentError, match="cannot export Branching"):
            arenaplan.torch.graph(Branching(), torch.ones(3), loss="mse")

    def test_branches_and_loops(self) -> None:
        """Refused by name: graphs have neither. The remedy, a program, has both."""
        import torch

        class Branching(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(3, 3)

            def forward(self, x: Any) -> Any:
                return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (self.layer(x),))

        with pytest.raises(UnknownOperatorError, match=r"cond \(a branch or a loop\)"):
            arenaplan.torch.graph(Branching(), torch.ones(3, 3), loss="mse")

    def test_an_input_that_nothing_reads(self) -> None:
        import torch

        class Half(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(3, 3)

            def forward(self, x: Any, unused: Any) -> Any:
                return self.layer(x)

        module, x, y = Half(), torch.ones(2, 3), torch.zeros(2, 3)
        captured = arenaplan.torch.graph(module, (x, x), loss="mse", targets=y)
        expected = torch.nn.functional.mse_loss(module(x, x), y).item()
        assert next(captured.train([(x, x, y)])) == pytest.approx(expected, rel=1e-6)

    def test_a_batch_of_other_tensors(self, made: Any) -> None:
        captured = arenaplan.torch.graph(made.module, made.inputs, loss="cross-entropy")
        with pytest.raises(PlanError, match="takes x, target"):
            captured.batch(*made.inputs)

    def test_without_gradients(self) -> None:
        """Parameters under no_grad alone are frozen; what is computed there has no derivative."""
        import torch

        class Trunk(torch.nn.Module):  # type: ignore[misc]
            def __init__(self, *, late: bool) -> None:
                super().__init__()
                self.late = late
                self.trunk, self.head = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

            def forward(self, x: Any) -> Any:
                given = self.head(x) if self.late else x
                with torch.no_grad():
                    x = self.trunk(self.head(given) if self.late else given)
                return (self.head(x) * given).pow(2).mean()

        x = torch.randn(2, 3)
        captured = arenaplan.torch.graph(Trunk(late=False), x)
        assert captured.graph.trainable == ("head.weight", "head.bias")
        self.assert_gradients(Trunk(late=True), x)

    @staticmethod
    def assert_gradients(module: Any, x: Any) -> None:
        """A step of SGD moves what PyTorch has a derivative of, and by as much."""
        captured = arenaplan.torch.graph(module, x, optimizer={"type": "SGD", "learning_rate": 1.0})
        with captured.trainer() as trainer:
            loss = trainer.step(captured.batch(x))
            after = captured.state_dict(trainer)
        expected = module(x)
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-6)
        for name, parameter in module.named_parameters():
            moved = parameter.detach() - after[name]
            wanted = 0 * moved if parameter.grad is None else parameter.grad
            np.testing.assert_allclose(moved, wanted, rtol=1e-4, atol=1e-6)

    def test_detached(self) -> None:
        import torch

        class Detached(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(3, 3)

            def forward(self, x: Any, wanted: Any) -> Any:
                return torch.nn.functional.mse_loss(self.layer(x), (x + wanted).detach())

        given = (torch.randn(2, 3), torch.randn(2, 3))
        module = Detached()
        captured = arenaplan.torch.graph(module, given)
        assert next(captured.train([given])) == pytest.approx(module(*given).item(), rel=1e-6)

    def test_what_has_no_derivative_by_a_stop_is_not_trained(self) -> None:
        import torch

        class Stopped(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer, self.target = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

            def forward(self, x: Any) -> Any:
                y = self.layer(x)
                return ((y - self.target(x).detach()) ** 2).mean() + (y * y.detach()).mean()

        self.assert_gradients(Stopped(), torch.randn(2, 3))

    def test_a_buffer_that_changes(self) -> None:
        import torch

        class Counting(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(2, 2)
                self.register_buffer("mean", torch.zeros(2))

            def forward(self, x: Any) -> Any:
                self.mean.mul_(0.9).add_(x.mean(0))
                return self.layer(x) + self.mean

        with pytest.raises(GraphError, match="changes the buffer 'mean'"):
            arenaplan.torch.graph(Counting(), torch.ones(3, 2), loss="mse")


@pytest.mark.parity
class TestTargets:
    """A loss by name with an example of its target."""

    @staticmethod
    def words(classes: int = 11) -> Any:
        import torch

        return torch.nn.Sequential(torch.nn.Embedding(50, 6), torch.nn.Linear(6, classes))

    def test_the_last_axis_counts_classes(self) -> None:
        """Logits [2, 8, 11] with classes [2, 8]: the loss and the step of PyTorch."""
        import torch

        module = self.words()
        x, y = torch.randint(0, 50, (2, 8)), torch.randint(0, 11, (2, 8))
        sgd = {"type": "SGD", "learning_rate": 1.0}
        captured = arenaplan.torch.graph(module, x, loss="cross-entropy", targets=y, optimizer=sgd)
        assert captured.graph.operands["target"].shape == (2, 8)
        assert not captured.notes
        with captured.trainer() as trainer:
            loss = trainer.step(captured.batch(x, y))
            after = captured.state_dict(trainer)
        expected = torch.nn.functional.cross_entropy(module(x).flatten(0, 1), y.flatten())
        expected.backward()
        assert loss == pytest.approx(expected.item(), rel=1e-6)
        for name, parameter in module.named_parameters():
            moved = parameter.detach() - after[name]
            np.testing.assert_allclose(moved, parameter.grad, rtol=1e-4, atol=1e-6)

    def test_any_batch(self) -> None:
        import torch

        x, y = torch.randint(0, 50, (2, 8)), torch.randint(0, 11, (2, 8))
        document = arenaplan.torch.document(self.words(), x, loss="cross-entropy", targets=y)
        assert load_graph(document, batch=5).operands["target"].shape == (5, 8)

    def test_pytorchs_axis(self) -> None:
        import torch

        x, y = torch.randn(2, 3, 4, 4), torch.randint(0, 5, (2, 4, 4))
        captured = arenaplan.torch.graph(torch.nn.Conv2d(3, 5, 1), x, loss="cross-entropy", targets=y)
        assert captured.graph.operands["target"].shape == (2, 4, 4)

    @pytest.mark.parametrize("shape", [None, (2, 8)])
    def test_shapes_that_do_not_tell(self, shape: tuple[int, ...] | None) -> None:
        """Axis 1, as PyTorch has it, and a warning that says so."""
        import torch

        given = {} if shape is None else {"targets": torch.zeros(shape, dtype=torch.int64)}
        with pytest.warns(UserWarning, match=r"classes are taken from axis 1 of the output \[2, 8, 8\]"):
            captured = arenaplan.torch.graph(
                self.words(8), torch.randint(0, 50, (2, 8)), loss="cross-entropy", **given
            )
        assert captured.graph.operands["target"].shape == (2, 8)

    @pytest.mark.parametrize(
        ("loss", "shape", "dtype", "message"),
        [
            ("cross-entropy", (2, 3), "int64", "neither its classes by number"),
            ("cross-entropy", (2, 8), "float32", "neither its classes by number"),
            ("cross-entropy", (2, 8, 11), "float16", "torch.float16, which graphs do not have"),
            ("mse", (2, 8), "float32", "of another shape"),
            ("binary-cross-entropy", (2, 8, 1), "float32", "of another shape"),
            ("mse", (2, 8, 11), "float64", "of another floating type"),
        ],
    )
    def test_targets_that_do_not_fit(
        self, loss: str, shape: tuple[int, ...], dtype: str, message: str
    ) -> None:
        import torch

        targets = torch.zeros(shape, dtype=getattr(torch, dtype))
        with pytest.raises(LossError, match=message):
            arenaplan.torch.graph(self.words(), torch.randint(0, 50, (2, 8)), loss=loss, targets=targets)

    def test_targets_that_nothing_reads(self) -> None:
        import torch

        x, y = torch.randint(0, 50, (2, 8)), torch.zeros(2, 8, dtype=torch.int64)
        with pytest.raises(LossError, match="no loss that compares"):
            arenaplan.torch.graph(self.words(), x, targets=y)
        with pytest.raises(LossError, match="takes one"):
            arenaplan.torch.graph(self.words(), x, loss="cross-entropy", targets=(y, y))

    def test_whole_numbers_for_a_loss_of_floats(self) -> None:
        import torch

        module, x, y = torch.nn.Linear(3, 2), torch.randn(4, 3), torch.randint(0, 5, (4, 2))
        captured = arenaplan.torch.graph(module, x, loss="mse", targets=y)
        expected = torch.nn.functional.mse_loss(module(x), y.float()).item()
        assert next(captured.train([(x, y)])) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parity
class TestNarrowWeights:
    """Frozen weights that the module stores in few bits: the plan holds the same, or says that it cannot."""

    @staticmethod
    def packed(*, parameters: bool) -> Any:
        """Integers of four bits, two a byte, with a scale for each row."""
        import torch

        class Packed(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                weight = torch.randint(0, 256, (16, 8), dtype=torch.uint8)
                scales = torch.rand(16, 1).half()
                if parameters:
                    self.weight = torch.nn.Parameter(weight, requires_grad=False)
                    self.scales = torch.nn.Parameter(scales, requires_grad=False)
                else:
                    self.register_buffer("weight", weight)
                    self.register_buffer("scales", scales)

            def forward(self, x: Any) -> Any:
                halves = torch.stack([self.weight & 15, self.weight >> 4], -1).reshape(16, 16)
                return torch.nn.functional.linear(x, (halves.float() - 8) * self.scales.float())

        return torch.nn.Sequential(Packed(), torch.nn.Linear(16, 4))

    @pytest.mark.parametrize("parameters", [False, True])
    def test_four_bits(self, parameters: bool) -> None:
        import torch

        module = self.packed(parameters=parameters)
        x, y = torch.randn(3, 16), torch.randint(0, 4, (3,))
        captured = arenaplan.torch.graph(module, x, loss="cross-entropy")
        (weight,) = (each.type for each in captured.graph.operands.values() if each.type.storage is not None)
        assert (weight.storage, weight.nbytes) == (Storage("int4", 16), 160)
        assert not captured.notes
        expected = torch.nn.functional.cross_entropy(module(x), y).item()
        assert next(captured.train([(x, y)])) == pytest.approx(expected, rel=1e-5)
        state = captured.state_dict()
        assert state["0.weight"].dtype is torch.uint8
        module.load_state_dict(state)
        assert captured.load_weights(state).graph.operands == captured.graph.operands
        with pytest.raises(DocumentError, match=r"'0\.scales' differs .* Capture the module again"):
            captured.load_weights({**state, "0.scales": state["0.scales"] * 2})

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_half_precision(self, dtype: str) -> None:
        import torch

        class Trunk(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.trunk = torch.nn.Linear(4, 4).to(getattr(torch, dtype)).requires_grad_(False)
                self.head = torch.nn.Linear(4, 2)

            def forward(self, x: Any) -> Any:
                weight, bias = self.trunk.weight.float(), self.trunk.bias.float()
                return self.head(torch.nn.functional.linear(x, weight, bias))

        with pytest.warns(UserWarning, match=rf"stored in 8 bytes \({dtype}\) and planned in 16 bytes"):
            captured = arenaplan.torch.graph(Trunk(), torch.ones(2, 4), loss="mse")
        assert Storage(dtype) in [operand.type.storage for operand in captured.graph.operands.values()]
        assert captured.state_dict()["trunk.weight"].dtype is getattr(torch, dtype)

    def test_masks_and_positions_are_no_weights(self) -> None:
        import torch

        class Masked(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 4)
                self.register_buffer("mask", torch.ones(4, 4, dtype=torch.bool).tril())
                self.register_buffer("positions", torch.arange(4))

            def forward(self, x: Any) -> Any:
                return self.layer(x) @ self.mask.float() + self.positions.float()

        assert not arenaplan.torch.graph(Masked(), torch.ones(2, 4), loss="mse").notes


@pytest.mark.parity
class TestMasks:
    """Every layer of a decoder has a causal mask of its own."""

    SIZE = 64

    def decoder(self, *, saved: bool = True, added: bool = False) -> Any:
        import torch

        size = self.SIZE

        class Layer(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.project = torch.nn.Linear(8, 24)
                mask = torch.full((size, size), -1e9).triu(1) if added else torch.ones(size, size).tril() > 0
                self.register_buffer("mask", mask, persistent=saved)

            def forward(self, x: Any) -> Any:
                q, k, v = self.project(x).chunk(3, -1)
                scores = q @ k.transpose(-1, -2)
                scores = scores + self.mask if added else scores.masked_fill(~self.mask, -1e9)
                return x + scores.softmax(-1) @ v

        return torch.nn.Sequential(*(Layer() for _ in range(3)))

    @pytest.mark.parametrize("saved", [True, False])
    @pytest.mark.parametrize("added", [True, False])
    def test_one_mask_and_its_rule(self, saved: bool, added: bool) -> None:
        import torch

        module, x = self.decoder(saved=saved, added=added), torch.randn(2, self.SIZE, 8)
        captured = arenaplan.torch.graph(module, x, loss="mse", targets=x)
        large = [o for o in captured.graph.operands.values() if o.shape == (self.SIZE, self.SIZE)]
        assert [o.role for o in large] == [Role.CONSTANT]
        text = dump_graph(captured.graph)
        assert b'"kind":"band"' in text
        again = load_graph(text)
        assert again == captured.graph
        expected = torch.nn.functional.mse_loss(module(x), x).item()
        assert next(captured.train([(x, x)])) == pytest.approx(expected, rel=1e-5)
        module.load_state_dict(captured.state_dict())

    def test_a_mask_of_infinities(self) -> None:
        """Written in the document as one rule, and found again from it."""
        import torch

        class Masked(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(3))

            def forward(self, x: Any) -> Any:
                for layer in self.layers:
                    mask = torch.full((x.shape[1], x.shape[1]), float("-inf")).triu(1)
                    x = layer((x @ x.mT + mask).softmax(-1) @ x)
                return x

        module, x = Masked(), torch.randn(2, self.SIZE, 8)
        captured = arenaplan.torch.graph(module, x, loss="mse", targets=x)
        text = dump_graph(captured.graph)
        assert text.count(b'"other":"-Infinity"') == 1
        assert load_graph(text) == captured.graph
        expected = torch.nn.functional.mse_loss(module(x), x).item()
        assert next(captured.train([(x, x)])) == pytest.approx(expected, rel=1e-5)

    def test_masks_that_differ_in_other_weights(self) -> None:
        """They were one constant, and are not any more: refused, not trained with the wrong one."""
        import torch

        module, x = self.decoder(added=True), torch.randn(2, self.SIZE, 8)
        captured = arenaplan.torch.graph(module, x, loss="mse", targets=x)
        other = self.decoder(added=True).state_dict()
        loaded = captured.load_weights(other).state_dict()
        assert all(torch.equal(loaded[name], other[name]) for name in other)
        state = {name: 0 * values for name, values in module.state_dict().items()}
        assert not captured.load_weights(state).state_dict()["1.mask"].any()
        state["2.mask"] = state["2.mask"] + 1
        with pytest.raises(DocumentError, match="one constant of the graph, and differ"):
            captured.load_weights(state)

    def test_statistics_that_are_alike_for_now(self) -> None:
        """Frozen running statistics begin as zeros and ones in every layer, and are loaded later."""
        import torch

        def trunk() -> Any:
            layers = [torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)]
            return torch.nn.Sequential(*layers).eval()

        x, other = torch.randn(3, 4), trunk()
        for k, layer in enumerate(other[1:]):
            layer.running_mean += k + 1
        captured = arenaplan.torch.graph(trunk(), x, loss="mse", targets=x)
        loaded = captured.load_weights(other.state_dict())
        expected = torch.nn.functional.mse_loss(other(x), x).item()
        assert next(loaded.train([(x, x)])) == pytest.approx(expected, rel=1e-5)

    def test_a_mask_for_any_batch(self) -> None:
        """Expanded to the batch it is still a rule, whatever the batch."""
        import torch

        class Masked(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(16, 16)

            def forward(self, x: Any) -> Any:
                mask = torch.ones(16, 16).tril().expand(x.shape[0], 16, 16)
                return self.layer(x) * mask

        x = torch.randn(3, 16, 16)
        document = arenaplan.torch.document(Masked(), x, loss="mse", targets=x)
        operands = load_graph(document, batch=7).operands.values()
        assert (7, 16, 16) in [operand.shape for operand in operands if operand.role is Role.CONSTANT]


@pytest.mark.parity
class TestDocument:
    @pytest.mark.parametrize("name", some(["resnet", "transformer"], beside=["mlp", "lenet", "lstm", "gpt"]))
    def test_for_any_batch(self, name: str) -> None:
        from tests.support.pytorch_models import example

        one = example(name)
        options = {"loss": one.loss, "targets": one.targets, "weights": False}
        document = arenaplan.torch.document(one.module, one.inputs, **options)
        concrete = arenaplan.torch.graph(one.module, one.inputs, batch=9, **options)
        assert arenaplan.plan(document, batch=9).arena_bytes == concrete.plan().arena_bytes
        assert load_graph(document, batch=9).operations == concrete.graph.operations

    @pytest.mark.parametrize(
        ("token", "batch"),
        list(itertools.product(["expand", "repeat", "new_zeros", "arange", "buffer"], [1, 3, 4]))
        if ALL
        else [("expand", 1), ("repeat", 3), ("new_zeros", 4), ("arange", 1), ("buffer", 3)],
    )
    def test_a_class_token(self, token: str, batch: int) -> None:
        """A vision transformer: outputs, losses and weights are eager PyTorch's at every batch."""
        import torch
        from torch import nn

        class Vision(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
            def __init__(self) -> None:
                super().__init__()
                self.patches, self.token = nn.Conv2d(3, 8, 4, 4), nn.Parameter(torch.randn(1, 1, 8))
                self.positions = nn.Parameter(torch.randn(1, 5, 8) / 4)
                self.register_buffer("order", torch.tensor([[3, 0, 4, 1, 2]]))
                self.table, self.head = nn.Embedding(5, 8), nn.Linear(8, 3)
                self.layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)

            def forward(self, x: Any) -> Any:
                n = x.shape[0]
                tokens = {
                    "repeat": lambda: self.token.repeat(n, 1, 1),
                    "new_zeros": lambda: x.new_zeros(n, 1, 8) + self.token,
                }.get(token, lambda: self.token.expand(n, -1, -1))()
                y = torch.cat([tokens, self.patches(x).flatten(2).mT], 1) + self.positions
                if token == "buffer":
                    y = y + self.table(self.order.expand(n, -1))
                y = self.layer(y)
                return self.head(y[torch.arange(n), 0 * torch.arange(n)] if token == "arange" else y[:, 0])

        torch.manual_seed(2)
        module, loss = Vision(), torch.nn.functional.cross_entropy
        sgd, example = torch.optim.SGD(module.parameters(), lr=0.1), torch.randn(batch, 3, 8, 8)
        choices: dict[str, Any] = {"loss": "cross-entropy", "optimizer": sgd, "outputs": True}
        document = arenaplan.torch.document(module, example, **choices)
        assert document["batch"] == batch
        for n in (1, 2, 5):
            x, y, graph = torch.randn(n, 3, 8, 8), torch.randint(0, 3, (n,)), load_graph(document, batch=n)
            eager = copy.deepcopy(module)
            output = eager(x)
            expected = loss(output, y)
            expected.backward()
            with arenaplan.Trainer(graph, arenaplan.plan(graph)) as trainer:
                ours = trainer.step({"x": x.numpy(), "target": y.numpy()})
                assert ours == pytest.approx(expected.item(), rel=1e-5)
                read = trainer.read(graph.outputs[0])
                np.testing.assert_allclose(read, output.detach(), rtol=1e-4, atol=1e-5)
                for name in sorted(graph.trained):
                    parameter = eager.get_parameter(name)
                    after = (parameter - 0.1 * parameter.grad).detach()
                    np.testing.assert_allclose(trainer.read(name), after, rtol=1e-3, atol=1e-5, err_msg=name)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda x: x.repeat(x.shape[0], 1), "the shape of 'target'"),
            (lambda x: x * x.shape[0], "the constant"),
            (lambda x: x if x.shape[0] % 2 else x + x, "the number of its operations"),
        ],
    )
    def test_a_batch_that_cannot_be_symbolic(self, change: Any, message: str) -> None:
        import torch

        class Changed(torch.nn.Linear):  # type: ignore[misc]
            def forward(self, x: Any) -> Any:
                return change(super().forward(x))

        with pytest.raises(BatchError, match=f"cannot be symbolic: {message}"):
            arenaplan.torch.document(Changed(4, 4), torch.ones(3, 4), loss="mse")
