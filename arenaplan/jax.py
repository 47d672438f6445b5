"""Training steps of JAX, planned as explicit programs. Needs JAX: the extra ``jax``.

    step = arenaplan.jax.program(train_step, (parameters, batch))    # train_step returns (parameters, loss)
    print(arenaplan.plan(step).arena_bytes)

JAX is imported when a function is called, not with this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from arenaplan.kernels import runner
from solver.arguments import checks_arguments
from solver.importers.jax import trace
from solver.importers.traced import TracedStep

__all__ = ["TracedStep", "program", "runner"]


@checks_arguments
def program(
    step: Callable[..., Any],
    example_arguments: Sequence[Any],
    *,
    carried: Sequence[int] = (0,),
    in_place: bool = False,
    scratch: bool = False,
    name: str = "step",
) -> TracedStep:
    """The primitives of a step as an explicit program: `plan` takes what this returns, `runner` runs it.

    `step` takes and returns trees of arrays; its first results are the new values of the arguments
    `carried`, the others are read by the caller. What does not carry over is fed before every iteration. With
    `in_place`, results of element-wise primitives take the place of operands that end there; a runtime has to
    run them so. With `scratch` each primitive is compiled by itself, and the temporary bytes that XLA states
    for it are planned as the scratch of its step.
    Raises ImportError without JAX, DocumentError where it cannot trace the step.
    """
    return trace(
        step, tuple(example_arguments), carried=carried, in_place=in_place, scratch=scratch, name=name
    )
