"""The members of the demo's group as the demo sees them: processes that come, go and are killed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import Any

from kohort.cli.demo.account import MemberAccount, Span
from kohort.cli.demo.place import TOPIC

GROUP = "flights-readers"


class Member:
    """A member process, and the thread that reads its output."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.account = MemberAccount(name=name, fate="running")
        arguments = ["--bootstrap", bootstrap, "--group", GROUP, "--topic", TOPIC, "--name", name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kohort.cli.demo.member", *arguments],
            # Its end tells the member to leave, also when this process is killed.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """Kill the process by SIGKILL: it neither leaves nor commits."""
        self.process.kill()
        self.account.fate = "killed (SIGKILL)"

    def leave(self) -> None:
        """Let the process commit and leave, and read the rest of its output."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.account.fate = "did not leave in time"
        self._reader.join(10.0)
        if self.account.fate == "running":
            self.account.fate = "left" if self.process.returncode == 0 else f"failed with {self.process.returncode}"

    def end(self) -> None:
        """Kill the process if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                self._note(json.loads(line))

    def _note(self, row: dict[str, Any]) -> None:
        account = self.account
        if row["event"] == "assigned":
            account.owned = sorted({*account.owned, *row["partitions"]})
        elif row["event"] in ("revoked", "lost"):
            account.owned = [partition for partition in account.owned if partition not in row["partitions"]]
        elif row["event"] == "processed":
            for partition, (first, last, count) in row["spans"].items():
                account.records += count
                account.spans.append(Span(int(partition), first, last, row["at"]))
        elif row["event"] == "committed":
            account.committed.update({int(partition): offset for partition, offset in row["offsets"].items()})
