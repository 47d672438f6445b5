"""Every kind of input that others write: right ones, how they are damaged, and what is done with them.

That is what commands and the service do, as far as the size of an input permits: a damaged graph that is
still one is planned, its plan is written, read, checked, and trained in.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import sys
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import numpy as np
import onnx

from service.cli.commands import app
from service.cli.show import facts
from service.jobs.backend import worker_limits
from service.jobs.tasks import TASKS
from service.jobs.worker import Channel
from service.problems import Problem
from service.settings import Settings
from solver import documents, executor, exporters
from solver.canonical import canonical_json
from solver.errors import ArenaplanError
from solver.executor.measured import logged_accesses
from solver.exporters.circle import with_training
from solver.graph import OptimizerSpec, TrainableGraph, TrainingRules, inference
from solver.importers.circle import CircleTraining, dump_training, load_training
from solver.importers.minimalloc import load_minimalloc
from solver.importers.nntrainer import load_nntrainer_ini
from solver.importers.options import ImportOptions
from solver.importers.registry import find_importer, load_model, unknown_format
from solver.importers.weights import read_arrays
from solver.layout import LayoutOptions, LayoutProblem, find_violations
from solver.pipeline import modelled_costs, plan, plan_program, plan_requested
from solver.placement import place
from solver.plan import Deployment, Plan, PlanOptions, deployment_notes
from solver.program import Tier
from solver.reports.arenas import recycling, report
from solver.reports.budget import Budget, Limits, checks
from solver.reports.comparison import deployment_difference, difference
from solver.training import BlockProgram
from solver.verify import check_accesses
from tests.support import graphs as small
from tests.support.circle_cases import CASES, written
from tests.support.circle_models import dense
from tests.support.damaged_documents import as_toml, damaged_text, damaged_value, document_bytes
from tests.support.damaged_models import damaged_bytes, damaged_circle, damaged_model, whole_models
from tests.support.documents import graph_document
from tests.support.entry_points import trained_and_used
from tests.support.gguf_files import write_gguf
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent
from tests.support.sequence_graphs import classifier
from tests.support.sizes import SEQUENCES, planned_over, with_symbolic_batch
from tests.support.stored_graphs import adapted

__all__ = ["KINDS", "Kind"]

ROOT: Final = Path(__file__).resolve().parents[2]

#: Damaged shapes may ask for any memory; what is beyond this is planned, and not trained in.
MOST_BYTES: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class Kind:
    """Right inputs, what damages one of them, and what reads it and goes on, in a folder of its own.

    Of those that take longer, `share` of the usual number of cases is tried.
    """

    sources: Callable[[], Sequence[Any]]
    damage: Callable[[Any, Random], bytes]
    use: Callable[[bytes, Path], None]
    share: float = 1.0


# ------------------------------------------------------------------------------------- what is damaged


def in_bytes(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 2, 5))):
        data = damaged_bytes(data, random) or data
    return data


def in_model(model: onnx.ModelProto, random: Random) -> bytes:
    data = bytes(model.SerializeToString())
    for _ in range(random.choice((1, 2, 3))):
        with contextlib.suppress(IndexError):  # nothing is left to change
            data = damaged_model(data, random)
    return data


def in_tables(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 2, 3))):
        data = damaged_circle(data, random)
    return data


def in_structure(value: Any, random: Random) -> bytes:
    """JSON, whose text is damaged now and then."""
    data = document_bytes(damaged_value(value, random))
    return damaged_bytes(data, random) if random.random() < 0.05 else data


def resealed(value: Any, random: Random) -> bytes:
    """A plan or layout with the digest of what it says now."""
    made = damaged_value(value, random)
    if isinstance(made, dict) and random.random() < 0.95:
        _reseal(made)
    return document_bytes(made)


def resealed_with_plans(value: Any, random: Random) -> bytes:
    """The same of a plan with entry points: its digest has that of each plan in the place of the plan."""
    made = damaged_value(value, random)
    rows = made.get("entry_points") if isinstance(made, dict) else None
    if isinstance(rows, list) and all(
        isinstance(row, dict) and isinstance(row.get("plan"), dict) for row in rows
    ):
        for row in rows:
            _reseal(row["plan"])
        short = [{**row, "plan": row["plan"].get("digest")} for row in rows]
        made["digest"] = _reseal({**made, "entry_points": short})
    return document_bytes(made)


def _reseal(document: dict[str, Any]) -> Any:
    """Make the digest of a document anew; returns it."""
    content = {name: field for name, field in document.items() if name != "digest"}
    with contextlib.suppress(ValueError):  # NaN, half a surrogate
        document["digest"] = hashlib.sha256(canonical_json(content)).hexdigest()
    return document.get("digest")


def request_with_plan(value: Any, random: Random) -> bytes:
    """A request for validation with a damaged plan or graph."""
    if random.random() < 0.7:
        return document_bytes({**value, "plan": json.loads(resealed(value["plan"], random))})
    return in_structure(value, random)


def in_text(text: str, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 2, 4))):
        text = damaged_text(text, random)
    return text.encode("utf-8", "surrogatepass")


def in_entries(text: str, random: Random) -> bytes:
    """An INI file with a line elsewhere, twice or not at all, or with the value of another entry."""
    lines = text.splitlines()
    values = [line.partition("=")[2] for line in lines]
    for _ in range(random.choice((1, 1, 2, 3))):
        at, other = random.randrange(len(lines)), random.randrange(len(lines) + 1)
        key, separator, _value = lines[at].partition("=")
        match random.randrange(5):
            case 0:
                lines.insert(other, lines.pop(at))
            case 1:
                lines.insert(other, lines[at])
            case 2 if len(lines) > 1:
                del lines[at]
            case _ if separator:
                number = str(random.choice((0, 1, -1, 2, 5, 2**31, 2**63, "1,2", "1:0:3", "nan", "1e400")))
                lines[at] = f"{key}={random.choice((*values, number, number))}"
            case _:
                lines[at] = damaged_text(lines[at], random)
    return "\n".join(lines).encode("utf-8", "surrogatepass")


def in_lines(lines: Any, random: Random) -> bytes:
    """One JSON value a line, of which some are damaged."""
    made = damaged_value(lines, random)
    rows = made if isinstance(made, list) else [made]
    data = b"\n".join(map(document_bytes, rows))
    return damaged_bytes(data, random) if random.random() < 0.1 else data


def in_toml(value: Any, random: Random) -> bytes:
    made = damaged_value(value, random)
    data = as_toml(made) if isinstance(made, Mapping) else document_bytes(made)
    return in_text(data.decode("utf-8", "replace"), random) if random.random() < 0.3 else data


# ------------------------------------------------------------------------------------- what reads it


def imported(data: bytes, _folder: Path) -> None:
    importer = find_importer(data)
    if importer is None:
        raise unknown_format("The file")
    options = ImportOptions(loss="mse")
    graph = load_model(importer, data, options=options, path=None, name="model").graph
    _planned(documents.load_graph(documents.dump_graph(graph)), PlanOptions())


def of_weights(data: bytes, folder: Path) -> None:
    path = folder / "weights"
    path.write_bytes(data)
    read_arrays(path)


def of_buffers(data: bytes, _folder: Path) -> None:
    _placed(documents.load_buffers(data))


def of_csv(data: bytes, _folder: Path) -> None:
    table = load_minimalloc(data)
    table.incumbent()
    _placed(table.problem)


def _placed(problem: LayoutProblem, options: LayoutOptions | None = None) -> None:
    made = documents.layout_with_digest(place(problem, options or LayoutOptions(deadline_seconds=0.1)))
    of_layout(documents.dump_layout(made), Path())


def of_layout(data: bytes, _folder: Path) -> None:
    made = documents.load_layout(data)
    find_violations(made.problem, made.layout)
    documents.dump_layout(made)
    exporters.dump_minimalloc(made.problem, made.layout)


def of_layout_options(data: bytes, _folder: Path) -> None:
    options = documents.load_layout_options(data)
    documents.dump_layout_options(options)
    _placed(documents.load_buffers(document_bytes(buffers())), options)


def of_graph(data: bytes, _folder: Path) -> None:
    graph = documents.load_graph(data)
    again = documents.load_graph(documents.dump_graph(graph))
    assert documents.graph_digest(again) == documents.graph_digest(graph)
    _planned(graph, PlanOptions())
    _planned(graph, Random(zlib.crc32(data)).choice(options_for(plan(graph).arena_bytes)))


def of_ini(data: bytes, _folder: Path) -> None:
    graph = load_nntrainer_ini(data)
    _planned(graph, PlanOptions(solver="greedy"))
    _planned(graph, PlanOptions(target="nntrainer"))


def of_program(data: bytes, _folder: Path) -> None:
    program = documents.load_program(data)
    documents.load_program(documents.dump_program(program))
    options = PlanOptions(
        in_place=zlib.crc32(data) % 2 == 0, order=program.any_order, parallelism=zlib.crc32(data) % 3 + 1
    )
    _used(plan_program(program, options), program)


def of_options(data: bytes, _folder: Path) -> None:
    requested = documents.load_options(data)
    documents.load_options(documents.dump_options(requested))
    graph = small.residual()
    _used(plan_requested(graph, requested), graph)


def of_costs(data: bytes, _folder: Path) -> None:
    costs = documents.load_costs(data)
    documents.load_costs(documents.dump_costs(costs))
    _planned(small.residual(), PlanOptions(costs=costs, recompute=True, capacity=2700))


def _planned(graph: TrainableGraph, options: PlanOptions) -> None:
    _used(plan(graph, options), graph)


def _used(made: Plan, subject: TrainableGraph | BlockProgram) -> None:
    again = documents.load_plan(documents.dump_plan(made))
    report(again)
    assert again.digest == made.digest
    if isinstance(subject, TrainableGraph) and made.options.target == "reference":
        _trained(subject, again)


def _trained(graph: TrainableGraph, made: Plan) -> None:
    needed = made.arena_bytes + sum(value.type.nbytes for value in made.program.values)
    if needed <= MOST_BYTES:
        executor.validate(graph, made, steps=1)


def of_plan(data: bytes, _folder: Path) -> None:
    """Shown, exported, compared, and trained in with the graph that it may belong to."""
    made = documents.load_plan(data)
    report(made)
    recycling(made)
    difference(made, made)
    for exporter in exporters.EXPORTERS.values():
        with contextlib.suppress(ArenaplanError):
            exporter.dump(made)
    for graph, options in planned_graphs():
        if made.graph == graph.name and made.options.tiers == options.tiers:
            _trained(graph, made)
    if made.planned_sizes is not None:
        _trained(of_sizes(), made)


def of_deployment(data: bytes, _folder: Path) -> None:
    """Shown, exported, compared, judged by a budget, and run with the graphs that it may belong to."""
    made = documents.load_planned(data)
    assert isinstance(made, Deployment)
    facts(made)
    ignored([*deployment_notes(made)])
    deployment_difference(made, made)
    ignored(repr(made))
    limits = {entry_point.name: Limits(max_arena=1) for entry_point in made.entry_points}
    ignored([*checks(Budget(name="b", plan="p", max_arena=1, entry_points=limits), made, made)])
    for exporter in exporters.EXPORTERS.values():
        with contextlib.suppress(ArenaplanError):
            exporter.dump(made)
    needed = made.arena_bytes + sum(
        value.type.nbytes for one in made.entry_points for value in one.plan.program.values
    )
    if needed <= MOST_BYTES:
        executor.validate(deployed()[0], made, steps=1)


def of_accesses(data: bytes, _folder: Path) -> None:
    made = plan(small.residual())
    check_accesses(made, documents.load_accesses(data, made))


def of_budgets(data: bytes, _folder: Path) -> None:
    documents.load_budgets(data)


def of_kind(load: Callable[[bytes], Any], dump: Callable[[Any], bytes]) -> Callable[[bytes, Path], None]:
    return lambda data, _folder: ignored(load(dump(load(data))))


def ignored(_found: object) -> None:
    pass


def by_task(name: str) -> Callable[[bytes, Path], None]:
    """The answer of a worker of the service to the body of a request, in this process."""
    limits = {**worker_limits(Settings()), "worker_memory_bytes": 0, "deadline_max_seconds": 1.0}

    def run(body: bytes, _folder: Path) -> None:
        TASKS[name]({**limits, "validate_max_bytes": MOST_BYTES}, body, cast("Channel", Answers()))

    return run


class Answers:
    """Drops the messages of a task."""

    def stage(self, *_: object) -> None: ...

    def progress(self, *_: object, **__: object) -> None: ...

    def send(self, *_: object) -> None: ...

    def offer(self, _key: str) -> bool:
        return True


def by_command(*words: str) -> Callable[[bytes, Path], None]:
    """A command with the input in the place of ``{}``, a graph that it may belong to in that of ``{graph}``.

    The exit code 4 says that it has met a bug.
    """

    def run(data: bytes, folder: Path) -> None:
        path = folder / "input.json"
        path.write_bytes(data)
        said, told = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        graph = folder / "graph.json"
        graph.write_bytes(documents.dump_graph(small.residual(optimizer="Adam")))
        given = [{"{}": str(path), "{graph}": str(graph)}.get(word, word) for word in words]
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
            code = _ended(given)
        told.flush()
        text = told.buffer.getvalue().decode()
        assert code in (0, 1, 2, 3), text
        if code in (2, 3):
            raise Problem("invalid-document", text, remedy=text)

    return run


def _ended(words: list[str]) -> int | str | None:
    before = sys.argv
    sys.argv = ["arenaplan", *words]
    try:
        app(words, prog_name="arenaplan")
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.argv = before
    return 0


# ------------------------------------------------------------------------------------- right ones


def safetensors() -> bytes:
    values = np.arange(60, dtype=np.float32)
    table = {
        "a": {"dtype": "F32", "shape": [4, 5], "data_offsets": [0, 80]},
        "b": {"dtype": "F32", "shape": [40], "data_offsets": [80, 240]},
    }
    head = json.dumps(table).encode()
    return len(head).to_bytes(8, "little") + head + values.tobytes()


def gguf_file() -> bytes:
    values = np.arange(512, dtype=np.float32).reshape(2, 256)
    words = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q5_1")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        write_gguf(path, {word: (values, word) for word in words})
        return path.read_bytes()


def archive(write: Callable[..., None]) -> bytes:
    stream = io.BytesIO()
    write(stream, a=np.arange(20, dtype=np.float32).reshape(4, 5), b=np.zeros((3, 0, 2)), c=np.arange(9))
    return stream.getvalue()


TRAINING = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 0.5}), "mean-squared-error", batch=2)

_FLASH = Tier("flash", 1 << 20, 400_000_000, 200_000_000, 100)
_TIERS = (Tier("sram", 1200), _FLASH)


def options_for(arena: int) -> tuple[PlanOptions, ...]:
    """The options for a graph whose plain plan takes this number of bytes."""
    return (
        PlanOptions(in_place=True, sub_ranges=True),
        PlanOptions(order=True, rewrite=True, fit_scratch=True),
        PlanOptions(recompute=True, capacity=9 * arena // 10, in_place=True),
        PlanOptions(storage="float16", parallelism=3),
        PlanOptions(tiers=(Tier("sram", 9 * arena // 10), _FLASH)),
        PlanOptions(memories=(Tier("tcm", arena // 2), replace(_FLASH, bytes=arena)), place=("*@grad=tcm",)),
        PlanOptions(target="onert"),
        PlanOptions(target="nntrainer"),
        PlanOptions(target="singa"),
    )


def with_empty_rows() -> TrainableGraph:
    """A layer whose outputs are joined with parameters of no rows, and a part that is cut to nothing."""
    s = small.Sketch("empty rows")
    h = s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 3, 4), s.parameter("b", 4)], "h")
    c = s.op("Concat", [h, s.parameter("rows", 0, 4)], "c", axis=0)
    cut = s.op("Slice", [c, s.integers("from", 2), s.integers("to", 2)], "cut")
    y = s.op("Concat", [c, cut], "y", axis=0)
    s.op("MeanSquaredError", [y, s.label("t", 2, 4)], "loss")
    return s.graph(outputs=["cut"])


@cache
def some_graphs() -> tuple[TrainableGraph, ...]:
    rules = TrainingRules(clip_global_norm=1.0, loss_scale=8.0, accumulate=2)
    return (
        small.residual(optimizer="Adam"),
        small.convolutional(),
        small.batch_normalised(),
        small.chain((3, 4, 2), training=rules),
        attention(),
        convolved(),
        elementwise(),
        recurrent(),
        classifier(),
        with_empty_rows(),
        adapted(),
    )


def graph_documents() -> list[Any]:
    made = [json.loads(documents.dump_graph(graph)) for graph in some_graphs()]
    return [graph_document(), SEQUENCES, *made]


def of_sizes() -> TrainableGraph:
    """A graph of several batches, for which there is one plan."""
    return with_symbolic_batch(small.chain((4, 3)), 4)


@cache
def planned_graphs() -> tuple[tuple[TrainableGraph, PlanOptions], ...]:
    graphs, options = some_graphs(), options_for(0)
    pairs = ((graphs[0], PlanOptions(tiers=_TIERS)), (graphs[0], options[0]), (graphs[1], options[1]))
    return (
        *pairs,
        (graphs[2], options[3]),
        (graphs[3], PlanOptions()),
        (graphs[7], options[0]),
        (graphs[9], options[0]),
        (graphs[10], options[0]),
    )


@cache
def deployed() -> tuple[Mapping[str, TrainableGraph], bytes]:
    """The graphs of the entry points of a small network, and the document of their plan."""
    graph = small.chain((3, 2), 2, optimizer="Adam")
    graphs = {"train": graph, "infer": inference(graph)}
    return graphs, documents.dump_deployment(trained_and_used(graph, "train", "infer"))


def plan_documents() -> list[Any]:
    made = [plan(graph, options) for graph, options in planned_graphs()]
    programs = [documents.load_program(document_bytes(program)) for program in program_documents()]
    made += [plan_program(program, PlanOptions(in_place=True)) for program in programs]
    made.append(planned_over(of_sizes(), 1, 4))
    return [json.loads(documents.dump_plan(each)) for each in made]


def program_documents() -> list[Any]:
    parallel = json.loads((ROOT / "service/http/web/examples/parallel.json").read_bytes())["program"]
    views = {
        "format": "arenaplan.program",
        "version": 2,
        "name": "views",
        "any_order": True,
        "blocks": [
            {"name": "x", "shape": [4, 8], "dtype": "float32", "fed": True},
            {
                "name": "half",
                "shape": [4, 4],
                "dtype": "float32",
                "view": {"of": "x", "offset": 16, "strides": [8, 1]},
            },
            {"name": "w", "shape": [8], "dtype": "float32"},
            {"name": "y", "shape": [4, 8], "dtype": "float32", "kept": True},
        ],
        "operations": [
            {"name": "a", "type": "scale", "reads": ["half"], "writes": ["half"]},
            {"name": "b", "reads": ["x", "w"], "writes": ["y"], "overwrites": {"y": "x"}, "workspace": 64},
            {"name": "c", "reads": ["w", "y"], "writes": ["w"]},
        ],
    }
    empty = {
        "format": "arenaplan.program",
        "version": 2,
        "name": "empty",
        "blocks": [
            {"name": "x", "shape": [4, 0], "dtype": "float32", "fed": True},
            {"name": "y", "bytes": 32, "kept": True},
            {"name": "part", "shape": [0], "dtype": "float32", "view": {"of": "y", "offset": 4}},
            {"name": "w", "bytes": 0},
            {"name": "turned", "shape": [3, 0], "dtype": "float32", "view": {"of": "w", "strides": [1, 3]}},
        ],
        "operations": [
            {"name": "a", "reads": ["x", "w"], "writes": ["y"]},
            {"name": "b", "reads": ["y", "part", "turned"], "writes": ["w"]},
        ],
    }
    return [parallel, views, empty]


def buffers() -> Any:
    found = json.loads((ROOT / "service/http/web/examples/buffers.json").read_bytes())["problem"]
    found["buffers"] += [
        {
            "id": "g",
            "size": 8,
            "start": 0,
            "end": 9,
            "gaps": [{"start": 2, "end": 4}, {"start": 5, "end": 6, "low": 2, "high": 4}],
        },
        {"id": "p", "size": 2, "start": 1, "end": 3, "offset": 40},
        {"id": "e", "size": 0, "start": 1, "end": 3},
    ]
    return {**found, "capacity": 100}


def layouts() -> list[Any]:
    made = place(documents.load_buffers(document_bytes(buffers())))
    return [json.loads(documents.dump_layout(documents.layout_with_digest(made)))]


def layout_options() -> list[Any]:
    return [json.loads(documents.dump_layout_options(LayoutOptions(work=100, alignment=4, capacity=99)))]


def many_buffers() -> Any:
    rng = Random(3)
    spans = [(rng.randrange(50), rng.randrange(1, 9), 2 ** rng.randrange(9)) for _ in range(80)]
    rows = [{"id": f"b{i}", "size": size, "start": s, "end": s + n} for i, (s, n, size) in enumerate(spans)]
    return {"format": "arenaplan.buffers", "version": 1, "buffers": rows}


CSV: Final = """id,lower,upper,size,alignment,gaps,hint,offset
b1,0,3,4,1,,0,
b2,3,9,4,2,,16,
b3,0,9,4,1,7-9,,8
b4,0,9,4,1,2-4 5-6@0:2,20,
"""
PLAIN_CSV: Final = "buffer,begin,end,size\n" + "".join(f"b{i},{i},{i + 3},{8 * i + 1}\n" for i in range(9))

INI: Final = (
    "[Model]\ntype=neuralnetwork\nloss=cross\nbatch_size=2\n[Optimizer]\ntype=adam\nlearning_rate=0.1\n"
    "[in]\ntype=input\ninput_shape=2:6:6\n[c]\ntype=conv2d\nfilters=3\nkernel_size=3,3\npadding=same\n"
    "activation=relu\n[d]\ntype=conv2d\ninput_layers=in\nfilters=3\nkernel_size=1\n[sum]\ntype=addition\n"
    "input_layers=c,d\n[bn]\ntype=batch_normalization\n[drop]\ntype=dropout\ndropout_rate=0.2\n[p]\n"
    "type=pooling2d\npooling=max\npool_size=2,2\nstride=2,2\n[f]\ntype=flatten\n[rnn]\ntype=lstm\nunit=3\n"
    "[out]\ntype=fully_connected\nunit=4\nactivation=softmax\n"
)


RECURRENT: Final = "[rnn]\ntype=lstm\nunit=3\n"


def options_documents() -> list[Any]:
    given = [json.loads(documents.dump_options(options)) for options in options_for(3000)]
    full = {"solver": "greedy", "batch": None, "alignment": 16, "capacity": "1MiB", "deadline_seconds": 0.5}
    tiers = ["sram=1200", "flash=1MiB,read=45MB/s,write=20MB/s,latency=100us"]
    ranges = [{"batch": "1..3"}, {"batch": {"from": 1, "to": 4}, "dims": {"seq": "2..3", "width": 5}}]
    memories = {"memories": [tiers[1], {"name": "b", "bytes": 64, "read": 9}], "place": ["x=b", "*=flash"]}
    return [*given, full, {"tiers": tiers, "costs": costs_document()}, memories, *ranges]


def costs_document() -> Any:
    return json.loads(documents.dump_costs(modelled_costs(small.residual(), PlanOptions())))


def access_log() -> list[list[Any]]:
    graph = small.residual()
    made = plan(graph)
    lines = documents.dump_accesses(logged_accesses(graph, made, steps=1), made)
    return [[json.loads(line) for line in lines]]


BUDGETS: Final = {
    "name": "small",
    "model": "model.json",
    "options": {"batch": 4, "tiers": ["a=640", "b=1MiB,bandwidth=5MB/s"]},
    "training": {"loss": "mse", "dim": ["n=4"]},
    "max_arena": "64KiB",
    "max_spaces": {"arena": 4096},
    "max_recompute": "5%",
}


def budget_files() -> list[Any]:
    return [
        {
            "format": "arenaplan.budgets",
            "version": 1,
            "budget": [BUDGETS, {"plan": "p.json", "max_arena": 64}],
        }
    ]


def requests(task: str) -> list[Any]:
    graph = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())["graph"]
    options = {"batch": 2, "alignment": 16, "capacity": 10**6, "deadline_seconds": 0.05}
    if task == "layout":
        return [
            {"problem": buffers(), "options": {"capacity": 200, "work": 100}},
            {"problem": many_buffers()},
        ]
    if task == "program":
        return [{"program": p, "options": {"parallelism": 2, "alignment": 16}} for p in program_documents()]
    if task == "validate":
        made = plan(documents.load_graph(document_bytes(graph)))
        of_tiny = {"graph": graph, "plan": json.loads(documents.dump_plan(made)), "steps": 1, "seed": 3}
        paged = [
            {
                "graph": json.loads(documents.dump_graph(g)),
                "plan": json.loads(documents.dump_plan(plan(g, o))),
            }
            for g, o in planned_graphs()[:2]
        ]
        return [of_tiny, *({**each, "steps": 1} for each in paged)]
    asked: dict[str, dict[str, Any]] = {"tradeoff": {"points": 3}, "explain": {"training": True}}
    tiers = {
        "tiers": [{"name": "a", "bytes": 20000}, {"name": "b", "bytes": 10**6, "read": 10**6, "write": 10**6}]
    }
    chosen = {"only": ["recompute"]} if task == "plan" else {}
    every = [{"graph": graph, "options": {**options, **chosen}, **asked.get(task, {})}]
    return every if task != "plan" else [*every, {"graph": graph, "options": {"batch": 2, **tiers}}]


def deployment_requests() -> list[Any]:
    graph, steps = requests("plan")[0]["graph"], program_documents()[0]
    at_one = json.loads(documents.dump_graph(documents.load_graph(document_bytes(graph), batch=1)))
    entries = [
        "train",
        {"purpose": "infer", "batch": 1, "name": "camera", "graph": at_one},
        "evaluate:batch=3",
    ]
    models = {"a": graph, "b": graph, "steps": steps}
    several = [
        {"purpose": "train", "model": "a"},
        "b.infer:batch=2,name=b",
        {"purpose": "run", "model": "steps"},
    ]
    return [
        {"graph": graph, "entries": entries, "options": {"batch": 2, "capacity": 10**6}},
        {"models": models, "entries": several, "ties": ["a.*=b.*"], "options": {"deadline_seconds": 0.05}},
        {"models": models, "ties": ["a.w1=b.w1", "a.b1=b.b1"]},
    ]


_REPORT = {
    "format": "arenaplan.report", "version": 1, "identical": True, "compared": 3, "arena_bytes": 8,
    "steps": [{"step": 1, "loss": "NaN", "reference_loss": 0.5, "identical": False, "differing": ["w"]}],
    "violations": [{"rule": "value", "buffers": ["w"], "detail": "words"}],
}  # fmt: skip


def answers(task: str) -> list[Any]:
    """The answer of the service to a request for a curve or a verdict."""
    kept: list[Any] = []

    class Kept(Answers):
        def send(self, *sent: object) -> None:
            kept.append(json.loads(cast("bytes", sent[2])))

    limits = {**worker_limits(Settings()), "worker_memory_bytes": 0}
    TASKS[task](limits, document_bytes(requests(task)[0]), cast("Channel", Kept()))
    return kept


_JSON: Final = in_structure

#: Of each kind, whole inputs, what damages them and what reads them.
KINDS: Final[dict[str, Kind]] = {
    "onnx": Kind(lambda: [m.SerializeToString() for m in whole_models()], in_bytes, imported),
    "onnx, said otherwise": Kind(whole_models, in_model, imported),
    "circle": Kind(lambda: [written(case) for case in CASES], in_bytes, imported),
    "tflite": Kind(lambda: [written(case, b"TFL3") for case in CASES], in_bytes, imported),
    "circle, said otherwise": Kind(
        lambda: [written(case) for case in CASES], in_tables, imported
    ),
    "trained circle": Kind(lambda: [with_training(dense(), TRAINING)], in_bytes, imported),
    "CTR0": Kind(lambda: [dump_training(TRAINING)], in_bytes, lambda data, _: ignored(load_training(data))),
    "safetensors": Kind(lambda: [safetensors()], in_bytes, of_weights),
    "gguf": Kind(lambda: [gguf_file()], in_bytes, of_weights),
    "npz": Kind(lambda: [archive(np.savez), archive(np.savez_compressed)], in_bytes, of_weights),
    # PyTorch's .pt2 and .pt are archives, too.
    "zip": Kind(lambda: [archive(np.savez)], in_bytes, imported),
    "nntrainer": Kind(lambda: [INI, INI.replace(RECURRENT, "")], in_entries, of_ini),
    "csv": Kind(lambda: [CSV, PLAIN_CSV], in_text, of_csv),
    "buffers": Kind(lambda: [buffers(), many_buffers()], _JSON, of_buffers),
    "layout": Kind(layouts, resealed, of_layout),
    "layout options": Kind(layout_options, _JSON, of_layout_options),
    "graph": Kind(graph_documents, _JSON, of_graph, 2.0),
    "program": Kind(program_documents, _JSON, of_program),
    "options": Kind(options_documents, _JSON, of_options),
    "costs": Kind(lambda: [costs_document()], _JSON, of_costs, 0.2),
    "plan": Kind(plan_documents, resealed, of_plan, 2.0),
    "deployment": Kind(lambda: [json.loads(deployed()[1])], resealed_with_plans, of_deployment, 2.0),
    "accesses": Kind(access_log, in_lines, of_accesses),
    "budgets": Kind(budget_files, in_toml, of_budgets),
    "report": Kind(lambda: [_REPORT], _JSON, of_kind(documents.load_report, documents.dump_report)),
    "tradeoff": Kind(
        partial(answers, "tradeoff"), _JSON, of_kind(documents.load_tradeoff, documents.dump_tradeoff)
    ),
    "verdict": Kind(
        partial(answers, "explain"), _JSON, of_kind(documents.load_verdict, documents.dump_verdict)
    ),
    **{
        f"request: {task}": Kind(
            partial(requests, task), request_with_plan if task == "validate" else _JSON, by_task(task), share
        )
        for task, share in {
            "plan": 1.0, "program": 1.0, "layout": 1.0, "validate": 1.0, "tradeoff": 0.2, "explain": 0.2,
        }.items()
    },
    "request: entry points": Kind(deployment_requests, _JSON, by_task("plan"), 1.0),
    "command: solve": Kind(lambda: [buffers()], _JSON, by_command("solve", "{}", "--deadline", "1"), 0.5),
    "command: plan": Kind(graph_documents, _JSON, by_command("plan", "{}"), 0.5),
    "command: plan, entry points": Kind(
        graph_documents, _JSON, by_command("plan", "{}", "--entry", "train", "--entry", "infer:batch=1"), 0.5
    ),
    "command: show, entry points": Kind(
        lambda: [json.loads(deployed()[1])], resealed_with_plans, by_command("show", "{}"), 0.5
    ),
    "command: show": Kind(plan_documents, resealed, by_command("show", "{}"), 0.5),
    "command: validate": Kind(
        plan_documents, resealed, by_command("validate", "{graph}", "{}", "--steps", "1"), 0.5
    ),
    "command: report": Kind(plan_documents, resealed, by_command("report", "{}", "-o", "-"), 0.2),
}  # fmt: skip
