"""Plans: the program, every value at its offset, and what says how good that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late
from solver.layout import Certificate, LayoutOptions, PlacedBuffers
from solver.plan.deployment import Deployment, EntryPoint, Persistent, purpose_of_plan
from solver.plan.entries import (
    MAX_ENTRIES,
    MAX_TIES,
    PURPOSES,
    EntrySpec,
    Tie,
    check_name,
    read_entry,
    read_tie,
)
from solver.plan.homes import Homes, MemoryUse, homes
from solver.plan.options import PlanOptions, RequestedOptions
from solver.plan.paging import PagedCopy, Paging, TierUse, paging
from solver.plan.plan import Plan
from solver.plan.ranges import PlannedSizes, RefusedSize, SizeRange, check_ranges, refuse_ranges, split_ranges
from solver.plan.recomputation import Recomputation, Repetition, recomputation
from solver.plan.validation import StepReport, ValidationReport, Violation
from solver.plan.views import (
    AliasedValue,
    Arena,
    PlannedBuffer,
    PlannedStep,
    PlanView,
)
from solver.program import Costs, Lifetime

if TYPE_CHECKING:
    from solver.plan.budget import Allowance, Budget, Check, Limits, checks
    from solver.plan.comparison import (
        ArenaChange,
        Change,
        DeploymentDifference,
        EntryPointChange,
        Move,
        OptionChange,
        PersistentMove,
        PlanDifference,
        deployment_difference,
        difference,
        layers,
        options_in_words,
    )
    from solver.plan.content import (
        certificate_content,
        constraints_content,
        deployment_content,
        memories_content,
        options_content,
        plan_content,
        with_deployment_digest,
        with_digest,
    )
    from solver.plan.entry_points import (
        EntryPointReport,
        PersistentRow,
        deployment_notes,
        entry_point_reports,
        one_plan,
        persistent_rows,
        plan_of,
        plans_to_compare,
    )
    from solver.plan.joined import JoinedPlan
    from solver.plan.levels import LevelReport, level_report
    from solver.plan.recycle import RecycledStep, Recycling, recycling
    from solver.plan.resize import resized
    from solver.plan.tradeoff import TradeOff, TradeOffPoint
    from solver.plan.verdict import Attempt, Changes, OptionValue, Remedy, Verdict, VerdictStatus

__all__ = [
    "MAX_ENTRIES",
    "MAX_TIES",
    "PURPOSES",
    "AliasedValue",
    "Allowance",
    "Arena",
    "ArenaChange",
    "Attempt",
    "Budget",
    "Certificate",
    "Change",
    "Changes",
    "Check",
    "Costs",
    "Deployment",
    "DeploymentDifference",
    "EntryPoint",
    "EntryPointChange",
    "EntryPointReport",
    "EntrySpec",
    "Homes",
    "JoinedPlan",
    "LayoutOptions",
    "LevelReport",
    "Lifetime",
    "Limits",
    "MemoryUse",
    "Move",
    "OptionChange",
    "OptionValue",
    "PagedCopy",
    "Paging",
    "Persistent",
    "PersistentMove",
    "PersistentRow",
    "PlacedBuffers",
    "Plan",
    "PlanDifference",
    "PlanOptions",
    "PlanView",
    "PlannedBuffer",
    "PlannedSizes",
    "PlannedStep",
    "Recomputation",
    "RecycledStep",
    "Recycling",
    "RefusedSize",
    "Remedy",
    "Repetition",
    "RequestedOptions",
    "SizeRange",
    "StepReport",
    "Tie",
    "TierUse",
    "TradeOff",
    "TradeOffPoint",
    "ValidationReport",
    "Verdict",
    "VerdictStatus",
    "Violation",
    "certificate_content",
    "check_name",
    "check_ranges",
    "checks",
    "constraints_content",
    "deployment_content",
    "deployment_difference",
    "deployment_notes",
    "difference",
    "entry_point_reports",
    "homes",
    "layers",
    "level_report",
    "memories_content",
    "one_plan",
    "options_content",
    "options_in_words",
    "paging",
    "persistent_rows",
    "plan_content",
    "plan_of",
    "plans_to_compare",
    "purpose_of_plan",
    "read_entry",
    "read_tie",
    "recomputation",
    "recycling",
    "refuse_ranges",
    "resized",
    "split_ranges",
    "with_deployment_digest",
    "with_digest",
]

__getattr__ = loaded_late(
    __name__,
    {
        "budget": "Allowance Budget Check Limits checks",
        "comparison": "ArenaChange Change DeploymentDifference EntryPointChange Move OptionChange"
        " PersistentMove PlanDifference deployment_difference difference layers options_in_words",
        "content": "certificate_content constraints_content deployment_content memories_content"
        " options_content plan_content with_deployment_digest with_digest",
        "entry_points": "EntryPointReport PersistentRow deployment_notes entry_point_reports one_plan"
        " persistent_rows plan_of plans_to_compare",
        "joined": "JoinedPlan",
        "levels": "LevelReport level_report",
        "recycle": "RecycledStep Recycling recycling",
        "resize": "resized",
        "tradeoff": "TradeOff TradeOffPoint",
        "verdict": "Attempt Changes OptionValue Remedy Verdict VerdictStatus",
    },
)
