"""Plans: the execution order, every buffer at its offset, and what proves them right and good."""

from solver.layout.model.certificate import Certificate
from solver.layout.model.placed import LayoutOptions, PlacedBuffers
from solver.plan.plan import Arena, Plan, PlannedBuffer, PlannedStep, PlanOptions, Tenant
from solver.plan.recycle import RecycledStep, Recycling, recycling
from solver.plan.validation import StepReport, ValidationReport
from solver.plan.verify import live_at, verify
from solver.plan.violation import Violation
from solver.plan.waves import WaveReport, wave_report

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
    "WaveReport",
    "live_at",
    "recycling",
    "verify",
    "wave_report",
]
