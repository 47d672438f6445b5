"""Documents: the versioned JSON of graphs, programs, options, costs, plans, buffers, reports, curves and
verdicts.

    bytes ──parse──► value ──read──► model ──► core type ──► bytes
          strict JSON      format,         graph, options,
                           version, fields plan, ...

Read `parse`, `read` and `fields` first; each other module is one document: its models, a loader and a writer.
The content of graphs, plans and programs, over which digests are taken, is made beside the types themselves
(`graph_content`, `plan_content`, `program_content`), so that planning needs no document.

Models say what JSON may look like and stay in this package; the rest of the core knows its own
types only. Every refusal is a DocumentError (or the core's own error) with the place and a remedy.

Each kind of document is loaded when it is first asked for: a command reads one or two of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late

if TYPE_CHECKING:
    from solver.documents.accesses import dump_accesses, load_accesses
    from solver.documents.budgets import BudgetsDocument, load_budgets, read_allowance
    from solver.documents.buffers import BuffersDocument, dump_buffers, load_buffers
    from solver.documents.costs import CostsDocument, dump_costs, load_costs
    from solver.documents.deployment import (
        DeploymentDocument,
        EntryFields,
        TieText,
        dump_deployment,
        dump_planned,
        load_deployment,
        load_entries,
        load_planned,
    )
    from solver.documents.fields import Size, read_size
    from solver.documents.graph import GraphDocument, dump_graph, graph_digest, load_graph
    from solver.documents.layout import LayoutDocument, dump_layout, layout_with_digest, load_layout
    from solver.documents.options import (
        LayoutOptionsDocument,
        OptionsDocument,
        dump_layout_options,
        dump_options,
        load_layout_options,
        load_options,
    )
    from solver.documents.parse import PROGRAM_FORMAT, parse_json
    from solver.documents.plan import PlanDocument, dump_plan, load_plan, with_digest
    from solver.documents.program import ProgramDocument, dump_program, load_program, program_digest
    from solver.documents.report import ReportDocument, dump_report, load_report
    from solver.documents.schemas import SCHEMAS
    from solver.documents.tradeoff import TradeOffDocument, dump_tradeoff, load_tradeoff
    from solver.documents.verdict import VerdictDocument, dump_verdict, load_verdict

__all__ = [
    "PROGRAM_FORMAT",
    "SCHEMAS",
    "BudgetsDocument",
    "BuffersDocument",
    "CostsDocument",
    "DeploymentDocument",
    "EntryFields",
    "GraphDocument",
    "LayoutDocument",
    "LayoutOptionsDocument",
    "OptionsDocument",
    "PlanDocument",
    "ProgramDocument",
    "ReportDocument",
    "Size",
    "TieText",
    "TradeOffDocument",
    "VerdictDocument",
    "dump_accesses",
    "dump_buffers",
    "dump_costs",
    "dump_deployment",
    "dump_graph",
    "dump_layout",
    "dump_layout_options",
    "dump_options",
    "dump_plan",
    "dump_planned",
    "dump_program",
    "dump_report",
    "dump_tradeoff",
    "dump_verdict",
    "graph_digest",
    "layout_with_digest",
    "load_accesses",
    "load_budgets",
    "load_buffers",
    "load_costs",
    "load_deployment",
    "load_entries",
    "load_graph",
    "load_layout",
    "load_layout_options",
    "load_options",
    "load_plan",
    "load_planned",
    "load_program",
    "load_report",
    "load_tradeoff",
    "load_verdict",
    "parse_json",
    "program_digest",
    "read_allowance",
    "read_size",
    "with_digest",
]

__getattr__ = loaded_late(
    __name__,
    {
        "accesses": "dump_accesses load_accesses",
        "budgets": "BudgetsDocument load_budgets read_allowance",
        "buffers": "BuffersDocument dump_buffers load_buffers",
        "costs": "CostsDocument dump_costs load_costs",
        "deployment": "DeploymentDocument EntryFields TieText dump_deployment dump_planned load_deployment"
        " load_entries load_planned",
        "fields": "Size read_size",
        "graph": "GraphDocument dump_graph graph_digest load_graph",
        "layout": "LayoutDocument dump_layout layout_with_digest load_layout",
        "options": "LayoutOptionsDocument OptionsDocument dump_layout_options dump_options"
        " load_layout_options load_options",
        "parse": "PROGRAM_FORMAT parse_json",
        "plan": "PlanDocument dump_plan load_plan with_digest",
        "program": "ProgramDocument dump_program load_program program_digest",
        "report": "ReportDocument dump_report load_report",
        "schemas": "SCHEMAS",
        "tradeoff": "TradeOffDocument dump_tradeoff load_tradeoff",
        "verdict": "VerdictDocument dump_verdict load_verdict",
    },
)
