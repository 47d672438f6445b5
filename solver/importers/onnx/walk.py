"""The walk over a model: every node is run on what is known, called, translated, or named as missing.

    all operands known       computed                        (shapes, masks, tables)
    a function               walked in the place of the call (the model's own, or the one that ONNX gives)
    a condition that is known  the branch that it chooses
    a translation            operations of ours
    none of these            missing: the walk goes on, to find all that is

Types of all values are those of our own operators, which know every dimension once those of the inputs are
bound.
"""

from __future__ import annotations

import hashlib
from collections import ChainMap
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from solver.errors import DocumentError, GraphError, TooManyOperationsError, UnknownOperatorError
from solver.graph import DType, FileRange, Initializer, Role, TensorType
from solver.importers.narrowed import Origin
from solver.importers.onnx.evaluate import can_evaluate, evaluate
from solver.importers.onnx.lowering import LOWERINGS, Site, Unsupported
from solver.importers.onnx.network import Constant, Network, Sequence_, Tensor, Unknown, Value
from solver.importers.onnx.read import StoredTensor, array_of, constant_tensor, tensors_of
from solver.importers.onnx.roles import Body, Roles
from solver.importers.tables import MAX_TABLE, looks_like_a_table
from solver.importers.text import argument, some

if TYPE_CHECKING:
    import onnx

__all__ = ["Walk", "check_size", "expanded_by_onnx", "names_read"]

#: Errors that nonsensical attributes and shapes lead to.
_NONSENSE: Final = (
    *(ValueError, KeyError, TypeError, IndexError, ZeroDivisionError, OverflowError, AttributeError),
    *(AssertionError, MemoryError),
)

_Scope = MutableMapping[str, "Value | StoredTensor"]
_Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Place:
    """Nodes of the model: its graph or one of its functions, and the nodes If that lead to a branch of it.

    `is_own` is false for what ONNX defines an operator by, which holds no weights.
    """

    body: Body = None
    path: str = ""
    is_own: bool = True


_GRAPH: Final = _Place()


@dataclass(frozen=True, slots=True)
class _Frame:
    """The body whose nodes are walked: the model's graph, or a function, branch or round at its `depth`.

    `prefix` begins the names of its operations; `attributes` are those of the call, for a function.
    """

    opsets: Mapping[str, int]
    place: _Place = _GRAPH
    prefix: str = ""
    depth: int = 0
    attributes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Node:
    """One node of a frame, with its inputs (None where one is left out) and whether each output is read."""

    node: onnx.NodeProto
    name: str
    inputs: Sequence[Value | None]
    attributes: dict[str, Any]
    is_read: Sequence[bool]
    scope: _Scope
    frame: _Frame

    def inside(self, path: str) -> _Frame:
        """The frame of the node's branch, or of a round of its body."""
        frame = self.frame
        place = replace(frame.place, path=f"{frame.place.path}/{path}")
        return _Frame(frame.opsets, place, f"{self.name}/", frame.depth + 1)


#: Rounds of a loop, each of which becomes operations of its own.
_MAX_ROUNDS: Final = 2_000
#: Nodes that are walked, those of functions as often as they are called.
_MAX_NODES: Final = 100_000
#: Functions that call functions, and branches in branches.
_MAX_DEPTH: Final = 40
#: Bytes of all constants that are computed.
_MAX_CONSTANT_BYTES: Final = 2**31
#: Nodes that a message names for an operator.
_NAMED_NODES: Final = 3
_ONNX: Final = ("", "ai.onnx")
#: Operators that the walk itself translates.
_BY_WALK: Final = frozenset({"If", "Loop", "Scan", "Shape", "Size"})
_COMPARISONS: Final = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
#: Drawn anew in each iteration, so never computed ahead.
_RANDOM: Final = frozenset(
    {"RandomUniform", "RandomUniformLike", "RandomNormal", "RandomNormalLike", "Bernoulli"}
)


def _check_limits(nodes: int, depth: int) -> None:
    is_deep = depth > _MAX_DEPTH
    if nodes > _MAX_NODES or is_deep:
        what = "calls within calls than can be followed" if is_deep else f"than {_MAX_NODES:,} nodes"
        raise TooManyOperationsError(
            f"The model has more {what}.",
            remedy="Check that its functions do not call themselves, or split the model.",
        )


def check_size(model: onnx.ModelProto, functions: Mapping[_Key, onnx.FunctionProto]) -> None:
    """Raises TooManyOperationsError for a model that has too many nodes to be walked, before any is.

    Nodes of functions count as often as the functions are called, and those of branches and loops once: a
    model of 2 kB whose functions call each other may have millions. Cost: linear in the nodes that are
    written down.
    """
    sizes: dict[_Key, int] = {}

    def count(nodes: Sequence[onnx.NodeProto], depth: int) -> int:
        total = len(nodes)
        _check_limits(total, depth)
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in functions:
                if key not in sizes:
                    sizes[key] = count(functions[key].node, depth + 1)
                total += sizes[key]
            for attribute in node.attribute:
                for graph in (attribute.g, *attribute.graphs):
                    if graph.node:
                        total += count(graph.node, depth + 1)
            _check_limits(total, depth)
        return total

    count(model.graph.node, 0)


@dataclass
class Walk:
    """Walks over one model. `roles` say what its tensors are; `constants` collects floating ones that are no
    parameters, with the number of their elements, and `tables` parameters that look like tables.

    `batch_norm` is "train", "frozen", or None for what the model says. Without `weights` their first values
    are left out; else they are described by where their bytes are.
    """

    functions: Mapping[_Key, onnx.FunctionProto]
    roles: Roles
    batch_norm: str | None = None
    weights: bool = True
    network: Network = field(default_factory=Network)
    constants: dict[str, int] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    missing: dict[str, list[str]] = field(default_factory=dict)
    undecided: dict[str, tuple[str, str]] = field(default_factory=dict)
    faults: list[GraphError | DocumentError] = field(default_factory=list)
    normalised: dict[str, int] = field(default_factory=lambda: {"train": 0, "frozen": 0})
    updated: set[str] = field(default_factory=set)
    shared: list[str] = field(default_factory=list)
    #: Numbers of the model's own nodes that cannot be imported.
    refused: list[int] = field(default_factory=list)
    _stored: dict[tuple[_Place, str], Value] = field(default_factory=dict)
    _nodes: int = 0
    _constant_bytes: int = 0

    def run(
        self,
        nodes: Iterable[onnx.NodeProto],
        scope: _Scope,
        opsets: Mapping[str, int],
        results: Iterable[str],
    ) -> None:
        """Walk the nodes of the model, in their order, and add what they define to `scope`.

        `results` are names that are read afterwards. Raises DocumentError for a model that defines or reads
        what it must not, TooManyOperationsError for one that is too large.
        """
        self._run(nodes, scope, results, _Frame(opsets))

    def _run(
        self, nodes: Iterable[onnx.NodeProto], scope: _Scope, results: Iterable[str], frame: _Frame
    ) -> None:
        nodes = list(nodes)
        used = names_read(nodes) | frozenset(results)
        for k, node in enumerate(nodes):
            self._nodes += 1
            _check_limits(self._nodes, frame.depth)
            _check_names(node)
            name = f"{frame.prefix}{node.name or f'{node.op_type}_{k}'}"
            inputs = [self._fetch(scope, n, name) if n else None for n in node.input]
            is_read = [output in used for output in node.output]
            before = self._refusals()
            attributes = _attributes(node, frame.attributes)
            values = self._results(_Node(node, name, inputs, attributes, is_read, scope, frame))
            if not frame.depth and self._refusals() > before:
                self.refused.append(k)
            missing = [Unknown()] * (len(node.output) - len(values))
            for output, value in zip(node.output, [*values, *missing], strict=False):
                if output:
                    scope[output] = value

    def _refusals(self) -> int:
        beyond_inputs = sum(not fixed for _, fixed in self.undecided.values())
        return len(self.faults) + beyond_inputs + sum(map(len, self.missing.values()))

    def check(self) -> None:
        """Raises UnknownOperatorError with all operators that are missing, or the first other fault."""
        if self.missing:
            shown = "; ".join(
                f"{op} ({some(names, _NAMED_NODES)})"
                for op, names in sorted(self.missing.items(), key=lambda m: -len(m[1]))
            )
            count = len(self.missing)
            raise UnknownOperatorError(
                f"The model uses {count} {'operator' if count == 1 else 'operators'} that cannot be imported:"
                f" {shown}.",
                remedy="`arenaplan operators --onnx` lists those that can be.",
            )
        if self.undecided:
            name, (chooses, fixed) = next(iter(self.undecided.items()))
            raise UnknownOperatorError(
                f"Node {name!r:.80} {chooses}.",
                remedy=f"Fix it with {fixed}."
                if fixed
                else "Export the model with torch.where in the place of the If, or without it.",
            )
        if self.faults:
            first, more = self.faults[0], len(self.faults) - 1
            if more:
                first.message += (
                    f" ({more} more {'node' if more == 1 else 'nodes'} cannot be imported either.)"
                )
            raise first

    # ------------------------------------------------------------------------------------------- names

    def _fetch(self, scope: _Scope, name: str, reader: str) -> Value:
        value = scope.get(name)
        if value is None:
            raise DocumentError(
                f"Node {reader!r:.80} reads {name!r:.80}, which nothing defines before it.",
                remedy="Export the model again, and check it with onnx.checker.",
            )
        return self.value_of(value) if isinstance(value, StoredTensor) else value

    def value_of(self, tensor: StoredTensor, place: _Place = _GRAPH, *, is_initializer: bool = True) -> Value:
        """A weight as an operand, anything else as its values; the same one for each call of a function."""
        key = (place, tensor.name)
        if key not in self._stored:
            role = self.roles.of(tensor, place.body, is_initializer=is_initializer)
            self._stored[key] = self._declared(tensor, role, tensor.name if is_initializer else "")
        return self._stored[key]

    def _declared(self, tensor: StoredTensor, role: Role, name: str) -> Value:
        if role is Role.CONSTANT and tensor.absent and tensor.dtype is not None:
            type_ = TensorType(tensor.shape, tensor.dtype)
            constant = self.network.declare(tensor.name, role, type_, Initializer("constant", value=0.0))
            self.network.absent[constant.name] = tensor.absent
            if tensor.dtype.is_floating:
                self.constants[tensor.name] = tensor.elements
            return constant
        if role is Role.CONSTANT:
            array = tensor.array()
            self._count_constant_bytes(array.nbytes)
            if tensor.dtype is not None and tensor.dtype.is_floating:
                self.constants[tensor.name] = tensor.elements
            return Constant(array, name, tensor.origin)
        assert tensor.dtype is not None, "roles other than constant are of floating tensors"
        type_ = TensorType(tensor.shape, tensor.dtype)
        weight = self.network.declare(tensor.name, role, type_, self._initializer(tensor))
        self.network.origins[weight.name] = tensor.origin
        values = tensor.values() if tensor.elements <= MAX_TABLE else None
        if role is Role.PARAMETER and looks_like_a_table(tensor.name, values):
            self.tables.append(weight.name)
        return weight

    def _initializer(self, tensor: StoredTensor) -> Initializer | None:
        """The first values of a weight, by reference where the bytes in the file are those in memory."""
        if not self.weights:
            return None
        if not tensor.in_place:
            return Initializer("values", data=np.ascontiguousarray(tensor.array()).tobytes())
        assert tensor.source is not None
        assert tensor.range is not None
        digest = hashlib.sha256(tensor.bytes()).hexdigest()
        path = "" if tensor.source.path is None else str(tensor.source.path)
        return Initializer("values", file=FileRange(path, tensor.range.offset, digest))

    def _count_constant_bytes(self, size: int) -> None:
        self._constant_bytes += size
        if self._constant_bytes > _MAX_CONSTANT_BYTES:
            raise DocumentError(
                f"The constants of the model exceed {_MAX_CONSTANT_BYTES:,} bytes.",
                remedy="Give smaller dimensions, or keep large tables as weights.",
            )

    # ------------------------------------------------------------------------------------------- nodes

    def _results(self, at: _Node) -> Sequence[Value]:
        """The outputs of a node; none, or `Unknown`, where it cannot be imported, which is recorded."""
        node, op, inputs, opsets = at.node, at.node.op_type, at.inputs, at.frame.opsets
        key = (node.domain, op)
        if key in self.functions:
            return self._call(at, self.functions[key], at.attributes, _Place(key))
        if node.domain not in _ONNX and not (node.domain == "com.microsoft" and op in LOWERINGS):
            return self._report_missing(f"{node.domain}.{op}", at.name)
        opset = max((opsets[domain] for domain in _ONNX if domain in opsets), default=17)
        if op == "Constant":
            tensor = constant_tensor(node) if at.frame.place.is_own else None
            if tensor is None:
                return [_constant_node(at.attributes)]
            return [self.value_of(tensor, at.frame.place, is_initializer=False)]
        unknown = [Unknown()] * len(node.output)
        if any(isinstance(value, Unknown) for value in inputs):
            is_known = op in LOWERINGS or op in _BY_WALK or can_evaluate(op) or _has_body(node, opset)
            return unknown if is_known else self._report_missing(op, at.name)
        if op in ("Shape", "Size") and isinstance(inputs[0], Tensor | Constant):
            return [_shape_node(op, inputs[0].shape, at.attributes)]
        if op == "If":
            return self._branch(at)
        site = Site(op, at.name, opset, at.attributes, inputs, at.is_read, self.network)
        try:
            if op in ("Loop", "Scan"):
                return self._loop(at) if op == "Loop" else self._scan(at)
            present = [value for value in inputs if value is not None]
            are_constants = bool(present) and all(isinstance(value, Constant) for value in present)
            if are_constants and can_evaluate(op) and op not in _RANDOM:
                if self._is_filled_weight(site, node.output[0], at.frame.place):
                    return [self._filled_weight(site, node.output[0])]
                return self._computed(site)
            if op in LOWERINGS:
                return self._lowered(site, node)
        except Unsupported as error:
            self.faults.append(_fault(site, str(error)))
            return unknown
        except TooManyOperationsError:
            raise
        except (GraphError, DocumentError) as error:
            if op in ("Loop", "Scan"):
                raise
            error.path = ()
            self.faults.append(error)
            return unknown
        except _NONSENSE as error:
            self.faults.append(_fault(site, f"{type(error).__name__}: {error}"))
            return unknown
        body = _body(node, inputs, opset)
        if body is None:
            return self._report_missing(op, at.name)
        return self._call(at, body, {**_defaults(op, opset), **at.attributes}, _Place(is_own=False))

    def _deciding_inputs(self, value: Value | None) -> tuple[str, str]:
        """The inputs that decide a value, and options that fix them where they are no data of examples."""
        inputs, values = self._origins(value)
        types = [self.network.types[input_].type for input_ in inputs]
        is_switch = all(t.elements == 1 or len(t.shape) < 2 or not t.dtype.is_floating for t in types)
        shown = values[0] if values else "VALUE"
        fixed = " ".join(f"--input {argument(f'{input_}={shown}')}" for input_ in inputs)
        return ", ".join(map(repr, inputs)), fixed if is_switch else ""

    def _origins(self, condition: Value | None) -> tuple[list[str], list[Any]]:
        """The inputs that a value is computed from, and the numbers that are compared with on the way."""
        if not isinstance(condition, Tensor):
            return [], []
        needed, values = {condition.name}, []
        for operation in reversed(self.network.operations):
            if not needed.intersection(operation.outputs):
                continue
            needed.update(operation.inputs)
            operands = [self.network.operands[n] for n in operation.inputs if n in self.network.operands]
            for operand in operands if operation.type in _COMPARISONS else ():
                data = operand.initializer.data if operand.initializer is not None else None
                if operand.role is Role.CONSTANT and data is not None:
                    values.append(np.frombuffer(data, self.network.types[operand.id].dtype.numpy)[0])
        inputs = [o.id for o in self.network.operands.values() if o.role is Role.INPUT and o.id in needed]
        if any(self.network.operands[name].dtype is DType.BOOL for name in inputs):
            values = ["true"]
        return inputs, values

    def _report_missing(self, op: str, name: str) -> Sequence[Value]:
        self.missing.setdefault(op, []).append(name)
        return ()

    def _computed(self, site: Site) -> Sequence[Value]:
        results = evaluate(site)
        self._count_constant_bytes(sum(array.nbytes for array in results))
        parents = (value.origin for value in site.inputs if isinstance(value, Constant))
        origin = Origin(parents=tuple(parent for parent in parents if parent is not None))
        return [Constant(array, origin=origin) for array in results]

    def _is_filled_weight(self, site: Site, name: str, place: _Place) -> bool:
        if site.op != "ConstantOfShape" or not place.is_own:
            return False
        value = site.get("value", np.zeros(1, np.float32))
        is_zero = not value.any()
        return value.dtype.kind == "f" and self.roles.is_filled_weight(name, place.body, is_zero=is_zero)

    def _filled_weight(self, site: Site, name: str) -> Value:
        """A weight whose values are all the same, as models have that are published without their weights."""
        shape = tuple(int(size) for size in site.constant(0, "the shape").reshape(-1))
        value = site.get("value", np.zeros(1, np.float32))
        type_ = TensorType(shape, DType(value.dtype.name))
        initializer = Initializer("constant", value=float(value.reshape(-1)[0])) if self.weights else None
        return self.network.declare(name, Role.PARAMETER, type_, initializer)

    def _lowered(self, site: Site, node: onnx.NodeProto) -> Sequence[Value]:
        since = len(self.network.operations)
        if site.op == "BatchNormalization":
            site = self._normalisation(site, named=len(node.output))
        lowered = LOWERINGS[site.op](site)
        results = [lowered] if isinstance(lowered, Tensor | Constant | Sequence_ | Unknown) else list(lowered)
        for k, value in enumerate(results[: len(node.output)]):
            if isinstance(value, Tensor) and not value.name:
                results[k] = Unknown()  # nothing reads it
            elif isinstance(value, Tensor) and node.output[k]:
                results[k] = self.network.call_it(value, node.output[k], since)
        return results

    def _normalisation(self, site: Site, named: int) -> Site:
        """The site of a BatchNormalization with its mode, and own states for statistics that it updates."""
        trains = bool(site.get("training_mode", 0)) if site.opset >= 14 else named > 1
        if self.batch_norm is not None:
            trains = self.batch_norm == "train"
        self.normalised["train" if trains else "frozen"] += 1
        inputs = list(site.inputs)
        for i in (3, 4):
            value = inputs[i]
            if isinstance(value, Tensor) and (trains or self._is_parameter(value)):
                inputs[i] = self._own_state(value, ("zeros", "ones")[i - 3])
            elif trains and isinstance(value, Constant):
                type_ = TensorType(value.shape, DType(value.array.dtype.name))
                data = np.ascontiguousarray(value.array).tobytes()
                inputs[i] = self.network.declare(
                    value.name or f"{site.name}.{('mean', 'variance')[i - 3]}",
                    Role.STATE,
                    type_,
                    Initializer("values", data),
                )
        return replace(site, inputs=inputs, attributes={**site.attributes, "training_mode": int(trains)})

    def _is_parameter(self, value: Tensor) -> bool:
        known = self.network.operands.get(value.name)
        return known is not None and known.role is Role.PARAMETER

    def _own_state(self, statistic: Tensor, scheme: str) -> Tensor:
        """A state for one operation: another one where it is called twice, or where the model computes it.

        Exporters store equal tensors once, as the bias and the mean of an untrained network: the state then
        begins with the values of the weight.
        """
        state = statistic
        known = self.network.operands.get(statistic.name)
        if known is None or known.role is not Role.STATE:
            initializer = (known and known.initializer) or Initializer(scheme)
            state = self.network.declare(statistic.name, Role.STATE, statistic.type, initializer)
        elif statistic.name in self.updated:
            self.shared.append(statistic.name)
            state = self.network.declare(statistic.name, Role.STATE, statistic.type, known.initializer)
        self.updated.add(state.name)
        return state

    def _call(
        self, at: _Node, function: onnx.FunctionProto, attributes: Mapping[str, Any], place: _Place
    ) -> Sequence[Value]:
        """Walk a function's nodes with its inputs bound. It need not define what nothing reads."""
        formals = zip(function.input, at.inputs, strict=False)
        scope: _Scope = {formal: value for formal, value in formals if value is not None}
        own = {a.name: _attribute(a) for a in function.attribute_proto} | dict(attributes)
        opsets = {o.domain: o.version for o in function.opset_import}
        nodes = [_without_absent(node, scope, function) for node in function.node]
        frame = _Frame(opsets, place, f"{at.name}/", at.frame.depth + 1, own)
        self._run(nodes, scope, function.output, frame)
        return [
            self._fetch(scope, output, at.name) if read else Unknown()
            for output, read in zip(function.output, at.is_read, strict=False)
        ]

    def _branch(self, at: _Node) -> Sequence[Value]:
        """The branch that a known condition chooses."""
        condition = at.inputs[0] if at.inputs else None
        if not isinstance(condition, Constant) or condition.array.size != 1:
            deciding, fixed = self._deciding_inputs(condition)
            chooses = f"(If) chooses by {deciding or 'a number'}, known only when a step runs"
            self.undecided[at.name] = (chooses, fixed)
            return ()
        branch: Any = at.attributes.get("then_branch" if _number(condition) else "else_branch")
        if not hasattr(branch, "initializer"):
            raise DocumentError(
                f"Node {at.name!r:.80} (If) has no such branch.", remedy="Export the model again."
            )
        return self._run_graph(branch, at, at.inside(at.node.output[0]), {})

    def _run_graph(
        self, graph: onnx.GraphProto, at: _Node, frame: _Frame, bound: Mapping[str, Value]
    ) -> Sequence[Value]:
        """The results of a branch, or of one round of a loop. It sees the names around its node.

        Its weights are the same in all rounds.
        """
        held = {tensor.name: self.value_of(tensor, frame.place) for tensor in tensors_of(graph)}
        scope: _Scope = ChainMap({**held, **bound}, at.scope)
        results = [output.name for output in graph.output]
        self._run(graph.node, scope, results, frame)
        return [self._fetch(scope, result, at.name) for result in results]

    def _round(self, at: _Node, k: int, operands: Sequence[Value | None]) -> Sequence[Value] | None:
        """The results of round `k` of a loop's body, or None where one of them is unknown."""
        graph: Any = at.attributes.get("body")
        if not hasattr(graph, "initializer"):
            raise DocumentError(f"Node {at.name!r:.80} has no body.", remedy="Export the model again.")
        formals = zip(graph.input, operands, strict=False)
        bound = {formal.name: value for formal, value in formals if value is not None}
        frame = at.inside(next(filter(None, at.node.output), at.name))
        outputs = self._run_graph(graph, at, replace(frame, prefix=f"{at.name}/{k}/"), bound)
        return None if any(isinstance(value, Unknown) for value in outputs) else outputs

    def _loop(self, at: _Node) -> Sequence[Value]:
        """The rounds of a loop whose number is known, one after the other."""
        count, condition, *carried = (*at.inputs, None, None)[: max(2, len(at.inputs))]
        known = [value for value in (count, condition) if value is not None]
        if count is None or not all(isinstance(value, Constant) and value.array.size == 1 for value in known):
            for value in known:
                deciding, fixed = self._deciding_inputs(value)
                if fixed:
                    counted = f"(Loop) has rounds that are counted at run time, by {deciding}"
                    self.undecided[at.name] = (counted, fixed)
                    return ()
            return self._report_missing("Loop (of rounds that are counted at run time)", at.name)
        rounds = _number(count) if condition is None or _number(condition) else 0
        columns: list[list[Value]] = [[] for _ in at.node.output[len(carried) :]]
        if rounds > _MAX_ROUNDS or (columns and rounds < 1):
            return self._report_missing(f"Loop (of {rounds:,} rounds)", at.name)
        for k in range(rounds):
            index, goes_on = Constant(np.asarray(k, np.int64)), Constant(np.asarray(True))
            outputs = self._round(at, k, [index, goes_on, *carried])
            if outputs is None:
                return [Unknown()] * len(at.node.output)
            if not isinstance(outputs[0], Constant):
                return self._report_missing("Loop (that ends on a value computed at run time)", at.name)
            carried = list(outputs[1 : 1 + len(carried)])
            for values, value in zip(columns, outputs[1 + len(carried) :], strict=True):
                values.append(value)
            if not _number(outputs[0]):
                break
        stacked = [self._stacked(at.name, values) for values in columns]
        return [value or Unknown() for value in carried] + stacked

    def _scan(self, at: _Node) -> Sequence[Value]:
        """A round for each position of the operands that are scanned."""
        attributes, count = at.attributes, at.attributes["num_scan_inputs"]
        states, scanned = list(at.inputs[: len(at.inputs) - count]), at.inputs[len(at.inputs) - count :]
        columns: list[list[Value]] = [[] for _ in at.node.output[len(states) :]]
        axes = attributes.get("scan_input_axes", (0,) * count)
        backwards = attributes.get("scan_input_directions", (0,) * count)
        site = Site("Scan", at.name, 13, {}, scanned, [], self.network)
        rounds = {site.shape(i)[axis] for i, axis in enumerate(axes)}
        if len(rounds) != 1 or max(rounds) > _MAX_ROUNDS:
            return self._report_missing(
                f"Scan (of {' or '.join(f'{n:,}' for n in sorted(rounds))} rounds)", at.name
            )
        for k in range(max(rounds)):
            parts: list[Value] = []
            for i, axis in enumerate(axes):
                shape = site.shape(i)
                position = shape[axis] - 1 - k if backwards[i] else k
                rest = [size for j, size in enumerate(shape) if j != axis % len(shape)]
                part = site.cut(site.value(i), axis % len(shape), position, position + 1)
                parts.append(site.reshape(part, rest))
            outputs = self._round(at, k, [*states, *parts])
            if outputs is None:
                return [Unknown()] * len(at.node.output)
            states = list(outputs[: len(states)])
            for values, value in zip(columns, outputs[len(states) :], strict=True):
                values.append(value)
        outward = attributes.get("scan_output_directions", (0,) * len(columns))
        places = attributes.get("scan_output_axes", (0,) * len(columns))
        stacked = [
            self._stacked(at.name, values[::-1] if turned else values, axis)
            for values, turned, axis in zip(columns, outward, places, strict=True)
        ]
        return [value or Unknown() for value in states] + stacked

    def _stacked(self, name: str, values: Sequence[Value], axis: int = 0) -> Value:
        site = Site("ConcatFromSequence", name, 13, {"axis": axis, "new_axis": 1}, [Sequence_(tuple(values))],
                    [True], self.network)  # fmt: skip
        stacked = LOWERINGS["ConcatFromSequence"](site)
        assert isinstance(stacked, Tensor)
        return stacked


def _number(value: Value | None) -> int:
    assert isinstance(value, Constant)
    return int(value.array.reshape(-1)[0])


def _check_names(node: onnx.NodeProto) -> None:
    """Raises DocumentError for names that are not UTF-8, for which protobuf returns bytes."""
    names = (
        node.name,
        node.op_type,
        node.domain,
        *node.input,
        *node.output,
        *(a.name for a in node.attribute),
    )
    if not all(isinstance(name, str) for name in names):
        raise DocumentError(
            f"A name of node {node.name!r:.80} is not UTF-8.", remedy="Export the model again."
        )


def names_read(nodes: Sequence[onnx.NodeProto]) -> frozenset[str]:
    """Names that nodes read, also in the branches of nodes."""
    names: set[str] = set()
    for node in nodes:
        names.update(node.input)
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                names |= names_read(graph.node) | {output.name for output in graph.output}
    return frozenset(names)


def _fault(site: Site, why: str) -> GraphError:
    return GraphError(
        f"Node {site.name!r:.80} ({site.op}) cannot be imported: {why}.",
        remedy="Export the model without it, or in another form.",
    )


def _attributes(node: onnx.NodeProto, call_attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """The attributes of a node. Inside a function some refer to attributes of the call, if it has them."""
    attributes: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if call_attributes is not None and attribute.ref_attr_name in call_attributes:
                attributes[attribute.name] = call_attributes[attribute.ref_attr_name]
        else:
            attributes[attribute.name] = _attribute(attribute)
    return attributes


def _attribute(attribute: onnx.AttributeProto) -> Any:
    """The value of an attribute: a number, a text, a tuple of these, an array, or a graph."""
    import onnx

    try:
        value = onnx.helper.get_attribute_value(attribute)
    except ValueError as error:
        raise DocumentError(
            f"An attribute cannot be read: {error}.", remedy="Export the model again."
        ) from None
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float | onnx.GraphProto):
        return value
    if isinstance(value, Sequence):
        return tuple(v.decode(errors="replace") if isinstance(v, bytes) else v for v in value)
    return value


def _constant_node(attributes: Mapping[str, Any]) -> Value:
    words = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for key, dtype in words.items():
        if key in attributes:
            return Constant(np.asarray(attributes[key], dtype))
    value = attributes.get("value")
    return Constant(value) if isinstance(value, np.ndarray) else Unknown()


def _shape_node(op: str, shape: Sequence[int], attributes: Mapping[str, Any]) -> Value:
    if op == "Size":
        return Constant(np.asarray(int(np.prod(shape, dtype=object)) if shape else 1, np.int64))
    return Constant(
        np.asarray(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], np.int64)
    )


def _without_absent(node: onnx.NodeProto, scope: _Scope, function: onnx.FunctionProto) -> onnx.NodeProto:
    """Optional inputs of a function that the call leaves out are left out inside, too."""
    absent = {formal for formal in function.input if formal not in scope}
    if not absent.intersection(node.input):
        return node
    import onnx

    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    kept = ["" if n in absent else n for n in copy.input]
    del copy.input[:]
    copy.input.extend(kept)
    return copy


def _schema(op: str, opset: int) -> Any:
    import onnx

    try:
        return onnx.defs.get_schema(op, opset)
    except (onnx.defs.SchemaError, TypeError):  # TypeError: versions beyond 32 bits
        return None


def _has_body(node: onnx.NodeProto, opset: int) -> bool:
    schema = _schema(node.op_type, opset)
    return schema is not None and (schema.has_function or schema.has_context_dependent_function)


def _defaults(op: str, opset: int) -> dict[str, Any]:
    schema = _schema(op, opset)
    return {key: _attribute(a.default_value) for key, a in schema.attributes.items() if a.default_value.name}


def _body(node: onnx.NodeProto, inputs: Sequence[Value | None], opset: int) -> onnx.FunctionProto | None:
    """The function by which ONNX itself defines the operator, or None."""
    import onnx

    schema = _schema(node.op_type, opset)
    if schema is None or not (schema.has_function or schema.has_context_dependent_function):
        return None
    function = onnx.FunctionProto()
    if schema.has_function:
        function.CopyFrom(schema.function_body)
        return function
    types = [_type_message(value).SerializeToString() for value in inputs]
    versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
    text = schema.get_context_dependent_function_with_opset_version(
        max(versions, default=opset), node.SerializeToString(), types
    )
    function.ParseFromString(text)
    return function if len(function.node) else None


def _type_message(value: Value | None) -> onnx.TypeProto:
    import onnx

    if isinstance(value, Tensor):
        element = onnx.helper.np_dtype_to_tensor_dtype(value.type.dtype.numpy)
        return onnx.helper.make_tensor_type_proto(element, value.shape)
    if isinstance(value, Constant):
        return onnx.helper.make_tensor_type_proto(
            onnx.helper.np_dtype_to_tensor_dtype(value.array.dtype), value.shape
        )
    return onnx.TypeProto()


def expanded_by_onnx() -> tuple[frozenset[str], frozenset[str]]:
    """(All operators of the newest opset, those that ONNX defines by others). Needs the package onnx."""
    import onnx

    schemas: list[Any] = [schema for schema in onnx.defs.get_all_schemas() if schema.domain in _ONNX]
    names = frozenset(schema.name for schema in schemas)
    bodies = (s.name for s in schemas if s.has_function or s.has_context_dependent_function)
    return names, frozenset(bodies)
