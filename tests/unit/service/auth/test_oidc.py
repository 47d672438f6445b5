"""Tokens are taken if a provider has signed them for this service, and for nothing else; a real one, in a
process of its own."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from service.auth.principal import Principal
from service.problems import Problem
from tests.support.issuer import Issuer, running_issuer

pytest.importorskip("jwt", reason="the extra [oidc] is not installed")
oidc = pytest.importorskip("service.auth.oidc")

ALGORITHMS = frozenset({"RS256", "PS256", "ES256", "EdDSA"})


class Clock:
    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as issuer:
        yield issuer


@pytest.fixture
def clock() -> Clock:
    return Clock()


def verifier(issuer: Issuer, clock: Clock, **more: Any) -> Any:
    algorithms = more.pop("algorithms", ALGORITHMS)
    return oidc.Verifier(issuer.url, "arenaplan", algorithms, clock=clock, **more)


async def refusal(made: Any, token: str) -> Problem:
    with pytest.raises(Problem) as caught:
        await made.principal(token)
    return caught.value


@pytest.mark.parametrize("kid", ["rsa", "ec", "ed"])
async def test_a_good_token(issuer: Issuer, clock: Clock, kid: str) -> None:
    made = verifier(issuer, clock)
    assert await made.principal(issuer.token(kid=kid)) == Principal(
        "acme", "somebody", frozenset({"plan", "jobs"})
    )


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": int(time.time()) - 600}, "expired"),
    "for another service": ({"aud": "billing"}, "[Aa]udience"),
    "for several others": ({"aud": ["billing", "mail"]}, "[Aa]udience"),
    "of another issuer": ({"iss": "https://elsewhere.example"}, "[Ii]ssuer"),
    "not valid yet": ({"nbf": int(time.time()) + 3600}, "not valid yet"),
    "without an end": ({"exp": None}, "exp"),
    "for nobody": ({"sub": None}, "sub"),
    "for no audience": ({"aud": None}, "aud"),
    "with an end that never comes": ({"exp": float("inf")}, "malformed"),
    "with an end in words": ({"exp": "tomorrow"}, "malformed|integer"),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_token_that_is_not_taken(issuer: Issuer, clock: Clock, name: str) -> None:
    claims, why = BAD[name]
    problem = await refusal(verifier(issuer, clock), issuer.token(**claims))
    assert problem.kind.code == "unauthorized"
    assert problem.headers["WWW-Authenticate"].endswith('error="invalid_token"')
    assert re.search(why, problem.detail), problem.detail


def text(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_what_was_changed_or_made_up(issuer: Issuer, clock: Clock) -> None:
    made = verifier(issuer, clock)
    head, claims, signature = issuer.token().split(".")
    said = {"iss": issuer.url, "aud": "arenaplan", "sub": "x", "exp": time.time() + 60, "tenant": "victim"}
    public = issuer.key("rsa")
    confused = f"{text({'alg': 'HS256', 'kid': 'rsa'})}.{text(said)}"
    forged = hmac.new(json.dumps(public).encode(), confused.encode(), hashlib.sha256).digest()
    for token in (
        f"{head}.{text(said)}.{signature}",
        f"{head}.{claims}.",
        f"{text({'alg': 'none'})}.{text(said)}.",
        f"{text({'alg': 'none', 'kid': 'rsa'})}.{text(said)}.{signature}",
        f"{confused}.{base64.urlsafe_b64encode(forged).decode()}",
        f"{text({'alg': 'RS256', 'kid': 'ec'})}.{text(said)}.{signature}",
        f"{text({'alg': 'RS256', 'kid': ['rsa']})}.{text(said)}.{signature}",
        f"{text({'alg': ['RS256'], 'kid': 'rsa'})}.{text(said)}.{signature}",
        f"{text({'alg': 'RS256', 'jwk': public})}.{text(said)}.{signature}",
        "no token", "..", "", "ä.ö.ü", "x" * 20_000,
    ):  # fmt: skip
        assert (await refusal(made, token)).kind.code == "unauthorized", token[:80]


async def test_algorithms_are_those_of_the_settings(issuer: Issuer, clock: Clock) -> None:
    made = verifier(issuer, clock, algorithms=frozenset({"ES256"}))
    assert "algorithm" in (await refusal(made, issuer.token(kid="rsa"))).detail
    assert (await made.principal(issuer.token(kid="ec"))).tenant == "acme"
    other = verifier(issuer, clock)
    assert "meant for something else" in (await refusal(other, issuer.token(kid="rsa", alg="PS256"))).detail


async def test_a_token_that_was_good_ends(issuer: Issuer, clock: Clock) -> None:
    made, token = verifier(issuer, clock), issuer.token()
    await made.principal(token)
    clock.ahead = 700
    assert "expired" in (await refusal(made, token)).detail


async def test_keys_are_read_once_and_again_when_they_change(clock: Clock) -> None:
    with running_issuer() as issuer:
        made = verifier(issuer, clock)
        old = issuer.token()
        for k in range(20):
            await made.principal(issuer.token(sub=f"user {k}"))
        assert issuer.reads() == 1
        issuer.rotate()
        new = issuer.token(kid="rsa-2")
        assert "not one of the provider's" in (await refusal(made, new)).detail
        assert issuer.reads() == 1  # tokens that were made up could ask for keys again and again
        clock.ahead += 11
        assert (await made.principal(new)).subject == "somebody"
        assert issuer.reads() == 2
        # The old key is gone; what was found good with it is taken for a minute.
        clock.ahead += 61
        assert "not one of the provider's" in (await refusal(made, old)).detail


async def test_a_provider_that_does_not_answer(clock: Clock) -> None:
    with running_issuer() as issuer:
        made = verifier(issuer, clock)
        await made.principal(issuer.token())
        later = issuer.token(exp=int(time.time()) + 10_000, sub="later")
        never = issuer.token(exp=int(time.time()) + 1_000_000, sub="never")
    clock.ahead = 4000
    assert (await made.principal(later)).subject == "later"  # with the keys it had
    clock.ahead = 90_000
    problem = await refusal(made, never)
    assert (problem.kind.code, problem.headers["Retry-After"]) == ("issuer-unavailable", "10")
    assert (await refusal(verifier(issuer, clock), never)).kind.code == "issuer-unavailable"


async def test_a_provider_that_calls_itself_otherwise(issuer: Issuer, clock: Clock) -> None:
    made = oidc.Verifier(f"{issuer.url}/", "arenaplan", ALGORITHMS, clock=clock)
    assert (await refusal(made, issuer.token())).kind.code == "issuer-unavailable"


CLAIMS: dict[str, tuple[dict[str, Any], dict[str, Any], set[str]]] = {
    "words": ({}, {"scope": "plan openid"}, {"plan"}),
    "a list": ({"scope": "roles"}, {"roles": ["jobs", "plan", 3]}, {"jobs", "plan"}),
    "a pointer": ({"scope": "/realm/roles"}, {"realm": {"roles": ["metrics"]}}, {"metrics"}),
    "with a prefix": ({"scope_prefix": "arenaplan:"}, {"scope": "arenaplan:plan jobs"}, {"plan"}),
    "nothing": ({}, {"scope": None}, set()),
    "nonsense": ({}, {"scope": {"plan": True}}, set()),
}


@pytest.mark.parametrize("name", CLAIMS)
async def test_scopes(issuer: Issuer, clock: Clock, name: str) -> None:
    places, claims, scopes = CLAIMS[name]
    made = verifier(issuer, clock, claims=oidc.Claims(**places))
    assert (await made.principal(issuer.token(**claims))).scopes == scopes


@pytest.mark.parametrize("tenant", [None, "", 7, ["acme"], "a b", "x" * 200, "né"])
async def test_a_token_of_no_tenant(issuer: Issuer, clock: Clock, tenant: Any) -> None:
    problem = await refusal(verifier(issuer, clock), issuer.token(tenant=tenant))
    assert problem.kind.code == "forbidden"


async def test_a_tenant_further_down(issuer: Issuer, clock: Clock) -> None:
    made = verifier(issuer, clock, claims=oidc.Claims(tenant="/org/id"))
    assert (await made.principal(issuer.token(tenant=None, org={"id": "o-1"}))).tenant == "o-1"
