"""Pictures: a layout drawn as time × offset, and any scene as SVG, or as PNG with the extra ``plot``."""

from solver.pictures.memory_map import draw
from solver.pictures.scene import Scene, to_png, to_svg

__all__ = ["Scene", "draw", "to_png", "to_svg"]
