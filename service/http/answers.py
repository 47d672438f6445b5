"""What jobs have come to, answered as the synchronous routes do."""

from __future__ import annotations

from fastapi import Request, Response

from service.http.responses import content_response
from service.jobs.model import Answer

__all__ = ["answer_response"]


def answer_response(request: Request, answer: Answer, *, hit: bool = True) -> Response:
    """200 with the bytes of the answer; where it has a digest, that is its entity tag."""
    name = answer.facts.get("name")
    if name is None:
        return Response(answer.body, media_type="application/json")
    return content_response(request, name, answer.body, kept=answer.facts["kept"], hit=hit)
