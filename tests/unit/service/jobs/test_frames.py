"""Frames survive the pipe, whole or not at all."""

from __future__ import annotations

import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.jobs.frames import Frame, encode_head, read_frame, read_frame_from_file

_HEADS = st.dictionaries(
    st.text().filter(lambda name: name != "kind"), st.none() | st.text() | st.integers() | st.booleans()
)


def wire(frame: Frame) -> bytes:
    return encode_head(frame.kind, frame.head, len(frame.body)) + frame.body


@given(st.text(), _HEADS, st.binary())
def test_round_trip_blocking(kind: str, head: dict[str, object], body: bytes) -> None:
    frame = Frame(kind, head, body)
    assert read_frame_from_file(io.BytesIO(wire(frame))) == frame


async def test_round_trip_async() -> None:
    first, second = Frame("a", {"x": 1}, b"\0" * 1000), Frame("b")
    stream = asyncio.StreamReader()
    stream.feed_data(wire(first) + wire(second))
    stream.feed_eof()
    assert [await read_frame(stream) for _ in range(3)] == [first, second, None]


@pytest.mark.parametrize("missing", [1, 3, 10, 20])
async def test_a_torn_frame_is_no_frame(missing: int) -> None:
    torn = wire(Frame("kind", {"a": "b"}, b"body"))[:-missing]
    stream = asyncio.StreamReader()
    stream.feed_data(torn)
    stream.feed_eof()
    assert await read_frame(stream) is None
    assert read_frame_from_file(io.BytesIO(torn)) is None


def test_end_of_stream() -> None:
    assert read_frame_from_file(io.BytesIO(b"")) is None
