"""One mistake in a file, CSV or JSON: exit code 2 (3 for the capacity), one line with row and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from service.cli.commands import app
from service.cli.console import Exit

#: Name of the mistake: extra columns, the third line of the file, the second buffer of the document, words.
MISTAKES: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "not whole": ("", "b,0,4,4.5", {"size": 4.5}, "4.5"),
    "negative": ("", "b,0,4,-8", {"size": -8}, "-8"),
    "end before start": ("", "b,4,2,8", {"start": 4, "end": 2}, "[4, 2)"),
    "end at start": ("", "b,4,4,8", {"start": 4, "end": 4}, "[4, 4)"),
    "duplicate id": ("", "a,0,4,8", {"id": "a"}, "'a'"),
    "pin conflict": ("alignment,offset", "b,0,4,8,1,4", {"offset": 4}, "pinned where buffer 'a' is pinned"),
    "pin misaligned": ("alignment,offset", "b,0,4,8,16,24", {"alignment": 16, "offset": 24}, "24"),
}


def failed(path: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Exit code, and the one line on standard error."""
    with pytest.raises(SystemExit) as caught:
        app(["solve", str(path), "-o", str(path.with_suffix(".out")), *options])
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == ""
    assert not path.with_suffix(".out").exists()
    assert isinstance(caught.value.code, int)
    return caught.value.code, line


@pytest.mark.parametrize("name", MISTAKES)
def test_in_csv(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    columns, row, _, words = MISTAKES[name]
    header = ",".join(filter(None, ["id,lower,upper,size", columns]))
    good = "a,0,4,8" + (",1,0" if columns else "")
    path = tmp_path / "p.csv"
    path.write_text(f"{header}\n{good}\n{row}\n", encoding="utf-8")
    code, line = failed(path, capsys)
    assert code == Exit.USAGE
    assert line.startswith(f"arenaplan: {path}#/rows/1/")
    assert "Line 3: " in line
    assert words in line


@pytest.mark.parametrize("name", MISTAKES)
def test_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    _, _, changes, words = MISTAKES[name]
    rows = [{"id": name, "size": 8, "start": 0, "end": 4} for name in "ab"]
    rows[0]["offset"] = 0
    document = {"format": "arenaplan.buffers", "version": 1, "buffers": [rows[0], rows[1] | changes]}
    path = tmp_path / "p.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    code, line = failed(path, capsys)
    assert code == Exit.USAGE
    assert line.startswith(f"arenaplan: {path}#/buffers/1/")
    assert words in line


@pytest.mark.parametrize("suffix", [".csv", ".json"])
def test_a_size_that_does_not_fit_the_capacity(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    path = tmp_path / f"p{suffix}"
    rows = [{"id": "a", "size": 4, "start": 0, "end": 2}, {"id": "b", "size": 900, "start": 3, "end": 4}]
    document = {"format": "arenaplan.buffers", "version": 1, "buffers": rows}
    text = "id,lower,upper,size\na,0,2,4\nb,3,4,900\n" if suffix == ".csv" else json.dumps(document)
    path.write_text(text, encoding="utf-8")
    code, line = failed(path, capsys, "--capacity", "500")
    assert code == Exit.TOO_LARGE
    assert "Buffer 'b' (row 2) alone has 900 bytes; the capacity is 500." in line
