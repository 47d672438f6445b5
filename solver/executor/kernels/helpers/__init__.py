"""Code that kernels of several families share: blocks, windows, products, activations, random numbers.

A module here is not a family: `solver.executor.kernels` imports the modules beside this package only.
"""
