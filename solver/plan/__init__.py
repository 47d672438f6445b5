"""A plan: a program with the place of every value and the certificates of its arenas, for one program or for
the entry points of a deployment, at one size or at each of a range.

    options      what is asked for
    plan         one program
    deployment   several programs in one arena, and the choice of one of them
    ranges       the plan at another size
    views        the arenas, buffers and steps that readers see
    content      the canonical JSON that digests are taken over

What is told about plans stands above, in `solver.reports`.
"""

from __future__ import annotations

from solver.layout import Certificate, LayoutOptions, PlacedBuffers
from solver.plan.content import with_deployment_digest, with_digest
from solver.plan.deployment import (
    MAX_ENTRIES,
    MAX_TIES,
    PURPOSES,
    Deployment,
    EntryPoint,
    EntryPointReport,
    EntrySpec,
    JoinedPlan,
    Persistent,
    PersistentRow,
    Tie,
    check_name,
    deployment_notes,
    entry_point_reports,
    one_plan,
    persistent_rows,
    plan_of,
    plans_to_compare,
    purpose_of_plan,
    read_entry,
    read_tie,
)
from solver.plan.options import (
    PlanOptions,
    RequestedOptions,
    SizeRange,
    check_ranges,
    refuse_ranges,
    split_ranges,
)
from solver.plan.plan import Plan, PlannedSizes, RefusedSize
from solver.plan.views import AliasedValue, Arena, PlannedBuffer, PlannedStep, PlanView
from solver.program import Costs, Lifetime

__all__ = [
    "MAX_ENTRIES",
    "MAX_TIES",
    "PURPOSES",
    "AliasedValue",
    "Arena",
    "Certificate",
    "Costs",
    "Deployment",
    "EntryPoint",
    "EntryPointReport",
    "EntrySpec",
    "JoinedPlan",
    "LayoutOptions",
    "Lifetime",
    "Persistent",
    "PersistentRow",
    "PlacedBuffers",
    "Plan",
    "PlanOptions",
    "PlanView",
    "PlannedBuffer",
    "PlannedSizes",
    "PlannedStep",
    "RefusedSize",
    "RequestedOptions",
    "SizeRange",
    "Tie",
    "check_name",
    "check_ranges",
    "deployment_notes",
    "entry_point_reports",
    "one_plan",
    "persistent_rows",
    "plan_of",
    "plans_to_compare",
    "purpose_of_plan",
    "read_entry",
    "read_tie",
    "refuse_ranges",
    "split_ranges",
    "with_deployment_digest",
    "with_digest",
]
