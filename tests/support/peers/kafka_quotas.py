"""Throttle times as Apache Kafka's own classes compute them, asked through one Java process."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from support.peers.apache import java_program

PROGRAM = Path(__file__).with_name("KafkaQuotas.java")


class Story(NamedTuple):
    """One client, and the times (ms) and amounts of its requests."""

    is_rate: bool
    windows: int
    window_s: int
    limit: float
    requests: list[tuple[int, float]]


def kafkas_throttle_times(stories: Sequence[Story]) -> list[list[int]]:
    """The throttle time behind each request; skips the calling test where Kafka's jars or a JDK are missing."""
    lines = [
        " ".join(
            [
                "rate" if story.is_rate else "tokens",
                *map(str, (story.windows, story.window_s, story.limit)),
                *(f"{at_ms} {amount}" for at_ms, amount in story.requests),
            ]
        )
        for story in stories
    ]
    done = subprocess.run(
        java_program(PROGRAM), input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=120, check=True
    )
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]
