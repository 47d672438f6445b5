"""A plan as a page of its own: the arena over time, what lives when, why the peak is what it is.

One file that fetches nothing: style, script and data stand in it, and its policy forbids all else.

    page.html     the frame, with what is there before the script runs
    page.css      light, dark, print
    format.js     numbers and words
    data.js       the tables of a plan, unpacked, and what follows from them
    arena.js      the pictures: arena over time, memory over time
    page.js       controls, tables, keys
    data.py       the tables, packed
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

from solver.exporters.html.data import (
    change_facts,
    deployment_change_facts,
    deployment_facts,
    overview_facts,
    plan_facts,
)
from solver.plan import Deployment, JoinedPlan, PlanView

__all__ = ["dump_report"]

_SCRIPTS: Final = ("format.js", "data.js", "arena.js", "page.js")


def dump_report(plan: PlanView | Deployment, old: PlanView | Deployment | None = None) -> bytes:
    """The page of a plan, or of the change to it from an `old` one. Linear; about 90 bytes a buffer.

    Of a deployment it has a table of the entry points, their map one after the other, and a map of each.
    Compared with a plan of one program, a deployment is a plan in which each entry point runs once. Equal
    plans give equal bytes.
    """
    if isinstance(plan, Deployment) and (old is None or isinstance(old, Deployment)):
        data = _deployment_data(plan, old)
        name = plan.name
    else:
        plans = [
            JoinedPlan(one) if isinstance(one, Deployment) else one for one in (plan, old) if one is not None
        ]
        data = {
            "plans": [plan_facts(one) for one in plans],
            "shown": [] if old is None else [[1, "Before"], [0, "After"]],
            "change": None if old is None else change_facts(plans[1], plans[0]),
            "entry_points": None,
        }
        name = plans[0].graph
    title = f"{name}: memory plan" if old is None else f"{name}: change of a memory plan"
    # In a script element nothing but these begins or ends one.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    frame, style, script = _parts()
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}';"
        " img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    pieces = {
        "POLICY": html.escape(policy, quote=False), "TITLE": html.escape(title), "STYLE": style,
        "SCRIPT": script, "DATA": text,
    }  # fmt: skip
    parts = []
    for k, part in enumerate(frame.split("%%")):
        parts.append(pieces[part] if k % 2 else part)
    return "".join(parts).encode("utf-8", "replace")


def _deployment_data(deployment: Deployment, old: Deployment | None) -> dict[str, Any]:
    """The plans of the page, the number and the name of each that can be chosen, and tables of all."""
    joined, *plans = deployment_facts(deployment)
    before = [] if old is None else deployment_facts(old)[:1]
    names = [entry_point.name for entry_point in deployment.entry_points]
    several = [[0, "All"]] if old is None else [[1, "Before"], [0, "After"]]
    return {
        "plans": [joined, *before, *plans],
        "shown": [*several, *([k, name] for k, name in enumerate(names, 1 + len(before)))],
        "change": None if old is None else deployment_change_facts(old, deployment),
        "entry_points": overview_facts(deployment),
    }


@cache
def _parts() -> tuple[str, str, str]:
    """Frame, style and script."""
    here = files("solver.exporters.html")
    script = "\n".join(here.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS)
    frame, style = (here.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", "page.css"))
    return frame, style, f'"use strict";\n(() => {{\n{script}\n}})();'


def _digest(text: str) -> str:
    """How a content security policy names the text of an inline script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
