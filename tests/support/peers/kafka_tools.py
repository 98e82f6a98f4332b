"""Command line tools of Apache Kafka, run one after the other by one Java: to start one costs more than most commands.

Laws: a tool says and ends as in a process of its own. One that fails leaves its Java unfit for the next.
"""

from __future__ import annotations

import atexit
import base64
import subprocess
import threading
from pathlib import Path

from support.peers.apache import java_program

PROGRAM = Path(__file__).with_name("KafkaTools.java")
#: The Java of this process, if there is one.
_running: list[subprocess.Popen[str]] = []
_lock = threading.Lock()


def run_kafka_tool(main_class: str, *arguments: str, timeout: float = 90) -> str:
    """Run a command line tool of Apache Kafka (against any broker); its output, or an error with all it said."""
    with _lock:
        if not _running:
            _running.append(
                subprocess.Popen(java_program(PROGRAM), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
        code, out, err = _ask(_running[0], [main_class, *arguments], timeout)
        if code:
            end_java()
    if code:
        raise RuntimeError(f"{main_class} failed ({code}): {out[-1500:]} {err[-1500:]}")
    return out


def _ask(java: subprocess.Popen[str], words: list[str], timeout: float) -> tuple[int, str, str]:
    assert java.stdin is not None
    assert java.stdout is not None
    hurry = threading.Timer(timeout, java.kill)
    hurry.start()
    try:
        java.stdin.write(" ".join(base64.b64encode(word.encode()).decode() for word in words) + "\n")
        java.stdin.flush()
        answer = java.stdout.readline()
    finally:
        hurry.cancel()
    if not answer:
        return -1, "", f"no answer within {timeout:g} s"
    code, out, err = answer.rstrip("\n").split(" ")
    return int(code), base64.b64decode(out).decode(), base64.b64decode(err).decode()


@atexit.register
def end_java() -> None:
    """End the Java of this process."""
    while _running:
        with _running.pop() as java:
            java.kill()
