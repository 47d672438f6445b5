"""Memory maps: a layout drawn as time × offset, as SVG, or as PNG with the extra ``plot``."""

from solver.exporters.memory_map.draw import draw
from solver.exporters.memory_map.plans import plan_svgs
from solver.exporters.memory_map.png import to_png
from solver.exporters.memory_map.scene import Scene
from solver.exporters.memory_map.svg import to_svg

__all__ = ["Scene", "draw", "plan_svgs", "to_png", "to_svg"]
