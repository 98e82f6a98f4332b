"""The jars of Spark's own Kafka source, the newest that go together here, from Maven; fetched once into `.cache`."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path
from typing import Final

#: Spark's source, what it takes, and the client that it was built with.
JARS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.commons:commons-pool2:2.12.1",
    "org.apache.kafka:kafka-clients:3.9.1",
)
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "spark-kafka"


class SparkKafkaUnavailableError(Exception):
    """There is no Maven, or it did not bring a jar."""


def fetch_jars(*, timeout_seconds: float = 300) -> list[Path]:
    """The jars, fetched now where they are not there.

    Raises:
        SparkKafkaUnavailableError: they cannot be had.
    """
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "lock", "w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        return [_fetch(coordinates, timeout_seconds) for coordinates in JARS]


def _fetch(coordinates: str, timeout_seconds: float) -> Path:
    _, artifact, version = coordinates.split(":")
    jar = _CACHE / f"{artifact}-{version}.jar"
    if jar.exists():
        return jar
    if shutil.which("mvn") is None:
        raise SparkKafkaUnavailableError("Spark's own Kafka source needs Maven")
    command = ["mvn", "-B", "-q", "dependency:copy", f"-Dartifact={coordinates}", f"-DoutputDirectory={_CACHE}"]
    try:
        subprocess.run(command, capture_output=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SparkKafkaUnavailableError(f"Maven took longer than {timeout_seconds:g} s") from None
    if not jar.exists():
        raise SparkKafkaUnavailableError(f"Maven did not bring {coordinates}")
    return jar
