"""The page in a browser: clicked through, with pointer and keys, and looked at."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from solver import pipeline
from solver.exporters.html import dump_report
from solver.plan import Plan, PlanOptions
from solver.reports.comparison import deployment_difference
from tests.support.browser import Browser, Page, chromium, running_browser
from tests.support.entry_points import small_deployment, trained_and_used
from tests.support.graphs import chain, convolutional
from tests.unit.reports.test_arenas import SMALL, A, arena, buffer, plan

pytestmark = pytest.mark.skipif(
    chromium() is None, reason="pages are tested in Chromium, which is not installed here"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def old() -> Plan:
    return pipeline.plan(convolutional(1))


@pytest.fixture(scope="module")
def new() -> Plan:
    return pipeline.plan(convolutional(1), PlanOptions(in_place=True, alignment=1024))


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page with the small plan, which must not complain about anything, nor ask for anything."""
    page = shown(browser, tmp_path, dump_report(SMALL))
    yield page
    assert page.complaints() == []


def shown(browser: Browser, folder: Path, text: bytes) -> Page:
    file = folder / "plan.html"
    file.write_bytes(text)
    page = browser.page()
    page.open(file.as_uri())
    return page


#: A place of the small plan in the picture, in shares of the canvas: level 0 to 4, offset 0 to 12.36.
def place(page: Page, level: float, offset: float) -> tuple[float, float]:
    width, height = map(float, page.run("[arena.clientWidth, arena.clientHeight]"))
    x = (74 + level / 4 * (width - 86)) / width
    y = (10 + (1 - offset / 12.36) * (height - 36)) / height
    return x, y


def pixel(page: Page, x: float, y: float) -> tuple[int, ...]:
    found = page.run(
        "(() => { const copy = document.createElement('canvas').getContext('2d', {willReadFrequently: true});"
        f" copy.drawImage(arena, -{x} * arena.width, -{y} * arena.height);"
        " return [...copy.getImageData(0, 0, 1, 1).data]; })()"
    )
    return tuple(found[:3])


def test_a_click_names_a_buffer(opened: Page) -> None:
    opened.click("#arena", *place(opened, 1.5, 5))
    assert opened.text("#chosen-title").strip() == "a"
    about = opened.text("#chosen")
    assert "activation" in about
    assert "4 to 8" in about
    assert "steps 0 to 1 (2)" in about
    opened.click("#arena", *place(opened, 3.5, 11))
    assert opened.text("#chosen-title") == "Nothing chosen"


def test_hovering_says_what_is_there(opened: Page) -> None:
    opened.mouse("mouseMoved", opened.point("#arena", *place(opened, 3.2, 5)))
    opened.settle()
    assert opened.text("#tip").startswith("d\nderivative")
    opened.mouse("mouseMoved", opened.point("#arena", *place(opened, 3.2, 10)))
    opened.settle()
    assert opened.run("document.getElementById('tip').hidden") is True


def test_the_picture_shows_the_buffers_where_they_are(opened: Page) -> None:
    """Parameters are blue, activations green, derivatives orange, and free memory is none of them."""
    at = {
        name: pixel(opened, *place(opened, level, offset))
        for name, level, offset in [("w", 0.3, 1), ("a", 0.3, 5), ("d", 3.3, 5), ("free", 3.4, 10)]
    }
    assert at["w"] == (11, 107, 176)
    assert at["a"] == (31, 157, 120)
    assert at["d"] == (232, 160, 32)
    assert at["free"] == (241, 243, 245)


def test_zooming_and_moving(opened: Page) -> None:
    before = pixel(opened, 0.75, 0.5)
    opened.click("#arena", *place(opened, 0.5, 5))
    for _ in range(3):
        opened.press("+")
    assert pixel(opened, 0.75, 0.5) != before  # the activation fills the picture
    for _ in range(6):
        opened.press("ArrowRight")
    assert pixel(opened, 0.75, 0.5) == (232, 160, 32)
    opened.press("0")
    assert pixel(opened, 0.75, 0.5) == before
    start = opened.point("#arena", *place(opened, 2, 5))
    opened.press("+")
    opened.drag(start, (start[0] + 4000, start[1]))
    assert opened.text("#chosen-title").strip() == "a"  # a drag is no click


def test_steps(opened: Page) -> None:
    assert opened.text("#step-name") == "step 1 of 3: s1"
    opened.press("]")
    assert opened.text("#step-name") == "step 2 of 3: s2"
    opened.press("[")
    opened.press("[")
    assert opened.text("#step-name") == "step 0 of 3: s0"
    opened.press("p")
    assert opened.text("#step-name") == "step 1 of 3: s1"
    assert opened.text("#live-sum") == "10 B in 3 buffers, 83 % of arena"


def test_the_table_is_sorted_by_any_column(opened: Page) -> None:
    def names() -> list[str]:
        found = opened.run("[...document.querySelectorAll('#live-table tbody .name')].map(e => e.innerText)")
        return [str(name) for name in found]

    assert names() == ["w", "a", "b"]  # the largest first
    opened.click("#live-table th:nth-child(1) button")
    assert names() == ["a", "b", "w"]
    opened.click("#live-table th:nth-child(1) button")
    assert names() == ["w", "b", "a"]
    opened.click("#live-table th:nth-child(6) button")
    assert names() == ["b", "a", "w"]
    assert opened.run("document.querySelector('#live-table th:nth-child(6)').ariaSort") == "descending"


def test_buffers_can_be_walked_through_by_keys(opened: Page) -> None:
    found = []
    for _ in range(4):
        opened.press("n")
        found.append(opened.text("#chosen-title").strip())
    assert found == ["w", "a", "b", "w"]
    opened.press("Escape")
    assert opened.text("#chosen-title") == "Nothing chosen"


def test_searching(opened: Page) -> None:
    opened.press("/")
    opened.write("d")
    assert opened.text("#found").split("\n")[0] == "1 buffer, 4 B"
    opened.press("Enter")
    assert opened.text("#chosen-title").strip() == "d"
    assert pixel(opened, *place(opened, 0.3, 1)) != (11, 107, 176)  # what does not match is faint
    opened.press("Escape")
    assert pixel(opened, *place(opened, 0.3, 1)) == (11, 107, 176)


def test_the_peak_is_explained(opened: Page) -> None:
    assert "Most is live at step 1, s1: 10 B in 3 buffers." in opened.text("#peak-lead")
    assert "The arena is 2 B larger" in opened.text("#peak-lead")
    assert opened.text("#peak-kinds").split("\n")[:2] == ["activation", "6 B · 60 %"]


def test_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    """As the reader prefers, and the other way round with the button; contrast is there in both."""
    file = tmp_path / "plan.html"
    file.write_bytes(dump_report(SMALL))
    page = browser.page()
    backgrounds = []
    for scheme in ("dark", "light"):
        page.media(scheme=scheme)
        page.open(file.as_uri())
        backgrounds.append(page.run("getComputedStyle(document.body).backgroundColor"))
    page.click("#theme")
    backgrounds.append(page.run("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds[0] == backgrounds[2] != backgrounds[1]
    assert page.complaints() == []


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser: Browser, tmp_path: Path, scheme: str) -> None:
    """At least 4.5 to 1, which WCAG 2.2 asks of body text."""
    page = browser.page()
    page.media(scheme=scheme)
    file = tmp_path / "plan.html"
    file.write_bytes(dump_report(SMALL))
    page.open(file.as_uri())
    read = "getComputedStyle(document.documentElement).getPropertyValue('{}').trim()"
    for ink in ("--ink", "--quiet", "--good", "--bad", "--less", "--more"):
        for paper in ("--page", "--card"):
            light, dark = sorted((luminance(page.run(read.format(x))) for x in (ink, paper)), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, (scheme, ink, paper)


def test_everything_has_a_name(opened: Page) -> None:
    """Buttons, fields and pictures say what they are to those who cannot see them."""
    unnamed = opened.run(
        "[...document.querySelectorAll('button, input, select, canvas, table')].filter(e =>"
        " !(e.innerText || e.ariaLabel || e.getAttribute('aria-labelledby') || e.labels?.length)).length"
    )
    assert unnamed == 0
    assert opened.run("document.documentElement.lang") == "en"
    assert opened.run("document.querySelectorAll('h1').length") == 1


@pytest.mark.parametrize("width", [360, 768, 1920])
def test_no_width_is_scrolled_sideways(browser: Browser, tmp_path: Path, new: Plan, width: int) -> None:
    page = shown(browser, tmp_path, dump_report(new))
    page.resize(width, 900)
    page.settle()
    assert page.run("document.documentElement.scrollWidth") <= width


def test_before_and_after(browser: Browser, tmp_path: Path, old: Plan, new: Plan) -> None:
    page = shown(browser, tmp_path, dump_report(new, old))
    assert f"{old.arena_bytes:,} bytes before, {new.arena_bytes:,} now" in page.text("#change-lead")
    assert "in place\nno → yes" in page.text("#change-options")
    page.click("#change-by button:nth-child(2)")
    assert page.text("#change-table thead").startswith("kind")
    assert page.text("#figures").split("\n")[2] == f"{new.arena_bytes:,} bytes"
    page.press("o")
    assert page.text("#figures").split("\n")[2] == f"{old.arena_bytes:,} bytes"
    assert page.complaints() == []


def test_several_memories(browser: Browser, tmp_path: Path) -> None:
    both = plan(
        4,
        arena(8, buffer("a", A, 0, 8, 0, 4), name="sram"),
        arena(4, buffer("f", A, 0, 4, 1, 2), name="flash"),
    )
    page = shown(browser, tmp_path, dump_report(both))
    assert page.text("#spaces").split("\n") == ["sram · 8 B", "flash · 4 B"]
    page.click("#spaces button:nth-child(2)")
    assert "Most is live at step 1" in page.text("#peak-lead")
    assert page.complaints() == []


def test_nothing_to_show(browser: Browser, tmp_path: Path) -> None:
    page = shown(browser, tmp_path, dump_report(plan(0, arena(0))))
    assert page.text("#peak-lead") == "Nothing lives in this memory."
    assert page.complaints() == []
    page = shown(browser, tmp_path, dump_report(plan(0)))
    assert page.text("#broken") == "This plan cannot be drawn: The plan has no memory to show."


@pytest.mark.fuzz
def test_very_many_buffers(browser: Browser, tmp_path: Path) -> None:
    """All of them are drawn, found and listed: 100,000 of them where there is time for that."""
    rows, long = 100, 1000 if os.environ.get("ARENAPLAN_FUZZ") else 80
    last = rows * long - 1
    buffers = [buffer(f"b{k}", A, (k % rows) * 64, 64, k // rows, k // rows + 1) for k in range(rows * long)]
    page = shown(browser, tmp_path, dump_report(plan(long, arena(64 * rows, *buffers))))
    assert f"{rows * long:,}" in page.text("#figures")
    page.press("/")
    page.write(f"b{last}")
    page.press("Enter")
    assert page.text("#chosen-title").strip() == f"b{last}"
    page.press("Enter")
    assert f"b{last}" in page.text("#live-table tbody tr.chosen")
    assert page.complaints() == []


def test_paper(browser: Browser, tmp_path: Path) -> None:
    """A dark page prints on white, without its controls."""
    page = shown(browser, tmp_path, dump_report(SMALL))
    page.media(scheme="dark", kind="print")
    page.run("dispatchEvent(new Event('beforeprint'))")
    page.settle()
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.run("getComputedStyle(document.querySelector('.controls')).display") == "none"
    picture = tmp_path / "paper.png"
    page.screenshot(picture)
    assert corner(picture) == (255, 255, 255)


def corner(path: Path) -> tuple[int, ...]:
    """The first pixel of a PNG: that of the first row, which no filter changes in the first pixel."""
    data, at, packed = path.read_bytes(), 8, b""
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        packed += data[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompress(packed)[1:4])


def test_entry_points(browser: Browser, tmp_path: Path) -> None:
    """A table of them; a button, a name in the table and a key show the map of each."""
    deployment = small_deployment()
    page = shown(browser, tmp_path, dump_report(deployment))
    assert page.run("[...document.querySelectorAll('#versions button')].map(e => e.textContent)") == [
        "All", "train", "infer", "evaluate",
    ]  # fmt: skip
    rows = page.text("#entry-points-table tbody").splitlines()
    assert len(rows) == 3
    assert rows[0].startswith("train decides the arena")
    assert f"{deployment['infer'].plan.arena_bytes:,}" in page.text("#entry-points-table")
    assert "persistent" in page.text("#legend")
    steps = [len(e.plan.steps) for e in deployment.entry_points]
    assert str(sum(steps)) in page.text("#figures")
    # Persistent values lie at the bottom of all maps, in one colour; the chosen step alone is shaded.
    for which in range(4):
        page.click(f"#versions button:nth-child({which + 1})")
        assert page.run(f"document.querySelectorAll('#versions button')[{which}].ariaPressed") == "true"
        width = float(page.run("arena.clientWidth"))
        first, last = (pixel(page, x / width, 400 / 430) for x in (80, width - 16))
        assert (0x3D, 0x5A, 0x80) in (first, last)
    assert str(steps[2]) in page.text("#figures")
    page.click("#entry-points-table tbody tr:nth-child(2) button")
    assert page.run("document.querySelectorAll('#versions button')[2].ariaPressed") == "true"
    page.press("o")
    assert page.run("document.querySelectorAll('#versions button')[3].ariaPressed") == "true"
    page.press("o")
    assert page.run("document.querySelectorAll('#versions button')[0].ariaPressed") == "true"
    page.resize(360, 900)
    page.settle()
    assert page.run("document.documentElement.scrollWidth") <= 360
    assert page.complaints() == []


def test_a_change_of_entry_points(browser: Browser, tmp_path: Path) -> None:
    old, new = small_deployment(), trained_and_used(chain((8, 3, 4), 6, optimizer="Adam"), "train", "infer")
    page = shown(browser, tmp_path, dump_report(new, old))
    text = page.text("#change-entry-points")
    assert "gone" in text
    moves = deployment_difference(old, new).moves
    assert f"{len(moves)} persistent values have another place" in text.lower()
    assert moves[0].name in text
    page.click("#versions button:nth-child(3)")
    assert f"{new['train'].plan.arena_bytes:,} bytes" in page.text("#figures")
    assert page.complaints() == []
