"""Kernels keep away from what NumPy gets wrong."""

from __future__ import annotations

from pathlib import Path


def test_no_kernel_negates(root: Path) -> None:
    """``np.negative`` with an ``out`` of stride 4 elements (float32; 8 for float64) returns wrong values
    in NumPy 2.4.6: ``np.negative(np.arange(3.), out=np.zeros(24)[::8])``. Kernels multiply by -1."""
    kernels = sorted((root / "solver/executor/kernels").rglob("*.py"))
    assert kernels
    assert [path.name for path in kernels if "np.negative(" in path.read_text(encoding="utf-8")] == []
