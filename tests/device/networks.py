"""Networks to train on devices: their plans, their files in C, and the batches that they learn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

from arenaplan.builder import sgd
from examples.gallery import GALLERY
from examples.gallery.data import digit_batches
from examples.mlperf_tiny import MLPERF_TINY
from examples.models import mnist
from solver.c_training import c_training_files
from solver.documents import load_graph
from solver.executor import first_contents, synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from tests.support.usual_networks import residual_with_statistics, unet

__all__ = ["BARE", "NETWORKS", "Network", "Written"]

Batches = Iterator[Mapping[str, ArrayLike]]


@dataclass(frozen=True, slots=True)
class Network:
    """A graph, the options of its plan, and its batches without end."""

    name: str
    graph: Callable[[], TrainableGraph]
    batches: Callable[[], Batches]
    options: Mapping[str, Any] = field(default_factory=dict)
    steps: int = 3

    def write(self, folder: Path) -> Written:
        """Its program in C, with its first values and batches beside it."""
        graph = self.graph()
        asked = PlanOptions(target="c", **self.options)
        plan = plan_requested(graph, RequestedOptions(asked))
        first = first_contents(plan, graph)
        files = c_training_files(plan, first, embeds=False)
        files["first.bin"] = files.pop("net_weights.bin")
        header = files["net.h"].decode()
        files["batches.h"], files["batches.bin"] = _batches(
            header, graph, list(islice(self.batches(), self.steps))
        )
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            if not name.startswith("kernels/") or name.endswith(".h"):
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_bytes(data)
        return Written(self, plan, folder, len(files["first.bin"]) + len(files["batches.bin"]))


@dataclass(frozen=True, slots=True)
class Written:
    """A network whose files lie in a folder; `images` are the bytes of its first values and batches."""

    network: Network
    plan: Plan
    folder: Path
    images: int


def _batches(
    header: str, graph: TrainableGraph, batches: list[Mapping[str, ArrayLike]]
) -> tuple[bytes, bytes]:
    """A header that feeds the batches, and their bytes."""
    names = {re.sub(r"\W", "_", name, flags=re.ASCII): name for name in batches[0]}
    feeds, data, size = [], [], 0
    for feed, type_ in re.findall(r"void net_feed_(\w+)\(const (\w+) \*values\)", header):
        feeds.append(f"    net_feed_{feed}((const {type_} *)(const void *)(from + {size}));")
        dtype = graph.operands[names[feed]].dtype.numpy
        arrays = [np.asarray(batch[names[feed]]).astype(dtype) for batch in batches]
        row = [np.ascontiguousarray(array).tobytes() for array in arrays]
        padding = bytes(-len(row[0]) % 8)
        data.append([each + padding for each in row])
        size += len(row[0]) + len(padding)
    text = "\n".join(
        (
            '#include "net.h"',
            "extern const unsigned char first_values[], batches[];",
            f"enum {{ BATCHES = {len(batches)}, BATCH_BYTES = {size} }};",
            "static void feed(const unsigned char *from)",
            "{",
            *feeds,
            "}",
            "",
        )
    )
    return text.encode(), b"".join(part for parts in zip(*data, strict=True) for part in parts)


def _gallery(name: str, batch: int | None = None, title: str = "", **options: Any) -> Network:
    """A network of the gallery. Besides options of its plan: `steps`, `optimizer`, and `prepared`: whether
    its trunk has learnt.
    """
    example = GALLERY[name]
    size = batch or example.batch
    steps, optimizer = options.pop("steps", 3), options.pop("optimizer", None)
    prepared = options.pop("prepared", False)

    def graph() -> TrainableGraph:
        built = example.build(size)
        if prepared:
            built = example.prepare(built)
        return built.graph if optimizer is None else load_graph({**built.document, "optimizer": optimizer})

    return Network(title or f"{name} b{size}", graph, lambda: example.batches(0, size), options, steps)


def _mnist(batch: int, **changes: Any) -> Network:
    def graph() -> TrainableGraph:
        return load_graph({**mnist(batch), **changes})

    return Network(f"mnist b{batch}", graph, lambda: digit_batches(0, batch))


def _tiny(name: str, batch: int, **options: Any) -> Network:
    """A network of MLPerf Tiny; besides options of its plan: `optimizer`."""
    optimizer = options.pop("optimizer", None)

    def graph() -> TrainableGraph:
        model = MLPERF_TINY[name](batch)
        return model.graph if optimizer is None else load_graph({**model.document, "optimizer": optimizer})

    return _synthetic(f"MLPerf Tiny {name} b{batch}", graph, **options)


def _synthetic(name: str, graph: Callable[[], TrainableGraph], **options: Any) -> Network:
    """A network that learns from random numbers."""

    def batches() -> Batches:
        return (synthetic_batch(graph(), 0, step) for step in count())

    return Network(name, graph, batches, options)


def _by_name(*networks: Network) -> Mapping[str, Network]:
    return MappingProxyType({network.name: network for network in networks})


#: Trained on machines with an operating system: all of the gallery, the large ones at small batches.
NETWORKS: Final = _by_name(
    _mnist(8),
    *(
        _gallery(name)
        for name in ("lenet5", "transfer", "bias_only", "last_layers", "autoencoder", "multi_loss")
    ),
    _gallery("lstm_classifier"),
    _gallery("transformer"),
    *(_tiny(name, 4) for name in MLPERF_TINY),
    _synthetic("unet b2, channels in front", unet),
    _synthetic("residual b4, channels in front", residual_with_statistics),
    _gallery("mobilenet_v2_bn", 2),
    _gallery("resnet18", 2),
    _gallery("resnet50", 2),
)

#: Trained on microcontrollers, at batch 1.
BARE: Final = _by_name(
    *(
        _gallery(name, 1)
        for name in ("lenet5", "autoencoder", "multi_loss", "lstm_classifier", "transformer")
    ),
    _gallery("transfer", 1, "transfer b1 in 256 KiB", capacity=256 * 1024, prepared=True, steps=200),
    _gallery("lenet5", 1, "lenet5 b1 in 512 KiB", capacity=512 * 1024, optimizer=sgd(0.01), steps=200),
    _tiny("autoencoder", 4, optimizer=sgd(0.01)),
    _tiny("ds_cnn", 1),
    _tiny("resnet8", 1),
    _tiny("mobilenet_v1", 1, optimizer=sgd(0.01)),
    _mnist(1, optimizer=sgd(0.01)),  # with Adam's variables it needs more than the 4 MiB of code
)
