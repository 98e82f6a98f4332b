"""What docs/groups.md shows is what happens: its Python, its command lines and those of Kafka's tool.

Each Python block is a script of its own behind the first one; the text block after it is what it prints.
"""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from support.apache_broker import run_kafka_tool
from support.cli import environment, run_kohort
from support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "groups.md").read_text()
SET_UP, *BLOCKS = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", TEXT, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
#: Kafka's scripts -> what they run.
KAFKA_TOOLS = {"kafka-configs.sh": "kafka.admin.ConfigCommand"}
ADDRESS_SHOWN = "127.0.0.1:9092"


def heading_of(code: str) -> str:
    """The section in which a block stands."""
    found: list[str] = re.findall(r"^#+ (.*)$", TEXT.partition(code)[0], re.MULTILINE)
    return found[-1]


@pytest.mark.interop
@pytest.mark.parametrize(("code", "shown"), BLOCKS, ids=[heading_of(code) for code, _ in BLOCKS])
def test_python_prints_what_the_text_says(code: str, shown: str) -> None:
    if "confluent_kafka" in code:
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if "^metrics" in code:
        pytest.importorskip("re2", reason="google-re2 is not installed")
    script = f"{SET_UP[0]}\n{code}"
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        try:
            out, err = process.communicate(timeout=90)
        except subprocess.TimeoutExpired:
            # Where it hangs is in the traces of its threads.
            process.send_signal(signal.SIGABRT)
            out, err = process.communicate()
    assert process.returncode == 0, f"{out}\n{err[-6000:]}"
    assert out == shown


def test_every_block_shows_what_it_prints() -> None:
    assert SET_UP[1] == ""
    assert BLOCKS and all(shown for _, shown in BLOCKS)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with a member in the group "billing"."""
    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 4)
        with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
            consumer.subscribe(["orders"])
            until(lambda: bool(consumer.assignment()), what="the member", step=lambda: consumer.poll(0.1))
            yield broker.bootstrap_servers


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("kohort ")])
def test_command_works(line: str, address: str) -> None:
    """The group that it names is there."""
    run = run_kohort(*shlex.split(line)[1:], "--bootstrap", address)
    assert (run.code, run.err) == (0, "")
    assert "list" in line or "billing" in run.out or "consumer.session.timeout.ms" in run.out or "joined" in run.out


@pytest.mark.interop
@pytest.mark.apache
@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("kohort ")])
def test_command_of_kafka_works(line: str, address: str) -> None:
    script, *words = shlex.split(line)
    assert ADDRESS_SHOWN in words
    said = run_kafka_tool(KAFKA_TOOLS[script], *(address if word == ADDRESS_SHOWN else word for word in words))
    assert "group billing" in said
