"""The networks of ``./run bench models``: real architectures with random weights, made small where they can
be.

Runs in an environment that has PyTorch, torchvision, timm and transformers (`zoo_export.py` says how). Every
entry makes a module whose forward takes the inputs and gives logits (or what a regression compares), with
dropout off, so that its loss can be compared; and the inputs, the labels, and the loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["NETWORKS", "Network"]


@dataclass(frozen=True)
class Network:
    """`make` gives module and inputs; `loss` is a word of ``arenaplan plan --loss``."""

    name: str
    family: str
    make: Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]
    loss: str = "cross-entropy"


def _image(size: int = 64, batch: int = 2, channels: int = 3) -> tuple[Tensor, ...]:
    return (torch.randn(batch, channels, size, size),)


def _ids(length: int = 16, vocabulary: int = 200, batch: int = 2) -> tuple[Tensor, ...]:
    return (torch.randint(5, vocabulary, (batch, length)),)


class Logits(nn.Module):
    """The one tensor of what a model of transformers answers."""

    def __init__(self, inner: nn.Module, *names: str, answer: str = "logits", **fixed: Any) -> None:
        super().__init__()
        self.inner = inner
        self.names = names
        self.answer = answer
        self.fixed = fixed

    def forward(self, *inputs: Tensor) -> Tensor:
        found = self.inner(**dict(zip(self.names, inputs, strict=True)), **self.fixed)
        return getattr(found, self.answer)


# -------------------------------------------------------------------------------- torchvision and timm


def _vision(name: str, size: int = 64, **options: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    import torchvision.models as models

    return getattr(models, name)(num_classes=10, **options), _image(size)


class OneAnswer(nn.Module):
    def __init__(self, inner: nn.Module, key: str) -> None:
        super().__init__()
        self.inner = inner
        self.key = key

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[self.key]


def _segmented(name: str, size: int = 64, **options: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    import torchvision.models.segmentation as models

    model = getattr(models, name)(weights=None, weights_backbone=None, num_classes=5, **options)
    return OneAnswer(model, "out"), _image(size)


def _timm(name: str, size: int = 64, **options: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    import timm

    return timm.create_model(name, num_classes=10, **options), _image(size)


# -------------------------------------------------------------------------------------------- transformers


def _hf(
    kind: str,
    head: str,
    *names: str,
    inputs: tuple[Tensor, ...] | None = None,
    answer: str = "logits",
    **config: Any,
) -> tuple[nn.Module, tuple[Tensor, ...]]:
    import transformers

    made = getattr(transformers, f"{kind}Config")(**config)
    model = getattr(transformers, f"{kind}{head}")(made)
    fixed = {"use_cache": False} if head == "ForCausalLM" or head == "LMHeadModel" else {}
    return Logits(model, *(names or ("input_ids",)), answer=answer, **fixed), inputs or _ids()


_SMALL: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 200,
    "max_position_embeddings": 64,
    "attention_dropout": 0.0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_BERT: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 200,
    "max_position_embeddings": 64,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "pad_token_id": 0,
}


def _bert() -> tuple[nn.Module, tuple[Tensor, ...]]:
    mask = torch.ones(2, 16, dtype=torch.long)
    return _hf(
        "Bert", "ForSequenceClassification", "input_ids", "attention_mask", inputs=(*_ids(), mask), **_BERT
    )


def _t5() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 128,
        "num_layers": 2,
        "num_heads": 4,
        "vocab_size": 200,
        "dropout_rate": 0.0,
        "use_cache": False,
        "decoder_start_token_id": 0,
    }
    inputs = (*_ids(), *_ids(8))
    return _hf("T5", "ForConditionalGeneration", "input_ids", "decoder_input_ids", inputs=inputs, **config)


def _whisper() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 128,
        "decoder_ffn_dim": 128,
        "vocab_size": 200,
        "num_mel_bins": 20,
        "max_source_positions": 50,
        "max_target_positions": 32,
        "dropout": 0.0,
        "use_cache": False,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }
    inputs = (torch.randn(2, 20, 100), *_ids(8))
    return _hf(
        "Whisper", "ForConditionalGeneration", "input_features", "decoder_input_ids", inputs=inputs, **config
    )


def _wav2vec2(kind: str) -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "conv_dim": (32, 32, 32),
        "conv_stride": (5, 4, 4),
        "conv_kernel": (10, 8, 4),
        "num_feat_extract_layers": 3,
        "num_conv_pos_embeddings": 16,
        "num_conv_pos_embedding_groups": 4,
        "classifier_proj_size": 32,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "feat_proj_dropout": 0.0,
        "layerdrop": 0.0,
        "final_dropout": 0.0,
        "apply_spec_augment": False,
        "num_labels": 5,
    }
    return _hf(kind, "ForSequenceClassification", "input_values", inputs=(torch.randn(2, 4000),), **config)


def _ast() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 128,
        "max_length": 64,
        "num_mel_bins": 32,
        "num_labels": 5,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
    }
    return _hf("AST", "ForAudioClassification", "input_values", inputs=(torch.randn(2, 64, 32),), **config)


def _segformer() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {
        "hidden_sizes": [16, 32, 64, 64],
        "depths": [1, 1, 1, 1],
        "num_attention_heads": [1, 2, 4, 4],
        "decoder_hidden_size": 32,
        "num_labels": 5,
        "hidden_dropout_prob": 0.0,
        "classifier_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
    }
    return _hf("Segformer", "ForSemanticSegmentation", "pixel_values", inputs=_image(), **config)


def _clip_text() -> tuple[nn.Module, tuple[Tensor, ...]]:
    config: dict[str, Any] = {key: value for key, value in _SMALL.items() if key != "pad_token_id"}
    return _hf(
        "CLIPText",
        "Model",
        inputs=_ids(),
        answer="last_hidden_state",
        **{**config, "hidden_act": "quick_gelu"},
    )


# ------------------------------------------------------------------------------------------- MLPerf Tiny


def _separable(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _ds_cnn() -> tuple[nn.Module, tuple[Tensor, ...]]:
    first = (nn.Conv2d(1, 64, (10, 4), 2, (4, 1), bias=False), nn.BatchNorm2d(64), nn.ReLU())
    blocks = [_separable(64, 64) for _ in range(4)]
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 12))
    return nn.Sequential(*first, *blocks, *last), (torch.randn(2, 1, 49, 10),)


def _mobilenet_v1() -> tuple[nn.Module, tuple[Tensor, ...]]:
    widths = [8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256]
    strides = [1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1]
    first = (nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
    shapes = zip(widths, widths[1:], strides, strict=False)
    blocks = [_separable(before, after, stride) for before, after, stride in shapes]
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 2))
    return nn.Sequential(*first, *blocks, *last), _image(96)


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1),
            nn.BatchNorm2d(outputs),
        )
        self.short = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def _resnet8() -> tuple[nn.Module, tuple[Tensor, ...]]:
    first = (nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU())
    blocks = (Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
    last = (nn.AvgPool2d(8), nn.Flatten(), nn.Linear(64, 10))
    return nn.Sequential(*first, *blocks, *last), _image(32)


def _autoencoder() -> tuple[nn.Module, tuple[Tensor, ...]]:
    widths = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(128, 640)), (torch.randn(8, 640),)


# ---------------------------------------------------------------------------------------------- our own


def _unet(*, transposed: bool) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return UNet(transposed), _image(32)


class UNet(nn.Module):
    def __init__(self, transposed: bool) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
            )  # fmt: skip

        self.down = nn.ModuleList([block(3, 8), block(8, 16), block(16, 32)])
        self.up = nn.ModuleList([block(48, 16), block(24, 8)])
        self.grow: Any = nn.ModuleList(
            [nn.ConvTranspose2d(n, n, 2, 2) if transposed else nn.Upsample(scale_factor=2, mode="bilinear")
             for n in (32, 16)]
        )  # fmt: skip
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for k, layer in enumerate(self.down):
            x = layer(x if not k else nn.functional.max_pool2d(x, 2))
            kept.append(x)
        for layer, grow, skip in zip(self.up, self.grow, kept[-2::-1], strict=True):
            x = layer(torch.cat([grow(x), skip], 1))
        return self.last(x)


class Recurrent(nn.Module):
    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.inner = getattr(nn, kind)(8, 16, batch_first=True, **options)
        self.head = nn.Linear(16 * (2 if options.get("bidirectional") else 1), 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.inner(x)[0][:, -1])


def _recurrent(kind: str, **options: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return Recurrent(kind, **options), (torch.randn(2, 7, 8),)


class WaveNet(nn.Module):
    """Gated dilated convolutions over a waveform."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 16, 1)
        self.gated = nn.ModuleList(nn.Conv1d(16, 32, 2, dilation=2**k) for k in range(5))
        self.mixed = nn.ModuleList(nn.Conv1d(16, 16, 1) for _ in range(5))
        self.last = nn.Conv1d(16, 10, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for k, (gated, mixed) in enumerate(zip(self.gated, self.mixed, strict=True)):
            value, gate = gated(nn.functional.pad(x, (2**k, 0))).chunk(2, 1)
            x = x + mixed(torch.tanh(value) * torch.sigmoid(gate))
        return self.last(torch.relu(x)).mean(2)


class DiffusionBlock(nn.Module):
    """A step of a denoising network: time embedding, residual blocks, self- and cross-attention."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.enter = nn.Conv2d(4, width, 3, 1, 1)
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, 1, 1) for _ in range(2))
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.MultiheadAttention(width, 4, batch_first=True)
        self.cross = nn.MultiheadAttention(width, 4, batch_first=True, kdim=24, vdim=24)
        self.wide, self.narrow = nn.Linear(width, 8 * width), nn.Linear(4 * width, width)
        self.leave = nn.Conv2d(width, 4, 3, 1, 1)

    def forward(self, x: Tensor, step: Tensor, text: Tensor) -> Tensor:
        half = self.width // 2
        rate = torch.exp(-9.2 * torch.arange(half, device=x.device) / half)
        angle = step[:, None] * rate
        time = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x = self.enter(x)
        h = self.conv1(nn.functional.silu(self.norm1(x))) + time[:, :, None, None]
        x = x + self.conv2(nn.functional.silu(self.norm2(h)))
        n, c, height, width = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        y = self.norm3(tokens)
        tokens = tokens + self.inner(y, y, y, need_weights=False)[0]
        tokens = tokens + self.cross(self.norm4(tokens), text, text, need_weights=False)[0]
        value, gate = self.wide(tokens).chunk(2, -1)
        tokens = tokens + self.narrow(value * nn.functional.gelu(gate))
        return self.leave(tokens.transpose(1, 2).reshape(n, c, height, width))


def _diffusion() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return DiffusionBlock(), (torch.randn(2, 4, 8, 8), torch.tensor([3.0, 700.0]), torch.randn(2, 6, 24))


class NanoGPT(nn.Module):
    """A decoder written by hand, with a causal mask kept as a buffer and tied embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(100, 32), nn.Embedding(16, 32)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(32) for _ in range(3))
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.wide, self.narrow = nn.Linear(32, 128), nn.Linear(128, 32)
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.token.weight
        self.register_buffer("mask", torch.tril(torch.ones(16, 16)).view(1, 1, 16, 16))

    def forward(self, ids: Tensor) -> Tensor:
        n, t = ids.shape
        x = self.token(ids) + self.place(torch.arange(t, device=ids.device))
        q, k, v = (part.view(n, t, 4, 8).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) / 8**0.5
        scores = scores.masked_fill(self.mask[:, :, :t, :t] == 0, float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, t, 32))
        x = x + self.narrow(nn.functional.gelu(self.wide(self.norm2(x)), approximate="tanh"))
        return self.head(self.norm3(x))


def _nano_gpt() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return NanoGPT(), _ids(16, 100)


def _sequential(*layers: nn.Module, size: int = 28) -> tuple[nn.Module, tuple[Tensor, ...]]:
    return nn.Sequential(*layers), _image(size, channels=1)


def _lenet() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def _mlp() -> tuple[nn.Module, tuple[Tensor, ...]]:
    return _sequential(nn.Flatten(), nn.Linear(784, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10))


_VIT: dict[str, Any] = {"img_size": 64, "embed_dim": 48, "depth": 2, "num_heads": 3}

NETWORKS: tuple[Network, ...] = (
    Network("mlp", "basic", _mlp),
    Network("lenet", "basic", _lenet),
    Network("ds_cnn", "MLPerf Tiny", _ds_cnn),
    Network("mobilenet_v1_025", "MLPerf Tiny", _mobilenet_v1),
    Network("resnet8", "MLPerf Tiny", _resnet8),
    Network("fc_autoencoder", "MLPerf Tiny", _autoencoder, "mse"),
    *(
        Network(name, "torchvision", partial(_vision, name, **more))
        for name, more in (
            ("resnet18", {}),
            ("resnet50", {}),
            ("mobilenet_v2", {}),
            ("mobilenet_v3_small", {}),
            ("efficientnet_b0", {}),
            ("densenet121", {}),
            ("squeezenet1_1", {}),
            ("shufflenet_v2_x0_5", {}),
            ("regnet_y_400mf", {}),
            ("mnasnet0_5", {}),
            ("alexnet", {"size": 224, "dropout": 0.0}),
            ("vgg11_bn", {"size": 32, "dropout": 0.0}),
            ("googlenet", {"aux_logits": False, "init_weights": False}),
        )
    ),
    Network("fcn_resnet50", "segmentation", lambda: _segmented("fcn_resnet50", 32)),
    Network("lraspp_mobilenet", "segmentation", lambda: _segmented("lraspp_mobilenet_v3_large")),
    Network("segformer", "segmentation", _segformer),
    Network("unet_transposed", "U-Net", lambda: _unet(transposed=True)),
    Network("unet_bilinear", "U-Net", lambda: _unet(transposed=False)),
    *(
        Network(title, "timm", partial(_timm, name, **more))
        for title, name, more in (
            ("vit", "vit_tiny_patch16_224", _VIT),
            ("deit_distilled", "deit_tiny_distilled_patch16_224", _VIT),
            (
                "swin",
                "swin_tiny_patch4_window7_224",
                {
                    "size": 56,
                    "img_size": 56,
                    "embed_dim": 24,
                    "depths": (1, 1, 2, 1),
                    "num_heads": (1, 2, 3, 6),
                },
            ),
            ("convnext", "convnext_atto", {}),
            ("mixer", "mixer_s32_224", {"img_size": 64}),
            ("ghostnet", "ghostnet_050", {"drop_rate": 0.0}),
            ("poolformer", "poolformer_s12", {}),
            ("efficientnet_lite0", "efficientnet_lite0", {}),
            ("mobilevit", "mobilevit_xxs", {}),
            ("pvt_v2", "pvt_v2_b0", {}),
            ("beit", "beit_base_patch16_224", {**_VIT, "embed_dim": 48}),
        )
    ),
    Network("bert", "transformers", _bert),
    Network("roberta", "transformers", lambda: _hf("Roberta", "ForMaskedLM", **_BERT)),
    Network(
        "albert",
        "transformers",
        lambda: _hf("Albert", "ForSequenceClassification", **{**_BERT, "embedding_size": 32}),
    ),
    Network(
        "electra",
        "transformers",
        lambda: _hf("Electra", "ForSequenceClassification", **{**_BERT, "embedding_size": 32}),
    ),
    Network(
        "distilbert",
        "transformers",
        lambda: _hf(
            "DistilBert",
            "ForMaskedLM",
            dim=64,
            n_layers=2,
            n_heads=4,
            hidden_dim=128,
            vocab_size=200,
            dropout=0.0,
            attention_dropout=0.0,
            max_position_embeddings=64,
        ),
    ),
    Network(
        "gpt2",
        "transformers",
        lambda: _hf(
            "GPT2",
            "LMHeadModel",
            n_layer=2,
            n_embd=64,
            n_head=4,
            vocab_size=200,
            n_positions=64,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Network("llama", "transformers", lambda: _hf("Llama", "ForCausalLM", **_SMALL, num_key_value_heads=2)),
    Network("qwen2", "transformers", lambda: _hf("Qwen2", "ForCausalLM", **_SMALL, num_key_value_heads=2)),
    Network(
        "gemma",
        "transformers",
        lambda: _hf("Gemma", "ForCausalLM", **_SMALL, num_key_value_heads=2, head_dim=16),
    ),
    Network(
        "opt",
        "transformers",
        lambda: _hf(
            "OPT",
            "ForCausalLM",
            num_hidden_layers=2,
            hidden_size=64,
            num_attention_heads=4,
            ffn_dim=128,
            dropout=0.0,
            vocab_size=200,
            max_position_embeddings=64,
            word_embed_proj_dim=64,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
    ),
    Network("gpt_neox", "transformers", lambda: _hf("GPTNeoX", "ForCausalLM", **_SMALL)),
    Network("t5", "transformers", _t5),
    Network("clip_text", "transformers", _clip_text, "mse"),
    Network("nano_gpt", "transformers", _nano_gpt),
    Network("whisper", "audio", _whisper),
    Network("wav2vec2", "audio", lambda: _wav2vec2("Wav2Vec2")),
    Network("hubert", "audio", lambda: _wav2vec2("Hubert")),
    Network("ast", "audio", _ast),
    Network("wavenet", "audio", lambda: (WaveNet(), (torch.randn(2, 1, 64),))),
    Network("lstm", "recurrent", lambda: _recurrent("LSTM", num_layers=2)),
    Network("bilstm", "recurrent", lambda: _recurrent("LSTM", bidirectional=True)),
    Network("gru", "recurrent", lambda: _recurrent("GRU", num_layers=2)),
    Network("rnn", "recurrent", lambda: _recurrent("RNN")),
    Network("diffusion_block", "diffusion", _diffusion, "mse"),
)
