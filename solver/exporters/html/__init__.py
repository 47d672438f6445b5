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
from typing import Final

from solver.exporters.html.data import change_facts, plan_facts
from solver.plan import PlanView

__all__ = ["dump_report"]

_SCRIPTS: Final = ("format.js", "data.js", "arena.js", "page.js")


def dump_report(plan: PlanView, old: PlanView | None = None) -> bytes:
    """The page of a plan, or of the change to it from an `old` one. Linear; about 90 bytes a buffer.

    Equal plans give equal bytes.
    """
    title = f"{plan.graph}: memory plan" if old is None else f"{plan.graph}: change of a memory plan"
    data = {
        "plans": [plan_facts(one) for one in ((plan,) if old is None else (plan, old))],
        "change": None if old is None else change_facts(old, plan),
    }
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
