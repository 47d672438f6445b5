"""The home of each value among memories that kernels reach: least time of all accesses, within capacities.

    relaxation   the levels on which capacities may be exceeded, as few as possible; a linear program on them:
                 a bound that `solver.accounting.homes` adds up, and a start for the search
    search       which item lies in which memory; loads OR-Tools where it searches exactly
    refine       homes whose layouts fit; homes and offsets at the same time, greedily, as runtimes do it

An item is a size, the levels on which it is held, and a time for each memory: programs and bare buffers have
them, too, so nothing here knows either.
"""
