"""Steps that stem from no operation of a graph: seeds, sums, the joint norm, weight updates, copies."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from solver.c_kernels.base import Call, CKernel, Task, float_number, number, only_float32, spread
from solver.program import ACCUMULATE, CLIP, COPY, SEED, UPDATE

__all__ = ["KERNELS"]


class _Own(CKernel):
    source = "elementwise"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        if task.node.attributes.get("loss_scale_growth") is not None:
            return "its loss scale changes"
        return None


class _Seed(_Own):
    operators = (SEED,)

    def write(self, call: Call) -> str:
        return f"*{call.at('dx0')} = {number(call.task.node.attributes['value'])}f;"


class _Accumulate(_Own):
    operators = (ACCUMULATE,)

    def write(self, call: Call) -> str:
        count = spread(call.task.node.inputs[0].shape) if call.task.node.inputs[0] else 0
        return f"ap_accumulate({call.at('x0')}, {call.at('x1')}, {count}u);"


class _Copy(_Own):
    operators = (COPY,)
    source = "product"

    def refusal(self, task: Task) -> str | None:
        return None

    def write(self, call: Call) -> str:
        return f"ap_copy({call.at('y0')}, {call.at('x0')}, {call.task.node.outputs[0].nbytes}u);"


class _Clip(_Own):
    operators = (CLIP,)
    source = "optimizer"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        counts = [spread(type_.shape) for type_ in node.inputs if type_ is not None]
        rows = ", ".join(f"{{{at(f'dx{i}')}, {count}u}}" for i, count in enumerate(counts))
        most = node.attributes["clip_global_norm"] or 0.0
        divisor = node.attributes["loss_scale"] * node.attributes["accumulate"]
        return (
            f"{{ const ap_gradient gradients[] = {{{rows}}};"
            f" ap_clip_by_norm({len(counts)}u, gradients, {number(most)}, {number(divisor)},"
            f" {int(node.attributes['skip_non_finite'])}, {at('factor')}, {at('updates')}); }}"
        )


_BETAS = {"Adam": ("beta1", "beta2"), "AdamW": ("beta1", "beta2"), "RMSProp": (None, "alpha")}


def _numbers(attributes: Mapping[str, Any]) -> list[str]:
    """The numbers of the struct `ap_rules`, in the order of its members; 0 where the optimizer has none.

    What is left of 1, and logarithms, are computed here: the float nearest to beta has too few digits.
    """

    def of(name: str | None) -> float:
        return float(attributes.get(name, 0.0)) if name else 0.0

    betas = [of(name) for name in _BETAS.get(attributes["optimizer"], (None, None))]
    plain = [of("learning_rate"), of("weight_decay"), of("momentum"), *betas, of("epsilon")]
    logarithms = [math.log(beta) if beta else -math.inf for beta in betas]
    rates = [*plain, *(1 - beta for beta in betas), *logarithms, of("learning_rate_decay")]
    return [float_number(rate) for rate in rates]


class _Update(_Own):
    operators = (UPDATE,)
    source = "optimizer"

    def refusal(self, task: Task) -> str | None:
        if task.node.attributes.get("initial_accumulator"):
            return "its accumulator does not begin with zeros"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        attributes, kind = node.attributes, node.attributes["optimizer"]
        count = spread(node.inputs[0].shape) if node.inputs[0] else 0
        numbers = _numbers(attributes)
        switches = [
            int(bool(attributes.get("nesterov"))), int(kind == "AdamW"),
            int(bool(attributes.get("epsilon_hat"))), int(bool(attributes.get("centered"))),
        ]  # fmt: skip
        rules = call.table("ap_rules", (count, *switches, *numbers))
        divisor = attributes["loss_scale"] * attributes["accumulate"]
        factor = f"(ap_f32)*{at('factor')}" if "factor" in call.task.slots else float_number(1 / divisor)
        update = f"(uint32_t)*{at('updates')}" if "updates" in call.task.slots else call.update
        first = f"&{rules}, {factor}"
        weight = f"{at('x0')}, {at('dx0')}"
        moments = (at("first_moment"), at("second_moment"), at("momentum"), at("accumulator"))
        one, two, momentum, accumulator = moments
        written = {
            "SGD": f"ap_sgd({first}, {weight}, {momentum});",
            "Adam": f"ap_adam({first}, {update}, {weight}, {one}, {two});",
            "AdamW": f"ap_adam({first}, {update}, {weight}, {one}, {two});",
            "RMSProp": f"ap_rmsprop({first}, {weight}, {two}, {one}, {momentum});",
            "Adagrad": f"ap_adagrad({first}, {update}, {weight}, {accumulator});",
        }[kind]
        if attributes.get("skip_non_finite") and "factor" in call.task.slots:
            written = f"if (*{at('factor')} != 0.0) {written}"
        if attributes["accumulate"] > 1:
            written += f" ap_fill({at('dx0')}, 0.0f, {count}u);"
        return written


KERNELS = (_Seed(), _Accumulate(), _Copy(), _Clip(), _Update())
