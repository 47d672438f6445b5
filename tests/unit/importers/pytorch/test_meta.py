"""Modules on PyTorch's device meta, whose tensors have no storage: captured without weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import arenaplan
from solver.documents import dump_graph, load_graph, parse_json

pytestmark = pytest.mark.parity

SMALL = {"layers": 2, "hidden": 28, "head_size": 2, "intermediate": 38, "vocabulary": 61}


def captured(device: str, **choices: Any) -> Any:
    """A small Qwen on a device, captured."""
    import torch

    from examples.qwen import Qwen, Shapes, causal_loss, example_batch

    shapes = Shapes(**SMALL)
    torch.manual_seed(0)
    with torch.device(device):
        module = Qwen(shapes)
        tokens, targets = example_batch(shapes, 8)
    return arenaplan.torch.graph(
        module, tokens, loss=causal_loss, targets=targets, optimizer="adamw", name="qwen", **choices
    )


def test_the_document_is_that_of_a_module_on_the_cpu() -> None:
    on_meta, on_cpu = captured("meta", weights=False), captured("cpu", weights=False)
    assert dump_graph(on_meta.graph) == dump_graph(on_cpu.graph)


def test_the_module_stays_as_it_is() -> None:
    import torch
    from torch import nn

    with torch.device("meta"):
        module = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
        module[1].weight = nn.Parameter(torch.ones(2, 3, device="cpu"))
        example = torch.zeros(5, 4)
    before = [*module.parameters()]
    graph = arenaplan.torch.graph(module, example, loss="mse", weights=False).graph
    assert all(a is b for a, b in zip(before, module.parameters(), strict=True))
    assert graph.operands["0.weight"].shape == (3, 4)


def test_a_parameter_without_values_is_named() -> None:
    with pytest.raises(arenaplan.DocumentError, match=r"'embedding.weight' is on PyTorch's device meta"):
        captured("meta")


@pytest.mark.parametrize("part", ["buffer", "parameter"])
def test_a_constant_without_values_is_named(part: str) -> None:
    import torch
    from torch import nn

    class Masked(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)
            if part == "buffer":
                self.register_buffer("mask", torch.ones(4))
            else:
                self.mask = nn.Parameter(torch.ones(4, dtype=torch.int32), requires_grad=False)

        def forward(self, x: Any) -> Any:
            return self.fc(x) * (self.mask * 2 + torch.arange(4))

    with torch.device("meta"):
        module, example = Masked(), torch.zeros(5, 4)
    with pytest.raises(arenaplan.ArenaplanError, match=r"'mask' is on PyTorch's device meta"):
        arenaplan.torch.graph(module, example, loss="mse", weights=False)


def test_the_loss_of_qwen_is_that_of_pytorch() -> None:
    import torch

    from examples.qwen import Qwen, Shapes, causal_loss, example_batch

    shapes = Shapes(**SMALL)
    torch.manual_seed(0)
    module = Qwen(shapes)
    for layer in module.layers:  # else LoRA has no part in the first loss
        torch.nn.init.normal_(layer.attention.q_proj.up.weight)
        torch.nn.init.normal_(layer.attention.v_proj.up.weight)
    tokens, targets = example_batch(shapes, 8)
    optimizer = torch.optim.AdamW([p for p in module.parameters() if p.requires_grad], lr=1e-2)
    ours = arenaplan.torch.graph(module, tokens, loss=causal_loss, targets=targets, optimizer=optimizer)
    theirs = []
    for _ in range(3):
        loss = causal_loss(module(tokens), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        theirs.append(loss.item())
    assert list(ours.train([(tokens, targets)] * 3)) == pytest.approx(theirs, rel=1e-5)
    assert ours.graph.trained == {name for name, p in module.named_parameters() if p.requires_grad}


def test_the_document_of_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The real shapes: 494 million parameters, and 24 layers with their LoRA, in less than 10 MB."""
    from examples.qwen import main

    file = tmp_path / "qwen.json"
    main(["-o", str(file)])
    assert f"{file.stat().st_size:,} bytes" in capsys.readouterr().out
    assert file.stat().st_size <= 10_000_000
    graph = load_graph(parse_json(file.read_bytes()))
    parameters = [o.type.elements for o in graph.operands.values() if o.role.value == "parameter"]
    assert sum(parameters) == 494_032_768 + 24 * 8 * (896 + 896 + 896 + 128)
