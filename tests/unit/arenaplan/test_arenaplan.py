"""The package that people import: what it offers, what it loads, and what it says where it is hidden."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan
from arenaplan.hidden_packages import NEIGHBOURS, hidden
from solver.documents import dump_graph, dump_plan
from solver.errors import ArenaplanError, DocumentError, OptionsError
from solver.exporters import EXPORTERS
from solver.graph import FileRange, Initializer

ROOT = Path(__file__).resolve().parents[3]
MNIST = ROOT / "examples" / "mnist.json"
MOMENTUM = ROOT / "examples" / "programs" / "momentum.json"

#: What the README says that it takes.
MNIST_BYTES = 21_613_184


def python(script: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter that finds `folder` first and the project behind it."""
    return subprocess.run(
        [
            sys.executable,
            *more,
            "-c",
            f"import sys; sys.path[:0] = [{str(folder)!r}, {str(ROOT)!r}]\n{script}",
        ],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=60,
    )


class TestLoading:
    def test_the_package_alone_loads_next_to_nothing(self, tmp_path: Path) -> None:
        done = python("import arenaplan; print(*{name.split('.')[0] for name in sys.modules})", tmp_path)
        heavy = {"numpy", "numba", "llvmlite", "ortools", "fastapi", "pydantic", "httpx", "torch", "service"}
        assert done.returncode == 0
        assert set(done.stdout.split()) & heavy == set()

    def test_planning_loads_no_server(self, tmp_path: Path) -> None:
        show = "print(*{name.split('.')[0] for name in sys.modules})"
        done = python(f"import arenaplan; arenaplan.plan({str(MNIST)!r}); {show}", tmp_path)
        assert done.returncode == 0
        assert (
            set(done.stdout.split()) & {"fastapi", "starlette", "ortools", "httpx", "torch", "rich"} == set()
        )

    def test_names_are_listed(self) -> None:
        assert dir(arenaplan) == sorted(arenaplan.__all__)

    @pytest.mark.parametrize("name", ["plann", "load"])
    def test_an_unknown_name(self, name: str) -> None:
        with pytest.raises(AttributeError, match=f"no attribute '{name}'"):
            getattr(arenaplan, name)

    def test_the_client_is_the_one_of_the_package_behind(self) -> None:
        from clients import Client

        assert arenaplan.Client is Client

    def test_command(self, tmp_path: Path) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "arenaplan", "plan", str(MNIST), "-o", str(tmp_path / "plan.json")],
            cwd=ROOT,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0
        assert (tmp_path / "plan.json").exists()


class TestHidden:
    @pytest.fixture(params=["module", "package", "namespace"])
    def other(self, request: pytest.FixtureRequest, tmp_path: Path) -> Path:
        """A folder in which something else is called solver and clients."""
        for name in ("solver", "clients"):
            if request.param == "module":
                (tmp_path / f"{name}.py").touch()
                continue
            (tmp_path / name).mkdir()
            if request.param == "package":
                (tmp_path / name / "__init__.py").touch()
        return tmp_path

    def test_nothing_is_hidden_here(self) -> None:
        assert hidden(ROOT, NEIGHBOURS) == {}

    def test_the_core(self, other: Path) -> None:
        done = python("import arenaplan", other)
        if (other / "solver").is_dir() and not (other / "solver" / "__init__.py").exists():
            assert done.returncode == 0  # a folder without code hides no package
            return
        last = done.stderr.strip().splitlines()[-1]
        assert last.startswith(f"ImportError: arenaplan's package 'solver' is hidden: Python finds {other}")
        assert last.endswith("install arenaplan into an environment of its own.")

    def test_another_package_is_named_and_the_rest_works(self, tmp_path: Path) -> None:
        (tmp_path / "clients.py").touch()
        done = python(f"import arenaplan; print(arenaplan.plan({str(MNIST)!r}).arena_bytes)", tmp_path)
        assert done.stdout.strip() == str(MNIST_BYTES)
        assert done.stderr.count("'clients' is hidden") == 1
        done = python("import arenaplan; arenaplan.Client", tmp_path, "-W", "ignore")
        assert done.stderr.strip().splitlines()[-1].startswith("ImportError: arenaplan's package 'clients'")

    def test_a_package_that_is_not_there(self) -> None:
        (sentence,) = hidden(ROOT, ["packages_of_nobody"]).values()
        assert "Python does not find it" in sentence


class TestPlan:
    def test_of_a_path(self) -> None:
        assert arenaplan.plan(MNIST).arena_bytes == MNIST_BYTES
        assert arenaplan.plan(str(MNIST)).arena_bytes == MNIST_BYTES

    def test_of_documents_and_what_they_become(self) -> None:
        text = MNIST.read_bytes()
        graph = arenaplan.load_graph(MNIST)
        plans = [arenaplan.plan(x) for x in (text, json.loads(text), graph)]
        assert {plan.digest for plan in plans} == {arenaplan.plan(MNIST).digest}

    def test_of_a_program(self) -> None:
        program = arenaplan.load_program(MOMENTUM)
        assert arenaplan.plan(program) == arenaplan.plan(MOMENTUM)

    def test_of_a_model_of_a_tape(self) -> None:
        tape = arenaplan.Tape("small", batch=4)
        x, wanted = tape.input("x", 3), tape.label("wanted", 1)
        loss = arenaplan.ops.mean_squared_error(arenaplan.layers.dense(x, 1), wanted)
        model = tape.minimise(loss, arenaplan.adam(0.01))
        assert arenaplan.plan(model) == model.plan()
        assert arenaplan.plan(model, batch=400).arena_bytes > model.plan().arena_bytes

    def test_options_as_in_a_document(self) -> None:
        made = arenaplan.plan(MNIST, capacity="24 MiB", batch=8)
        assert (made.options.capacity, made.options.batch) == (24 * 2**20, 8)
        assert arenaplan.plan(MNIST, made.options) == made

    def test_an_unknown_option(self) -> None:
        wrong: Any = {"capasity": 3}
        with pytest.raises(DocumentError, match="Did you mean 'capacity'"):
            arenaplan.plan(MNIST, **wrong)

    def test_options_twice(self) -> None:
        with pytest.raises(OptionsError, match="Pass batch in the PlanOptions"):
            arenaplan.plan(MNIST, arenaplan.PlanOptions(), batch=3)

    def test_a_graph_has_its_batch(self) -> None:
        graph = arenaplan.load_graph(MNIST, batch=8)
        with pytest.raises(OptionsError, match="concrete") as error:
            arenaplan.plan(graph, batch=16)
        assert error.value.path == ("batch",)

    @pytest.mark.parametrize("model", [3, None, ["graph"]])
    def test_of_something_else(self, model: object) -> None:
        with pytest.raises(OptionsError, match="Give a path, a document, a graph, a program"):
            arenaplan.plan(model)  # type: ignore[arg-type]

    @pytest.mark.parametrize("text", [b"", b"[]", b"3", b"{}", b'{"format": 3}'])
    def test_of_what_is_not_a_document(self, text: bytes) -> None:
        with pytest.raises(ArenaplanError):
            arenaplan.plan(text)


class TestVerdicts:
    def test_explain(self) -> None:
        """A graph has one batch, so micro-batches are offered for documents alone."""
        offers = {
            name: {
                part
                for remedy in arenaplan.explain(model, capacity="20 MiB", training=True).remedies
                for part in remedy.names
            }
            for name, model in (("document", MNIST), ("graph", arenaplan.load_graph(MNIST)))
        }
        assert any("micro" in part for part in offers["document"])
        assert not any("micro" in part for part in offers["graph"])

    def test_tradeoff(self) -> None:
        curve = arenaplan.tradeoff(MNIST, batch=4, points=3)
        assert 2 <= len(curve.points) <= 4
        assert curve == arenaplan.tradeoff(arenaplan.load_graph(MNIST, batch=4), points=3)

    def test_of_a_program(self) -> None:
        for model in (MOMENTUM, arenaplan.load_program(MOMENTUM)):
            verdict = arenaplan.explain(model, capacity="400 MB")
            assert (verdict.status.value, verdict.floor) == ("impossible", 580_512_768)
            assert [remedy.names for remedy in verdict.remedies] == [("paging",)]
        with pytest.raises(OptionsError, match="No operation of 'linear with momentum' may run again"):
            arenaplan.tradeoff(MOMENTUM)
        with pytest.raises(OptionsError, match="program of explicit operations"):
            arenaplan.choose_trainable(MOMENTUM, capacity="400 MB")

    def test_validate(self) -> None:
        graph = arenaplan.load_graph(MNIST, batch=2)
        assert arenaplan.validate(graph, arenaplan.plan(graph), steps=1).identical


class TestLoad:
    @pytest.mark.parametrize(
        ("load", "path", "reader"),
        [
            (arenaplan.load_graph, MOMENTUM, "load_program"),
            (arenaplan.load_program, MNIST, "load_graph"),
            (arenaplan.load_plan, MNIST, "load_graph"),
        ],
    )
    def test_another_kind_of_file(self, load: Callable[[Path], object], path: Path, reader: str) -> None:
        with pytest.raises(DocumentError, match="is a") as caught:
            load(path)
        assert caught.value.remedy == f"Read it by arenaplan.{reader}({str(path)!r})."
        getattr(arenaplan, reader)(path)

    def test_how_a_document_is_trained_stands_in_it(self) -> None:
        with pytest.raises(OptionsError, match="says itself how it is trained"):
            arenaplan.load_graph(MNIST, loss="mse")

    def test_a_plan(self, tmp_path: Path) -> None:
        made = arenaplan.plan(MNIST)
        (tmp_path / "plan.json").write_bytes(dump_plan(made))
        assert arenaplan.load_plan(tmp_path / "plan.json") == made
        with pytest.raises(DocumentError, match="a plan already"):
            arenaplan.plan(tmp_path / "plan.json")

    def test_a_plan_with_entry_points(self, tmp_path: Path) -> None:
        made = arenaplan.deploy(MNIST, ["train:batch=2", "infer:batch=1"])
        arenaplan.save(made, tmp_path / "device.json")
        loaded = arenaplan.load_plan(tmp_path / "device.json")
        assert loaded == made
        assert isinstance(loaded, arenaplan.Deployment)
        assert loaded["infer"].plan.arena_bytes < loaded["train"].plan.arena_bytes == loaded.arena_bytes
        arenaplan.save(made, tmp_path / "device.h")
        assert (tmp_path / "device.h").read_bytes() == EXPORTERS["c-header"].dump(made)
        with pytest.raises(DocumentError, match="is a plan") as caught:
            arenaplan.load_graph(tmp_path / "device.json")
        assert "load_plan" in caught.value.remedy
        with pytest.raises(DocumentError, match="a plan already"):
            arenaplan.plan(tmp_path / "device.json")

    def test_a_graph_with_another_batch(self, tmp_path: Path) -> None:
        graph = arenaplan.load_graph(MNIST, batch=3)
        assert graph.operands["image"].shape[0] == 3
        (tmp_path / "graph").write_bytes(dump_graph(graph))
        assert arenaplan.load_graph(tmp_path / "graph") == graph

    def test_weights_beside_the_document(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As `validate` finds them, from wherever it is called."""
        graph = arenaplan.load_graph(MNIST, batch=2)
        name = graph.trainable[0]
        operand = graph.operands[name]
        value = np.arange(operand.type.elements, dtype=np.float32)
        folder = tmp_path / "models"
        folder.mkdir()
        (folder / "weights.bin").write_bytes(b"head" + value.tobytes())
        place = FileRange("weights.bin", 4, hashlib.sha256(value.tobytes()).hexdigest())
        operands = {**graph.operands, name: replace(operand, initializer=Initializer("values", file=place))}
        (folder / "graph.json").write_bytes(dump_graph(graph.with_graph(operands=operands)))
        for path in (folder / "graph.json", Path("models/graph.json")):
            monkeypatch.chdir(tmp_path)
            loaded = arenaplan.load_graph(path)
            with arenaplan.Trainer(loaded, arenaplan.plan(loaded)) as trainer:
                assert trainer.read(name).tobytes() == value.tobytes()

    def test_a_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            arenaplan.load_graph(tmp_path / "nothing.json")
