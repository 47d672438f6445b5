"""Requests that are answered: a row names the request, and facts of the document that every door gives."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from service.http.examples import example
from solver import documents
from solver.graph import inference
from solver.pipeline import modelled_costs
from solver.plan import PlanOptions
from tests.contract.doors import Document, Request
from tests.support.circle_models import dense
from tests.support.graphs import chain, convolutional
from tests.support.onnx_models import perceptron
from tests.support.programs import CHAIN_DOCUMENT
from tests.support.stored_graphs import adapted

__all__ = ["ANSWERED", "CHAIN", "PAIRS", "TINY", "Answered"]


@dataclass(frozen=True, slots=True)
class Answered:
    """`fact` is what the answer says, in the words of its kind; doors named in `without` cannot do it.

    `places` are offsets of values of the plan by label; nothing lies in the bytes `reserved`. A real process
    of the command line is asked, too, if `process`.
    """

    name: str
    request: Request
    fact: Any = None
    process: bool = False
    without: tuple[str, ...] = ()
    places: Mapping[str, int] = field(default_factory=dict)
    reserved: range = range(0)

    def __str__(self) -> str:
        return self.name


def document_of(graph: Any) -> Document:
    value: Document = json.loads(documents.dump_graph(graph))
    return value


#: Its name is that of its file: the command line calls models by their files.
TINY: Final[Document] = {**example("tiny")["graph"], "name": "model"}
PAIRS: Final[Document] = example("parallel")["program"]
BUFFERS: Final[Document] = example("buffers")["problem"]
CHAIN: Final[Document] = document_of(chain((16,) * 5, batch=32))
SMALL: Final[Document] = document_of(chain((16, 24, 8, 12), 8))
LAST: Final[Document] = {**SMALL, "trainable": ["w3", "b3"]}
SCALED: Final[Document] = {**CHAIN, "training": {"loss_scale": 1024.0, "loss_scale_growth": 5}}
INFERENCE: Final[Document] = document_of(inference(convolutional(4)))
STORED: Final[Document] = document_of(adapted())
ADAM: Final[Document] = {**TINY, "optimizer": {"type": "Adam"}}
SEQUENCES: Final[Document] = {
    **TINY, "name": "sequences", "dims": {"seq": 4},
    "operands": [
        {**operand, "shape": ["seq" if size == "batch" else size for size in operand["shape"]]}
        for operand in TINY["operands"]
    ],
}  # fmt: skip
del SEQUENCES["batch"]

ONNX: Final = perceptron().SerializeToString()
TFLITE: Final = dense(b"TFL3")
TRAINED: Final = {"loss": "mse", "optimizer": "sgd,momentum=0.9", "dim": ["n=4"], "weights": "none"}
OPEN: Final = {"loss": "mse", "batch": 4, "weights": "none"}
#: Doors that take an option as text alone.
COMMANDS: Final = ("command line", "server")
TIERS: Final = ["sram=16kB", "flash=1MiB,read=45MB/s,write=20MB/s,latency=100us"]
MEMORIES: Final = ["tcm=8kB,read=4GB/s,write=4GB/s", "psram=1MiB,read=80MB/s,write=60MB/s"]
COSTS: Final = {
    "nanoseconds": dict(modelled_costs(chain((16,) * 5, batch=32), PlanOptions()).nanoseconds),
}


def plan(model: Any, options: Document | None = None, **more: Any) -> Request:
    return Request("plan", {"model": model}, options or {}, more)


def share(models: Document, options: Document | None = None, **more: Any) -> Request:
    return Request("plan", models, options or {}, more)


def ask(task: str, model: Any, options: Document | None = None, **more: Any) -> Request:
    return Request(task, {"model": model}, options or {}, more)


BOTH: Final = plan(TINY, entries=["train", "infer:batch=1"])
TWO: Final = share(
    {"a": TINY, "b": ADAM}, entries=["a.train", "b.infer:batch=2,name=camera"], ties=["a.*=b.*"]
)

ANSWERED: Final[tuple[Answered, ...]] = (
    # Plans, and the options that change them.
    Answered("plan", plan(TINY), [11584], process=True),
    Answered("plan with a batch", plan(TINY, {"batch": 2}), [9856]),
    Answered("plan as written", plan(TINY, {"as_written": True}), [11584]),
    Answered("plan with one measure", plan(TINY, {"only": ["in_place"]}), [11584]),
    Answered("plan with a capacity", plan(CHAIN, {"capacity": 17_800}), [17728]),
    Answered("plan of one solver", plan(TINY, {"solver": "greedy", "alignment": 128}), [11776]),
    Answered("plan of levels", plan(TINY, {"parallelism": 2}), [11584]),
    Answered("plan of another update", plan(TINY, {"update": "end"}), [12160]),
    Answered("plan for C", plan(TINY, {"target": "c"}), [11456]),
    Answered("plan for nntrainer", plan(TINY, {"target": "nntrainer"}), [5408, 3200]),
    Answered("plan with less scratch", plan(TINY, {"scratch_budget": "4KiB", "rewrite": True}), [9920]),
    Answered("plan with stored activations", plan(CHAIN, {"storage": "bfloat16"}), [17728]),
    Answered(
        "plan with pins",
        plan(TINY, {"pins": {"w1": 8192}, "reserved": ["0..4KiB"]}),
        [15680],
        places={"w1": 8192},
        reserved=range(4096),
    ),
    Answered("plan with alignments", plan(TINY, {"alignments": {"w*": 4096}}), [20992]),
    Answered(
        "plan with costs", plan(CHAIN, {"capacity": 17_800, "only": ["recompute"], "costs": COSTS}), [17728]
    ),
    Answered("tiers", plan(CHAIN, {"tiers": TIERS}), [15808, 0], process=True),
    Answered("memories", plan(CHAIN, {"memories": MEMORIES}), [7616, 12288]),
    Answered(
        "memories and a place", plan(CHAIN, {"memories": MEMORIES, "place": ["*@grad=psram"]}), [7552, 12288]
    ),
    Answered("range of batches", plan(TINY, {"batch": "1..8"}), [11584]),
    Answered(
        "range of batches as an object",
        plan(TINY, {"batch": {"from": 1, "to": 8}}),
        [11584],
        without=COMMANDS,
    ),
    Answered("range of a dimension", plan(SEQUENCES, {"dims": {"seq": "2..5"}}), [10240]),
    Answered("size of a dimension", plan(SEQUENCES, {"dims": {"seq": 3}}), [9856]),
    Answered("inference", plan(INFERENCE), [40704]),
    Answered("inference, validation", ask("validate", INFERENCE, plan=plan(INFERENCE), steps=2), True),
    Answered("several measures", plan(TINY, {"only": ["in_place", "order"]}), [11584]),
    Answered("stored activations and a loss scale", plan(SCALED, {"storage": "float16"}), [19136]),
    Answered("stored weights", plan(STORED), [9024]),
    Answered("weights stored by the plan", plan(LAST, {"frozen_storage": "bfloat16"}), [4992]),
    Answered("like another plan", plan(ADAM, like=plan(TINY)), [14336]),
    Answered(
        "like a plan with reserved bytes",
        plan(TINY, like=plan(TINY, {"reserved": ["0..4KiB"]})),
        [15680],
        places={"w1": 4096, "b1": 14848, "w2": 13312, "b2": 15488},
    ),
    # Programs.
    Answered("program", plan(PAIRS), [12288]),
    Answered("program of levels", plan(PAIRS, {"parallelism": 2}), [16384]),
    Answered("program with a capacity", plan(CHAIN_DOCUMENT, {"capacity": 14_000}), [13440]),
    Answered("curve of a program", ask("tradeoff", CHAIN_DOCUMENT, points=4), [19200, 13440]),
    Answered("verdict on a program", ask("explain", CHAIN_DOCUMENT, {"capacity": 14_000}), ("plan", 1)),
    # Entry points and shared arenas.
    Answered("entry points", BOTH, [("train", [11584]), ("infer", [5696])], process=True),
    Answered(
        "entry points with names",
        plan(TINY, entries=["train", "infer:batch=1,name=eye", "evaluate"]),
        [("train", [11584]), ("eye", [5696]), ("evaluate", [7168])],
    ),
    Answered(
        "entry points as objects",
        plan(
            TINY,
            entries=[
                {"purpose": "train"},
                {"purpose": "infer", "batch": 1, "name": "eye"},
                {"purpose": "evaluate", "model": "model"},
            ],
        ),
        [("train", [11584]), ("eye", [5696]), ("evaluate", [7168])],
    ),
    Answered(
        "entry points with a batch of their own",
        plan({**TINY, "batch": None}, entries=["train:batch=4", "infer:batch=1"]),
        [("train", [9856]), ("infer", [5696])],
    ),
    Answered(
        "entry points and a batch",
        plan(TINY, {"batch": 4}, entries=["train", "infer:batch=1"]),
        [("train", [9856]), ("infer", [5696])],
    ),
    Answered(
        "entry points and memories",
        plan(TINY, {"memories": MEMORIES}, entries=["train", "infer"]),
        [("train", [8000, 3584]), ("infer", [4288, 2752])],
    ),
    Answered(
        "entry points within a capacity",
        plan(TINY, {"capacity": "64KiB"}, entries=["train", "infer"]),
        [("train", [11584]), ("infer", [7040])],
    ),
    Answered("models that share", share({"a": TINY, "b": TINY}), [("a", [17088]), ("b", [17088])]),
    Answered("models with ties", TWO, [("a.train", [11584]), ("camera", [5888])]),
    Answered(
        "a graph and a program",
        share({"a": TINY, "steps": PAIRS}, {"batch": 4}),
        [("a", [18048]), ("steps", [17792])],
    ),
    # Models of other tools.
    Answered("ONNX", plan(ONNX, TRAINED), [9664], process=True),
    Answered("ONNX with a capacity", plan(ONNX, {**TRAINED, "capacity": "1MiB"}), [9664]),
    Answered("ONNX, the last layer", plan(ONNX, {**TRAINED, "trainable": "last:1"}), [4352]),
    Answered("ONNX for inference", plan(ONNX, {"loss": "none", "dim": ["n=2"]}), [3072]),
    Answered(
        "ONNX, a range", plan(ONNX, {"loss": "mse", "dim": ["n=1..4"]}), [6976], without=("server", "python")
    ),
    Answered(
        "ONNX, entry points",
        plan(ONNX, OPEN, entries=["train", "infer:batch=1"]),
        [("train", [6976]), ("infer", [2880])],
        without=("python",),
    ),
    Answered(
        "ONNX, validation of entry points",
        ask(
            "validate",
            ONNX,
            {"loss": "mse", "weights": "none"},
            plan=plan(ONNX, OPEN, entries=["train", "infer:batch=1"]),
            steps=2,
        ),
        True,
        without=("python", "http", "job"),
    ),
    Answered(
        "ONNX, models that share",
        share(
            {"a": ONNX, "b": ONNX},
            {"loss": "mse"},
            entries=["a.train:batch=4", "b.infer:batch=2"],
            ties=["a.w=b.w"],
        ),
        [("a.train", [7616]), ("b.infer", [3712])],
        without=("http", "job", "python"),
    ),
    Answered("ONNX, curve", ask("tradeoff", ONNX, TRAINED, points=3), [9664]),
    Answered(
        "ONNX, verdict",
        ask("explain", ONNX, {**TRAINED, "capacity": "4KiB"}),
        ("impossible", 0),
        without=("server", "python"),
    ),
    Answered("ONNX, validation", ask("validate", ONNX, TRAINED, plan=plan(ONNX, TRAINED), steps=2), True),
    Answered("ONNX, import", ask("import", ONNX, TRAINED), (3, 4)),
    Answered("TensorFlow Lite", plan(TFLITE, {"loss": "cross-entropy", "output": "y1"}), [1856]),
    Answered("TensorFlow Lite, import", ask("import", TFLITE, {"loss": "mse", "weights": "none"}), (4, 4)),
    # Curves, verdicts, choices.
    Answered("curve", ask("tradeoff", CHAIN, points=4), [19776, 17728, 15808]),
    Answered("curve of a batch", ask("tradeoff", TINY, {"batch": 4}, points=3), [9856]),
    Answered("fits", ask("explain", TINY, {"capacity": "64KiB"}), ("plan", 0)),
    Answered(
        "fits after a change", ask("explain", SMALL, {"capacity": 6_000}), ("impossible", 3), process=True
    ),
    Answered("fits never", ask("explain", TINY, {"capacity": 100}), ("impossible", 0)),
    Answered(
        "training as it is", ask("explain", SMALL, {"capacity": 6_000}, training=False), ("impossible", 1)
    ),
    Answered(
        "chosen by scores",
        ask("explain", SMALL, {"capacity": 6_000}, scores={"fc1": 1.0, "fc3": 9.0}),
        (["w3", "b3"], 4608),
    ),
    Answered(
        "chosen by bytes",
        ask("explain", SMALL, {"capacity": 6_000}, scores="bytes"),
        (["w2", "b2", "w3", "b3"], 5440),
    ),
    # Validation.
    Answered("validation", ask("validate", TINY, plan=plan(TINY), steps=3, seed=7), True),
    Answered("validation of entry points", ask("validate", TINY, plan=BOTH, steps=2), True),
    Answered("validation of models", Request("validate", TWO.models, {}, {"plan": TWO, "steps": 1}), True),
    Answered(
        "validation of tiers", ask("validate", CHAIN, plan=plan(CHAIN, {"tiers": TIERS}), steps=2), True
    ),
    Answered(
        "validation of a range", ask("validate", TINY, plan=plan(TINY, {"batch": "1..8"}), steps=2), True
    ),
    # Buffers.
    Answered("layout", ask("layout", BUFFERS), 12, process=True),
    Answered("layout in memories", ask("layout", {**BUFFERS, "capacity": None}, {"memories": MEMORIES}), 12),
    Answered("layout of one solver", ask("layout", BUFFERS, {"solver": "greedy", "capacity": "1MiB"}), 12),
    Answered(
        "layout with pins",
        ask("layout", {**BUFFERS, "capacity": None}, {"pins": {"input": 8}, "reserved": ["0..3"]}),
        16,
    ),
    # Exports.
    *(
        Answered(f"export to {to}", ask("export", TINY, of=plan(TINY), to=to), process=to == "c-header")
        for to in ("c-header", "report", "perfetto", "memory-viz", "offsets-csv")
    ),
    Answered("export of entry points", ask("export", TINY, of=BOTH, to="c-header")),
    Answered(
        "export of one entry point", ask("export", TINY, of=BOTH, to="offsets-csv", entry_point="infer")
    ),
)
