"""A whole training step of PyTorch as an explicit program: any step that can be traced can be planned.

Forward pass, backward pass and optimizer are traced together (`make_fx`), down to the kernels that PyTorch
runs. A block of the program is a storage: views are the block that they look into, in-place operations update
it, and everything else defines a block of its own. The program permits results of element-wise calls to take
the place of their operands, and other orders. A call that writes nothing but its results is pure, and has
PyTorch's own count of its floating-point operations. The state of PyTorch's generator is a block: calls that
draw random numbers update it. What a kernel allocates inside and frees again PyTorch does not say: it is
measured on request.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from solver.arguments import checks_arguments
from solver.errors import DocumentError
from solver.graph import Array, TensorType
from solver.graph.types import DType
from solver.importers.pytorch.calls import GENERATOR, Call, View, with_scratch
from solver.importers.pytorch.capture import Loss, check_type, torch
from solver.importers.pytorch.context import UnsupportedError, element_type
from solver.importers.traced import Placed, TracedStep, reason_of
from solver.training import Block, BlockOperation, OperationCost, build_program

__all__ = [
    "Blocks",
    "array_of",
    "call_flops",
    "check_dense",
    "draws_random_numbers",
    "flops_of",
    "trace",
    "trace_module",
    "view_at",
    "view_of",
    "written_by",
]

#: Operators that share memory with their first argument, or write arguments, and whose schemas do not say so.
_VIEWS = frozenset({"aten._unsafe_view.default", "aten._reshape_alias.default"})
_WRITES = {"aten.native_batch_norm.default": (3, 4)}

#: Stands for a number that is known when the step runs.
_NUMBER = object()

#: Operators that write every byte of their first argument without looking at it.
_OVERWRITES = frozenset(
    {"aten.copy_.default", "aten.zero_.default", "aten.fill_.Scalar", "aten.fill_.Tensor"}
)


#: Operators whose results are whatever is in memory.
_UNDEFINED = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}
)


@checks_arguments
def trace(
    step: Callable[[Mapping[str, Any]], Any],
    tensors: Mapping[str, Any],
    *,
    fed: Collection[str] = (),
    scratch: bool = False,
    name: str = "step",
) -> TracedStep:
    """The program of a function that takes tensors by name, updates some, and returns what is read.

    Those in `fed` are written anew before every iteration; the others carry over. What is returned may be any
    structure of tensors, of which `TracedStep.results` has the places. Nothing is computed: tensors are
    traced by their types, each as if it were contiguous and all of its memory. With `scratch` each kernel
    runs once by itself, and the bytes that it allocates and frees again are the workspace of its operation.
    Raises DocumentError where PyTorch cannot trace the step, for shapes that depend on elements, for
    arguments that are no dense tensor, for a write into memory that two arguments share, and for a kernel
    whose scratch cannot be measured. Raises what building a program raises. The generator of random numbers
    begins with the state that it has now. Cost: linear in the calls.
    """
    framework = torch()
    generator = framework.random.get_rng_state()
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.utils._pytree import keystr, tree_flatten_with_path

    paths: list[str] = []
    _check(tensors, fed)
    shared = _shared(tensors)
    tensors = {name: _contiguous_copy(tensor, name in shared) for name, tensor in tensors.items()}

    def listed(*arguments: Any) -> list[Any]:
        returned, _ = tree_flatten_with_path(step(dict(zip(tensors, arguments, strict=True))))
        leaves = [(keystr(path), x) for path, x in returned if isinstance(x, framework.Tensor)]
        paths[:] = [path for path, _ in leaves]
        return [x for _, x in leaves]

    tracer = make_fx(listed, tracing_mode="fake", _allow_non_fake_inputs=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # oneDNN's recurrent kernels keep memory of an unknown size: the plain ones keep tensors.
            with framework.backends.mkldnn.flags(enabled=False):
                traced = tracer(*tensors.values())
        except Exception as error:
            raise DocumentError(
                f"PyTorch cannot trace the step: {reason_of(error)}",
                remedy="Write a step that does not branch on elements, without calls of item() or compile().",
            ) from error
    traced_step = _Traced(traced, tuple(tensors), frozenset(fed), tensors, generator).build(name, paths)
    written = {block for operation in traced_step.program.operations for block in operation.writes}
    for name, other in shared.items():
        if name in written:
            raise DocumentError(
                f"The step writes {name!r}, which shares its memory with {other!r}.",
                remedy="Give a tensor once, or clones of it.",
            )
    return with_scratch(traced_step) if scratch else traced_step


def _check(tensors: Mapping[str, Any], fed: Collection[str]) -> None:
    """Raises DocumentError for arguments that are not dense tensors, and for fed ones that do not exist."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch().Tensor):
            raise DocumentError(
                f"The argument {name!r:.80} is a {type(tensor).__name__}, not a tensor.",
                remedy="Give tensors, as torch.as_tensor makes them.",
            )
        check_dense(name, tensor)
    unknown = [name for name in fed if name not in tensors]
    if unknown:
        raise DocumentError(
            f"{unknown[0]!r:.80} is to be fed, and no argument is called so.",
            remedy=f"The arguments are {', '.join(tensors)}.",
        )


def check_dense(name: str, tensor: Any) -> None:
    quantized = str(tensor.dtype).startswith("torch.q") or name.startswith("quantize_per")
    if quantized or tensor.layout is not torch().strided:
        raise DocumentError(
            f"PyTorch cannot trace the step: {name!r} is a quantized or sparse tensor, which is more than"
            " one block of memory.",
            remedy="Keep integers and scales as tensors of their own, and sparse tensors as dense ones.",
        )


def _shared(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Names of tensors whose bytes overlap, each with the name of another tensor in the same bytes.

    Tensors side by side in one storage share nothing, as those of a `train_step` do.
    """
    spans = []
    for name, tensor in tensors.items():
        if tensor.numel():
            reach = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
            start = tensor.data_ptr()
            spans.append((start, start + (reach + 1) * tensor.element_size(), name))
    shared: dict[str, str] = {}
    last_end, last = -1, ""
    for start, end, name in sorted(spans):
        if start < last_end:
            shared[name] = last
            shared.setdefault(last, name)
        if end > last_end:
            last_end, last = end, name
    return shared


def _contiguous_copy(tensor: Any, shared: bool) -> Any:
    """The tensor, or a contiguous copy of it: a block is one tensor, from its first byte to its last."""
    whole = tensor.numel() * tensor.element_size() == tensor.untyped_storage().nbytes()
    if tensor.is_contiguous() and whole and not shared:
        return tensor
    copy = tensor.detach().clone(memory_format=torch().contiguous_format)
    return copy.requires_grad_(tensor.requires_grad)


def trace_module(
    module: Any,
    inputs: Sequence[Any],
    *,
    keywords: Sequence[str] = (),
    loss: Loss | None,
    targets: Sequence[Any] = (),
    optimizer: Any,
    scratch: bool = False,
    name: str | None = None,
) -> TracedStep:
    """The program of one step of PyTorch's `optimizer` on a module and its loss.

    Parameters and buffers keep their names; an optimizer's tensors are called after their parameter, as
    ``fc.weight.exp_avg``. Counts of steps are tensors, too, in PyTorch's own form for that
    (`differentiable`), which rounds a little differently. Raises what `trace` raises.
    """
    framework = torch()
    check_type("module", module, framework.nn.Module)
    check_type("optimizer", optimizer, framework.optim.Optimizer)
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    names = {id(parameter): key for key, parameter in parameters.items()}
    strangers = [p for group in optimizer.param_groups for p in group["params"] if id(p) not in names]
    if strangers:
        raise DocumentError(
            f"The optimizer updates a tensor of shape {list(strangers[0].shape)}, which is no parameter of"
            " the module.",
            remedy="Make the optimizer from module.parameters(), after what replaces them, such as"
            " load_state_dict(state, assign=True).",
        )
    state = _optimizer_state(framework, optimizer, names)
    fed, value_of = _module_call(module, inputs, keywords=keywords, loss=loss, targets=targets)

    def step(tensors: Mapping[str, Any]) -> Any:
        value = value_of(tensors)
        trained = [key for key in parameters if parameters[key].requires_grad]
        gradients = framework.autograd.grad(value, [tensors[key] for key in trained], allow_unused=True)
        updated = {key: tensors[key].detach() for key in parameters}
        for key, gradient in zip(trained, gradients, strict=True):
            updated[key].grad = gradient
        _traced_optimizer(optimizer, names, updated, tensors, state).step()
        return value

    stored = {f"{key}.{word}": x for key, kept in state.items() for word, x in kept.items()}
    tensors = {**parameters, **buffers, **stored, **fed}
    return trace(step, tensors, fed=tuple(fed), scratch=scratch, name=name or type(module).__name__)


def _module_call(
    module: Any,
    inputs: Sequence[Any],
    *,
    keywords: Sequence[str],
    loss: Loss | None,
    targets: Sequence[Any],
) -> tuple[dict[str, Any], Callable[[Mapping[str, Any]], Any]]:
    """(The tensors that are fed, by name; the value of the loss from all tensors by name).

    Inputs are called by their keywords, else ``input0`` and so on, targets ``target0``. All tensors are the
    module's parameters and buffers, by PyTorch's names, with what is fed.
    """
    names = tuple(keywords) or tuple(f"input{k}" for k in range(len(inputs)))
    fed = dict(zip(names, inputs, strict=True)) | {f"target{k}": x for k, x in enumerate(targets)}
    own = [name for name, _ in (*module.named_parameters(), *module.named_buffers())]

    def value_of(tensors: Mapping[str, Any]) -> Any:
        arguments = () if keywords else tuple(tensors[name] for name in names)
        named = {name: tensors[name] for name in keywords}
        weights = {name: tensors[name] for name in own}
        output = torch().func.functional_call(module, weights, arguments, named)
        labels = [tensors[f"target{k}"] for k in range(len(targets))]
        return output if loss is None else loss(output, *labels)

    return fed, value_of


def _is_tensor(x: Any) -> bool:
    return hasattr(x, "untyped_storage")


def _optimizer_state(framework: Any, optimizer: Any, names: Mapping[int, str]) -> dict[str, dict[str, Any]]:
    """First values of the optimizer's state for each parameter: tensors of zeros."""
    return {
        names[id(parameter)]: _zeros_kept(framework, optimizer, group, parameter)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def _zeros_kept(framework: Any, optimizer: Any, group: Mapping[str, Any], parameter: Any) -> dict[str, Any]:
    """Tensors of zeros, as the optimizer keeps them for a parameter of a group, by its words.

    Found by a step of the same optimizer on a small parameter, whose shape tells which tensors have that of
    the parameter.
    """
    small = framework.nn.Parameter(framework.zeros(2, 3))
    small.grad = framework.zeros(2, 3)
    settings = {key: value for key, value in group.items() if key != "params"}
    twin = type(optimizer)([{"params": [small], **settings}], **_defaults_of(optimizer))
    twin.step()
    return {
        word: framework.zeros_like(parameter if value.shape == small.shape else value).detach()
        for word, value in twin.state.get(small, {}).items()
        if _is_tensor(value)
    }


def _defaults_of(optimizer: Any) -> dict[str, Any]:
    """Arguments for another optimizer of the same kind that updates one tensor at a time."""
    own = {key: value for key, value in optimizer.defaults.items() if key != "decoupled_weight_decay"}
    return own | ({"foreach": False} if "foreach" in own else {})


def _traced_optimizer(
    optimizer: Any,
    names: Mapping[int, str],
    weights: Mapping[str, Any],
    tensors: Mapping[str, Any],
    state: Mapping[str, Mapping[str, Any]],
) -> Any:
    """The same optimizer over the weights and states that are traced."""
    counts = any(value.ndim == 0 for kept in state.values() for value in kept.values())
    own = {"foreach": False, "differentiable": True} if counts else {"foreach": False}
    groups = [
        {
            **group,
            **{key: value for key, value in own.items() if key in group},
            "params": [weights[names[id(p)]] for p in group["params"]],
        }
        for group in optimizer.param_groups
    ]
    twin = type(optimizer)(groups, **_defaults_of(optimizer))
    for key, kept in state.items():
        twin.state[weights[key]] = {word: tensors[f"{key}.{word}"] for word in kept}
    return twin


class Blocks:
    """Blocks and operations of a program, call by call; the state of PyTorch's generator is a block."""

    def __init__(self, generator: Any) -> None:
        self.blocks: dict[str, Block] = {}
        self.operations: list[BlockOperation] = []
        self.functions: dict[str, Callable[[Any], None]] = {}
        self.values: dict[str, Array] = {GENERATOR: generator.numpy()}
        self.generator = view_at(GENERATOR, generator)
        self.blocks[GENERATOR] = Block(GENERATOR, TensorType((generator.numel(),), DType.UINT8))
        #: Whether no loop or branch runs, whose body may draw random numbers.
        self.any_order = True
        #: Blocks that the caller reads after a step.
        self.lasting: set[str] = set()

    def fresh(self, name: str, value: Any, *, fed: bool = False) -> View:
        """A new block for a tensor, unless it has no bytes."""
        sizes = (*value.shape, *value.stride())
        if any(type(size) is not int for size in sizes):
            raise DocumentError(
                f"PyTorch cannot trace the step: the shape of {name!r} depends on elements.",
                remedy="Use what has a known shape: torch.where(mask, x, 0) in place of x[mask], topk with a"
                " fixed k in place of nonzero or unique.",
            )
        check_dense(name, value)
        size = int(value.untyped_storage().nbytes())
        if not size:
            return view_at("", value)
        self.blocks[name] = Block(name, _block_type(value, size), fed)
        return view_at(name, value)

    def add(
        self,
        name: str,
        target: Any,
        arguments: Sequence[Any],
        named: Mapping[str, Any],
        results: Sequence[View | None],
        written: Sequence[View],
        *,
        draws: bool,
        flops: int,
        differentiable: bool = False,
    ) -> None:
        """Add a call, in which views stand for tensors; nothing if it writes no block."""
        word = str(target)
        operands = _blocks_of([arguments, *named.values()])
        reads = [view.block for view in operands]
        fresh = [view for view in _blocks_of(results) if view.block not in reads]
        if word in _OVERWRITES and self._fills_block(written[0]):
            reads = [view.block for view in _blocks_of(arguments[1:])]
        writes = [*(view.block for view in written), *(view.block for view in fresh)]
        if not writes:
            return
        outputs = [view if view in fresh else None for view in results]
        state: View | None = None
        if draws:
            reads, writes, state = [*reads, GENERATOR], [*writes, GENERATOR], self.generator
        moved = sum({(view.block, view.shape): self._moved(view) for view in (*operands, *fresh)}.values())
        self.operations.append(
            BlockOperation(
                name,
                tuple(dict.fromkeys(reads)),
                tuple(dict.fromkeys(writes)),
                word,
                () if written else self._permissions(target, operands, fresh),
                pure=not (written or state or target.overloadpacket.__name__ in _UNDEFINED),
                cost=OperationCost(flops=flops, bytes=moved),
            )
        )
        self.functions[name] = Call(target, arguments, named, outputs, state, differentiable)

    def built(
        self, name: str, returned: Sequence[View], paths: Sequence[str], arguments: Mapping[str, Placed]
    ) -> TracedStep:
        """The step that returns these tensors, of which it has the paths."""
        returned = self._touched(returned)
        kept = {view.block for view in returned} | self.lasting
        touched = {block for operation in self.operations for block in operation.touched}
        blocks = [
            Block(block.name, block.type, block.fed, block.name in kept)
            for block in self.blocks.values()
            if block.name in touched
        ]
        values = {
            key: array for key, array in self.values.items() if key in touched and not self.blocks[key].fed
        }
        program = build_program(name, blocks, self.operations, any_order=self.any_order)
        results = tuple(view.placed(path) for view, path in zip(returned, paths, strict=True))
        return TracedStep(program, self.functions, values, results, arguments)

    def _touched(self, returned: Sequence[View]) -> list[View]:
        """The returned tensors; an argument or constant that no operation touches is copied to a block."""
        touched = {block for operation in self.operations for block in operation.touched}
        views = []
        for k, view in enumerate(returned):
            if view.block and view.block not in touched:
                clone, name = torch().ops.aten.clone.default, f"result{k}"
                copy = _contiguous(name, view)
                self.blocks[name] = Block(name, _block_type(copy, copy.nbytes))
                self.operations.append(BlockOperation(name, (view.block,), (name,), str(clone)))
                self.functions[name] = Call(clone, [view], {}, [copy])
                view = copy
            views.append(view)
        return views

    def _moved(self, view: View) -> int:
        """The bytes of a tensor; of one that repeats elements, those of its block."""
        return min(view.nbytes, self.blocks[view.block].type.nbytes)

    def _permissions(
        self, target: Any, operands: Sequence[View], fresh: Sequence[View]
    ) -> tuple[tuple[str, str], ...]:
        """Results of element-wise calls may take the place of operands that are laid out like them."""
        if torch().Tag.pointwise not in target.tags or len(fresh) != 1 or not self._fills_block(fresh[0]):
            return ()
        result = fresh[0]
        like = {view.block for view in operands if self._fills_block(view)}
        for view in operands:
            same = (view.shape, view.strides, view.start) == (result.shape, result.strides, result.start)
            if not same or view.dtype.itemsize != result.dtype.itemsize:
                like.discard(view.block)
        return tuple(
            (result.block, source) for source in dict.fromkeys(v.block for v in operands) if source in like
        )

    def _fills_block(self, view: View) -> bool:
        """Whether a tensor is all of its block."""
        size = int(np.prod(view.shape)) * view.dtype.itemsize
        return view.start == 0 and size == self.blocks[view.block].type.nbytes


class _Traced(Blocks):
    """Finds the blocks of a function that is traced as a graph, node by node."""

    def __init__(
        self,
        traced: Any,
        names: tuple[str, ...],
        fed: frozenset[str],
        tensors: Mapping[str, Any],
        generator: Any,
    ) -> None:
        super().__init__(generator)
        self.traced = traced
        self.names = names
        self.fed = fed
        self.tensors = tensors
        self.views: dict[Any, Any] = {}

    def build(self, name: str, paths: Sequence[str]) -> TracedStep:
        places = iter(self.names)
        returned: list[View] = []
        arguments: dict[str, Placed] = {}
        for node in self.traced.graph.nodes:
            if node.op == "placeholder":
                own = next(places)
                self._declare(node, own, self.tensors[own], fed=own in self.fed)
                arguments[own] = self.views[node].placed(own)
            elif node.op == "get_attr":
                held = getattr(self.traced, node.target)
                if _is_tensor(held):
                    self._declare(node, str(node.target), held, fed=False)
                else:
                    self.views[node] = held  # the body of a loop or a branch
            elif node.op == "call_function":
                self._call(node)
            elif node.op == "output":
                returned = _leaves(self._viewed(node.args))
        return self.built(name, returned, paths, arguments)

    def _declare(self, node: Any, name: str, tensor: Any, *, fed: bool) -> None:
        self.views[node] = self.fresh(name, node.meta.get("val", tensor), fed=fed)
        self.values[self.views[node].block] = array_of(tensor)

    def _viewed(self, argument: Any) -> Any:
        """Nodes replaced by the views that they are."""
        if isinstance(argument, list | tuple):
            return [self._viewed(x) for x in argument]
        if isinstance(argument, torch().fx.Node):
            return self.views[argument]
        return argument

    def _call(self, node: Any) -> None:
        if getattr(node.target, "__name__", "") == "getitem":
            self.views[node] = self.views[node.args[0]][node.args[1]]
            return
        arguments, named = self._viewed(node.args), {k: self._viewed(x) for k, x in node.kwargs.items()}
        word = str(node.target)
        if isinstance(node.target, torch()._ops.HigherOrderOperator):
            self._body(node, arguments, named)
            return
        if word == "aten._local_scalar_dense.default" or not hasattr(node.target, "_schema"):
            self.views[node] = _NUMBER  # an element as a number, or what is computed of such numbers
            return
        if any(leaf is _NUMBER for leaf in _leaves([arguments, *named.values()])):
            raise DocumentError(
                f"PyTorch cannot trace the step: {node.name!r} takes an element of a tensor as a number.",
                remedy="Leave out item(), tolist() and the like; keep the number as a tensor.",
            )
        written, alias = written_by(node.target, arguments, named)
        values = node.meta.get("val")
        many = list(values) if isinstance(values, list | tuple) else [values]
        if alias is not None and not written:
            # A view: nothing happens, and the result is more of the same block.
            views = [view_at(alias.block, value) if _is_tensor(value) else None for value in many]
            self.views[node] = views if isinstance(values, list | tuple) else views[0]
            return
        results: list[View | None] = []
        for k, value in enumerate(many):
            single = not isinstance(values, list | tuple)
            if written and k < len(written) and alias is not None:
                results.append(view_at(written[k].block, value) if _is_tensor(value) else None)
            else:
                label = node.name if single else f"{node.name}.{k}"
                results.append(self.fresh(label, value) if _is_tensor(value) else None)
        self.views[node] = results if isinstance(values, list | tuple) else results[0]
        draws = draws_random_numbers(node.target, node.args, node.kwargs)
        flops = call_flops(node)
        self.add(node.name, node.target, arguments, named, results, written, draws=draws, flops=flops)

    def _body(self, node: Any, arguments: Any, named: Mapping[str, Any]) -> None:
        """A loop or a branch, which is one operation: its body is run as a whole, and has results alone."""
        values = node.meta.get("val")
        many = list(values) if isinstance(values, list | tuple) else [values]
        results = [self.fresh(f"{node.name}.{k}", x) if _is_tensor(x) else None for k, x in enumerate(many)]
        self.views[node] = results if isinstance(values, list | tuple) else results[0]
        self.any_order = False  # a body may draw random numbers
        writes = [view.block for view in _blocks_of(results)]
        reads = [view.block for view in _blocks_of([arguments, *named.values()])]
        if writes:
            self.operations.append(
                BlockOperation(
                    node.name, tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes)), str(node.target)
                )
            )
            self.functions[node.name] = Call(node.target, arguments, named, results)


def written_by(
    target: Any, arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[list[View], View | None]:
    """The tensors that a call writes, and the one that its results share memory with."""
    word = str(target)
    schema = target._schema
    by_name = {a.name: x for a, x in zip(schema.arguments, arguments, strict=False)} | dict(named)
    written = [
        view
        for argument in schema.arguments
        if argument.alias_info is not None and argument.alias_info.is_write
        for view in _blocks_of(by_name.get(argument.name))
    ]
    if word in _WRITES and arguments[5]:
        return [arguments[k] for k in _WRITES[word] if arguments[k] is not None], None
    shared = [a for a in schema.arguments if a.alias_info is not None]
    returns = any(r.alias_info is not None for r in schema.returns) or word in _VIEWS
    if not returns:
        return written, None
    first = by_name[shared[0].name] if shared else arguments[0]
    return written, first if isinstance(first, View) else None


def draws_random_numbers(target: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether a call takes random numbers; attention without dropout does not."""
    if torch().Tag.nondeterministic_seeded not in target.tags:
        return False
    names = [argument.name for argument in target._schema.arguments]
    defaults = {a.name: a.default_value for a in target._schema.arguments if a.has_default_value()}
    by_name = {**defaults, **dict(zip(names, arguments, strict=False)), **named}
    return by_name.get("dropout_p") != 0.0


def call_flops(node: Any) -> int:
    """PyTorch's count of the floating-point operations of a call; 0 for what it counts none of."""
    from torch.utils._pytree import tree_map_only

    def value(part: Any) -> Any:
        return part.meta.get("val")

    arguments, named = tree_map_only(torch().fx.Node, value, (node.args, node.kwargs))
    return flops_of(node.target, arguments, named, value(node))


def flops_of(target: Any, arguments: Any, named: Any, values: Any) -> int:
    """The same for an operator with these tensors, which returns `values`."""
    from torch.utils.flop_counter import flop_registry

    count = flop_registry.get(target.overloadpacket)
    return 0 if count is None else int(count(*arguments, **named, out_val=values))


def array_of(tensor: Any) -> Array:
    """The elements as NumPy has them; as integers of the same bits where it has no such type."""
    held = tensor.detach().cpu().contiguous()
    try:
        array: Array = held.numpy()
    except TypeError:
        bits = {1: torch().uint8, 2: torch().uint16}[held.element_size()]
        array = held.view(bits).numpy()
    return array


def _contiguous(block: str, view: View) -> View:
    """A view's elements one behind the other, in a block of their own."""
    strides = tuple(int(np.prod(view.shape[axis + 1 :])) for axis in range(len(view.shape)))
    return View(block, view.dtype, view.shape, strides, 0)


def _leaves(argument: Any) -> list[Any]:
    if isinstance(argument, list | tuple):
        return [leaf for part in argument for leaf in _leaves(part)]
    return [argument]


def _blocks_of(argument: Any) -> list[View]:
    """The tensors with bytes among arguments or results."""
    return [leaf for leaf in _leaves(argument) if isinstance(leaf, View) and leaf.block]


def view_of(placed: Placed) -> View:
    """The view whose place this is."""
    dtype = getattr(torch(), placed.dtype)
    strides = tuple(stride // dtype.itemsize for stride in placed.strides)
    return View(placed.block, dtype, placed.shape, strides, placed.offset // dtype.itemsize)


def view_at(block: str, value: Any) -> View:
    return View(
        block,
        value.dtype,
        tuple(int(size) for size in value.shape),
        tuple(int(stride) for stride in value.stride()),
        int(value.storage_offset()),
        bool(value.is_conj()),
        bool(value.is_neg()),
    )


def _block_type(value: Any, size: int) -> TensorType:
    """Shape and element type where they are all of the storage, else bytes."""
    try:
        type_ = TensorType(tuple(int(n) for n in value.shape), element_type(value.dtype))
    except UnsupportedError:
        type_ = TensorType((size,), DType.UINT8)
    return type_ if type_.nbytes == size else TensorType((size,), DType.UINT8)
