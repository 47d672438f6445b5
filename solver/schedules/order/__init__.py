"""Orders of the steps with a lower peak, and how small the peak can be in any order.

search       another order of the steps, with a lower peak; order_kernel is the compiled part of its walks
rounds       orders in which values that are written whole more than once change places
cuts         lower bounds on the peak by minimum cuts, where branches wait for each other
"""
