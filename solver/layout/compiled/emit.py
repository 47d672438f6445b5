"""Makes the machine code that `native` keeps and calls, with what numba and llvmlite document and no more.

Numba's own way to keep code asks for numba when it is loaded. So a function is compiled as a C callback,
whose assembly numba shows, and llvmlite turns that into an object file that depends on neither.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.extending import intrinsic

from solver.layout.compiled.native import NEVER_CALLED, SYMBOL, MachineCode, processor
from solver.layout.compiled.source import Kind, Source

__all__ = ["dispatcher", "library", "machine_code"]


@cache
def dispatcher(one: Source) -> Any:
    """The function as numba's, and all that it calls; nothing is compiled yet."""
    function = one.function
    names = {
        name: dispatcher(value) if isinstance(value, Source) else value
        for name, value in function.__globals__.items()
        if name in function.__code__.co_names
    }
    own = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    options = {"nogil": True, "_nrt": False, "error_model": "numpy"}
    return cast(Any, numba.njit)(**options, **({"forceinline": True} if one.inline else {}))(own)


def machine_code(one: Source, kinds: Sequence[Kind], arguments: Sequence[Any]) -> MachineCode:
    """The function for arguments like these. Half a minute for the search, a few seconds for others."""
    types = cast(Any, numba.types)
    signature = types.int64(types.int64)
    callback = cast(Any, numba).cfunc(signature, error_model="numpy")(_callback(one, kinds, arguments))
    module = llvm.parse_assembly(callback.inspect_llvm())
    module.get_function(callback.native_name).name = SYMBOL
    outside = (*module.functions, *module.global_variables)
    needs = tuple(x.name for x in outside if x.is_declaration and not x.name.startswith("llvm."))
    name, features = processor()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=name,
        features=features,
        opt=3,
        reloc="pic",
        codemodel="jitdefault",
        jit=True,
    )
    return MachineCode(needs, machine.emit_object(module))


def library(made: MachineCode) -> bytes:
    """The code as a shared library, which needs neither llvmlite nor numba. OSError without ``ld``."""
    missing = [name for name in made.needs if name.startswith(NEVER_CALLED)]
    stubs = [f'define void @"{name}"() {{\n  call void @llvm.trap()\n  unreachable\n}}' for name in missing]
    module = llvm.parse_assembly("\n".join(["declare void @llvm.trap()", *stubs]))
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
    with tempfile.TemporaryDirectory() as place:
        code, rest, linked = (Path(place, name) for name in ("code.o", "rest.o", "linked.so"))
        code.write_bytes(made.code)
        rest.write_bytes(machine.emit_object(module))
        command = ["ld", "-shared", "-Bsymbolic", "--strip-all", "-o", str(linked), str(code), str(rest)]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise OSError(f"ld does not link compiled code: {ran.stderr.strip()}")
        return linked.read_bytes()


def _callback(one: Source, kinds: Sequence[Kind], arguments: Sequence[Any]) -> Any:
    """The function on what a block of 64-bit numbers describes: numbers, and of arrays address and shape.

    Written as text: numba takes neither a loop over arguments of several types nor a list of them.
    """
    names: dict[str, Any] = {
        "carray": cast(Any, numba).carray,
        "function": dispatcher(one),
        "pointer": _pointer,
        **{
            str(np.dtype(kind)): kind
            for kind in (np.bool_, np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8)
        },
    }
    at = 0

    def text(kind: Kind, argument: Any) -> str:
        nonlocal at
        if isinstance(kind, tuple):
            made = type(argument)
            names[made.__name__] = made
            return f"{made.__name__}({', '.join(map(text, kind, argument))})"
        at += 1
        if kind in ("int", "float"):
            return f"{'block' if kind == 'int' else 'reals'}[{at - 1}]"
        element, _, axes = kind.partition("[")
        shape = "".join(f"block[{at + axis}], " for axis in range(int(axes[:-1])))
        place = at - 1
        at += int(axes[:-1])
        return f"carray(pointer(block[{place}]), ({shape}), {element})"

    called = ", ".join(map(text, kinds, arguments))
    returns = one.returns != "None"
    source = f"""
def callback(address):
    block, reals = carray(pointer(address), ({at},), int64), carray(pointer(address), ({at},), float64)
    {"return int64" if returns else ""}(function({called}))
    {"" if returns else "return 0"}
"""
    exec(source, names)
    return names["callback"]


@intrinsic
def _pointer(_: Any, address: Any) -> Any:
    """An address as a pointer."""
    types = cast(Any, numba.types)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate
