"""Networks to train on devices: their plans, their files in C, and the batches that they learn from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
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
from solver.executor.c_backend import with_values_apart
from solver.executor.proved import entry_programs
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier
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
    bare: bool = False
    #: Has so few sums that other arithmetic may leave the same bits: no control trains it.
    is_tiny: bool = False

    def write(self, folder: Path) -> Written:
        """Its program in C with its first values, once with the plan's addresses and once with each value
        apart; and its batches.
        """
        graph = self.graph()
        plan = plan_requested(graph, RequestedOptions(PlanOptions(target="c", **self.options)))
        (entry,), violations = entry_programs(graph, plan, "c")
        assert not violations, violations
        apart = with_values_apart(plan, entry.reference)
        first = first_contents(plan, graph)
        states, kernels = set(), set[str]()
        for place, each in ((folder, plan), (folder / "apart", apart)):
            files = c_training_files(each, first, embeds=False)
            for path, content in files.items():
                if re.fullmatch(r"kernels/\w+\.c", path):
                    kernels.add(path.removeprefix("kernels/"))
                if path.endswith(".h") or path == "net.c":
                    (place / path).parent.mkdir(parents=True, exist_ok=True)
                    (place / path).write_bytes(content)
            (place / "first.bin").write_bytes(files["net_weights.bin"])
            states.add(files["net_weights.bin"][-sum(map(len, first.values())) :])
        assert len(states) == 1, "both programs begin with the same values"
        header = (folder / "net.h").read_text(encoding="ascii")
        batches = list(islice(self.batches(), self.steps))
        text, content = _batches(header, graph, batches)
        (folder / "batches.h").write_text("\n".join((text, *_memories(plan), "")), encoding="ascii")
        (folder / "batches.bin").write_bytes(content)
        (folder / "apart" / "batches.bin").hardlink_to(folder / "batches.bin")
        return Written(self, plan, apart, folder, frozenset(kernels))


@dataclass(frozen=True, slots=True)
class Written:
    """A network whose files lie in a folder, and the names of the files with its kernels."""

    network: Network
    plan: Plan
    apart: Plan
    folder: Path
    kernels: frozenset[str]


def _batches(header: str, graph: TrainableGraph, batches: list[Mapping[str, ArrayLike]]) -> tuple[str, bytes]:
    """Declarations in C that feed the batches, and their bytes."""
    names = {re.sub(r"\W", "_", name, flags=re.ASCII): name for name in batches[0]}
    feeds, data, size = [], [], 0
    for feed, type_ in re.findall(r"(?:void|int) net_feed_(\w+)\(const (\w+) \*values\)", header):
        feeds.append(f"    net_feed_{feed}((const {type_} *)(const void *)(from + {size}));")
        dtype = graph.operands[names[feed]].dtype.numpy
        arrays = [np.asarray(batch[names[feed]]).astype(dtype) for batch in batches]
        row = [np.ascontiguousarray(array).tobytes() for array in arrays]
        padding = bytes(-len(row[0]) % 8)
        data.append([each + padding for each in row])
        size += len(row[0]) + len(padding)
    lines = (
        '#include "net.h"',
        f"enum {{ BATCHES = {len(batches)}, BATCH_BYTES = {size} }};",
        "static void feed(const unsigned char *from)",
        "{",
        *feeds,
        "}",
    )
    return "\n".join(lines), b"".join(part for parts in zip(*data, strict=True) for part in parts)


def _memories(plan: Plan) -> Iterator[str]:
    """Declarations in C of memories that a network does not have itself: all of them if it is hosted, aligned
    to 64 bytes and no more; else the slower ones.
    """
    slow = [number for number, space in enumerate(plan.program.spaces) if not space.addressable]
    yield "#ifdef NET_HOSTED"
    for number, size in enumerate(plan.sizes):
        yield f"extern unsigned char *arena{number};"
        yield f"static _Alignas(4096) unsigned char memory{number}[{64 + size}];"
    yield "static void place_memories(void)\n{"
    for number in range(len(plan.sizes)):
        yield f"    arena{number} = memory{number} + 64;"
    yield "}\n#else\nstatic void place_memories(void) {}"
    if slow:
        yield '#include "kernels/ap.h"'
        for number in slow:
            yield f"static unsigned char memory{number}[{plan.sizes[number]}];"
        for way, argument, ends in (("in", "void *to", "to, {}"), ("out", "const void *from", "{}, from")):
            yield f"void net_page_{way}(int memory, uint32_t at, {argument}, uint32_t bytes)\n{{"
            for number in slow:
                yield f"    if (memory == {number}) ap_copy({ends.format(f'memory{number} + at')}, bytes);"
            yield "}"
    yield "#endif"


def _gallery(
    name: str,
    batch: int | None = None,
    title: str = "",
    *,
    steps: int = 3,
    bare: bool = False,
    prepared: bool = False,
    changes: Mapping[str, Any] = MappingProxyType({}),
    **options: Any,
) -> Network:
    """A network of the gallery with the options of its plan, and changes of its document. If it is
    `prepared`, its trunk has learnt.
    """
    example = GALLERY[name]
    size = batch or example.batch

    def graph() -> TrainableGraph:
        built = example.build(size)
        if prepared:
            built = example.prepare(built)
        return load_graph({**built.document, **changes}) if changes else built.graph

    batches = partial(example.batches, 0, size)
    return Network(title or f"{name} b{size}", graph, batches, options, steps, bare)


def _mnist(batch: int, title: str = "", *, bare: bool = False, steps: int = 3, **changes: Any) -> Network:
    def graph() -> TrainableGraph:
        return load_graph({**mnist(batch), **changes})

    return Network(
        title or f"mnist b{batch}", graph, partial(digit_batches, 0, batch), steps=steps, bare=bare
    )


def _tiny(name: str, batch: int, *, bare: bool = False, optimizer: Any = None) -> Network:
    """A network of MLPerf Tiny, with another optimizer if there is one."""

    def graph() -> TrainableGraph:
        model = MLPERF_TINY[name](batch)
        return model.graph if optimizer is None else load_graph({**model.document, "optimizer": optimizer})

    title = f"MLPerf Tiny {name} b{batch}" + ("" if optimizer is None else f", {optimizer['type']}")
    return _synthetic(title, graph, bare=bare)


def _synthetic(name: str, graph: Callable[[], TrainableGraph], *, bare: bool = False) -> Network:
    """A network that learns from random numbers."""

    def batches() -> Batches:
        return (synthetic_batch(graph(), 0, step) for step in count())

    return Network(name, graph, batches, bare=bare)


#: Trained on machines with an operating system: all of the gallery, the large ones at small batches.
NETWORKS: Final = (
    _mnist(8),
    _mnist(
        2, "mnist b2, AdamW, clipped, 3 micro-batches", steps=6, optimizer={"type": "AdamW"},
        training={"accumulate": 3, "clip_global_norm": 0.5},
    ),
    *(_gallery(name) for name in ("lenet5", "transfer", "bias_only")),
    _gallery(
        "lenet5", 8, "lenet5 b8, paged",
        tiers=(Tier("fast", 900_000), Tier("slow", 1 << 24, 100_000_000, 100_000_000)),
    ),
    _gallery("last_layers", title="last_layers b16, RMSProp", changes={"optimizer": {"type": "RMSProp"}}),
    _gallery("autoencoder"),
    _gallery("multi_loss", title="multi_loss b32, Adagrad", changes={"optimizer": {"type": "Adagrad"}}),
    _gallery("lstm_classifier"),
    _gallery("transformer"),
    *(_tiny(name, 4) for name in MLPERF_TINY),
    replace(_synthetic("unet b2, channels in front", unet), is_tiny=True),
    replace(_synthetic("residual b4, channels in front", residual_with_statistics), is_tiny=True),
    _gallery("mobilenet_v2_bn", 2),
    _gallery("resnet18", 2, "resnet18 b2, SGD", changes={"optimizer": sgd(0.01, momentum=0.9)}),
    _gallery("resnet50", 1, "resnet50 b1, SGD", changes={"optimizer": sgd(0.01)}),
)  # fmt: skip

#: Trained on microcontrollers, at batch 1.
BARE: Final = (
    *(
        _gallery(name, 1, bare=True)
        for name in ("lenet5", "autoencoder", "multi_loss", "lstm_classifier", "transformer")
    ),
    _gallery(
        "transfer", 1, "transfer b1 in 256 KiB", bare=True, capacity=256 * 1024, prepared=True, steps=200
    ),
    _gallery(
        "lenet5", 1, "lenet5 b1 in 512 KiB", bare=True, capacity=512 * 1024, steps=200,
        changes={"optimizer": sgd(0.01)},
    ),
    _tiny("autoencoder", 4, bare=True, optimizer=sgd(0.01)),
    _tiny("ds_cnn", 1, bare=True),
    _tiny("resnet8", 1, bare=True),
    _tiny("mobilenet_v1", 1, bare=True, optimizer=sgd(0.01)),
    _mnist(1, bare=True, optimizer=sgd(0.01)),  # with Adam's variables it needs more than the 4 MiB of code
)  # fmt: skip
