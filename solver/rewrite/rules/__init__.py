"""The rules, in the order in which they are tried: what makes the graph smaller for the next comes first."""

from solver.rewrite.rule import Rule
from solver.rewrite.rules.activation import FuseActivation
from solver.rewrite.rules.bias import FuseBias
from solver.rewrite.rules.constants import FoldConstants
from solver.rewrite.rules.dead import DropDeadCode
from solver.rewrite.rules.duplicates import MergeDuplicates
from solver.rewrite.rules.identities import DropIdentities
from solver.rewrite.rules.normalization import FoldNormalization
from solver.rewrite.rules.pooling import PoolFirst
from solver.rewrite.rules.products import FuseTranspose
from solver.rewrite.rules.splitting import SplitActivation
from solver.rewrite.rules.transposes import JoinTransposes
from solver.rewrite.rules.views import JoinViews

__all__ = ["RULES"]

RULES: tuple[Rule, ...] = (
    DropDeadCode(),
    DropIdentities(),
    MergeDuplicates(),
    JoinViews(),
    JoinTransposes(),
    FoldConstants(),
    FuseTranspose(),
    FuseBias(),
    FoldNormalization(),
    PoolFirst(),
    FuseActivation(),
    SplitActivation(),
)
