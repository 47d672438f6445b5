"""Modules that keep frozen weights in few bits: planned with these bits, and trained to the same losses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.errors import StorageError
from solver.executor.initial import initial_value
from solver.graph import Initializer, Operand
from solver.graph.packing import unpack
from solver.graph.storage import Storage

pytestmark = pytest.mark.parity

_CLASSES, _WIDTH = 64, 96


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    import torch

    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.filterwarnings("ignore", module="torch")
        yield


def quantised(weight: Any, bits: int, group: int, *, zero_points: bool) -> tuple[Any, Any, Any]:
    """Integers ``uint8[rows, groups, group]``, scales and zero points, all in the middle or of each group."""
    import torch

    groups = weight.reshape(weight.shape[0], -1, group)
    top = 2**bits - 1
    low = groups.amin(-1, keepdim=True) if zero_points else -groups.abs().amax(-1, keepdim=True)
    high = groups.amax(-1, keepdim=True) if zero_points else -low
    scales = (high - low) / top
    zeros = (-low / scales).round() if zero_points else torch.full_like(scales, 2 ** (bits - 1))
    return (groups / scales + zeros).round().clamp(0, top).to(torch.uint8), scales, zeros


def packed_module(kind: str, bits: int, group: int, *, zero_points: bool, scale_type: Any) -> Any:
    """A linear layer or an embedding of ``[_CLASSES, _WIDTH]`` that dequantises in `forward`."""
    import torch

    class Packed(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            integers, scales, zeros = quantised(
                torch.randn(_CLASSES, _WIDTH), bits, group, zero_points=zero_points
            )
            if bits == 4:
                integers = integers[..., ::2] | (integers[..., 1::2] << 4)
            self.register_buffer("packed", integers)
            self.register_buffer("scales", scales.to(scale_type))
            self.register_buffer("zeros", zeros.to(torch.uint8))

        def weight(self) -> Any:
            integers = self.packed
            if bits == 4:
                integers = torch.stack([integers & 15, integers >> 4], -1).flatten(-2)
            floats = (integers.float() - self.zeros.float()) * self.scales.float()
            return floats.reshape(_CLASSES, _WIDTH)

        def forward(self, x: Any) -> Any:
            if kind == "embedding":
                return torch.nn.functional.embedding(x, self.weight())
            if kind == "matmul":
                return x @ self.weight().t()
            return torch.nn.functional.linear(x, self.weight())

    return Packed()


@pytest.mark.parametrize("kind", ["linear", "matmul", "embedding"])
@pytest.mark.parametrize(("bits", "group", "zero_points"), [(4, 32, False), (4, 48, True), (8, 96, True)])
@pytest.mark.parametrize("scale_type", ["float16", "bfloat16", "float32"])
def test_plain_modules(kind: str, bits: int, group: int, zero_points: bool, scale_type: str) -> None:
    import torch

    packed = packed_module(kind, bits, group, zero_points=zero_points, scale_type=getattr(torch, scale_type))
    if kind == "embedding":
        x = torch.randint(0, _CLASSES, (4, 7))
        module = torch.nn.Sequential(packed, torch.nn.Linear(_WIDTH, 5))
    else:
        x = torch.randn(4, 7, _WIDTH)
        module = torch.nn.Sequential(torch.nn.Linear(_WIDTH, _WIDTH), packed, torch.nn.Linear(_CLASSES, 5))
    y = torch.randn(4, 7, 5)
    expected = torch.nn.functional.mse_loss(module(x), y)
    captured = arenaplan.torch.graph(module, x, loss="mse", targets=y)
    (type_,) = (o.type for o in captured.graph.operands.values() if o.type.storage is not None)
    kept = "float32" if scale_type == "float32" else "float16"  # which has every bit of these bfloat16s
    assert type_.storage == Storage(f"int{bits}", group, zero_points, kept, axis=int(kind == "matmul"))
    scales = packed.scales.numel() * packed.scales.element_size()
    assert type_.nbytes == packed.packed.numel() + scales + zero_points * packed.zeros.numel()
    assert next(captured.train([(x, y)])) == pytest.approx(expected.item(), rel=1e-5)
    plan = captured.plan()
    assert arenaplan.validate(captured.graph, plan, steps=2).identical


@pytest.mark.parametrize("config", ["int8", "int8 by groups", "int4 by groups", "int8 by rows"])
def test_torchao(config: str) -> None:
    import torch

    quantization = pytest.importorskip("torchao.quantization", reason="torchao is not installed here")
    by_groups = quantization.PerGroup(32)
    chosen, storage = {
        "int8": (quantization.Int8WeightOnlyConfig(), "int8"),
        "int8 by groups": (quantization.Int8WeightOnlyConfig(granularity=by_groups), "int8"),
        "int4 by groups": (quantization.IntxWeightOnlyConfig(torch.int4, by_groups), "int4"),
        "int8 by rows": (quantization.IntxWeightOnlyConfig(torch.int8), "int8"),
    }[config]
    trunk = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 48))
    quantization.quantize_(trunk.requires_grad_(requires_grad=False), chosen)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), trunk, torch.nn.Linear(48, 5))
    x, y = torch.randn(6, 64), torch.randn(6, 5)
    expected = torch.nn.functional.mse_loss(module(x), y)
    captured = arenaplan.torch.graph(module, x, loss="mse", targets=y)
    stored = [o.type for o in captured.graph.operands.values() if o.type.storage is not None]
    assert [str(type_.storage).partition(" ")[0] for type_ in stored] == [storage, storage]
    assert sorted(type_.elements for type_ in stored) == [48 * 96, 64 * 96]
    assert next(captured.train([(x, y)])) == pytest.approx(expected.item(), rel=1e-5)


def as_floats(operand: Operand) -> Operand:
    """The operand as it would be without its storage."""
    if operand.type.storage is None:
        return operand
    values = unpack(initial_value(operand), operand.type)
    type_, initializer = replace(operand.type, storage=None), Initializer("values", data=values.tobytes())
    return replace(operand, type=type_, initializer=initializer)


def test_the_arena_holds_the_bytes_of_the_module() -> None:
    """And a tile; what is live besides, the plan with floats shows."""
    import torch

    class Adapted(torch.nn.Module):  # type: ignore[misc]
        """A frozen int4 layer with a trained product of low rank beside it."""

        def __init__(self) -> None:
            super().__init__()
            self.base = packed_module("linear", 4, 32, zero_points=False, scale_type=torch.float16)
            self.down = torch.nn.Linear(_WIDTH, 4, bias=False)
            self.up = torch.nn.Linear(4, _CLASSES, bias=False)

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.pad(self.base(x) + self.up(self.down(x)), (0, _WIDTH - _CLASSES))

    module = torch.nn.Sequential(*(Adapted() for _ in range(6)))
    x, y = torch.randn(8, _WIDTH), torch.randn(8, _WIDTH)
    captured = arenaplan.torch.graph(module, x, loss="mse", targets=y)
    graph = captured.graph
    stored = [operand.type for operand in graph.operands.values() if operand.type.storage is not None]
    held = sum(layer.base.packed.nbytes + layer.base.scales.nbytes for layer in module)
    assert sum(type_.nbytes for type_ in stored) == held
    wide = graph.with_graph(operands={name: as_floats(x) for name, x in graph.operands.items()})
    besides = arenaplan.plan(wide).arena_bytes - sum(4 * type_.elements for type_ in stored)
    tile = 4 * _CLASSES * _WIDTH
    assert captured.plan().arena_bytes <= held + besides + tile


def test_scales_that_are_not_numbers() -> None:
    import torch

    packed = packed_module("linear", 4, 32, zero_points=False, scale_type=torch.float16)
    packed.scales[3, 1] = torch.nan
    module = torch.nn.Sequential(torch.nn.Linear(_WIDTH, _WIDTH), packed)
    with pytest.raises(StorageError, match=r"'1\.scales', from which the model computes .* not finite"):
        arenaplan.torch.graph(module, torch.randn(2, _WIDTH), loss="mse")


def test_weights_with_a_float_minimum_become_floats() -> None:
    """q s + m is no integer times a scale."""
    import torch

    class Shifted(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("q", torch.randint(0, 16, (16, 32), dtype=torch.uint8))
            self.register_buffer("s", torch.rand(16, 1))
            self.register_buffer("m", torch.rand(16, 1))

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.linear(x, self.q.float() * self.s + self.m)

    module = torch.nn.Sequential(torch.nn.Linear(32, 32), Shifted())
    x, y = torch.randn(4, 32), torch.randn(4, 16)
    with pytest.warns(UserWarning, match=r"stored in 640 bytes \(float32, uint8\) and planned in 2,048"):
        captured = arenaplan.torch.graph(module, x, loss="mse", targets=y)
    expected = torch.nn.functional.mse_loss(module(x), y)
    assert next(captured.train([(x, y)])) == pytest.approx(expected.item(), rel=1e-5)


def test_a_gguf_file_gives_the_weights_of_a_module(tmp_path: Path) -> None:
    import torch

    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed here")
    frozen = torch.nn.Linear(_WIDTH, _CLASSES, bias=False).requires_grad_(requires_grad=False)
    module = torch.nn.Sequential(torch.nn.Embedding(_CLASSES, _WIDTH), frozen, torch.nn.Linear(_CLASSES, 5))
    x, y = torch.randint(0, _CLASSES, (4, 7)), torch.randn(4, 7, 5)
    captured = arenaplan.torch.graph(module, x, loss="mse", targets=y, weights=False)
    values = {name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "test")
    q4_0 = gguf.GGMLQuantizationType.Q4_0
    packed = gguf.quantize(values["1.weight"], q4_0)
    writer.add_tensor("ffn", packed, raw_dtype=q4_0)
    for name in ("0.weight", "2.weight", "2.bias"):
        writer.add_tensor(name, values[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (tmp_path / "names.json").write_text(
        '{"file": "model.gguf", "names": {"1.weight": "ffn"}}', encoding="utf-8"
    )
    with pytest.warns(UserWarning, match="1 tensor of Q4_0"):
        loaded = captured.load_weights(tmp_path / "names.json")
    assert loaded.graph.operands["1.weight"].type.storage == Storage("int4", 32)
    state = loaded.state_dict()
    np.testing.assert_array_equal(state["1.weight"], gguf.dequantize(packed, q4_0))
    module.load_state_dict(state)
    expected = torch.nn.functional.mse_loss(module(x), y)
    with loaded.trainer() as trainer:
        assert trainer.step(loaded.batch(x, y)) == pytest.approx(expected.item(), rel=1e-5)
        after = loaded.state_dict(trainer)
    np.testing.assert_array_equal(after["1.weight"], state["1.weight"])
    assert not torch.equal(after["2.weight"], state["2.weight"])
