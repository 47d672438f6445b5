"""Errors of the elementary functions in C, measured against the C library's in double."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from solver.c_kernels import SOURCES
from tests.device.machines import HERE
from tests.device.objects import called

__all__ = ["FUNCTIONS", "largest_error"]

#: Each function with its value in double, and the largest error at any float, in units in the last place, as
#: ap.h and the page state it.
FUNCTIONS: Final = {
    "ap_exp": ("exp(x)", 0.78),
    "ap_log": ("log(x)", 0.84),
    "ap_tanh": ("tanh(x)", 1.4),
    "ap_sigmoid": ("1.0 / (1.0 + exp(-x))", 1.19),
    "ap_erf": ("erf(x)", 1.18),
    "ap_expm1": ("expm1(x)", 1.23),
    "ap_softplus": ("(x > 0.0 ? x : 0.0) + log1p(exp(x < 0.0 ? x : -x))", 1.7),
    "ap_sqrt": ("sqrt(x)", 0.5),
}


def largest_error(name: str, folder: Path, *, stride: int = 1) -> float:
    """The largest error of a function at every `stride`-th float. All of them take about two minutes.

    Raises Failed where one of both values is NaN, infinite or 0, and the other is not.
    """
    program = folder / name
    defined = (f"-DFUNCTION={name}", f"-DEXACT={FUNCTIONS[name][0]}", f"-I{SOURCES}")
    sources = (HERE / "functions.c", SOURCES / "scalar.c")
    called(["cc", "-std=c11", "-O2", "-ffp-contract=off", *defined, *sources, "-lm", "-o", program])
    return float(called([program, f"{stride}"], seconds=None).split()[0])
