"""The mutation report in a tree of its own: what tests a module, what is noticed, what is printed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.reports.equivalents import EQUIVALENT
from tests.reports.mutants import mutants
from tests.reports.mutation import ROOT, Outcome, Tree, importers, judge, main, sample

MODULE = "solver/part/least.py"
SOURCE = "def least(a: int, b: int) -> int:\n    return a if a < b else b\n"


def asserting(module: str, fact: str) -> str:
    return f"from {module} import least\n\ndef test_it():\n    assert {fact}\n"


FILES = {
    "solver/__init__.py": "",
    "solver/part/__init__.py": "from solver.part.least import least\n",
    MODULE: SOURCE,
    "solver/other.py": "x = 1 < 2\n",
    "tests/unit/part/test_all.py": asserting("solver.part", "least(1, 2) == 1"),
    "tests/unit/part/test_far.py": "import solver.other\n\ndef test_nothing(): pass\n",
    "tests/unit/part/test_least.py": asserting("solver.part.least", "least(2, 2) == 2"),
    "tests/integration/test_least.py": "from solver.part.least import least\n",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the small tree needs none, and starts sooner
    for name, text in FILES.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "tree"


def test_a_module_is_tested_by_what_imports_it_and_by_the_folder_of_its_package(root: Path) -> None:
    """Tests that import the module come first; a package's face hides modules that its tests do test."""
    least, every, far = (f"tests/unit/part/test_{name}.py" for name in ("least", "all", "far"))
    face, other = "solver/part/__init__.py", "solver/other.py"
    assert importers(root, [MODULE, face, other]) == {
        MODULE: ((least,), (every, far)),
        face: ((every, far, least),),
        other: ((far,),),
    }


def test_a_sample_is_the_same_for_the_same_seed(root: Path) -> None:
    every = sample(root, ["solver"], None, 0)
    assert [path for path, _ in every] == ["solver/other.py"] * 4 + [MODULE] * 2
    assert sample(root, ["solver"], 3, 1) == sample(root, ["solver"], 3, 1)
    assert [one for one in every if one in sample(root, ["solver"], 3, 1)] == sample(root, ["solver"], 3, 1)
    assert sample(root, [MODULE, "solver/part"], 99, 1) == every[4:]
    shared = [path for path, _ in sample(root, [MODULE, "solver/other.py"], 4, 1)]
    assert shared == [MODULE] * 2 + ["solver/other.py"] * 2, "half of the sample each"
    assert len(sample(root, [MODULE, "solver/other.py"], 5, 1)) == 5, "what one lacks the other has"
    with pytest.raises(FileNotFoundError, match="solver/nowhere is not there"):
        sample(root, ["solver/nowhere"], 3, 1)


def test_without_tests_there_is_nothing_to_say(root: Path, tmp_path: Path) -> None:
    (result,) = judge([Tree(tmp_path)], sample(root, [MODULE], 1, 0), {MODULE: ()})
    assert (result.outcome, result.detected) == (Outcome.UNTESTED, False)


def test_what_does_not_end_is_stopped(root: Path, tmp_path: Path) -> None:
    (root / "tests/unit/part/test_least.py").write_text(
        "def test_it():\n    while True: pass\n", encoding="utf-8"
    )
    tree = Tree.copy(root, tmp_path / "copy")
    assert tree.run(("tests/unit/part/test_least.py",), 0.5) is Outcome.ENDLESS


def test_tests_that_fail_anyway_are_an_error(root: Path, tmp_path: Path) -> None:
    (root / "tests/unit/part/test_least.py").write_text("def test_it(): assert False\n", encoding="utf-8")
    tree = Tree.copy(root, tmp_path / "copy")
    with pytest.raises(RuntimeError, match="fail without a change"):
        judge([tree], sample(root, [MODULE], None, 0), {MODULE: [["tests/unit/part/test_least.py"]]})


def test_the_report_names_survivors(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``<=`` gives the same here, ``>=`` does not."""
    main([MODULE, "--sample", "0", "--jobs", "1"], root)
    said = capsys.readouterr()
    assert "solver/part/least.py:2 survived" in said.out
    assert "+    return a if a <= b else b" in said.out
    assert "50.0%" in said.out
    assert "solver/part/least.py:2 failed" in said.err
    assert (root / MODULE).read_text(encoding="utf-8") == SOURCE


def test_a_run_goes_on_from_its_record(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Noticed changes are not tried again; survivors are, since a test may have been added."""
    arguments = [MODULE, "--sample", "0", "--jobs", "1", "--record", str(tmp_path / "record.jsonl")]
    main(arguments, root)
    assert capsys.readouterr().err.count("solver/part/least.py:2 ") == 2
    (root / "tests/unit/part/test_least.py").write_text(
        asserting("solver.part.least", "least(True, 1) is 1"), encoding="utf-8"
    )
    main(arguments, root)
    again = capsys.readouterr()
    assert again.err == "solver/part/least.py:2 failed at stage 1\n"
    assert "100.0%" in again.out


def test_listed_equivalents_are_counted_apart(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    change = ("return a if a < b else b", "return a if a <= b else b")
    monkeypatch.setitem(EQUIVALENT, MODULE, {change: "equal numbers are the same"})
    main([MODULE, "--sample", "0", "--jobs", "1"], root)
    printed = capsys.readouterr()
    assert printed.err.count("solver/part/least.py:2 failed") == 1
    assert "survived" not in printed.err
    assert "100.0%" in printed.out


@pytest.mark.parametrize("path", EQUIVALENT)
def test_every_listed_equivalent_is_one_mutant_of_its_module(path: str) -> None:
    """A line that occurs twice would hide a mutant whose reason nobody has written down."""
    changes = Counter(mutant.change for mutant in mutants((ROOT / path).read_text(encoding="utf-8")))
    assert {change: changes[change] for change in EQUIVALENT[path]} == dict.fromkeys(EQUIVALENT[path], 1)


def test_a_wrong_path_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["solver/nowhere"], root)
    assert "solver/nowhere is not there" in capsys.readouterr().err
