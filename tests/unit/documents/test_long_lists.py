"""Lists beyond their limit are refused before their members are compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from solver.documents import SCHEMAS, load_buffers, load_options
from solver.errors import ArenaplanError

MOST = 1024

LISTS: Mapping[str, Any] = {
    "tiers": [f"t{k}=1KiB,bandwidth=1GB/s" for k in range(MOST + 1)],
    "memories": [f"m{k}=1KiB" for k in range(MOST + 1)],
    "reserved": [f"{128 * k}..{128 * k + 64}" for k in range(MOST + 1)],
    "dims": {f"d{k}": 2 for k in range(MOST + 1)},
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_options_has_a_limit(name: str) -> None:
    with pytest.raises(ArenaplanError) as caught:
        load_options({name: LISTS[name]})
    assert caught.value.path == (name,)
    assert f"at most {MOST}" in caught.value.remedy
    assert str(MOST) in str(SCHEMAS["options"]["properties"][name])
    entries = LISTS[name]
    rest = dict(list(entries.items())[1:]) if isinstance(entries, dict) else entries[1:]
    load_options({name: rest})


def test_reserved_ranges_of_buffers_have_the_same_limit() -> None:
    ranges = [{"low": 128 * k, "high": 128 * k + 64} for k in range(MOST + 1)]
    document = {"format": "arenaplan.buffers", "version": 1, "buffers": [], "reserved": ranges}
    with pytest.raises(ArenaplanError) as caught:
        load_buffers(document)
    assert caught.value.path == ("reserved",)
