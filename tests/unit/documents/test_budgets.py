"""Budget files: what is read, and what each refusal names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import load_budgets, read_allowance
from solver.errors import ArenaplanError, DocumentError
from solver.plan import PlanOptions, RequestedOptions
from solver.reports.budget import Allowance, Budget, Limits

GOOD = """
options = { only = ["in_place"] }
[[budget]]
model = "nets/mnist.json"
max_arena = "24MiB"
max_recompute = "5%"
max_spaces = { sram = "512KiB" }
options = { batch = 32 }
"""


def test_a_budget() -> None:
    (found,) = load_budgets(GOOD.encode())
    assert found == Budget(
        name="mnist",
        model="nets/mnist.json",
        options=RequestedOptions(PlanOptions(in_place=True, batch=32), automatic=False),
        max_arena=24 << 20,
        max_spaces={"sram": 512 << 10},
        max_recompute=0.05,
    )


def test_entry_points() -> None:
    text = """
        [[budget]]
        model = "net.onnx"
        entries = ["train", "infer:batch=1"]
        baseline = "old.json"
        [budget.entry_points.infer]
        max_arena = "64KiB"
        max_growth = "1%"
        [budget.entry_points.train]
        max_recompute = "5%"
        """
    (found,) = load_budgets(text.encode())
    assert found.entries == ("train", "infer:batch=1")
    assert found.max_arena is None
    assert found.entry_points == {
        "infer": Limits(max_arena=64 << 10, max_growth=Allowance(share=0.01)),
        "train": Limits(max_recompute=0.05),
    }


@pytest.mark.parametrize(
    ("text", "allowance"),
    [
        ("1%", Allowance(share=0.01)),
        ("0.5 %", Allowance(share=0.005)),
        ("64KiB", Allowance(bytes=65536)),
        ("0", Allowance(bytes=0)),
    ],
)
def test_allowances(text: str, allowance: Allowance) -> None:
    assert read_allowance(text) == allowance


@pytest.mark.parametrize("text", ["", "%", "-1%", "nan%", "inf%", "1 furlong", "-3"])
def test_no_allowances(text: str) -> None:
    with pytest.raises(ValueError, match="give a share as 1%, or a size as 64KiB"):
        read_allowance(text)


def test_limits_in_bytes() -> None:
    assert Allowance(bytes=5).limit(100) == 105
    assert Allowance(share=0.015).limit(100) == 101
    assert Allowance(share=0.0).limit(0) == 0


@pytest.mark.parametrize(
    ("text", "message", "pointer"),
    [
        ("", "budget is missing", "/budget"),
        ("budget = []", "budget", "/budget"),
        ("x = [", "not TOML", ""),
        ('[[budget]]\nmodel = "a"', "limits nothing", "/budget/0"),
        ("[[budget]]\nmax_arena = 1", "neither a model nor a plan", "/budget/0"),
        ('[[budget]]\nmodel = "a"\nplan = "b"\nmax_arena = 1', "both a model and a plan", "/budget/0"),
        ('[[budget]]\nmodel = "a"\nmax_growth = "1%"', "one of baseline and max_growth", "/budget/0"),
        (
            '[[budget]]\nplan = "a"\nmax_arena = 1\noptions = { batch = 1 }',
            "made already",
            "/budget/0/options",
        ),
        (
            '[[budget]]\nplan = "a"\nmax_arena = 1\ntraining = { loss = "mse" }',
            "training for a plan",
            "/budget/0/training",
        ),
        (
            '[[budget]]\nmodel = "a"\nmax_arena = 1\ntraining = { dim = [1] }',
            "dim",
            "/budget/0/training/dim",
        ),
        (
            '[[budget]]\nplan = "a"\nmax_arena = 1\nentries = ["train"]',
            "entries for a plan that is made already",
            "/budget/0/entries",
        ),
        (
            '[[budget]]\nmodel = "a"\n[budget.entry_points.infer]\nmax_arena = 1',
            "limits of entry points, and plans none",
            "/budget/0/entry_points",
        ),
        (
            '[[budget]]\nplan = "a"\n[budget.entry_points.infer]',
            "Entry point 'infer' of budget[0] limits nothing",
            "/budget/0/entry_points/infer",
        ),
        (
            '[[budget]]\nplan = "a"\n[budget.entry_points.infer]\nmax_growth = "1%"',
            "one of baseline and max_growth",
            "/budget/0",
        ),
        (
            '[[budget]]\nplan = "a"\n[budget.entry_points.infer]\nmodel = "x"',
            "unknown field",
            "/budget/0/entry_points/infer/model",
        ),
        ('[[budget]]\nmodel = "a"\nmax_arena = "1 foot"', "max_arena", "/budget/0/max_arena"),
        ('[[budget]]\nmodel = "a"\nmax_arna = 1', "unknown field", "/budget/0/max_arna"),
        ('[[budget]]\nmodel = "a"\nmax_recompute = "1kB"', "a share as 5%", "/budget/0/max_recompute"),
        ('[[budget]]\nmodel = "a"\nbaseline = "b"\nmax_growth = true', "max_growth", "/budget/0/max_growth"),
        ('[[budget]]\nmodel = "a"\nmax_arena = 1\noptions = { bach = 1 }', "bach", "/budget/0/options/bach"),
        ('options = { bach = 1 }\n[[budget]]\nmodel = "a"\nmax_arena = 1', "bach", "/options/bach"),
        ('[[budget]]\nmodel = "a"\nmax_arena = 1\nbaseline = 1979-05-27', "baseline", "/budget/0/baseline"),
    ],
)
def test_refusals(text: str, message: str, pointer: str) -> None:
    with pytest.raises(DocumentError) as refused:
        load_budgets(text.encode())
    assert message in str(refused.value)
    assert refused.value.pointer == pointer
    assert refused.value.remedy


def test_no_text() -> None:
    with pytest.raises(DocumentError, match="Byte 3 of the file is not UTF-8"):
        load_budgets(b"x=\n\xff")


@given(st.text(max_size=200) | st.text(st.sampled_from('[]{}=".,\n budgetmodl1'), max_size=80))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ArenaplanError):
        load_budgets(text.encode("utf-8", "surrogatepass"))
