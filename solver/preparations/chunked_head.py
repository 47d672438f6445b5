"""The preparation `chunked_head`: a last product and its cross-entropy, whose logits are computed in chunks.

The logits of a language model are its largest value: 156 MB for 256 tokens and 151,936 words. In chunks they
stay within the scratch budget, forward and backward. Sums have another order, so results round differently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from solver.errors import OptionsError
from solver.preparations.base import Planner, Preparation, Prepared
from solver.program import Replacement

__all__ = ["ChunkedHead"]


@dataclass(frozen=True, slots=True)
class ChunkedHead(Preparation):
    """With `chunked_head`, each softmax cross-entropy of a product becomes a ProductLogSumExp, which computes
    its logits in chunks. Cost: two derivations of the program.
    """

    name: ClassVar[str] = "chunked_head"

    chunked_head: bool = False

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        """Raises OptionsError where no loss of the graph has such a head."""
        if not self.chunked_head:
            return prepared
        # Rewriting is loaded only for plans that need it.
        from solver.preparations.rewriting import CHUNK_HEAD, Surroundings, apply, edits_of
        from solver.preparations.rewriting.head import why_not

        around = Surroundings(prepared.graph, planner.arithmetic)
        edits = edits_of(CHUNK_HEAD, around)
        if not edits:
            raise OptionsError(
                f"No head of {prepared.graph.name!r:.80} can be chunked: {why_not(around)}.",
                remedy="Leave the option out, or write the loss as CategoricalCrossEntropy, sparse and from"
                " logits, of a Gemm or MatMul that nothing else reads.",
                path=("chunked_head",),
            )
        chunked = replace(prepared, graph=apply(prepared.graph, edits))
        before, after = (planner.footprint(each)[0] for each in (prepared, chunked))
        replacements = tuple(
            Replacement(
                CHUNK_HEAD.name, edit.replaced, tuple(op.id for op in edit.operations), 0, before, after
            )
            for edit in edits
        )
        return replace(chunked, replacements=replacements)
