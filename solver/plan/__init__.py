"""Plans: the program, every value at its offset, and what says how good that is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late
from solver.layout import Certificate, LayoutOptions, PlacedBuffers
from solver.plan.deployment import Deployment, EntryPoint, Persistent
from solver.plan.entries import MAX_ENTRIES, PURPOSES, EntrySpec, Tie, check_name, read_entry, read_tie
from solver.plan.homes import Homes, MemoryUse, homes
from solver.plan.options import PlanOptions, RequestedOptions
from solver.plan.paging import PagedCopy, Paging, TierUse, paging
from solver.plan.plan import Plan
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
    from solver.plan.budget import Allowance, Budget, Check, checks
    from solver.plan.comparison import (
        ArenaChange,
        Change,
        OptionChange,
        PlanDifference,
        difference,
        layers,
        options_in_words,
    )
    from solver.plan.content import (
        certificate_content,
        constraints_content,
        deployment_content,
        options_content,
        plan_content,
        with_deployment_digest,
        with_digest,
    )
    from solver.plan.levels import LevelReport, level_report
    from solver.plan.recycle import RecycledStep, Recycling, recycling
    from solver.plan.tradeoff import TradeOff, TradeOffPoint
    from solver.plan.verdict import Attempt, Changes, OptionValue, Remedy, Verdict, VerdictStatus

__all__ = [
    "MAX_ENTRIES",
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
    "EntryPoint",
    "EntrySpec",
    "Homes",
    "LayoutOptions",
    "LevelReport",
    "Lifetime",
    "MemoryUse",
    "OptionChange",
    "OptionValue",
    "PagedCopy",
    "Paging",
    "Persistent",
    "PlacedBuffers",
    "Plan",
    "PlanDifference",
    "PlanOptions",
    "PlanView",
    "PlannedBuffer",
    "PlannedStep",
    "Recomputation",
    "RecycledStep",
    "Recycling",
    "Remedy",
    "Repetition",
    "RequestedOptions",
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
    "checks",
    "constraints_content",
    "deployment_content",
    "difference",
    "homes",
    "layers",
    "level_report",
    "options_content",
    "options_in_words",
    "paging",
    "plan_content",
    "read_entry",
    "read_tie",
    "recomputation",
    "recycling",
    "with_deployment_digest",
    "with_digest",
]

__getattr__ = loaded_late(
    __name__,
    {
        "budget": "Allowance Budget Check checks",
        "comparison": "ArenaChange Change OptionChange PlanDifference difference layers options_in_words",
        "content": "certificate_content constraints_content deployment_content options_content plan_content"
        " with_deployment_digest with_digest",
        "levels": "LevelReport level_report",
        "recycle": "RecycledStep Recycling recycling",
        "tradeoff": "TradeOff TradeOffPoint",
        "verdict": "Attempt Changes OptionValue Remedy Verdict VerdictStatus",
    },
)
