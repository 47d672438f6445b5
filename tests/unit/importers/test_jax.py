"""Steps of JAX as programs: what they read and write is right if they train in a poisoned arena."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.errors import DocumentError
from solver.plan import PlanOptions

ROOT = Path(__file__).resolve().parents[3]


def test_without_jax() -> None:
    """The module loads, and its function says what is missing."""
    script = "import sys; sys.modules['jax'] = None\nimport arenaplan\narenaplan.jax.program(print, ())"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: JAX is not installed here: pip install 'jax>=0.6'."


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="JAX is not installed: the extra [jax]")


def step_of(jax: Any, model: str) -> tuple[Any, Any, Any]:
    """(step, parameters, batch): a step of momentum, with compiled calls, loops and branches in it."""
    numpy, lax = jax.numpy, jax.lax
    keys = jax.random.split(jax.random.key(0), 4)
    x, y = jax.random.normal(keys[0], (6, 8, 8, 2)), jax.random.normal(keys[1], (6, 4))
    weights = {
        "kernel": jax.random.normal(keys[2], (3, 3, 2, 4)) * 0.3,
        "w": jax.random.normal(keys[3], (4, 4)),
    }

    def forward(p: Any, x: Any) -> Any:
        h = lax.conv_general_dilated(
            x, p["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        h = jax.nn.gelu(jax.nn.relu(h)).reshape(6, -1, 4)
        if model == "scan":
            carry, _ = lax.scan(
                lambda c, t: (numpy.tanh(c + t @ p["w"]), c), h[:, 0], numpy.swapaxes(h, 0, 1)
            )
            return carry
        if model == "branch":
            return lax.cond(h.sum() > 0, lambda a: a.mean(1) @ p["w"], lambda a: a.max(1), h)
        return jax.nn.softmax(h.mean(1) @ p["w"])

    def step(state: Any, batch: Any) -> Any:
        p, momentum = state
        loss, g = jax.value_and_grad(lambda p: numpy.mean((forward(p, batch[0]) - batch[1]) ** 2))(p)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, g)
        return (jax.tree.map(lambda w, m: w - 0.1 * m, p, momentum), momentum), loss

    return step, (weights, jax.tree.map(numpy.zeros_like, weights)), (x, y)


@pytest.mark.parametrize("model", ["plain", "scan"])
def test_primitives_are_pure_and_their_products_have_a_cost(jax: Any, model: str) -> None:
    """Each runs twice when it is validated, and some run again within a capacity."""
    step, state, batch = step_of(jax, model)
    traced = arenaplan.jax.program(step, (state, batch))
    operations = traced.program.operations
    assert all(operation.pure for operation in operations if not operation.name.startswith("carry"))
    convolution = next(o for o in operations if o.kernel == "conv_general_dilated")
    assert convolution.cost.flops == 2 * (6 * 8 * 8 * 4) * (3 * 3 * 2)
    assert arenaplan.validate(traced, arenaplan.plan(traced), steps=2).identical
    usual = arenaplan.plan(traced, as_written=True).arena_bytes
    smaller = arenaplan.plan(traced, capacity=usual * 9 // 10, only=["recompute"])
    assert smaller.arena_bytes < usual
    assert arenaplan.validate(traced, smaller, steps=2).identical


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("model", ["plain", "scan", "branch"])
def test_trains_as_jax_does(jax: Any, model: str, in_place: bool) -> None:
    step, state, batch = step_of(jax, model)
    traced = arenaplan.jax.program(jax.jit(step), (state, batch), in_place=in_place)
    plan = arenaplan.plan(traced)
    assert plan.arena_bytes == plan.lower_bound
    runner = arenaplan.jax.runner(traced, PlanOptions(in_place=in_place))
    (kept,) = (block.name for block in traced.program.blocks.values() if block.kept)
    for _ in range(3):
        for k, array in enumerate(batch):
            runner.block(f"batch[{k}]")[...] = array
        runner.run()
        with jax.disable_jit():
            state, loss = step(state, batch)
        assert float(runner.block(kept)) == pytest.approx(float(loss), rel=1e-6)
    for path, array in jax.tree_util.tree_flatten_with_path(state)[0]:
        name = f"state{jax.tree_util.keystr(path)}"
        np.testing.assert_allclose(runner.block(name), array, rtol=2e-5, atol=1e-6, err_msg=name)


def test_element_types_that_graphs_do_not_have(jax: Any) -> None:
    numpy = jax.numpy

    def step(w: Any, x: Any) -> Any:
        half = (w * x).astype(numpy.bfloat16)
        return w - half.astype(numpy.float32), half.sum().astype(numpy.float32)

    w, x = numpy.arange(4.0), numpy.ones(4)
    runner = arenaplan.jax.runner(arenaplan.jax.program(step, (w, x)))
    runner.block("x")[...] = x
    runner.run()
    np.testing.assert_array_equal(runner.block("w"), step(w, x)[0])


@pytest.mark.parametrize("typed", [False, True])
def test_keys_of_random_numbers_carry_over(jax: Any, typed: bool) -> None:
    """Dropout draws anew in each step, as it does in JAX."""
    numpy = jax.numpy

    def step(state: Any, x: Any) -> Any:
        w, key = state
        key, drawn = jax.random.split(key)
        kept = jax.random.bernoulli(drawn, 0.5, x.shape)
        return (w - 0.1 * numpy.where(kept, x, 0), key), kept.sum()

    key = jax.random.key(3) if typed else jax.random.PRNGKey(3)
    state, x = (numpy.zeros(8), key), numpy.arange(8.0)
    runner = arenaplan.jax.runner(arenaplan.jax.program(step, (state, x)))
    for _ in range(3):
        runner.block("x")[...] = x
        runner.run()
        state, _ = step(state, x)
        np.testing.assert_array_equal(runner.block("state[0]"), state[0])
    found = runner.block("state[1]").view(np.uint32)
    np.testing.assert_array_equal(found, jax.random.key_data(state[1]))


def test_numbers_of_python_are_fed_as_arrays(jax: Any) -> None:
    runner = arenaplan.jax.runner(arenaplan.jax.program(lambda w, rate: w * rate, (jax.numpy.ones(3), 0.5)))
    runner.block("rate")[...] = 0.25
    runner.run()
    assert runner.block("w").tolist() == [0.25] * 3


def test_what_has_no_elements_is_no_step(jax: Any) -> None:
    numpy = jax.numpy
    traced = arenaplan.jax.program(
        lambda w, x: w + numpy.concatenate([numpy.zeros((0,)) * 2, x]), (numpy.ones(3), numpy.ones(3))
    )
    runner = arenaplan.jax.runner(traced)
    runner.block("x")[...] = 2
    runner.run()
    assert runner.block("w").tolist() == [3.0] * 3


def test_in_place_takes_no_more(jax: Any) -> None:
    step, state, batch = step_of(jax, "plain")
    sizes = [
        arenaplan.plan(arenaplan.jax.program(step, (state, batch), in_place=flag)).arena_bytes
        for flag in (False, True)
    ]
    assert sizes[1] <= sizes[0]


def test_bodies_have_a_workspace(jax: Any) -> None:
    step, state, batch = step_of(jax, "scan")
    traced = arenaplan.jax.program(step, (state, batch))
    working = [operation.name[:4] for operation in traced.program.operations if operation.workspace]
    assert working == ["scan", "scan"]


def test_what_permutes_cuts_and_repeats_is_no_step(jax: Any) -> None:
    numpy = jax.numpy

    def step(w: Any, x: Any) -> Any:
        y = numpy.broadcast_to(w[1:3, ::2].T[:, None, :], (2, 5, 2)) * x
        return w + y.sum(), w.T[1:]

    w, x = numpy.arange(16.0).reshape(4, 4), numpy.arange(20.0).reshape(2, 5, 2)
    traced = arenaplan.jax.program(step, (w, x))
    kernels = {operation.kernel for operation in traced.program.operations}
    assert not kernels & {"transpose", "slice", "broadcast_in_dim"}
    runner = arenaplan.jax.runner(traced, PlanOptions(in_place=True, order=True))
    (kept,) = (block.name for block in traced.program.blocks.values() if block.kept)
    for _ in range(2):
        runner.block("x")[...] = x
        runner.run()
        w, part = step(w, x)
        np.testing.assert_array_equal(runner.block(kept), part)
        np.testing.assert_array_equal(runner.block("w"), w)


class TestStates:
    def run(self, step: Any, state: Any, steps: int) -> dict[str, Any]:
        traced = arenaplan.jax.program(step, (state,))
        runner = arenaplan.jax.runner(traced)
        for _ in range(steps):
            runner.run()
        return {name: np.array(runner.block(name)) for name in traced.values}

    def test_one_that_is_read_after_its_renewal_is_copied(self, jax: Any) -> None:
        """The old w is read by the last operation, so the new one waits at another place."""
        found = self.run(lambda w: (w * 2, (w + 1).sum()), jax.numpy.ones(3), 2)
        np.testing.assert_array_equal(found["w"], [4, 4, 4])

    def test_one_that_is_made_of_another(self, jax: Any) -> None:
        found = self.run(
            lambda s: ((s[1] + 0, s[0] + s[1]), s[0].sum()), (jax.numpy.zeros(2), jax.numpy.ones(2)), 5
        )
        np.testing.assert_array_equal([found["s[0]"][0], found["s[1]"][0]], [5, 8])

    def test_one_that_stays(self, jax: Any) -> None:
        found = self.run(lambda s: ((s[0], s[1] + s[0]), s[1].sum()), (jax.numpy.ones(2),) * 2, 3)
        np.testing.assert_array_equal(found["s[1]"], [4, 4])

    def test_two_that_change_places(self, jax: Any) -> None:
        with pytest.raises(DocumentError, match="is 's\\[1\\]' itself"):
            arenaplan.jax.program(
                lambda s: ((s[1], s[0]), s[0].sum()), ((jax.numpy.ones(2), jax.numpy.zeros(2)),)
            )

    def test_another_type(self, jax: Any) -> None:
        with pytest.raises(DocumentError, match=r"state of 'w' is float32\[2\], the old one float32\[3\]"):
            arenaplan.jax.program(lambda w: (w[:2] + 1, w.sum()), (jax.numpy.ones(3),))
        with pytest.raises(DocumentError, match=r"is int32\[3\], the old one float32\[3\]"):
            arenaplan.jax.program(lambda w: w.astype(jax.numpy.int32), (jax.numpy.ones(3),))

    def test_one_that_does_not_come_back(self, jax: Any) -> None:
        with pytest.raises(DocumentError, match="returns 1 arrays for the 2"):
            arenaplan.jax.program(lambda s: (s[0] + 1, s[1].sum()), ((jax.numpy.ones(2), jax.numpy.ones(2)),))


def test_a_step_that_branches(jax: Any) -> None:
    with pytest.raises(DocumentError, match="cannot trace the step"):
        arenaplan.jax.program(lambda w: (w if w.sum() > 0 else -w, w), (jax.numpy.ones(3),))


def assert_returned(jax: Any, step: Any, arguments: tuple[Any, ...]) -> Any:
    """The traced step, after two runs in the arena gave what JAX gives; the first argument carries over."""
    traced = arenaplan.jax.program(step, arguments)
    runner = arenaplan.jax.runner(traced)
    fed = [name for name in traced.arguments if not name.startswith("s")]
    for _ in range(2):
        for name, leaf in zip(fed, jax.tree.leaves(arguments[1:]), strict=True):
            traced.feed(runner, name, np.asarray(leaf))
        runner.run()
        expected = step(*arguments)
        leaves = [np.asarray(jax.numpy.asarray(leaf)) for leaf in jax.tree.leaves(expected)]
        arrays = traced.read(runner)
        assert [place.dtype for place in traced.results] == [leaf.dtype.name for leaf in leaves]
        for array, leaf in zip(arrays, leaves, strict=True):
            assert array.tobytes() == leaf.tobytes()
        arguments = (expected[0], *arguments[1:])
    return traced


class TestResults:
    """`TracedStep.results` says where each array that the function returned lies."""

    def test_order_duplicates_and_structures(self, jax: Any) -> None:
        def step(s: Any, x: Any) -> Any:
            first = x * 2
            second = first + 1
            return s + second.sum(), {"b": second, "a": [first, first, first.T, first[1:, 0]]}

        traced = assert_returned(jax, step, (jax.numpy.ones((2, 2)), jax.numpy.arange(6.0).reshape(2, 3)))
        paths = [place.path for place in traced.results]
        assert paths == ["[0]", *(f"[1]['a'][{k}]" for k in range(4)), "[1]['b']"]
        assert traced.results[0].block == "s"
        assert traced.results[1].block == traced.results[2].block

    def test_what_is_not_computed(self, jax: Any) -> None:
        """Arguments, the old state beside the new one, a state that stays, numbers, nothing."""
        s, x = jax.numpy.ones((2, 2)), jax.numpy.arange(6.0).reshape(2, 3)
        assert_returned(jax, lambda s, x: (s + x.sum(), s, x, 0.5), (s, x))
        assert_returned(jax, lambda s, x: (s, x.sum(), x[:0]), (s, x))
        assert_returned(jax, lambda s, x, unused: (s + 1, x.sum()), (s, x, x))

    @pytest.mark.parametrize(
        "word", ["bfloat16", "float16", "int8", "int16", "int32", "uint16", "uint32", "bool"]
    )
    def test_element_types(self, jax: Any, word: str) -> None:
        def step(s: Any, x: Any) -> Any:
            return (s + x.astype("float32").sum()).astype(s.dtype), x, ~x if word == "bool" else x + 1

        assert_returned(
            jax, step, (jax.numpy.ones((2, 2), word), jax.numpy.arange(6).reshape(2, 3).astype(word))
        )


def test_parameters_that_are_returned_as_they_are_are_constants(jax: Any) -> None:
    """An inference: nothing is fed but its input, and a run leaves the parameters alone."""
    numpy = jax.numpy

    def forward(parameters: Any, x: Any) -> Any:
        return parameters, numpy.tanh(x @ parameters["w"]) @ parameters["v"]

    parameters = {"w": numpy.ones((6, 5)), "v": numpy.ones((5, 2))}
    made = arenaplan.plan(arenaplan.jax.program(forward, (parameters, numpy.ones((3, 6)))))
    kinds = {made.program.values[entry.value].label: entry.kind.value for entry in made.program.entry}
    assert kinds == {"parameters['w']": "constant", "parameters['v']": "constant", "x": "fed"}


def test_scratch_is_what_xla_states_for_each_primitive(jax: Any) -> None:
    """Running sums have a copy inside; a loop takes what XLA needs for it. The step trains all the same."""
    numpy = jax.numpy

    def step(state: Any, x: Any) -> Any:
        sums = numpy.cumsum(x @ state, axis=0)
        carry, _ = jax.lax.scan(lambda c, t: (numpy.tanh(c @ state + t), None), sums, sums[:3])
        return state - 0.1 * carry, (carry**2).sum()

    arguments = numpy.ones((64, 64)) / 64, numpy.ones((64, 64))
    plain, measured = (arenaplan.jax.program(step, arguments, scratch=scratch) for scratch in (False, True))
    by_kernel = [{o.kernel: o.workspace for o in t.program.operations} for t in (plain, measured)]
    cumsum = jax.jit(lambda x: numpy.cumsum(x, axis=0)).lower(arguments[1]).compile().memory_analysis()
    assert cumsum.temp_size_in_bytes >= arguments[1].nbytes
    assert (by_kernel[0]["cumsum"], by_kernel[1]["cumsum"]) == (0, cumsum.temp_size_in_bytes)
    assert by_kernel[1]["scan"] >= arguments[1].nbytes
    assert by_kernel[1]["mul"] == 0
    plan = arenaplan.plan(measured)
    assert any(label.endswith(".workspace") for label in plan.program.by_label)
    assert arenaplan.validate(measured, plan, steps=2).identical
