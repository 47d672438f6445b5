"""Operator by operator: what a call returns has PyTorch's mean square and PyTorch's gradient."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.errors import UnknownOperatorError
from solver.executor import validate
from tests.support.every import every

pytestmark = pytest.mark.parity

#: Expressions of x [2, 6, 4, 4], a parameter w of that shape, and of what PyTorch offers.
EXPRESSIONS = """
assigned(x, w); torch.slice_scatter(x, w[:, :2], 1, 2, 4); torch.select_scatter(x, w[:, 0], 1, -1)
x + w; x - w; x * w; x / (w.abs() + 1); 2 - w; 3 / (w.abs() + 1); w * 2 + 1; torch.add(x, w, alpha=3)
w.pow(2); w.pow(3); w.abs().pow(1.5); w.abs().add(0.1).sqrt(); w.abs().add(0.1).rsqrt(); w.square(); 2.0**w
w.exp(); w.abs().add(1).log(); w.abs().log1p(); w.abs().add(1).log2(); w.reciprocal(); w.neg(); torch.erf(w)
F.relu(w); F.relu6(w * 9); F.hardtanh(w); F.gelu(w); F.gelu(w, approximate="tanh"); F.silu(w); F.elu(w)
F.selu(w); F.leaky_relu(w, 0.2); F.softplus(w); F.softplus(w, 2); F.logsigmoid(w); F.mish(w)
F.hardswish(w * 4); F.hardsigmoid(w * 4); F.glu(w, 1); F.softmax(w, 1); F.log_softmax(w, -1); torch.tanh(w)
torch.sigmoid(w); F.prelu(w, torch.full((6,), 0.1)); F.celu(w); F.tanhshrink(w); F.softsign(w)
torch.addcmul(x, w, w, value=2); torch.lerp(x, w, 0.3); torch.maximum(x, w); torch.minimum(w, x)
w.clamp(-0.5, 0.5); w.clamp(min=0.1); torch.where(x > 0, w, x); torch.where(w > x, w, -w)
w.masked_fill(x < 0, 0.5); w * (x != 0); w * (x >= 0.5); w.masked_fill((x < 0) & ~(x < -1), 1.0)
w * torch.logical_or(x > 1, x < -1); w.view(2, -1); w.reshape(12, 16); w.flatten(1); w.permute(0, 2, 3, 1)
w.transpose(1, -1); w.mT; w.unsqueeze(1); w[:, :1].squeeze(1); w[:, :1].expand(-1, 5, -1, -1); w[:, 1:5:2]
w[..., -1]; w[0]; w[:, :, None]; torch.cat([x, w], 1); torch.stack([w, x], 2)
torch.cat(w.split([1, 2, 3], 1)[::-1], 1); sum(w.chunk(3, 1)); sum(w.unbind(2)); w.repeat(2, 1, 1, 3)
w.repeat_interleave(2, 1); w.roll(1, 2); w.roll((1, -1), (2, 3)); w.flip(1); F.pad(w, (1, 2))
F.pad(w, (1, 0, 2, 1), value=3.0); F.pad(w, (1, 1, 1, 1), mode="reflect"); F.pad(w, (-1, 1))
F.pad(w, (1, 1, 1, 1), mode="replicate"); F.pad(w, (1, 1, 1, 1), mode="circular"); w.movedim(1, 3)
F.pixel_shuffle(w[:, :4], 2); F.pixel_unshuffle(w, 2); w.mean(); w.mean(1); w.sum((2, 3)); w.sum()
w.amax(1); w.amin((1, 2)); w.max(); w.max(2).values; w.var(1); w.std((1, 2))
torch.var_mean(w, 1, correction=0)[0]; w.norm(); w.norm(dim=1); w.logsumexp(1); w.mean((1, 2), True)
F.max_pool2d(w, 2); F.max_pool2d(w, 3, 1, 1); F.avg_pool2d(w, 2); F.avg_pool2d(w, 3, 1, 1)
F.avg_pool2d(w, 3, 1, 1, count_include_pad=False); F.adaptive_avg_pool2d(w, 1); F.adaptive_avg_pool2d(w, 2)
F.adaptive_max_pool2d(w, 2); F.max_pool1d(w[0], 2); F.avg_pool1d(w[:, :, 0], 2)
F.adaptive_avg_pool1d(w[0], 1); F.interpolate(w, scale_factor=2); F.interpolate(w, (7, 3), mode="bilinear")
F.interpolate(w[0], 9, mode="linear"); F.interpolate(w, scale_factor=2, mode="bilinear", align_corners=True)
F.interpolate(w, (8, 8), mode="bicubic"); F.interpolate(w, scale_factor=1.5, mode="bilinear")
F.interpolate(w, 2); F.layer_norm(w, (4,)); F.layer_norm(w, (4, 4)); F.group_norm(w, 3); F.instance_norm(w)
F.rms_norm(w, (4,)); F.batch_norm(w, None, None, training=True); F.normalize(w, dim=1)
F.cosine_similarity(x, w); F.local_response_norm(w, 3); x @ w; torch.matmul(w, x.mT)
torch.einsum("bchw,bcxw->bhx", x, w); torch.bmm(w[0], x[0]); w[0, 0] @ x[0, 0, 0]; F.linear(x, w[0, 0])
F.linear(w, x[0, 0], x[0, 0, 0]); torch.addmm(x[0, 0], w[0, 0], w[0, 1], alpha=2, beta=3)
torch.baddbmm(x[0], w[0], w[1], beta=2, alpha=3); torch.dot(w[0, 0, 0], x[0, 0, 0])
torch.outer(w[0, 0, 0], x[0, 0, 1]); F.conv2d(x, w[:, :, :3, :3])
F.conv2d(w, x[:, :, :2, :2], padding="same"); F.conv2d(x, w[:, :3, :3, :3], groups=2)
F.conv2d(x, w[:, :, :2, :2], dilation=2); F.conv1d(x[0], w[0, :, :, :2])
F.conv1d(x[:, 0], w[0, :, :, :3], padding=1); F.conv_transpose2d(x[:, :2], w[:, :, :2, :2], stride=2)
F.conv_transpose1d(x[:, 0], w[0, :4], stride=2, padding=1)
F.conv_transpose2d(x, w.reshape(6, 2, 4, 4), stride=3, padding=1, output_padding=1)
F.conv3d(x[None], w[:, :, None, :2, :2].transpose(0, 1)[:2]); F.scaled_dot_product_attention(x, w, w)
F.scaled_dot_product_attention(w, x, w, is_causal=True)
F.scaled_dot_product_attention(w, w, x, attn_mask=torch.ones(4, 4).tril().bool(), scale=0.3)
F.scaled_dot_product_attention(w, x[:, :2], w[:, :2], attn_mask=torch.ones(4, 4), enable_gqa=True)
w[:, [0, 2, 2]]; w.index_select(1, torch.tensor([1, 1, 3])); w[:, torch.tensor([[0, 1], [2, 5]])]
w * torch.arange(4); w * torch.ones_like(w); w + torch.tril(torch.ones(4, 4)); w * torch.zeros(4).add(2)
w + w.new_full((4,), 3.0); w.double().float() * 2; w.clone().contiguous()
w.to(torch.float64).to(torch.float32); F.dropout(w, 0.0); F.dropout(w, 0.5, training=False)
(w * w + x * x).sqrt(); F.mse_loss(w, x); F.l1_loss(w, x); F.smooth_l1_loss(w, x, beta=0.5)
F.huber_loss(w, x, delta=0.7); F.mse_loss(w, x, reduction="sum"); F.mse_loss(w, x, reduction="none")
F.smooth_l1_loss(w, x); F.binary_cross_entropy_with_logits(w, (x > 0).float())
F.binary_cross_entropy(w.sigmoid(), (x > 0).float()); F.cross_entropy(w, (x > 0)[:, 0].long())
F.cross_entropy(w, x.softmax(1)); F.cross_entropy(w[:, :, 0, 0], x[:, 0, 0, 0].abs().long())
F.nll_loss(F.log_softmax(w, 1), (x > 0)[:, 0].long())
F.cross_entropy(w, (x > 0)[:, 0].long(), reduction="none")
F.cross_entropy(w, (x > 0)[:, 0].long(), label_smoothing=0.1, reduction="sum")
F.nll_loss(w[:, :, 0, 0].log_softmax(1), x[:, 0, 0, 0].abs().long())
F.nll_loss(w[:, :, 0].sigmoid(), (x > 0)[:, 0, 0].long(), ignore_index=0)
F.nll_loss(w[:, :, 0, 0], (x > 0)[:, 0, 0, 0].long(), reduction="sum")
F.cross_entropy(w, (x > 0)[:, 0].long(), weight=torch.arange(1.0, 7.0))
F.cross_entropy(w, (x > 0)[:, 0].long() * 2, ignore_index=2, label_smoothing=0.1)
F.cross_entropy(w, (x > 0)[:, 0].long(), weight=torch.arange(6.0), ignore_index=0, reduction="sum")
F.cross_entropy(w[:, :, 0, 0], (x > 0)[:, 0, 0, 0].long(), weight=torch.arange(1.0, 7.0), reduction="none")
F.cross_entropy(w, (x > 0)[:, 0].long() * 101 - 100)
F.cross_entropy(w, (x > 9)[:, 0].long(), reduction="none"); w.relu().clamp(0, 1)
F.cross_entropy(w.masked_fill((torch.arange(6) == 2)[:, None, None], -torch.inf), (x > 9)[:, 0].long())
F.binary_cross_entropy((w * 1e4).sigmoid(), (x > 0).float()); (w > 0).float().clamp(0, 1) * w
F.binary_cross_entropy_with_logits(w, (x > 0).float(), pos_weight=torch.arange(4.0))
F.binary_cross_entropy_with_logits(w, (x > 0).float(), weight=x.abs(), reduction="sum")
F.binary_cross_entropy(w.sigmoid(), (x > 0).float(), weight=x.abs()); w.cumsum(1); w.cumsum(-1) * x.cumsum(0)
F.celu(w, 1.5); w.prod(1); w.prod(); w.expm1(); w.exp2(); w.erfc(); w.tan(); w.sinh(); w.cosh()
w * w.sign() + w.floor() - w.ceil() + w.round() + w.trunc(); w * torch.isnan(x); w * (x > 0).any(1, True)
w * (x > -2).all((2, 3), True); w / (1 + (x > 0).sum(1, True)); w * (x > 0).sum().float(); w.remainder(0.3)
torch.fmod(w, 0.3); torch.div(w, x.abs() + 1, rounding_mode="floor") + w; w * w.argmax(1, True)
w * w.argmin().float(); w.flatten(1).max(1)[0] * w[:, 0, 0, 0].argmax(); w * torch.max(x, 1, True)[1]
w * ((x * 9).long() % 4); w * ((x * 9).long() // 4 - 1); w * (-(x * 9).long()).clamp(-1, 3)
w.gather(1, (x > 0).long() * 3); torch.take_along_dim(w, (x > 0).long(), 2); masked(x, w)
w[torch.arange(2), [1, 3]]; w[:, :, [0, 1], [2, -1]]; w[[0, 1], :, [2, 3]]; w[:, (x > 0)[0, 0].long()]
w[(x > 0)[:, 0, 0, 0].long(), (x > 0)[:, 1, 0, 0].long() - 1]
w.masked_fill(x > 1, 2.0)[0, 0, 0, 0] * w; w.unfold(2, 3, 1); F.unfold(w, 3, padding=1, stride=2)
F.adaptive_avg_pool2d(w, 3); F.adaptive_avg_pool2d(w, (3, 1)); F.adaptive_max_pool2d(w, 3)
F.adaptive_avg_pool1d(w[0], 3); F.embedding_bag((x[0] > 0).flatten(1).long(), w[0, 0], mode="mean")
F.embedding_bag((x[0] > 0).flatten(1).long(), w[0, 0], mode="max"); F.bilinear(x, w, w[0])
x * w.detach() + w; torch.topk(w, 2, 1)[0]
torch.topk(w, 3, 2, largest=False)[0] * x[:, :, :3]; w.sort(1, descending=True)[0]; w * w.sort(2)[1]
w * w.argsort(1, descending=True)
x.scatter(1, (x > 0)[:, :1].long(), w[:, 2:3])
x.scatter(1, (x > 0)[:, :1].long(), 2.0) * w; w.scatter(2, (x > 0)[:, :, :1].long(), x[:, :, 1:])
x.scatter_add(1, (x > 0).long() * 3, w); x.index_add(1, torch.tensor([1, 1, 5]), w[:, :3], alpha=2)
w.index_copy(1, torch.tensor([4, 1]), x[:, :2]); put(x, w)
torch.cdist(w[0], x[0]); torch.cdist(w, x, p=1.0); w.norm(3, dim=1); w.median(1, keepdim=True)[0] * w
w.median() * w
F.avg_pool2d(w, 3, 2, 1, divisor_override=5)
F.conv2d(x[0], w[:, :, :3, :3]); F.conv_transpose1d(x[0, 0], w[0, :4, :, :2]); w * (x * 9).long().abs()
w.kthvalue(2, 1)[0]
w.kthvalue(2, 1)[1] * w[:, 0]; w.diagonal(0, 2, 3); w.diagonal(-1, 1, 3)
F.grid_sample(x, w[:, 0, :, None, :2].tanh(), align_corners=False); F.lp_pool2d(w.abs() + 0.1, 2, 2)
"""

CASES = [case.strip() for case in EXPRESSIONS.strip().replace("\n", ";").split(";")]

#: Expressions that are captured as one module: PyTorch takes half a second for a module, whatever is in it.
TOGETHER = 30


def assigned(x: Any, w: Any) -> Any:
    """Assignments to parts of a copy, and to a constant that has the size of an input."""
    y, mask = w.clone(), x.new_zeros(x.shape)
    y[:, 1:3] = x[:, 1:3] * 2
    y[:, :, -1] = 0.5
    mask[:, 2:] = 1
    return y * mask


def masked(x: Any, w: Any) -> Any:
    y = w.clone()
    y[x > 0.5] = 0.25
    y[(x > 0)[:, 0, 0, 0]] = -1.0
    return y


def put(x: Any, w: Any) -> Any:
    import torch

    y = torch.zeros_like(x)
    y[0, [1, 2], 3] = w[0, :2, 0]
    y[:, torch.tensor([0, 5])] += w[:, 2:4]
    return y.index_put((torch.tensor([1, 1]), torch.tensor([2, 2])), w[0, :2], accumulate=True)


def module_of(functions: Sequence[Callable[[Any, Any], Any]]) -> Any:
    """A module with parameters w0, w1, ... that returns the mean squares of the functions, away from zero."""
    import torch

    class Several(torch.nn.Module):  # type: ignore[misc]  # PyTorch has no types here
        def __init__(self) -> None:
            super().__init__()
            for k in range(len(functions)):
                self.register_parameter(f"w{k}", torch.nn.Parameter(torch.randn(2, 6, 4, 4)))

        def forward(self, x: Any) -> Any:
            squares = []
            for function, w in zip(functions, self.parameters(), strict=True):
                squares.append((function(x, w) * 0.5 + 1).pow(2).mean() + w.sum() * 0.01)
            return torch.stack(squares)

    return Several()


@pytest.mark.parametrize("first", range(0, len(CASES), TOGETHER))
def test_losses_and_gradients(first: int) -> None:
    import torch
    import torch.nn.functional as F

    torch.manual_seed(first)
    names = {"F": F, "torch": torch, "assigned": assigned, "masked": masked, "put": put}
    cases = CASES[first : first + TOGETHER]
    module = module_of([eval(f"lambda x, w: {case}", names) for case in cases])
    x, zeros = torch.randn(2, 6, 4, 4), torch.zeros(len(cases))
    # The loss is the mean of the squares, as these are positive.
    optimizer = {"type": "SGD", "learning_rate": float(len(cases))}
    captured = arenaplan.torch.graph(module, x, loss="l1", targets=zeros, optimizer=optimizer, outputs=True)
    with captured.trainer() as trainer:
        trainer.step(captured.batch(x, zeros))
        squares = trainer.read(captured.graph.outputs[0])
        after = captured.state_dict(trainer)
    expected = module(x)
    assert (expected > 0).all()
    expected.sum().backward()
    with every() as case:
        for k, (text, w) in enumerate(zip(cases, module.parameters(), strict=True)):
            with case(text):
                assert squares[k] == pytest.approx(expected[k].item(), rel=2e-6)
                moved = w.detach().numpy() - after[f"w{k}"].numpy()
                np.testing.assert_allclose(moved, w.grad.numpy(), rtol=1e-3, atol=2e-6)


def test_missing_operators_are_named_together() -> None:
    import torch

    class Inner(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return torch.cummax(x, 1).values + torch.linalg.det(x)[:, None, None]

    class Outer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.layer = torch.nn.Linear(3, 3), Inner()

        def forward(self, x: Any) -> Any:
            return torch.cummax(self.layer(self.first(x)), 0).values.mean()

    with pytest.raises(UnknownOperatorError) as error:
        arenaplan.torch.graph(Outer(), torch.randn(2, 3, 3))
    text = error.value.message
    assert "cummax.default" in text
    assert "det" in text
    assert re.search(r"cummax\S* in layer", text)
    assert error.value.path == ("module",)


def test_a_size_that_depends_on_values_is_refused() -> None:
    import torch

    class Kept(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x[x > 0].sum()

    with pytest.raises(UnknownOperatorError, match=r"index\.Tensor .*a mask that is computed from data"):
        arenaplan.torch.graph(torch.nn.Sequential(torch.nn.Linear(3, 3), Kept()), torch.randn(2, 3))


def test_layers_that_are_written_out_are_one_operation() -> None:
    import torch

    class Written(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.shift = (torch.nn.Parameter(torch.randn(6)) for _ in range(2))

        def forward(self, x: Any) -> Any:
            y = x * self.shift
            y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale
            y = 0.5 * y * (1 + torch.erf(y / 2**0.5)) + y * torch.sigmoid(y)
            centred = y - y.mean(-1, keepdim=True)
            normal = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5)
            return (normal * self.scale + self.shift).pow(2).mean()

    x = torch.randn(4, 6)
    module = Written()
    captured = arenaplan.torch.graph(module, x)
    found = {operation.type for operation in captured.graph.operations}
    assert found >= {"RMSNormalization", "Gelu", "Swish", "LayerNormalization"}
    assert not found & {"Sqrt", "Erf", "Sigmoid", "ReduceSum"}
    assert next(captured.train([(x,)])) == pytest.approx(module(x).item(), rel=1e-6)


def test_what_pytorch_cannot_take_apart_is_named() -> None:
    import torch

    class Unpooled(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Conv2d(1, 1, 1)

        def forward(self, x: Any) -> Any:
            pooled, places = torch.nn.functional.max_pool2d(self.layer(x), 2, return_indices=True)
            return torch.nn.functional.max_unpool2d(pooled, places, 2).sum()

    with pytest.raises(UnknownOperatorError, match=r"max_\w*pool2d"):
        arenaplan.torch.graph(Unpooled(), torch.randn(1, 1, 4, 4))


def test_random_numbers_are_drawn_anew() -> None:
    """As many as they should be, between their bounds; a step that runs again draws the same ones."""
    import torch

    class Noisy(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(1))

        def forward(self, x: Any) -> Any:
            given = self.scale * x
            wide = torch.randn_like(given) + torch.empty_like(given).normal_(1.0, 2.0)
            drawn = torch.rand_like(given) + torch.bernoulli(torch.full_like(given, 0.25))
            late = torch.empty_like(given).exponential_(2.0) + torch.rand(20_000)
            return (given * (wide + drawn + late)).mean()

    x = torch.ones(20_000)
    captured = arenaplan.torch.graph(Noisy(), x, optimizer={"type": "SGD", "learning_rate": 1e-9})
    losses = list(captured.train([(x,)] * 3))
    assert len(set(losses)) == 3
    assert losses == pytest.approx([1 + 0.5 + 0.25 + 0.5 + 0.5] * 3, abs=0.1)
    assert validate(captured.graph, captured.plan(), steps=2).identical
