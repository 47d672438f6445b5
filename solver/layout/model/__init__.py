"""Problems, answers, and a problem as the solvers compute with it: no search, nothing compiled."""
