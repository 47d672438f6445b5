"""Plans of a range in C: every size computes what the plan of that size does, with one set of statements."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.c_training import c_training_files
from solver.c_training.functions import merged
from solver.documents import load_graph
from solver.errors import OptionsError
from solver.executor import Trainer, c_files, synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions, SizeRange
from tests.support.c_programs import CProgram, written
from tests.support.every import grid, some
from tests.support.sizes import SEQUENCES, planned_over

compiles = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

FLAGS = (("-O1", "-DNET_POISON"), ("-O2", "-march=native"))


def network(name: str, batch: int) -> TrainableGraph:
    return load_graph(GALLERY[name].model().document, batch=batch)


@compiles
@grid(
    ("name", "least", "most"),
    some(
        [("lenet5", 1, 3), ("lstm_classifier", 1, 2), ("multi_loss", 2, 4)],
        beside=[("lenet5", 1, 5), ("transformer", 1, 3), ("lstm_classifier", 1, 4)],
    ),
)
def test_every_size_leaves_the_bits_of_the_plan_at_that_size(
    name: str, least: int, most: int, tmp_path: Path
) -> None:
    """One program takes steps of all sizes; the trainer compiles the plan at each size by itself."""
    graph = network(name, most)
    plan = planned_over(graph, least, most, target="c")
    folder = written(graph, plan, tmp_path / f"{name}-{most}")
    programs = [CProgram(folder, *flags) for flags in FLAGS]
    sizes = [*range(least, most + 1), *range(least, most + 1)]
    random.Random(name).shuffle(sizes)
    with Trainer(graph, plan, kernels="c") as trainer:
        for step, size in enumerate(sizes):
            there = graph.at(batch=size)
            batch = synthetic_batch(there, 0, step)
            expected = trainer.step(batch)
            for program in programs:
                assert program.resize(size) == 0
                assert program.step(there, batch) == expected, size
        for weight in graph.trainable:
            for program in programs:
                np.testing.assert_array_equal(program.read(plan, weight), trainer.read(weight))


@compiles
def test_sizes_that_the_plan_does_not_serve_change_nothing(tmp_path: Path) -> None:
    graph = network("lenet5", 4)
    program = CProgram(written(graph, planned_over(graph, 2, 4, target="c"), tmp_path), "-O1")
    batch = synthetic_batch(graph, 0, 0)
    expected = program.step(graph, batch)
    program.restart()
    assert [program.resize(size) for size in (0, 1, 5, 2**32 - 1)] == [8, 8, 8, 8]
    assert program.step(graph, batch) == expected
    assert program.resize(2) == 0
    program.restart()  # the largest size again
    assert program.step(graph, batch) == expected


def test_without_the_graph_the_files_are_of_the_largest_size() -> None:
    graph = network("lenet5", 4)
    header = c_training_files(planned_over(graph, 1, 4, target="c"))["net.h"].decode()
    assert "The plan serves batch 1..4, these files batch 4" in header
    assert "net_set_batch" not in header


def test_code_grows_little_with_the_range() -> None:
    graph = network("lenet5", 8)
    one = len(c_files(planned_over(graph, 8, 8, target="c"), "none", graph)["net.c"])
    all_sizes = len(c_files(planned_over(graph, 1, 8, target="c"), "none", graph)["net.c"])
    assert all_sizes <= 1.3 * one


def test_several_ranges_are_refused() -> None:
    graph = load_graph(SEQUENCES)
    ranges = (SizeRange("batch", 1, 2), SizeRange("seq", 4, 6))
    plan = plan_requested(graph, RequestedOptions(PlanOptions(target="c"), ranges=ranges))
    with pytest.raises(OptionsError, match=r"C serves one range, and the plan has batch .*, seq"):
        c_files(plan, "none", graph)


# ------------------------------------------------------------------------------------- one text for all sizes


def chosen(text: str, size: int) -> str:
    """The statements that a merged text runs at a size, with its expressions computed."""
    while (branch := re.match(r"if \(size <= (\d+)u\) \{ (.*?) \} else (.*)", text)) is not None:
        text = branch[2] if size <= int(branch[1]) else branch[3]
    text = re.sub(r"^\{ (.*) \}$", r"\1", text)

    def value(match: re.Match[str]) -> str:
        number = eval(match[2].replace("u", ""), {"size": size})  # terms of whole numbers and `size`
        return f"{number}.0f" if match[1] else f"{number}"

    return re.sub(r"(\(float\))?\(([^()]*\bsize\b[^()]*)\)", value, text).replace("u", "")


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 9), st.sampled_from(["", "u", ".0f"])),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 6),
    st.integers(2, 9),
    st.dictionaries(st.integers(1, 9), st.integers(100, 999), max_size=3),
)
def test_the_merged_text_is_each_text_at_its_size(
    terms: Sequence[tuple[int, int, str]], least: int, count: int, odd: Mapping[int, int]
) -> None:
    """Numbers that are linear in the size, but for some sizes that have another number."""
    texts = {
        size: [
            f"f(t0, 0x1p3, 1.5f, {', '.join(f'{odd.get(size, c + a * size)}{end}' for c, a, end in terms)});"
        ]
        for size in range(least, least + count)
    }
    text = merged(texts)
    for size, (expected,) in texts.items():
        assert chosen(text, size) == expected.replace("u", "")


def test_statements_of_another_form_have_a_branch() -> None:
    texts = {1: ["f(0);"], 2: ["g(4u);"], 3: ["g(6u);"], 4: ["g(8u);"]}
    assert merged(texts) == "if (size <= 1u) { f(0); } else { g((2u * size)); }"


def test_constants_are_shared_where_they_are_the_same() -> None:
    texts = {size: ["const ap_x t0 = {3, 4};", f"f(&t0, {size}u);"] for size in (1, 2, 3)}
    assert merged(texts) == "{ static const ap_x t0 = {3, 4}; f(&t0, (size)); }"
