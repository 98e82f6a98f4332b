"""What it costs a stock Java member that its heartbeats are held: processor time at rest, with push and without.

Run as a script: two members of each protocol at each of two brokers, all at rest, measured over the same time.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from kohort import Admin, Broker
from support.peers.member_process import MemberProcess, wait_for
from support.scenarios.held_scenarios import CLIENTS

WINDOWS: Final = 8
WINDOW_SECONDS: Final = 20.0
PARTITIONS: Final = 4


def processor_seconds(process_id: int) -> float:
    """What all threads of a process, and those that it had, have used."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def measure(stack: ExitStack) -> None:
    """Print a line for each protocol."""
    members: dict[tuple[str, bool], list[MemberProcess]] = {}
    for is_pushing in (True, False):
        broker = stack.enter_context(Broker(process=True, config={"group.push.enable": is_pushing}))
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", PARTITIONS)
        for client in ("Java, consumer", "Java, range"):
            program, options = CLIENTS[client]
            members[client, is_pushing] = made = [
                stack.enter_context(MemberProcess(program, broker.bootstrap_servers, client, "t", options))
                for _ in range(2)
            ]
            named = {f"{client} {number}": each for number, each in enumerate(made)}
            wait_for(lambda made=made: all(len(each.held) == 2 for each in made), named, "both have their share")  # type: ignore[misc]
    pause = threading.Event()
    pause.wait(WINDOW_SECONDS)
    used: dict[tuple[str, bool], list[float]] = {place: [] for place in members}
    for _ in range(WINDOWS):
        before = {place: sum(processor_seconds(each.process_id) for each in made) for place, made in members.items()}
        pause.wait(WINDOW_SECONDS)
        for place, made in members.items():
            used[place].append(sum(processor_seconds(each.process_id) for each in made) - before[place])
    for client in ("Java, consumer", "Java, range"):
        on, off = used[client, True], used[client, False]
        shown = " / ".join(", ".join(f"{each:.2f}" for each in side) for side in (on, off))
        ratio = sum(on) / sum(off)
        print(f"{client}: {ratio:.2f}x with push; seconds of two members in {WINDOW_SECONDS:g} s: {shown}")


if __name__ == "__main__":
    with ExitStack() as everything:
        measure(everything)
