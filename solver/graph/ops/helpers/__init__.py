"""Code shared by several families of operators: checks of attributes, element-wise rules, windows, sequences.

A module here is not a family: `solver.graph.ops` takes operators from the modules beside this package only.
"""
