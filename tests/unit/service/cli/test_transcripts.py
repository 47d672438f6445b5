"""What commands print, write and refuse, word for word: a file of `transcripts` is a session in one folder.

    $ arenaplan plan graph.json --capacity 100      a command, run in this process
    ! arenaplan: --capacity: ...                    a line of standard error; all others are standard output
    [3]                                             the exit code, unless it is 0
    $ cat plan.h                                    the content of a file
    $ printf '[1]\n' > scores.json                  a file with this text

After a change that is meant, ``WRITE_TRANSCRIPTS=1`` writes the files again: their difference is what
users will see.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from examples.gallery import GALLERY
from service.http.examples import example
from solver import documents
from solver.graph import inference
from tests.contract.rows import ADAM, BUFFERS, CHAIN, ONNX, PAIRS, SMALL, TINY
from tests.support.circle_models import dense
from tests.support.commands import run
from tests.support.graphs import chain, convolutional
from tests.support.programs import CHAIN_DOCUMENT
from tests.support.server import ROOT
from tests.support.sizes import SEQUENCES

FOLDER = Path(__file__).parent / "transcripts"
GRAPH = {**TINY, "name": "graph"}
TEXT = json.dumps(GRAPH)

#: A model of nntrainer.
MODEL = """[Model]
Type = NeuralNetwork
Loss = cross
batch_size = 4
[Optimizer]
Type = adam
[image]
Type = input
Input_Shape = 1:6:6
[conv]
Type = conv2d
filters = 2
kernel_size = 3,3
Activation = relu
[flat]
Type = flatten
[classes]
Type = fully_connected
Unit = 3
Activation = softmax
"""

#: The files that sessions begin with.
FILES: dict[str, str | bytes] = {
    "graph.json": TEXT,
    "other.json": TEXT,
    "adam.json": json.dumps({**ADAM, "name": "adam"}),
    "chain.json": json.dumps(CHAIN),
    "small.json": json.dumps(SMALL),
    "wide.json": documents.dump_graph(chain((16, 64, 64, 8), 4)),
    "sequences.json": json.dumps(SEQUENCES),
    "inference.json": documents.dump_graph(inference(convolutional(4))),
    "convolutional.json": documents.dump_graph(convolutional()),
    "lenet5.json": documents.dump_graph(GALLERY["lenet5"].model().graph),
    "autoencoder.json": documents.dump_graph(GALLERY["autoencoder"].model().graph),
    "levels.json": documents.dump_graph(chain((16, 16, 8), batch=4)),
    "deep.json": documents.dump_graph(chain((16,) * 7, batch=64)),
    "fixed.json": json.dumps({**GRAPH, "batch": None}).replace('"batch", ', "8, "),
    "open.json": json.dumps({**GRAPH, "batch": None}),
    "double.json": TEXT.replace("float32", "float64"),
    "misspelt.json": TEXT.replace("Gemm", "Gem", 1),
    "half.json": TEXT[:-2],
    "parallel.json": json.dumps(PAIRS),
    "steps.json": json.dumps(CHAIN_DOCUMENT),
    "momentum.json": json.dumps(example("momentum")["program"]),
    "model.onnx": ONNX,
    "a model.onnx": ONNX,
    "model.circle": dense(),
    "small.INI": MODEL,
    "wrong.ini": MODEL.replace("filters", "filtres"),
    "broken.onnx": b"\x08\x07\x12\x00\xff\x00",
    "weights.pt": b"\x80\x02}q\x00.",
    "buffers.json": json.dumps(BUFFERS),
    "homes.csv": "id,lower,upper,size,reads,memory\na,0,3,4,9,\nb,0,3,4,1,tcm\nc,1,2,8,1,\n",
    "problem.csv": "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n",
    "page.json": "# A page",
    "poem.json": '{"format": "arenaplan.poem", "version": 1}',
    "empty.json": "",
}


#: Losses in the report of a validation, and what the lines of tables begin with.
_LOSS = re.compile(r'("(?:reference_)?loss":) ?[0-9.e+-]+')
_TABLE = tuple("┏┃┡│└")


def session(name: str) -> str:
    """The transcript of a file, whose commands are run in the current folder."""
    lines: list[str] = []
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if not line.startswith(("$ ", "# ")):
            continue
        lines.append(line)
        match shlex.split(line.removeprefix("$ ")):
            case ["arenaplan", *words]:
                done = run(*words, columns=100)
                printed = done.stdout.splitlines()
                if words[0] == "validate":  # losses may differ in the last digit from machine to machine
                    printed = [_LOSS.sub(r"\1 ...", out) for out in printed if out[:1] not in _TABLE]
                lines += printed
                lines += [f"! {error}" for error in done.stderr.splitlines()]
                lines += [f"[{done.exit_code}]"] * (done.exit_code != 0)
            case ["cat", path]:
                lines += Path(path).read_text(encoding="utf-8").splitlines()
            case ["printf", text, ">", path]:
                Path(path).write_bytes(
                    text.encode("latin-1", "backslashreplace").decode("unicode_escape").encode()
                )
    return "".join(f"{line.rstrip()}\n" for line in lines)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.txt")))
def test_commands_say_what_they_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file, content in FILES.items():
        Path(file).write_bytes(content.encode() if isinstance(content, str) else content)
    shutil.copy(ROOT / "examples/mnist.json", "mnist.json")
    written = session(name)
    if "WRITE_TRANSCRIPTS" in os.environ:
        (FOLDER / name).write_text(written, encoding="utf-8")
    assert written == (FOLDER / name).read_text(encoding="utf-8")
