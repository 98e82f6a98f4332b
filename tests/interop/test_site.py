"""What the pages of docs/ show is what happens: their Python, their shell blocks and lines of Kafka's tools.

A Python block of a how-to or an explanation is a script of its own behind the set-up of how-to/index.md; those of a
tutorial are one program. The text block behind a block is what it prints.
"""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort
from kohort.cli.main import VERBS, build_parser
from kohort.cli.recordformat import TOKENS
from support.builders.site import DOCS, PAGES, RUN_ELSEWHERE, Block, blocks, run_block, scripts
from support.peers.cli import TIMEOUT_SECONDS, environment, foreign_words, forks_of, run_kohort
from support.peers.kafka_tools import run_kafka_tool
from support.waiting import until

pytestmark = pytest.mark.interop

#: Kafka's scripts -> what they run.
KAFKA_TOOLS = {"kafka-configs.sh": "kafka.admin.ConfigCommand"}
ADDRESS_SHOWN = "127.0.0.1:9092"
#: Pages whose shell blocks are a session, with what it prints.
SESSIONS = ("reference/cli.md", "explanation/durability.md", "how-to/reset-offsets.md", "how-to/give-out-tokens.md")
LINES = [
    line
    for page in PAGES
    if page.startswith(("how-to/", "explanation/")) and page not in SESSIONS and page not in RUN_ELSEWHERE
    for block in blocks(page, "sh")
    for line in block.code.splitlines()
]
CLI = PAGES["reference/cli.md"]


@pytest.mark.parametrize("script", scripts(), ids=lambda script: script.page)
def test_python_prints_what_the_text_says(script: Block) -> None:
    if "confluent_kafka" in script.code:
        pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if "^metrics" in script.code:
        pytest.importorskip("re2", reason="google-re2 is not installed")
    assert run_block(script.code) == script.shown


@pytest.mark.parametrize("page", [page for page in PAGES if "\n>>> " in PAGES[page]])
def test_dialogue_with_python_is_what_happens(page: str) -> None:
    assert doctest.testfile(str(DOCS / page), module_relative=False).failed == 0


@pytest.mark.parametrize("page", SESSIONS)
def test_every_shell_block_prints_what_the_text_says(page: str, tmp_path: Path) -> None:
    with kohort.Broker() as broker:
        whole = environment({"KOHORT_BOOTSTRAP": broker.bootstrap_servers})
        # In the shell of the text, `kohort` and Python are those of this checkout.
        shell = f"""
            python3() {{ {shlex.quote(sys.executable)} "$@"; }}
            kohort() {{ {shlex.join(forks_of(whole).shell_words())} "$@"; }}
            set -eo pipefail
        """
        for _, code, shown in blocks(page, "sh"):
            done = subprocess.run(
                ["bash", "-c", shell + code],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=TIMEOUT_SECONDS * 3,
                check=False,
                env=whole,
            )
            assert (done.returncode, done.stderr) == (0, ""), code
            assert done.stdout == shown, code


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


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("kohort ")])
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
        or "kohort.broker.groups" in run.out
        or "altered" in run.out
        or "nothing is wrong" in run.out
    )


def be_ready_for(line: str, address: str) -> None:
    """What is about static groups comes behind the line that makes the group static."""
    if re.search(r"group (rebalance|dynamic) |rebalance.token", line):
        assert run_kohort("group", "static", "billing", "--bootstrap", address).code == 0


@pytest.mark.apache
@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("kohort ")])
def test_command_of_kafka_works(line: str, address: str) -> None:
    script, *words = shlex.split(line)
    assert ADDRESS_SHOWN in words
    be_ready_for(line, address)
    said = run_kafka_tool(KAFKA_TOOLS[script], *(address if word == ADDRESS_SHOWN else word for word in words))
    assert "group billing" in said


def test_every_verb_and_token_is_in_the_text() -> None:
    for verb in VERBS:
        assert f"`kohort {verb}" in CLI
    for token in TOKENS:
        assert f"`{token}`" in CLI


def commands() -> list[str]:
    """What the table of other tools gives as ours, where it is a command line."""
    rows = [line.split(" | ")[-1] for line in CLI.partition("## From other tools")[2].splitlines() if "|" in line]
    return [command for row in rows for command in re.findall(r"`(kohort [^`]*)`", row)]


def test_what_stands_for_a_foreign_command_can_be_typed() -> None:
    parser, foreign = build_parser(), set(foreign_words())
    for command in commands():
        words = shlex.split(command)[1:]
        assert tuple(words[:1]) not in foreign
        assert parser.parse_args(words), command
