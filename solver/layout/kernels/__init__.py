"""Compiled functions: the skyline search, the index of free space, placing in pieces."""
