"""Options as typed keywords: the same names and words as those of documents and of the command line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import onnx
import pytest

import arenaplan
from arenaplan.choices import ImportChoices, Measure, PlanChoices
from arenaplan.torch import CaptureChoices
from solver.errors import ArenaplanError, OptionsError
from solver.options import IMPORT_OPTIONS, MEASURES, REQUEST_OPTIONS, Option
from tests.support.onnx_models import perceptron

MNIST = Path(__file__).resolve().parents[3] / "examples" / "mnist.json"


#: The annotation of a keyword, by the kind of option; words have the list of them.
ANNOTATIONS = {
    "word": "str", "words": "Sequence[str]", "integer": "int", "count": "int", "power of two": "int",
    "size": "int | str", "real": "float", "seconds": "float", "switch": "bool",
    "measures": "Sequence[Measure]", "costs": "str | Mapping[str, Any]",
    "sizes": "int | str | Mapping[str, int]", "dims": "Mapping[str, int | str | Mapping[str, int]]",
    **dict.fromkeys(("tiers", "memories", "ranges"), "Sequence[str | Mapping[str, Any]]"),
    **dict.fromkeys(("offsets", "alignments"), "Mapping[str, int | str] | Sequence[str]"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("choices", "options"), [(PlanChoices, REQUEST_OPTIONS), (ImportChoices, IMPORT_OPTIONS)]
)
def test_every_option_is_a_keyword_of_its_type(choices: type, options: dict[str, Option]) -> None:
    assert set(choices.__annotations__) == set(options)
    for name, option in options.items():
        declared = choices.__annotations__[name].__forward_arg__.removesuffix(" | None")
        if option.kind == "word" and option.words and name not in ("solver", "weights"):
            assert declared == f"Literal{[*option.words]}"
        elif option in IMPORT_OPTIONS.values() and option.kind == "words":
            assert declared == "str | Sequence[str]"
        else:
            assert declared == ANNOTATIONS[option.kind]


def test_documents_are_captured_with_the_keywords_of_graphs() -> None:
    parameters = inspect.signature(arenaplan.torch.graph).parameters.values()
    keywords = {each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY}
    assert set(CaptureChoices.__annotations__) == keywords


def test_measures_that_types_list() -> None:
    assert set(get_args(Measure)) == set(MEASURES)


@pytest.mark.parametrize(
    "function",
    [
        arenaplan.plan,
        arenaplan.explain,
        arenaplan.tradeoff,
        arenaplan.Model.plan,
        arenaplan.torch.Captured.plan,
    ],
)
def test_help_and_completion_show_every_option(function: Callable[..., Any]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(REQUEST_OPTIONS) <= set(parameters)
    assert parameters["scratch_budget"].default == REQUEST_OPTIONS["scratch_budget"].default


@pytest.mark.parametrize("name", [*REQUEST_OPTIONS, "capasity"])
def test_a_wrong_value_of_an_option_of_plans(name: str) -> None:
    choices: Any = {name: object()}
    with pytest.raises(ArenaplanError, match=name) as caught:
        arenaplan.plan(MNIST, **choices)
    assert caught.value.path[:1] == (name,)


@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_as_a_keyword_of_its_own_leads_to_one_that_can_be_pasted(name: str) -> None:
    choices: Any = {name: True}
    with pytest.raises(OptionsError) as caught:
        arenaplan.plan(MNIST, **choices)
    assert caught.value.path == (name,)
    assert f'only=["{name}"]' in caught.value.remedy
    assert ('scratch_budget="64 KiB"' in caught.value.remedy) == (name == "fit_scratch")


@pytest.mark.parametrize("name", [*IMPORT_OPTIONS, "los"])
def test_a_wrong_value_of_an_option_of_models(name: str, tmp_path: Path) -> None:
    onnx.save(perceptron(), tmp_path / "model.onnx")
    choices: Any = {"loss": "mse", name: object()}
    with pytest.raises(ArenaplanError):
        arenaplan.load_graph(tmp_path / "model.onnx", **choices)


def test_a_model_takes_them_too() -> None:
    tape = arenaplan.Tape("small", batch=4)
    x = arenaplan.layers.dense(tape.input("x", 3), 1)
    loss = arenaplan.ops.mean_squared_error(x, tape.label("target", 1))
    model = tape.minimise(loss, arenaplan.adam(0.01))
    own = model.plan(as_written=True, capacity="1 MiB")
    assert own == arenaplan.plan(model, as_written=True, capacity="1 MiB")
    assert own.options.capacity == 2**20
    with pytest.raises(OptionsError, match="concrete"):
        model.plan(batch=8)
    with pytest.raises(OptionsError, match="and by name"):
        model.plan(arenaplan.PlanOptions(), capacity=3)
