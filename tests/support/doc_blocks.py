"""Python blocks of a document, run as a reader would paste them: each behind the document's first one."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

from support.cli import environment


def blocks_of(document: Path) -> tuple[str, list[tuple[str, str]]]:
    """The first block, and of the others code and what the text block behind it shows."""
    text = document.read_text()
    (set_up, shown), *blocks = re.findall(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", text, re.DOTALL)
    assert shown == "", "the first block prepares the others"
    assert blocks and all(shown for _, shown in blocks), "every block shows what it prints"
    return set_up, blocks


def heading_of(document: Path, code: str) -> str:
    """The section in which a block stands."""
    found: list[str] = re.findall(r"^#+ (.*)$", document.read_text().partition(code)[0], re.MULTILINE)
    return found[-1]


def run_block(script: str, *, warnings: str = "error") -> str:
    """What a script prints; it has to end well, without a warning unless they are handled otherwise (Python's -W)."""
    with subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", warnings, "-c", script],
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
    assert process.returncode == 0, f"{process.returncode}: {out}\n{err[-6000:]}"
    return out
