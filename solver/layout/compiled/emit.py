"""Makes the machine code that `native` keeps and calls, with what numba and llvmlite document and no more.

Numba's own way to keep code asks for numba when it is loaded. So a function is compiled as a C callback,
whose assembly numba shows, and llvmlite turns that into an object file that depends on neither.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import llvmlite.binding as llvm
import numba
from numba.core import event
from numba.extending import intrinsic

from solver.layout.compiled.native import MachineCode, flat, form, parted, processor, scalar

__all__ = ["announce", "machine_code"]


def announce(function: Any) -> None:
    """Tells listeners that it is about to be compiled, as numba does; one refuses by raising."""
    with cast(Any, event).trigger_event("numba:compile", data={"dispatcher": function}):
        pass


def machine_code(function: Callable[..., Any], arguments: tuple[Any, ...]) -> MachineCode:
    """The compiled function for arguments like these. Seconds; half a minute for the search."""
    types = cast(Any, numba.types)
    arrays, scalars = parted(arguments)
    letters = "".join("d" if isinstance(x, float) else "i" for x in scalars)
    taken = (types.float64 if letter == "d" else types.int64 for letter in letters)
    signature = types.int64(types.CPointer(types.int64), *taken)
    callback = cast(Any, numba).cfunc(signature, error_model="numpy")(_callback(function, arguments))
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
    forms = tuple(map(form, flat(arrays)))
    return MachineCode(callback.native_name, needs, machine.emit_object(module), forms, letters)


def _callback(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """The function on the arrays that a block describes, and on numbers.

    Written as text: numba takes neither a loop over arrays of several types nor a list of arguments.
    """
    names = {
        "carray": cast(Any, numba).carray,
        "function": function,
        "pointer": _pointer,
    }
    given, taken, k = [], [], 0
    for position, argument in enumerate(arguments):
        if scalar(argument):
            taken.append(f"number{position}")
            given.append(taken[-1])
            continue
        parts = []
        for array in flat((argument,)):
            shape = "".join(f"block[{k + 1 + axis}], " for axis in range(array.ndim))
            names[array.dtype.name] = array.dtype.type
            parts.append(f"carray(pointer(block[{k}]), ({shape}), {array.dtype.name})")
            k += 1 + array.ndim
        if isinstance(argument, tuple):
            names[type(argument).__name__] = type(argument)
            given.append(f"{type(argument).__name__}({', '.join(parts)})")
        else:
            given += parts
    text = f"""
def callback({", ".join(("address", *taken))}):
    block = carray(address, ({k},))
    return function({", ".join(given)})
"""
    exec(text, names)
    return names["callback"]


@intrinsic
def _pointer(_: Any, address: Any) -> Any:
    """An address as a pointer."""
    types = cast(Any, numba.types)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.voidptr(types.int64), generate
