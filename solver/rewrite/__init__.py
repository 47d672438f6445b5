"""Equivalent graphs that need no more memory: rules, and the loop that keeps what lowers the peak."""

from solver.rewrite.engine import Footprint, Replacement, Rewriting, replay, rewrite
from solver.rewrite.rule import Agreement, Edit, Rule
from solver.rewrite.rules import RULES
from solver.rewrite.surroundings import Arithmetic, Surroundings

__all__ = [
    "RULES",
    "Agreement",
    "Arithmetic",
    "Edit",
    "Footprint",
    "Replacement",
    "Rewriting",
    "Rule",
    "Surroundings",
    "replay",
    "rewrite",
]
