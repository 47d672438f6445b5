"""Hyper-parameters of the optimizers, their state and their scratch."""

from __future__ import annotations

import math

import pytest

from solver.errors import AttributeRuleError, GraphError
from solver.graph.types import DType, OptimizerSpec, TensorType
from solver.training.optimizers import (
    OPTIMIZER_NAMES,
    UPDATE_BLOCK_ELEMENTS,
    optimizer_rules,
    scratch,
    state_names,
)
from tests.support.every import grid

SMALL = TensorType((3, 5), DType.FLOAT32)
LARGE = TensorType((1000, 1000), DType.FLOAT64)


def test_the_optimizers_are_these() -> None:
    assert OPTIMIZER_NAMES == ("SGD", "Adam", "AdamW", "RMSProp", "Adagrad")


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        ("SGD", {"learning_rate": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0}),
        (
            "Adam",
            {
                "learning_rate": 0.001,
                "beta1": 0.9,
                "beta2": 0.999,
                "epsilon": 1e-8,
                "epsilon_hat": False,
                "weight_decay": 0.0,
            },
        ),
        (
            "AdamW",
            {
                "learning_rate": 0.001,
                "beta1": 0.9,
                "beta2": 0.999,
                "epsilon": 1e-8,
                "epsilon_hat": False,
                "weight_decay": 0.01,
            },
        ),
        (
            "RMSProp",
            {
                "learning_rate": 0.01,
                "alpha": 0.99,
                "epsilon": 1e-8,
                "momentum": 0.0,
                "centered": False,
                "weight_decay": 0.0,
            },
        ),
        (
            "Adagrad",
            {
                "learning_rate": 0.01,
                "learning_rate_decay": 0.0,
                "initial_accumulator": 0.0,
                "epsilon": 1e-10,
                "weight_decay": 0.0,
            },
        ),
    ],
)
def test_defaults_are_filled_in(name: str, defaults: dict[str, float | bool]) -> None:
    assert optimizer_rules(OptimizerSpec(name)) == defaults


def test_given_values_replace_defaults() -> None:
    rules = optimizer_rules(OptimizerSpec("SGD", {"momentum": 0.5, "nesterov": True}))
    assert rules["momentum"] == 0.5
    assert rules["nesterov"] is True
    assert rules["learning_rate"] == 0.01


def test_integers_are_taken_where_numbers_are() -> None:
    assert optimizer_rules(OptimizerSpec("SGD", {"learning_rate": 1}))["learning_rate"] == 1


@pytest.mark.parametrize(
    ("wrong", "close"),
    [
        ("adam", "Adam"),
        ("sgd", "SGD"),
        ("Adamm", "Adam"),
        ("ADAMW", "AdamW"),
        ("RMSprop", "RMSProp"),
        ("AdaGrad", "Adagrad"),
    ],
)
def test_an_unknown_optimizer_gets_a_hint(wrong: str, close: str) -> None:
    with pytest.raises(GraphError, match=f"no optimizer '{wrong}'.*Did you mean {close}") as caught:
        optimizer_rules(OptimizerSpec(wrong))
    assert caught.value.pointer == "/optimizer/type"


def test_an_optimizer_unlike_any_lists_all() -> None:
    with pytest.raises(GraphError, match="Known optimizers: SGD, Adam, AdamW, RMSProp, Adagrad") as caught:
        optimizer_rules(OptimizerSpec("Lion"))
    assert "Did you mean" not in str(caught.value)


def test_an_unknown_hyper_parameter_gets_a_hint() -> None:
    with pytest.raises(
        AttributeRuleError, match=r"SGD has no hyper-parameter 'momentun'.*Did you mean momentum"
    ) as caught:
        optimizer_rules(OptimizerSpec("SGD", {"momentun": 0.9}))
    assert caught.value.pointer == "/optimizer/attributes/momentun"


@grid(
    ("name", "key", "value", "range_"),
    [
        ("SGD", "learning_rate", 0.0, "greater than 0, finite"),
        ("SGD", "learning_rate", -1.0, "greater than 0"),
        ("SGD", "learning_rate", math.inf, "finite"),
        ("SGD", "learning_rate", math.nan, "greater than 0"),
        ("SGD", "learning_rate", True, "greater than 0"),
        ("SGD", "momentum", 1.0, "at least 0 and less than 1"),
        ("SGD", "momentum", -0.1, "at least 0 and less than 1"),
        ("SGD", "nesterov", 1.0, "true or false"),
        ("SGD", "weight_decay", -0.1, "at least 0"),
        ("Adam", "beta1", 1.0, "less than 1"),
        ("Adam", "beta2", 1.5, "less than 1"),
        ("Adam", "epsilon", 0.0, "greater than 0"),
        ("AdamW", "weight_decay", math.inf, "finite"),
        ("RMSProp", "alpha", 1.0, "less than 1"),
        ("RMSProp", "centered", 1, "true or false"),
        ("Adagrad", "learning_rate_decay", -0.1, "at least 0"),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(name: str, key: str, value: float, range_: str) -> None:
    with pytest.raises(AttributeRuleError, match=f"'{key}' of optimizer {name} is .*{range_}") as caught:
        optimizer_rules(OptimizerSpec(name, {key: value}))
    assert caught.value.path == ("optimizer", "attributes", key)


def test_nesterov_needs_momentum() -> None:
    with pytest.raises(AttributeRuleError, match="nesterov without momentum"):
        optimizer_rules(OptimizerSpec("SGD", {"nesterov": True}))


@grid(
    ("spec", "names"),
    [
        (OptimizerSpec("SGD"), ()),
        (OptimizerSpec("SGD", {"momentum": 0.9}), ("momentum",)),
        (OptimizerSpec("Adam"), ("first_moment", "second_moment")),
        (OptimizerSpec("AdamW"), ("first_moment", "second_moment")),
        (OptimizerSpec("RMSProp"), ("second_moment",)),
        (OptimizerSpec("RMSProp", {"momentum": 0.9}), ("second_moment", "momentum")),
        (
            OptimizerSpec("RMSProp", {"momentum": 0.9, "centered": True}),
            ("second_moment", "first_moment", "momentum"),
        ),
        (OptimizerSpec("Adagrad"), ("accumulator",)),
    ],
)
def test_state(spec: OptimizerSpec, names: tuple[str, ...]) -> None:
    assert state_names(spec) == names


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (OptimizerSpec("SGD"), ["update"]),
        (OptimizerSpec("SGD", {"weight_decay": 0.1}), ["update", "decayed_gradient"]),
        (OptimizerSpec("Adam"), ["update"]),
        (OptimizerSpec("Adam", {"weight_decay": 0.1}), ["update", "decayed_gradient"]),
        (OptimizerSpec("AdamW", {"weight_decay": 0.1}), ["update"]),
        (OptimizerSpec("RMSProp", {"centered": True, "momentum": 0.1}), ["update"]),
        (OptimizerSpec("Adagrad", {"weight_decay": 0.1}), ["update", "decayed_gradient"]),
    ],
)
def test_scratch_is_a_block_and_never_a_weight(spec: OptimizerSpec, names: list[str]) -> None:
    assert [request.name for request in scratch(spec, LARGE)] == names
    assert {request.type.nbytes for request in scratch(spec, LARGE)} == {UPDATE_BLOCK_ELEMENTS * 8}
    assert {request.type for request in scratch(spec, SMALL)} == {TensorType((15,), DType.FLOAT32)}
