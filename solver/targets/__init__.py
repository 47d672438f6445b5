"""What each runtime allocates, and when."""

from solver.targets.pools import Pool, TargetBuffer, TargetPlan, TargetStep, TargetTenant

__all__ = ["Pool", "TargetBuffer", "TargetPlan", "TargetStep", "TargetTenant"]
