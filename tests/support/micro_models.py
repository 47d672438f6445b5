"""Random networks as TensorFlow Lite files, with branches that a greedy plan does not place at the bound."""

from __future__ import annotations

import numpy as np

from tests.support.circle_models import CircleFile

__all__ = ["branching_model"]


def branching_model(seed: int, operators: int = 24) -> bytes:
    """Products of random widths, each of one of the last five values; what is left is joined at the end."""
    random = np.random.default_rng(seed)
    file = CircleFile()
    x = file.input("x", (1, 8))
    width, live = {x: 8}, [x]
    for k in range(operators):
        source, units = live[random.integers(len(live))], int(random.integers(1, 64)) * 4
        values = random.standard_normal((units, width[source])) / width[source] ** 0.5
        weight, y = file.constant(f"w{k}", values.astype(np.float32)), file.tensor(f"y{k}", (1, units))
        fused = {"fusedActivationFunction": "RELU"}
        file.operator("FULLY_CONNECTED", [source, weight, -1], [y], "FullyConnectedOptions", fused)
        width[y] = units
        live = [*live, y][-5:]
    total = sum(width[value] for value in live)
    joined, out = file.tensor("joined", (1, total)), file.tensor("out", (1, 4))
    file.operator("CONCATENATION", live, [joined], "ConcatenationOptions", {"axis": 1})
    last = file.constant("last", random.standard_normal((4, total)).astype(np.float32))
    file.operator("FULLY_CONNECTED", [joined, last, -1], [out], "FullyConnectedOptions")
    return file.write(out, identifier=b"TFL3")
