"""Importers: files of other tools, read into the core's own types.

`nntrainer_ini` is imported by name: graphs would be half of the time that a CSV file takes to load.
"""

from solver.importers.minimalloc import MiniMallocTable, load_minimalloc

__all__ = ["MiniMallocTable", "load_minimalloc"]
