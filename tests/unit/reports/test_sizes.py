"""The report on the code counts what it says that it counts."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from tests.reports.sizes import Function, percentile, read_module, report

SOURCE = '''"""A module."""

# A comment.
def _once() -> int:
    return 1  # and one more, "# no third one"


def twice() -> int:
    """Documented."""

    return _once()
'''


def test_a_module_is_read(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(SOURCE, encoding="utf-8")
    module = read_module(path)
    assert (module.lines, module.filled, module.comments) == (11, 7, 2)
    assert module.functions == (Function("_once", 4, 2, 1), Function("twice", 8, 4, 0))
    assert [function.private for function in module.functions] == [True, False]


def test_percentile() -> None:
    assert percentile(list(range(1, 101)), 95) == 95
    assert percentile([7], 95) == 7
    assert percentile([], 95) == 0


def test_every_part_has_a_row(tmp_path: Path) -> None:
    for name in (
        "arenaplan/a.py",
        "clients/a.py",
        "service/cli/a.py",
        "solver/a.py",
        "solver/layout/a.py",
        "tests/unit/layout/a.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE, encoding="utf-8")
    console = Console(width=150, file=io.StringIO(), record=True)
    report(console, tmp_path, top=1)
    text = console.export_text()
    for row in ("clients", "service", "solver/layout", "solver/*.py"):
        assert f"│ {row} " in text
    assert "4 arenaplan/a.py:8 twice" in text
    assert "2 arenaplan/a.py:4 _once" in text


def test_vague_wordings_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    source = '"""What it is."""\nfound = 1\n\ndef f(given):\n    """So many, so many."""\n'
    path.write_text(source, encoding="utf-8")
    counts = read_module(path).wordings
    counted = {kind: count for kind, count in counts.items() if count}
    assert counted == {"docstrings: What ...": 1, "so many": 1, "found": 1, "given": 1}
