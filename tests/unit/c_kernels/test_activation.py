"""Activations in C at every pair of special floats, beside NumPy's: NaN and infinities go through alike."""

from __future__ import annotations

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from solver.c_kernels import SOURCES
from solver.executor.kernels.helpers.activation import activation_derivative, apply_activation
from solver.graph.types import Array

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.0, -1.0, 6.0, 7.0, 3e38, -3e38], np.float32
)
ACTIVATIONS = {"None": 0, "Relu": 1, "Relu6": 2, "Sigmoid": 3, "Tanh": 4}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("activation") / "activation.so"
    sources = [SOURCES / f"{name}.c" for name in ("activation", "product", "scalar")]
    flags = ("-std=c11", "-O3", "-ffp-contract=off", "-shared", "-fPIC")
    subprocess.run(["cc", *flags, *sources, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def at(array: Array) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_derivatives_of_special_floats(kernels: ctypes.CDLL, name: str) -> None:
    y, dy = (np.ascontiguousarray(part.ravel()) for part in np.meshgrid(SPECIAL, SPECIAL))
    ours, expected = np.empty_like(y), np.empty_like(y)
    kernels.ap_deactivate(ACTIVATIONS[name], at(y), at(dy), at(ours), ctypes.c_size_t(y.size))
    with np.errstate(all="ignore"):
        activation_derivative(name, y, dy, expected)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in ACTIVATIONS if name != "None"])
def test_results_of_special_floats(kernels: ctypes.CDLL, name: str) -> None:
    ours, expected = SPECIAL.copy(), SPECIAL.copy()
    kernels[f"ap_{name.lower()}_forward"](at(ours), at(ours), ctypes.c_size_t(ours.size))
    with np.errstate(all="ignore"):
        apply_activation(name, expected)
    np.testing.assert_allclose(ours, expected, rtol=1e-6)
