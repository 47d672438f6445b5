"""Runs a model in TFLM's interpreter; a script for an interpreter with tflite-micro, without this project.

    pip install tflite-micro numpy
    python micro_process.py MODEL INPUTS OUTPUTS

INPUTS is an `.npz` with arrays ``0.0, 0.1, 1.0, ...``: number of the inference, number of the input; OUTPUTS
says how many outputs there are. Prints one JSON object as its last line: ``{"outputs": [digest of the outputs
of each inference, or null]}``, or ``{"missing": "..."}`` with the name of a package that cannot be imported.
What the interpreter has allocated goes to standard error. `tests.benchmarks.micro` starts it.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np


def main(model: str, inputs: str, outputs: str) -> dict[str, object]:
    try:
        from tflite_micro.python.tflite_micro import runtime
    except ModuleNotFoundError as error:
        return {"missing": error.name}
    interpreter = runtime.Interpreter.from_bytes(Path(model).read_bytes(), arena_size=1 << 20)
    arrays = np.load(inputs)
    digests: list[str | None] = []
    for inference in range(1 + max(int(name.split(".")[0]) for name in arrays)):
        for name in arrays:
            if name.startswith(f"{inference}."):
                interpreter.set_input(arrays[name], int(name.split(".")[1]))
        done = interpreter.invoke() == 0
        results = b"".join(interpreter.get_output(k).tobytes() for k in range(int(outputs)))
        digests.append(hashlib.sha256(results).hexdigest() if done else None)
    interpreter.print_allocations()
    return {"outputs": digests}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
