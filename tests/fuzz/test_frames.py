"""Frames of every API in every version with bytes that no client sends: answered, or the connection is closed.

Laws: no frame reaches code that did not expect it, which the broker would log, and none takes 50 ms of the loop's
time, as its calls tell, or 10 MiB. Arrays have up to hundreds of elements; half of the frames are valid ones with
strange values, the others have bytes changed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial
from random import Random

import pytest

from kohort.broker.context import BrokerContext
from kohort.wire.registry import SERVED, ApiKey, request_class
from support.builders.fuzz import INPUTS, Bounds, Mutator
from support.builders.fuzz_messages import Generator
from support.depth import SEED
from support.dialogues.broker_wire import encode_request
from support.dialogues.wired_connection import WiredConnection, wired_broker

#: A broker for so many frames: what they leave in it is no part of what the next one costs.
PER_BROKER = 2_000
#: Turns of the loop in which a frame is answered, if nothing holds it.
TURNS = 12
CONFIG = {"group.min.session.timeout.ms": 100, "max.topics": 500, "max.partitions": 2_000}


class Line:
    """Connections to one broker, one after the other."""

    def __init__(self, context: BrokerContext, bounds: Bounds) -> None:
        self._context = context
        self._bounds = bounds
        self.answered = self.closed = 0
        self._connection = WiredConnection(context)

    async def send(self, frame: bytes) -> None:
        """One frame, and all that the loop does because of it."""
        self._bounds.hold(partial(self._feed, frame))
        for _ in range(TURNS):
            await asyncio.sleep(0)
        if self._connection.is_closed:
            self.closed += 1
            self._connection.connection.connection_lost(None)
            self._connection = WiredConnection(self._context)
        elif self._connection.take_written():
            self.answered += 1
        else:
            # It waits for more bytes, or its answer for something that does not come: the next one is not to.
            self._connection.connection.connection_lost(None)
            self._connection = WiredConnection(self._context)

    def _feed(self, frame: bytes) -> None:
        if not self._connection.is_closed:
            self._connection.feed(frame)


async def play(count: int, random: Random, bounds: Bounds, caplog: pytest.LogCaptureFixture) -> tuple[int, int]:
    """(answered, closed) of so many frames to one broker."""
    mutator = Mutator(random)
    recent: list[bytes] = [b"\x00\x00"]
    with wired_broker(CONFIG) as context:
        topic = context.cluster.create_topic("work", 3, {})
        generator = Generator(random, [topic.topic_id])
        line = Line(context, bounds)
        for number in range(count):
            key: ApiKey = random.choice(list(SERVED))
            version = random.randint(*SERVED[key])
            frame = encode_request(key, version, generator.message(request_class(key), version))
            if random.random() < 0.5:
                body = frame[4:12] + mutator.changed(frame[12:], recent)
                frame = len(body).to_bytes(4) + body
            recent[number % 20 :] = [frame]
            try:
                await line.send(frame)
            except AssertionError as why:
                pytest.fail(f"frame {number}, {key.name} version {version}: {why}\n{frame.hex()}")
            if caplog.records:
                pytest.fail(f"frame {number}, {key.name} version {version}: {caplog.text}\n{frame.hex()}")
        return line.answered, line.closed


def test_no_frame_does_harm(caplog: pytest.LogCaptureFixture) -> None:
    random, bounds = Random(f"frames {SEED}"), Bounds()
    answered = closed = 0
    with caplog.at_level(logging.ERROR, logger="kohort"):
        for begin in range(0, INPUTS, PER_BROKER):
            of_it = asyncio.run(play(min(PER_BROKER, INPUTS - begin), random, bounds, caplog))
            answered, closed = answered + of_it[0], closed + of_it[1]
            gc.collect()
    print(f"{INPUTS} frames: {answered} answered, {closed} closed, {bounds}")
    assert answered and closed
