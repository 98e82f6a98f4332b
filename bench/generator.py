"""The compiled load generator: ready-made requests over open connections, answers counted, error codes looked at.

`generator.c` is compiled on first use into the checkout's cache. It gets the connections as file descriptors, so that
they are the very ones over which members joined or topics were made. The same bytes go to both brokers, from a program
that takes less of a core than any broker: what is compared is the broker, and the generator's own share is recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
CACHE = Path(__file__).parent.parent / ".cache" / "bench"
#: For `place` of an error code: there is none to look at.
NOWHERE = 2**32 - 1
UNLIMITED = 2**64 - 1
#: Longer than the generator's own patience, and than any run.
GIVE_UP_S = 120


class LoadError(Exception):
    """The load was not carried out as it was meant; the text says what happened."""


@dataclass(frozen=True, kw_only=True)
class LoadReport:
    """What one run of the generator did; sizes in bytes, its own processor time in seconds."""

    seconds: float
    answers: int
    fewest_answers: int
    sent_bytes: int
    received_bytes: int
    errors: int
    first_error: int
    smallest_answer: int
    largest_answer: int
    cpu_s: float


@dataclass(frozen=True)
class Line:
    """One connection and the requests that it sends in a circle."""

    descriptor: int
    requests: Sequence[bytes]


def parse_report(text: str) -> LoadReport:
    """The generator's line as a report.

    Raises:
        LoadError: it is no such line, a broker answered with an error, or a connection got no answer at all.
    """
    try:
        found = json.loads(text)
        report = LoadReport(**{field.name: found[field.name] for field in fields(LoadReport)})
    except (ValueError, KeyError, TypeError):
        raise LoadError(f"the generator said {text!r}") from None
    if report.errors:
        raise LoadError(f"{report.errors} of {report.answers} answers carry an error, the first {report.first_error}")
    if not report.fewest_answers:
        raise LoadError("a connection got no answer")
    return report


def pack(lines: Sequence[Line], *, in_flight: int, seconds: float, limit: int, place: int) -> bytes:
    """What the generator reads: see the head of `generator.c`."""
    parts = [struct.pack("<IIQdI", len(lines), in_flight, limit, seconds, place)]
    for line in lines:
        # Neighbours in the circle go by one call, so a short circle is written out several times.
        requests = b"".join(line.requests) * -(-in_flight // len(line.requests))
        count = len(line.requests) * -(-in_flight // len(line.requests))
        parts += [struct.pack("<IIQ", line.descriptor, count, len(requests)), requests]
    return b"".join(parts)


def compiled() -> Path:
    """The program, made now if this source has not been compiled yet.

    Raises:
        LoadError: there is no C compiler, or it refuses the source.
    """
    program = CACHE / f"generator-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}"
    if not program.exists():
        if shutil.which("cc") is None:
            raise LoadError("the load generator needs a C compiler: install one, so that `cc` is found")
        CACHE.mkdir(parents=True, exist_ok=True)
        draft = program.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(draft), str(SOURCE)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            raise LoadError(f"cc does not compile {SOURCE.name}: {run.stderr[-1000:]}")
        draft.rename(program)
    return program


def generate(
    lines: Sequence[Line], *, in_flight: int, seconds: float, limit: int = UNLIMITED, place: int = NOWHERE
) -> LoadReport:
    """Load the connections and wait for the last answer.

    Args:
        lines: their sockets stay open and are the caller's again afterwards, with nothing in them.
        in_flight: requests without an answer, at most, on each connection.
        seconds: requests are sent for so long.
        limit: of all requests together; whichever comes first.
        place: where in each answer, behind its length, the two bytes of its error code stand.

    Raises:
        LoadError: see `parse_report`; or a connection broke.
    """
    run = subprocess.run(
        [str(compiled())],
        input=pack(lines, in_flight=in_flight, seconds=seconds, limit=limit, place=place),
        capture_output=True,
        pass_fds=[line.descriptor for line in lines],
        timeout=GIVE_UP_S,
        check=False,
    )
    if run.returncode != 0:
        raise LoadError(f"the generator gave up: {run.stderr.decode().strip()}")
    return parse_report(run.stdout.decode())
