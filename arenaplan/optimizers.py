"""Optimizers by name, as documents, and as PyTorch's objects."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from solver.arguments import checks_arguments
from solver.errors import AttributeRuleError, GraphError
from solver.graph import OptimizerSpec
from solver.training.optimizers import OPTIMIZER_NAMES, optimizer_rules

__all__ = ["adam", "optimizer_spec", "sgd"]

#: PyTorch's words for hyper-parameters; those of a pair are the two betas.
_WORDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "lr": ("learning_rate",),
        "momentum": ("momentum",),
        "nesterov": ("nesterov",),
        "weight_decay": ("weight_decay",),
        "betas": ("beta1", "beta2"),
        "eps": ("epsilon",),
        "alpha": ("alpha",),
        "centered": ("centered",),
        "lr_decay": ("learning_rate_decay",),
        "initial_accumulator_value": ("initial_accumulator",),
    }
)

#: What PyTorch's optimizers have beside, and the value at which it changes nothing.
_NEUTRAL = {"dampening": 0, "maximize": False, "amsgrad": False}

#: How a step is computed there, not what.
_IMPLEMENTATION = frozenset(
    {"params", "foreach", "fused", "capturable", "differentiable", "decoupled_weight_decay"}
)


@checks_arguments
def adam(learning_rate: float = 0.001) -> dict[str, Any]:
    return {"type": "Adam", "learning_rate": learning_rate}


@checks_arguments
def sgd(learning_rate: float = 0.01, *, momentum: float = 0.0) -> dict[str, Any]:
    return {"type": "SGD", "learning_rate": learning_rate, "momentum": momentum}


def optimizer_spec(optimizer: Any) -> OptimizerSpec:
    """An optimizer from its name, its document or PyTorch's optimizer, checked.

    Raises GraphError for one that is not here, AttributeRuleError for a hyper-parameter that is not.
    """
    if isinstance(optimizer, str):
        names = {name.lower(): name for name in OPTIMIZER_NAMES}
        spec = OptimizerSpec(names.get(optimizer.lower(), optimizer))
    elif isinstance(optimizer, Mapping):
        spec = OptimizerSpec(str(optimizer.get("type")), {k: v for k, v in optimizer.items() if k != "type"})
    else:
        spec = _of_pytorch(optimizer)
    optimizer_rules(spec)
    return spec


def _of_pytorch(optimizer: Any) -> OptimizerSpec:
    name = {"RMSprop": "RMSProp"}.get(type(optimizer).__name__, type(optimizer).__name__)
    groups = getattr(optimizer, "param_groups", None)
    if name not in OPTIMIZER_NAMES or not groups:
        raise GraphError(
            f"There is no optimizer {name!r} here.",
            remedy=f"Take one of {', '.join(OPTIMIZER_NAMES)}.",
            path=("optimizer",),
        )
    settings = [{key: value for key, value in group.items() if key != "params"} for group in groups]
    if any(each != settings[0] for each in settings[1:]):
        raise AttributeRuleError(
            f"The optimizer has {len(groups)} groups of parameters with different settings.",
            remedy="Use one group; leave parameters out by requires_grad_(False) or `trainable`.",
            path=("optimizer",),
        )
    attributes: dict[str, Any] = {}
    for key, value in settings[0].items():
        if key in _WORDS:
            attributes |= zip(_WORDS[key], value if isinstance(value, tuple) else (value,), strict=True)
        elif key not in _IMPLEMENTATION and value != _NEUTRAL.get(key):
            raise AttributeRuleError(
                f"{name} with {key}={value!r} is not available here.",
                remedy=f"Leave {key} at its default.",
                path=("optimizer", key),
            )
    return OptimizerSpec(name, attributes)
