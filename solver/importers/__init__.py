"""Importers: files of other tools, read into the core's own types.

Importers of models are loaded by name, from the registry: with the graph types, reading a CSV file would
take twice as long.
"""

from solver.importers.minimalloc import MiniMallocTable, load_minimalloc

__all__ = ["MiniMallocTable", "load_minimalloc"]
