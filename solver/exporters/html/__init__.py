"""A plan as a page of its own."""

from solver.plan import PlanView

__all__ = ["dump_report"]


def dump_report(plan: PlanView, old: PlanView | None = None) -> bytes:
    return b"<!doctype html><title>x</title>"
