"""Bearer tokens of an OpenID Connect provider: JSON Web Tokens, checked against the keys that it publishes.

    issuer ──► /.well-known/openid-configuration ──► jwks_uri ──► keys by id, for an hour
    token  ──► algorithm, key, signature, issuer, audience, expiry ──► claims ──► tenant, scopes

A key that is not known is looked for again, so that providers may change their keys at any time. Needs PyJWT
and cryptography: the extra ``[oidc]``.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import jwt
import structlog

from service.auth.principal import ALL_SCOPES, Principal, is_tenant
from service.problems import Problem

__all__ = ["Claims", "Verifier", "fetch_document"]

_log = structlog.get_logger("service.auth")

#: Keys are read again when they are older, so that those withdrawn by the provider are not taken any more.
KEYS_SECONDS: Final = 3600.0
#: How long old keys are taken while the provider does not answer.
STALE_SECONDS: Final = 24 * 3600.0
#: A token with an unknown key lets them be read again at most this often: anybody may make such tokens up.
LOOK_AGAIN_SECONDS: Final = 10.0
#: A token that was found good is not checked again for this long, and never beyond its expiry.
GOOD_SECONDS: Final = 60.0
MOST_GOOD: Final = 10_000
#: Difference between the clocks of the provider and this machine.
LEEWAY_SECONDS: Final = 30
#: Longest token that is looked at, and longest document of the provider.
MOST_TOKEN_BYTES: Final = 16_384
MOST_DOCUMENT_BYTES: Final = 1 << 20
FETCH_SECONDS: Final = 5.0

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Claims:
    """Where a token names its tenant and its scopes: a claim, or a JSON pointer to what lies deeper."""

    tenant: str = "tenant"
    scope: str = "scope"
    scope_prefix: str = ""

    def principal(self, claims: Mapping[str, Any]) -> Principal:
        """Raises `Problem` ``forbidden`` where there is no tenant in the claims."""
        tenant = _claim(claims, self.tenant)
        if not isinstance(tenant, str) or not is_tenant(tenant):
            raise Problem(
                "forbidden",
                f"The token names no tenant: its claim {self.tenant} is missing, or not the name of one.",
                remedy="Let the identity provider put it into tokens, or set ARENAPLAN_OIDC_TENANT_CLAIM.",
            )
        claim = _claim(claims, self.scope)
        words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else []
        scopes = {scope for scope in ALL_SCOPES if self.scope_prefix + scope in words}
        return Principal(tenant, str(claims["sub"])[:200], frozenset(scopes))


def _claim(claims: Mapping[str, Any], place: str) -> Any:
    if not place.startswith("/"):
        return claims.get(place)
    value: Any = claims
    for part in place[1:].split("/"):
        value = value.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(value, dict) else None
    return value


async def fetch_document(url: str) -> dict[str, Any]:
    """A JSON object; without redirects. Raises httpx.HTTPError, OSError or ValueError."""
    async with (
        asyncio.timeout(FETCH_SECONDS),
        httpx.AsyncClient(follow_redirects=False) as client,
        client.stream("GET", url, headers={"Accept": "application/json"}) as answer,
    ):
        answer.raise_for_status()
        body = b""
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > MOST_DOCUMENT_BYTES:
                raise ValueError(f"{url} is larger than {MOST_DOCUMENT_BYTES:,} bytes")
    if not isinstance(document := json.loads(body), dict):
        raise ValueError(f"{url} is not a JSON object")
    return document


@dataclass(slots=True)
class Verifier:
    """Knows whose a token is. `fetch` reads a JSON document of the provider, `clock` is the time of day."""

    issuer: str
    audience: str
    algorithms: frozenset[str]
    claims: Claims = field(default_factory=Claims)
    fetch: Callable[[str], Awaitable[dict[str, Any]]] = fetch_document
    clock: Callable[[], float] = time.time
    _keys: Mapping[str | None, Mapping[str, Any]] = field(default_factory=dict)
    _read: float = float("-inf")
    _tried: float = float("-inf")
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _good: OrderedDict[bytes, tuple[float, Principal]] = field(default_factory=OrderedDict)

    async def principal(self, token: str) -> Principal:
        """Raises `Problem` ``unauthorized``, ``forbidden`` or ``issuer-unavailable``."""
        name, now = hashlib.sha256(token.encode()).digest(), self.clock()
        until, principal = self._good.get(name, (now, None))
        if principal is not None and now < until:
            return principal
        claims = await self._verified(token)
        principal = self.claims.principal(claims)
        self._good[name] = (min(now + GOOD_SECONDS, float(claims["exp"])), principal)
        while len(self._good) > MOST_GOOD:
            self._good.popitem(last=False)
        return principal

    async def _verified(self, token: str) -> dict[str, Any]:
        try:
            if len(token) > MOST_TOKEN_BYTES:
                raise jwt.InvalidTokenError("it is too long")
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm is None or algorithm not in self.algorithms:
                raise jwt.InvalidAlgorithmError("it is signed with an algorithm that is not taken here")
            key = await self._key(key_id)
            # The key must be one for this algorithm: the token does not choose how it is read.
            if key.get("alg", algorithm) != algorithm or key.get("use", "sig") != "sig":
                raise jwt.InvalidAlgorithmError("its key is meant for something else")
            claims: dict[str, Any] = jwt.decode(
                token,
                jwt.PyJWK(dict(key), algorithm=algorithm).key,
                algorithms=[algorithm],
                issuer=self.issuer,
                audience=self.audience,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"], "verify_exp": False, "verify_nbf": False},
            )
            self._check_times(claims)
        except (jwt.PyJWTError, KeyError, TypeError, ValueError) as error:
            raise _refused(
                str(error).rstrip(".") if isinstance(error, jwt.PyJWTError) else "it is malformed"
            ) from None
        return claims

    def _check_times(self, claims: Mapping[str, Any]) -> None:
        now = self.clock()
        if not math.isfinite(float(claims["exp"])):
            raise ValueError("a time that is none")
        if now >= float(claims["exp"]) + LEEWAY_SECONDS:
            raise jwt.ExpiredSignatureError("it has expired")
        if now < float(claims.get("nbf", now)) - LEEWAY_SECONDS:
            raise jwt.ImmatureSignatureError("it is not valid yet")

    async def _key(self, key_id: str | None) -> Mapping[str, Any]:
        """The key that a token names; the only one, where it names none."""
        for _ in range(2):
            fresh = self.clock() - self._read < KEYS_SECONDS
            if fresh and key_id is None and len(self._keys) == 1:
                return next(iter(self._keys.values()))
            if fresh and key_id in self._keys:
                return self._keys[key_id]
            await self._refresh()
        if key_id in self._keys and self.clock() - self._read < STALE_SECONDS:
            return self._keys[key_id]
        raise jwt.InvalidTokenError("its key is not one of the provider's")

    async def _refresh(self) -> None:
        """Read the keys of the provider, unless that was tried just now."""
        async with self._turn:
            now = self.clock()
            if now - self._tried < LOOK_AGAIN_SECONDS:
                return
            self._tried = now
            try:
                about = await self.fetch(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration")
                if about.get("issuer") != self.issuer:
                    raise ValueError(f"the provider calls itself {about.get('issuer')!r:.80}")
                place = str(about.get("jwks_uri"))
                if urlsplit(place).scheme != "https" and urlsplit(self.issuer).hostname not in _LOOPBACK:
                    raise ValueError(f"its keys lie at {place!r:.80}, which is not https")
                keys = (await self.fetch(place))["keys"]
                self._keys = {key.get("kid"): key for key in keys if key.get("kty") in ("RSA", "EC", "OKP")}
                self._read = now
            except (
                httpx.HTTPError,
                OSError,
                TimeoutError,
                ValueError,
                KeyError,
                AttributeError,
                TypeError,
            ) as error:
                _log.warning(
                    "the keys of the identity provider cannot be read", issuer=self.issuer, reason=str(error)
                )
                if now - self._read > STALE_SECONDS:
                    raise Problem(
                        "issuer-unavailable",
                        "The keys of the identity provider cannot be read.",
                        remedy="Send the request again in a moment.",
                        headers={"Retry-After": "10"},
                    ) from error


def _refused(why: str) -> Problem:
    return Problem(
        "unauthorized",
        f"The token is not taken: {why}.",
        remedy="Get a new token from the identity provider.",
        headers={"WWW-Authenticate": 'Bearer realm="arenaplan", error="invalid_token"'},
    )
