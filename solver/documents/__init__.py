"""Documents: the versioned JSON of graphs, options, plans, buffers and reports.

    bytes ──parse──► value ──read──► model ──► core type ──► bytes
          strict JSON      format,         graph, options,
                           version, fields plan, ...

Models say what JSON may look like and stay in this package; the rest of the core knows its own
types only. Every refusal is a DocumentError (or the core's own error) with the place and a remedy.
"""

from solver.documents.digest import graph_digest
from solver.documents.graph import GraphDocument, dump_graph, load_graph
from solver.documents.options import OptionsDocument, dump_options, load_options
from solver.documents.parse import canonical_json, parse_json
from solver.documents.plan import PlanDocument, dump_plan, load_plan, seal

__all__ = [
    "GraphDocument",
    "OptionsDocument",
    "PlanDocument",
    "canonical_json",
    "dump_graph",
    "dump_options",
    "dump_plan",
    "graph_digest",
    "load_graph",
    "load_options",
    "load_plan",
    "parse_json",
    "seal",
]
