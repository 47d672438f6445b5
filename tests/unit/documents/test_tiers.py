"""Tiers as text and as objects in options."""

from __future__ import annotations

from typing import Any

import pytest

from solver.documents import dump_options, load_options
from solver.documents.options import read_tier
from solver.errors import DocumentError, OptionsError
from solver.plan import PlanOptions
from solver.program import Tier


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
