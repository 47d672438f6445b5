"""Lower bounds of an arena, and the claims that a layout allows."""
