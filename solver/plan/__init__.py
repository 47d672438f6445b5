"""Plans: the execution order, every buffer at its offset, and what proves them right and good.

What speaks of graphs is loaded when it is asked for: bare buffers need none of it, and it takes longer to
load than many of them take to place.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from solver.plan.certificate import Certificate
from solver.plan.placed import LayoutOptions, PlacedBuffers

if TYPE_CHECKING:
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

_HOMES = {
    "plan": ("Arena", "Plan", "PlanOptions", "PlannedBuffer", "PlannedStep", "Tenant"),
    "recycle": ("RecycledStep", "Recycling", "recycling"),
    "validation": ("StepReport", "ValidationReport"),
    "verify": ("live_at", "verify"),
    "violation": ("Violation",),
    "waves": ("WaveReport", "wave_report"),
}


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            value: object = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
