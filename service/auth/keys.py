"""API keys: ``ap_<id>_<secret>``. The id is known to many, the secret to its owner alone.

The secret has 256 bits from the system's source of randomness, so one round of SHA-256 is all that a stolen
database needs to be of no use: there is nothing to guess.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from typing import Final

__all__ = ["Key", "NewKey", "digest_of", "new_key", "read_key"]

_FORM: Final = re.compile(r"ap_([0-9a-f]{16})_([0-9a-f]{64})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored. Times are seconds since 1970; `digest` is the SHA-256 of the secret."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    digest: bytes
    created: float
    expires: float | None = None
    revoked: float | None = None
    used: float | None = None

    def opens(self, secret: str) -> bool:
        """Whether this is its secret. Takes the same time for every wrong one."""
        return hmac.compare_digest(self.digest, digest_of(secret))

    def refusal(self, now: float) -> str | None:
        """Why the key is not taken any more; None where it is."""
        if self.revoked is not None:
            return "was revoked"
        return "has expired" if self.expires is not None and self.expires <= now else None


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as only its owner sees it: `text` is to be sent, `id` and `digest` are to be stored."""

    id: str
    digest: bytes
    text: str


def new_key() -> NewKey:
    key_id, secret = secrets.token_hex(8), secrets.token_hex(32)
    return NewKey(key_id, digest_of(secret), f"ap_{key_id}_{secret}")


def read_key(token: str) -> tuple[str, str] | None:
    """Id and secret; None for what has another form."""
    match = _FORM.fullmatch(token)
    return (match[1], match[2]) if match else None


def digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
