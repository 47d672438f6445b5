"""Commands that read plans, for plans with entry points: all of them, one by name, and what is refused."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from service.cli.console import Exit
from service.cli.show import entry_point_line
from solver.documents import dump_plan, load_deployment, load_graph
from solver.executor import Trainer, synthetic_batch
from solver.exporters import EXPORTERS, offset_rows
from solver.exporters.c_header import dump_c_header
from solver.exporters.html import dump_report
from solver.graph import inference
from solver.plan import Deployment, JoinedPlan
from tests.support.commands import run
from tests.support.entry_points import small_deployment

MNIST = Path(__file__).resolve().parents[4] / "examples" / "mnist.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mnist.json, and a plan that trains it and infers; the plan of one program beside it."""
    place: Path = tmp_path_factory.mktemp("plans")
    shutil.copy(MNIST, place / "mnist.json")
    made = run(
        "plan", place / "mnist.json", "--entry", "train:batch=2", "--entry", "infer:batch=1", "-o",
        place / "plan.json",
    )  # fmt: skip
    assert made.exit_code == Exit.OK, made.output
    deployment = load_deployment((place / "plan.json").read_bytes())
    (place / "one.json").write_bytes(dump_plan(deployment["infer"].plan))
    return place


@pytest.fixture(scope="module")
def deployment(folder: Path) -> Deployment:
    return load_deployment((folder / "plan.json").read_bytes())


def test_names_below_the_map_have_room_or_are_cut() -> None:
    joined = JoinedPlan(small_deployment())
    wide = entry_point_line(joined, 4 * joined.duration)
    starts = [wide.index(f"|{name}") for name in ("train", "infer", "evaluate")]
    assert starts == [1 + 4 * start for start in joined.starts[:-1]]
    narrow = entry_point_line(joined, 6)
    assert len(narrow) <= 7


@pytest.mark.parametrize("name", EXPORTERS)
def test_exports(folder: Path, deployment: Deployment, name: str) -> None:
    exporter, out = EXPORTERS[name], folder / f"out.{name}"
    assert run("export", folder / "plan.json", "--to", name, "-o", out).exit_code == Exit.OK
    assert out.read_bytes() == exporter.dump(deployment)
    one = run("export", folder / "plan.json", "--entry-point", "infer", "--to", name, "-o", out)
    assert one.exit_code == Exit.OK
    assert out.read_bytes() == exporter.dump(deployment["infer"].plan)


def test_headers_with_a_prefix_and_in_several_files(folder: Path, deployment: Deployment) -> None:
    out = folder / "net.h"
    assert run("export", folder / "plan.json", "--prefix", "net", "-o", out).exit_code == Exit.OK
    assert out.read_bytes() == dump_c_header(deployment, "net")
    assert run("export", folder / "plan.json", "--split", "--prefix", "net", "-o", out).exit_code == Exit.OK
    assert b"NET_INFER_STEPS" in out.read_bytes()


def test_rows_have_the_entry_point_of_each_value(folder: Path, deployment: Deployment) -> None:
    text = run("offsets", folder / "plan.json").stdout
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    persistent = [row for row in rows if not row["entry_point"]]
    assert [(row["value"], row["start"]) for row in persistent] == [
        (r.name, "") for r in deployment.persistent
    ]
    for entry_point in deployment.entry_points:
        own = {row["value"]: int(row["offset"]) for row in rows if row["entry_point"] == entry_point.name}
        program = entry_point.plan.program
        places = {row["value"]: row["offset"] for row in offset_rows(entry_point.plan)}
        k = deployment.entry_points.index(entry_point)
        kept = {program.values[row.values[k]].label for row in deployment.persistent}
        assert own == {name: offset for name, offset in places.items() if name not in kept}
    listed = json.loads(run("offsets", folder / "plan.json", "--json").stdout)
    assert listed == offset_rows(deployment)
    one = run("offsets", folder / "plan.json", "--entry-point", "infer").stdout
    assert one == run("offsets", folder / "one.json").stdout


def test_reports_and_differences(folder: Path, deployment: Deployment) -> None:
    out = folder / "page.html"
    assert run("report", folder / "plan.json", "-o", out).exit_code == Exit.OK
    assert out.read_bytes() == dump_report(deployment)
    assert run("report", folder / "plan.json", folder / "plan.json", "-o", out).exit_code == Exit.OK
    assert out.read_bytes() == dump_report(deployment, deployment)
    plan = deployment["infer"].plan
    one = run("report", folder / "one.json", folder / "plan.json", "--entry-point", "infer", "-o", out)
    assert one.exit_code == Exit.OK
    assert out.read_bytes() == dump_report(plan, plan)
    same = run("diff", folder / "plan.json", folder / "plan.json", "--max-growth", "0")
    assert same.exit_code == Exit.OK
    assert "Every persistent value lies where it was." in same.stdout


def test_outputs_of_one_entry_point(folder: Path, deployment: Deployment) -> None:
    """They are those of a trainer of the whole plan, with what was trained in it."""
    data = (folder / "mnist.json").read_bytes()
    graphs = {"train": load_graph(data, batch=2), "infer": inference(load_graph(data, batch=1))}
    image = {"image": synthetic_batch(graphs["infer"], 0, 1)["image"]}
    np.savez(folder / "batch.npz", image=image["image"])
    with Trainer(graphs, deployment) as trainer:
        fresh = trainer.infer(image)
        trainer.step(synthetic_batch(graphs["train"], 0, 1))
        trainer.save(folder / "trained.safetensors")
        trained = trainer.infer(image)
    given = ("run", folder / "plan.json", "--entry-point", "infer", "--input", folder / "batch.npz", "-o")
    out = folder / "out.npz"
    done = run(*given, out)  # the graph is the one beside the plan
    assert done.stdout == "out.npz: softmax.out float32 [1, 10]\n", done.output
    with np.load(out) as written:
        np.testing.assert_array_equal(written["softmax.out"], fresh["softmax.out"])
    checkpoint = ("--graph", folder / "mnist.json", "--checkpoint", folder / "trained.safetensors")
    assert run(*given, out, *checkpoint).exit_code == Exit.OK
    with np.load(out) as written:
        np.testing.assert_array_equal(written["softmax.out"], trained["softmax.out"])
    assert not np.array_equal(fresh["softmax.out"], trained["softmax.out"])


def test_models_that_share_keep_tied_values_once(folder: Path) -> None:
    shutil.copy(MNIST, folder / "other.json")
    models = (folder / "mnist.json", folder / "other.json")
    made = run("plan", *models, "--share", "--tie", "mnist.*=other.*", "-o", "-")
    deployment = load_deployment(made.stdout.encode())
    assert [entry_point.name for entry_point in deployment.entry_points] == ["mnist", "other"]
    parameters = [row.name for row in deployment.persistent if "@" not in row.name]
    assert {name.partition(".")[0] for name in parameters} == {"mnist"}


def test_words_that_no_file_holds_are_no_entry_points(folder: Path) -> None:
    for word in (f"infer:batch={'9' * 5000}", "infer:name=\udcff"):
        refused = run("plan", folder / "mnist.json", "--entry", word, "-o", folder / "none.json")
        (line,) = refused.stderr.strip().splitlines()
        assert (refused.exit_code, "is no" in line and "entry point" in line) == (Exit.USAGE, True)
        assert not (folder / "none.json").exists()
