"""Orders of the steps with a lower peak, and how small the peak can be in any order.

search       another order of the steps, with a lower peak
orders       walks through orders; order_kernel is their compiled part
rounds       orders in which values that are written whole more than once change places
cuts         lower bounds on the peak by minimum cuts, where branches wait for each other
"""
