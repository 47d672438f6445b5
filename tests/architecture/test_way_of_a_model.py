"""A model argument goes one way, from the command line to the pipeline, through few functions."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Final

import pytest

from service.cli.commands import app
from solver import documents
from solver.graph import TrainableGraph
from solver.requests import Model, Request, Source, Work
from tests.support.graphs import chain
from tests.support.onnx_models import perceptron

#: The most functions, and packages with both ends, that hold a model on its way.
MOST_FUNCTIONS: Final = 12
MOST_PACKAGES: Final = 5

#: Functions that read bytes: what they call holds parts of the model.
_READERS: Final = frozenset({"parse_json", "load_graph", "load_model"})

ROOT: Final = Path(__file__).resolve().parents[2]


class Arrived(BaseException):
    """The pipeline's entry point has the network."""


class Way:
    """The functions of the project that get a model, by package and name, until the pipeline has it.

    A model is its path, its bytes, or what was made of them. Constructors of values are left out.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.functions: list[tuple[str, str]] = []
        self._data = path.read_bytes()
        self._readers = 0

    def __call__(self, frame: FrameType, event: str, _value: object) -> None:
        code, module = frame.f_code, frame.f_globals.get("__name__", "")
        if not module.startswith(("service.", "solver.")):
            return
        if code.co_name in _READERS:
            self._readers += {"call": 1, "return": -1}.get(event, 0)
        is_inner = self._readers > (code.co_name in _READERS)
        if event != "call" or is_inner or code.co_name in ("__init__", "__post_init__"):
            return
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        held = [frame.f_locals.get(name) for name in names]
        if module.startswith(("solver.pipeline", "solver.native")):  # the entry point, and its deadline
            raise Arrived
        if not module.startswith("solver.graph") and any(map(self._is_model, held)):
            self.functions.append((frame.f_globals["__package__"], code.co_qualname))

    def _is_model(self, value: Any) -> bool:
        if isinstance(value, list):
            return value == [self.path]
        if isinstance(value, dict):
            return "operations" in value
        return isinstance(value, Source | Request | Work | Model | TrainableGraph) or value in (
            self.path,
            self._data,
        )

    @property
    def packages(self) -> list[str]:
        """The packages in the order in which they are entered."""
        return [package for package, _ in itertools.groupby(package for package, _ in self.functions)]


def way_of(suffix: str, folder: Path) -> Way:
    """The way of a small document, or of an ONNX model, from the command `plan`."""
    path = folder / f"net{suffix}"
    is_document = suffix == ".json"
    path.write_bytes(documents.dump_graph(chain((4, 4))) if is_document else perceptron().SerializeToString())
    words = [
        "plan",
        str(path),
        "-o",
        str(folder / "plan.json"),
        *([] if is_document else ["--loss", "mse", "--batch", "3"]),
    ]
    way, before = Way(path), sys.getprofile()
    sys.setprofile(way)
    try:
        app(words, standalone_mode=False)
    except Arrived:
        return way
    finally:
        sys.setprofile(before)
    raise AssertionError("the pipeline was not reached")


@pytest.mark.parametrize("suffix", [".json", ".onnx"])
def test_a_model_goes_one_way_through_few_functions(suffix: str, tmp_path: Path) -> None:
    way = way_of(suffix, tmp_path)
    command, *functions = way.functions
    assert command == ("service.cli", "plan")
    assert len(functions) <= MOST_FUNCTIONS, functions
    assert len({*way.packages, "solver.pipeline"}) <= MOST_PACKAGES, way.packages
    assert len(way.packages) == len(set(way.packages)), functions
    page = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    assert [name for _, name in functions if f"`{name}`" not in page] == []
