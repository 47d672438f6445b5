"""Everything that is not checked is on the page, with the same reasons."""

from __future__ import annotations

from pathlib import Path

from solver.verify import UNCHECKED, is_unchecked

PAGE = (Path(__file__).resolve().parents[3] / "docs/explanation/proof.md").read_text()


def test_the_page_has_every_place_and_reason() -> None:
    places_by_reason: dict[str, list[str]] = {}
    for place, reason in UNCHECKED.items():
        places_by_reason.setdefault(reason, []).append(f"`{place}`")
    table = PAGE.partition("## What is not checked")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert rows == [f"| {' '.join(places)} | {reason} |" for reason, places in places_by_reason.items()]


def test_a_place_stands_for_what_is_inside_of_it_and_nothing_else() -> None:
    assert is_unchecked("options.costs.nanoseconds.fc1:forward")
    assert is_unchecked("options.tiers[*].bytes")
    assert not is_unchecked("options.tiers[*].bytes_more")
    assert not is_unchecked("options.tiers[*]")
    assert not is_unchecked("options")
    assert not is_unchecked("records[paging].moved_in")
