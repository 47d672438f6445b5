"""Exporters: the core's types, written as files of other tools and as pictures."""

from solver.exporters.minimalloc import dump_minimalloc
from solver.exporters.offsets import dump_offsets, offset_rows

__all__ = ["dump_minimalloc", "dump_offsets", "offset_rows"]
