"""Recognising callers by what they send as ``Authorization``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from service.auth.principal import Principal
from service.auth.registry import Registry
from service.auth.table import read_key
from service.problems import Problem

if TYPE_CHECKING:  # needs an extra
    from service.auth.oidc import Verifier

__all__ = ["Gate"]

_CHALLENGE: Final = 'Bearer realm="arenaplan"'


@dataclass(frozen=True, slots=True)
class Gate:
    """By API keys, by tokens of an identity provider, or by either."""

    registry: Registry
    keys: bool
    verifier: Verifier | None

    async def recognise(self, authorization: str | None) -> Principal:
        """The principal that sent this header. Raises `Problem`, mostly ``unauthorized`` or ``forbidden``."""
        if authorization is None:
            raise _unauthorized("The request has no Authorization header.", _CHALLENGE)
        scheme, _, token = authorization.strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("The Authorization header is not `Bearer` and a key or token.", _CHALLENGE)
        if self.keys and token.startswith("ap_"):
            principal = await self._by_key(token)
        elif self.verifier is not None:
            principal = await self.verifier.principal(token)
        else:
            raise _wrong("What was sent is not an API key.")
        if self.registry.tenant(principal.tenant).disabled:
            raise Problem("forbidden", "The tenant is disabled.", remedy="Ask who runs the service.")
        return principal

    async def _by_key(self, token: str) -> Principal:
        parts = read_key(token)
        if parts is None:
            raise _wrong("What was sent is not an API key: it may have been cut off.")
        key_id, secret = parts
        key = await self.registry.key(key_id)
        # One answer for both, so that nobody learns which keys there are.
        if key is None or not key.opens(secret):
            raise _wrong("The API key is not known.")
        if refusal := key.refusal(self.registry.clock()):
            raise _wrong(f"The API key ap_{key_id} {refusal}.")
        self.registry.note_use(key)
        return Principal(key.tenant, key.name, key.scopes, key_id)


def _wrong(detail: str) -> Problem:
    return _unauthorized(detail, f'{_CHALLENGE}, error="invalid_token"')


def _unauthorized(detail: str, challenge: str) -> Problem:
    return Problem(
        "unauthorized",
        detail,
        remedy="Send a key that `arenaplan keys create` has made, or a token of the identity provider.",
        headers={"WWW-Authenticate": challenge},
    )
