"""The example that shows every public function."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import arenaplan
from examples import every_function

#: Names that the example needs no line for: a type that functions return or take, named in no program.
TYPES = {"PlanOptions", "InternalError", "PlanError", "ProblemError"}


def test_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    every_function.main()
    printed = capsys.readouterr().out
    assert "<Plan of 'mnist': 11,150,528 bytes in one arena" in printed
    assert printed.count("True") == 3  # a plan that was read again, and two validations


def test_it_has_every_public_name() -> None:
    tree = ast.parse(inspect.getsource(every_function))
    shown = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    shown |= {f"arenaplan.{name}" for name in ("layers", "ops")}  # imported by themselves
    for owner in ("", "torch.", "jax.", "onnx.", "executorch."):
        module = arenaplan if not owner else getattr(arenaplan, owner[:-1])
        names = {f"arenaplan.{owner}{name}" for name in module.__all__ if name not in TYPES}
        assert {n for n in names if not any(one == n or one.startswith(f"{n}.") for one in shown)} == set()
    for module in (arenaplan.layers, arenaplan.ops):
        last = module.__name__.rpartition(".")[2]
        assert {f"{last}.{name}" for name in module.__all__} - shown == set()


def test_its_files_are_there() -> None:
    assert (Path(every_function.__file__).parent / "mnist.json").exists()
