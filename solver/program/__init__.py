"""The program: values, steps, levels, aliases, entry and exit; and what follows from it."""

from solver.program.build import Builder
from solver.program.chains import UseDefChain, dependencies, followers, use_def_chains
from solver.program.check import check_program
from solver.program.conflicts import conflict_pairs, conflict_sets
from solver.program.cost_bound import CostBound, DualRow, RowKind
from solver.program.costs import MOST_NANOSECONDS, Costs, check_costs, given_costs
from solver.program.digest import PIECE, reference_digest
from solver.program.exact import exact
from solver.program.footprint import Footprint, loads
from solver.program.ir import (
    ACCUMULATE,
    CLIP,
    CONVERT,
    COPY,
    OWN_KERNELS,
    RESIDUE,
    SEED,
    UPDATE,
    Access,
    Alias,
    Binding,
    Entry,
    EntryKind,
    Exit,
    Initial,
    Kind,
    Lifetime,
    Phase,
    Program,
    Space,
    Step,
    Value,
    anonymous,
    numbered,
)
from solver.program.lives import Region, alias_sets, expiring, held_lives, lent, lives, regions, without
from solver.program.permissions import permission_attributes, permitted
from solver.program.records import Record, Replacement
from solver.program.tiers import Tier, check_tiers, transfer_nanoseconds
from solver.program.touched import in_order, touched

__all__ = [
    "ACCUMULATE",
    "CLIP",
    "CONVERT",
    "COPY",
    "MOST_NANOSECONDS",
    "OWN_KERNELS",
    "PIECE",
    "RESIDUE",
    "SEED",
    "UPDATE",
    "Access",
    "Alias",
    "Binding",
    "Builder",
    "CostBound",
    "Costs",
    "DualRow",
    "Entry",
    "EntryKind",
    "Exit",
    "Footprint",
    "Initial",
    "Kind",
    "Lifetime",
    "Phase",
    "Program",
    "Record",
    "Region",
    "Replacement",
    "RowKind",
    "Space",
    "Step",
    "Tier",
    "UseDefChain",
    "Value",
    "alias_sets",
    "anonymous",
    "check_costs",
    "check_program",
    "check_tiers",
    "conflict_pairs",
    "conflict_sets",
    "dependencies",
    "exact",
    "expiring",
    "followers",
    "given_costs",
    "held_lives",
    "in_order",
    "lent",
    "lives",
    "loads",
    "numbered",
    "permission_attributes",
    "permitted",
    "reference_digest",
    "regions",
    "touched",
    "transfer_nanoseconds",
    "use_def_chains",
    "without",
]
