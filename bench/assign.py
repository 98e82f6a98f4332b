"""Assignors: from who owns what to who shall own what. Peer: Apache Kafka 4.3's own classes, warm, in the same run."""

from __future__ import annotations

import shutil
import subprocess
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import servers as _servers  # noqa: F401 - puts the tests' support on the path
from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable, AssignableMember, Assignor
from kohort.assign.ownership import PartitionSpace, changed_members, gather_owners, spread_owners
from kohort.ids import TopicId
from report import Row, Table, alternate, compare, warmed

PROGRAM = Path(__file__).with_name("AssignorTimes.java")
PEER = "Kafka 4.3's class"


class Shape(NamedTuple):
    """A group to assign; `kind`: all members want the same, teams want a fifth each, or all but a fifth."""

    assignor: str
    members: int
    topics: int
    partitions: int
    kind: str
    reach: tuple[str, str]

    def title(self) -> str:
        words = {"same": "", "teams": ", 5 teams with topics of their own", "gaps": ", 5 teams that overlap"}
        return f"{self.assignor} {self.members:,} x {self.topics * self.partitions:,}{words[self.kind]}"


SHAPES = (
    Shape("uniform", 1_000, 10, 1_000, "same", (">= 1x", ">= 1x")),
    Shape("uniform", 10_000, 1_000, 1_000, "same", ("<= 76 ms", "<= 16 ms")),
    Shape("uniform", 10_000, 100, 1_000, "teams", ("<= 20 ms", "<= 20 ms")),
    Shape("uniform", 10_000, 100, 1_000, "gaps", ("<= 20 ms", "<= 20 ms")),
    Shape("range", 10_000, 100, 1_000, "same", (">= 1x", ">= 1x")),
)


def build(shape: Shape, members: int, owner: array[int] | None = None) -> Assignable:
    """The group as an assignor sees it."""
    space = PartitionSpace((TopicId(i.to_bytes(16, "big")), shape.partitions) for i in range(shape.topics))
    if shape.kind == "same":
        choices = [array("i", range(members))] * 5
    else:
        is_apart = shape.kind == "teams"
        choices = [array("i", [m for m in range(members) if (m % 5 == team) == is_apart]) for team in range(5)]
    return Assignable(
        space=space,
        topic_names=tuple(f"topic-{i:05}" for i in range(shape.topics)),
        members=tuple(AssignableMember(member_id=f"m{i:06}") for i in range(members)),
        subscribers=tuple(choices[i % 5] for i in range(shape.topics)),
        owner=array("i", [-1]) * len(space) if owner is None else owner,
    )


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


@contextmanager
def kafkas_classes() -> Iterator[Callable[[str], float] | str]:
    """What times a computation of Kafka's, or a sentence why there is nothing."""
    from support.peers.apache import KafkaUnavailableError, fetch_libs

    try:
        libs = fetch_libs(timeout_seconds=150)
    except KafkaUnavailableError as error:
        yield f"left out: Apache Kafka's classes ({error})"
        return
    if shutil.which("javac") is None:
        yield "left out: Apache Kafka's classes need a JDK"
        return
    command = ["java", "-Xms3g", "-Xmx3g", "-cp", f"{libs}/*", str(PROGRAM)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def ask(line: str) -> float:
            asked.write(line + "\n")
            asked.flush()
            return float(answers.readline())

        yield ask
        asked.close()


def rows_of(shape: Shape, runs: int, peer: Callable[[str], float] | None) -> list[Row]:
    """A first assignment, and one after a member more."""
    assignor = built_in(shape.assignor)
    assert assignor is not None
    first = build(shape, shape.members)
    joined = build(shape, shape.members + 1, assignor.assign(first))
    rows = []
    for group, what, reach in ((first, "full", shape.reach[0]), (joined, "join", shape.reach[1])):
        line = f"{shape.assignor} {shape.members} {shape.topics} {shape.partitions} {shape.kind} {what}"
        theirs = partial(peer, line) if peer else None
        ours, peers = alternate(runs, partial(milliseconds, partial(assignor.assign, group)), theirs)
        title = f"{shape.title()}: {'all' if what == 'full' else 'one joins'}"
        how = f"{runs}, after 1, theirs after 2 s of it"
        rows.append(compare(title, ours, peers, unit="ms", reach=reach, peer_name=PEER, how=how, less_is_better=True))
    return rows


def rows_of_dictionaries(shape: Shape, runs: int) -> list[Row]:
    """What lies around an assignor: from targets to the array, and from the array to changed targets."""
    assignor = built_in(shape.assignor)
    assert assignor is not None
    first = build(shape, shape.members)
    before = assignor.assign(first)
    spread = spread_owners(first.space, before, range(shape.members))
    targets = [spread[member] for member in range(shape.members)]
    after = _after_join(shape, before, assignor)
    changed = changed_members(before, after, shape.members + 1)
    works: dict[str, Callable[[], object]] = {
        "targets to array": lambda: gather_owners(first.space, targets),
        "array to all targets": lambda: spread_owners(first.space, before, range(shape.members)),
        "who changed": lambda: changed_members(before, after, shape.members + 1),
        f"array to the {len(changed)} targets that change": lambda: spread_owners(first.space, after, changed),
    }
    rows = []
    for what, work in works.items():
        ours, _ = alternate(runs, partial(milliseconds, work), None)
        title = f"{shape.members:,} x {shape.topics * shape.partitions:,}: {what}"
        rows.append(
            compare(
                title, ours, [], unit="ms", reach="report", peer_name="no peer", how=warmed(runs), less_is_better=True
            )
        )
    return rows


def _after_join(shape: Shape, before: array[int], assignor: Assignor) -> array[int]:
    return assignor.assign(build(shape, shape.members + 1, before))


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with kafkas_classes() as peer:
        left_out = [peer] if isinstance(peer, str) else []
        for shape in SHAPES:
            rows += rows_of(shape, runs, None if isinstance(peer, str) else peer)
    around = Table("targets", "Around the assignors", rows_of_dictionaries(SHAPES[1], runs))
    return [Table("assign", "Assignors", rows, left_out), around]
