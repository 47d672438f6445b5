"""Which steps run again, so that a program keeps within a budget of bytes at the least cost.

    search       the stages of the search, and how near its answer is to the optimum
    simulate     the load and the greedy repair of a choice; kernel is their compiled part
    sequences    a walk through whole sequences; sequence_kernel is its compiled part
    moments      the few-moment relaxation, in CP-SAT: bounds on the cost, and plans to start from
    dual         multipliers that prove a bound on the cost without a solver
    cut_costs    lower bounds on the cost of repetitions that hold in every order
    joint        an order for the steps that will run again, both searched for together
    least        short searches for the least peak
    rerun        from a sequence to a program

The search itself, `search.cheapest`, loads NumPy, numba and OR-Tools, so it is imported where it runs.
"""
