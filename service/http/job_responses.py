"""Jobs, and what they have come to, as answers."""

from __future__ import annotations

import json

from fastapi import Request, Response

from service.http.responses import content_response
from service.jobs.documents import job_document
from service.jobs.model import Answer, Job
from service.jobs.notes import notes_headers

__all__ = ["answer_response", "job_response"]


def job_response(request: Request, job: Job, status: int = 200, **headers: str) -> Response:
    """The document, with where it is; and with when to ask again, as long as the job is not finished."""
    document = job_document(job, request.scope.get("root_path", ""))
    headers = {"Cache-Control": "no-store", "Location": document["links"]["self"], **headers}
    if not job.state.final:
        headers["Retry-After"] = "1"
    body = json.dumps(document, ensure_ascii=False).encode()
    return Response(body, status, headers, "application/json")


def answer_response(request: Request, answer: Answer, *, hit: bool = True) -> Response:
    """200 with the bytes of the answer; where it has a digest, that is its entity tag."""
    name = answer.facts.get("name")
    if name is None:
        return Response(answer.body, headers=notes_headers(answer.facts), media_type="application/json")
    notes = answer.facts.get("notes", "")
    return content_response(request, name, answer.body, kept=answer.facts["kept"], hit=hit, notes=notes)
