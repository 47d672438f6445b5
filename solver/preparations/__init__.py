"""Preparations: what comes before derivation and may change bits, so that it decides the reference program."""
