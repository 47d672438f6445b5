"""Products and convolutions in C: sums have the order that the page states, in each form of their tiles."""

from __future__ import annotations

import ctypes
import platform
import shutil
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.c_kernels import SOURCES
from solver.graph.types import Array

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

#: Tiles of vectors of two widths, of arrays, and of single floats as on processors without vectors.
FORMS = {
    "vectors of this machine": ("-O3", "-march=native"),
    "vectors": ("-O2",),
    "arrays": ("-O3", "-march=native", "-DAP_PLAIN"),
    "single floats": ("-Os", "-U__SSE2__", "-U__aarch64__"),
}
FILES = ("product.c", "scalar.c", "activation.c", "convolution.c")

SET, ADD, CHAIN = range(3)

#: Outputs whose derivatives are summed together: AP_CONV_BAND.
BAND = 64

CONVOLUTION = (
    "examples", "high", "wide", "channels", "out_high", "out_wide", "filters", "kernel_high", "kernel_wide",
    "stride_high", "stride_wide", "dilation_high", "dilation_wide", "top", "left", "groups",
)  # fmt: skip


class Conv(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in CONVOLUTION]

    def sizes(self, *names: str) -> list[int]:
        return [getattr(self, name) for name in names]


class Terms(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("segments", "length", "a_segment", "a_step", "a_column", "b_segment", "b_step")
    ]


@pytest.fixture(scope="module", params=FORMS)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    if request.param == "arrays" and platform.machine() not in ("x86_64", "aarch64"):
        pytest.skip("this processor has no form of arrays")
    output = tmp_path_factory.mktemp("kernels") / "kernels.so"
    sources = [Path(SOURCES, name) for name in FILES]
    flags = ["-std=c11", "-ffp-contract=off", "-shared", "-fPIC", *FORMS[request.param]]
    subprocess.run(["cc", *flags, *sources, "-o", output], check=True)
    return ctypes.CDLL(str(output))


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def at(array: Array) -> Any:
    return array.ctypes.data_as(ctypes.c_void_p)


def number(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)


@pytest.mark.parametrize("mode", [SET, ADD, CHAIN])
@pytest.mark.parametrize("by_column", [0, 1])
def test_an_element_of_a_product_is_one_chain(kernels: ctypes.CDLL, mode: int, by_column: int) -> None:
    rng = np.random.default_rng(mode)
    for rows, columns in [(1, 1), (6, 16), (13, 47), (103, 5), (2, 40)]:
        segments, length = int(rng.integers(0, 4)), int(rng.integers(0, 9))
        a, b = drawn(rng, rows, segments, length, columns), drawn(rng, segments, length, columns)
        c = drawn(rng, rows, columns + 3)
        terms = Terms(segments, length, length * columns, columns, by_column, length * columns, columns)
        total = c[:, :columns].copy() if mode == CHAIN else np.zeros((rows, columns), np.float32)
        for s, k in product(range(segments), range(length)):
            total += (a[:, s, k] if by_column else a[:, s, k, :1]) * b[s, k]
        expected = c.copy()
        expected[:, :columns] = c[:, :columns] + total if mode == ADD else total
        kernels.ap_products(
            number(rows), number(columns), ctypes.byref(terms), at(a), number(segments * length * columns),
            at(b), at(c), number(columns + 3), mode,
        )  # fmt: skip
        assert c.tobytes() == expected.tobytes()


@pytest.mark.parametrize("length", [1, 15, 16, 53])
def test_a_dot_product_has_sixteen_parts_and_a_tree(kernels: ctypes.CDLL, length: int) -> None:
    rng = np.random.default_rng(length)
    a, b, c = drawn(rng, 3, length), drawn(rng, 7, length), np.zeros((3, 7), np.float32)
    parts = np.zeros((3, 7, 16), np.float32)
    for k in range(length):
        parts[:, :, k % 16] += a[:, None, k] * b[None, :, k]
    while parts.shape[-1] > 1:
        half = parts.shape[-1] // 2
        parts = parts[..., :half] + parts[..., half:]
    kernels.ap_dots(
        number(3), number(7), at(a), number(length), at(b), number(length), number(length), at(c), number(7),
        SET,
    )  # fmt: skip
    assert c.tobytes() == parts[..., 0].tobytes()


def convolutions() -> Iterator[Conv]:
    """Kernels that lie in padding alone, steps over pixels, holes, groups, a channel for each filter."""
    rng = np.random.default_rng(40)
    for k in range(60):
        groups = (1, 2, 3, 1)[k % 4]
        channels, filters = groups * int(rng.integers(1, 5)), groups * int(rng.integers(1, 18))
        if k % 3 == 0:
            groups = channels = filters = int(rng.integers(1, 30))
        axes = []
        for _ in range(2):
            kernel, stride, dilation = (int(n) for n in rng.integers(1, 4, 3))
            before, after = (int(n) for n in rng.integers(0, 4, 2))
            reach = (kernel - 1) * dilation + 1
            size = max(1, reach - before - after) + int(rng.integers(0, 12))
            axes.append(
                (size, (size + before + after - reach) // stride + 1, kernel, stride, dilation, before)
            )
        yield Conv(
            int(rng.integers(1, 3)), axes[0][0], axes[1][0], channels, axes[0][1], axes[1][1], filters,
            *(part for n in range(2, 6) for part in (axes[0][n], axes[1][n])), groups,
        )  # fmt: skip
    yield Conv(2, 5, 23, 17, 5, 23, 40, 1, 1, 1, 1, 1, 1, 0, 0, 1)


def reads(s: Conv) -> Iterator[tuple[int, int, int, int, int, int, int]]:
    """Example, output, tap and pixel of each element that an output reads, in the order of memory."""
    for n, oy, ox, ky, kx in product(
        *map(range, s.sizes("examples", "out_high", "out_wide", "kernel_high", "kernel_wide"))
    ):
        y = oy * s.stride_high + ky * s.dilation_high - s.top
        x = ox * s.stride_wide + kx * s.dilation_wide - s.left
        if 0 <= y < s.high and 0 <= x < s.wide:
            yield n, oy, ox, ky, kx, y, x


@pytest.mark.parametrize("activates", [False, True])
def test_convolutions_have_the_order_that_is_stated(kernels: ctypes.CDLL, activates: bool) -> None:
    """Without an activation, and with Relu6."""
    activation = 2 if activates else 0
    rng = np.random.default_rng(activates)
    for s in convolutions():
        inner, outer = s.channels // s.groups, s.filters // s.groups
        x = drawn(rng, *s.sizes("examples", "high", "wide", "channels"))
        w = drawn(rng, *s.sizes("filters", "kernel_high", "kernel_wide"), inner)
        dy = drawn(rng, *s.sizes("examples", "out_high", "out_wide", "filters"))
        y, dx, dw = np.zeros_like(dy), np.zeros_like(x), np.zeros_like(w)
        work = np.full(w.size + max(BAND, s.out_wide) * s.filters, np.nan, np.float32)
        kernels.ap_conv_forward(ctypes.byref(s), at(x), at(w), None, at(y), at(work))
        if activates:
            kernels.ap_relu6_forward(at(y), at(y), ctypes.c_size_t(y.size))
        kernels.ap_conv_backward_x(ctypes.byref(s), activation, at(w), at(y), at(dy), at(dx), at(work))
        kernels.ap_conv_backward_w(ctypes.byref(s), activation, at(x), at(y), at(dy), at(dw), None, at(work))
        dz = dy * ((y > 0) & (y < 6)) if activates else dy
        result, into_x = np.zeros_like(y), np.zeros_like(x)
        bands: dict[int, Array] = {}
        rows = max(1, min(BAND // s.out_wide, s.out_high))
        for n, oy, ox, ky, kx, i, j in reads(s):
            band = bands.setdefault((n * s.out_high + oy // rows), np.zeros_like(w))
            for g in range(s.groups):
                these, those = slice(g * outer, (g + 1) * outer), slice(g * inner, (g + 1) * inner)
                for c in range(inner):
                    result[n, oy, ox, these] += x[n, i, j, g * inner + c] * w[these, ky, kx, c]
                for f in range(g * outer, (g + 1) * outer):
                    into_x[n, i, j, those] += dz[n, oy, ox, f] * w[f, ky, kx]
                band[these, ky, kx] += dz[n, oy, ox, these, None] * x[n, i, j, None, those]
        if activates:
            result = np.clip(result, 0, 6)
        into_w = np.zeros_like(w)
        for key in sorted(bands):
            into_w += bands[key]
        sizes = {name: getattr(s, name) for name in CONVOLUTION}
        for ours, expected in ((y, result), (dx, into_x), (dw, into_w)):
            assert (ours + 0.0).tobytes() == (expected + 0.0).tobytes(), sizes
