"""Preparations come before derivation and may change bits, so that they decide the reference program."""
