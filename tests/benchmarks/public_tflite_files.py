"""TensorFlow Lite files of other projects: package, version, path in the wheel, options, tensors to train."""

from __future__ import annotations

from typing import Final

__all__ = ["TFLITE_FILES"]

TFLITE_FILES: Final[tuple[tuple[str, str, str, tuple[str, ...], int | None], ...]] = ()
