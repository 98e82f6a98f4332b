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
_POM: Final = """<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kohort.tests</groupId>
  <artifactId>spark-kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId>
    <artifactId>maven-dependency-plugin</artifactId>
    <configuration><artifactItems>{items}</artifactItems></configuration>
  </plugin></plugins></build>
</project>
"""
_ITEM: Final = "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></artifactItem>"
_CACHE: Final = Path(__file__).resolve().parents[3] / ".cache" / "spark-kafka"


class SparkKafkaUnavailableError(Exception):
    """There is no Maven, or it did not bring a jar."""


def fetch_jars(*, timeout_seconds: float = 300) -> list[Path]:
    """The jars, fetched now, all by one Maven, where one is not there.

    Raises:
        SparkKafkaUnavailableError: they cannot be had.
    """
    jars = [_CACHE / "{1}-{2}.jar".format(*coordinates.split(":")) for coordinates in JARS]
    _CACHE.mkdir(parents=True, exist_ok=True)
    with open(_CACHE / "lock", "w") as lock:
        # Tests run in several processes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not all(jar.exists() for jar in jars):
            _fetch(timeout_seconds)
    if missing := [jar.name for jar in jars if not jar.exists()]:
        raise SparkKafkaUnavailableError(f"Maven did not bring {', '.join(missing)}")
    return jars


def _fetch(timeout_seconds: float) -> None:
    if shutil.which("mvn") is None:
        raise SparkKafkaUnavailableError("Spark's own Kafka source needs Maven")
    pom = _CACHE / "pom.xml"
    pom.write_text(_POM.format(items="".join(_ITEM.format(*coordinates.split(":")) for coordinates in JARS)))
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy", f"-DoutputDirectory={_CACHE}"]
    try:
        subprocess.run(command, capture_output=True, timeout=timeout_seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SparkKafkaUnavailableError(f"Maven took longer than {timeout_seconds:g} s") from None
