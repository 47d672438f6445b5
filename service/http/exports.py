"""Plans that are kept here, written as other files by a worker."""

from __future__ import annotations

from typing import Final

from fastapi import Request, Response

from service.auth.principal import principal_of
from service.http.disconnect import GONE, unless_disconnected
from service.http.responses import CACHE_CONTROL, matches_tag
from service.http.scopes import note
from service.http.state import State, state_of
from service.jobs.frames import Frame
from service.jobs.protocol import Limits, run_task
from service.problems import Problem
from solver.exporters import EXPORTERS

__all__ = ["accepted", "export"]

#: What is made of two plans, beside the exporters: what changed, as JSON.
_DIFFERENCE: Final = "difference"

#: A page of ours brings its script and style and asks nobody; the browser sees to it that it stays so.
_POLICY: Final = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:;"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def accepted(header: str) -> str | None:
    """The exporter that an Accept header prefers to JSON; None where JSON is as good as any other.

    Ranges are weighed by their q (RFC 9110, 12.5.1), the first of equals wins; ``*/*`` stands for JSON.
    """
    known = {one.media_type: one.name for one in EXPORTERS.values()}
    best, chosen = 0.0, None
    for part in header.split(","):
        media, *parameters = (text.strip().lower() for text in part.split(";"))
        try:
            weight = next((float(p[2:]) for p in parameters if p.startswith("q=")), 1.0)
        except ValueError:
            continue
        answered = media in known or media in ("application/json", "application/*", "*/*")
        if answered and weight > best:
            best, chosen = weight, known.get(media)
    return chosen


async def export(request: Request, digest: str, name: str, against: str | None = None) -> Response:
    """The plan with this digest as a file of exporter `name`; a report says what changed `against` another.

    200, or 304 when the caller names its entity tag in If-None-Match. Raises `Problem` for what is not here.
    """
    exporter = EXPORTERS.get(name)
    if exporter is None and name != _DIFFERENCE:
        remedy = f"Choose one of {', '.join(EXPORTERS)}, {_DIFFERENCE}."
        raise Problem("not-found", f"Plans are not written as {name!r:.80}.", remedy=remedy)
    if against is not None and name not in ("report", _DIFFERENCE):
        remedy = f"Leave `against` out, or ask for the report or the {_DIFFERENCE}."
        raise Problem("invalid-request", f"{name} is made of one plan.", remedy=remedy)
    if against is None and exporter is None:
        remedy = "Add ?against= and the digest of the older plan."
        raise Problem("invalid-request", f"A {_DIFFERENCE} is made of two plans.", remedy=remedy)
    state, tenant = state_of(request), principal_of(request).tenant
    old, new = [await _kept(state, tenant, one) if one is not None else b"" for one in (against, digest)]
    tag = f"{digest}:{name}" + (f":{against}" if against else "")
    headers = {"ETag": f'"{tag}"', "Cache-Control": CACHE_CONTROL, "Vary": "Accept"}
    if matches_tag(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    frame = await unless_disconnected(request, _write(state, tenant, name, old, new))
    if frame is None:
        return Response(status_code=GONE)
    note(request.scope, digest=digest, format=name)
    if exporter is None:
        return Response(frame.body, media_type="application/json", headers=headers)
    if exporter.media_type == "text/html":
        headers["Content-Security-Policy"] = _POLICY
    else:
        headers["Content-Disposition"] = f'attachment; filename="{digest[:12]}{exporter.suffix}"'
    return Response(frame.body, media_type=exporter.media_type, headers=headers)


async def _kept(state: State, tenant: str, digest: str) -> bytes:
    name = f"plans/{digest}"
    cached = state.cache.of(tenant).by_digest(name) or await state.shared.by_name(tenant, name)
    if cached is None:
        raise Problem(
            "plan-not-found",
            f"No plan {digest!r:.80} is kept here.",
            remedy="Send the request to /v1/plan again: the same request gets the same plan.",
        )
    return cached.body


async def _write(state: State, tenant: str, name: str, old: bytes, new: bytes) -> Frame:
    settings = state.settings
    limits = Limits(settings.deadline_max_seconds + settings.deadline_grace_seconds)
    head = {**state.limits, "format": name, "against": len(old)}
    return await run_task(state.pool, "export", head, old + new, limits, tenant=tenant)
