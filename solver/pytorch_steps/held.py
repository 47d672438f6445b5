"""The bytes that the two graphs of a partition hold.

    forward   mm ─► x ─► relu ─► y ─► ...     a tensor takes memory from its call to its last reader;
    backward  saved y ─► ... ─► gradients     what is saved to its last reader in the backward pass

Memory is counted as PyTorch's allocator does, by storage: a view is the memory of another tensor. Parameters,
buffers, inputs and constants are not counted; results, gradients and tangents are held to the end.

With `fused` the graphs are compiled by inductor, which makes loops of element-wise calls and of reductions.
An element-wise call whose readers are all loops is computed inside of them, and a loop writes its result over
an operand of the same size that nothing reads afterwards.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from solver.importers.pytorch.calls import allocated_bytes
from solver.importers.pytorch.capture import torch

__all__ = [
    "CALL",
    "inside_of",
    "is_built_in",
    "is_element_wise",
    "is_loop",
    "is_mutable",
    "nbytes",
    "peak_bytes",
    "readers_of",
    "root_of",
    "scratch_bytes",
    "shows",
]

#: Operators that share memory with their first argument, and whose schemas do not say so.
_VIEWS = frozenset({"aten._unsafe_view.default", "aten._reshape_alias.default"})

#: Operators that copy elements one by one, which PyTorch does not tag as element-wise.
_COPIES = frozenset(
    {
        "clone",
        "_to_copy",
        "where",
        "full",
        "full_like",
        "iota",
        "embedding",
        "index",
        "gather",
        "convert_element_type",
        "constant_pad_nd",
        "scalar_tensor",
        "inductor_random",
        "inductor_lookup_seed",
        "slice_scatter",
        "select_scatter",
    }
)

#: The key of a node's `meta` for the name of the call that it repeats.
CALL = "arenaplan: call"

#: Namespaces of operators that are known to have no effect but their results.
_BUILT_IN = frozenset({"aten", "prims"})

#: A loop reads at most so many tensors before inductor computes what is inside of it apart.
_MOST_READS = 4


def shows(node: Any) -> bool:
    """Whether a node is a part of another one's results, or a view of its memory."""
    if node.op != "call_function":
        return False
    target = node.target
    return target is operator.getitem or bool(getattr(target, "is_view", False)) or str(target) in _VIEWS


def root_of(node: Any) -> Any:
    """The node that makes the memory of a node: a call, a part of a call's results, or an input."""
    while shows(node) and not (node.target is operator.getitem and not shows(node.args[0])):
        node = node.args[0]
    return node


def is_built_in(node: Any) -> bool:
    """Whether a call is one of PyTorch's own operators, and writes nothing but its results."""
    target = node.target
    return (
        isinstance(target, torch()._ops.OpOverload) and target.namespace in _BUILT_IN and not is_mutable(node)
    )


def is_mutable(node: Any) -> bool:
    """Whether a call writes into what it is given."""
    return isinstance(node.target, torch()._ops.OpOverload) and bool(node.target._schema.is_mutable)


def nbytes(tensor: Any) -> int:
    return int(tensor.untyped_storage().nbytes()) if isinstance(tensor, torch().Tensor) else 0


def is_element_wise(node: Any) -> bool:
    """Whether each element of a call's result comes from one element of each operand."""
    packet = getattr(node.target, "overloadpacket", None)
    if packet is None or not isinstance(node.meta.get("val"), torch().Tensor):
        return False
    return torch().Tag.pointwise in node.target.tags or packet.__name__ in _COPIES


def is_loop(node: Any) -> bool:
    """Whether inductor makes a loop of a call, and can compute what it reads inside of that."""
    from torch._functorch.partitioners import get_default_op_list

    return added_product(node) is None and (is_element_wise(node) or get_default_op_list().is_fusible(node))


def added_product(node: Any) -> Any:
    """The product of matrices to which a sum alone adds something: inductor makes one call of both, at the
    place of the sum, and the factors wait until then. None for other calls.
    """
    aten = torch().ops.aten
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    for source in node.args:
        is_product = getattr(source, "target", None) is aten.mm.default and len(source.users) == 1
        if is_product and source.meta["val"].shape == node.meta["val"].shape:
            return source
    return None


def inside_of(node: Any, readers: Sequence[Any]) -> bool:
    """Whether a fusing compiler computes a call inside of all that read it, by what these are."""
    if len(readers) == 1 and added_product(readers[0]) is node:
        return True
    return is_element_wise(node) and is_loop(node) and all(map(is_loop, readers))


def peak_bytes(
    forward: Any, backward: Any, outputs: int, scratch: Mapping[str, int], *, fused: bool
) -> tuple[int, int]:
    """The most bytes that are held at a time in the forward and then the backward pass, and those of them
    that are saved between the two; `outputs` is the number of the forward pass's own results.
    """
    (output,) = forward.find_nodes(op="output")
    results = torch().utils._pytree.tree_leaves(output.args, is_leaf=lambda x: x is None)
    returned = {root_of(node).name for node in results[:outputs] if node is not None}
    saved = {node.name: root_of(node).name for node in results[outputs:]}
    peak, held = _walk(forward, {}, {}, scratch, fused)
    inputs = backward.find_nodes(op="placeholder")
    rest = sum(nbytes(node.meta.get("val")) for node in inputs if "tangents" in node.target)
    rest += sum(held.get(name, 0) for name in returned)
    begins = {root: held[root] for root in saved.values() if root in held and root not in returned}
    stands_for = {name: root for name, root in saved.items() if root in begins}
    after, _ = _walk(backward, begins, stands_for, scratch, fused)
    return max(peak, rest + after), sum(begins.values())


def _walk(
    graph: Any, begins: Mapping[str, int], saved: Mapping[str, str], scratch: Mapping[str, int], fused: bool
) -> tuple[int, dict[str, int]]:
    """The most bytes that are held at a time in a graph, and the bytes of each name that is held at its end.

    `begins` are bytes that are freed behind their last reader, by names that inputs stand for in `saved`.
    """
    inside = _inside(graph) if fused else set()
    sources: dict[Any, list[str]] = {}
    last: dict[str, Any] = {}
    for node in graph.nodes:
        if shows(node) or node.op in ("placeholder", "get_attr"):
            continue
        reads: dict[str, None] = {}
        for source in node.all_input_nodes:
            root = root_of(source)
            reads |= (
                dict.fromkeys(sources[root]) if root in inside else {saved.get(root.name, root.name): None}
            )
        sources[node] = list(reads)
        if node not in inside:
            last |= dict.fromkeys(reads, node)
    dies: dict[Any, list[str]] = {}
    for name, node in last.items():
        dies.setdefault(node, []).append(name)
    held = dict(begins)
    live = peak = sum(held.values())
    for node in sources:
        if node in inside or node.op == "output":
            continue
        made = _made(node)
        ending = [name for name in dies.get(node, ()) if name in held]
        live += sum(made.values())
        over = 0
        if fused and is_element_wise(node) and is_loop(node):
            over = max((held[name] for name in ending if held[name] in made.values()), default=0)
        own = scratch.get(node.meta.get(CALL, node.name), 0)
        peak = max(peak, live + own - over)
        held |= made
        for name in (*ending, *(name for name in made if name not in last)):
            live -= held.pop(name)
    return peak, held


def _made(node: Any) -> dict[str, int]:
    """The bytes of each tensor that a call makes."""
    value = node.meta.get("val")
    if is_mutable(node):
        return {}
    if not isinstance(value, tuple | list):
        return {node.name: nbytes(value)}
    parts = {user.args[1]: user.name for user in node.users if user.target is operator.getitem}
    return {parts.get(k, f"{node.name}.{k}"): nbytes(tensor) for k, tensor in enumerate(value)}


def _inside(graph: Any) -> set[Any]:
    """The calls that are computed inside of all loops which read them."""
    inside: set[Any] = set()
    reads: dict[Any, int] = {}
    for node in graph.nodes:
        if node.op != "call_function" or shows(node):
            continue
        roots = {root_of(source) for source in node.all_input_nodes}
        reads[node] = sum(reads.get(root, 1) if root in inside else 1 for root in roots)
        readers = list(dict.fromkeys(readers_of(node)))
        if inside_of(node, readers) and (len(readers) == 1 or reads[node] <= _MOST_READS):
            inside.add(node)
    return inside


def readers_of(node: Any) -> Iterable[Any]:
    """The calls, and what is returned, that read a node or a view of it."""
    for user in node.users:
        if shows(user):
            yield from readers_of(user)
        else:
            yield user


def scratch_bytes(nodes: Iterable[Any], *, fused: bool, channels_last: bool = False) -> dict[str, int]:
    """By the names of calls the bytes that their kernels allocate inside, and free again.

    Each kernel runs once on zeros, on the CPU, for each signature; calls that become loops are left out, and
    so are operators that are not PyTorch's own. With `channels_last` those are the last axis of images.
    Cost: about one forward and backward pass.
    """

    def skips(node: Any) -> bool:
        return is_loop(node) or node.target.namespace == "prims" if fused else is_element_wise(node)

    names: dict[str, list[str]] = {}
    calls: dict[str, Any] = {}
    for node in nodes:
        if (
            node.op == "call_function"
            and is_built_in(node)
            and not shows(node)
            and not skips(node)
            and _on_cpu(node)
        ):
            names.setdefault(_signature(node), []).append(node.name)
            calls.setdefault(_signature(node), node)
    with torch().utils._python_dispatch._disable_current_modes(), torch().random.fork_rng(devices=[]):
        most = allocated_bytes(_alone(node, channels_last) for node in calls.values())
    return {
        name: max(0, bytes_ - sum(_made(calls[key]).values()))
        for (key, same), bytes_ in zip(names.items(), most, strict=True)
        for name in same
    }


def _on_cpu(node: Any) -> bool:
    """Whether a call takes and gives dense tensors of the CPU alone."""
    values = [source.meta.get("val") for source in node.all_input_nodes]
    value = node.meta.get("val")
    values += value if isinstance(value, tuple | list) else [value]
    tensors = [x for x in values if isinstance(x, torch().Tensor)]
    return all(x.device.type == "cpu" and x.layout is torch().strided for x in tensors)


def _signature(node: Any) -> str:
    def signed(source: Any) -> str:
        value = source.meta.get("val")
        return (
            f"{value.dtype}{tuple(value.shape)}{value.stride()}" if isinstance(value, torch().Tensor) else "?"
        )

    return str((node.target, torch().fx.node.map_arg((node.args, dict(node.kwargs)), signed)))


def _alone(node: Any, channels_last: bool) -> Callable[[], None]:
    """A run of a call on zeros; nothing where it refuses them."""

    def zeros(source: Any) -> Any:
        value = source.meta["val"]
        if not isinstance(value, torch().Tensor):
            return value
        if channels_last and value.ndim == 4 and "convolution" in str(node.target):
            return torch().zeros(value.shape, dtype=value.dtype).to(memory_format=torch().channels_last)
        return torch().empty_strided(value.shape, value.stride(), dtype=value.dtype).zero_()

    arguments, named = torch().fx.node.map_arg((node.args, dict(node.kwargs)), zeros)

    def run() -> None:
        with contextlib.suppress(RuntimeError), torch().no_grad():
            node.target(*arguments, **named)

    return run
