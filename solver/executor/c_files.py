"""The C files of a plan with the first values of its weights, as a folder or as one archive."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Final

from solver.c_training import c_training_files
from solver.errors import OptionsError
from solver.executor.run import Data, first_contents
from solver.plan import Plan

__all__ = ["C_WEIGHTS", "c_files", "zip_archive"]

#: Where first values go: an array in net_weights.c, the file net_weights.bin, or nowhere.
C_WEIGHTS: Final = ("embed", "blob", "none")

#: The earliest time that a zip archive can hold: archives of equal files have equal bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FILE_MODE: Final = 0o100644


def c_files(plan: Plan, weights: str = "embed", data: Data | None = None) -> dict[str, bytes]:
    """The files of `c_training_files` by their paths, with first values by `weights`, one of `C_WEIGHTS`.

    `data` has the values that the graph gives, as `inline_data` returns them; a plan has their digests only.

    Raises OptionsError for other `weights`, for values that are not in `data`, and what `c_training_files`
    raises.
    """
    if weights not in C_WEIGHTS:
        raise OptionsError(
            f"First values cannot go to {weights!r:.200}.",
            remedy="Choose --weights embed (into net_weights.c), --weights blob (into net_weights.bin) or"
            " --weights none (the program begins with zeros).",
            path=("weights",),
        )
    files = c_training_files(plan)
    if weights == "none":
        return files
    named = sorted(initial.source for initial in plan.program.initial.values() if initial.scheme == "values")
    if named and data is None:
        raise OptionsError(
            f"The first values of {named[0]!r} are in the graph, not in the plan.",
            remedy="Choose --weights none, and load them in your program; or give the graph:"
            " `arenaplan export plan.json --to c-training --model graph.json -o net`.",
            path=("weights",),
        )
    return c_training_files(plan, first_contents(plan.program, data or {}), embeds=weights == "embed")


def zip_archive(files: Mapping[str, bytes]) -> bytes:
    """The files as a zip archive, in their order.

    Nothing is compressed: the bytes do not depend on the version of a library.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, _TIME)
            entry.create_system, entry.external_attr = _UNIX, _FILE_MODE << 16
            archive.writestr(entry, content)
    return buffer.getvalue()
