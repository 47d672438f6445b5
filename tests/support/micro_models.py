"""Small TensorFlow Lite files for the interpreter of microcontrollers.

`branching_model` has branches that a greedy plan does not place at the bound. `STATEFUL` are models that keep
something from one inference to the next, or that run several subgraphs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from solver.graph.types import Array
from solver.importers.circle.read import read_subgraphs
from tests.support.circle_models import CircleFile

__all__ = ["STATEFUL", "batches", "branching_model", "interpreted", "random_stateful_model"]


def branching_model(seed: int, operators: int = 24) -> bytes:
    """Products of random widths, each of one of the last five values; what is left is joined at the end."""
    random = np.random.default_rng(seed)
    file = CircleFile()
    x = file.input("x", (1, 8))
    width, live = {x: 8}, [x]
    for k in range(operators):
        source, units = live[random.integers(len(live))], int(random.integers(1, 64)) * 4
        values = random.standard_normal((units, width[source])) / width[source] ** 0.5
        weight, y = file.constant(f"w{k}", values.astype(np.float32)), file.tensor(f"y{k}", (1, units))
        fused = {"fusedActivationFunction": "RELU"}
        file.operator("FULLY_CONNECTED", [source, weight, -1], [y], "FullyConnectedOptions", fused)
        width[y] = units
        live = [*live, y][-5:]
    total = sum(width[value] for value in live)
    joined, out = file.tensor("joined", (1, total)), file.tensor("out", (1, 4))
    file.operator("CONCATENATION", live, [joined], "ConcatenationOptions", {"axis": 1})
    last = file.constant("last", random.standard_normal((4, total)).astype(np.float32))
    file.operator("FULLY_CONNECTED", [joined, last, -1], [out], "FullyConnectedOptions")
    return file.write(out, identifier=b"TFL3")


# ------------------------------------------------------------------------------- models with state


class _Part:
    """Layers of one subgraph of a file, with random weights."""

    def __init__(self, file: CircleFile, seed: int) -> None:
        self.file, self._random = file, np.random.default_rng(seed)

    def constant(self, *shape: int) -> int:
        values = self._random.standard_normal(shape) / shape[-1] ** 0.5
        return self.file.constant(f"c{len(self.file.tensors)}", values.astype(np.float32))

    def integer(self, value: int) -> int:
        return self.file.constant(f"c{len(self.file.tensors)}", np.array([value], np.int32))

    def tensor(self, *shape: int, dtype: str = "float32", variable: bool = False) -> int:
        name = f"{'state' if variable else 't'}{len(self.file.tensors)}"
        return self.file.tensor(name, shape, dtype, variable=variable)

    def dense(self, x: int, width: int, units: int) -> int:
        y = self.tensor(1, units)
        operands = [x, self.constant(units, width), -1]
        self.file.operator("FULLY_CONNECTED", operands, [y], "FullyConnectedOptions")
        return y

    def padded(self, x: int, width: int, units: int = 8) -> int:
        """Products that need far more bytes than what goes in and comes out: they cover others' places."""
        return self.dense(self.dense(x, width, 64), 64, units)

    def filtered(self, x: int, width: int, units: int, memory: int = 4) -> int:
        """SVDF, whose state are the last `memory` projections of its input."""
        y = self.tensor(1, units)
        weights = [self.constant(units, width), self.constant(units, memory), self.constant(units)]
        state = self.tensor(1, units * memory, variable=True)
        self.file.operator("SVDF", [x, *weights, state], [y], "SVDFOptions", {"rank": 1})
        return y

    def recurrent(self, x: int, width: int, units: int, steps: int) -> int:
        """An LSTM over [1, steps, width], whose state goes on in the next inference."""
        y = self.tensor(1, steps, units)
        inputs = [self.constant(units, width) for _ in range(4)]
        hidden = [self.constant(units, units) for _ in range(4)]
        biases = [self.constant(units) for _ in range(4)]
        states = [self.tensor(1, units, variable=True) for _ in range(2)]
        operands = [x, *inputs, *hidden, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
        options = {"fusedActivationFunction": "TANH", "cellClip": 0.0, "projClip": 0.0}
        table = "UnidirectionalSequenceLSTMOptions"
        self.file.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], table, options)
        return y

    def flat(self, x: int, units: int) -> int:
        y = self.tensor(1, units)
        shape = self.file.constant(f"c{len(self.file.tensors)}", np.array([1, units], np.int32))
        self.file.operator("RESHAPE", [x, shape], [y], "ReshapeOptions")
        return y

    def sum(self, a: int, b: int, units: int, dtype: str = "float32") -> int:
        y = self.tensor(1, units, dtype=dtype) if units else self.tensor(1, dtype=dtype)
        self.file.operator("ADD", [a, b], [y], "AddOptions")
        return y

    def handle(self, name: str) -> int:
        handle = self.file.tensor(f"handle of {name}", (), "resource")
        options = {"sharedName": name, "container": ""}
        self.file.operator("VAR_HANDLE", [], [handle], "VarHandleOptions", options)
        return handle

    def read(self, handle: int, units: int) -> int:
        y = self.tensor(1, units)
        self.file.operator("READ_VARIABLE", [handle], [y], "ReadVariableOptions")
        return y

    def assign(self, handle: int, x: int) -> None:
        self.file.operator("ASSIGN_VARIABLE", [handle, x], [], "AssignVariableOptions")

    def call_once(self, part: CircleFile) -> None:
        self.file.operator("CALL_ONCE", [], [], "CallOnceOptions", {"initSubgraphIndex": part.index})

    def choose(self, condition: int, x: int, units: int, then: CircleFile, other: CircleFile) -> int:
        y = self.tensor(1, units)
        options = {"thenSubgraphIndex": then.index, "elseSubgraphIndex": other.index}
        self.file.operator("IF", [condition, x], [y], "IfOptions", options)
        return y


def _started() -> tuple[CircleFile, _Part, int]:
    """A file with an input of eight."""
    file = CircleFile()
    return file, _Part(file, 7), file.input("x", (1, 8))


def _written(file: CircleFile, *outputs: int) -> bytes:
    return file.write(*outputs, identifier=b"TFL3")


def _filter() -> bytes:
    file, part, x = _started()
    return _written(file, part.padded(part.filtered(part.dense(x, 8, 8), 8, 16), 16, 4))


def _two_filters() -> bytes:
    file, part, x = _started()
    first = part.filtered(part.padded(x, 8), 8, 24, memory=6)
    return _written(file, part.padded(part.filtered(part.padded(first, 24), 8, 12), 12, 4))


def _recurrent() -> bytes:
    file = CircleFile()
    part, x = _Part(file, 3), file.input("x", (1, 2, 4))
    y = part.flat(part.recurrent(x, 4, 6, 2), 12)
    return _written(file, part.padded(y, 12, 4))


def _state_is_output() -> bytes:
    """The state of a filter is handed out as well."""
    file, part, x = _started()
    y = part.padded(part.filtered(part.padded(x, 8), 8, 16), 16, 4)
    state = next(k for k, tensor in enumerate(file.tensors) if tensor.isVariable)
    return _written(file, y, state)


def _input_is_output() -> bytes:
    file, part, x = _started()
    y = part.padded(part.filtered(part.padded(x, 8), 8, 16), 16, 4)
    return _written(file, y, x)


def _constant_is_output() -> bytes:
    file, part, x = _started()
    y = part.padded(part.filtered(part.padded(x, 8), 8, 16), 16, 4)
    return _written(file, y, part.constant(1, 8))


def _unread_state() -> bytes:
    """A variable that no operator reads, and a result that nobody reads."""
    file, part, x = _started()
    part.tensor(1, 32, variable=True)
    part.dense(x, 8, 40)
    return _written(file, part.padded(part.filtered(part.dense(x, 8, 8), 8, 16), 16, 4))


def _initial(file: CircleFile, *names: str, units: int = 8) -> CircleFile:
    """A subgraph that sets resource variables, by way of large products."""
    called = file.subgraph()
    for k, name in enumerate(names):
        part = _Part(called, 20 + k)
        part.assign(part.handle(name), part.padded(part.constant(1, 8), 8, units))
    return called


def _state_at_the_number_of_another() -> bytes:
    """The variable of a branch has the number, within its subgraph, of a tensor of the main one."""
    file = CircleFile()
    part, condition, x = _Part(file, 5), file.input("condition", (1,), "bool"), file.input("x", (1, 8))
    before = part.padded(x, 8, 16)
    branches = _branches(file, state=True)
    variable = next(k for k, tensor in enumerate(branches[0].tensors) if tensor.isVariable)
    y = part.choose(condition, x, 16, *branches)
    while len(file.tensors) <= variable + 1:
        y = part.sum(y, before, 16)
    return _written(file, part.padded(y, 16, 4))


def _accumulated() -> bytes:
    """A resource variable sums up the inputs."""
    file, part, x = _started()
    part.call_once(_initial(file, "total"))
    handle = part.handle("total")
    total = part.sum(part.read(handle, 8), part.padded(x, 8), 8)
    part.assign(handle, total)
    return _written(file, part.padded(total, 8, 4))


def _two_resources() -> bytes:
    """Two resource variables change places in each inference."""
    file, part, x = _started()
    part.call_once(_initial(file, "a", "b"))
    first, second = part.handle("a"), part.handle("b")
    a, b = part.read(first, 8), part.read(second, 8)
    part.assign(first, part.sum(b, part.padded(x, 8), 8))
    part.assign(second, a)
    return _written(file, part.padded(part.sum(a, b, 8), 8, 4))


def _branches(file: CircleFile, *, state: bool) -> tuple[CircleFile, CircleFile]:
    """Two subgraphs from eight to sixteen."""
    made = []
    for seed in (31, 32):
        called = file.subgraph()
        part, x = _Part(called, seed), called.input("x", (1, 8))
        x = part.padded(x, 8)
        called.outputs = [part.filtered(x, 8, 16) if state else part.padded(x, 8, 16)]
        made.append(called)
    return made[0], made[1]


def _chosen(*, state: bool) -> bytes:
    """IF, on a condition that the caller gives; after it a value that was there before."""
    file = CircleFile()
    part, condition, x = _Part(file, 5), file.input("condition", (1,), "bool"), file.input("x", (1, 8))
    before = part.padded(x, 8, 16)
    y = part.choose(condition, x, 16, *_branches(file, state=state))
    return _written(file, part.padded(part.sum(before, y, 16), 16, 4))


def _loop(file: CircleFile, part: _Part, x: int, *, state: bool, times: int = 3) -> int:
    """WHILE counter < times: counter + 1, and products of the value, which go through a filter if `state`."""
    condition, body = file.subgraph(), file.subgraph()
    inside = _Part(condition, 41)
    counter = condition.input("counter", (1,), "int32")
    condition.input("value", (1, 8))
    condition.outputs = [inside.tensor(1, dtype="bool")]
    condition.operator("LESS", [counter, inside.integer(times)], condition.outputs, "LessOptions")
    inside = _Part(body, 42)
    counter, value = body.input("counter", (1,), "int32"), body.input("value", (1, 8))
    counted = inside.sum(counter, inside.integer(1), 0, "int32")
    value = inside.padded(value, 8)
    value = inside.filtered(value, 8, 8) if state else inside.padded(value, 8)
    body.outputs = [counted, value]
    start, results = part.integer(0), [part.tensor(1, dtype="int32"), part.tensor(1, 8)]
    options = {"condSubgraphIndex": condition.index, "bodySubgraphIndex": body.index}
    part.file.operator("WHILE", [start, x], results, "WhileOptions", options)
    return results[1]


def _looped(*, state: bool) -> bytes:
    file, part, x = _started()
    before = part.padded(x, 8)
    y = _loop(file, part, part.dense(x, 8, 8), state=state)
    return _written(file, part.padded(part.sum(before, y, 8), 8, 4))


def _loop_in_a_branch() -> bytes:
    """IF whose first branch runs WHILE, with states on all levels."""
    file = CircleFile()
    part, condition, x = _Part(file, 5), file.input("condition", (1,), "bool"), file.input("x", (1, 8))
    then, other = file.subgraph(), file.subgraph()
    inside = _Part(then, 51)
    y = inside.padded(inside.filtered(then.input("x", (1, 8)), 8, 8), 8)
    then.outputs = [_loop(file, inside, y, state=True)]
    inside = _Part(other, 52)
    other.outputs = [inside.filtered(inside.padded(other.input("x", (1, 8)), 8), 8, 8)]
    y = part.choose(condition, part.filtered(x, 8, 8), 8, then, other)
    return _written(file, part.padded(part.sum(y, x, 8), 8, 4))


def _resource_in_a_loop() -> bytes:
    """The body of WHILE adds to a resource variable, which the main subgraph reads before and after."""
    file, part, x = _started()
    part.call_once(_initial(file, "total"))
    condition, body = file.subgraph(), file.subgraph()
    inside = _Part(condition, 61)
    counter = condition.input("counter", (1,), "int32")
    condition.outputs = [inside.tensor(1, dtype="bool")]
    condition.operator("LESS", [counter, inside.integer(4)], condition.outputs, "LessOptions")
    inside = _Part(body, 62)
    counter = body.input("counter", (1,), "int32")
    handle = inside.handle("total")
    inside.assign(handle, inside.padded(inside.read(handle, 8), 8))
    body.outputs = [inside.sum(counter, inside.integer(1), 0, "int32")]
    before = part.read(part.handle("total"), 8)
    start, count = part.integer(0), part.tensor(1, dtype="int32")
    options = {"condSubgraphIndex": condition.index, "bodySubgraphIndex": body.index}
    file.operator("WHILE", [start], [count], "WhileOptions", options)
    after = part.read(part.handle("total"), 8)
    return _written(file, part.padded(part.sum(part.sum(before, after, 8), x, 8), 8, 4), count)


def _unused_subgraph() -> bytes:
    """Subgraphs that nothing runs. With variables in them the interpreter crashes, with a plan or without."""
    file, part, x = _started()
    _branches(file, state=False)
    return _written(file, part.padded(part.filtered(part.padded(x, 8), 8, 16), 16, 4))


def _collected() -> bytes:
    """A circular buffer of the last inputs, of eight numbers of eight bits each."""
    file = CircleFile()
    x, y = (
        file.input("x", (1, 1, 1, 8), "int8"),
        file.tensor("collected", (1, 3, 1, 8), "int8", variable=True),
    )
    file.operator("CUSTOM", [x], [y], custom="CIRCULAR_BUFFER")
    wide, out = file.tensor("wide", (1, 6, 1, 8), "int8"), file.tensor("out", (1, 9, 1, 8), "int8")
    for operands, result in (([y, y], wide), ([wide, y], out)):
        file.operator("CONCATENATION", operands, [result], "ConcatenationOptions", {"axis": 1})
    return _written(file, out)


def random_stateful_model(seed: int, layers: int = 12) -> bytes:
    """Layers of random kinds on random values of those before, with state of every kind and branches."""
    random = np.random.default_rng(seed)
    file = CircleFile()
    condition, x = file.input("condition", (1,), "bool"), file.input("x", (1, 8))
    part, live = _Part(file, seed), [x]
    part.call_once(_initial(file, "a", "b"))
    for k in range(layers):
        source = live[random.integers(len(live))]
        match random.integers(6):
            case 0:
                y = part.padded(source, 8)
            case 1:
                y = part.filtered(source, 8, 8, memory=int(random.integers(2, 9)))
            case 2:
                handle = part.handle("ab"[random.integers(2)])
                y = part.sum(part.read(handle, 8), source, 8)
                part.assign(handle, part.dense(y, 8, 8))
            case 3:
                parts = [file.subgraph(), file.subgraph()]
                for j, called in enumerate(parts):
                    inside, value = _Part(called, seed + 10 * k + j), called.input("x", (1, 8))
                    value = inside.padded(value, 8) if random.integers(2) else value
                    called.outputs = [inside.filtered(value, 8, 8) if random.integers(2) else value]
                y = part.choose(condition, source, 8, *parts)
            case 4:
                y = _loop(file, part, source, state=bool(random.integers(2)), times=int(random.integers(4)))
            case _:
                y = part.sum(source, live[random.integers(len(live))], 8)
        live = [*live, y][-4:]
    outputs = [live[k] for k in range(len(live)) if k == len(live) - 1 or random.integers(3) == 0]
    return _written(file, *outputs)


#: Models by what they keep. Each takes `batches`.
STATEFUL: Final[Mapping[str, Callable[[], bytes]]] = MappingProxyType(
    {
        "SVDF": _filter,
        "two SVDF": _two_filters,
        "LSTM": _recurrent,
        "the state is an output": _state_is_output,
        "an input is an output": _input_is_output,
        "a constant is an output": _constant_is_output,
        "a state that nobody reads": _unread_state,
        "a resource variable": _accumulated,
        "two resource variables": _two_resources,
        "IF": lambda: _chosen(state=False),
        "IF with states": lambda: _chosen(state=True),
        "IF with a state at the number of another": _state_at_the_number_of_another,
        "WHILE": lambda: _looped(state=False),
        "WHILE with a state": lambda: _looped(state=True),
        "WHILE in IF": _loop_in_a_branch,
        "a resource variable in WHILE": _resource_in_a_loop,
        "subgraphs that nothing runs": _unused_subgraph,
        "a circular buffer": _collected,
    }
)


def batches(data: bytes, inferences: int) -> list[list[Array]]:
    """Arrays for the inputs of a model, for some inferences one after the other."""
    model = read_subgraphs(data)[0]
    made = []
    for k in range(inferences):
        random = np.random.default_rng(k)
        normal = [10 * random.standard_normal(model.tensors[number].shape) for number in model.inputs]
        dtypes = [model.tensors[number].dtype for number in model.inputs]
        made.append([v > 0 if t == "|b1" else v.astype(t) for v, t in zip(normal, dtypes, strict=True)])
    return made


def interpreted(data: bytes, inferences: int = 6) -> list[list[bytes] | None]:
    """The outputs of TFLM's interpreter; None for an inference that an operator ends before the outputs.

    Raises ModuleNotFoundError without the package tflite-micro, whose builds are daily.
    """
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(data, arena_size=1 << 20)
    outputs: list[list[bytes] | None] = []
    for batch in batches(data, inferences):
        for index, array in enumerate(batch):
            interpreter.set_input(array, index)
        done = interpreter.invoke() == 0
        count = len(read_subgraphs(data)[0].outputs)
        outputs.append([interpreter.get_output(k).tobytes() for k in range(count)] if done else None)
    return outputs
