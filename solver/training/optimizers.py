"""Optimizers as the planner sees them: hyper-parameters, state that lives as long as the weight, scratch.

The arithmetic is in `solver.executor.kernels.optimizer`. SGD (Robbins and Monro, 1951) with momentum
(Polyak, 1964; Nesterov, 1983), Adam (Kingma and Ba, 2015), AdamW (Loshchilov and Hutter, 2019), RMSProp
(Tieleman and Hinton, 2012; centered: Graves, 2013), Adagrad (Duchi, Hazan and Singer, 2011).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from solver.errors import AttributeRuleError, GraphError
from solver.graph.ops.base import ScratchRequest
from solver.graph.types import OptimizerSpec, TensorType

__all__ = ["OPTIMIZER_NAMES", "UPDATE_BLOCK_ELEMENTS", "block", "optimizer_rules", "scratch", "state_names"]

#: Elements updated at a time: weight, gradient, two moments and two blocks of scratch, 768 KiB of
#: float32, stay in the second-level cache through the dozen passes over them.
UPDATE_BLOCK_ELEMENTS = 32 * 1024


@dataclass(frozen=True, slots=True)
class _Rule:
    """Default and range of one hyper-parameter; `below` is exclusive, `least` inclusive unless `open`."""

    default: float | bool
    least: float = 0.0
    below: float = math.inf
    open: bool = False

    def __str__(self) -> str:
        if isinstance(self.default, bool):
            return "true or false"
        lower = "greater than" if self.open else "at least"
        upper = f" and less than {self.below:g}" if self.below < math.inf else ", finite"
        return f"{lower} {self.least:g}{upper}"

    def admits(self, value: object) -> bool:
        if isinstance(self.default, bool):
            return isinstance(value, bool)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.least <= value < self.below and not (self.open and value == self.least)


_ADAM = {
    "learning_rate": _Rule(0.001, open=True),
    "beta1": _Rule(0.9, below=1.0),
    "beta2": _Rule(0.999, below=1.0),
    "epsilon": _Rule(1e-8, open=True),
    "epsilon_hat": _Rule(False),
}

_RULES: Mapping[str, Mapping[str, _Rule]] = {
    "SGD": {
        "learning_rate": _Rule(0.01, open=True),
        "momentum": _Rule(0.0, below=1.0),
        "nesterov": _Rule(False),
        "weight_decay": _Rule(0.0),
    },
    "Adam": {**_ADAM, "weight_decay": _Rule(0.0)},
    "AdamW": {**_ADAM, "weight_decay": _Rule(0.01)},
    "RMSProp": {
        "learning_rate": _Rule(0.01, open=True),
        "alpha": _Rule(0.99, below=1.0),
        "epsilon": _Rule(1e-8, open=True),
        "momentum": _Rule(0.0, below=1.0),
        "centered": _Rule(False),
        "weight_decay": _Rule(0.0),
    },
    "Adagrad": {
        "learning_rate": _Rule(0.01, open=True),
        "learning_rate_decay": _Rule(0.0),
        "initial_accumulator": _Rule(0.0),
        "epsilon": _Rule(1e-10, open=True),
        "weight_decay": _Rule(0.0),
    },
}

OPTIMIZER_NAMES: tuple[str, ...] = tuple(_RULES)


def optimizer_rules(spec: OptimizerSpec) -> Mapping[str, float | bool]:
    """The hyper-parameters of `spec` with defaults filled in.

    `weight_decay` is an L2 term of the gradient, for AdamW alone decoupled from it. With m and v the
    moments of Adam and AdamW at step t, `epsilon` is added behind the bias correction of v, as in the
    paper's Algorithm 1 and PyTorch; with `epsilon_hat` before it, as the paper proposes for speed, and
    TensorFlow, Keras and onert have it (their default is 1e-7):

        w -= rate / (1 - beta1^t) m / (sqrt(v / (1 - beta2^t)) + epsilon)
        w -= rate sqrt(1 - beta2^t) / (1 - beta1^t) m / (sqrt(v) + epsilon)         epsilon_hat

    Raises GraphError for an unknown optimizer, AttributeRuleError for a hyper-parameter that is unknown or
    out of range; paths start at ``optimizer``.
    """
    rules = _RULES.get(spec.type)
    if rules is None:
        raise GraphError(
            f"There is no optimizer {spec.type!r}.",
            remedy=f"{_hint(spec.type, OPTIMIZER_NAMES)}Known optimizers: {', '.join(OPTIMIZER_NAMES)}.",
            path=("optimizer", "type"),
        )
    for name, value in spec.attributes.items():
        if name not in rules:
            what = f"Optimizer {spec.type} has no hyper-parameter {name!r}."
            raise _bad(name, what, f"{_hint(name, rules)}Known: {', '.join(rules)}.")
        if not rules[name].admits(value):
            what = f"Hyper-parameter {name!r} of optimizer {spec.type} is {value!r}."
            raise _bad(name, what, f"It must be {rules[name]}.")
    attributes = {name: spec.attributes.get(name, rule.default) for name, rule in rules.items()}
    if attributes.get("nesterov") and not attributes["momentum"]:
        what = "Optimizer SGD has nesterov without momentum."
        raise _bad("nesterov", what, "Give it a momentum greater than 0.")
    return MappingProxyType(attributes)


def _hint(name: str, known: Iterable[str]) -> str:
    lowered = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f"Did you mean {lowered[close[0]]}? " if close else ""


def _bad(name: str, what: str, remedy: str) -> AttributeRuleError:
    return AttributeRuleError(what, remedy=remedy, path=("optimizer", "attributes", name))


def state_names(spec: OptimizerSpec | None) -> tuple[str, ...]:
    """Names of the optimizer variables of one weight; each has the type of the weight and starts at 0.

    None are there without an optimizer.
    """
    if spec is None:
        return ()
    rules = optimizer_rules(spec)
    if spec.type in ("Adam", "AdamW"):
        return ("first_moment", "second_moment")
    if spec.type == "Adagrad":
        return ("accumulator",)
    names: tuple[str, ...] = ("second_moment",) if spec.type == "RMSProp" else ()
    names += ("first_moment",) if rules.get("centered") else ()
    return (*names, "momentum") if rules["momentum"] else names


def scratch(spec: OptimizerSpec, weight: TensorType, *, scaled: bool = False) -> tuple[ScratchRequest, ...]:
    """Blocks that the update of one weight needs beside its state: at most three of them.

    With `scaled`, the gradient is multiplied by a factor before it is used.
    """
    names = ["update", "scaled_gradient"] if scaled else ["update"]
    if spec.type != "AdamW" and optimizer_rules(spec)["weight_decay"]:
        names.append("decayed_gradient")
    return tuple(block(name, weight) for name in names)


def block(name: str, whole: TensorType) -> ScratchRequest:
    """Scratch for what is treated at a time of a tensor."""
    return ScratchRequest(name, TensorType((min(UPDATE_BLOCK_ELEMENTS, whole.elements),), whole.dtype))
