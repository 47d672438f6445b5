"""Exporters: the core's types, written as files of other tools and as pictures.

`EXPORTERS` has those that plans are written with, by name; each loads what it needs when it is asked for.
"""

from solver.exporters.minimalloc import dump_minimalloc
from solver.exporters.offsets import dump_offsets, offset_rows
from solver.exporters.registry import EXPORTERS, Exporter, exporter_named, exporter_of_file

__all__ = [
    "EXPORTERS",
    "Exporter",
    "dump_minimalloc",
    "dump_offsets",
    "exporter_named",
    "exporter_of_file",
    "offset_rows",
]
