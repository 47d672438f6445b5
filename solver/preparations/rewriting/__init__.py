"""Equivalent graphs that need no more memory: rules, and the loop that keeps what lowers the peak."""

from solver.preparations.rewriting.engine import Footprint, Rewriting, apply, edits_of, replay, rewrite
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.rules import CHUNK_HEAD, RULES
from solver.preparations.rewriting.surroundings import Arithmetic, Surroundings

__all__ = [
    "CHUNK_HEAD",
    "RULES",
    "Agreement",
    "Arithmetic",
    "Edit",
    "Footprint",
    "Rewriting",
    "Rule",
    "Surroundings",
    "apply",
    "edits_of",
    "replay",
    "rewrite",
]
