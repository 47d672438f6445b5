"""How small an arena can be, and what a solver may claim about the layout that it has found."""
