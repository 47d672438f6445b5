"""Searches that can prove: compiled and in Python, CP-SAT, and a large problem made small for them."""
