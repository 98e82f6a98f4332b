"""The compiled load generator: what it sends, counts and refuses, against a peer of a few lines."""

from __future__ import annotations

import json
import shutil
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.builders.benches import load_bench

pytestmark = pytest.mark.process

generator = load_bench("generator")

REPORT = {
    "seconds": 1.5,
    "answers": 30,
    "fewest_answers": 3,
    "sent_bytes": 300,
    "received_bytes": 600,
    "errors": 0,
    "first_error": 0,
    "smallest_answer": 20,
    "largest_answer": 20,
    "cpu_s": 0.25,
}
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_report_is_read() -> None:
    report = generator.parse_report(json.dumps(REPORT) + "\n")
    assert (report.answers, report.seconds, report.cpu_s) == (30, 1.5, 0.25)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"errors": 7, "first_error": 25}, "7 of 30 answers carry an error, the first 25"),
        ({"fewest_answers": 0}, "a connection got no answer"),
    ],
)
def test_load_that_was_not_carried_out_is_no_figure(changed: dict[str, int], sentence: str) -> None:
    with pytest.raises(generator.LoadError, match=sentence):
        generator.parse_report(json.dumps(REPORT | changed))


@pytest.mark.parametrize("text", ["", "{}", "no JSON", '{"seconds": 1}'])
def test_what_is_no_report_is_said(text: str) -> None:
    with pytest.raises(generator.LoadError, match="the generator said"):
        generator.parse_report(text)


def test_short_circle_is_written_out_for_all_that_may_be_in_flight() -> None:
    """So that neighbours go by one call."""
    packed = generator.pack(
        [generator.Line(7, [b"\0\0\0\1a", b"\0\0\0\1b"])], in_flight=5, seconds=1.0, limit=9, place=4
    )
    assert struct.unpack_from("<IIQdI", packed) == (1, 5, 9, 1.0, 4)
    assert struct.unpack_from("<IIQ", packed, 28) == (7, 6, 30)
    assert packed[44:] == b"\0\0\0\1a\0\0\0\1b" * 3


def frames(sender: socket.socket) -> Iterator[bytes]:
    """The frames that come over a connection, until it is closed."""
    stream = sender.makefile("rb")
    while len(head := stream.read(4)) == 4:
        yield stream.read(struct.unpack(">I", head)[0])


@contextmanager
def peers(count: int, answer: Callable[[bytes], bytes]) -> Iterator[tuple[list[socket.socket], list[list[bytes]]]]:
    """Connections to peers that answer each frame; and the frames that each has got."""
    pairs = [socket.socketpair() for _ in range(count)]
    got: list[list[bytes]] = [[] for _ in pairs]

    def serve(number: int) -> None:
        theirs = pairs[number][1]
        for frame in frames(theirs):
            got[number].append(frame)
            body = answer(frame)
            theirs.sendall(struct.pack(">I", len(body)) + body)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield [ours for ours, _ in pairs], got
    finally:
        for ours, _ in pairs:
            ours.close()
        for thread in threads:
            thread.join()
        for _, theirs in pairs:
            theirs.close()


def load(ours: list[socket.socket], requests: list[bytes], **limits: Any) -> Any:
    framed = [struct.pack(">I", len(request)) + request for request in requests]
    return generator.generate([generator.Line(one.fileno(), framed) for one in ours], seconds=60.0, **limits)


@needs_compiler
def test_requests_go_in_a_circle_and_every_answer_is_counted() -> None:
    """Three connections, fewer requests than a multiple of them, answers larger than one buffer."""
    with peers(3, lambda frame: b"\0\0\0\0\0\0" + frame * 100_000) as (ours, got):
        report = load(ours, [b"first!", b"second"], in_flight=2, limit=20, place=4)
    assert report.answers == sum(map(len, got)) == 20
    assert report.sent_bytes == 20 * 10
    assert report.received_bytes == 20 * (4 + 6 + 600_000)
    assert report.smallest_answer == report.largest_answer == 600_010
    for frames_of_one in got:
        assert frames_of_one == ([b"first!", b"second"] * 20)[: len(frames_of_one)]


@needs_compiler
def test_request_larger_than_the_socket_takes_is_sent_in_parts() -> None:
    request = bytes(range(256)) * 20_000
    with peers(1, lambda _: b"\0" * 6) as (ours, got):
        report = load(ours, [request], in_flight=3, limit=5, place=4)
    assert report.answers == 5
    assert got == [[request] * 5]


@needs_compiler
def test_error_code_in_any_answer_is_seen() -> None:
    """The figure would be that of refusals."""
    count = iter(range(1_000))
    with (
        peers(1, lambda _: b"\0\0\0\0" + (b"\0\x19" if next(count) == 7 else b"\0\0")) as (ours, _),
        pytest.raises(generator.LoadError, match="1 of 10 answers carry an error, the first 25"),
    ):
        load(ours, [b"request"], in_flight=4, limit=10, place=4)


@needs_compiler
def test_answer_too_short_for_an_error_code_is_an_error() -> None:
    with (
        peers(1, lambda _: b"\0\0") as (ours, _),
        pytest.raises(generator.LoadError, match="2 of 2 answers carry an error, the first -1"),
    ):
        load(ours, [b"request"], in_flight=1, limit=2, place=4)


@needs_compiler
def test_broken_connection_is_said() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(generator.LoadError, match="the generator gave up: "):
        load([ours], [b"request"], in_flight=1, limit=2)
