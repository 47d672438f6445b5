"""Recorded networks, ready to be planned, validated and trained."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from arenaplan.choices import PlanChoices, planned, shows
from solver.arguments import checks_arguments
from solver.documents import load_graph
from solver.executor import Trainer, ValidationReport, validate
from solver.graph import Array, Role, TrainableGraph
from solver.plan import Plan, PlanOptions

__all__ = ["Batch", "Document", "Model", "inline"]

Document = dict[str, Any]

#: An array for each input and label.
Batch = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Model:
    """A graph document, the verified graph that it describes, and what can be done with it.

    Nothing is planned or computed before it is asked for.
    """

    document: Document
    graph: TrainableGraph

    @classmethod
    @checks_arguments
    def of(cls, document: Document) -> Model:
        """Raises GraphError with the place of the culprit."""
        return cls(document, load_graph(document))

    @property
    def parameters(self) -> int:
        """Numbers in parameters, trained or not."""
        return sum(x.type.elements for x in self.graph.operands.values() if x.role is Role.PARAMETER)

    @shows(PlanChoices)
    @checks_arguments
    def plan(self, options: PlanOptions | None = None, **choices: Unpack[PlanChoices]) -> Plan:
        """The plan of one training step: see `arenaplan.plan`."""
        return planned(self.graph, options, choices)

    @shows(PlanChoices)
    @checks_arguments
    def trainer(self, options: PlanOptions | None = None, **choices: Unpack[PlanChoices]) -> Trainer:
        """A trainer in a new arena, before the first step."""
        return Trainer(self.graph, self.plan(options, **choices))

    @checks_arguments
    def train(self, batches: Iterable[Batch]) -> Iterator[float]:
        """Plan, then train in the arena; the loss of each batch as it comes."""
        trainer = self.trainer()
        for batch in batches:
            yield trainer.step(batch)

    @checks_arguments
    def validate(self, steps: int = 2) -> ValidationReport:
        """Train in the arena and without shared memory, and compare bit for bit."""
        return validate(self.graph, self.plan(), steps=steps)

    @checks_arguments
    def starting_from(self, values: Mapping[str, Array]) -> Model:
        """The same model with other first values; those of operands that it does not have do not count."""
        operands = [
            row | {"initializer": inline(values[row["name"]])} if row["name"] in values else row
            for row in self.document["operands"]
        ]
        return Model.of(self.document | {"operands": operands})


def inline(values: Array) -> Document:
    """The initializer that holds these values."""
    little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
    return {"kind": "values", "base64": base64.b64encode(little.tobytes()).decode()}
