"""The Python interface: a page for each public package, filled by mkdocstrings from the docstrings."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from docs.generator.markdown import code, page, table

__all__ = ["pages"]

#: Packages and modules that other programs may import, and what each is for.
PACKAGES: Mapping[str, str] = MappingProxyType(
    {
        "arenaplan": "What programs import: planning in one call, and everything else by name.",
        "arenaplan.builder": "A tape that records networks in Python.",
        "arenaplan.torch": "PyTorch modules and training steps.",
        "arenaplan.jax": "Training steps of JAX.",
        "arenaplan.executorch": "Memory plans for ExecuTorch.",
        "solver.pipeline": "From a graph or a program to a proven plan.",
        "solver.verdict": "What a capacity comes to: curves of memory against time, and what makes it fit.",
        "solver.documents": "Reading and writing every kind of document.",
        "solver.graph": "Graphs, and what they are made of.",
        "solver.program": "Programs: values and steps, for everything that is planned.",
        "solver.training": "From a graph to its reference program, and explicit programs.",
        "solver.preparations": "Changes that come before the reference program, and decide it.",
        "solver.passes": "Changes that keep every bit.",
        "solver.targets": "The runtimes whose memory can be planned.",
        "solver.verify": "The symbolic proof.",
        "solver.plan": "Plans, of one program or of entry points.",
        "solver.reports.rows": "The facts of a plan, each with its value and its sentences.",
        "solver.reports.arenas": "The arenas of a plan: bytes by kind, the worst step, allocation, levels.",
        "solver.reports.records": "What a plan repeats and copies, and how long accesses take.",
        "solver.reports.comparison": "The differences between plans.",
        "solver.reports.budget": "Limits that a build enforces.",
        "solver.reports.verdict": "Results of `solver.verdict`: verdicts, and curves of memory against time.",
        "solver.reports.validation": "Results of proofs and of training in the arena.",
        "solver.layout": "Buffers in, offsets out.",
        "solver.executor": "Training in the planned arena, and comparing it with a run that shares "
        "no memory.",
        "solver.importers": "Files of other tools.",
        "solver.exporters": "Files for other tools.",
        "solver.errors": "What may go wrong.",
        "clients": "The service, from Python.",
    }
)

#: Methods of both kinds of clients are written once, with ``async``, in a base class that is private.
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"clients": "      inherited_members: true\n      show_labels: false\n"}
)


def pages() -> dict[str, Callable[[], str]]:
    """One page for each package, and a list of them."""
    named = {f"reference/python/{name}.md": partial(_page, name) for name in PACKAGES}
    return {"reference/python/index.md": _index, **named}


def _index() -> str:
    return page(
        "Python",
        "What is listed on these pages is public: names that a package lists in `__all__`. Other "
        "modules may change "
        "at any time. All of it is typed (`py.typed`), and checked by mypy in strict mode.",
        table(
            ("package", "what it is for"),
            ((f"[`{name}`]({name}.md)", text) for name, text in PACKAGES.items()),
        ),
    )


def _page(name: str) -> str:
    public = list(importlib.import_module(name).__all__)
    members = "".join(f"\n        - {one}" for one in public)
    return page(
        name,
        PACKAGES[name],
        f"Names: {', '.join(map(code, public))}.",
        f"::: {name}\n    options:\n{OPTIONS.get(name, '')}      members:{members}",
    )
