"""Plans: the execution order, every buffer at its offset, and what proves them right and good."""

from solver.plan.placed import LayoutOptions, PlacedBuffers
from solver.plan.plan import Arena, Certificate, Plan, PlannedBuffer, PlannedStep, PlanOptions, Tenant
from solver.plan.recycle import RecycledStep, Recycling, recycling
from solver.plan.validation import StepReport, ValidationReport
from solver.plan.verify import live_at, verify
from solver.plan.violation import Violation

__all__ = [
    "Arena",
    "Certificate",
    "LayoutOptions",
    "PlacedBuffers",
    "Plan",
    "PlanOptions",
    "PlannedBuffer",
    "PlannedStep",
    "RecycledStep",
    "Recycling",
    "StepReport",
    "Tenant",
    "ValidationReport",
    "Violation",
    "live_at",
    "recycling",
    "verify",
]
