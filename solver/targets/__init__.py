"""What each runtime allocates, and when."""

from solver.targets.pools import Pool, TargetBuffer, TargetPlan, TargetStep

__all__ = ["Pool", "TargetBuffer", "TargetPlan", "TargetStep"]
