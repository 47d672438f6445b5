"""An OpenID Connect provider for tests: a process of its own that publishes real keys and signs with them.

Run as ``python -m tests.support.issuer``, it prints its address. ``POST /token`` signs the claims in its
body, with ``?kid=`` and ``?alg=`` as said; ``POST /rotate`` throws its keys away and makes new ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from tests.support.server import PATIENCE, ROOT, die_with_parent

__all__ = ["Issuer", "running_issuer"]


class Issuer:
    """The provider as its clients see it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, timeout=PATIENCE)

    def token(self, *, kid: str = "rsa", alg: str | None = None, **claims: Any) -> str:
        """A token that ends in ten minutes, signed; claims that are None are left out."""
        now = int(time.time())
        usual = {"iss": self.url, "aud": "arenaplan", "sub": "somebody", "iat": now, "exp": now + 600}
        usual |= {"tenant": "acme", "scope": "plan jobs"}
        said = {name: value for name, value in (usual | claims).items() if value is not None}
        query = {"kid": kid} | ({"alg": alg} if alg else {})
        return self._http.post("/token", params=query, content=json.dumps(said)).raise_for_status().text

    def rotate(self) -> None:
        """New keys under new names; the old ones are published no longer."""
        self._http.post("/rotate").raise_for_status()

    def key(self, kid: str) -> dict[str, Any]:
        """A key as it is published."""
        keys = self._http.get("/keys").raise_for_status().json()["keys"]
        return next(key for key in keys if key["kid"] == kid)

    def reads(self) -> int:
        """How often the keys were read."""
        return int(self._http.get("/reads").raise_for_status().text)


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.support.issuer"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        assert process.stdout is not None
        yield Issuer(process.stdout.readline().strip())
        process.kill()


def _serve() -> None:
    import jwt
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    state: dict[str, Any] = {"generation": 0, "reads": 0}

    def make() -> None:
        state["generation"] += 1
        end = "" if state["generation"] == 1 else f"-{state['generation']}"
        state["keys"] = {
            f"rsa{end}": ("RS256", rsa.generate_private_key(65537, 2048)),
            f"ec{end}": ("ES256", ec.generate_private_key(ec.SECP256R1())),
            f"ed{end}": ("EdDSA", ed25519.Ed25519PrivateKey.generate()),
        }

    def published() -> list[dict[str, Any]]:
        found = []
        for kid, (alg, key) in state["keys"].items():
            made = jwt.get_algorithm_by_name(alg).to_jwk(key.public_key(), as_dict=True)
            found.append({**made, "kid": kid, "alg": alg, "use": "sig"})
        return found

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/.well-known/openid-configuration":
                self._answer(json.dumps({"issuer": url, "jwks_uri": f"{url}/keys"}))
            elif self.path == "/keys":
                state["reads"] += 1
                self._answer(json.dumps({"keys": published()}))
            else:
                self._answer(str(state["reads"]))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
            if self.path == "/rotate":
                make()
                self._answer("")
                return
            alg, key = state["keys"][query["kid"]]
            headers = {"kid": query["kid"]}
            self._answer(jwt.encode(json.loads(body), key, query.get("alg", alg), headers))

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    make()
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    _serve()
