"""Makes the machine code that `native` keeps and calls, with what numba and llvmlite document and no more.

Numba's own way to keep code asks for numba when it is loaded. So the search is compiled as a C callback,
whose assembly numba shows, and llvmlite turns that into an object file that depends on neither.
"""

from __future__ import annotations

from typing import Any, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import event
from numba.extending import intrinsic

from solver.layout.compiled.native import MachineCode, processor
from solver.layout.compiled.skyline_kernel import race
from solver.layout.compiled.skyline_state import SearchState
from solver.layout.model.instance import Integers

__all__ = ["announce", "machine_code"]


def announce() -> None:
    """Tells listeners that the search is about to be compiled, as numba does; one refuses by raising."""
    with cast(Any, event).trigger_event("numba:compile", data={"dispatcher": race}):
        pass


def machine_code(state: SearchState, ranks: Integers) -> MachineCode:
    """The search for arguments like these. Half a minute."""
    types = cast(Any, numba.types)
    signature = types.int64(types.CPointer(types.int64), types.int64, types.float64)
    callback = cast(Any, numba).cfunc(signature, error_model="numpy")(_callback(state, ranks))
    module = llvm.parse_assembly(callback.inspect_llvm())
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
    return MachineCode(callback.native_name, needs, machine.emit_object(module))


def _callback(state: SearchState, ranks: Integers) -> Any:
    """``race`` on the arrays that a block describes.

    Written as text: numba takes neither a loop over arrays of several types nor a list of arguments.
    """
    lines, k = [], 0
    for array in (*state, ranks):
        shape = "".join(f"block[{k + 1 + axis}], " for axis in range(array.ndim))
        lines.append(f"carray(pointer(block[{k}]), ({shape}), {array.dtype})")
        k += 1 + array.ndim
    text = f"""
def callback(address, first, growth):
    block = carray(address, ({k},))
    return race(SearchState({", ".join(lines[:-1])}), {lines[-1]}, first, growth)
"""
    names = {
        "SearchState": SearchState,
        "carray": cast(Any, numba).carray,
        "float64": np.float64,
        "int64": np.int64,
        "pointer": _pointer,
        "race": race,
    }
    exec(text, names)
    return names["callback"]


@intrinsic
def _pointer(_: Any, address: Any) -> Any:
    """An address as a pointer."""
    types = cast(Any, numba.types)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate
