"""ResNet-50 as large as it is trained on ImageNet, as a graph document.

`python -m examples.resnet50 > resnet50.json` writes it. The gallery has it on small images.
Parameters have named initializers with seeds, so the document is small.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from arenaplan.builder import Model, sgd
from examples.gallery.resnet import build

__all__ = ["main", "resnet50"]


def resnet50(batch: int = 16, *, side: int = 224, classes: int = 1000) -> Model:
    """25,557,032 parameters for 1000 classes; SGD with momentum."""
    return build(batch, depth=50, side=side, classes=classes, optimizer=sgd(0.1, momentum=0.9))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the document."""
    parser = argparse.ArgumentParser(prog="python -m examples.resnet50", description=main.__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--side", type=int, default=224, help="of the images, in pixels")
    parser.add_argument("--classes", type=int, default=1000)
    given = parser.parse_args(arguments)
    json.dump(resnet50(given.batch, side=given.side, classes=given.classes).document, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
