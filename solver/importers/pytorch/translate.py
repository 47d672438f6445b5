"""From an exported program to a graph: what is constant is computed, what is missing is listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.errors import ArenaplanError, DocumentError, LossError, UnknownOperatorError
from solver.graph import Array, DType, Role, TensorType
from solver.importers.narrowed import Origin
from solver.importers.pytorch.capture import Captured, operator_name, torch
from solver.importers.pytorch.context import Context, UnsupportedError, Value, Weight, element_type
from solver.importers.pytorch.operators import HANDLERS

__all__ = ["HALVES", "Missing", "Translation", "array_of", "checked_type", "half_of", "refuse", "translate"]

#: PyTorch's element types of 16 bits, which are computed in float32 here.
HALVES = ("bfloat16", "float16")

#: Arguments that say where and how PyTorch stores a tensor; the result's type says what is left of them.
_STORAGE = {"dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "copy", "implicit"}

#: Calls of a missing operator that a message names.
_NAMED_CALLS = 3


@dataclass(frozen=True, slots=True)
class Missing:
    """A call that could not be translated: PyTorch's operator, its node, the submodule, and why."""

    operator: str
    node: str
    module: str
    reason: str


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of a program; `missing` lists the calls that could not be translated."""

    context: Context
    outputs: tuple[Value, ...]
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    weights: tuple[Weight, ...]
    missing: tuple[Missing, ...]
    #: The tensors of the module that constants are computed from, and parameters of 16 bits, by operand.
    computed: Mapping[str, Origin]
    #: What one forward pass adds to the counts of batches, by the name of the buffer.
    counts: Mapping[str, int]
    #: The first call whose result PyTorch rounds to 16 bits, and that type; empty if there is none.
    rounded: tuple[str, str] | None


class _Unknown:
    """Stands for the results of a call that is missing."""


_UNKNOWN = _Unknown()


def translate(captured: Captured, *, values: bool = True) -> Translation:
    """Every call of the program in its order. Without `values` parameters have no first values.

    Raises nothing for operators that are missing: they are listed. Cost: linear, beside what is computed of
    constants.
    """
    return _Translator(captured, values=values).run()


def refuse(missing: Sequence[Missing]) -> None:
    """Raises UnknownOperatorError with all missing operators, and the nodes and modules that call them."""
    if not missing:
        return
    by_operator: dict[str, list[Missing]] = {}
    for each in missing:
        by_operator.setdefault(f"{each.operator} ({each.reason})", []).append(each)
    rows = []
    for operator, calls in by_operator.items():
        places = ", ".join(f"{call.node} in {call.module or 'the module'}" for call in calls[:_NAMED_CALLS])
        more = f" and {len(calls) - _NAMED_CALLS} more" if len(calls) > _NAMED_CALLS else ""
        rows.append(f"{operator}: {places}{more}")
    count = len(by_operator)
    raise UnknownOperatorError(
        f"{count} operator{'s' if count > 1 else ''} of PyTorch cannot be translated: {'; '.join(rows)}.",
        remedy="Write them with other operators, or plan the captured step as a program instead.",
        path=("module",),
    )


class _Translator:
    def __init__(self, captured: Captured, *, values: bool) -> None:
        self.captured = captured
        self.values = values
        self.context = Context(updated=self._updated, row=self._row)
        self.env: dict[Any, Any] = {}
        self.missing: list[Missing] = []
        #: Operands of parameters and buffers: all names in PyTorch, and its tensor.
        self.stored: dict[str, tuple[tuple[str, ...], Any]] = {}
        self.rows: list[Weight] = []
        self.states: dict[str, Value] = {}
        #: Names of the module's tensors that are known, by identity.
        self.buffers: dict[int, str] = {}
        self.recorded: dict[int, Value] = {}
        #: By the identity of known tensors, which `env` keeps.
        self.origins: dict[int, Origin] = {}
        self.computed: dict[str, Origin] = {}
        #: Frozen parameters of 16 bits with their names, by the identity of these and of copies in float32.
        self.halves: dict[int, tuple[tuple[str, ...], Any]] = {}
        self.parameters: dict[tuple[str, ...], Value] = {}
        self.counts: dict[str, int] = {}
        self.rounded: tuple[str, str] | None = None
        #: Those on the device meta.
        self.valueless: set[Origin] = set()

    def run(self) -> Translation:
        signature = self.captured.program.graph_signature
        for tensors in (signature.inputs_to_parameters, signature.inputs_to_buffers):
            self.context.reserved.update(self.captured.names_of(full)[0] for full in tensors.values())
        nodes = list(self.captured.program.graph_module.graph.nodes)
        placeholders = {node.name: node for node in nodes if node.op == "placeholder"}
        inputs, labels = self._inputs(signature, placeholders)
        self._parameters(signature, placeholders)
        self._buffers(signature, placeholders)
        needed = _needed(nodes)
        with torch().no_grad():
            for node in nodes:
                if node.op == "call_function" and node in needed:
                    self.env[node] = self._call(node)
        by_name = {node.name: node for node in nodes}
        self._check_mutations(signature, by_name)
        returned = [by_name[name] for name in signature.user_outputs if isinstance(name, str)]
        operands = [self._operand(self.env[node], node.name) for node in returned]
        outputs = [value for value in operands if isinstance(value, Value)]
        weights = [
            Weight(operand, names, self.context.layouts.get(operand), half=half_of(tensor))
            for operand, (names, tensor) in self.stored.items()
        ]
        return Translation(
            self.context,
            tuple(outputs),
            inputs,
            labels,
            (*weights, *self.rows),
            tuple(self.missing),
            self.computed,
            self.counts,
            self.rounded,
        )

    # --------------------------------------------------------------------------------- operands

    def _inputs(
        self, signature: Any, placeholders: Mapping[str, Any]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the inputs and of the labels, in the order of the call."""
        nodes = [placeholders[name] for name in signature.user_inputs if isinstance(name, str)]
        names, declared = self.captured.inputs, []
        first_label = len(nodes) - self.captured.labels
        for k, node in enumerate(nodes):
            name = names[k] if len(names) == len(nodes) else node.name
            role = Role.INPUT if k < first_label else Role.LABEL
            self.env[node] = self.context.declare(name, role, checked_type(node.meta["val"], name))
            declared.append(self.env[node].name)
        return tuple(declared[:first_label]), tuple(declared[first_label:])

    def _parameters(self, signature: Any, placeholders: Mapping[str, Any]) -> None:
        """Tied weights are one operand, under the first of their names."""
        for place, full in signature.inputs_to_parameters.items():
            name, names = self.captured.own(full), self.captured.names_of(full)
            stored = self.captured.program.state_dict[full]
            tensor, type_ = stored.detach(), _type_of(stored)
            frozen = bool(self.captured.frozen & set(names)) or not stored.requires_grad
            # What is computed from it may have a type that graphs have. A part of a tensor that PyTorch takes
            # apart, as quantised ones, has no name of the module's own.
            taken_apart = name not in self.captured.names
            # Scales of 16 bits, of which weights are computed, are known, unless they have no values.
            is_known_half = half_of(tensor) and not isinstance(tensor, torch()._subclasses.FakeTensor)
            if frozen and (type_ is None or not type_.dtype.is_floating or taken_apart or is_known_half):
                self._known(placeholders[place], tensor, name)
                if is_known_half and not taken_apart:
                    self.halves[id(tensor)] = (names, tensor)
                continue
            self.env[placeholders[place]] = self._parameter(names, tensor, trainable=not frozen)

    def _parameter(self, names: tuple[str, ...], tensor: Any, *, trainable: bool) -> Value:
        if names not in self.parameters:
            type_ = checked_type(tensor, names[0])
            parameter = self.context.declare(
                names[0], Role.PARAMETER, type_, trainable=trainable, is_reserved=True
            )
            self.parameters[names] = parameter
            self.stored[parameter.name] = (names, tensor)
            if half_of(tensor):
                size = tensor.numel() * tensor.element_size()
                self.computed[parameter.name] = Origin(names[0], half_of(tensor), size)
        return self.parameters[names]

    def _buffers(self, signature: Any, placeholders: Mapping[str, Any]) -> None:
        """Constants, until an operation updates one."""
        program = self.captured.program
        tensors = dict(signature.inputs_to_buffers)
        tensors |= getattr(signature, "inputs_to_lifted_tensor_constants", {})
        for place, full in tensors.items():
            tensor = program.state_dict[full] if full in program.state_dict else program.constants[full]
            self._known(placeholders[place], tensor.detach(), self.captured.names_of(full)[0])

    def _known(self, place: Any, tensor: Any, name: str) -> None:
        """A tensor of the module that does not change: what is computed from it alone is computed now."""
        self.env[place] = tensor
        self.buffers[id(tensor)] = name
        element = str(tensor.dtype).removeprefix("torch.")
        values = (lambda: array_of(tensor.float(), name)) if tensor.is_floating_point() else None
        size = tensor.numel() * tensor.element_size()
        origin = self.origins[id(tensor)] = Origin(name, element, size, values=values)
        if isinstance(tensor, torch()._subclasses.FakeTensor):
            self.valueless.add(origin)

    def _computed(self, target: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        """PyTorch's own result for known arguments."""
        result = target(*arguments, **named)
        parents = [self.origins.get(id(part)) for part in _leaves([arguments, *named.values()])]
        origin = Origin(parents=tuple(parent for parent in parents if parent is not None))
        for part in _leaves(result):
            if isinstance(part, torch().Tensor):
                self.origins.setdefault(id(part), origin)
        half = self.halves.get(id(arguments[0])) if arguments else None
        is_copy = operator_name(target) == "_to_copy.default"
        if is_copy and half is not None and result.dtype in (half[1].dtype, torch().float32):
            self.halves[id(result)] = half
        return result

    def _updated(self, value: Value) -> Value:
        """A buffer, so far a constant of this name, as a state: its readers so far read the state."""
        name = self.buffers.get(id(value.constant))
        if name is None:
            raise UnsupportedError("running statistics that are not a buffer")
        if name in self.states:
            raise UnsupportedError(f"running statistics {name!r} that two calls update")
        self.context.put(value.name, Role.STATE, value.type)
        self.computed.pop(value.name, None)
        self.states[name] = Value(value.name, value.type)
        return self.states[name]

    def _row(self, table: Value, number: int) -> Value:
        names, tensor = self.stored[table.name]
        values = array_of(tensor[number], names[0])
        row = self.context.constant(f"{table.name}.row{number}", values if self.values else 0 * values)
        self.rows.append(Weight(row.name, names, row=number))
        return row

    def _check_mutations(self, signature: Any, by_name: Mapping[str, Any]) -> None:
        """Reports tensors that the module mutates beside running statistics: graphs would not change them."""
        for place, full in signature.buffers_to_mutate.items():
            name, *others = self.captured.names_of(full)
            if name.endswith("num_batches_tracked"):
                counted, count = self.env.get(by_name[place]), self.captured.program.state_dict[full]
                if not isinstance(counted, torch()._subclasses.FakeTensor):
                    self.counts |= dict.fromkeys((name, *others), int(counted - count))
            elif name not in self.states:
                module = name.rpartition(".")[0]
                self.missing.append(Missing("copy_", place, module, f"it changes the buffer {name!r}"))
        for constant, origin in self.computed.items():
            for name in (source.name for source in origin.stored()):
                if name in self.states or name in self.counts:
                    module = name.rpartition(".")[0]
                    self.missing.append(Missing("copy_", constant, module, f"it changes the buffer {name!r}"))
        for place, full in getattr(signature, "user_inputs_to_mutate", {}).items():
            self.missing.append(Missing("copy_", place, "", f"it changes the input {full!r}"))

    # ------------------------------------------------------------------------------------ calls

    def _call(self, node: Any) -> Any:
        if _is_item(node):
            source, index = self.env[node.args[0]], node.args[1]
            return source if source is _UNKNOWN else source[index]
        if isinstance(node.target, torch()._ops.HigherOrderOperator):
            place = self._module(node)
            self.missing.append(Missing(str(node.target), node.name, place, "a branch or a loop"))
            return _UNKNOWN
        arguments = self._resolved(node.args)
        named = {key: self._resolved(x) for key, x in node.kwargs.items()}
        parts = list(_leaves([arguments, *named.values()]))
        if any(part is _UNKNOWN for part in parts):
            return _UNKNOWN
        operator, module = operator_name(node.target), self._module(node)
        lost = next((x for x in node.all_input_nodes if self.env[x] is None), None)
        if lost is not None:
            what = repr(lost.name)
            if _is_item(lost):
                what = f"result {lost.args[1]} of {operator_name(lost.args[0].target)}"
            reason = f"it reads {what}, which is not here"
            if "batch_norm" in operator:  # the layer is called again, with the statistics of the first call
                reason = "two calls update its running statistics"
            self.missing.append(Missing(operator, node.name, module, reason))
            return _UNKNOWN
        framework = torch()
        random = framework.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        if not random and not any(isinstance(part, Value) for part in parts):
            return self._computed(node.target, arguments, named)
        handler = HANDLERS.get(operator)
        if handler is None:
            self.missing.append(Missing(operator, node.name, module, "it has no counterpart"))
            return _UNKNOWN
        self.context.scope = ".".join(part for part in (module, operator.partition(".")[0]) if part)
        context = self.context
        results = _several(node.meta.get("val"))
        context.results = tuple(_type_of(x) for x in results)
        half = next(filter(None, map(half_of, results)), "")
        if half and self.rounded is None:
            self.rounded = (half, module or "the module")
        positional, keywords = _by_schema(node.target, arguments, named)
        try:
            return handler(
                context,
                *(self._operand(x, node.name) for x in positional),
                **{key: self._operand(x, node.name) for key, x in keywords.items()},
            )
        except (UnsupportedError, ArenaplanError) as error:
            reason = error.message if isinstance(error, ArenaplanError) else str(error)
            self.missing.append(Missing(operator, node.name, module, reason))
            return _UNKNOWN

    def _resolved(self, argument: Any) -> Any:
        """Nodes replaced by what they gave."""
        if isinstance(argument, list | tuple):
            return [self._resolved(x) for x in argument]
        if isinstance(argument, torch().fx.Node):
            return self.env[argument]
        return argument

    def _operand(self, argument: Any, name: str) -> Any:
        """PyTorch's constant tensors as constants of the graph, each of them once."""
        if isinstance(argument, list | tuple):
            return [self._operand(x, name) for x in argument]
        if not isinstance(argument, torch().Tensor):
            return argument
        if id(argument) in self.halves:
            return self._parameter(*self.halves[id(argument)], trainable=False)
        if id(argument) not in self.recorded:
            buffer = self.buffers.get(id(argument))
            origin = self.origins.get(id(argument), Origin())
            if isinstance(argument, torch()._subclasses.FakeTensor):
                raise _no_values(next(each.name for each in origin.stored() if each in self.valueless))
            preferred = buffer or f"{name}.constant"
            values = array_of(argument, buffer or name)
            constant = self.context.constant(preferred, values, argument, is_reserved=buffer is not None)
            self.recorded[id(argument)] = constant
            self.computed[constant.name] = origin
            if buffer:
                self.stored[constant.name] = (self.captured.names.get(buffer, (buffer,)), argument)
        return self.recorded[id(argument)]

    def _module(self, node: Any) -> str:
        """The path of the innermost submodule that calls."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = str(stack[-1][0]) if stack else ""
        own = self.captured.own(path)
        return "" if self.captured.wrapped and own == "module" else own


def _no_values(name: str) -> DocumentError:
    return DocumentError(
        f"{name!r} is on PyTorch's device meta, which holds no values, and the graph has them as a constant.",
        remedy="Make this tensor on the CPU, or compute it in `forward`.",
        path=("module",),
    )


def _needed(nodes: Sequence[Any]) -> set[Any]:
    """The nodes that the outputs depend on, without assertions and their operands."""
    needed: set[Any] = set()
    for node in reversed(nodes):
        if node.op == "output" or node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _several(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else (value,)


def _is_item(node: Any) -> bool:
    """Whether it takes one of several results."""
    return getattr(node.target, "__module__", "") == "_operator" and node.target.__name__ == "getitem"


def _leaves(argument: Any) -> Any:
    if isinstance(argument, list | tuple):
        for part in argument:
            yield from _leaves(part)
    else:
        yield argument


def _type_of(tensor: Any) -> TensorType | None:
    """None for what is not a tensor, or of an element type or of sizes that are not known here."""
    if not hasattr(tensor, "dtype") or not hasattr(tensor, "shape"):
        return None
    if any(type(size) is not int and not size.node.has_hint() for size in tensor.shape):
        return None
    try:
        element = DType.FLOAT32 if half_of(tensor) else element_type(tensor.dtype)
        return TensorType(tuple(int(size) for size in tensor.shape), element)
    except UnsupportedError:
        return None


def checked_type(tensor: Any, name: str, *, halves: bool = True) -> TensorType:
    """The type of a tensor here. Raises LossError if there is none; without `halves` also for 16 bits."""
    type_ = _type_of(tensor)
    if type_ is None or (half_of(tensor) and not halves):
        raise LossError(
            f"{name!r} is of {getattr(tensor, 'dtype', type(tensor).__name__)}, which graphs do not have.",
            remedy="Convert it to float32, or to another type that operators compute in.",
            path=(name,),
        )
    return type_


def half_of(tensor: Any) -> str:
    """The element type of a tensor if it is a floating one of 16 bits, else the empty string."""
    word = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    return word if word in HALVES else ""


def array_of(tensor: Any, name: str) -> Array:
    """The elements of a PyTorch tensor, those of 16 bits as float32; its own memory if it is contiguous.

    Raises LossError for a tensor of an element type that graphs do not have, or without dense elements.
    """
    try:
        plain = tensor.float() if half_of(tensor) else tensor
        array: Array = np.ascontiguousarray(plain.detach().cpu().numpy()).reshape(tuple(tensor.shape))
        DType(array.dtype.name)
    except (TypeError, ValueError, RuntimeError):
        raise LossError(
            f"{name!r} is a tensor of {tensor.dtype} ({tensor.layout}, {tensor.device}), whose elements"
            " graphs cannot hold.",
            remedy="Make it a dense tensor on the CPU, of float32 or another type that operators compute in.",
            path=(name,),
        ) from None
    return array


def _by_schema(
    target: Any, arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Arguments by position as far as the operator's schema has positions, without those about storage."""
    positional, keywords = list(arguments), dict(named)
    for argument in target._schema.arguments[len(positional) :]:
        if argument.kwarg_only or not set(keywords) - _STORAGE:
            break
        positional.append(keywords.pop(argument.name, argument.default_value))
    return positional, {key: value for key, value in keywords.items() if key not in _STORAGE}
