"""Weight updates against the formulas in float64, against PyTorch, and in what memory they touch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from solver.executor.kernels.optimizer import prepare
from solver.graph.types import Array, DType, OptimizerSpec, TensorType
from solver.training.optimizers import UPDATE_BLOCK_ELEMENTS, optimizer_rules, scratch, state_names
from tests.support.every import grid
from tests.support.one_operation import allocated

SPECS = [
    OptimizerSpec("SGD", {"learning_rate": 0.1}),
    OptimizerSpec("SGD", {"learning_rate": 0.1, "weight_decay": 0.05}),
    OptimizerSpec("SGD", {"learning_rate": 0.1, "momentum": 0.9}),
    OptimizerSpec("SGD", {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.05}),
    OptimizerSpec("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.05}),
    OptimizerSpec("Adam", {"learning_rate": 0.01}),
    OptimizerSpec("Adam", {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.9, "epsilon": 1e-3}),
    OptimizerSpec("Adam", {"learning_rate": 0.01, "weight_decay": 0.05}),
    OptimizerSpec("AdamW", {"learning_rate": 0.01}),
    OptimizerSpec("AdamW", {"learning_rate": 0.01, "weight_decay": 0.5}),
    OptimizerSpec("AdamW", {"learning_rate": 0.01, "weight_decay": 0.0}),
    OptimizerSpec("Adam", {"learning_rate": 0.01, "epsilon_hat": True, "epsilon": 1e-3}),
    OptimizerSpec("Adam", {"learning_rate": 0.01, "epsilon_hat": True, "weight_decay": 0.05}),
    OptimizerSpec(
        "AdamW", {"learning_rate": 0.01, "epsilon_hat": True, "epsilon": 1e-2, "weight_decay": 0.5}
    ),
    OptimizerSpec("RMSProp", {"learning_rate": 0.01}),
    OptimizerSpec("RMSProp", {"learning_rate": 0.01, "alpha": 0.8, "epsilon": 1e-3, "weight_decay": 0.05}),
    OptimizerSpec("RMSProp", {"learning_rate": 0.01, "momentum": 0.9}),
    OptimizerSpec("RMSProp", {"learning_rate": 0.01, "alpha": 0.9, "centered": True, "epsilon": 1e-2}),
    OptimizerSpec("RMSProp", {"learning_rate": 0.01, "centered": True, "momentum": 0.5, "epsilon": 1e-2}),
    OptimizerSpec("Adagrad", {"learning_rate": 0.1}),
    OptimizerSpec("Adagrad", {"learning_rate": 0.1, "learning_rate_decay": 0.1, "weight_decay": 0.05}),
    OptimizerSpec("Adagrad", {"learning_rate": 0.1, "initial_accumulator": 0.5, "epsilon": 1e-3}),
]


def name_of(spec: OptimizerSpec) -> str:
    return f"{spec.type}-" + "-".join(f"{key}={value}" for key, value in spec.attributes.items())


class Trainer:
    """One weight with its state and poisoned scratch."""

    def __init__(self, spec: OptimizerSpec, weight: Array) -> None:
        self.weight = weight.copy()
        self.gradient = np.empty_like(weight)
        self.state = {name: np.zeros_like(weight) for name in state_names(spec)}
        self.iteration = 0
        requests = scratch(spec, TensorType(weight.shape, DType(weight.dtype.name)))
        self.scratch = {r.name: np.full(r.type.shape, np.nan, r.type.dtype.numpy) for r in requests}
        self._step = prepare(
            spec, self.weight, self.gradient, self.state, self.scratch, lambda: self.iteration
        )

    def step(self, gradient: Array) -> None:
        self.iteration += 1
        np.copyto(self.gradient, gradient)
        self._step()


def sgd(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    g = g + rules["weight_decay"] * w
    if not rules["momentum"]:
        return w - rules["learning_rate"] * g
    state["b"] = rules["momentum"] * state.get("b", np.zeros_like(w)) + g
    direction = g + rules["momentum"] * state["b"] if rules["nesterov"] else state["b"]
    return w - rules["learning_rate"] * direction


def adam(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    g = g + rules["weight_decay"] * w
    return _adam_step(w, g, state, rules, t)


def adamw(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    w = w - rules["learning_rate"] * rules["weight_decay"] * w
    return _adam_step(w, g, state, rules, t)


def _adam_step(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    b1, b2 = rules["beta1"], rules["beta2"]
    state["m"] = b1 * state.get("m", np.zeros_like(w)) + (1 - b1) * g
    state["v"] = b2 * state.get("v", np.zeros_like(w)) + (1 - b2) * g * g
    if rules["epsilon_hat"]:
        rate = rules["learning_rate"] * math.sqrt(1 - b2**t) / (1 - b1**t)
        return w - rate * state["m"] / (np.sqrt(state["v"]) + rules["epsilon"])
    m, v = state["m"] / (1 - b1**t), state["v"] / (1 - b2**t)
    return w - rules["learning_rate"] * m / (np.sqrt(v) + rules["epsilon"])


def rmsprop(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    g, a, zero = g + rules["weight_decay"] * w, rules["alpha"], np.zeros_like(w)
    state["v"] = a * state.get("v", zero) + (1 - a) * g * g
    state["m"] = a * state.get("m", zero) + (1 - a) * g
    variance = state["v"] - state["m"] ** 2 if rules["centered"] else state["v"]
    state["b"] = rules["momentum"] * state.get("b", zero) + g / (np.sqrt(variance) + rules["epsilon"])
    return w - rules["learning_rate"] * state["b"]


def adagrad(w: Array, g: Array, state: dict[str, Array], rules: Mapping[str, float], t: int) -> Array:
    g = g + rules["weight_decay"] * w
    state["s"] = state.get("s", np.full_like(w, rules["initial_accumulator"])) + g * g
    rate = rules["learning_rate"] / (1 + (t - 1) * rules["learning_rate_decay"])
    return w - rate * g / (np.sqrt(state["s"]) + rules["epsilon"])


FORMULAS = {"SGD": sgd, "Adam": adam, "AdamW": adamw, "RMSProp": rmsprop, "Adagrad": adagrad}


def gradients(shape: tuple[int, ...], dtype: str, count: int = 6) -> list[Array]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(dtype) for _ in range(count)]


@grid("spec", SPECS)
@grid(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_several_iterations_follow_the_formula(spec: OptimizerSpec, dtype: str, tolerance: float) -> None:
    weight = np.random.default_rng(1).standard_normal((7, 5)).astype(dtype)
    trainer = Trainer(spec, weight)
    expected, state = weight.astype(np.float64), dict[str, Array]()
    rules = optimizer_rules(spec)
    for t, gradient in enumerate(gradients((7, 5), dtype), start=1):
        trainer.step(gradient)
        expected = FORMULAS[spec.type](expected, gradient.astype(np.float64), state, rules, t)
        np.testing.assert_allclose(trainer.weight, expected, rtol=tolerance, atol=tolerance)


@grid("spec", SPECS)
def test_blocks_change_no_bit(spec: OptimizerSpec) -> None:
    """Elements beyond the first block are updated as if they stood in a weight of their own."""
    size = 2 * UPDATE_BLOCK_ELEMENTS + 5
    weight = np.random.default_rng(1).standard_normal(size).astype(np.float32)
    whole, tail = Trainer(spec, weight), Trainer(spec, weight[-100:])
    for gradient in gradients((size,), "float32", 3):
        whole.step(gradient)
        tail.step(gradient[-100:])
    assert whole.weight[-100:].tobytes() == tail.weight.tobytes()


@grid("spec", SPECS)
def test_a_step_allocates_nothing_of_tensor_size(spec: OptimizerSpec) -> None:
    trainer = Trainer(spec, np.ones((1000, 500), np.float32))
    gradient = np.ones((1000, 500), np.float32)
    assert allocated(lambda: trainer.step(gradient)) < 64 * 1024


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 2)])
def test_any_shape_of_weight(shape: tuple[int, ...]) -> None:
    trainer = Trainer(OptimizerSpec("SGD", {"learning_rate": 0.5}), np.ones(shape))
    trainer.step(np.ones(shape))
    assert np.array_equal(trainer.weight, np.full(shape, 0.5))


@pytest.mark.parametrize("type_", ["Adam", "AdamW"])
def test_epsilon_hat_is_an_epsilon_that_grows_with_the_steps(type_: str) -> None:
    """Without correction epsilon weighs more: by 1 / sqrt(1 - beta2) in the first step, by 1 in the end."""
    gradient, rate, epsilon = np.array([1e-3]), 0.1, 1e-3
    hat, plain = (
        Trainer(
            OptimizerSpec(
                type_, {"learning_rate": rate, "epsilon": given, "epsilon_hat": flag, "beta2": 0.99}
            ),
            np.zeros(1),
        )
        for given, flag in ((epsilon, True), (10 * epsilon, False))
    )
    for trainer in (hat, plain):
        trainer.step(gradient)
    np.testing.assert_allclose(hat.weight, plain.weight, rtol=1e-9)
    np.testing.assert_allclose(hat.weight, -rate * 1e-3 / (1e-3 + 10 * epsilon), rtol=1e-9)


def _torch_optimizer(torch: Any, spec: OptimizerSpec, parameter: Any) -> Any:
    rules = optimizer_rules(spec)
    common = {"lr": rules["learning_rate"], "weight_decay": rules["weight_decay"]}
    if spec.type == "SGD":
        return torch.optim.SGD([parameter], momentum=rules["momentum"], nesterov=rules["nesterov"], **common)
    if spec.type == "RMSProp":
        more = {"alpha": rules["alpha"], "momentum": rules["momentum"], "centered": rules["centered"]}
        return torch.optim.RMSprop([parameter], eps=rules["epsilon"], **more, **common)
    if spec.type == "Adagrad":
        more = {
            "lr_decay": rules["learning_rate_decay"],
            "initial_accumulator_value": rules["initial_accumulator"],
        }
        return torch.optim.Adagrad([parameter], eps=rules["epsilon"], **more, **common)
    make = getattr(torch.optim, spec.type)
    return make([parameter], betas=(rules["beta1"], rules["beta2"]), eps=rules["epsilon"], **common)


@pytest.mark.parity
@pytest.mark.parametrize("spec", [s for s in SPECS if not s.attributes.get("epsilon_hat")], ids=name_of)
def test_pytorch_agrees(spec: OptimizerSpec) -> None:
    import torch

    weight = np.random.default_rng(1).standard_normal((7, 5))
    trainer = Trainer(spec, weight)
    parameter = torch.nn.Parameter(torch.tensor(weight))
    optimizer = _torch_optimizer(torch, spec, parameter)
    for gradient in gradients((7, 5), "float64"):
        trainer.step(gradient)
        parameter.grad = torch.tensor(gradient)
        optimizer.step()
        np.testing.assert_allclose(trainer.weight, parameter.detach().numpy(), rtol=1e-10, atol=1e-12)


def test_small_gradients_do_not_vanish_in_float32() -> None:
    """g^2 of 1e-30 is far below float32's epsilon but not below its range: the step is still the rate."""
    trainer = Trainer(
        OptimizerSpec("Adam", {"learning_rate": 0.1, "epsilon": 1e-20}), np.zeros(1, np.float32)
    )
    trainer.step(np.array([1e-15], np.float32))
    assert math.isclose(float(trainer.weight[0]), -0.1, rel_tol=1e-4)


@pytest.mark.parametrize("centered", [False, True])
def test_a_gradient_that_never_changes_moves_rmsprop_finitely(centered: bool) -> None:
    """Centered, the variance is a difference of equal numbers, and may come out below 0."""
    trainer = Trainer(
        OptimizerSpec("RMSProp", {"centered": centered, "alpha": 0.5}), np.zeros(50, np.float32)
    )
    for _ in range(60):
        trainer.step(np.linspace(-3, 3, 50).astype(np.float32))
        assert np.isfinite(trainer.weight).all()
