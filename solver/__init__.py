"""arenaplan's core: plans the memory of training neural networks, and proves the plan."""
