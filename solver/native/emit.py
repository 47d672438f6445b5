"""Makes machine code with numba and llvmlite; needed once a machine.

Numba translates each function to LLVM's assembly, without optimising. All functions of a kernel are then one
module, which is optimised once: numba by itself would optimise each function again in each of its callers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any, Final, cast

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic, lower_getattr_generic, register_model
from numba.np.arrayobj import populate_array

from solver.native import Kernel, Kind
from solver.native.store import SYMBOL

__all__ = ["machine_code"]

#: Functions of numba's for errors and memory. Compiled code names them in paths that are never taken.
_NEVER_CALLED: Final = ("numba_", "NRT_")


class Block(types.Type):
    """A named tuple in a block of 64-bit numbers: its address."""

    def __init__(self, kind: tuple[tuple[str, Kind], ...]) -> None:
        self.fields: dict[str, tuple[int, Any]] = {}
        place = 0
        for name, of in kind:
            self.fields[name] = place, _type(of)
            place += _length(of)
        super().__init__(name=f"Block({kind!r})")


@register_model(Block)
class _BlockModel(models.PrimitiveModel):
    def __init__(self, manager: Any, of: Block) -> None:
        super().__init__(manager, of, ir.IntType(64).as_pointer())


@infer_getattr
class _Fields(AttributeTemplate):
    key = Block

    def generic_resolve(self, block: Block, name: str) -> Any:
        return block.fields[name][1] if name in block.fields else None


@lower_getattr_generic(Block)
def _field(context: Any, builder: Any, block: Block, value: Any, name: str) -> Any:
    place, of = block.fields[name]
    return _read(context, builder, value, place, of)


def _type(kind: Kind) -> Any:
    if isinstance(kind, tuple):
        return Block(kind)
    if kind in ("int", "float"):
        return types.int64 if kind == "int" else types.float64
    element, _, dimensions = kind.partition("[")
    return types.Array(numba.from_dtype(np.dtype(element)), int(dimensions[:-1]), "C")


def _length(kind: Kind) -> int:
    """Numbers of an argument of this kind in a block."""
    if isinstance(kind, tuple):
        return sum(_length(of) for _, of in kind)
    return 1 if kind in ("int", "float") else 1 + int(kind.partition("[")[2][:-1])


def _read(context: Any, builder: Any, block: Any, place: int, of: Any) -> Any:
    """A value of type `of` from `place` on. No code writes to the block, so LLVM may read it once."""

    def number(at: int) -> Any:
        loaded = builder.load(builder.gep(block, [ir.Constant(ir.IntType(64), at)], inbounds=True))
        loaded.set_metadata("invariant.load", builder.module.add_metadata([]))
        return loaded

    if isinstance(of, Block):
        return builder.gep(block, [ir.Constant(ir.IntType(64), place)], inbounds=True)
    if isinstance(of, types.Float):
        return builder.bitcast(number(place), ir.DoubleType())
    if isinstance(of, types.Integer):
        return number(place)
    array = context.make_array(of)(context, builder)
    size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(of.dtype)))
    shape = [number(place + 1 + axis) for axis in range(of.ndim)]
    strides = [size]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    data = builder.inttoptr(number(place), array.data.type)
    populate_array(array, data, shape, strides, size, meminfo=None)
    return array._getvalue()


@cache
def _dispatcher(source: Kernel) -> Any:
    """The function as numba's, and all that it calls; nothing is compiled yet."""
    function = source.function
    names = {
        name: _dispatcher(value) if isinstance(value, Kernel) else value
        for name, value in function.__globals__.items()
        if name in function.__code__.co_names
    }
    own = FunctionType(function.__code__, names, function.__name__, function.__defaults__)
    return numba.njit(nogil=True, _nrt=False, error_model="numpy")(own)


def machine_code(source: Kernel, kinds: Sequence[Kind]) -> bytes:
    """An object file with the function `SYMBOL`, for any processor of this type."""
    with _without_optimising():
        callback = numba.cfunc(types.int64(types.int64), error_model="numpy")(_callback(source, kinds))
        module = llvm.parse_assembly(callback.inspect_llvm())
    module.get_function(callback.native_name).name = SYMBOL
    for function in module.functions:
        if not function.is_declaration and function.name != SYMBOL:
            function.linkage = "internal"
    _define_stubs(module)
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=3, reloc="pic", codemodel="jitdefault", jit=True
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return cast(bytes, machine.emit_object(module))


def _define_stubs(module: Any) -> None:
    """Functions of numba's that the code names end the process; so it needs none of numba's libraries."""
    missing = [f for f in module.functions if f.is_declaration and f.name.startswith(_NEVER_CALLED)]
    if missing:
        bodies = [f'define void @"{f.name}"() {{\n call void @llvm.trap()\n unreachable\n}}' for f in missing]
        module.link_in(llvm.parse_assembly("\n".join(["declare void @llvm.trap()", *bodies])))


def _callback(source: Kernel, kinds: Sequence[Kind]) -> Any:
    """The function on the arguments that a block of numbers holds."""
    of = Block(tuple((f"argument{k}", kind) for k, kind in enumerate(kinds)))

    @intrinsic
    def arguments(_: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            block = builder.inttoptr(values[0], ir.IntType(64).as_pointer())
            parts = [_read(context, builder, block, place, one) for place, one in of.fields.values()]
            return context.make_tuple(builder, signature.return_type, parts)

        return cast(Any, types).Tuple([one for _, one in of.fields.values()])(types.int64), generate

    function, int64 = _dispatcher(source), np.int64

    def returning(address: int) -> Any:
        return int64(function(*arguments(address)))

    def silent(address: int) -> Any:
        function(*arguments(address))
        return 0

    return silent if source.returns == "None" else returning


@contextmanager
def _without_optimising() -> Iterator[None]:
    before = numba.config.OPT
    numba.config.OPT = type(before)(0)
    try:
        yield
    finally:
        numba.config.OPT = before
