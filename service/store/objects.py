"""Objects in S3-compatible storage: bytes under keys, for what is too large for the database."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Final, TypeVar

import structlog
from obstore import exceptions
from obstore.store import S3Store

from service.problems import Problem

__all__ = ["Objects", "open_objects"]

T = TypeVar("T")

_log = structlog.get_logger("service.store")

#: Transfers at the same time, each with a thread.
THREADS: Final = 4
#: How long a storage that did not answer is not asked again.
PAUSE_SECONDS: Final = 5.0
#: How long a connection may take to be made, one transfer to be done, and attempts at it together.
CONNECT_SECONDS: Final = 3
TRANSFER_SECONDS: Final = 60
ATTEMPTS_SECONDS: Final = 10
RETRIES: Final = 2

#: Whatever goes wrong between here and the storage, or there.
_ERRORS: Final = (OSError, exceptions.BaseError)
#: What does not get better by waiting.
_REFUSALS: Final = (
    FileNotFoundError,
    PermissionError,
    exceptions.PermissionDeniedError,
    exceptions.UnauthenticatedError,
)


class Objects:
    """A bucket, or the part of it below a prefix. Any error becomes `Problem` ``storage-unavailable``.

    After one, the storage is left alone for a while: what can do without it does not wait for it each time.
    """

    def __init__(self, url: str, bucket: S3Store) -> None:
        self.url: Final = url
        self._bucket = bucket
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="arenaplan-objects")
        self._away_until = 0.0
        #: Whether the last transfer has succeeded, and how many have not.
        self.available = True
        self.failures: Final[Counter[str]] = Counter(put=0, get=0, remove=0)

    async def put(self, key: str, body: bytes) -> None:
        await self._run("put", lambda bucket: bucket.put(key, body))

    async def get(self, key: str) -> bytes | None:
        """None where there is no such object."""

        def get(bucket: S3Store) -> bytes | None:
            try:
                return bytes(bucket.get(key).bytes())
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

        return await self._run("get", get)

    async def remove(self, key: str) -> None:
        """An object that is not there is removed already."""

        def remove(bucket: S3Store) -> None:
            try:
                bucket.delete(key)
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise

        await self._run("remove", remove)

    def check(self) -> None:
        """Write, read and remove an object. Raises ValueError where that is not allowed, or has no bucket.

        Raises `Problem` where the storage does not answer: it may do so later.
        """
        key = f"arenaplan-check-{secrets.token_hex(8)}"
        try:
            self._bucket.put(key, b"arenaplan")
            content = bytes(self._bucket.get(key).bytes())
            self._bucket.delete(key)
        except _REFUSALS as error:
            raise ValueError(f"{self.url} cannot be written and read: {_reason(error)}") from None
        except _ERRORS as error:
            raise self._unavailable(error) from None
        if content != b"arenaplan":
            raise ValueError(f"{self.url} does not give back what is written to it.")

    async def _run(self, what: str, work: Callable[[S3Store], T]) -> T:
        if time.monotonic() < self._away_until:
            raise self._unavailable("it did not a moment ago")
        loop = asyncio.get_running_loop()
        try:
            result = await loop.run_in_executor(self._threads, work, self._bucket)
        except _ERRORS as error:
            self.failures[what] += 1
            self.available = False
            self._away_until = time.monotonic() + PAUSE_SECONDS
            problem = self._unavailable(error)
            _log.warning("the result storage does not answer", storage=self.url, detail=problem.detail)
            raise problem from error
        self.available = True
        return result

    def _unavailable(self, why: Exception | str) -> Problem:
        reason = why if isinstance(why, str) else _reason(why)
        return Problem(
            "storage-unavailable",
            f"The storage of large results does not answer: {reason}",
            remedy="Send the request again in a moment.",
            headers={"Retry-After": "5"},
        )


def _reason(error: Exception) -> str:
    """The message of the storage, or else of the library."""
    match = re.search("<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", str(error), re.DOTALL)
    return f"{match[1]}: {match[2]:.200}" if match else f"{str(error).strip().partition(chr(10))[0]:.300}"


def open_objects(url: str) -> Objects:
    """The storage at ``s3://BUCKET/PREFIX``. Connects when it is first used.

    Endpoint, region and credentials come from the variables that tools for S3 read (``AWS_ENDPOINT_URL``,
    ``AWS_REGION``, ``AWS_ACCESS_KEY_ID`` ...), or from the machine that AWS runs this on. Raises ValueError
    for another kind of URL.
    """
    if not url.startswith("s3://") or not url.removeprefix("s3://").partition("/")[0]:
        raise ValueError(f"{url!r:.80} is not the URL of a bucket: give s3://BUCKET/PREFIX.")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    bucket = S3Store.from_url(
        url.rstrip("/"),
        client_options={
            "allow_http": bool(endpoint and endpoint.startswith("http://")),
            "connect_timeout": timedelta(seconds=CONNECT_SECONDS),
            "timeout": timedelta(seconds=TRANSFER_SECONDS),
        },
        retry_config={
            "max_retries": RETRIES,
            "retry_timeout": timedelta(seconds=ATTEMPTS_SECONDS),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=1),
                "base": 2,
            },
        },
        config={"endpoint": endpoint} if endpoint else {},
    )
    return Objects(url.rstrip("/"), bucket)
