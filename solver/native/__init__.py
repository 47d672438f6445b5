"""The one seam between Python and compiled code: what is compiled, where it is kept, how it is loaded.

    @compiled function --numba, llvmlite--> machine code       `emit`, once a machine; alone imports numba
    machine code --------> a file of the user's cache          `store`
    file ----------------> an address, called through ctypes   `jit`, at the first call in a process

Everything else decorates functions and calls them. Importing this package imports no compiler.
"""

from __future__ import annotations

from solver.native.jit import (
    Kernel,
    NotKept,
    addressed,
    compile_beside,
    compiled,
    inlined,
    only_kept,
    runs_compiled,
)
from solver.native.store import PACKAGE_CACHE

__all__ = [
    "PACKAGE_CACHE",
    "Kernel",
    "NotKept",
    "addressed",
    "compile_beside",
    "compiled",
    "inlined",
    "only_kept",
    "runs_compiled",
]
