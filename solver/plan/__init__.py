"""Plans: the program, every value at its offset, and what says how good that is."""

from solver.layout import Certificate, LayoutOptions, PlacedBuffers
from solver.plan.levels import LevelReport, level_report
from solver.plan.options import PlanOptions
from solver.plan.paging import PagedCopy, Paging, TierUse, paging
from solver.plan.plan import Plan
from solver.plan.recomputation import Recomputation, Repetition, recomputation
from solver.plan.recycle import RecycledStep, Recycling, recycling
from solver.plan.tradeoff import TradeOff, TradeOffPoint
from solver.plan.validation import StepReport, ValidationReport
from solver.plan.verdict import Changes, OptionValue, Remedy, Verdict, VerdictStatus
from solver.plan.views import (
    AliasedValue,
    Arena,
    PlannedBuffer,
    PlannedStep,
    PlanTables,
    PlanView,
)
from solver.plan.violation import Violation
from solver.program import Costs, Lifetime

__all__ = [
    "AliasedValue",
    "Arena",
    "Certificate",
    "Changes",
    "Costs",
    "LayoutOptions",
    "LevelReport",
    "Lifetime",
    "OptionValue",
    "PagedCopy",
    "Paging",
    "PlacedBuffers",
    "Plan",
    "PlanOptions",
    "PlanTables",
    "PlanView",
    "PlannedBuffer",
    "PlannedStep",
    "Recomputation",
    "RecycledStep",
    "Recycling",
    "Remedy",
    "Repetition",
    "StepReport",
    "TierUse",
    "TradeOff",
    "TradeOffPoint",
    "ValidationReport",
    "Verdict",
    "VerdictStatus",
    "Violation",
    "level_report",
    "paging",
    "recomputation",
    "recycling",
]
