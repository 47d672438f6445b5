"""What is asked and answered, and a problem as the solvers compute with it: no search, nothing compiled."""
