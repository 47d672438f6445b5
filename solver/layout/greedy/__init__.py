"""Placing buffers one by one: in many orders, at scale, on the lowest plateau; local search among orders."""
