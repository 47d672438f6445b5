"""Which steps run again, so that a program keeps a budget of bytes at the least cost, and how near that is.

    costs        what a step costs: a roofline, or as given
    problem      the arrays of a program: what steps read and write, what may run again
    bounds       how small the peak can be in any order, without recomputation and with any
    cuts         more of that, by minimum cuts, where branches wait for each other
    cut_costs    what repetitions cost at least in every order
    tables       numbers of gaps, from which sequences follow; the problem for compiled code
    kernel       compiled: simulation, greedy repair; simulate calls it
    sequences    a walk through whole sequences; sequence_kernel is its compiled part
    segments     plans to start from near the floor: the forward pass in segments
    moments      the few-moment relaxation, in CP-SAT: bounds on the cost, and plans to start from
    recompute    what is tried in which order
    least        short searches for the least peak
    order        another order of the steps, with a lower peak
    orders       walks through orders; order_kernel is their compiled part
    rounds       orders in which what is written whole more than once changes places
    joint        an order for what will run again, both looked for together
    rerun        from a sequence to a program

    dual         multipliers that prove a bound on the cost without a solver
    paging       what leaves for slower memory, and when: a package of its own

Programs come in and go out; nothing here knows a graph or a layout. The search itself, `cheapest`, loads
NumPy, numba and OR-Tools, so it is imported from its module, where it is about to run.
"""

from solver.schedules.bounds import PeakBound, floor, order_bound
from solver.schedules.costs import flops_of, roofline, step_costs
from solver.schedules.problem import ScheduleProblem, schedule_problem
from solver.schedules.rerun import rerun
from solver.schedules.schedule import Schedule, ScheduleProof, SearchProgress, Teller

__all__ = [
    "PeakBound",
    "Schedule",
    "ScheduleProblem",
    "ScheduleProof",
    "SearchProgress",
    "Teller",
    "floor",
    "flops_of",
    "order_bound",
    "rerun",
    "roofline",
    "schedule_problem",
    "step_costs",
]
