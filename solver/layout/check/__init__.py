"""Is this a problem, and is this a layout of it? Shares no code with the solvers."""
