"""Entry points and ties as users write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import OptionsError
from solver.pipeline.deployment import joined_names, texts_of_stars
from solver.plan import EntrySpec, Tie, read_entry, read_tie


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("train", EntrySpec("train")),
        ("infer:batch=1", EntrySpec("infer", batch=1)),
        ("infer:batch=1,name=camera", EntrySpec("infer", batch=1, name="camera")),
        ("evaluate:name=check", EntrySpec("evaluate", name="check")),
        ("encoder.infer", EntrySpec("infer", "encoder")),
        ("model.v2.run:name=r", EntrySpec("run", "model.v2", name="r")),
    ],
)
def test_entry(text: str, spec: EntrySpec) -> None:
    assert read_entry(text) == spec


@pytest.mark.parametrize(
    "text",
    ["", "fit", "infer:", "infer:batch", "infer:batch=0", "infer:batch=-1", "infer:batch=x", "infer:size=3",
     "infer,", "infer:batch=1;", "train:batch=1,,name=a", "infer:batch=1.5", ".", ":batch=1"],
)  # fmt: skip
def test_no_entry(text: str) -> None:
    with pytest.raises(OptionsError, match="is no entry point") as caught:
        read_entry(text)
    assert "infer:batch=1" in caught.value.remedy


@given(st.text(max_size=30))
def test_any_text_is_an_entry_or_refused(text: str) -> None:
    try:
        spec = read_entry(text)
    except OptionsError:
        return
    assert text.startswith(f"{spec.model}.{spec.purpose}" if spec.model else spec.purpose)


@pytest.mark.parametrize("text", ["", "a", "a=", "=b", "a=b=c"])
def test_no_tie(text: str) -> None:
    with pytest.raises(OptionsError, match="ties nothing"):
        read_tie(text)


def test_ties_join_the_first_of_all_names() -> None:
    names = ["a.w", "b.w", "c.w", "a.v", "c.u", "a.w@m", "b.w@m"]
    joined = joined_names(names, [Tie("b.*", "c.*"), Tie("a.w", "b.w")])
    assert joined == {
        "a.w": "a.w", "b.w": "a.w", "c.w": "a.w", "a.v": "a.v", "c.u": "c.u", "a.w@m": "a.w@m",
        "b.w@m": "b.w@m",
    }  # fmt: skip


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_patterns_match_as_regular_expressions_do(pattern: str, name: str) -> None:
    expression = "(.*)".join(map(re.escape, pattern.split("*")))
    texts = texts_of_stars(pattern, name)
    assert (texts is None) == (re.fullmatch(expression, name) is None)
    if texts is not None:
        shortest = re.fullmatch(expression.replace(".*", ".*?"), name)
        assert shortest is not None
        assert texts == list(shortest.groups())


def test_many_stars_take_no_longer() -> None:
    """A regular expression would try every way to divide the name among its stars."""
    assert texts_of_stars("*a" * 300 + "b", "a" * 1000) is None


def test_each_star_stands_for_the_same_text_on_both_sides() -> None:
    names = ["a.e0.w", "a.e1.w", "b.1.weight.e", "b.0.weight.e"]
    joined = joined_names(names, [Tie("a.e*.*", "b.*.*eight.e")])
    assert joined["b.0.weight.e"] == "a.e0.w"
    assert joined["b.1.weight.e"] == "a.e1.w"
