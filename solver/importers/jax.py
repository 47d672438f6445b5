"""A training step of JAX as an explicit program: the primitives of its jaxpr, with what they read and write.

The step is a function of states and of what is fed, as ``step(state, batch) -> (new state, loss)``. JAX has
values and no memory, so this decides where values lie:

* What only renames elements (reshape, squeeze) is the block that it looks at.
* A new state has the place of the old one. It is written there at once where nothing reads the old one later,
  and what makes it reads it element by element or not at all; else it is copied there at the end.
* With `in_place`, the result of an element-wise primitive takes the place of an operand that ends there.

Primitives without effects are pure, and keys of random numbers are values. Calls of compiled functions are
looked into, loops and branches are not: they are one operation, with a block for what their bodies hold at
most, or on request for what XLA says that they take. XLA fuses primitives, which a program does not know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from solver.errors import DocumentError
from solver.graph import Array, DType, TensorType
from solver.importers.traced import Placed, TracedStep, reason_of
from solver.training import Block, BlockOperation, OperationCost, build_program

__all__ = ["trace"]

#: Primitives that keep every element where it is.
_VIEWS = frozenset({"reshape", "squeeze", "expand_dims", "stop_gradient", "optimization_barrier"})

#: Primitives whose result may be written over an operand of its type, element by element.
_ELEMENTWISE = frozenset(
    {
        *("add", "sub", "mul", "div", "neg", "max", "min", "rem", "pow", "integer_pow", "square", "sign"),
        *("abs", "exp", "exp2", "expm1", "log", "log1p", "sqrt", "rsqrt", "cbrt", "tanh", "sin", "cos"),
        *("logistic", "erf", "erf_inv", "atan2", "floor", "ceil", "round", "clamp", "nextafter", "is_finite"),
        *("not", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "select_n", "add_any", "copy"),
        "convert_element_type",
    }
)

#: Element types that blocks have; others are bytes.
_WORDS = frozenset({"float32", "float64", "int32", "int64", "uint8", "bool"})

#: Parameters that hold the body of a call, which is looked into.
_BODIES = ("jaxpr", "call_jaxpr", "fun_jaxpr")
_CALLS = frozenset(
    {
        *("jit", "pjit", "closed_call", "core_call", "xla_call", "remat", "remat2", "checkpoint"),
        *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"),
    }
)


def trace(
    step: Callable[..., Any],
    arguments: Sequence[Any],
    *,
    carried: Sequence[int] = (0,),
    in_place: bool = False,
    scratch: bool = False,
    name: str = "step",
) -> TracedStep:
    """The program of `step`, whose first results are the arguments `carried`, renewed; others are read.

    Arguments are trees of arrays; those that are not carried are fed before every iteration. Nothing is
    computed. With `scratch` each primitive is compiled, and the temporary bytes that XLA states for it are
    the workspace of its operation. Raises ImportError without JAX, DocumentError where it cannot trace the
    step or a new state has another type than the old one, and what building a program raises. Linear in the
    primitives.
    """
    try:
        import jax
    except ImportError as error:
        raise ImportError("JAX is not installed here: pip install 'jax>=0.6'.", name="jax") from error
    try:
        closed, shape = jax.make_jaxpr(step, return_shape=True)(*arguments)
    except Exception as error:
        raise DocumentError(
            f"JAX cannot trace the step: {reason_of(error)}",
            remedy="Make jax.jit(step) work on the arguments.",
        ) from error
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(shape)[0]]
    leaves = [
        (f"{_argument_name(step, k)}{jax.tree_util.keystr(path)}", leaf, k in carried)
        for k, argument in enumerate(arguments)
        for path, leaf in jax.tree_util.tree_flatten_with_path(argument)[0]
    ]
    results = shape if isinstance(shape, tuple) else (shape,)
    renewed = sum(len(jax.tree_util.tree_leaves(each)) for each in results[: len(carried)])
    states = [label for k in carried for label, _, _ in leaves if label.startswith(_argument_name(step, k))]
    if renewed != len(states):
        raise DocumentError(
            f"The step returns {renewed} arrays for the {len(states)} that carry over.",
            remedy="Return the new states first, in the order of `carried`, as (state, loss).",
        )
    program = _Program(closed, leaves, states, in_place=in_place, scratch=scratch)
    return program.build(name, paths)


def _argument_name(step: Callable[..., Any], k: int) -> str:
    code = getattr(getattr(step, "__wrapped__", step), "__code__", None)
    names = code.co_varnames[: code.co_argcount] if code else ()
    return names[k] if k < len(names) else f"argument{k}"


@dataclass(frozen=True, slots=True)
class _Seen:
    """A value seen under a shape and strides, which its readers get."""

    value: int
    type: TensorType
    #: JAX's own shape and element type.
    aval: Any
    #: Where its elements lie, counted in elements, where that is not one behind the other from the beginning.
    strides: tuple[int, ...] | None = None
    start: int = 0

    @property
    def all_strides(self) -> tuple[int, ...]:
        shape = self.aval.shape
        return self.strides or tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class _Call:
    """One primitive. An operand that is not a value is a constant, known when the step was traced."""

    primitive: Any
    params: Mapping[str, Any]
    operands: tuple[Any, ...]
    results: tuple[_Seen | None, ...]
    workspace: int = 0
    has_effects: bool = False

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(x.value for x in self.operands if isinstance(x, _Seen))


class _Program:
    """Finds the values of a jaxpr, then their blocks."""

    def __init__(
        self,
        closed: Any,
        leaves: Sequence[tuple[str, Any, bool]],
        states: Sequence[str],
        *,
        in_place: bool,
        scratch: bool,
    ) -> None:
        self.in_place, self.scratch = in_place, scratch
        self.calls: list[_Call] = []
        self.types: list[TensorType] = []
        self.blocks: dict[str, Block] = {}
        self.values: dict[str, Array] = {}
        self.place: dict[int, str] = {}
        self.arguments: dict[str, Placed] = {}
        arguments = []
        for (label, leaf, carries), variable in zip(leaves, closed.jaxpr.invars, strict=True):
            seen = self._value(variable.aval)
            self._declare(seen, label, leaf, fed=not carries)
            self.arguments[label] = _placed(label, label, seen.aval)
            arguments.append(seen)
        by_label = dict(zip((label for label, _, _ in leaves), arguments, strict=True))
        self.states = [by_label[label] for label in states]
        outputs = self._walk(closed.jaxpr, closed.consts, arguments)
        renewed, read = outputs[: len(states)], [self._known(x) for x in outputs[len(states) :]]
        # What is returned beside the states is not overwritten by them, even where it is an old one.
        self.outputs = [
            *(x if not isinstance(x, _Seen) or _is_whole(x) else self._copied(x) for x in renewed),
            *(self._copied(x) if isinstance(x, _Seen) and self._needs_copy(x) else x for x in read),
        ]

    # ------------------------------------------------------------------------------------ values

    def _value(self, aval: Any) -> _Seen:
        self.types.append(_type_of_aval(aval))
        return _Seen(len(self.types) - 1, self.types[-1], aval)

    def _known(self, x: Any) -> Any:
        """A constant for a returned number or array that no primitive computes; other values unchanged."""
        if isinstance(x, _Seen) or not np.size(x):
            return x
        import jax

        array = jax.numpy.asarray(x)
        seen = self._value(array)
        self._declare(seen, f"constant{seen.value}", array, fed=False)
        return seen

    def _needs_copy(self, seen: _Seen) -> bool:
        """Whether a result needs a block of its own: it lies in pieces, or is an argument or a constant."""
        return not _is_whole(seen) or seen.value in self.place

    def _copied(self, seen: _Seen) -> _Seen:
        """A contiguous copy, as results of the step are returned, in a block that a primitive writes."""
        from jax.lax import copy_p

        copy = self._value(seen.aval)
        self.calls.append(_Call(copy_p, {}, (seen,), (copy,)))
        return copy

    def _declare(self, seen: _Seen, label: str, array: Any, *, fed: bool) -> None:
        self.place[seen.value] = label
        self.blocks[label] = Block(label, seen.type, fed)
        if not fed:
            self.values[label] = _elements(array)

    def _walk(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr for these arguments. Bodies of calls are walked in their place."""
        value_of: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            seen = self._value(variable.aval)
            self._declare(seen, f"constant{seen.value}", const, fed=False)
            value_of[variable] = seen

        def known(variable: Any) -> Any:
            return variable.val if hasattr(variable, "val") else value_of[variable]

        for equation in jaxpr.eqns:
            operands = [known(x) for x in equation.invars]
            name, params = equation.primitive.name, equation.params
            body = next((params[key] for key in _BODIES if key in params), None)
            if name in _CALLS and body is not None:
                inner, own = (body.jaxpr, body.consts) if hasattr(body, "consts") else (body, ())
                results = self._walk(inner, own, operands)
            elif name in _VIEWS and _is_view(params) and all(_is_whole(x) for x in operands):
                results = [
                    _Seen(x.value, _type_of_aval(v.aval), v.aval)
                    for x, v in zip(operands, equation.outvars, strict=True)
                ]
            elif (seen := _strided(name, params, operands, equation.outvars)) is not None:
                results = [seen]
            else:
                avals = [variable.aval for variable in equation.outvars]
                results = [
                    self._value(aval) if _type_of_aval(aval).nbytes else np.zeros(aval.shape, aval.dtype)
                    for aval in avals
                ]
                kept = tuple(x if isinstance(x, _Seen) else None for x in results)
                held = max((_peak_bytes(each) for each in _jaxprs(params.values())), default=0)
                if any(kept) or equation.effects:
                    effects = bool(equation.effects)
                    self.calls.append(_Call(equation.primitive, params, tuple(operands), kept, held, effects))
            value_of |= zip(equation.outvars, results, strict=True)
        return [known(x) for x in jaxpr.outvars]

    # ------------------------------------------------------------------------------------ blocks

    def build(self, name: str, paths: Sequence[str]) -> TracedStep:
        renewed = self.outputs[: len(self.states)]
        read = [x.value for x in self.outputs[len(self.states) :] if isinstance(x, _Seen)]
        last = {value: k for k, call in enumerate(self.calls) for value in call.reads}
        last |= dict.fromkeys([x.value for x in self.outputs if isinstance(x, _Seen)], len(self.calls))
        operations: list[BlockOperation] = []
        functions: dict[str, Callable[[Any], None]] = {}
        maker = {x.value: k for k, call in enumerate(self.calls) for x in call.results if x is not None}
        copies = self._place_states(renewed, maker, last)
        temporary: dict[Any, int] = {}
        for k, call in enumerate(self.calls):
            self._place_results(k, call, last)
            label = f"{call.primitive.name}{k}"
            writes = dict.fromkeys(self.place[x.value] for x in call.results if x is not None)
            reads = dict.fromkeys(self.place[value] for value in call.reads)
            permissions = tuple(
                (self.place[x.value], self.place[value])
                for x in call.results
                if x is not None and self.place[x.value] not in reads
                for value in dict.fromkeys(call.reads)
                if self.place[value] not in writes and self._overwrites(call, value, x.value)
            )
            operations.append(
                BlockOperation(
                    label,
                    tuple(reads),
                    tuple(writes),
                    call.primitive.name,
                    permissions,
                    _temporary_bytes(call, temporary) if self.scratch else call.workspace,
                    pure=not call.has_effects,
                    cost=OperationCost(flops=_flops(call)),
                )
            )
            functions[label] = partial(_run, call, dict(self.place))
        for k, (source, target) in enumerate(copies):
            label = f"carry{k}"
            operations.append(BlockOperation(label, (self.place[source],), (target,), "copy"))
            functions[label] = partial(_copy, self.place[source], target)
        kept = {self.place[value] for value in read}
        touched = {block for operation in operations for block in operation.touched}
        blocks = [
            Block(block.name, block.type, block.fed, block.name in kept)
            for block in self.blocks.values()
            if block.name in touched
        ]
        returned = {self.place[state.value] for state in self.states}
        values = {key: array for key, array in self.values.items() if key in touched or key in returned}
        program = build_program(name, blocks, operations, any_order=True)  # JAX's keys are values
        places = [self.place[state.value] for state in self.states]
        places += [self.place[x.value] if isinstance(x, _Seen) else "" for x in self.outputs[len(places) :]]
        results = tuple(
            _placed(path, place, x.aval if isinstance(x, _Seen) else x)
            for path, place, x in zip(paths, places, self.outputs, strict=True)
        )
        return TracedStep(program, functions, values, results, self.arguments)

    def _place_states(
        self, renewed: Sequence[Any], maker: Mapping[int, int], last: Mapping[int, int]
    ) -> list[tuple[int, str]]:
        """New states get the places of the old ones where that is safe; others are copied at the end."""
        copies = []
        for old, new in zip(self.states, renewed, strict=True):
            state = old.value
            old_type = _type_text(old.aval)
            if not isinstance(new, _Seen) or _type_text(new.aval) != old_type:
                new_type = _type_text(new.aval) if isinstance(new, _Seen) else "a constant"
                raise DocumentError(
                    f"The new state of {self.place[state]!r} is {new_type}, the old one {old_type}.",
                    remedy="Return states of the shapes and element types that were given.",
                )
            if new.value == state:
                continue
            if new.value in self.place and new.value not in maker:
                raise DocumentError(
                    f"The new state of {self.place[state]!r} is {self.place[new.value]!r} itself.",
                    remedy="Compute the new states, for instance by adding zero.",
                )
            at = maker[new.value]
            ends = last.get(state, -1)
            safe = ends < at or (ends == at and self._overwrites(self.calls[at], state, new.value))
            if safe and new.value not in self.place and last[new.value] == len(self.calls):
                self.place[new.value] = self.place[state]
            else:
                copies.append((new.value, self.place[state]))
        return copies

    def _overwrites(self, call: _Call, old: int, new: int) -> bool:
        """Whether a call may write a result over an operand."""
        operands = [x for x in call.operands if isinstance(x, _Seen) and x.value == old]
        if not all(_is_whole(x) for x in operands):
            return False
        operand = operands[0].type
        result = next(x.type for x in call.results if x is not None and x.value == new)
        same = operand.shape == result.shape and operand.dtype.itemsize == result.dtype.itemsize
        return call.primitive.name in _ELEMENTWISE and same and self.types[old].nbytes == result.nbytes

    def _place_results(self, k: int, call: _Call, last: Mapping[int, int]) -> None:
        """Blocks for what a call defines: that of an operand which ends here, or new ones."""
        taken: set[int] = set()
        for x in call.results:
            if x is None or x.value in self.place:
                continue
            ending = [
                value
                for value in call.reads
                if self.in_place
                and value not in taken
                and last.get(value) == k
                and self.place[value] not in self.values
                and not self.blocks[self.place[value]].fed
                and self.types[value] == x.type
                and self._overwrites(call, value, x.value)
            ]
            if ending:
                taken.add(ending[0])
                self.place[x.value] = self.place[ending[0]]
            else:
                label = f"{call.primitive.name}{k}" + (f".{x.value}" if len(call.results) > 1 else "")
                self.place[x.value] = f"{label}.out"
                self.blocks[f"{label}.out"] = Block(f"{label}.out", x.type)


def _is_whole(x: Any) -> bool:
    """Whether an operand is a value as it lies in memory."""
    return isinstance(x, _Seen) and x.strides is None


def _strided(name: str, params: Mapping[str, Any], operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """The result of a transpose, slice or broadcast as its operand under other strides, or None."""
    if name not in ("transpose", "slice", "broadcast_in_dim") or not isinstance(operands[0], _Seen):
        return None
    x, aval = operands[0], results[0].aval
    strides, start = x.all_strides, x.start
    if not _type_of_aval(aval).nbytes or len(operands) > 1:
        return None
    if name == "transpose":
        strides = tuple(strides[axis] for axis in params["permutation"])
    elif name == "slice":
        start += sum(first * stride for first, stride in zip(params["start_indices"], strides, strict=True))
        steps = params["strides"] or (1,) * len(strides)
        strides = tuple(stride * step for stride, step in zip(strides, steps, strict=True))
    else:
        axes = dict(zip(params["broadcast_dimensions"], range(len(strides)), strict=True))
        strides = tuple(
            strides[axes[k]] if k in axes and x.aval.shape[axes[k]] == size else 0
            for k, size in enumerate(aval.shape)
        )
    return _Seen(x.value, _type_of_aval(aval), aval, strides, start)


def _is_view(params: Mapping[str, Any]) -> bool:
    """Whether a reshape moves no elements, which one that also permutes does."""
    return params.get("dimensions") is None or "new_sizes" not in params


def _type_of_aval(aval: Any) -> TensorType:
    """Shape and element type; bytes where graphs have no such elements."""
    dtype = aval.dtype
    word = str(dtype)
    if word in _WORDS:
        return TensorType(tuple(int(n) for n in aval.shape), DType(word))
    return TensorType((math.prod(aval.shape) * dtype.itemsize,), DType.UINT8)


def _placed(path: str, block: str, aval: Any) -> Placed:
    """The place of an array that lies one element behind the other; of a key that of the integers in it."""
    shape, dtype, size = tuple(int(n) for n in aval.shape), str(aval.dtype), aval.dtype.itemsize
    if _is_key(aval.dtype):
        shape, dtype, size = (*shape, aval.dtype.itemsize // 4), "uint32", 4
    strides = tuple(size * math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Placed(path, block, 0, shape, strides, dtype)


def _type_text(aval: Any) -> str:
    return f"{aval.dtype}{list(aval.shape)}"


def _is_key(dtype: Any) -> bool:
    """Whether elements are keys of random numbers, of which NumPy knows nothing."""
    import jax

    return bool(jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key))


def _elements(array: Any) -> Array:
    """A JAX array as a NumPy array; of a random key its integers."""
    import jax

    return np.asarray(jax.random.key_data(array) if _is_key(getattr(array, "dtype", None)) else array)


def _jaxprs(values: Iterable[Any]) -> Iterator[Any]:
    """The bodies among the parameters of a primitive."""
    for value in values:
        if isinstance(value, list | tuple):
            yield from _jaxprs(value)
        elif hasattr(value, "eqns"):
            yield getattr(value, "jaxpr", value)


def _flops(call: _Call) -> int:
    """Two for each multiplication with its addition in a product or convolution; 0 for other primitives."""
    shapes = [tuple(x.aval.shape) if isinstance(x, _Seen) else np.shape(x) for x in call.operands]
    elements = sum(math.prod(x.aval.shape) for x in call.results if x is not None)
    if call.primitive.name == "dot_general":
        (contracted, _), _ = call.params["dimension_numbers"]
        return int(2 * elements * math.prod(shapes[0][axis] for axis in contracted))
    if call.primitive.name == "conv_general_dilated":
        features = shapes[1][call.params["dimension_numbers"].rhs_spec[0]]
        return int(2 * elements * math.prod(shapes[1]) // max(1, features))
    return 0


def _temporary_bytes(call: _Call, known: dict[Any, int]) -> int:
    """The temporary bytes of a primitive as XLA states them when it compiles the primitive alone.

    `known` are those of other calls, by what is compiled. What XLA's kernels allocate while they run, as
    those of products may, it does not state.
    """
    import jax

    types = [x.aval if isinstance(x, _Seen) else jax.typeof(x) for x in call.operands]
    types = [jax.ShapeDtypeStruct(each.shape, each.dtype, weak_type=each.weak_type) for each in types]
    key = call.primitive, tuple(call.params.items()), tuple((x.shape, x.dtype, x.weak_type) for x in types)
    if key not in known:
        compiled = (
            jax.jit(lambda *arrays: call.primitive.bind(*arrays, **call.params)).lower(*types).compile()
        )
        stated = compiled.memory_analysis()
        if stated is None:
            raise DocumentError(
                f"XLA does not state the temporary memory of {call.primitive.name!r} on this device.",
                remedy="Trace the step without scratch=True.",
            )
        known[key] = int(stated.temp_size_in_bytes)
    return known[key]


def _peak_bytes(jaxpr: Any) -> int:
    """Bytes of what a body defines and are live at a time, at most; arguments and results are outside."""
    last = {v: k for k, e in enumerate(jaxpr.eqns) for v in e.invars if not hasattr(v, "val")}
    results = {v for v in jaxpr.outvars if not hasattr(v, "val")}
    live = most = 0
    for k, equation in enumerate(jaxpr.eqns):
        own = [v for v in equation.outvars if v in last and v not in results]
        live += sum(_type_of_aval(v.aval).nbytes for v in own)
        inner = max((_peak_bytes(each) for each in _jaxprs(equation.params.values())), default=0)
        most = max(most, live + inner)
        live -= sum(_type_of_aval(v.aval).nbytes for v in last if last[v] == k and _is_own(v, jaxpr, results))
    return most


def _is_own(variable: Any, jaxpr: Any, results: Collection[Any]) -> bool:
    outside = variable in jaxpr.invars or variable in jaxpr.constvars
    return not outside and variable not in results


def _copy(source: str, target: str, blocks: Any) -> None:
    blocks[target].reshape(-1).view(np.uint8)[:] = blocks[source].reshape(-1).view(np.uint8)


def _run(call: _Call, place: Mapping[int, str], blocks: Any) -> None:
    """JAX's primitive on arrays in the arena; what it returns is copied to its place there."""

    def array(x: Any) -> Any:
        if not isinstance(x, _Seen):
            return x
        dtype = x.aval.dtype
        is_key = _is_key(dtype)
        flat = np.array(blocks[place[x.value]]).reshape(-1).view(np.uint8)
        flat = flat.view(f"V{dtype.itemsize}" if is_key else dtype)
        strides = tuple(stride * flat.itemsize for stride in x.all_strides)
        elements = np.lib.stride_tricks.as_strided(flat[x.start :], x.aval.shape, strides).copy()
        if not is_key:
            return elements
        from jax.random import wrap_key_data

        whole = elements.reshape(-1).view(np.uint32).reshape(*x.aval.shape, -1)
        return wrap_key_data(whole, impl=dtype._impl)  # which JAX tells of keys, and not of their types

    returned = call.primitive.bind(*(array(x) for x in call.operands), **call.params)
    many = returned if call.primitive.multiple_results else [returned]
    for x, result in zip(call.results, many, strict=True):
        if x is not None:
            flat = np.ascontiguousarray(_elements(result)).reshape(-1).view(np.uint8)
            blocks[place[x.value]].reshape(-1).view(np.uint8)[:] = flat
