"""Exporters are found by name and by the name of a file."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver import pipeline
from solver.errors import OptionsError
from solver.exporters import EXPORTERS, exporter_named, exporter_of_file
from tests.support.entry_points import small_deployment
from tests.support.graphs import chain


def test_names() -> None:
    assert [*EXPORTERS] == [
        "c-header", "report", "perfetto", "memory-viz", "offsets-csv", "offsets-json", "minimalloc",
    ]  # fmt: skip
    assert all(exporter_named(name).name == name for name in EXPORTERS)


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.h", "c-header"),
        ("A.HTML", "report"),
        ("a.trace.json", "perfetto"),
        ("a.json", "offsets-json"),
        ("a.minimalloc.csv", "minimalloc"),
    ],
)
def test_by_the_name_of_a_file(file: str, name: str) -> None:
    assert exporter_of_file(file).name == name


def test_refusals_list_what_there_is() -> None:
    with pytest.raises(OptionsError, match=r"'a\.elf' does not say.* \.h \(c-header\)"):
        exporter_of_file("a.elf")
    with pytest.raises(OptionsError, match=r"no exporter 'elf'.*c-header, report"):
        exporter_named("elf")


@pytest.mark.parametrize("name", EXPORTERS)
def test_plans_without_steps_can_be_written(name: str) -> None:
    """A document may hold next to nothing."""
    made = pipeline.plan(chain((1, 1), 1))
    program = replace(
        made.program, values=(), operations=(), steps=(), entry=(), exit=(), aliases=(), initial={}
    )
    empty = replace(made, program=program, offsets=(), sizes=(0,), holds={}, records=())
    assert EXPORTERS[name].dump(empty)
    assert EXPORTERS[name].dump(made)


@pytest.mark.parametrize("name", EXPORTERS)
def test_deployments_can_be_written(name: str) -> None:
    """Equal deployments give equal bytes, and those of one entry point are others."""
    deployment = small_deployment()
    whole = EXPORTERS[name].dump(deployment)
    assert whole == EXPORTERS[name].dump(replace(deployment))
    assert whole != EXPORTERS[name].dump(deployment["infer"].plan)
