"""What docs/cli.md and docs/durability.md show is what happens: shell blocks in order, and what each prints; tables."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import kohort
from kohort.cli.main import VERBS, build_parser
from kohort.cli.parser import foreign_words
from kohort.cli.recordformat import TOKENS
from support.cli import TIMEOUT_SECONDS, environment

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "cli.md").read_text()
#: In the shell of the text, `kohort` and Python are those of this checkout.
SHELL = f"""
python3() {{ {shlex.quote(sys.executable)} "$@"; }}
kohort() {{ python3 -m kohort.cli.main "$@"; }}
set -eo pipefail
"""


@pytest.mark.interop
@pytest.mark.parametrize("name", ["cli.md", "durability.md"])
def test_every_block_prints_what_the_text_says(name: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / name).read_text()
    blocks = re.findall(r"```sh\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    with kohort.Broker() as broker:
        for code, shown in blocks:
            done = subprocess.run(
                ["bash", "-c", SHELL + code],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                timeout=TIMEOUT_SECONDS * 3,
                check=False,
                env=environment({"KOHORT_BOOTSTRAP": broker.bootstrap_servers}),
            )
            assert (done.returncode, done.stderr) == (0, ""), code
            assert done.stdout == shown, code


def test_every_verb_and_token_is_in_the_text() -> None:
    for verb in VERBS:
        assert f"`kohort {verb}" in TEXT
    for token in TOKENS:
        assert f"`{token}`" in TEXT


def commands() -> list[str]:
    """What the table of other tools gives as ours, where it is a command line."""
    rows = [line.split(" | ")[-1] for line in TEXT.partition("## From other tools")[2].splitlines() if "|" in line]
    return [command for row in rows for command in re.findall(r"`(kohort [^`]*)`", row)]


@pytest.mark.parametrize("command", commands())
def test_what_stands_for_a_foreign_command_can_be_typed(command: str) -> None:
    words = shlex.split(command)[1:]
    assert tuple(words[:1]) not in set(foreign_words())
    build_parser().parse_args(words)
