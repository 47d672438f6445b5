"""Importers: files of other tools, read into the core's own types."""

from solver.importers.minimalloc import MiniMallocTable, load_minimalloc

__all__ = ["MiniMallocTable", "load_minimalloc"]
