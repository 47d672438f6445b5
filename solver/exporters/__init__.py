"""Exporters: the core's types, written as files of other tools and as pictures."""

from solver.exporters.minimalloc import dump_minimalloc

__all__ = ["dump_minimalloc"]
