"""The joint graph of a forward and a backward pass, which `torch.compile` hands to its partitioner.

    forward steps  ──►  boundary: tangents begin  ──►  backward steps
    mm ─► relu ─► ...                 mm again ─► ...      what it reads is saved, or made again

`JointGraph` makes a scheduling problem of it. A step is a call of an operator, a value is the memory of what
it makes: views, and parts of a result, show the memory of another call. Parameters, buffers and inputs are
there before the forward pass and are not counted. A schedule of the problem becomes the two graphs that the
partitioner returns: runs before the boundary are the forward pass, the others the backward pass, and what
these read of the former is saved.

With `fused` the graphs are for a compiler that fuses loops, as inductor does: an element-wise call whose
result one other loop reads is part of that loop, and takes no memory.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from solver.accounting import ScheduleProblem
from solver.errors import DocumentError
from solver.importers.pytorch.capture import torch
from solver.importers.pytorch.program import call_flops, draws_random_numbers
from solver.pytorch_steps.held import (
    CALL,
    inside_of,
    is_built_in,
    is_mutable,
    nbytes,
    peak_bytes,
    readers_of,
    root_of,
    scratch_bytes,
    shows,
)

__all__ = ["JointGraph"]

#: Operators whose results are whatever is in memory.
_UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)

#: Products of a call cost as much as bytes that it touches, divided by this: fused loops are nearly free.
_BYTES_A_FLOP = 16

#: Costs are counted by the thousand, so that sums over bytes and products stay in 64 bits.
_UNIT = 1000


class JointGraph:
    """The steps of a joint graph in an order in which each runs as early as the boundary permits.

    Raises DocumentError for symbolic shapes.
    """

    def __init__(self, module: Any, outputs: int, *, fused: bool) -> None:
        """`module` is a joint graph, which gets rid of calls that nothing uses and of those that it has
        twice; the first `outputs` results are those of the forward pass.
        """
        from torch._functorch.compile_utils import fx_graph_cse

        module.graph.eliminate_dead_code()
        module.graph = fx_graph_cse(module.graph)
        channels_last = fused and _lay_out(module)
        self.module, self.outputs, self.fused = module, outputs, fused
        self.nodes = list(module.graph.nodes)
        _check_static(self.nodes)
        #: What the graph returns: the forward pass, then the backward pass; nodes, and None.
        self.results = torch().utils._pytree.tree_leaves(self.nodes[-1].args, is_leaf=lambda x: x is None)
        self.returned = [node for node in self.results if isinstance(node, torch().fx.Node)]
        self.backward = _behind_tangents(self.nodes)
        #: The calls of each step, in order; the last one makes its values.
        self.steps: list[list[Any]] = []
        #: For each node the values whose memory it shows: none for what was there before.
        self.shown: dict[Any, tuple[int, ...]] = {}
        #: For each value the node that is it.
        self.maker_node: list[Any] = []
        self.boundary = 0
        #: By the name of a call the bytes that its kernel allocates inside.
        self.scratch = scratch_bytes(self.nodes, fused=fused, channels_last=channels_last)
        self.problem = self._problem()

    def _problem(self) -> ScheduleProblem:
        inner = _inside_loops(self.nodes, self.backward) if self.fused else {}
        groups: dict[Any, list[Any]] = {}
        for node in self.nodes:
            if node.op == "call_function" and not shows(node):
                groups.setdefault(_loop_of(node, inner), []).append(node)
        roots = [node for node in self.nodes if node in groups]
        order = self._early([node for node in roots if node not in self.backward], groups)
        self.boundary = len(order)
        self.steps = [groups[node] for node in order]
        self.steps.append([node for node in self.nodes if node.op == "placeholder" and _is_tangent(node)])
        self.steps += [groups[node] for node in roots if node in self.backward]
        makers, size = list[int](), list[int]()
        writes: list[tuple[int, ...]] = []
        for t, nodes in enumerate(self.steps):
            makes = nodes if t == self.boundary else nodes[-1:]
            writes.append(tuple(v for node in makes for v in self._values_of(node, size, makers, t)))
        # Views and parts show the memory of another node; what lies inside of a loop has none.
        for node in self.nodes:
            self.shown.setdefault(node, self.shown[node.args[0]] if shows(node) else ())
        reads = [
            tuple(
                dict.fromkeys(
                    v for node in nodes for source in node.all_input_nodes for v in self.shown[source]
                )
            )
            for nodes in self.steps
        ]
        count = len(self.steps)
        # The caller holds tangents until the backward pass is over.
        kept = {v for node in self.returned for v in self.shown[node]}.union(writes[self.boundary])
        until = self._until(writes, kept)
        scratch = tuple(
            max((self.scratch.get(node.name, 0) for node in nodes), default=0) for nodes in self.steps
        )
        return ScheduleProblem(
            steps=tuple(nodes[-1].name if nodes else "boundary" for nodes in self.steps),
            reads=tuple(reads),
            writes=tuple(writes),
            updates=((),) * count,
            scratch=scratch,
            scratch_again=scratch,
            cost=tuple(map(_cost, self.steps)),
            until=until,
            values=tuple(node.name for node in self.maker_node),
            size=tuple(size),
            fed=(False,) * len(size),
            kept=tuple(v in kept for v in range(len(size))),
            maker=tuple(t if until[t] >= 0 else -1 for t in makers),
            together=tuple(range(len(size))),
            fixed=0,
        )

    def _early(self, order: Sequence[Any], groups: Mapping[Any, Sequence[Any]]) -> list[Any]:
        """Steps in front of the boundary, those that the forward pass does not need as early as possible: a
        mask of one byte an element may then wait for the backward pass instead of what it is made of.
        """
        forward, ahead = set[Any](), [node for node in self.results[: self.outputs] if node is not None]
        ahead += [node for node in order if not _is_pure(node)]
        while ahead:
            node = ahead.pop()
            if node not in forward:
                forward.add(node)
                ahead += node.all_input_nodes
        step_of = {node: root for root in order for node in groups[root]}
        place: dict[Any, int] = {}
        for k, root in enumerate(order):
            sources = (step_of.get(source) for node in groups[root] for source in self._roots(node))
            earlier = [place[source] for source in sources if source is not None and source is not root]
            place[root] = k if root in forward else max(earlier, default=k)
        return sorted(order, key=lambda root: place[root])

    def _values_of(self, node: Any, size: list[int], makers: list[int], step: int) -> list[int]:
        """Numbers of the values that a call makes, one for each tensor that it returns."""
        value = node.meta.get("val")
        tensors = list(value) if isinstance(value, tuple | list) else [value]
        if is_mutable(node):
            tensors = []  # it returns what it writes
        first = len(size)
        for tensor in tensors:
            size.append(nbytes(tensor))
            makers.append(step)
            self.maker_node.append(node)
        numbers = range(first, len(size))
        if isinstance(value, tuple | list):
            for part in node.users:
                if part.target is operator.getitem:
                    self.maker_node[first + part.args[1]] = part
                    self.shown[part] = (first + part.args[1],)
        self.shown[node] = tuple(numbers)
        return list(numbers)

    def _until(self, writes: Sequence[Sequence[int]], kept: set[int]) -> tuple[int, ...]:
        """For each step the one behind which it finds other contents in what it reads; -1 if it must not
        run again at all.
        """
        changed = {node: t for t, nodes in enumerate(self.steps) for node in _written(nodes)}
        for node in _updated_behind(self.nodes, self.outputs):
            changed.setdefault(node, self.boundary)
        until = []
        for t, nodes in enumerate(self.steps):
            again = t < self.boundary and all(map(_is_pure, nodes)) and not kept.intersection(writes[t])
            inputs = {source for node in nodes for source in self._roots(node)}
            until.append(
                min([changed[i] for i in inputs if i in changed], default=len(self.steps)) if again else -1
            )
        return tuple(until)

    def _roots(self, node: Any) -> Iterator[Any]:
        """The calls and inputs whose memory a call reads."""
        return map(_call_of, node.all_input_nodes)

    def needed(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """The runs of a sequence whose results are read or returned, or that have another effect."""
        wanted = {v for v, kept in enumerate(self.problem.kept) if kept}
        needed = []
        for t in reversed(sequence):
            writes = self.problem.writes[t]
            if t == self.boundary or not wanted.isdisjoint(writes) or not all(map(_is_pure, self.steps[t])):
                needed.append(t)
                wanted.difference_update(writes)
                wanted.update(self.problem.reads[t])
        return tuple(reversed(needed))

    def repeated(self, sequence: Sequence[int]) -> tuple[int, int, int]:
        """The calls in a sequence of runs, those of them that ran before, and the products of these."""
        calls, again, products, ran = 0, 0, 0, set[int]()
        for t in sequence:
            calls += len(self.steps[t])
            if t in ran:
                again += len(self.steps[t])
                products += _products(self.steps[t])
            ran.add(t)
        return calls, again, products

    def saved(self, sequence: Sequence[int]) -> list[int]:
        """The values that are made in front of the boundary, and read or returned behind it."""
        turn = sequence.index(self.boundary)
        saved, behind = set[int](), set[int]()
        for t in sequence[turn:]:
            saved.update(v for v in self.problem.reads[t] if v not in behind)
            behind.update(self.problem.writes[t])
        returned = (node for node in self.results[self.outputs :] if node is not None)
        saved.update(v for node in returned for v in self.shown[node] if v not in behind)
        return sorted(saved)

    def parts(self, sequence: Sequence[int]) -> tuple[Any, Any]:
        """The modules of the forward and the backward pass, with their calls in the order of the sequence."""
        from torch._functorch.partitioners import _extract_fwd_bwd_modules, _is_fwd_seed_offset, _is_primal

        graph, at_boundary = self._laid_out(sequence)
        inputs = graph.find_nodes(op="placeholder")
        saved = [node for node in inputs if _is_primal(node) or _is_fwd_seed_offset(node)]
        saved += [at_boundary[self.maker_node[v]] for v in self.saved(sequence)]
        module = torch().fx.GraphModule(self.module, graph)
        forward, backward = _extract_fwd_bwd_modules(
            module, saved, saved_sym_nodes=[], num_fwd_outputs=self.outputs
        )
        return forward, backward

    def _laid_out(self, sequence: Sequence[int]) -> tuple[Any, dict[Any, Any]]:
        """The joint graph with one call for each run of a sequence, in order, and for each node the one that
        stands for it at the boundary.
        """
        graph = torch().fx.Graph()
        #: For each node its latest run, and for each call the views and parts of its results.
        latest: dict[Any, Any] = {}
        views: dict[Any, list[Any]] = {}
        at_boundary: dict[Any, Any] = {}

        def latest_of(node: Any) -> Any:
            """The node that stands for one of the joint graph; views are made where they are read."""
            if node not in latest:
                views.setdefault(_call_of(node), []).append(node)
                latest[node] = graph.node_copy(node, latest_of)
            return latest[node]

        for node in self.nodes:
            if node.op in ("placeholder", "get_attr"):
                latest[node] = graph.node_copy(node)
        for t in sequence:
            if t == self.boundary:
                at_boundary = dict(latest)
                continue
            for call in self.steps[t]:
                for view in views.pop(call, ()):
                    latest.pop(view)
                latest[call] = graph.node_copy(call, latest_of)
                latest[call].meta[CALL] = call.name
                for part in call.users:
                    if part.target is operator.getitem:
                        latest_of(part)
        graph.node_copy(self.nodes[-1], latest_of)
        graph.lint()
        return graph, at_boundary

    def peak_bytes(self, forward: Any, backward: Any) -> tuple[int, int]:
        """What two such modules hold: the most bytes at a time, and those that are saved between them."""
        return peak_bytes(forward.graph, backward.graph, self.outputs, self.scratch, fused=self.fused)


def _check_static(nodes: Iterable[Any]) -> None:
    for node in nodes:
        value = node.meta.get("val")
        tensors = value if isinstance(value, tuple | list) else (value,)
        for tensor in tensors:
            sizes = (*tensor.shape, *tensor.stride()) if isinstance(tensor, torch().Tensor) else (tensor,)
            if any(type(size).__name__.startswith("Sym") for size in sizes):
                raise DocumentError(
                    f"The shape of {node.name!r} is symbolic, and a budget in bytes needs numbers.",
                    remedy="Compile for the shapes that come: torch.compile(..., dynamic=False).",
                )


def _lay_out(module: Any) -> bool:
    """Whether inductor keeps the images of this graph with their channels last. Then its copies of inputs and
    weights in that layout become calls of the graph, which may run again; else it saves them all.
    """
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    if not config.layout_optimization or not GraphLowering.decide_layout_opt(module, is_inference=False):
        return False
    aten, layout = torch().ops.aten, torch().channels_last
    for node in module.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        readers = [
            u for u in node.users if u.target in (aten.convolution.default, aten.convolution_backward.default)
        ]
        if not readers or value.ndim != 4 or value.is_contiguous(memory_format=layout):
            continue
        with module.graph.inserting_before(readers[0]), value.fake_mode:
            copy = module.graph.call_function(aten.clone.default, (node,), {"memory_format": layout})
            copy.meta["val"] = value.clone(memory_format=layout)
        for reader in readers:
            reader.replace_input_with(node, copy)
    return True


def _is_tangent(node: Any) -> bool:
    return "tangents" in node.target


def _behind_tangents(nodes: Iterable[Any]) -> set[Any]:
    """The nodes that need something that is there in the backward pass alone."""
    from torch._functorch.partitioners import _is_bwd_seed_offset, _must_be_in_backward

    behind: set[Any] = set()
    for node in nodes:
        own = node.op == "placeholder" and (_is_tangent(node) or _is_bwd_seed_offset(node))
        if own or _must_be_in_backward(node) or not behind.isdisjoint(node.all_input_nodes):
            behind.add(node)
    return behind


def _call_of(node: Any) -> Any:
    """The call that makes the memory of a node, or the input that it is."""
    root = root_of(node)
    return root.args[0] if root.target is operator.getitem else root


def _is_pure(node: Any) -> bool:
    """Whether a call gives the same bits each time, and has no effect but these."""
    return (
        is_built_in(node)
        and node.target.overloadpacket.__name__ not in _UNDEFINED
        and not draws_random_numbers(node.target, node.args, node.kwargs)
    )


def _written(nodes: Iterable[Any]) -> Iterator[Any]:
    """The nodes whose memory calls write."""
    for node in nodes:
        if is_mutable(node):
            yield from (source for source in node.all_input_nodes if source.op == "placeholder")


def _updated_behind(nodes: Sequence[Any], outputs: int) -> Iterator[Any]:
    """The inputs that the caller overwrites with results of the forward pass, once that is over."""
    from torch._functorch._aot_autograd.descriptors import InputMutationAOTOutput

    described = torch().utils._pytree.tree_leaves(nodes[-1].meta.get("desc", ()))
    updated = {d.mutated_input for d in described[:outputs] if isinstance(d, InputMutationAOTOutput)}
    return (node for node in nodes if node.op == "placeholder" and node.meta.get("desc") in updated)


def _inside_loops(nodes: Sequence[Any], backward: set[Any]) -> Mapping[Any, Any]:
    """For each call that is computed inside of the only call which reads it, that call."""
    loops: dict[Any, Any] = {}
    for node in nodes:
        if node.op == "call_function" and not shows(node):
            readers = list(dict.fromkeys(readers_of(node)))
            if (
                len(readers) == 1
                and inside_of(node, readers)
                and (readers[0] in backward) == (node in backward)
            ):
                loops[node] = readers[0]
    return loops


def _loop_of(node: Any, inner: Mapping[Any, Any]) -> Any:
    while node in inner:
        node = inner[node]
    return node


def _products(nodes: Iterable[Any]) -> int:
    """Floating-point operations of calls, as PyTorch counts them."""
    return sum(call_flops(node) for node in nodes if isinstance(node.target, torch()._ops.OpOverload))


def _cost(nodes: Sequence[Any]) -> int:
    """The cost of a run, by products and the bytes that it touches."""
    inside = set(nodes)
    sources = {source for node in nodes for source in node.all_input_nodes if source not in inside}
    touched = sum(nbytes(node.meta.get("val")) for node in (*sources, *nodes[-1:]))
    return -(-(_products(nodes) + touched // _BYTES_A_FLOP) // _UNIT)
