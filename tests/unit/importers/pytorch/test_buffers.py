"""Buffers that training changes, and captures in threads and copies of what they return."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import pytest

import arenaplan
from solver.errors import UnknownOperatorError
from solver.graph import TrainingRules

pytestmark = pytest.mark.parity


def network(kind: str = "once") -> Any:
    """Batch norms in nested modules; `kind` says how their statistics are used."""
    import torch
    from torch import nn

    class Network(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)
            self.block = nn.Sequential(nn.Sequential(nn.BatchNorm2d(4)), nn.ReLU())
            self.frozen, self.fc = nn.BatchNorm2d(4).eval(), nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y = self.conv(x)
            if kind == "read before":
                y = y - self.bn.running_mean[:, None, None]
            y = self.bn(y)
            if kind == "twice":
                y = self.bn(y)
            if kind == "read":
                y = y + self.bn.running_mean[:, None, None]
            return self.fc(self.frozen(self.block(y)).mean((2, 3)))

    torch.manual_seed(1)
    return Network()


@pytest.mark.parametrize("accumulate", [1, 2])
def test_statistics_and_counts_are_those_of_pytorch(accumulate: int, tmp_path: Any) -> None:
    """Under PyTorch's names, in PyTorch's types, and so after a checkpoint and in the next capture."""
    import torch

    module, x, y = network(), torch.randn(4, 3, 6, 6), torch.randn(4, 2)
    eager = copy.deepcopy(module)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    captured = arenaplan.torch.graph(
        module, x, loss="mse", optimizer=sgd, rules=TrainingRules(accumulate=accumulate)
    )
    statistics = [name for name in module.state_dict() if "running" in name]
    assert [name for name in captured.graph.operands if "running" in name] == statistics
    theirs = torch.optim.SGD(eager.parameters(), lr=0.1)
    with captured.trainer() as trainer:
        for k in range(4):
            trainer.step(captured.batch(x, y))
            (torch.nn.functional.mse_loss(eager(x), y) / accumulate).backward()
            if k % accumulate == accumulate - 1:
                theirs.step()
                theirs.zero_grad()
        state = captured.state_dict(trainer)
        trainer.save(tmp_path / "state.safetensors")
    expected = eager.state_dict()
    assert expected["bn.num_batches_tracked"] == 4
    assert expected["frozen.num_batches_tracked"] == 0
    assert state.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-4, atol=1e-5)
    module.load_state_dict(state, strict=True)
    assert captured.state_dict()["bn.num_batches_tracked"] == 0
    assert captured.load_weights(state).state_dict()["bn.num_batches_tracked"] == 4
    with captured.trainer() as trainer:
        trainer.restore(tmp_path / "state.safetensors")
        assert captured.state_dict(trainer)["block.0.0.num_batches_tracked"] == 4


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("twice", r"two calls update its running statistics\): .* in bn"),
        ("read", "it reads result 3 of .*batch_norm"),
        ("read before", "it changes the buffer 'bn.running_mean'"),
    ],
)
def test_statistics_that_something_else_reads(kind: str, message: str) -> None:
    import torch

    x = torch.randn(4, 3, 6, 6)
    with pytest.raises(UnknownOperatorError, match=message):
        arenaplan.torch.graph(network(kind), x, loss="mse")
    captured = arenaplan.torch.graph(network(kind).eval(), x, loss="mse")
    expected = torch.nn.functional.mse_loss(network(kind).eval()(x), torch.zeros(4, 2)).item()
    assert next(captured.train([(x, torch.zeros(4, 2))])) == pytest.approx(expected, rel=1e-5)


def test_tensors_of_the_module_come_before_inputs_and_results() -> None:
    import torch

    class Named(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(4))
            self.register_buffer("mul", torch.rand(4))
            self.register_buffer("add", torch.rand(4))

        def forward(self, weight: Any) -> Any:
            return weight * self.weight * self.mul + self.add

    captured = arenaplan.torch.graph(Named(), torch.randn(2, 4), loss="mse")
    assert {"weight", "mul", "add"} <= captured.graph.operands.keys()
    assert captured.imported.inputs == ("weight_2",)


def test_threads_capture_one_after_the_other() -> None:
    import torch

    x, y = torch.randn(4, 3, 6, 6), torch.randn(4, 2)
    losses: dict[int, Any] = {}
    modules, loss = [network() for _ in range(4)], torch.nn.functional.mse_loss

    def work(k: int) -> None:
        module = modules[k]
        sgd = torch.optim.SGD(module.parameters(), lr=0.1)
        if k % 2:
            losses[k] = arenaplan.torch.train_step(module, loss, sgd, (x, y))(x, y).item()
        else:
            losses[k] = next(arenaplan.torch.graph(module, x, loss="mse", optimizer=sgd).train([(x, y)]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = torch.nn.functional.mse_loss(network()(x), y).item()
    assert losses == {k: pytest.approx(expected, rel=1e-5) for k in range(4)}


def test_copies() -> None:
    import torch

    x, y = torch.randn(4, 3, 6, 6), torch.randn(4, 2)
    module, loss = network(), torch.nn.functional.mse_loss
    captured = arenaplan.torch.graph(module, x, loss=loss, targets=y)
    for again in (pickle.loads(pickle.dumps(captured)), copy.deepcopy(captured)):
        assert list(again.train([(x, y)] * 2)) == list(captured.train([(x, y)] * 2))
        assert again.state_dict().keys() == module.state_dict().keys()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1)
    step = arenaplan.torch.program(module, x, loss=loss, targets=y, optimizer=sgd)
    assert copy.deepcopy(step).program == pickle.loads(pickle.dumps(step.program)) == step.program
    with pytest.raises(TypeError, match=r"A TracedStep cannot be pickled: .* trace the step again"):
        pickle.dumps(step)
    for copied in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="A BlockRunner cannot be pickled or copied: it holds an arena"):
            copied(arenaplan.torch.runner(step))
