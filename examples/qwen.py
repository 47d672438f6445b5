"""Qwen2.5-0.5B with LoRA on its query and value projections, in plain PyTorch, and its graph document.

    python -m examples.qwen -o qwen.json                     # the real shapes: 494 million parameters
    python -m examples.qwen -o small.json --divide-width 8   # the same structure, an eighth as wide

The shapes are those of the public model (Qwen Team, "Qwen2.5 Technical Report", arXiv 2412.15115); LoRA is
that of Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022 (arXiv 2106.09685). The
module is made on PyTorch's device "meta", so that no weight exists while it is captured.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import arenaplan
from solver.documents import dump_graph

try:
    import torch
    from torch import Tensor, nn
    from torch.nn.functional import cross_entropy, scaled_dot_product_attention, silu
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    raise SystemExit("examples.qwen needs PyTorch: .venv/bin/pip install 'torch>=2.9'.") from None

__all__ = ["Qwen", "Shapes", "causal_loss", "example_batch", "main"]


@dataclass(frozen=True)
class Shapes:
    """Sizes of the model; the defaults are those of Qwen2.5-0.5B."""

    layers: int = 24
    hidden: int = 896
    heads: int = 14
    key_value_heads: int = 2
    head_size: int = 64
    intermediate: int = 4864
    vocabulary: int = 151_936
    rope_base: float = 1_000_000.0
    epsilon: float = 1e-6
    lora_rank: int = 8
    lora_alpha: float = 16.0

    def divided(self, divisor: int, layers: int | None = None) -> Shapes:
        """The same structure with widths and vocabulary divided by `divisor`, which divides half a head."""
        return Shapes(
            layers=self.layers if layers is None else layers,
            hidden=self.hidden // divisor,
            head_size=self.head_size // divisor,
            intermediate=self.intermediate // divisor,
            vocabulary=self.vocabulary // divisor,
        )


class LoraLinear(nn.Module):
    """A frozen linear layer, plus LoRA: the trained product of two narrow matrices, `down` and then `up`.

    `up` begins as 0, so that the first step computes what the frozen layer alone would.
    """

    def __init__(self, width: int, outputs: int, shapes: Shapes) -> None:
        super().__init__()
        self.base = nn.Linear(width, outputs)
        self.base.requires_grad_(False)
        self.down = nn.Linear(width, shapes.lora_rank, bias=False)
        self.up = nn.Linear(shapes.lora_rank, outputs, bias=False)
        self.scale = shapes.lora_alpha / shapes.lora_rank
        nn.init.zeros_(self.up.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * self.scale


class Attention(nn.Module):
    """Causal attention with rotary positions, in which several query heads share a key and a value head."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = shapes
        queries, keys = shapes.heads * shapes.head_size, shapes.key_value_heads * shapes.head_size
        self.q_proj = LoraLinear(shapes.hidden, queries, shapes)
        self.k_proj = nn.Linear(shapes.hidden, keys).requires_grad_(False)
        self.v_proj = LoraLinear(shapes.hidden, keys, shapes)
        self.o_proj = nn.Linear(queries, shapes.hidden, bias=False).requires_grad_(False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        query = rotated(self.by_head(self.q_proj(x)), cosine, sine)
        key = rotated(self.by_head(self.k_proj(x)), cosine, sine)
        value = self.by_head(self.v_proj(x))
        mixed = scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))

    def by_head(self, x: Tensor) -> Tensor:
        """[batch, sequence, width] as [batch, head, sequence, head size]."""
        return x.unflatten(2, (-1, self.shapes.head_size)).transpose(1, 2)


class Layer(nn.Module):
    """Attention and a gated feed-forward block, each behind a norm and beside a residual connection."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.input_norm = nn.RMSNorm(shapes.hidden, shapes.epsilon).requires_grad_(False)
        self.attention = Attention(shapes)
        self.mlp_norm = nn.RMSNorm(shapes.hidden, shapes.epsilon).requires_grad_(False)
        self.gate = nn.Linear(shapes.hidden, shapes.intermediate, bias=False).requires_grad_(False)
        self.up = nn.Linear(shapes.hidden, shapes.intermediate, bias=False).requires_grad_(False)
        self.down = nn.Linear(shapes.intermediate, shapes.hidden, bias=False).requires_grad_(False)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        x = x + self.attention(self.input_norm(x), cosine, sine)
        y = self.mlp_norm(x)
        return x + self.down(silu(self.gate(y)) * self.up(y))


class Qwen(nn.Module):
    """From token numbers [batch, sequence] to logits [batch, sequence, vocabulary].

    The embedding and the head are one weight: they are tied.
    """

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.shapes = shapes
        self.embedding = nn.Embedding(shapes.vocabulary, shapes.hidden).requires_grad_(False)
        self.layers = nn.ModuleList(Layer(shapes) for _ in range(shapes.layers))
        self.norm = nn.RMSNorm(shapes.hidden, shapes.epsilon).requires_grad_(False)
        self.head = nn.Linear(shapes.hidden, shapes.vocabulary, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        cosine, sine = rotary_tables(tokens, self.shapes)
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cosine, sine)
        return self.head(self.norm(x))


def rotary_tables(tokens: Tensor, shapes: Shapes) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the angles of rotary positions, [sequence, head size] each."""
    half = torch.arange(0, shapes.head_size, 2, device=tokens.device) / shapes.head_size
    angles = torch.outer(torch.arange(tokens.shape[1], device=tokens.device), shapes.rope_base**-half)
    angles = torch.cat([angles, angles], 1)
    return angles.cos(), angles.sin()


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Each head rotated by its position: a point has its x in the first half and its y in the second."""
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


def causal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy; `targets` [batch, sequence] has the token that follows each position."""
    return cross_entropy(logits.flatten(0, 1), targets.flatten())


def example_batch(shapes: Shapes, sequence: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Random token numbers and their targets, [1, sequence] each."""
    text = torch.randint(0, shapes.vocabulary, (1, sequence + 1), device=device)
    return text[:, :-1], text[:, 1:]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Writes the graph document of Qwen2.5-0.5B with LoRA.")
    parser.add_argument("-o", "--output", type=Path, required=True, help="where the graph document goes")
    parser.add_argument(
        "--divide-width",
        type=int,
        default=1,
        choices=(1, 2, 4, 8, 16, 32),
        help="widths and vocabulary are divided by this number, for a smaller model of the same structure",
    )
    parser.add_argument("--layers", type=int, default=24, help="number of layers; 24 by default")
    parser.add_argument("--sequence", type=int, default=256, help="tokens of a step; 256 by default")
    chosen = parser.parse_args(arguments)
    if chosen.layers < 1 or chosen.sequence < 1:
        parser.error("--layers and --sequence are at least 1.")
    shapes = Shapes().divided(chosen.divide_width, chosen.layers)
    with torch.device("meta"):
        module = Qwen(shapes)
        tokens, targets = example_batch(shapes, chosen.sequence)
    captured = arenaplan.torch.graph(
        module,
        tokens,
        loss=causal_loss,
        targets=targets,
        optimizer={"type": "AdamW", "learning_rate": 2e-4},
        weights=False,
        name="qwen",
    )
    chosen.output.write_bytes(dump_graph(captured.graph))
    print(f"{chosen.output}: {chosen.output.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
