"""Operations without parameters, as functions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

from arenaplan.builder.tape import Tensor
from solver.arguments import checks_arguments

__all__ = [
    "add",
    "binary_cross_entropy",
    "clip",
    "cross_entropy",
    "flatten",
    "gelu",
    "mean_squared_error",
    "pad",
    "pool",
    "relu",
    "softmax",
]


@checks_arguments
def add(left: Tensor, right: Tensor, *, activation: str = "None", name: str | None = None) -> Tensor:
    """A sum with a name or an activation of its own; else ``left + right`` says the same."""
    fused = {} if activation == "None" else {"activation": activation}
    return left.tape.apply("Add", left, right, name=left.tape.name("add", name), **fused)


@checks_arguments
def relu(x: Tensor, *, name: str | None = None) -> Tensor:
    return x.tape.apply("Relu", x, name=x.tape.name("relu", name))


@checks_arguments
def gelu(x: Tensor, *, name: str | None = None) -> Tensor:
    return x.tape.apply("Gelu", x, name=x.tape.name("gelu", name), approximate="tanh")


@checks_arguments
def softmax(x: Tensor, *, name: str | None = None) -> Tensor:
    return x.tape.apply("Softmax", x, name=x.tape.name("softmax", name))


@checks_arguments
def flatten(x: Tensor, *, name: str | None = None) -> Tensor:
    """[batch, features]."""
    name = x.tape.name("flatten", name)
    shape = x.tape.integers(f"{name}.shape", [-1, x.type.elements // x.shape[0]])
    return x.tape.apply("Reshape", x, shape, name=name)


@checks_arguments
def pool(
    x: Tensor,
    size: int,
    *,
    stride: int | None = None,
    padding: str | None = None,
    kind: str = "Max",
    name: str | None = None,
) -> Tensor:
    """Maximum or average of square windows, which do not overlap unless `stride` says so."""
    steps = [stride or size] * 2
    padded = {"auto_pad": padding} if padding else {}
    return x.tape.apply(
        f"{kind}Pool",
        x,
        name=x.tape.name("pool", name),
        data_layout="NHWC",
        kernel_shape=[size, size],
        strides=steps,
        **padded,
    )


@checks_arguments
def clip(x: Tensor, low: float, high: float, *, name: str | None = None) -> Tensor:
    return x.tape.apply("Clip", x, name=x.tape.name("clip", name), min=low, max=high)


@checks_arguments
def pad(x: Tensor, pads: Sequence[int], *, name: str | None = None) -> Tensor:
    """Zeros before and after each axis: the befores, then the afters."""
    name = x.tape.name("pad", name)
    return x.tape.apply("Pad", x, x.tape.integers(f"{name}.pads", pads), name=name)


@checks_arguments
def cross_entropy(
    x: Tensor, label: Tensor, *, from_logits: bool = True, sparse: bool = False, name: str | None = None
) -> Tensor:
    """Categorical cross-entropy, the mean over the examples; `sparse` labels are class numbers."""
    flags = {"from_logits": int(from_logits), "sparse": int(sparse)}
    chosen = {key: flag for key, flag in flags.items() if flag}
    return x.tape.apply("CategoricalCrossEntropy", x, label, name=x.tape.name("loss", name), **chosen)


@checks_arguments
def binary_cross_entropy(x: Tensor, label: Tensor, *, name: str | None = None) -> Tensor:
    """Of logits."""
    return x.tape.apply("BinaryCrossEntropy", x, label, name=x.tape.name("loss", name), from_logits=1)


@checks_arguments
def mean_squared_error(x: Tensor, target: Tensor, *, name: str | None = None) -> Tensor:
    return x.tape.apply("MeanSquaredError", x, target, name=x.tape.name("loss", name))
