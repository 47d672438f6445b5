"""Elementary functions in C, at floats from the whole range: their errors in units in the last place."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from solver.c_kernels import SOURCES

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

#: Each with the function of the C library that it is compared with, in `long double`.
FUNCTIONS = {
    "ap_exp": "expl(x)",
    "ap_log": "logl(x)",
    "ap_tanh": "tanhl(x)",
    "ap_sigmoid": "1.0L / (1.0L + expl(-x))",
    "ap_erf": "erfl(x)",
    "ap_expm1": "expm1l(x)",
    "ap_softplus": "(x > 0.0L ? x : 0.0L) + log1pl(expl(x < 0.0L ? x : -x))",
    "ap_sqrt": "sqrtl(x)",
}

#: Bits from one float to the next that is tried: odd, so that all exponents and low bits are among them.
#: `ARENAPLAN_FUZZ` tries 138 million of them.
STRIDE = 31 if os.environ.get("ARENAPLAN_FUZZ") else 10_007

_PROGRAM = """
#include <math.h>
#include "ap.h"

/* The largest error at every stride-th float; 1e9 where only one of both is NaN, or infinite */
double worst(uint32_t stride)
{
    double most = 0.0;
    for (uint64_t bits = 0; bits < (UINT64_C(1) << 32); bits += stride) {
        union { uint32_t bits; float value; } u;
        u.bits = (uint32_t)bits;
        const long double x = u.value, exact = EXACT;
        const float ours = FUNCTION(u.value), rounded = (float)exact;
        if ((ours != ours) != (exact != exact) || isinf(ours) != isinf(rounded)) return 1e9;
        if (ours != ours || isinf(ours)) continue;
        int exponent;
        (void)frexpl(exact, &exponent);
        const long double unit = ldexpl(1.0L, exponent < -125 ? -149 : exponent - 24);
        const double error = (double)(fabsl(ours - exact) / unit);
        if (error > most) most = error;
    }
    return most;
}
"""


@pytest.mark.fuzz
@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_are_at_most_one_unit_in_the_last_place(name: str, tmp_path: Path) -> None:
    program, library = tmp_path / "worst.c", tmp_path / "worst.so"
    program.write_text(_PROGRAM, encoding="ascii")
    defined = [f"-DFUNCTION={name}", f"-DEXACT={FUNCTIONS[name]}", "-ffp-contract=off", f"-I{SOURCES}"]
    sources = [str(program), str(SOURCES / "scalar.c")]
    command = ["cc", "-std=c11", "-O2", "-shared", "-fPIC", *defined, *sources, "-lm", "-o", str(library)]
    subprocess.run(command, check=True)
    worst = ctypes.CDLL(str(library)).worst
    worst.restype = ctypes.c_double
    error = worst(ctypes.c_uint32(STRIDE))
    assert error <= (0.5 if name == "ap_sqrt" else 1.0)
    assert error > 0.4  # rounding alone leaves half a unit somewhere
