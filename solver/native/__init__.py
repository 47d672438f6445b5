"""The one seam between Python and compiled code: what is compiled, where it is kept, how it is loaded.

    @compiled function --numba, llvmlite--> machine code       `emit`, once a machine; alone imports numba
    machine code --------> a file of the user's cache          `store`
    file ----------------> an address, called through ctypes   `jit`, at the first call in a process

Everything else decorates functions and calls them. A function that is not on disk runs as Python until it has
run long enough to be worth compiling. Importing this package imports no compiler.
"""

from __future__ import annotations

from solver.native.jit import (
    PYTHON_SECONDS,
    Kernel,
    addressed,
    compile_beside,
    compiled,
    compiling_after,
    deadline_of,
    heeding_deadline,
    inlined,
    may_compile,
    runs_compiled,
)
from solver.native.store import PACKAGE_CACHE, writable

__all__ = [
    "PACKAGE_CACHE",
    "PYTHON_SECONDS",
    "Kernel",
    "addressed",
    "compile_beside",
    "compiled",
    "compiling_after",
    "deadline_of",
    "heeding_deadline",
    "inlined",
    "may_compile",
    "runs_compiled",
    "writable",
]
