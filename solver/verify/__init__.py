"""Checks plans without trusting their makers: a symbolic proof in the arena's bytes, and the figures.

    proof        the obligations in their order; at another size, and for plans that share their memory
    form         the plan speaks of the values, steps and names of its reference
    sharing      which bytes may be shared: aliases, levels, residues
    execution    plan and reference run on terms
    figures      sizes, bounds and records, added up again; cost has the bounds on recomputation and accesses
    accesses     a log of the addresses that a runtime touched, compared with the plan
    unchecked    the claims of a plan document that no check can work out again

Beside itself it imports `solver.graph`, `solver.program`, `solver.plan`, `solver.reports`,
`solver.accounting`, `solver.layout.model`, `solver.layout.bounds`, `solver.layout.check`, `solver.options`,
`solver.memories`, and the helpers `solver.arguments`, `solver.canonical`, `solver.collector`,
`solver.errors`, `solver.late` and `solver.names`, directly or through one another: no pass, no target, no
search and no compiled code. The page says what a mistake in each could do.
"""

from solver.reports.validation import Violation
from solver.verify.accesses import AccessFault, AccessRule, MemoryAccess, check_accesses
from solver.verify.cost import added_up, check_cost_bound
from solver.verify.figures import FACTS, check_figures, check_recomputation
from solver.verify.form import check_labels
from solver.verify.proof import check_deployment_form, held_references, prove, prove_at, prove_deployment
from solver.verify.unchecked import UNCHECKED, is_unchecked

__all__ = [
    "FACTS",
    "UNCHECKED",
    "AccessFault",
    "AccessRule",
    "MemoryAccess",
    "Violation",
    "added_up",
    "check_accesses",
    "check_cost_bound",
    "check_deployment_form",
    "check_figures",
    "check_labels",
    "check_recomputation",
    "held_references",
    "is_unchecked",
    "prove",
    "prove_at",
    "prove_deployment",
]
