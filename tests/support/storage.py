"""S3-compatible storage for tests: moto's server, a process of its own that checks every signature.

It keeps all in memory, and is neither as slow, as concurrent nor as strict about names as a real one.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from tests.support.server import die_with_parent

__all__ = ["Storage", "missing_packages", "running_storage"]

_NEEDED: Final = ("boto3", "flask", "flask_cors", "moto", "obstore")
_ALL: Final = {"Version": "2012-10-17", "Statement": {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}}
#: What is asked before signatures are checked: a user, its rights, its key, a bucket.
_BEFORE: Final = 4


def missing_packages() -> str | None:
    """Why there can be no storage here; None where there can."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    return f"S3-compatible storage needs {', '.join(missing)}" if missing else None


@dataclass(frozen=True, slots=True)
class Storage:
    """A server with one empty bucket; `variables` is what a client needs in its environment."""

    url: str
    variables: Mapping[str, str]
    process: subprocess.Popen[str]

    def keys(self, prefix: str) -> list[str]:
        """Names that begin so, in order."""
        listed = self._client("s3").list_objects_v2(Bucket="results", Prefix=prefix).get("Contents", [])
        return sorted(one["Key"] for one in listed)

    def remove(self, key: str) -> None:
        self._client("s3").delete_object(Bucket="results", Key=key)

    def overwrite(self, key: str, body: bytes) -> None:
        self._client("s3").put_object(Bucket="results", Key=key, Body=body)

    def _client(self, service: str) -> Any:
        return _client(service, self.variables)


def _client(service: str, variables: Mapping[str, str]) -> Any:
    made: Any = importlib.import_module("boto3")  # without types
    return made.client(
        service,
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
    )


@contextmanager
def running_storage() -> Iterator[Storage]:
    """The server, on a port of its own, until the end of the block."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    environment = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": str(_BEFORE)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env=environment, preexec_fn=die_with_parent
    ) as process:
        try:
            assert process.stderr is not None
            found = (re.search(r"Running on (http://[\w.:]+)", line) for line in process.stderr)
            endpoint = next(one[1] for one in found if one)
            threading.Thread(target=process.stderr.read, daemon=True).start()  # its log must not fill up
            variables = {
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "nobody",
                "AWS_SECRET_ACCESS_KEY": "nothing",
            }
            users = _client("iam", variables)
            users.create_user(UserName="arenaplan")
            users.put_user_policy(UserName="arenaplan", PolicyName="all", PolicyDocument=json.dumps(_ALL))
            key = users.create_access_key(UserName="arenaplan")["AccessKey"]
            _client("s3", variables).create_bucket(Bucket="results")
            variables["AWS_ACCESS_KEY_ID"] = key["AccessKeyId"]
            variables["AWS_SECRET_ACCESS_KEY"] = key["SecretAccessKey"]
            yield Storage("s3://results/kept", variables, process)
        finally:
            process.send_signal(signal.SIGKILL)
