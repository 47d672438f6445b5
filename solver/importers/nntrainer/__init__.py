"""nntrainer's model files: INI sections in, a trainable graph out.

file --ini--> sections, those of the files that it names, too
     --load--> layers in order --layers--> operations in a `Network` --> trainable graph
"""

from __future__ import annotations

from solver.importers.nntrainer.load import load_nntrainer, load_nntrainer_ini

__all__ = ["load_nntrainer", "load_nntrainer_ini"]
