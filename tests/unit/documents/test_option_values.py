"""Sizes, tiers and costs in options: as text and as objects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.documents import (
    dump_costs,
    dump_options,
    load_costs,
    load_layout_options,
    load_options,
    read_size,
)
from solver.documents.options import read_tier
from solver.errors import ArenaplanError, DocumentError, OptionsError
from solver.plan import Costs, PlanOptions, RequestedOptions
from solver.program import Tier

UNITS = {
    "": 1, "B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("65,536", 65536),
        ("580,512,832", 580_512_832),
        ("1,024 KiB", 2**20),
        ("24MiB", 24 * 2**20),
        ("24 mib", 24 * 2**20),
        ("1.5GB", 1_500_000_000),
        ("0.29GB", 290_000_000),
        ("1k", 1000),
        (" 7 KB ", 7000),
        ("0", 0),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert read_size(text) == size
    requested = load_options(json.dumps({"capacity": text, "scratch_budget": text}).encode())
    assert requested.options.capacity == size
    assert load_layout_options({"capacity": text}).capacity == size


@pytest.mark.parametrize(
    "text",
    [
        "", "-5", "+5", "1e3", "0.5", "1.0001KiB", "20,97", "2097,520", "1,5MB", ",512", "5 apples", "12MiB!",
        "1bit", "1_0", "MiB", "\u0661", "1.", ".5MB", "nan", "inf", "5ib", "1MiB 2",
    ],
)  # fmt: skip
def test_what_is_not_a_size(text: str) -> None:
    with pytest.raises(ValueError, match="give bytes, or a number with kB"):
        read_size(text)
    for field in ("capacity", "scratch_budget"):
        with pytest.raises(DocumentError, match="bytes, or a number with kB") as caught:
            load_options({field: text})
        assert caught.value.path == (field,)


@pytest.mark.parametrize("text", ["9223372036854775808", "8EiB", "99999999999GB"])
def test_sizes_that_no_offset_reaches(text: str) -> None:
    with pytest.raises(ValueError, match=r"give at most 9,223,372,036,854,775,807 bytes"):
        read_size(text)
    with pytest.raises(DocumentError, match="at most 9,223,372,036,854,775,807 bytes") as caught:
        load_options({"capacity": text})
    assert caught.value.path == ("capacity",)


@pytest.mark.parametrize("value", [1.5, True, [1], 1.0])
def test_only_text_is_converted(value: object) -> None:
    with pytest.raises(DocumentError):
        load_options({"capacity": value})


@given(st.integers(0, 10**6), st.sampled_from(sorted(UNITS)))
def test_units(number: int, unit: str) -> None:
    assert read_size(f"{number}{unit}") == read_size(f"{number} {unit.lower()}") == number * UNITS[unit]


# ------------------------------------------------------------------------------------------------------ tiers


@pytest.mark.parametrize(
    ("text", "tier"),
    [
        ("sram=512KiB", Tier("sram", 2**19)),
        ("sram=512KiB,bandwidth=2GB/s", Tier("sram", 2**19, 2 * 10**9, 2 * 10**9)),
        ("flash=1GiB,write=20MB/s,read=45MB/s", Tier("flash", 2**30, 45_000_000, 20_000_000)),
        ("sram=524,288,read=45,000kB/s,latency=1us", Tier("sram", 2**19, 45_000_000, 0, 1000)),
        ("flash = 4096".replace(" ", "") + ", latency=100us", Tier("flash", 4096, latency=100_000)),
        ("a=1,latency=1.5ms", Tier("a", 1, latency=1_500_000)),
        ("a=1,latency=2s", Tier("a", 1, latency=2 * 10**9)),
        ("a=1,latency=7ns,bandwidth=1kB/s", Tier("a", 1, 1000, 1000, 7)),
    ],
)
def test_text(text: str, tier: Tier) -> None:
    assert Tier(**read_tier(text)) == tier
    assert load_options({"tiers": [text]}).options.tiers == (tier,)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "NAME=SIZE"),
        ("sram", "NAME=SIZE"),
        ("=4096", "NAME=SIZE"),
        ("sram=many", "bytes, or a number"),
        ("sram=4096,52", "bytes, or a number"),
        ("sram=4096,speed=1", "is not understood"),
        ("sram=4096,read=1MB", "read=1MB is no bandwidth"),
        ("sram=4096,read=fast/s", "read=fast/s is no bandwidth"),
        ("sram=4096,bandwidth=0MB/s", "bandwidth=0MB/s is no bandwidth"),
        ("sram=4096,write=0B/s", "write=0B/s is no bandwidth"),
        ("sram=4096,bandwidth=1MB/s,read=1MB/s", "is not understood"),
        ("sram=4096,read=1MB/s,read=1MB/s", "is not understood"),
        ("sram=4096,latency=100", "latency= as 100us"),
        ("sram=4096,latency=0.5ns", "latency= as 100us"),
    ],
)
def test_what_is_not_understood_is_named(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        read_tier(text)
    with pytest.raises(DocumentError) as caught:
        load_options({"tiers": [text]})
    assert caught.value.path == ("tiers", 0)
    assert words in str(caught.value)


def test_objects_are_what_is_written() -> None:
    options = PlanOptions(tiers=(Tier("a", 4096), Tier("b", 2**20, 10, 20, 30)))
    text = dump_options(options)
    assert b'{"name":"b","bytes":1048576,"read":10,"write":20,"latency":30}' in text
    assert load_options(text).options == options


@pytest.mark.parametrize(
    "given",
    [
        {"name": "a"},
        {"name": "a", "bytes": 0},
        {"name": "a", "bytes": -1},
        {"name": "a", "bytes": 1, "read": -1},
        {"name": "a", "bytes": 1, "energy": 1},
        {"name": "a", "bytes": "1MB"},
        7,
    ],
)
def test_objects_are_strict(given: Any) -> None:
    with pytest.raises((DocumentError, OptionsError)) as caught:
        load_options({"tiers": [given]})
    assert caught.value.path[:2] == ("tiers", 0)


# ------------------------------------------------------------------------------------------------------ costs


COSTS = Costs((("fc1:forward", 5_000), ("fc1", 0)), "measured on a board")
DOCUMENT: dict[str, Any] = {
    "format": "arenaplan.costs",
    "version": 1,
    "about": "measured on a board",
    "nanoseconds": {"fc1:forward": 5_000, "fc1": 0},
}


def test_a_document_and_back() -> None:
    assert json.loads(dump_costs(COSTS)) == DOCUMENT
    assert load_costs(dump_costs(COSTS, indent=2)) == COSTS
    assert load_costs({**DOCUMENT, "nanoseconds": {}}) == Costs((), "measured on a board")


def test_options_take_a_document_or_its_fields() -> None:
    options = RequestedOptions(PlanOptions(costs=COSTS))
    plain = {name: DOCUMENT[name] for name in ("about", "nanoseconds")}
    assert load_options({"costs": DOCUMENT}) == load_options({"costs": plain}) == options
    assert load_options(dump_options(options)) == options
    assert load_options({"costs": "roofline"}) == load_options({"costs": None}) == RequestedOptions()
    assert "costs" not in json.loads(dump_options(PlanOptions()))


def test_measuring_is_refused_with_the_reason() -> None:
    with pytest.raises(DocumentError, match="measured where training runs") as caught:
        load_options({"costs": "measured"})
    assert caught.value.path == ("costs",)
    assert "arenaplan costs" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"nanoseconds": {"fc1": -1}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": 1.5}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": True}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": "7"}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": None}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": {"fc1": 2**63}}, ("nanoseconds", "fc1")),
        ({"nanoseconds": [1]}, ("nanoseconds",)),
        ({"nanoseconds": None}, ("nanoseconds",)),
        ({"seconds": {}}, ("seconds",)),
    ],
)
def test_what_is_not_a_cost_is_named(change: dict[str, Any], place: tuple[str, ...]) -> None:
    with pytest.raises(DocumentError) as caught:
        load_costs({**DOCUMENT, **change})
    assert caught.value.path == place
    with pytest.raises(ArenaplanError) as found:
        load_options({"costs": {**DOCUMENT, **change}})
    assert found.value.path == ("costs", *place)


def test_numbers_that_are_none_in_json() -> None:
    with pytest.raises(DocumentError, match="NaN is not a JSON number") as caught:
        load_costs(b'{"format":"arenaplan.costs","version":1,"nanoseconds":{"fc1":NaN}}')
    assert caught.value.path == ("nanoseconds", "fc1")
