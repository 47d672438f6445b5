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
from solver.plan import Deployment, JoinedPlan, persistent_rows
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


def test_show_has_a_table_and_a_map(folder: Path, deployment: Deployment) -> None:
    shown = run("show", folder / "plan.json", "--width", "80")
    assert shown.exit_code == Exit.OK
    lines = shown.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(shown.stdout.split())
    for entry_point in deployment.entry_points:
        assert f"{entry_point.plan.arena_bytes:,}" in text
    assert (
        f"Persistent: {len(deployment.persistent)} values take {deployment.persistent_bytes:,} bytes" in text
    )
    assert "train decides the size of the arena" in text
    axis = next(k for k, line in enumerate(lines) if line.startswith("step 0"))
    assert [name.strip() for name in lines[axis + 1].split("|")[1:]] == ["train", "infer"]
    assert lines[axis - 2] == f"|{'W' * (len(lines[axis - 2]) - 2)}|", "weights lie at the bottom of all runs"


def test_show_of_one_entry_point_is_that_of_its_plan(folder: Path) -> None:
    for more in ([], ["--json"]):
        one = run("show", folder / "plan.json", "--entry-point", "infer", *more)
        assert one.exit_code == Exit.OK
        assert one.stdout == run("show", folder / "one.json", *more).stdout


def test_show_for_scripts(folder: Path, deployment: Deployment) -> None:
    facts = json.loads(run("show", folder / "plan.json", "--json").stdout)
    assert facts["digest"] == deployment.digest
    assert [row["name"] for row in facts["entry_points"]] == ["train", "infer"]
    assert [row["batch"] for row in facts["entry_points"]] == [2, 1]
    assert facts["entry_points"][0]["added_bytes"] > facts["entry_points"][1]["added_bytes"] == 0
    rows = persistent_rows(deployment)
    assert [(row["name"], row["offset"]) for row in facts["persistent"]] == [(r.name, r.offset) for r in rows]
    assert facts["arenas"][0]["bytes"] == deployment.arena_bytes


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


@pytest.mark.parametrize("name", ["train", "infer"])
def test_accesses_of_one_entry_point(folder: Path, name: str) -> None:
    log = folder / f"{name}.jsonl"
    one = ("accesses", folder / "plan.json", "--entry-point", name)
    assert run(*one, "--record", folder / "mnist.json", "-o", log).exit_code == Exit.OK
    assert run(*one, log).stdout.endswith("accesses are as planned.\n")
    other = {"train": "infer", "infer": "train"}[name]
    wrong = run("accesses", folder / "plan.json", "--entry-point", other, log)
    assert wrong.exit_code == Exit.USAGE
    assert "The log is of plan" in wrong.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "plan.json", "--input", "batch.npz"),
        ("accesses", "plan.json", "log.jsonl"),
        ("export", "plan.json", "--to", "circle", "--model", "mnist.json"),
    ],
)
def test_commands_for_one_program_say_what_to_add(folder: Path, arguments: tuple[str, ...]) -> None:
    """The remedy works when it is pasted: the command then goes on to the next thing that it lacks."""
    paths = [folder / text if "." in text else text for text in arguments]
    refused = run(*paths)
    assert refused.exit_code == Exit.USAGE
    assert "Add --entry-point train, or another of train, infer." in refused.output
    again = run(*paths, "--entry-point", "train")
    assert "Add --entry-point" not in again.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("show", "plan.json", "--entry-point", "predict"),
            "no entry point 'predict'. Choose from train, infer.",
        ),
        (("show", "one.json", "--entry-point", "infer"), "it is for one program. Leave out --entry-point."),
        (("diff", "one.json", "plan.json"), "Add --entry-point train to compare that one."),
        (("report", "one.json", "one.json", "--entry-point", "infer"), "Leave out --entry-point."),
        (("rewritten", "mnist.json", "plan.json"), "nothing in it is rewritten. Use the graph itself."),
    ],
)
def test_refusals(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    refused = run(*(folder / text if "." in text else text for text in arguments))
    assert refused.exit_code == Exit.USAGE
    assert words in " ".join(refused.output.split())


def test_names_that_look_like_markup(tmp_path: Path) -> None:
    """Names of entry points, and of what is in them, are printed as they are."""
    plan = tmp_path / "plan.json"
    names = ["train:name=[/b]", "infer:batch=1,name=[red]"]
    made = run("plan", MNIST, *(word for name in names for word in ("--entry", name)), "-o", plan)
    assert made.exit_code == Exit.OK
    for command in (("show", plan), ("diff", plan, plan)):
        shown = run(*command)
        assert shown.exit_code == Exit.OK, shown.output
        assert "[/b]" in shown.stdout
        assert "[red]" in shown.stdout
    assert "[/b]/conv1.out" in run("show", plan).stdout
