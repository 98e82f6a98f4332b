"""What docs/groups.md shows is what happens: its Python, its command lines and those of Kafka's tool.

Each Python block is a script of its own behind the first one; the text block after it is what it prints.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from support.cli import run_kohort
from support.doc_blocks import blocks_of, heading_of, run_block
from support.kafka_tools import run_kafka_tool
from support.waiting import until

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "groups.md"
TEXT = DOCUMENT.read_text()
SET_UP, BLOCKS = blocks_of(DOCUMENT)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
#: Kafka's scripts -> what they run.
KAFKA_TOOLS = {"kafka-configs.sh": "kafka.admin.ConfigCommand"}
ADDRESS_SHOWN = "127.0.0.1:9092"


@pytest.mark.interop
@pytest.mark.parametrize(("code", "shown"), BLOCKS, ids=[heading_of(DOCUMENT, code) for code, _ in BLOCKS])
def test_python_prints_what_the_text_says(code: str, shown: str) -> None:
    if "confluent_kafka" in code:
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if "^metrics" in code:
        pytest.importorskip("re2", reason="google-re2 is not installed")
    assert run_block(f"{SET_UP}\n{code}") == shown


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A broker with a member in the group "billing"."""
    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 4)
        here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "billing", "member_name": "worker-2"}
        with kohort.Consumer("orders", **here) as consumer:
            until(lambda: bool(consumer.assignment()), what="the member", step=lambda: consumer.poll(0.1))
            yield broker.bootstrap_servers


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("kohort ")])
def test_command_works(line: str, address: str) -> None:
    """The group that it names is there."""
    be_ready_for(line, address)
    run = run_kohort(*shlex.split(line)[1:], "--bootstrap", address)
    assert (run.code, run.err) == (0, "")
    assert (
        "list" in line
        or "has it" in run.out
        or "set group.moves." in run.out
        or "billing" in run.out
        or "consumer.session.timeout.ms" in run.out
        or "joined" in run.out
    )


def be_ready_for(line: str, address: str) -> None:
    """What is about static groups comes behind the line that makes the group static."""
    if re.search(r"group (rebalance|dynamic) |rebalance.token", line):
        assert run_kohort("group", "static", "billing", "--bootstrap", address).code == 0


@pytest.mark.interop
@pytest.mark.apache
@pytest.mark.parametrize("line", [line for line in COMMANDS if not line.startswith("kohort ")])
def test_command_of_kafka_works(line: str, address: str) -> None:
    script, *words = shlex.split(line)
    assert ADDRESS_SHOWN in words
    be_ready_for(line, address)
    said = run_kafka_tool(KAFKA_TOOLS[script], *(address if word == ADDRESS_SHOWN else word for word in words))
    assert "group billing" in said
