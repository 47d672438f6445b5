"""HTTP routes, one module a concern."""
