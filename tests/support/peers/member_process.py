"""A member of a group by any client, in a process of its own: it can be stopped and killed, and says what it does.

`main` is one by a client of Python; Java's is `KafkaMember`, and Go and Node
have theirs in `go_clients` and `node_clients`. All print "held t-0 t-1" when what
they hold changes, "committed 0:5 1:7" when they have committed, "error CLASS MESSAGE" and at last "closed", and take
the same words. What their libraries log goes to standard error.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from support.peers.apache import java_program
from support.peers.cli import forks_of
from support.peers.forked_commands import ForkedProcess
from support.peers.java_member import PROGRAM
from support.peers.other_languages import go_program, node_command
from support.waiting import PATIENCE_SECONDS, until

#: Python clients, by the names of their classes in `polled_members`.
_CLASSES: Final = {
    "kohort": "OurMember",
    "librdkafka": "ConfluentMember",
    "kafka-python": "KafkaPythonMember",
    "aiokafka": "AioMember",
}
#: Programs of `go_clients` and clients of `node_clients`.
_GO_CLIENTS: Final = ("franz_go", "sarama")
_NODE_CLIENTS: Final = ("platformatic", "kafkajs")
_OFTEN_SECONDS: Final = 0.1


class MemberProcess:
    """The process, seen from the test; a context manager."""

    def __init__(self, client: str, address: str, group: str, topic: str, options: Mapping[str, object]) -> None:
        """`client`: "java", or one of Python, Go or Node; `options`: its own, with underscores for dots."""
        self.held: set[int] = set()
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.is_closed = False
        self.errors: list[str] = []
        self.logged: list[str] = []
        is_python = client != "java" and client not in (*_GO_CLIENTS, *_NODE_CLIENTS)
        self._process = (_fork if is_python else _start)(client, address, group, topic, options)
        self._readers = [threading.Thread(target=each, daemon=True) for each in (self._read, self._read_log)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def process_id(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the process is over."""
        return self._process.poll() is not None

    def tell(self, word: str) -> None:
        """Have it "leave", "return", commit "often" or "seldom"."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()

    def close(self) -> None:
        """Let it close its client, and wait for its end."""
        self.tell("close")
        self._process.wait(PATIENCE_SECONDS)
        self.kill()
        assert self.is_closed, "it did not come to its end"

    def stop(self) -> None:
        """SIGSTOP: it keeps its connections and says nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped one go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it without a word, if it has not ended."""
        self._process.kill()
        self._process.wait(PATIENCE_SECONDS)
        for reader in self._readers:
            reader.join(PATIENCE_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self.held = set()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, *rest = line.split()
            if word == "held":
                self.held = {int(name.rpartition("-")[2]) for name in rest}
            elif word == "committed":
                self.commits += 1
                for place in rest:
                    partition, _, offset = place.partition(":")
                    self.committed[int(partition)] = int(offset)
            elif word == "closed":
                self.is_closed = True
            else:
                self.errors.append(line.rstrip())

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.logged.append(line.rstrip())


def _start(client: str, address: str, group: str, topic: str, options: Mapping[str, object]) -> subprocess.Popen[str]:
    if client == "java":
        settings = [f"{key.replace('_', '.')}={value}" for key, value in options.items()]
        arguments = (address, group, "-", topic, "commit.ms=0", "enable.auto.commit=false", *settings)
        command = java_program(PROGRAM, *arguments, heap="128m", log_level="info")
    elif client in _GO_CLIENTS:
        command = [str(go_program(client)), address, group, topic, json.dumps(options)]
    else:
        command = [*node_command(client), address, group, topic, json.dumps(options)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def _fork(client: str, address: str, group: str, topic: str, options: Mapping[str, object]) -> ForkedProcess:
    whole = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = [client, address, group, topic, json.dumps(options)]
    forks = forks_of(whole, "support.peers.polled_members", __name__)
    return forks.open(words, environment=whole, script=f"from {__name__} import main\nmain()", has_input=True)


def main() -> None:
    """Be a member, as the words of the command line say."""
    client, address, group, topic, options = sys.argv[1:]
    _run(client, address, group, topic, json.loads(options))


def _run(client: str, address: str, group: str, topic: str, options: dict[str, Any]) -> None:
    from support.peers import polled_members

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    if client == "librdkafka":
        options["logger"] = logging.getLogger("librdkafka")
    words: list[str] = []
    listener = threading.Thread(target=lambda: words.extend(line.strip() for line in sys.stdin), daemon=True)
    try:
        member = getattr(polled_members, _CLASSES[client])(address, group, topic, **options)
        listener.start()
        _work(member, words, topic)
    except Exception as error:
        # The client will not go on.
        _complain(error)
        raise
    member.close()
    print("closed", flush=True)


def _work(member: Any, words: list[str], topic: str) -> None:
    """Read, commit and do as told, until that is to close."""
    held: set[int] = set()
    committed: dict[int, int] = {}
    committed_at, is_often, is_subscribed = 0.0, False, True
    while True:
        word = words.pop(0) if words else ""
        if word == "close":
            return
        if word == "leave":
            member.unsubscribe()
            is_subscribed = False
        elif word == "return":
            member.subscribe()
            is_subscribed = True
        elif word:
            is_often = word == "often"
        if is_subscribed:
            member.poll()
        else:
            threading.Event().wait(_OFTEN_SECONDS)
        if member.owned() != held:
            held = member.owned()
            print("held", *(f"{topic}-{each}" for each in sorted(held)), flush=True)
        done = {each: offset for each, offset in member.done.items() if each in held}
        is_due = is_often and time.monotonic() - committed_at >= _OFTEN_SECONDS
        if done and (is_due or done != committed):
            committed, committed_at = done, time.monotonic()
            _commit(member, done)


def _commit(member: Any, done: dict[int, int]) -> None:
    try:
        member.commit(done)
    except Exception as error:
        _complain(error)
    else:
        print("committed", *(f"{partition}:{offset}" for partition, offset in sorted(done.items())), flush=True)


def _complain(error: Exception) -> None:
    print("error", type(error).__name__, str(error).replace("\n", " "), flush=True)


def wait_for(happened: Any, members: Mapping[str, MemberProcess], what: str) -> None:
    """Wait for what members do; a failure tells what they said."""

    def tell() -> str:
        said = {name: (sorted(each.held), each.committed, each.errors[-3:]) for name, each in members.items()}
        return f"{what}; {said}; {[line for each in members.values() for line in each.logged[-3:]]}"

    pause = threading.Event()
    until(happened, what=tell, step=lambda: pause.wait(0.02))
