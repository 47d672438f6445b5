"""Equivalent graphs that need no more memory: rules, and the loop that keeps what lowers the peak."""

from solver.preparations.rewriting.engine import Footprint, Rewriting, replay, rewrite
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.rules import RULES
from solver.preparations.rewriting.surroundings import Arithmetic, Surroundings

__all__ = [
    "RULES",
    "Agreement",
    "Arithmetic",
    "Edit",
    "Footprint",
    "Rewriting",
    "Rule",
    "Surroundings",
    "replay",
    "rewrite",
]
