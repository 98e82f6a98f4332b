"""Apache Kafka 4.3 as a reference for tests: its jars, fetched once with Maven into the checkout's cache.

Laws: a test that needs the jars says so by calling `kafka_libs`, and is skipped with the reason where they cannot be
had; concurrent test runs wait for one fetch; a fetch that was cut off leaves nothing behind. What Java would do anew in
each of its processes is kept beside the jars: an archive of classes that were read and checked, and our programs
compiled.
Run this file to fetch the jars beforehand, with more patience than a test has.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

VERSION = "4.3.0"
ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / ".cache" / f"kafka-{VERSION}"

#: A test waits less than its own time limit; what Maven has got by then it need not fetch again.
FETCH_SECONDS = 150

POM = f"""<?xml version="1.0" encoding="UTF-8"?>
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kohort.tests</groupId>
  <artifactId>apache-kafka</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""


class KafkaUnavailableError(Exception):
    """The jars are not here and cannot be fetched; the text says why."""


def kafka_libs() -> Path:
    """The directory of Kafka's jars; skips the calling test where there is none."""
    try:
        return fetch_libs(timeout_seconds=FETCH_SECONDS)
    except KafkaUnavailableError as error:
        pytest.skip(f"Apache Kafka {VERSION} is not available: {error}")


def fetch_libs(*, timeout_seconds: float) -> Path:
    """The directory of Kafka's jars, fetched now if it is not there.

    Raises:
        KafkaUnavailableError: no Maven, no Java, or the fetch failed.
    """
    libs = CACHE / "libs"
    if libs.is_dir():
        return libs
    for program in ("mvn", "java"):
        if shutil.which(program) is None:
            raise KafkaUnavailableError(f"{program} is not installed")
    with in_cache():
        if not libs.is_dir():
            _fetch(libs, timeout_seconds)
    return libs


@contextmanager
def in_cache() -> Iterator[None]:
    """While one process adds to the cache the others wait."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def class_archive() -> Path:
    """Where classes of these jars are kept for this Java (class data sharing), if a broker has run here before."""
    found = shutil.which("java")
    facts = [(CACHE / "libs").stat().st_mtime_ns, found and Path(found).resolve().stat().st_mtime_ns]
    return CACHE / f"classes-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.jsa"


def java_command(
    main_class: str, *arguments: str, heap: str = "256m", classes: Path | None = None, log_level: str = "error"
) -> list[str]:
    """What runs one of Kafka's classes, or of those in `classes`; skips the calling test where there are no jars."""
    path = f"{kafka_libs()}{os.sep}*"
    # Java goes without an archive that it cannot use.
    shared = [f"-XX:SharedArchiveFile={archive}", "-Xlog:disable"] if (archive := class_archive()).exists() else []
    quiet = f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log_level}"
    path = path if classes is None else f"{path}{os.pathsep}{classes}"
    return ["java", f"-Xmx{heap}", *shared, quiet, "-cp", path, main_class, *arguments]


def java_program(source: Path, *arguments: str, heap: str = "256m", log_level: str = "error") -> list[str]:
    """What runs a program of ours against Kafka's jars; skips the calling test where it cannot be compiled."""
    libs = kafka_libs()
    if shutil.which("javac") is None:
        pytest.skip(f"{source.name} needs a JDK (javac), which is not installed")
    sources = sorted(source.parent.glob("*.java"))
    digest = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()
    classes = CACHE / f"programs-{digest[:16]}"
    with in_cache():
        if not classes.is_dir():
            # All of them at once: most of what it takes is to start the compiler.
            with tempfile.TemporaryDirectory(dir=CACHE, prefix="programs-") as directory:
                made = Path(directory, "classes")
                subprocess.run(["javac", "-cp", f"{libs}{os.sep}*", "-d", str(made), *map(str, sources)], check=True)
                os.rename(made, classes)
    return java_command(source.stem, *arguments, heap=heap, classes=classes, log_level=log_level)


def _fetch(libs: Path, timeout_seconds: float) -> None:
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="fetch-") as directory:
        pom = Path(directory, "pom.xml")
        pom.write_text(POM)
        jars = Path(directory, "libs")
        command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds, check=False)
        except subprocess.TimeoutExpired:
            raise KafkaUnavailableError(f"Maven took longer than {timeout_seconds} s") from None
        if done.returncode != 0:
            reason = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
            raise KafkaUnavailableError(f"Maven failed: {reason[0]}")
        os.rename(jars, libs)


if __name__ == "__main__":
    try:
        print(fetch_libs(timeout_seconds=1800))
    except KafkaUnavailableError as error:
        sys.exit(str(error))
