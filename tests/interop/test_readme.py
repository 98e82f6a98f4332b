"""The README's "Use it", pasted from top to bottom as a newcomer does it: every block works and shows something.

Only the address is another one: `kohort up` takes a free port, and what follows is told which.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from support.peers.cli import SOURCE, Running, forks_of, started

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

README = Path(__file__).resolve().parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"
#: The block with the fixture is a module of tests, and is run as one in test_examples.py.
IN_TESTS = "def test_my_pipeline"

#: What stands in for the command: the README's words, a port of its own.
COMMAND = """#!/bin/sh
if [ "$1" = up ]; then
    exec "{python}" -m kohort.cli.main "$@" --port 0
fi
exec {forked} "$@" --bootstrap "$(cat "{folder}/address")"
"""


def blocks() -> list[tuple[str, str]]:
    """(language, text) of the blocks of "Use it", in order."""
    section = README.read_text().partition("\n## Use it\n")[2].partition("\n## ")[0]
    return [
        (lang, text) for lang, text in re.findall(r"```(\w+)\n(.*?)```", section, re.DOTALL) if IN_TESTS not in text
    ]


class Newcomer:
    """Somebody in a folder with an environment, who opens a terminal for each block."""

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        self.folder = folder
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        # Activated or not, the path's python3 is none that has kohort: the Spark block has to name the right one.
        self._environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
        self._environment |= {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1"}
        # The report takes a Java that is there; the Spark block starts its own, as it does where it is pasted.
        self._of_shell = {**self._environment, **variables}
        forked = shlex.join(forks_of(self._environment).shell_words())
        for name, text in (
            ("kohort", COMMAND.format(python=sys.executable, forked=forked, folder=folder)),
            ("python3", "#!/bin/sh\nexit 3\n"),
        ):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (programs / "activate").write_text(f'PATH="{programs}:$PATH"\n')

    def start(self, text: str) -> AbstractContextManager[Running]:
        """A shell block that stays in the foreground."""
        return started(self._shell(text), env=self._environment, cwd=self.folder)

    def run(self, language: str, text: str) -> str:
        """What a block prints; it must end well."""
        environment = self._environment
        if language == "python":
            (self.folder / "job.py").write_text(text.replace(ADDRESS, (self.folder / "address").read_text()))
            path = f"{self.folder}/.venv/bin:{environment['PATH']}"
            command, environment = [sys.executable, "job.py"], {**environment, "PATH": path}
        else:
            command, environment = self._shell(text), self._of_shell
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr[-3000:]}"
        assert done.stdout or text.startswith("source "), f"prints nothing:\n{text}"
        return done.stdout

    def _shell(self, text: str) -> list[str]:
        return ["bash", "-e", "-o", "pipefail", "-c", f"source .venv/bin/activate\n{text}"]


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory, java_of_programs: dict[str, str]) -> Iterator[dict[str, str]]:
    """Block -> what it printed, all of them in order against the broker that the README starts."""
    newcomer = Newcomer(tmp_path_factory.mktemp("newcomer"), java_of_programs)
    printed = {}
    with ExitStack() as stack:
        for language, text in blocks():
            if text.startswith("kohort up "):
                broker = stack.enter_context(newcomer.start(text))
                (ready,) = broker.wait_for_lines(1, start="ready ")
                (newcomer.folder / "address").write_text(ready.removeprefix("ready "))
            else:
                printed[text] = newcomer.run(language, text)
        assert (newcomer.folder / "data" / "orders-0").is_dir()
        assert broker.end() == 0
        yield printed


def output_of(said: dict[str, str], *words: str) -> list[str]:
    (text,) = [text for text in said if all(word in text for word in words)]
    return said[text].splitlines()


def test_the_broker_takes_and_gives_records(said: dict[str, str]) -> None:
    lines = output_of(said, "kohort topic create", "kohort tail")
    assert lines[:2] == ["created orders with 4 partitions", "sent 10 records to orders"]
    assert sorted(lines[2:], key=int) == [str(number) for number in range(1, 11)]


def test_the_client_reads_what_was_sent(said: dict[str, str]) -> None:
    lines = output_of(said, "kohort.Producer", "kohort.Consumer")
    assert any(re.fullmatch(r"[0-3] \d+ b'.*'", line) for line in lines)


def test_its_group_is_there_with_its_offsets_history_and_configs(said: dict[str, str]) -> None:
    lines = output_of(said, "kohort group history billing")
    assert any(line.startswith("billing ") for line in lines)
    assert any(line.startswith("orders ") for line in lines)
    assert any("joined" in line for line in lines)
    assert any(re.match(r"consumer\.session\.timeout\.ms +10000 +group", line) for line in lines)


def test_the_query_shows_every_order_and_its_group_has_no_lag(said: dict[str, str]) -> None:
    """With a python3 on the path that has neither kohort nor Spark."""
    rows = [line.split("|")[1:-1] for line in output_of(said, "kohort.spark.session") if line.startswith("|")]
    assert [cell.strip() for cell in rows[0]] == ["partition", "offset", "key", "value"]
    assert {"1", "10", '{"amount": 3}'} <= {row[-1].strip() for row in rows[1:]}
    assert len(rows) == 1 + 11
    topic_rows = [line.split() for line in output_of(said, "describe reports") if line.startswith("orders ")]
    assert sum(int(committed) for _, _, committed, *_ in topic_rows) == 11
    assert {lag for _, _, _, _, lag, *_ in topic_rows} == {"0"}
