"""Write the generated pages: ``python -m docs.generator FOLDER``. What the folder held before is removed."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from docs.generator import PAGES


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for name, page in PAGES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
