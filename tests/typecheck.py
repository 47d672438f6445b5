"""Run mypy --strict and pyright on the programs that users copy, and on lines that are wrong: `./run lint`.

    python -m tests.typecheck

Succeeds if README's example and examples/every_function.py pass, and if both checkers report every line of
`WRONG`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.examples_in_pages import blocks

ROOT: Final = Path(__file__).resolve().parents[1]
BIN: Final = Path(sys.executable).parent

CHECKERS: Final[Mapping[str, Sequence[str | Path]]] = {
    "mypy": (BIN / "mypy", "--strict", "--no-error-summary"),
    "pyright": (BIN / "pyright", "--pythonpath", sys.executable),
}

#: Lines that a checker must report, each behind ``import arenaplan``.
WRONG: Final = (
    "arenaplan.plann('model.json')",
    "arenaplan.plan(3)",
    "arenaplan.plan('model.json', capasity='24 MiB')",
    "arenaplan.plan('model.json', target='oner')",
    "arenaplan.plan('model.json', only=['inplace'])",
    "arenaplan.explain('model.json', capacity=[24])",
    "arenaplan.load_graph('model.onnx', losss='mse')",
    "arenaplan.load_graph('model.onnx', loss='mean')",
    "arenaplan.load_graph('model.json', batch='3')",
    "plan: arenaplan.Plan = arenaplan.load_graph('model.json')",
    "arenaplan.tradeoff('model.json', points='3')",
    "arenaplan.Trainer(arenaplan.load_graph('model.json'), arenaplan.load_graph('model.json'))",
    "arenaplan.layers.dense(3, 4)",
    "arenaplan.onnx.load_onnx('model.onnx')",
    "arenaplan.torch.document(None, (), losss='mse')",
    "arenaplan.OptionError",
    "arenaplan.Client().plan(3)",
    "arenaplan.Client().export('digest')",
    "arenaplan.Client().plan({}).wait()",
    "arenaplan.Client().jobs.plan({}).digest",
    "arenaplan.Client().jobs.plan({}).wait().arena",
    "arenaplan.AsyncClient().plan({}).digest",
)


def reported(output: str, name: str) -> set[int]:
    """The lines of a file that a checker reports."""
    return {int(line) for line in re.findall(rf"{re.escape(name)}:(\d+):.*error", output)}


def main() -> int:
    failures = []
    # Otherwise pyright asks an index for a newer version of itself.
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    with tempfile.TemporaryDirectory(prefix="typing-", dir=ROOT) as folder:
        readme, wrong = Path(folder, "readme.py"), Path(folder, "wrong.py")
        examples = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
        readme.write_text("\n".join(examples), encoding="utf-8")
        wrong.write_text("\n".join(["import arenaplan", *WRONG]) + "\n", encoding="utf-8")
        right = (readme, ROOT / "examples" / "every_function.py")
        for name, command in CHECKERS.items():
            done = subprocess.run(
                [*command, *right, wrong],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
            refused = [path.name for path in right if reported(done.stdout, path.name)]
            failures += [f"{name} does not accept {each}:\n{done.stdout}" for each in refused]
            missed = {*range(2, len(WRONG) + 2)} - reported(done.stdout, wrong.name)
            failures += [f"{name} accepts {WRONG[line - 2]}" for line in sorted(missed)]
            if done.returncode != 1:
                failures.append(f"{name} ends with {done.returncode}:\n{done.stdout}{done.stderr}")
    sys.stderr.write("".join(f"{failure}\n" for failure in failures))
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
