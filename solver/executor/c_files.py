"""The C files of a plan with the first values of its weights, as a folder or as one archive."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Final

import numpy as np

from solver.c_training import c_training_files, entry_points_of, functions_of, persistent_values
from solver.errors import OptionsError, PlanError
from solver.executor.arithmetic import rewritten
from solver.executor.proved import entry_programs, inline_data, program_at
from solver.executor.run import first_content
from solver.graph import TrainableGraph
from solver.plan import Deployment, Plan
from solver.program import EntryKind

__all__ = ["C_WEIGHTS", "MAX_EMBEDDED_BYTES", "c_files", "first_contents", "zip_archive"]

#: Where first values go: an array in net_weights.c, the file net_weights.bin, or nowhere.
C_WEIGHTS: Final = ("embed", "blob", "none")

#: A compiler takes about 1.4 s and 100 MB for each MiB of an array's text.
MAX_EMBEDDED_BYTES: Final = 8 * 2**20

#: The earliest time that a zip archive can hold: archives of equal files have equal bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_FILE_MODE: Final = 0o100644


#: The graph of a plan, or that of each entry point by name.
Graphs = TrainableGraph | Mapping[str, TrainableGraph]


def c_files(
    planned: Plan | Deployment, weights: str | None = None, graphs: Graphs | None = None
) -> dict[str, bytes]:
    """The files of `c_training_files` by their paths, with first values by `weights`, one of `C_WEIGHTS`.

    Left out, it is embed up to `MAX_EMBEDDED_BYTES` of first values, else blob. `graphs` have the values of
    which a plan has digests only. With the graph of a plan of a range the files
    serve all its sizes, each of which is proved; without it the largest.

    Raises OptionsError for other `weights`, where these are needed and missing, and what `c_training_files`
    raises.
    """
    if weights not in (None, *C_WEIGHTS):
        raise OptionsError(
            f"First values cannot go to {weights!r:.200}.",
            remedy="Choose --weights embed (into net_weights.c), --weights blob (into net_weights.bin) or"
            " --weights none (your program writes them).",
            path=("weights",),
        )
    functions_of(planned)  # refuses what C cannot run before first values are asked for
    at, is_whole = _plans_at_sizes(planned, graphs), weights != "none"
    for row in persistent_values(planned, constants=True) + is_whole * persistent_values(planned):
        program = entry_points_of(planned)[row.owner].plan.program
        initial = program.initial.get(row.value)
        if graphs is None and initial is not None and initial.scheme == "values" and initial.data is None:
            what, other = "first values of {!r} are", "Choose --weights none, and load them in your program"
            if row.is_constant:
                what, other = "constant {!r} is", "Plan again with this version"
            raise OptionsError(
                f"The {what.format(initial.source)} in the graph, not in the plan.",
                remedy=f"{other}; or give the graph:"
                " `arenaplan export plan.json --to c-training --model graph.json -o net`.",
                path=("weights",),
            )
    first = first_contents(planned, graphs, weights=is_whole)
    size = sum(row.type.nbytes for row in persistent_values(planned))
    embeds = weights == "embed" or (weights is None and size <= MAX_EMBEDDED_BYTES)
    return c_training_files(planned, first, embeds=embeds, at=at)


def _plans_at_sizes(planned: Plan | Deployment, graphs: Graphs | None) -> dict[int, Plan]:
    """The plan at each size of its range, proved; empty for a plan of one size, and without the graph.

    Raises OptionsError for several ranges, and where a constant depends on the size.
    """
    served = None if isinstance(planned, Deployment) else planned.planned_sizes
    if served is None or not isinstance(graphs, TrainableGraph) or isinstance(planned, Deployment):
        return {}
    if len(served.ranges) > 1:
        raise OptionsError(
            f"C serves one range, and the plan has {', '.join(map(str, served.ranges))}.",
            remedy="Plan a range of one dimension.",
        )
    (program,), violations = entry_programs(
        graphs, planned, "c" if planned.options.target == "c" else "numpy"
    )
    if violations:
        raise PlanError(f"The plan is wrong: {violations[0].detail}", remedy="Plan again.")
    refused, plans = {each.sizes for each in served.refused}, dict[int, Plan]()
    for (size,) in served.all():
        if (size,) not in refused:
            there = program_at(program, {served.names[0]: size}) if (size,) != served.most else program
            plans[size] = there.plan
            _check_constants(planned, there.plan, size)
    return plans


def _check_constants(planned: Plan, plan: Plan, size: int) -> None:
    """Raises OptionsError for a constant that is another one at this size: a device has one of each."""
    values = plan.program.values
    for entry in plan.program.entry:
        if entry.kind is not EntryKind.CONSTANT:
            continue
        label = values[entry.value].label
        number = planned.program.by_label[label]
        ours = values[entry.value].type, plan.program.initial.get(entry.value)
        if ours != (planned.program.values[number].type, planned.program.initial.get(number)):
            raise OptionsError(
                f"The constant {label!r:.200} is another one at size {size}, and C has one for all sizes.",
                remedy="Plan one size, or leave out --model: the files are then for the largest size.",
            )


def first_contents(
    planned: Plan | Deployment, graphs: Graphs | None = None, *, weights: bool = True
) -> dict[str, bytes]:
    """The first contents of what stays from one run to the next, by name, in C order; without `weights`
    those of constants alone.

    `graphs`, the graph of a plan or those of entry points by name, have the values that a plan has digests of
    only. Raises PlanError for one that is missing or changed. Linear in the bytes.
    """
    entry_points = entry_points_of(planned)
    if graphs is None or isinstance(graphs, TrainableGraph):
        graphs = {} if graphs is None else {"": graphs}
    plans = [entry_point.plan for entry_point in entry_points]
    data = [
        inline_data(rewritten(graphs[each.name], each.plan)) if each.name in graphs else {}
        for each in entry_points
    ]
    return {
        row.name: np.ascontiguousarray(
            first_content(plans[row.owner].program, row.value, data[row.owner])
        ).tobytes()
        for row in persistent_values(planned, constants=True) + weights * persistent_values(planned)
    }


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
