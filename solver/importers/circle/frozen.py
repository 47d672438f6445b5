"""The part of a model behind the tensors that it is frozen before, which become its inputs.

Operators that lead to them alone keep their numbers and are skipped, so that they need not be known.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from solver.errors import GraphError
from solver.importers.circle.network import unique_names
from solver.importers.circle.read import Model
from solver.importers.cuts import Step, cut_points, freeze_sentence, needed_steps, unknown_cut

__all__ = ["freeze_note", "freeze_remedy", "frozen_before"]

#: Tensors that are tried before a message names none; a trial ends at the first operator that is refused.
_TRIALS: Final = 200


def frozen_before(model: Model, names: Sequence[str]) -> Model:
    """The model with the tensors `names` as inputs, and what leads to them alone skipped.

    Raises GraphError for names that no operator defines or that no output depends on. Linear.
    """
    steps, known = _steps(model), unique_names(model)
    number_by_name = {known[number]: number for _, writes in steps for number in writes}
    for name in names:
        if name not in number_by_name:
            raise unknown_cut(name, number_by_name, "it is an input or a constant" if name in known else "")
    cuts = [number_by_name[name] for name in names]
    kept = needed_steps(steps, model.outputs, cuts)
    read = {number for k in kept for number in steps[k][0]} | set(model.outputs)
    for name, number in zip(names, cuts, strict=True):
        if number not in read:
            raise unknown_cut(name, number_by_name, "the loss does not depend on it")
    inputs = (*(number for number in model.inputs if number in read), *cuts)
    return replace(model, inputs=inputs, skipped=frozenset(range(len(steps))) - frozenset(kept))


def freeze_note(model: Model, names: Sequence[str]) -> str:
    return (
        f"Frozen before {', '.join(map(repr, names))}: {len(model.skipped):,} of {len(model.operators):,}"
        " operators are not imported."
    )


def freeze_remedy(model: Model, refused: Collection[int], works: Callable[[Model], object]) -> str:
    """The remedy that names the first tensor behind all refused operators; empty where there is none.

    `works` imports a model and raises GraphError, with the number of an operator in its path where one is
    refused.
    """
    steps, names, culprits = _steps(model), unique_names(model), set(refused)
    candidates = cut_points(steps, model.outputs, culprits)
    for _ in range(_TRIALS):
        number = next(candidates, None)
        if number is None:
            return ""
        try:
            works(frozen_before(model, [names[number]]))
        except GraphError as error:
            culprit = {k for k in error.path[1:2] if error.path[0] == "operators" and isinstance(k, int)}
            if culprit - culprits:
                culprits |= culprit
                candidates = cut_points(steps, model.outputs, culprits)
        else:
            return freeze_sentence(names[number])
    return ""


def _steps(model: Model) -> list[Step[int]]:
    return [
        ({number for number in operator.inputs if number >= 0}, operator.outputs)
        for operator in model.operators
    ]
