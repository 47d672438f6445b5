"""Searches that can prove: the skyline search, CP-SAT, and a large problem made coarse for search."""
