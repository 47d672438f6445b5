"""One memory plan for all methods of an ExecuTorch program.

Methods never run at the same time, and ExecuTorch's runtime gives all of them the same memories. So what one
method leaves there for its next call, or for another method, is safe only where no method writes its
activations. Such a tensor is called a state: a buffer that a method writes, or a weight that has a gradient.

    memory 1   [ states ][ activations of train                ]      one address for each state,
               [ states ][ activations of infer ]                     in each method that names it

ExecuTorch plans each method alone, so activations of one method lie on states of another. Its option
`share_mutable_buffers` shares buffers, not weights, and allows for no memories of the user's. Written for
ExecuTorch 1.5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from solver.errors import OptionsError, PlanError
from solver.exporters.executorch import (
    DEFAULT_MEMORY,
    not_installed,
    placed,
    refuse_options,
    warn_of_stale_reads,
)
from solver.exporters.executorch_graph import offset_in_root, root

__all__ = ["ProgramMemoryPlanningPass"]


@dataclass(slots=True)
class _Graph:
    """A graph with its tensors to be planned, as ExecuTorch hands them to a planning algorithm."""

    graph_module: Any
    signature: Any
    alignment: int
    padding: int
    specs: list[Any]

    @property
    def sizes(self) -> list[int]:
        """The sizes of the memories. They change in place: ExecuTorch copies the dictionary, not the list."""
        sizes: list[int] = self.graph_module.meta["non_const_buffer_sizes"]
        return sizes


@dataclass(slots=True)
class _Method(_Graph):
    #: The memory that a pass of the user has chosen, by `id` of the tensor.
    memories: dict[int, int | None]
    #: The graphs of branches and loops, each behind those inside of it.
    submodules: list[_Graph]
    #: What is planned and in the bytes of no state; and what is part of one.
    activations: list[Any] = field(default_factory=list)
    parts: list[Any] = field(default_factory=list)

    def __str__(self) -> str:
        inputs = getattr(self.signature, "user_inputs", ())
        return f"the method with inputs ({', '.join(map(str, inputs))})"


@dataclass(slots=True)
class _State:
    """All tensors of one name, which are the same bytes, each with its method."""

    name: str
    uses: list[tuple[_Method, Any]]

    @property
    def specs(self) -> list[Any]:
        return [spec for _, spec in self.uses]


class ProgramMemoryPlanningPass:
    """Plans all methods of a program together: `ExecutorchBackendConfig(memory_planning_pass=...)` takes it.

    A state has one address in all methods that name it, and nothing else ever lies there; activations of
    different methods share the other bytes. Tensors are one state if their full names in the modules are the
    same; they must agree in type and shape (`PlanError`). Each memory of a method has the size of the states
    and of what the method needs above them, which is never more than `greedy` makes it.

    `deadline_seconds` is that of `plan_memory`, and so are the errors. `alignment` is in bytes. Raises
    OptionsError for tensors in the memory of another device, too. After an export that failed elsewhere, make
    a new pass for the next one.
    """

    def __init__(
        self,
        *,
        alignment: int = 16,
        alloc_graph_input: bool = True,
        alloc_graph_output: bool = True,
        deadline_seconds: float | None = None,
        **options: Any,
    ) -> None:
        refuse_options("ProgramMemoryPlanningPass", options)
        try:
            from executorch.exir.passes import MemoryPlanningPass
        except ImportError as error:
            raise not_installed() from error
        self.enable_non_cpu_memory_planning = False  # `to_executorch` sets it
        self._deadline_seconds = deadline_seconds
        self._theirs = MemoryPlanningPass(
            self._collect,
            alloc_graph_input=alloc_graph_input,
            alloc_graph_output=alloc_graph_output,
            alignment=alignment,
        )
        self._methods: list[_Method] = []
        self._graph_module: Any = None
        self._submodules: list[_Graph] = []

    def run(self, graph_module: Any, graph_signature: Any = None) -> Any:
        """Take a method of the program; ExecuTorch calls this for each one."""
        self._graph_module, self._submodules = graph_module, []
        self._theirs.enable_non_cpu_memory_planning = self.enable_non_cpu_memory_planning
        try:
            return self._theirs.run(graph_module, graph_signature)
        except BaseException:
            self._methods.clear()  # the program will not be built, and the next one has methods of its own
            raise

    def run_multimethod(self) -> None:
        """Place the tensors of all methods that `run` has taken; ExecuTorch calls this last."""
        methods, self._methods = self._methods, []
        if not methods:
            return
        states = _states(methods)
        _sort_specs(methods, states)
        bottoms = _place_states(states)
        for method in methods:
            self._place_activations(method, bottoms)
        for method in methods:
            warn_of_stale_reads(method.graph_module, {})

    def _collect(
        self, alignment: int, specs: Sequence[Any], graph_module: Any, graph_signature: Any, padding: int
    ) -> list[int]:
        """The algorithm that ExecuTorch calls: plans branches and loops at once, and others provisionally."""
        if any(getattr(spec.device, "name", "CPU") != "CPU" for spec in specs):
            raise OptionsError(
                "The program has tensors that are not in the host's memory; other devices have no states of"
                " several methods.",
                remedy="Plan it with MemoryPlanningAlgorithmSuite([arenaplan.executorch.plan_memory]),"
                " or pass enable_non_cpu_memory_planning=False to ExecutorchBackendConfig.",
            )
        arguments = graph_module, graph_signature, alignment, padding, list(specs)
        if graph_module is not self._graph_module:
            self._submodules.append(graph := _Graph(*arguments))
            return self._place(graph, graph.specs)
        memories = {id(spec): spec.mem_id for spec in specs}
        self._methods.append(_Method(*arguments, memories, self._submodules))
        numbers = [spec.mem_id or DEFAULT_MEMORY for spec in specs]
        for spec, memory in zip(specs, numbers, strict=True):
            spec.realign(alignment)
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = memory, 0, 0
        return [0] * (max([DEFAULT_MEMORY, *numbers]) + 1)

    def _place(self, graph: _Graph, specs: Sequence[Any]) -> list[int]:
        """Places tensors of a graph above what its branches and loops take; the sizes of all memories."""
        result = placed(
            *(graph.alignment, specs, graph.graph_module, graph.signature, graph.padding),
            self._deadline_seconds,
        )
        for spec, place in result.spec_dict.items():
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = place.mem_id, place.mem_obj_id, place.mem_offset
        return list(result.bufsizes)

    def _place_activations(self, method: _Method, bottoms: Mapping[int, int]) -> None:
        """Places above the states and what branches and loops take, and the sizes of all memories."""
        sizes = _above(bottoms, _taken(method))
        for graph in method.submodules:
            graph.sizes[:] = _above(bottoms, graph.sizes)
            for spec in graph.specs:
                spec.mem_offset += bottoms.get(spec.mem_id, 0)
        method.graph_module.input_mem_buffer_sizes = list(sizes)
        if method.activations:
            placed_sizes = self._place(method, method.activations)
            sizes += [0] * (len(placed_sizes) - len(sizes))
            sizes[: len(placed_sizes)] = map(max, sizes, placed_sizes)
        for spec in method.parts:
            spec.mem_id, spec.mem_offset = root(spec).mem_id, root(spec).mem_offset + offset_in_root(spec)
        sizes += [0] * (DEFAULT_MEMORY + 1 - len(sizes))
        method.sizes[:] = sizes


def _states(methods: Sequence[_Method]) -> list[_State]:
    """The states of a program, in the order of their names: what has a name in a module and is planned."""
    uses: dict[str, list[tuple[_Method, Any]]] = {}
    planned: set[str] = set()
    for method in methods:
        to_plan = {id(spec) for spec in method.specs}
        for name, spec in _named(method):
            uses.setdefault(name, []).append((method, spec))
            if id(spec) in to_plan:
                planned.add(name)
    return [_State(name, uses[name]) for name in sorted(planned)]


def _named(method: _Method) -> Iterator[tuple[str, Any]]:
    """Buffers and parameters of a method by their full names."""
    signature = method.signature
    if signature is None:
        return
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    for node in method.graph_module.graph.nodes:
        if node.op == "placeholder" and node.target in names and hasattr(node.meta["spec"], "mem_id"):
            yield names[node.target], node.meta["spec"]


def _sort_specs(methods: Sequence[_Method], states: Sequence[_State]) -> None:
    """Tells activations from states and their parts, and takes back the provisional memories."""
    of_states = {id(spec) for state in states for spec in state.specs}
    for method in methods:
        for spec in method.specs:
            spec.mem_id, spec.mem_offset = method.memories[id(spec)], None
            if id(spec) in of_states:
                continue
            (method.parts if id(root(spec)) in of_states else method.activations).append(spec)


def _memory_of(state: _State) -> int | None:
    """The memory that passes of the user have chosen for a state. Raises PlanError where its uses differ."""
    first_method, first = state.uses[0]
    memories: dict[int, _Method] = {}
    for method, spec in state.uses:
        if (tuple(spec.shape), spec.scalar_type) != (tuple(first.shape), first.scalar_type):
            raise PlanError(
                f"{state.name!r} is {_type(first)} in {first_method} and {_type(spec)} in {method}, so it"
                " cannot have one address in both.",
                remedy="Give it another name in one of the modules, or the same shape and type in both.",
            )
        memory = method.memories.get(id(spec))
        if memory is not None:
            memories.setdefault(memory, method)
    if len(memories) > 1:
        (one, a), (other, b) = list(memories.items())[:2]
        raise PlanError(
            f"{state.name!r} is assigned to memory {one} in {a} and to memory {other} in {b}, so it cannot"
            " have one address in both.",
            remedy="Set the same mem_id in all methods.",
        )
    return next(iter(memories), None)


def _place_states(states: Sequence[_State]) -> dict[int, int]:
    """Places states at the bottom of their memories; the bytes that they take there, by memory.

    Raises PlanError for a state whose uses differ, before any state is placed.
    """
    memories = [_memory_of(state) for state in states]
    bottoms: dict[int, int] = {}
    for state, chosen in zip(states, memories, strict=True):
        memory = DEFAULT_MEMORY if chosen is None else chosen
        alignment = state.uses[0][0].alignment
        for _, spec in state.uses:
            spec.realign(alignment)
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = memory, 0, bottoms.get(memory, 0)
        bottoms[memory] = bottoms.get(memory, 0) + state.specs[0].allocated_memory
    return bottoms


def _type(spec: Any) -> str:
    return f"{str(spec.scalar_type).rpartition('.')[2].lower()} {'x'.join(map(str, spec.shape)) or 'scalar'}"


def _above(bottoms: Mapping[int, int], sizes: Sequence[int]) -> list[int]:
    """`sizes` by memory with what lies below them."""
    count = max([len(sizes), *(memory + 1 for memory in bottoms)])
    return [bottoms.get(k, 0) + (sizes[k] if k < len(sizes) else 0) for k in range(count)]


def _taken(method: _Method) -> list[int]:
    """The bytes at the bottom of each memory that branches and loops of a method take, by its number."""
    children = {id(module) for module in method.graph_module.children()}
    sizes = [inside.sizes for inside in method.submodules if id(inside.graph_module) in children]
    count = max(map(len, sizes), default=0)
    return [max(row[k] for row in sizes if k < len(row)) for k in range(count)]
