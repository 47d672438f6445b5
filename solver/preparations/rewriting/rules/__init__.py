"""The rules, in the order in which they are tried: what makes the graph smaller for the next comes first."""

from solver.preparations.rewriting.rule import Rule
from solver.preparations.rewriting.rules.activation import FuseActivation
from solver.preparations.rewriting.rules.bias import FuseBias
from solver.preparations.rewriting.rules.constants import FoldConstants
from solver.preparations.rewriting.rules.dead import DropDeadCode
from solver.preparations.rewriting.rules.duplicates import MergeDuplicates
from solver.preparations.rewriting.rules.head import ChunkHead
from solver.preparations.rewriting.rules.normalization import FoldNormalization
from solver.preparations.rewriting.rules.pooling import PoolFirst
from solver.preparations.rewriting.rules.splitting import SplitActivation

__all__ = ["CHUNK_HEAD", "RULES"]

#: The rule of the preparation `chunked_head`, which rewriting does not try by itself.
CHUNK_HEAD = ChunkHead()

RULES: tuple[Rule, ...] = (
    DropDeadCode(),
    MergeDuplicates(),
    FoldConstants(),
    FuseBias(),
    FoldNormalization(),
    PoolFirst(),
    FuseActivation(),
    SplitActivation(),
)
